"""`feed_forward`: two matrices with a bend between them, for each token alone."""

from __future__ import annotations

import math

import numpy as np
import torch

from attend.blocks import feed_forward
from coursework.exercise import Call, Exercise, Misconception, Property, differentiated
from coursework.exercises.block.tensors import normal

Rng = np.random.Generator


def _call(rng: Rng, *shape: int, F: int, dtype=torch.float64) -> Call:
    D = shape[-1]
    sizes = ((shape, 1.0), ((D, F), 1.0), ((F,), 1.0), ((F, D), 1.0), ((D,), 1.0))
    return Call(tuple(normal(rng, *s, size=size, dtype=dtype) for s, size in sizes))


def _sentences(rng: Rng) -> tuple[Call, ...]:
    shapes = ((2, 3, 5), (5, 2, 7), (3, 7, 4), (7, 4, 3), (2, 5, 11))
    return tuple(_call(rng, T, D, F=F) for T, D, F in shapes)


def _leading(rng: Rng) -> tuple[Call, ...]:
    shapes = (((5,), 3), ((3, 2, 7), 4), ((2, 3, 5, 4), 7), ((1, 7, 2), 3))
    return (
        *(_call(rng, *shape, F=F) for shape, F in shapes),
        _call(rng, 3, 5, F=7, dtype=torch.float32),
        _call(rng, 2, 3, 5, F=4, dtype=torch.float32),
    )


def _gradients(rng: Rng) -> tuple[Call, ...]:
    return differentiated(
        (_call(rng, 2, 3, F=5), _call(rng, 5, 4, F=3), _call(rng, 2, 3, 7, F=4), _call(rng, 5, F=2))
    )


def _gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def _bent_after(x, w_1, b_1, w_2, b_2):
    return _gelu((x @ w_1 + b_1) @ w_2 + b_2)


def _straight(x, w_1, b_1, w_2, b_2):
    return (x @ w_1 + b_1) @ w_2 + b_2


def _bent_twice(x, w_1, b_1, w_2, b_2):
    return _gelu(_gelu(x @ w_1 + b_1) @ w_2 + b_2)


def _bent_before(x, w_1, b_1, w_2, b_2):
    return (_gelu(x) @ w_1 + b_1) @ w_2 + b_2


def _relu(x, w_1, b_1, w_2, b_2):
    return torch.relu(x @ w_1 + b_1) @ w_2 + b_2


def _tanh_gelu(x, w_1, b_1, w_2, b_2):
    return torch.nn.functional.gelu(x @ w_1 + b_1, approximate="tanh") @ w_2 + b_2


def _silu(x, w_1, b_1, w_2, b_2):
    return torch.nn.functional.silu(x @ w_1 + b_1) @ w_2 + b_2


def _no_first_bias(x, w_1, b_1, w_2, b_2):
    return _gelu(x @ w_1) @ w_2 + b_2


def _no_second_bias(x, w_1, b_1, w_2, b_2):
    return _gelu(x @ w_1 + b_1) @ w_2


def _late_bias(x, w_1, b_1, w_2, b_2):
    return (_gelu(x @ w_1) + b_1) @ w_2 + b_2


def _with_residual(x, w_1, b_1, w_2, b_2):
    return x + _gelu(x @ w_1 + b_1) @ w_2 + b_2


FEED_FORWARD = Exercise(
    chapter=7,
    signature="feed_forward(x, w_1, b_1, w_2, b_2) -> (..., D)",
    task="""\
The part of a block that works on each token alone: into a wider space, a bend, and back.
$\\operatorname{gelu}(x W_1 + b_1)\\, W_2 + b_2$, with the exact GELU of the exercise before.

- `x` is a tensor `(..., D)` with any leading axes, or none. `w_1` is `(D, F)`, `b_1` is `(F,)`,
  `w_2` is `(F, D)`, `b_2` is `(D,)`: matrices are (in, out), so that you write `x @ w_1`. F is
  usually 4·D, but need not be larger than D.
- There is no residual and no norm in here.
- Shape and dtype of the result are those of `x`, float64 or float32; compute in that precision.
  Leave the arguments as they are.
- The result can be differentiated with respect to all five arguments.""",
    reference=feed_forward,
    properties=(
        Property("out, bend, back: for every token of a sentence", 2, _sentences),
        Property("any leading axes, and float32", 1, _leading),
        Property("it can be differentiated", 1, _gradients),
    ),
    misconceptions=(
        Misconception(
            "bends after the second matrix",
            "Your bend comes last. Between the two matrices there is none, so that they are one "
            "matrix; and the block can hardly take anything out of the stream, because GELU lets "
            "almost nothing below 0 through.",
            _bent_after,
            symptom="your results are hardly ever below 0",
        ),
        Misconception(
            "has no bend",
            "There is no GELU. Two matrices in a row are one matrix, and nothing is gained by the "
            "width between them.",
            _straight,
            symptom="your result is a linear function of x",
        ),
        Misconception(
            "bends twice",
            "You bend after the second matrix as well. What is added to the stream must be able "
            "to be negative.",
            _bent_twice,
            symptom="your results are hardly ever below 0",
        ),
        Misconception(
            "bends before the first matrix",
            "You bend x itself. Between the two matrices there is no bend, so that they are one "
            "matrix.",
            _bent_before,
            symptom="the hidden numbers are not bent",
        ),
        Misconception(
            "ReLU for GELU",
            "Your bend is ReLU, as in the first transformer. The exact GELU is asked for.",
            _relu,
            symptom="your bend has a corner",
        ),
        Misconception(
            "the approximation of GELU",
            "Your bend is the approximation of GELU by tanh. The exact GELU is asked for.",
            _tanh_gelu,
            symptom="right to about three digits, and no further",
        ),
        Misconception(
            "SiLU for GELU",
            "Your bend is SiLU. The exact GELU is asked for.",
            _silu,
            symptom="your bend is too wide",
        ),
        Misconception(
            "forgets the first bias",
            "`b_1` is missing: it shifts the hidden numbers before they are bent.",
            _no_first_bias,
            symptom="all hidden numbers bend at the same place",
        ),
        Misconception(
            "forgets the second bias",
            "`b_2` is missing: it is added last.",
            _no_second_bias,
            symptom="your results are off by the same amount for every token",
        ),
        Misconception(
            "adds the first bias after the bend",
            "You add `b_1` after the bend. It decides *where* each hidden number bends, so it "
            "comes before.",
            _late_bias,
            symptom="all hidden numbers bend at the same place",
        ),
        Misconception(
            "adds x",
            "You add x to the result. The residual is the block's business: the next exercise.",
            _with_residual,
            symptom="x is in your result once more",
        ),
    ),
    hints=(
        "Three steps: (..., D) to (..., F), something for each number, and back to (..., D).",
        "Multiply x by w_1 and add b_1; call your gelu on all of it; multiply by w_2 and add b_2.",
        "`hidden = gelu(x @ w_1 + b_1)` has shape (..., F). One more product and one more sum.",
    ),
    minutes=5,
    returns=("the result",),
    keeps_dtype=True,
)
