"""The bug hunt of chapter 07: five wrong norms, each right on some inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.block.layer_norm import LAYER_NORM

EPS = 1e-5
MOST = 20

_NO_MEAN = "The mean of the token is not subtracted."
_TOGETHER = "One mean and one variance are taken for all tokens together."
_OVER_TOKENS = "Mean and variance are taken over the tokens, one for each feature."
_NO_ROOT = "The token is divided by its variance, not by the root of it."
_OUTSIDE = "eps is added outside the root."
_UNBIASED = "The variance is divided by D - 1."
_BIAS_FIRST = "The bias is added before the gain."
_ABOUT_ZERO = "The variance is measured about 0, not about the mean."


def _matrix(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


_GAIN3, _BIAS3 = _matrix((0.5, 1.5, 2.0))[0], _matrix((0.3, -0.4, 1.0))[0]
_GAIN4, _BIAS4 = _matrix((0.5, 1.5, 2.0, -1.0))[0], _matrix((0.3, -0.4, 1.0, 2.0))[0]
_X = _matrix((1.0, 2.0, 4.0, 0.5), (3.0, -1.0, 0.0, 2.5), (-2.0, 5.0, 1.0, 0.0))
_CIRCLE = _matrix((1.0, 2.0, 4.0), (2.0, 4.0, 1.0), (4.0, 1.0, 2.0))


def _with_variance(x: Tensor, variance: float) -> Tensor:
    """Each token brought to this variance; its mean stays."""
    mean = x.mean(-1, keepdim=True)
    spread = (x - mean).square().mean(-1, keepdim=True).sqrt()
    return mean + (x - mean) / spread * variance**0.5


# Conditions ------------------------------------------------------------------------------------


def _fit(x: Any, gain: Any, bias: Any) -> bool:
    return all(type(a) is Tensor and a.dtype == torch.float64 for a in (x, gain, bias)) and bool(
        x.ndim == 2
        and 2 <= len(x) <= MOST
        and 3 <= x.shape[1] <= MOST
        and gain.shape == bias.shape == x.shape[1:]
        and all((a.abs() <= 100).all() for a in (x, gain, bias))
    )


def _apart(values: Tensor) -> bool:
    """Whether no two rows are alike."""
    n = len(values)
    rows = values.reshape(n, -1)
    return all((rows[i] - rows[j]).abs().max() >= 0.1 for i in range(n) for j in range(i))


def _tokens_differ(x: Tensor, gain: Tensor, bias: Tensor) -> bool:
    return _apart(x) and bool((x.var(-1, correction=0) >= 0.01).all())


def _scales_differ(x: Tensor, gain: Tensor, bias: Tensor) -> bool:
    far = torch.minimum((gain - 1).abs(), gain.abs()) >= 0.1
    return _apart(gain) and _apart(bias) and bool(far.all() and (bias.abs() >= 0.1).all())


BUG_HUNT = BugHunt(
    target=LAYER_NORM,
    bugs=(
        Bug(
            "does not subtract the mean",
            mistake=_NO_MEAN,
            others=(_ABOUT_ZERO, _TOGETHER, _UNBIASED, _BIAS_FIRST),
            hides=(_X - _X.mean(-1, keepdim=True), _GAIN4, _BIAS4),
            shows=(_X, _GAIN4, _BIAS4),
        ),
        Bug(
            "adds eps outside the root",
            mistake=_OUTSIDE,
            others=(_UNBIASED, _NO_ROOT, _BIAS_FIRST, _ABOUT_ZERO),
            hides=(_with_variance(_X, ((1 - EPS) / 2) ** 2), _GAIN4, _BIAS4),
            shows=(_X, _GAIN4, _BIAS4),
        ),
        Bug(
            "norms over the tokens",
            mistake=_OVER_TOKENS,
            others=(_TOGETHER, _NO_MEAN, _NO_ROOT, _UNBIASED),
            hides=(_CIRCLE, _GAIN3, _BIAS3),
            shows=(_X, _GAIN4, _BIAS4),
        ),
        Bug(
            "norms the whole array together",
            mistake=_TOGETHER,
            others=(_OVER_TOKENS, _ABOUT_ZERO, _UNBIASED, _OUTSIDE),
            hides=(_CIRCLE[:2], _GAIN3, _BIAS3),
            shows=(_X, _GAIN4, _BIAS4),
        ),
        Bug(
            "divides by the variance",
            mistake=_NO_ROOT,
            others=(_OUTSIDE, _UNBIASED, _ABOUT_ZERO, _BIAS_FIRST),
            hides=(_with_variance(_X, 1 - EPS), _GAIN4, _BIAS4),
            shows=(_X, _GAIN4, _BIAS4),
        ),
    ),
    conditions=(
        Condition(
            "`x` is a matrix of 2 to 20 tokens with 3 to 20 features; `gain` and `bias` fit it; "
            "all are float64 tensors with no entry beyond ±100; eps is left out, at its default",
            _fit,
        ),
        Condition(
            "no two tokens are alike (somewhere they differ by 0.1 or more), and each has a "
            "standard deviation of 0.1 or more",
            _tokens_differ,
        ),
        Condition(
            "no two entries of `gain` are within 0.1 of each other, nor two of `bias`; no gain is "
            "within 0.1 of 0 or of 1, and no bias within 0.1 of 0",
            _scales_differ,
        ),
    ),
    hints=(
        "Put the suspect beside your own function, line by line. Which number do they compute "
        "differently?",
        "Write down that number as the suspect has it and as it should be. For which tokens are "
        "the two equal? Make such tokens for `hides`: you may choose their means and their spreads "
        "freely.",
        "Start from a small random `x`. Every token can be given any mean and any variance: "
        "subtract its mean, divide by its standard deviation, multiply and add what you like. "
        "Almost any other input will do for `shows`.",
    ),
    minutes=15,
)
