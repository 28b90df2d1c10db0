"""`softmax`: from scores to weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.dot_product import softmax
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import numbers


def _rows(rng: np.random.Generator) -> tuple[Call, ...]:
    shapes = ((3,), (2, 3), (5, 7), (7, 2), (3, 2, 5), (2, 3, 7, 5))
    return calls(*((2 * numbers(rng, shape),) for shape in shapes))


def _sum_to_one(asked: Sequence[Call], values: Sequence[np.ndarray]) -> str | None:
    """Nearer than values are compared: what is added to the sum shows in nothing else."""
    if all(np.all(np.abs(np.sum(v, axis=-1) - 1) < 1e-13) for v in values):
        return None
    return "the weights of a row do not quite sum to 1: divide by their sum, with nothing added"


def _along_other_axes(rng: np.random.Generator) -> tuple[Call, ...]:
    cases = (
        ((2, 3), 0),
        ((7, 5), -2),
        ((3, 5), 1),
        ((3, 2, 5), 1),
        ((2, 5, 7), 0),
        ((5, 3, 2), -3),
    )
    return tuple(Call((2 * numbers(rng, shape),), {"axis": axis}) for shape, axis in cases)


def _loud(rng: np.random.Generator) -> tuple[Call, ...]:
    """Scores near ±10,000, and rows of both kinds side by side."""

    def levels(n: int) -> np.ndarray:
        return 1e4 * (-1.0) ** np.arange(n)[:, None]

    return (
        Call((numbers(rng, (3,)) + 1e4,)),
        Call((numbers(rng, (5,)) - 1e4,)),
        Call((numbers(rng, (2, 5)) + levels(2),)),
        Call((numbers(rng, (4, 3)) - levels(4),)),
        Call((numbers(rng, (7, 2)) + levels(7),)),
        Call((1e4 * numbers(rng, (3, 5)),)),
    )


def _kinds_of_numbers(rng: np.random.Generator) -> tuple[Call, ...]:
    shapes = ((3,), (2, 5), (7, 3))
    columns = np.asfortranarray(numbers(rng, (5, 3)))
    return (
        *(Call((numbers(rng, shape, np.int64),)) for shape in shapes),
        *(Call((numbers(rng, shape, np.float32),)) for shape in shapes),
        Call((numbers(rng, (2, 7), np.float32),), {"axis": 0}),
        Call((columns,)),
    )


def _square(rng: np.random.Generator) -> tuple[Call, ...]:
    """Where a forgotten keepdims does not raise an error."""
    return calls(*((numbers(rng, (n, n)),) for n in (2, 3, 5, 7)))


def _overflows(x, axis=-1):
    e = np.exp(x)
    return e / np.sum(e, axis=axis, keepdims=True)


def _one_maximum(x, axis=-1):
    e = np.exp(x - np.max(x))
    return e / np.sum(e, axis=axis, keepdims=True)


def _first_axis(x, axis=-1):
    e = np.exp(x - np.max(x, axis=0, keepdims=True))
    return e / np.sum(e, axis=0, keepdims=True)


def _last_axis_only(x, axis=-1):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _all_together(x, axis=-1):
    e = np.exp(x - np.max(x))
    return e / np.sum(e)


def _cut_to_integers(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return (e / np.sum(e, axis=axis, keepdims=True)).astype(x.dtype)


def _input_changed(x, axis=-1):
    x -= np.max(x, axis=axis, keepdims=True)
    e = np.exp(x)
    return e / np.sum(e, axis=axis, keepdims=True)


def _always_float64(x, axis=-1):
    x = np.asarray(x, dtype=np.float64)
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def _no_exponential(x, axis=-1):
    return x / np.sum(x, axis=axis, keepdims=True)


def _axes_lost(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis)


def _axes_lost_without_a_maximum(x, axis=-1):
    e = np.exp(x - np.max(x))
    return e / np.sum(e, axis=axis)


def _axes_lost_twice(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis))
    return e / np.sum(e, axis=axis)


def _sigmoid(x, axis=-1):
    return 1 / (1 + np.exp(-x))


def _negated(x, axis=-1):
    e = np.exp(np.min(x, axis=axis, keepdims=True) - x)
    return e / np.sum(e, axis=axis, keepdims=True)


def _not_divided(x, axis=-1):
    return np.exp(x - np.max(x, axis=axis, keepdims=True))


def _logarithm(x, axis=-1):
    x = x - np.max(x, axis=axis, keepdims=True)
    return x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))


SOFTMAX = Exercise(
    chapter=3,
    signature="softmax(x, axis=-1)",
    task="""\
Turn scores into weights: positive, in proportion to $e^x$, with the sum 1 along `axis`.

- `x` is a NumPy array of any shape; `axis` is one of its axes, counted from the front or (if it is
  negative) from the end. Return an array of the shape of `x`.
- Scores of 10,000 and −10,000 must do no harm, also side by side in one array.
- The dtype is kept: float64 gives float64, and float32 gives float32. Integers are taken as
  float64.
- Leave `x` as it is; its memory order may be any.""",
    reference=softmax,
    properties=(
        Property(
            "the last axis: weights in proportion to e to the x, of sum 1",
            2,
            _rows,
            together=_sum_to_one,
        ),
        Property("the axis that is asked for", 1, _along_other_axes),
        Property("scores of ±10,000 do no harm", 1, _loud, edge=True),
        Property("float32 stays float32, integers become floats", 1, _kinds_of_numbers, edge=True),
    ),
    misconceptions=(
        Misconception(
            "overflows",
            "exp(10000) is infinite, exp(−10000) is 0, and neither ∞/∞ nor 0/0 is a number. "
            "Subtract the largest score along the axis first: the factor cancels, and the weights "
            "stay the same.",
            _overflows,
            symptom="large scores make NaN",
        ),
        Misconception(
            "subtracts one maximum for all rows",
            "You subtract the largest score of the whole array. A row whose scores are all far "
            "below it becomes 0/0. Each row needs its own maximum (`axis=axis, keepdims=True`).",
            _one_maximum,
            symptom="rows of very different size spoil each other",
        ),
        Misconception(
            "normalises along the first axis",
            "Your weights sum to 1 along axis 0, whatever axis is asked for. Pass `axis` on to the "
            "maximum and to the sum.",
            _first_axis,
            symptom="the sum is 1 along the wrong axis",
        ),
        Misconception(
            "ignores the axis",
            "You always take the last axis. It is the default only: pass `axis` on to the maximum "
            "and to the sum.",
            _last_axis_only,
            symptom="the sum is 1 along the wrong axis",
        ),
        Misconception(
            "normalises all entries together",
            "All entries of the array together sum to 1. Each row along `axis` is a distribution "
            "of its own: pass `axis` (and `keepdims=True`) to the sum.",
            _all_together,
            symptom="your rows do not sum to 1",
        ),
        Misconception(
            "cuts integers",
            "You store weights in the dtype of the input, and as integers they are all cut to 0 "
            "(or 1). Integers must become floats before they are weights.",
            _cut_to_integers,
            symptom="integers come back as integers",
        ),
        Misconception(
            "changes its input",
            "Your weights are right, but you write into the caller's array, who may still need it. "
            "`x = x - ...` makes a new array; `x -= ...` and `x[...] = ...` change the old one.",
            _input_changed,
            symptom="the scores that you were given are no longer the same",
        ),
        Misconception(
            "widens float32",
            "Your weights are right, and float64 whatever comes in. A network that computes in "
            "float32 would double its memory here: keep the dtype of floats.",
            _always_float64,
            symptom="float32 comes back as float64",
        ),
        Misconception(
            "leaves the exponential out",
            "You divide the scores by their sum. They may be negative, and their sum may be 0: "
            "take exp of each first, which is always positive.",
            _no_exponential,
            symptom="some of your weights are negative",
        ),
        Misconception(
            "loses the axis that it sums over",
            "After np.sum(…, axis=axis) the axis is gone, and NumPy lines up the sums with the "
            "wrong axis, or cannot line them up at all. Keep it: `keepdims=True`.",
            _axes_lost,
            symptom="right for one row, wrong for a matrix",
            also=(_axes_lost_without_a_maximum, _axes_lost_twice),
        ),
        Misconception(
            "takes the sigmoid",
            "This is the sigmoid, which looks at each score alone. Weights compete: what counts is "
            "exp of a score *in proportion to* the others of its row.",
            _sigmoid,
            symptom="your rows do not sum to 1",
        ),
        Misconception(
            "negates the scores",
            "The smallest score gets the largest weight. The stabilised form is exp(x − max), not "
            "exp(max − x).",
            _negated,
            symptom="your weights are the wrong way round",
        ),
        Misconception(
            "forgets to divide",
            "You have the exponentials. Divide them by their sum along the axis.",
            _not_divided,
            symptom="your rows do not sum to 1",
        ),
        Misconception(
            "returns the logarithms",
            "These are the logarithms of the weights (the log-softmax). Asked for are the weights.",
            _logarithm,
            symptom="your weights are negative",
        ),
    ),
    hints=(
        "What happens to the weights if you add the same number to every score of a row? Use that "
        "against the overflow.",
        "Subtract the largest score along `axis`, take exp, divide by the sum along `axis`. Keep "
        "the axis that maximum and sum run over, so that it lines up again.",
        "`np.max(x, axis=axis, keepdims=True)` gives the maximum in a shape that can be subtracted "
        "from `x`; the sum goes likewise. NumPy's exp makes floats of integers and keeps float32.",
    ),
    minutes=15,
    returns=("the result",),
    keeps_dtype=True,
    probes=_square,
)
