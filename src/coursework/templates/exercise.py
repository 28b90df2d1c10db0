"""`row_mean`: an example that works, to be rewritten."""

from __future__ import annotations

import numpy as np

from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import normal


# The right answer. Where `attend` has the idea, import its function in place of this one.
def _right(x):
    return x.mean(axis=-1)


# Inputs: small ones first, several sizes, no two sizes of one input alike.
def _tokens(rng: np.random.Generator, *shape: int) -> Call:
    return Call((normal(rng, *shape),))


def _matrices(rng: np.random.Generator) -> tuple[Call, ...]:
    return tuple(_tokens(rng, T, D) for T, D in ((2, 3), (5, 7), (11, 2), (3, 13)))


def _leading_axes(rng: np.random.Generator) -> tuple[Call, ...]:
    return tuple(_tokens(rng, *shape) for shape in ((5,), (2, 3, 5), (7, 2, 11), (2, 5, 3, 7)))


# A mistake as students write it. It stands alone and uses nothing of `attend`.
def _over_the_tokens(x):
    return x.mean(axis=0)


ROW_MEAN = Exercise(
    chapter=0,
    signature="row_mean(x) -> (...)",
    task="""\
The mean of each token: how large are its numbers on the whole?

- `x` is `(..., D)`, float64: tokens of width $D$, with any number of leading axes. Return one mean
  a token, `(...)`; for a single token, `(D,)`, that is one number.
- Leave `x` as it is.""",
    reference=_right,
    properties=(
        Property("each token of a matrix has its mean", 2, _matrices),
        Property("any leading axes, and none", 1, _leading_axes),
    ),
    misconceptions=(
        Misconception(
            "averages over the tokens",
            "You average over the first axis, that is, over the tokens. Each token is a row: its "
            "numbers lie along the last axis.",
            _over_the_tokens,
            symptom="there is one mean for each column",
        ),
    ),
    hints=(
        "Take two tokens of width 3. How many means must come back?",
        "Say along which axis the numbers of one token lie, and take the mean along that one only.",
        "NumPy and PyTorch both count axes from the end: `axis=-1` is the last one.",
    ),
    minutes=5,
    returns=("the mean",),
)
