"""The bug hunt of chapter 12: rows in a wrong order, which some sizes hide."""

from __future__ import annotations

from typing import Any

import torch

from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.real_model.unpermute import UNPERMUTE_ROPE


def _rows(n: int, d_in: int) -> torch.Tensor:
    """A matrix (n, d_in) without two equal numbers."""
    return torch.arange(n * d_in, dtype=torch.float64).reshape(n, d_in)


def _is_a_matrix(w: Any, n_heads: Any) -> bool:
    return (
        type(w) is torch.Tensor
        and w.dtype == torch.float64
        and w.ndim == 2
        and 4 <= w.shape[0] <= 64
        and 2 <= w.shape[1] <= 64
        and bool(torch.all(torch.abs(w) <= 10_000))
    )


def _heads_divide(w: Any, n_heads: Any) -> bool:
    return type(n_heads) is int and n_heads >= 1 and w.shape[0] % (2 * n_heads) == 0


def _rows_differ(w: Any, n_heads: Any) -> bool:
    apart = (w[:, None] - w[None]).abs().amax(-1)
    return bool(torch.all(apart + torch.eye(len(w)) >= 0.1))


def _columns_differ(w: Any, n_heads: Any) -> bool:
    return _rows_differ(w.T, n_heads)


_LEFT = "The rows stay in the order in which they were published."
_INVERSE = "The rows are put into the order of the other layout."
_ACROSS = "The rows are reordered across all heads at once."
_WIDTH = "The width of a head is taken from the columns."
_FASTEST = "Neighbouring rows are taken for rows of different heads."
_ODD = "The odd rows come before the even ones."
_COLUMNS = "The columns are reordered, not the rows."
_HALVES = "The two halves of each head are exchanged."

BUG_HUNT = BugHunt(
    target=UNPERMUTE_ROPE,
    bugs=(
        Bug(
            "goes the other way",
            mistake=_INVERSE,
            others=(_LEFT, _ACROSS, _ODD, _HALVES),
            hides=(_rows(12, 5), 3),
            shows=(_rows(12, 5), 2),
        ),
        Bug(
            "permutes across heads",
            mistake=_ACROSS,
            others=(_INVERSE, _FASTEST, _COLUMNS, _WIDTH),
            hides=(_rows(12, 5), 1),
            shows=(_rows(12, 5), 2),
        ),
        Bug(
            "takes the width of a head from the columns",
            mistake=_WIDTH,
            others=(_FASTEST, _ACROSS, _INVERSE, _COLUMNS),
            hides=(_rows(12, 12), 2),
            shows=(_rows(12, 8), 2),
        ),
        Bug(
            "lets the heads run fastest",
            mistake=_FASTEST,
            others=(_ACROSS, _WIDTH, _INVERSE, _HALVES),
            hides=(_rows(12, 5), 1),
            shows=(_rows(12, 5), 2),
        ),
        Bug(
            "permutes the first head only",
            mistake="Only the rows of the first head are reordered.",
            others=(_ACROSS, _FASTEST, _ODD, _WIDTH),
            hides=(_rows(12, 5), 1),
            shows=(_rows(12, 5), 2),
        ),
    ),
    conditions=(
        Condition(
            "`w` is a matrix of float64, a tensor, with 4 to 64 rows and 2 to 64 columns, and no "
            "entry beyond ±10,000",
            _is_a_matrix,
        ),
        Condition(
            "`n_heads` is a whole number from 1 on that divides the rows into heads of even width",
            _heads_divide,
        ),
        Condition(
            "no two rows of `w` are alike: somewhere they differ by 0.1 or more", _rows_differ
        ),
        Condition("no two columns of `w` are alike either", _columns_differ),
    ),
    hints=(
        "Since no two rows are alike, the bug can hide in the *sizes* only. Which sizes does the "
        "suspect use, and which should it use?",
        "Let `w` be `torch.arange(...)` reshaped to a matrix, so that each row tells where it "
        "came from. Call the suspect and your own function with 1, 2 and 3 heads, of width 2, 4 "
        "and 6, with few and with many columns, and look at where they part.",
        "`w = torch.arange(60.0, dtype=torch.float64).reshape(12, 5)` with `n_heads` of 1, 2, 3 "
        "and 6 tells most of it; a square matrix the rest.",
    ),
    minutes=12,
)
