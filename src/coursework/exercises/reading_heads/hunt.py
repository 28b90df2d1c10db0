"""The bug hunt of chapter 11: five wrong induction scores, each right on some inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attend.reading import induction_score
from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.reading_heads.induction import INDUCTION_SCORE

_SAME = "It reads the weight on the same token, one copy earlier."
_COPY_2 = "It stops at the end of the second copy."
_LAST = "It counts the last copy only."
_FIRST = "It counts a row of the first copy as well."
_SWAPPED = "It takes columns for rows."
_ALL = "It adds up the weights on all earlier copies."
_BEFORE = "It reads the weight on what came before this token the last time."
_MEAN = "It divides by the number of all tokens."


def _weights(T: int, *changes: tuple[int, int, int, float]) -> Tensor:
    """Two heads of T tokens: uneven rows, and in some places a weight that is asked for."""
    i, j = torch.arange(T)[:, None], torch.arange(T)
    heads = []
    for head in (1, 2):
        w = 1.0 + ((3 * i + 2 * head * j + i * j * head) % 8).double()
        fixed = torch.zeros(T, T, dtype=torch.bool)
        for h, t, s, value in changes:
            if h == head - 1:
                fixed[t, s], w[t, s] = True, value
        # What is not asked for shares what is left of its row.
        free = torch.where(fixed, 0, w)
        left = 1 - torch.where(fixed, w, 0).sum(-1, keepdim=True)
        heads.append(torch.where(fixed, w, left * free / free.sum(-1, keepdim=True)))
    return torch.stack(heads)


def _diagonal(T: int, P: int, distance: int, values: dict[int, tuple[float, ...]]) -> list:
    """For `_weights`: what each head gives from row t to t - distance, for t from P on."""
    return [
        (head, t, t - distance, row[t - P]) for head, row in values.items() for t in range(P, T)
    ]


def _symmetric(T: int) -> Tensor:
    """Two heads whose rows and columns are the same, and sum to 1: mixtures of exchanges."""
    swaps = [(0, 1), (1, 3), (2, 5), (0, 4), (3, 5), (2, 4), (1, 5)]
    heads = []
    for shift in (0.0, 0.03):
        w = torch.full((T, T), 0.02, dtype=torch.float64)
        for n, (a, b) in enumerate(swaps):
            w[a, b] = w[b, a] = 0.04 + 0.02 * n + shift * (n % 2)
        w.fill_diagonal_(0)
        heads.append(w + torch.diag(1 - w.sum(-1)))
    return torch.stack(heads)


#: The same mean on two diagonals: of what came next the last time, and of the same token.
_TIED = _weights(
    6,
    *_diagonal(6, 3, 2, {0: (0.10, 0.20, 0.30), 1: (0.30, 0.25, 0.35)}),
    *_diagonal(6, 3, 3, {0: (0.25, 0.15, 0.20), 1: (0.28, 0.32, 0.30)}),
)
#: The row of the first copy that one bug counts has just the mean of the others.
_MEAN_BEFORE = _weights(
    6,
    *_diagonal(6, 3, 2, {0: (0.10, 0.20, 0.30), 1: (0.30, 0.25, 0.35)}),
    (0, 2, 0, 0.20),
    (1, 2, 0, 0.30),
)


def _is_attention(weights: Any, period: Any) -> bool:
    return (
        type(weights) is Tensor
        and weights.dtype == torch.float64
        and weights.ndim == 3
        and weights.shape[1] == weights.shape[2]
        and 2 <= weights.shape[0] <= 5
        and 5 <= weights.shape[1] <= 20
        and bool((weights >= 0.01).all() and (weights <= 0.9).all())
        and bool(((weights.sum(-1) - 1).abs() < 1e-9).all())
    )


def _is_a_period(weights: Any, period: Any) -> bool:
    return type(period) is int and 2 <= period <= weights.shape[-1] - 2


def _weights_differ(weights: Tensor, period: int) -> bool:
    counted = weights[:, period:].diagonal(1, dim1=-2, dim2=-1)  # (H, T - P)
    return bool(((counted.amax(-1) - counted.amin(-1)) >= 0.05).all())


def _heads_differ(weights: Tensor, period: int) -> bool:
    scores = induction_score(weights, period)
    apart = (scores[:, None] - scores).abs() + torch.eye(len(scores))
    return bool((apart >= 0.02).all())


BUG_HUNT = BugHunt(
    target=INDUCTION_SCORE,
    bugs=(
        Bug(
            "looks at the same token",
            mistake=_SAME,
            others=(_BEFORE, _FIRST, _LAST, _SWAPPED),
            hides=(_TIED, 3),
            shows=(_weights(8), 3),
        ),
        Bug(
            "counts the second copy only",
            mistake=_COPY_2,
            others=(_LAST, _ALL, _FIRST, _MEAN),
            hides=(_weights(5), 3),
            shows=(_weights(8), 3),
        ),
        Bug(
            "counts a row of the first copy",
            mistake=_FIRST,
            others=(_SAME, _MEAN, _COPY_2, _SWAPPED),
            hides=(_MEAN_BEFORE, 3),
            shows=(_weights(8), 3),
        ),
        Bug(
            "takes columns for rows",
            mistake=_SWAPPED,
            others=(_SAME, _BEFORE, _ALL, _FIRST),
            hides=(_symmetric(6), 3),
            shows=(_weights(8), 3),
        ),
        Bug(
            "adds up all earlier copies",
            mistake=_ALL,
            others=(_COPY_2, _LAST, _MEAN, _SAME),
            hides=(_weights(5), 3),
            shows=(_weights(8), 3),
        ),
    ),
    conditions=(
        Condition(
            "`weights` is a float64 tensor (H, T, T) with 2 to 5 heads and 5 to 20 tokens; each "
            "row sums to 1, and every weight lies between 0.01 and 0.9",
            _is_attention,
        ),
        Condition("`period` is a whole number from 2 to T − 2", _is_a_period),
        Condition(
            "within each head, the largest weight that the right score counts lies 0.05 or more "
            "above the smallest",
            _weights_differ,
        ),
        Condition("the right scores of any two heads lie 0.02 or more apart", _heads_differ),
    ),
    hints=(
        "Which entries of the matrix does the suspect add up, and which ones should it? Mark both "
        "on squared paper, for six tokens and a period of 3.",
        "Ask when the difference does not matter: for which lengths of text, or for which values "
        "of the entries that differ, is the mean the same? Choose such weights for `hides`.",
        "Start from random rows that sum to 1, as `torch.rand(2, T, T, dtype=torch.float64)` "
        "divided by its sum along the last axis, and call both functions. Then change *one* thing "
        "until they agree: the length T, or single entries (give what you add to one entry of a "
        "row to another entry of it back). Almost any other input will do for `shows`.",
    ),
    minutes=15,
)
