"""The bug hunt of chapter 02."""

from __future__ import annotations

from typing import Any

import numpy as np

from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.positions.rotation import APPLY_ROPE


def _is_a_head(x: Any, angles: Any) -> bool:
    return (
        all(type(a) is np.ndarray and a.ndim == 2 and a.dtype == np.float64 for a in (x, angles))
        and len(x) == len(angles) >= 2
        and x.shape[1] == 2 * angles.shape[1] >= 4
        and all(bool(np.max(np.abs(a)) <= 100) for a in (x, angles))
    )


def _x_is_uneven(x: Any, angles: Any) -> bool:
    return bool(np.min(np.abs(x)) >= 0.1) and all(
        bool(np.max(np.abs(x[i] - x[j])) >= 0.1) for i in range(len(x)) for j in range(i)
    )


def _angles_turn(x: Any, angles: Any) -> bool:
    return bool(min(np.min(np.abs(np.sin(angles))), np.min(np.abs(np.cos(angles)))) >= 0.1)


def _angles_differ(x: Any, angles: Any) -> bool:
    return bool(np.min(np.diff(np.sort(angles, axis=None))) >= 0.1)


_X = np.array([[1.0, 2.0, -1.0, 0.5], [0.5, -1.0, 2.0, 3.0]])
_ANGLES = np.array([[0.5, 1.1], [1.0, 2.2]])
_TURN = 2 * np.pi
_BY_NEIGHBOURS = "Features are paired with their neighbours, not with those half a head away."
_BY_OUTERMOST = "Features are paired from the outside inwards, not with those half a head away."
_TOO_EARLY = "The second half is computed from a first half that has been turned already."
_SAME_ROW = "All tokens are turned by the angles of one position."
_SAME_COLUMN = "All pairs of a token are turned by one angle."
_REVERSED = "The pairs get the angles in the reverse order."
_CLOCKWISE = "The pairs are turned in the opposite direction."
_MOVED = "The turned features are put back in the wrong places."


def _neighbours_hide() -> tuple[np.ndarray, np.ndarray]:
    """x₁ = x₂, and (cos θ₁ − cos θ₀) x₁ = x₀ sin θ₀ + x₃ sin θ₁: both pairings agree."""
    x0, x1 = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    c, s = np.cos(_ANGLES), np.sin(_ANGLES)
    x3 = ((c[:, 1] - c[:, 0]) * x1 - x0 * s[:, 0]) / s[:, 1]
    return np.stack([x0, x1, x1, x3], axis=1), _ANGLES


def _outermost_hide() -> tuple[np.ndarray, np.ndarray]:
    """x₂ = x₃, and x₀ sin θ₀ + x₂ cos θ₀ = x₁ sin θ₁ + x₂ cos θ₁."""
    x0, x2 = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    c, s = np.cos(_ANGLES), np.sin(_ANGLES)
    x1 = (x0 * s[:, 0] + x2 * (c[:, 0] - c[:, 1])) / s[:, 1]
    return np.stack([x0, x1, x2, x2], axis=1), _ANGLES


def _too_early_hides() -> tuple[np.ndarray, np.ndarray]:
    """b = −a tan(θ/2): then a cos θ − b sin θ is a again."""
    a = np.array([[1.0, 2.0], [0.5, -1.0]])
    return np.concatenate([a, -a * np.tan(_ANGLES / 2)], axis=1), _ANGLES


BUG_HUNT = BugHunt(
    target=APPLY_ROPE,
    bugs=(
        Bug(
            "overwrites the first half too early",
            mistake=_TOO_EARLY,
            others=(_BY_NEIGHBOURS, _MOVED, _CLOCKWISE, _SAME_COLUMN),
            hides=_too_early_hides(),
            shows=(_X, _ANGLES),
        ),
        Bug(
            "pairs neighbours",
            mistake=_BY_NEIGHBOURS,
            others=(_BY_OUTERMOST, _MOVED, _CLOCKWISE, _REVERSED),
            hides=_neighbours_hide(),
            shows=(_X, _ANGLES),
        ),
        Bug(
            "pairs the outermost",
            mistake=_BY_OUTERMOST,
            others=(_BY_NEIGHBOURS, _MOVED, _CLOCKWISE, _REVERSED),
            hides=_outermost_hide(),
            shows=(_X, _ANGLES),
        ),
        Bug(
            "uses the first position's angles for all",
            mistake=_SAME_ROW,
            others=(_SAME_COLUMN, _REVERSED, _TOO_EARLY, _CLOCKWISE),
            hides=(_X, np.array([[0.5, 1.1], [0.5 + _TURN, 1.1 - 3 * _TURN]])),
            shows=(_X, _ANGLES),
        ),
        Bug(
            "uses the angles from last to first",
            mistake=_REVERSED,
            others=(_SAME_ROW, _SAME_COLUMN, _BY_OUTERMOST, _CLOCKWISE),
            hides=(_X, np.array([[0.5, 0.5 + _TURN], [1.1, 1.1 - _TURN]])),
            shows=(_X, _ANGLES),
        ),
        Bug(
            "uses one angle for all pairs",
            mistake=_SAME_COLUMN,
            others=(_SAME_ROW, _REVERSED, _BY_NEIGHBOURS, _CLOCKWISE),
            hides=(_X, np.array([[0.5, 0.5 + _TURN], [1.1, 1.1 - _TURN]])),
            shows=(_X, _ANGLES),
        ),
    ),
    conditions=(
        Condition(
            "`x` (T, K) and `angles` (T, K / 2) are matrices of float64 with T at least 2 and K at "
            "least 4, and no entry beyond ±100",
            _is_a_head,
        ),
        Condition(
            "no entry of `x` is nearer to 0 than 0.1, and no two rows are alike: somewhere they "
            "differ by 0.1 or more",
            _x_is_uneven,
        ),
        Condition(
            "sine and cosine of every angle are at least 0.1 in size, so that every pair is truly "
            "turned",
            _angles_turn,
        ),
        Condition(
            "no two entries of `angles` are alike, wherever they stand: they differ by 0.1 or more",
            _angles_differ,
        ),
    ),
    hints=(
        "Put the suspect beside your own function, line by line. Where do they compute something "
        "different?",
        "Write down both formulas for one token with K = 4, and set them equal. Either that is an "
        "equation for the features of `x` (solve it for one of them), or it asks two angles to do "
        "the same. Which angles differ and yet turn alike?",
        "Two lines help. For an equation: choose some features freely, compute the last from it, "
        "and compare both functions. For angles: a full turn is `2 * np.pi`. Almost any input will "
        "do for `shows`.",
    ),
    minutes=20,
)
