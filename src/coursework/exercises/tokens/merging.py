"""`merge_pair`: one pair of ids becomes one id, from left to right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.tokens import merge_pair
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.tokens.texts import row

Rng = np.random.Generator


def _names(rng: Rng, n: int) -> list[int]:
    """`n` different ids."""
    return [int(i) for i in rng.permutation(300)[:n]]


def _with_pair(rng: Rng, n: int) -> Call:
    """A row in which a pair (a, b) of different ids stands several times, and b before a too."""
    a, b, c, d, new = _names(rng, 5)
    pieces = [[a, b], [b, a], [c], [a], [b], [d, a, b]]
    ids = [a, b, c, a, b]
    for i in rng.integers(0, len(pieces), n):
        ids += pieces[i]
    return Call((ids, (a, b), new))


def _pairs(rng: Rng) -> Sequence[Call]:
    a, b, c, new = _names(rng, 4)
    return (
        Call(([7, 5, 6, 5, 6, 8], (5, 6), 9)),
        Call(([c, a, b, a], (a, b), new)),
        Call(([a, b, b, a, b], (a, b), new)),
        Call(([b, a, b, c, b, a, a], (a, b), new)),
        Call(([12, 13, 2, 1, 32, 1, 2, 14], (2, 1), new + 40)),  # "2, 1" is in "12, 13" as text
        _with_pair(rng, 3),
        _with_pair(rng, 7),
        _with_pair(rng, 13),
    )


def _runs(rng: Rng) -> Sequence[Call]:
    a, b, new = _names(rng, 3)
    odd = 2 * int(rng.integers(2, 5)) + 1
    return calls(
        ([1, 1, 1], (1, 1), 2),
        ([a] * 4, (a, a), new),
        ([b, a, a, a, b, a, a], (a, a), new),
        ([a] * odd + [b], (a, a), new),
        ([a, a, b, b, b, a, a, a, a, a, b], (a, a), new),
    )


def _nothing_to_do(rng: Rng) -> Sequence[Call]:
    a, b, c, new = _names(rng, 4)
    ids = [i for i in row(rng, 11) if i not in (a, new)]
    return calls(
        ([], (a, b), new),
        ([a], (a, b), new),
        ([b, a], (a, b), new),
        ([a, b], (a, b), new),
        ([c, a], (a, b), new),
        (ids, (a, b), new),
    )


def _overlapping(ids, pair, new_id):
    starts = [tuple(ids[i : i + 2]) == pair for i in range(len(ids))]
    merged = []
    for i in range(len(ids)):
        if starts[i]:
            merged.append(new_id)
        elif i == 0 or not starts[i - 1]:
            merged.append(ids[i])
    return merged


def _first_only(ids, pair, new_id):
    for i in range(len(ids) - 1):
        if (ids[i], ids[i + 1]) == pair:
            return [*ids[:i], new_id, *ids[i + 2 :]]
    return list(ids)


def _in_place(ids, pair, new_id):
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            ids[i : i + 2] = [new_id]
        i += 1
    return ids


def _second_stays(ids, pair, new_id):
    merged = []
    for i in range(len(ids)):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
        else:
            merged.append(ids[i])
    return merged


def _both_replaced(ids, pair, new_id):
    merged = list(ids)
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            merged[i] = merged[i + 1] = new_id
            i += 2
        else:
            i += 1
    return merged


def _from_the_right(ids, pair, new_id):
    merged = []
    i = len(ids) - 1
    while i >= 0:
        if i > 0 and (ids[i - 1], ids[i]) == pair:
            merged.append(new_id)
            i -= 2
        else:
            merged.append(ids[i])
            i -= 1
    return merged[::-1]


def _either_order(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and {ids[i], ids[i + 1]} == set(pair):
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def _last_lost(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def _end_overlooked(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if i < len(ids) - 2 and (ids[i], ids[i + 1]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def _beyond_the_end(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if ids[i] == pair[0] and ids[i + 1] == pair[1]:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


MERGE_PAIR = Exercise(
    chapter=1,
    signature="merge_pair(ids, pair, new_id) -> list[int]",
    task="""\
Replace a pair of neighbours by one new id, everywhere in a row.

- `ids` is a list of whole numbers, of any length; `pair` is a tuple of two ids, which may be equal;
  `new_id` is a whole number that is neither in `ids` nor in `pair`.
- Wherever the first id of the pair is followed by the second, both together become `new_id`. All
  other ids stay, in their order.
- Go from left to right; what has been merged is used up. `[1, 1, 1]` with the pair `(1, 1)` becomes
  `[new_id, 1]`.
- Return a list. Leave `ids` as it is.""",
    reference=merge_pair,
    properties=(
        Property("each pair becomes one new id, and the rest stays", 2, _pairs),
        Property("from left to right, where pairs overlap", 1, _runs),
        Property("short rows, and rows without the pair", 1, _nothing_to_do, edge=True),
    ),
    misconceptions=(
        Misconception(
            "overlapping merge",
            "You merge an id twice: in [1, 1, 1] the middle 1 goes into both pairs. What has been "
            "merged is used up; after a merge go on two places further.",
            _overlapping,
            symptom="an id is used twice",
        ),
        Misconception(
            "only the first merged",
            "You stop after the first place. A merge is made wherever the pair stands.",
            _first_only,
            symptom="later pairs are left over",
        ),
        Misconception(
            "input changed",
            "The result is right, but you changed the list that was handed to you. Whoever called "
            "you may still need it: build a new list.",
            _in_place,
            symptom="it changes its input ids",
        ),
        Misconception(
            "second id stays",
            "You put the new id in, and leave the second id of the pair behind it. A merge takes "
            "two ids out and puts one in.",
            _second_stays,
            symptom="the second id of each pair is still there",
        ),
        Misconception(
            "both ids replaced",
            "You write the new id over both ids of the pair, so that it stands there twice. The "
            "row should get shorter by one.",
            _both_replaced,
            symptom="the row does not get shorter",
        ),
        Misconception(
            "from right to left",
            "You merge from the right: [1, 1, 1] becomes [1, new]. Begin at the left.",
            _from_the_right,
            symptom="runs of equal ids are merged from the wrong end",
        ),
        Misconception(
            "either order",
            "You merge (b, a) as well as (a, b). The order is part of the pair.",
            _either_order,
            symptom="pairs are merged that stand the other way round",
        ),
        Misconception(
            "last id lost",
            "The last id of the row is missing where it is not merged. The loop ends one place too "
            "early: the last id has no neighbour, but it stays.",
            _last_lost,
            symptom="the last id is missing",
        ),
        Misconception(
            "pair at the end overlooked",
            "A pair at the very end of the row is not merged. It begins at place n − 2.",
            _end_overlooked,
            symptom="a pair at the end is left over",
        ),
        Misconception(
            "looks beyond the end",
            "If the row ends with the first id of the pair, you ask for an id behind it, and there "
            "is none. Look whether there is a next id before you compare it.",
            _beyond_the_end,
            symptom="it fails where the row ends with the first id of the pair",
        ),
    ),
    hints=(
        "A `for` loop goes on by one place each time. After a merge you want to go on by two. "
        "Which loop lets you decide?",
        "Start with an empty list and i = 0. While i is inside the row: if ids i and i + 1 are the "
        "pair, append the new id and go on by two, else append id i and go on by one.",
        "`tuple(ids[i : i + 2]) == pair` is False at the end of the row, without an error: the "
        "slice is then shorter.",
    ),
    minutes=10,
    returns=("the row",),
)
