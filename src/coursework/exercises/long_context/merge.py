"""The step of the online softmax: two blocks of keys become one."""

from __future__ import annotations

import numpy as np

from attend.long_context import merge_softmax_blocks
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import normal

_Block = tuple[np.ndarray, np.ndarray, np.ndarray]


def _block(rng: np.random.Generator, n_keys: int, d_v: int, *rows: int) -> _Block:
    """What a block of `n_keys` keys contributes to each row, at scores that spread by 2."""
    scores, v = 2 * normal(rng, *rows, n_keys), normal(rng, n_keys, d_v)
    largest = np.max(scores, axis=-1)
    e = np.exp(scores - largest[..., None])
    return largest, np.sum(e, axis=-1), e @ v


def _pair(rng: np.random.Generator, d_v: int, *rows: int) -> Call:
    """Two blocks, of which either has the larger score in some rows, at random."""
    return Call((_block(rng, 3, d_v, *rows), _block(rng, 5, d_v, *rows)))


def _matrices(rng: np.random.Generator) -> tuple[Call, ...]:
    pairs = [_pair(rng, d_v, T) for T, d_v in ((3, 2), (5, 3), (2, 7), (11, 5))]
    # So that every pair has rows of both kinds.
    return tuple(Call((_shifted(a, +1.5), _shifted(b, -1.5))) for a, b in (p.args for p in pairs))


def _shifted(block: _Block, by: float) -> _Block:
    """The same block with its maxima moved up and down by turns."""
    signs = (-1.0) ** np.arange(len(block[0]))
    return block[0] + by * signs, block[1], block[2]


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _pair(rng, 2, 3, 5),
        _pair(rng, 5, 2, 7),
        _pair(rng, 7, 2, 3, 5),
        _pair(rng, 3, 5, 1, 2),
    )


def _emptied(block: _Block, rows: np.ndarray) -> _Block:
    """The block without keys in these rows."""
    return (
        np.where(rows, -np.inf, block[0]),
        np.where(rows, 0.0, block[1]),
        np.where(rows[..., None], 0.0, block[2]),
    )


def _empties(rng: np.random.Generator) -> tuple[Call, ...]:
    def pair(T: int, d_v: int, a_rows: list[bool], b_rows: list[bool]) -> Call:
        a, b = _pair(rng, d_v, T).args
        return Call((_emptied(a, np.array(a_rows)), _emptied(b, np.array(b_rows))))

    deep_a, deep_b = _pair(rng, 3, 2, 5).args
    holes = rng.random((2, 5)) < 0.5
    holes[0, :2] = True
    return (
        pair(2, 3, [True, True], [True, True]),
        pair(3, 2, [True, True, True], [False, False, False]),
        pair(4, 5, [True, True, False, False], [True, False, True, False]),
        pair(5, 2, [False] * 5, [True] * 5),
        Call((_emptied(deep_a, holes), _emptied(deep_b, holes))),
    )


def _far_apart(rng: np.random.Generator) -> tuple[Call, ...]:
    def far(d_v: int, *rows: int, level: float) -> Call:
        a, b = _pair(rng, d_v, *rows).args
        signs = (-1.0) ** np.arange(rows[-1])
        return Call(((a[0] + level * signs, a[1], a[2]), (b[0] - level * signs, b[1], b[2])))

    return (
        far(2, 3, level=1e4),
        far(3, 5, level=5e3),
        far(5, 2, 7, level=1e4),
        far(2, 5, level=400.0),
    )


def _narrow(rng: np.random.Generator) -> tuple[Call, ...]:
    pairs = [_pair(rng, 2, 3), _pair(rng, 3, 5), _pair(rng, 5, 2, 7), _empties(rng)[2]]
    return tuple(Call(tuple(tuple(x.astype(np.float32) for x in b) for b in p.args)) for p in pairs)


def _shift(largest):
    return np.where(np.isneginf(largest), 0, largest)


def _scales(a, b):
    """What both parts are multiplied with, in their own dtype."""
    largest = np.maximum(a[0], b[0])
    return largest, np.exp(a[0] - _shift(largest)), np.exp(b[0] - _shift(largest))


def _old_part_as_it_was(a, b):
    largest, _, scale = _scales(a, b)
    return largest, a[1] + b[1] * scale, a[2] + b[2] * scale[..., None]


def _new_part_as_it_was(a, b):
    largest, scale, _ = _scales(a, b)
    return largest, a[1] * scale + b[1], a[2] * scale[..., None] + b[2]


def _nothing_rescaled(a, b):
    return np.maximum(a[0], b[0]), a[1] + b[1], a[2] + b[2]


def _old_maximum(a, b):
    scale = np.exp(b[0] - _shift(a[0]))
    return a[0].copy(), a[1] + b[1] * scale, a[2] + b[2] * scale[..., None]


def _new_maximum(a, b):
    scale = np.exp(a[0] - _shift(b[0]))
    return b[0].copy(), a[1] * scale + b[1], a[2] * scale[..., None] + b[2]


def _sum_as_it_was(a, b):
    largest, scale_a, scale_b = _scales(a, b)
    return largest, a[1] + b[1], a[2] * scale_a[..., None] + b[2] * scale_b[..., None]


def _output_as_it_was(a, b):
    largest, scale_a, scale_b = _scales(a, b)
    return largest, a[1] * scale_a + b[1] * scale_b, a[2] + b[2]


def _upside_down(a, b):
    largest = np.maximum(a[0], b[0])
    scale_a, scale_b = np.exp(_shift(largest) - a[0]), np.exp(_shift(largest) - b[0])
    return (
        largest,
        a[1] * scale_a + b[1] * scale_b,
        a[2] * scale_a[..., None] + b[2] * scale_b[..., None],
    )


def _divided(a, b):
    largest, scale_a, scale_b = _scales(a, b)
    total = a[1] * scale_a + b[1] * scale_b
    output = a[2] * scale_a[..., None] + b[2] * scale_b[..., None]
    return largest, total, output / np.where(total == 0, 1, total)[..., None]


def _as_if_divided(a, b):
    largest, scale_a, scale_b = _scales(a, b)
    part_a, part_b = a[1] * scale_a, b[1] * scale_b
    return (
        largest,
        part_a + part_b,
        a[2] * part_a[..., None] + b[2] * part_b[..., None],
    )


def _not_a_number(a, b):
    largest = np.maximum(a[0], b[0])
    scale_a, scale_b = np.exp(a[0] - largest), np.exp(b[0] - largest)
    return (
        largest,
        a[1] * scale_a + b[1] * scale_b,
        a[2] * scale_a[..., None] + b[2] * scale_b[..., None],
    )


def _finite_stand_in(a, b):
    largest = np.maximum(np.maximum(a[0], b[0]), a[0].dtype.type(-1e9))
    scale_a, scale_b = np.exp(a[0] - largest), np.exp(b[0] - largest)
    return (
        largest,
        a[1] * scale_a + b[1] * scale_b,
        a[2] * scale_a[..., None] + b[2] * scale_b[..., None],
    )


def _zero_for_no_key(a, b):
    largest, scale_a, scale_b = _scales(a, b)
    return (
        _shift(largest),
        a[1] * scale_a + b[1] * scale_b,
        a[2] * scale_a[..., None] + b[2] * scale_b[..., None],
    )


def _smallest_float(a, b):
    largest = np.maximum(np.maximum(a[0], b[0]), np.finfo(a[0].dtype).min)
    scale_a, scale_b = np.exp(a[0] - largest), np.exp(b[0] - largest)
    return (
        largest,
        a[1] * scale_a + b[1] * scale_b,
        a[2] * scale_a[..., None] + b[2] * scale_b[..., None],
    )


def _in_place(a, b):
    largest, scale_a, scale_b = _scales(a, b)
    a[0][...] = largest
    a[1][...] = a[1] * scale_a + b[1] * scale_b
    a[2][...] = a[2] * scale_a[..., None] + b[2] * scale_b[..., None]
    return a


def _widened(a, b):
    a, b = (tuple(x.astype(np.float64) for x in block) for block in (a, b))
    largest, scale_a, scale_b = _scales(a, b)
    return (
        largest,
        a[1] * scale_a + b[1] * scale_b,
        a[2] * scale_a[..., None] + b[2] * scale_b[..., None],
    )


MERGE_SOFTMAX_BLOCKS = Exercise(
    chapter=10,
    signature="merge_softmax_blocks(a, b) -> (max, sum, output)",
    task="""\
The softmax of a row can be computed from blocks of keys, in any order, if each block is remembered
by three things. Merge two of them into one.

- `a` and `b` are tuples of three NumPy arrays: `max`, `(..., T)`, the largest score of each query
  among the keys of the block; `sum`, `(..., T)`, the sum of $e^{x - \\text{max}}$ over these keys;
  and `output`, `(..., T, d_v)`, the sum of $e^{x - \\text{max}}\\,v$, **not** divided by `sum`.
- Return the same three for the keys of both blocks together, as a tuple of new arrays. Leave `a`
  and `b` as they are.
- A row may have no key in a block: there `max` is −∞, `sum` is 0 and `output` is 0. A row without
  keys in both gives the same again, and no NaN.
- Maxima may lie 20,000 apart, either way round. The dtype is kept: float32 arrays give float32,
  float64 gives float64.""",
    reference=merge_softmax_blocks,
    properties=(
        Property("max is the larger of the two, row by row", 1, _matrices, outputs=("max",)),
        Property("sum counts from the new maximum", 1, _matrices, outputs=("sum",)),
        Property(
            "output counts from the new maximum, and is not divided",
            1,
            _matrices,
            outputs=("output",),
        ),
        Property("any leading axes: batches, heads", 1, _batches),
        Property("rows without keys, in one block or both", 1, _empties, edge=True),
        Property("maxima far apart", 1, _far_apart, edge=True),
        Property("float32 gives float32", 1, _narrow, edge=True),
    ),
    misconceptions=(
        Misconception(
            "does not rescale the old part",
            "Only b is rescaled. What a has added up was counted from a's maximum: if b holds a "
            "larger score, a's sum and output must shrink by exp(max of a − new max).",
            _old_part_as_it_was,
            symptom="right only where a has the larger maximum",
        ),
        Misconception(
            "does not rescale the new part",
            "Only a is rescaled. What b has added up was counted from b's maximum: if a holds a "
            "larger score, b's sum and output must shrink by exp(max of b − new max).",
            _new_part_as_it_was,
            symptom="right only where b has the larger maximum",
        ),
        Misconception(
            "rescales neither part",
            "You add up numbers that were counted from different maxima. Multiply each part by "
            "exp(its own max − new max) first.",
            _nothing_rescaled,
            symptom="sums that start from different maxima are added",
        ),
        Misconception(
            "does not renew the maximum",
            "You keep one block's maximum and rescale the other to it. If the other one is much "
            "larger, exp overflows: take the larger of the two, row by row.",
            _old_maximum,
            symptom="max is not the larger of the two",
            also=(_new_maximum,),
        ),
        Misconception(
            "rescales the output only",
            "The output is right, but the sum still adds numbers that were counted from different "
            "maxima. The sum shrinks by the same factors as the output.",
            _sum_as_it_was,
            symptom="the sum is too large",
        ),
        Misconception(
            "rescales the sum only",
            "The sum is right, but the output still adds numbers that were counted from different "
            "maxima. The output shrinks by the same factors as the sum.",
            _output_as_it_was,
            symptom="the output is too large",
        ),
        Misconception(
            "rescales the wrong way round",
            "You multiply by exp(new max − old max), which is above 1. A part counted from a "
            "smaller maximum must *shrink*: exp(old max − new max).",
            _upside_down,
            symptom="the sum grows where it should shrink",
        ),
        Misconception(
            "divides the output",
            "You divide the output by the sum. A divided output cannot be merged with the next "
            "block: division is the very last step, after all blocks.",
            _divided,
            symptom="the output is divided already",
        ),
        Misconception(
            "takes the outputs for divided",
            "You weigh the outputs by their sums, as if they were averages. They are not divided: "
            "the weights are in them already.",
            _as_if_divided,
            symptom="the sums are counted twice in the output",
        ),
        Misconception(
            "makes NaN where there is no key",
            "Where neither block has a key, −∞ − (−∞) is not a number. Subtract something "
            "harmless there, such as 0: exp(−∞ − 0) is 0, and so are sum and output.",
            _not_a_number,
            symptom="a row without keys makes NaN",
        ),
        Misconception(
            "puts a finite number for −∞",
            "Where neither block has a key, the maximum must stay −∞. A finite number looks like a "
            "score, and the next merge takes it for one.",
            _finite_stand_in,
            symptom="a row without keys gets a maximum",
            also=(_smallest_float, _zero_for_no_key),
        ),
        Misconception(
            "works in the arrays of a",
            "The values are right, but they are written into a's own arrays. Make new ones: "
            "`x * y` instead of `x *= y`.",
            _in_place,
            symptom="it changes a",
        ),
        Misconception(
            "widens float32",
            "You compute in float64 and return it. Where the inputs are float32, so are the three "
            "results.",
            _widened,
            symptom="float32 comes back as float64",
        ),
    ),
    hints=(
        "Both blocks have subtracted a maximum of their own. Which number must both have "
        "subtracted, so that their sums may be added?",
        "The new maximum is the larger of the two, row by row (`np.maximum`). Each part shrinks by "
        "exp(its maximum − the new one); sum and output shrink alike, the output along its last "
        "axis. Where the new maximum is −∞, subtract 0 instead.",
        "`new = np.maximum(a[0], b[0])`; `safe = np.where(np.isneginf(new), 0, new)`; `scale_a = "
        "np.exp(a[0] - safe)`, and `scale_b` likewise. The output needs `scale_a[..., None]`.",
    ),
    minutes=15,
    returns=("max", "sum", "output"),
    keeps_dtype=True,
    new_arrays=True,
)
