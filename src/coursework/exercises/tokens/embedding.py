"""`embed`: a row of the table for each id."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.embeddings import embed
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import numbers

Rng = np.random.Generator


def _ids(rng: Rng, vocab: int, *shape: int) -> np.ndarray:
    return rng.integers(0, vocab, shape)


def _rows(rng: Rng) -> Sequence[Call]:
    return calls(
        ([2, 0, 2], numbers(rng, (3, 2))),
        (_ids(rng, 7, 5), numbers(rng, (7, 3))),
        (_ids(rng, 5, 11).tolist(), numbers(rng, (5, 2))),
        (_ids(rng, 11, 2), numbers(rng, (11, 5))),
        (_ids(rng, 3, 13), numbers(rng, (3, 7))),
        (_ids(rng, 13, 7).astype(np.int32), numbers(rng, (13, 4))),
    )


def _batches(rng: Rng) -> Sequence[Call]:
    return calls(
        (_ids(rng, 5, 2, 3).tolist(), numbers(rng, (5, 4))),
        (_ids(rng, 7, 3, 2), numbers(rng, (7, 5))),
        (_ids(rng, 3, 2, 5, 4), numbers(rng, (3, 2))),
        (_ids(rng, 11, 3, 1, 2).tolist(), numbers(rng, (11, 3))),
        (_ids(rng, 200, 5, 7).astype(np.uint8), numbers(rng, (200, 2))),
    )


def _dtypes(rng: Rng) -> Sequence[Call]:
    return calls(
        ([1, 0, 4], numbers(rng, (5, 2), np.float32)),
        (_ids(rng, 7, 2, 3), numbers(rng, (7, 3), np.float32)),
        (_ids(rng, 3, 5).tolist(), numbers(rng, (3, 4), np.float32)),
        (_ids(rng, 5, 4), numbers(rng, (5, 3), np.int64)),
    )


def _outside(rng: Rng) -> Sequence[Call]:
    table = numbers(rng, (5, 3))
    return calls(
        ([-1], table),
        ([0, 5], table),
        (np.array([1, -5, 2]), table),
        ([[0, 1], [-2, 4]], table),
        (np.array([[4, 5], [3, 2], [1, 0]]), table),
        ([3, -6, 1, 2], table),
        ([int(rng.integers(6, 99)), 1, 2, 3, 4], numbers(rng, (5, 2), np.float32)),
        (np.array([2, 1, 0, -1, 3]), numbers(rng, (7, 2), np.float32)),
    )


def _empty(rng: Rng) -> Sequence[Call]:
    return calls(
        ([], numbers(rng, (3, 2))),
        (np.zeros((2, 0), dtype=np.int64), numbers(rng, (5, 3))),
        ([[], [], []], numbers(rng, (7, 2), np.float32)),
        ([0], numbers(rng, (1, 4))),
    )


def _whole(ids):
    """The ids as an array of whole numbers, an empty one too."""
    array = np.asarray(ids)
    return array if array.size else array.astype(np.int64)


def _in_range(ids, table):
    """The same, after a look at each id."""
    array = _whole(ids)
    if np.any(array < 0) or np.any(array >= len(table)):
        raise IndexError("an id is outside the table")
    return array


def _wraps(ids, table):
    return table[_whole(ids)]


def _one_hot(ids, table):
    return np.eye(len(table))[_whole(ids)] @ table


def _one_hot_in_range(ids, table):
    return np.eye(len(table))[_in_range(ids, table)] @ table


def _one_hot_by_comparison(ids, table):
    return (_whole(ids)[..., None] == np.arange(len(table))).astype(float) @ table


def _columns(ids, table):
    return table[:, _in_range(ids, table)]


def _clips(ids, table):
    return table[np.clip(_whole(ids), 0, len(table) - 1)]


def _remainder(ids, table):
    return table[_whole(ids) % len(table)]


def _from_one(ids, table):
    return table[_in_range(ids, table) - 1]


def _flattened(ids, table):
    return table[_in_range(ids, table).reshape(-1)]


def _times_the_root(ids, table):
    return table[_in_range(ids, table)] * table.dtype.type(np.sqrt(table.shape[1]))


def _summed(ids, table):
    return np.sum(table[_in_range(ids, table)], axis=-2, dtype=table.dtype)


def _last_row_refused(ids, table):
    array = _whole(ids)
    if np.any(array < 0) or np.any(array >= len(table) - 1):
        raise IndexError("an id is outside the table")
    return table[array]


EMBED = Exercise(
    chapter=1,
    signature="embed(ids, table) -> (..., T, D)",
    task="""\
Look up the vector of each token.

- `ids` holds whole numbers: an array `(..., T)` of any integer dtype, or a list, or nested lists of
  equal lengths. It may be empty.
- `table` is an array `(V, D)`: row i belongs to id i.
- Return an array `(..., T, D)` with the row of each id, in the dtype of the table: float64, float32
  or integers.
- An id outside 0 … V − 1, a negative one as well, is an `IndexError`.
- Leave `ids` and `table` as they are.""",
    reference=embed,
    properties=(
        Property("the row of the table for each id", 2, _rows),
        Property("any leading axes, in arrays and in nested lists", 1, _batches),
        Property("the dtype of the table is kept", 1, _dtypes),
        Property("an id outside the table is an IndexError, a negative one too", 1, _outside),
        Property("no ids at all, and a table of one row", 1, _empty, edge=True),
    ),
    misconceptions=(
        Misconception(
            "negative id wraps",
            "A negative index counts from the end of an array, so id −1 gives you the last row, "
            "without a word. Compare the ids with 0 before you look them up.",
            _wraps,
            symptom="a negative id is taken from the end of the table",
        ),
        Misconception(
            "dtype changed",
            "The numbers are right, but they are float64 whatever the table is. `np.eye` and "
            "`np.zeros` make float64 unless they are told otherwise; and a lookup needs no "
            "product at all.",
            _one_hot_in_range,
            symptom="a float32 table gives float64",
            also=(_one_hot, _one_hot_by_comparison),
        ),
        Misconception(
            "columns for rows",
            "You take columns of the table. A token is a *row*: the first axis of the table counts "
            "the vocabulary.",
            _columns,
            symptom="it takes columns of the table",
        ),
        Misconception(
            "clips ids",
            "An id outside the table gives the row at its edge. That hides a mistake in somebody's "
            "code: raise an IndexError.",
            _clips,
            symptom="an id outside the table gives the nearest row",
        ),
        Misconception(
            "wraps ids round",
            "You take the remainder of each id by V, so that every id has some row. That hides a "
            "mistake in somebody's code: raise an IndexError.",
            _remainder,
            symptom="an id outside the table begins again at 0",
        ),
        Misconception(
            "counts from one",
            "You take the row before. Ids begin at 0, and so do rows.",
            _from_one,
            symptom="each token gets its neighbour's row",
        ),
        Misconception(
            "leading axes lost",
            "All tokens stand in one long row. A batch (B, T) should come back as (B, T, D): index "
            "with the array as it is.",
            _flattened,
            symptom="the leading axes are gone",
        ),
        Misconception(
            "multiplied by √D",
            "You multiply by √D. The first transformer did so after its lookup; here the rows are "
            "wanted as they are.",
            _times_the_root,
            symptom="the rows are too long by √D",
        ),
        Misconception(
            "tokens summed",
            "You add the rows of a text up. One vector is left, and nobody can tell any more which "
            "token was which: keep a row for each.",
            _summed,
            symptom="there is one vector for a whole text",
        ),
        Misconception(
            "last row refused",
            "Id V − 1 is the last row, and it is there.",
            _last_row_refused,
            symptom="the last row of the table is refused",
        ),
    ),
    hints=(
        "What does `table[2]` give, and what `table[[2, 0, 2]]`? What does `table[[-1]]` give, and "
        "is that what you want?",
        "Make an array of the ids, compare it with 0 and with V, raise IndexError if one is "
        "outside; then index the table with the whole array at once.",
        "`table[np.asarray(ids)]` has the shape of the ids, and D behind it. An empty list makes "
        "an array of floats, which is no index: `np.asarray(ids, dtype=np.int64)`.",
    ),
    minutes=10,
    keeps_dtype=True,
    returns=("the result",),
)
