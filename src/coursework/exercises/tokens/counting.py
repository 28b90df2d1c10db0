"""`count_pairs`: which ids stand next to each other, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from attend.tokens import count_pairs
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.tokens.texts import row

Rng = np.random.Generator


def _rows(rng: Rng) -> Sequence[Call]:
    return calls(
        ([5, 7, 5, 7, 9],),
        (row(rng, 7, 3),),
        (row(rng, 11, 3),),
        (row(rng, 17, 4),),
        (row(rng, 29, 5),),
        (row(rng, 60, 6),),
    )


def _runs(rng: Rng) -> Sequence[Call]:
    a, b, c = (int(i) for i in rng.permutation(300)[:3])
    return calls(
        ([1, 1, 1],),
        ([a] * 4,),
        ([a, a, a, b, b, c, c, c, c, c],),
        ([b, a, a, a, b, a, a, a],),
        ([c] * int(rng.integers(5, 9)) + [a],),
    )


def _short(rng: Rng) -> Sequence[Call]:
    a, b = (int(i) for i in rng.permutation(300)[:2])
    return calls(([],), ([a],), ([a, b],), ([b, b],), ([b],))


def _last_dropped(ids):
    counts = {}
    for i in range(len(ids) - 2):
        pair = (ids[i], ids[i + 1])
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def _order_ignored(ids):
    counts = {}
    for a, b in pairwise(ids):
        pair = (min(a, b), max(a, b))
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def _overlaps_skipped(ids):
    counts = {}
    for pair in set(pairwise(ids)):
        i = 0
        while i < len(ids) - 1:
            if (ids[i], ids[i + 1]) == pair:
                counts[pair] = counts.get(pair, 0) + 1
                i += 2
            else:
                i += 1
    return counts


def _side_by_side(ids):
    counts = {}
    for i in range(0, len(ids) - 1, 2):
        pair = (ids[i], ids[i + 1])
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def _first_counts_nothing(ids):
    counts = {}
    for pair in pairwise(ids):
        if pair in counts:
            counts[pair] += 1
        else:
            counts[pair] = 0
    return counts


def _whether_not_how_often(ids):
    counts = {}
    for pair in pairwise(ids):
        counts[pair] = 1
    return counts


def _wraps_around(ids):
    counts = {}
    for i in range(len(ids)):
        pair = (ids[i], ids[(i + 1) % len(ids)])
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def _previous_one_of_first(ids):
    counts = {}
    for i in range(len(ids)):
        pair = (ids[i - 1], ids[i])
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def _any_two(ids):
    counts = {}
    for i in range(len(ids)):
        for j in range(i + 1, len(ids)):
            pair = (ids[i], ids[j])
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def _repeated_only(ids):
    counts = {}
    for pair in pairwise(ids):
        counts[pair] = counts.get(pair, 0) + 1
    return {pair: count for pair, count in counts.items() if count > 1}


COUNT_PAIRS = Exercise(
    chapter=1,
    signature="count_pairs(ids) -> dict[tuple[int, int], int]",
    task="""\
Count which ids stand next to each other.

- `ids` is a list of whole numbers, of any length.
- Return a dictionary: for each pair `(a, b)` of neighbours, a before b, the number of places where
  it stands. A `Counter` will do. Pairs that do not occur are not in it.
- Pairs may overlap: a row of n ids has n − 1 places, and `[1, 1, 1]` has the pair `(1, 1)` twice.
- A list of one id, or of none, has no pair: the dictionary is empty.
- Leave `ids` as it is.""",
    reference=count_pairs,
    properties=(
        Property("every pair of neighbours, in its order, with its count", 2, _rows),
        Property("pairs that overlap all count", 1, _runs),
        Property("rows of two ids, of one and of none", 1, _short, edge=True),
    ),
    misconceptions=(
        Misconception(
            "last pair dropped",
            "The last pair is missing. A row of n ids has n − 1 pairs: the last one begins at "
            "place n − 2, which the range must reach.",
            _last_dropped,
            symptom="one pair is missing",
        ),
        Misconception(
            "order ignored",
            "You count (a, b) and (b, a) as one pair. A merge puts b after a; *on* is another "
            "token than *no*.",
            _order_ignored,
            symptom="pairs are not in the order of the row",
        ),
        Misconception(
            "overlaps skipped",
            "You jump over a pair once it is counted, so that [1, 1, 1] has one. Here every place "
            "counts: it has two. Merging jumps, counting does not.",
            _overlaps_skipped,
            symptom="runs of equal ids are counted too low",
        ),
        Misconception(
            "pairs side by side",
            "You cut the row into pieces of two. Each id but the last begins a pair: go on by one "
            "place, not by two.",
            _side_by_side,
            symptom="about half of the pairs are missing",
        ),
        Misconception(
            "first occurrence counts nothing",
            "A pair that is seen for the first time gets a count of 0 and should get 1.",
            _first_counts_nothing,
            symptom="all counts are one too low",
        ),
        Misconception(
            "whether, not how often",
            "Every pair has a count of 1: an assignment, where something should be added.",
            _whether_not_how_often,
            symptom="all counts are 1",
        ),
        Misconception(
            "row closed to a ring",
            "You count the last id together with the first, as if the row were a ring. A negative "
            "index, or a remainder, leads back to the other end.",
            _wraps_around,
            symptom="there is one pair too many",
            also=(_previous_one_of_first,),
        ),
        Misconception(
            "any two ids",
            "You count every two ids of the row, however far apart they stand. Only neighbours "
            "can be merged.",
            _any_two,
            symptom="pairs are counted that are no neighbours",
        ),
        Misconception(
            "only what repeats",
            "Pairs that occur once are missing. Whether a pair is worth a merge is decided later; "
            "here all are counted.",
            _repeated_only,
            symptom="pairs that occur once are missing",
        ),
    ),
    hints=(
        "How many pairs has a row of five ids? Write them under each other. What are the first "
        "entries of these pairs, and what are the second ones?",
        "The first entries are all ids but the last, the second ones all ids but the first. Go "
        "through both lists together, and add 1 to the count of each pair you meet.",
        "`zip(ids, ids[1:])` yields the pairs as tuples and stops at the shorter list. "
        "`counts[pair] = counts.get(pair, 0) + 1` counts one.",
    ),
    minutes=5,
    returns=("the count",),
)
