"""The bug hunt of chapter 04: five wrong attentions, each right on some inputs."""

from __future__ import annotations

import numpy as np

from attend.dot_product import scaled_dot_product_attention
from coursework.bug_hunt import Bug, BugHunt
from coursework.exercises.conditions import are_ordinary
from coursework.exercises.scaling.attention import SCALED_DOT_PRODUCT_ATTENTION


def _vectors(angles: tuple[float, ...], length: float) -> np.ndarray:
    """Vectors of one length in the plane, at these angles in degrees."""
    radians = np.radians(angles)
    return length * np.stack([np.cos(radians), np.sin(radians)], axis=1)


_Q = np.array([[1.0, 0.5], [-0.5, 1.0]])
_K = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
_V = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
_V3 = np.array([[1.0, 2.0, 0.0], [3.0, 4.0, 1.0], [5.0, 7.0, 2.0]])
_K4 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [0.5, -1.0]])
_Q3 = np.array([[1.0, 0.5, 0.0], [-0.5, 1.0, 0.5]])
_K3 = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [-1.0, 0.5, 1.0]])
_BY_D_V = "The scores are divided by the root of the width of the values."
_BY_S = "The scores are divided by the root of the number of keys."
_BY_SPREAD = "The scores are divided by their own standard deviation."
_BY_ANGLE = "The lengths of queries and keys are divided away."
_KEYS = "The weights blend the keys, not the values."
_BY_D_K = "The scores are divided by d_k, not by its root."
_COLUMNS = "The columns of the weights sum to 1, not the rows."


def _with_spread_of_root_d_k() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys stretched until the scores' standard deviation is √d_k."""
    return _Q, _K * np.sqrt(2) / np.std(_Q @ _K.T), _V


BUG_HUNT = BugHunt(
    target=SCALED_DOT_PRODUCT_ATTENTION,
    bugs=(
        Bug(
            "divides by √d_v",
            mistake=_BY_D_V,
            others=(_BY_S, _BY_SPREAD, _KEYS, _BY_D_K),
            hides=(_Q, _K, _V),
            shows=(_Q, _K, _V3),
        ),
        Bug(
            "divides by the root of the number of keys",
            mistake=_BY_S,
            others=(_BY_D_V, _BY_ANGLE, _COLUMNS, _BY_D_K),
            hides=(_Q3, _K3, _V),
            shows=(_Q, _K4, _K4 + 1),
        ),
        Bug(
            "compares directions only",
            mistake=_BY_ANGLE,
            others=(_BY_SPREAD, _BY_D_V, _KEYS, _COLUMNS),
            hides=(_vectors((10, 200), 2**0.25), _vectors((0, 100, 220), 2**0.25), _V),
            shows=(_Q, _K, _V),
        ),
        Bug(
            "divides by the measured spread",
            mistake=_BY_SPREAD,
            others=(_BY_S, _BY_ANGLE, _BY_D_K, _KEYS),
            hides=_with_spread_of_root_d_k(),
            shows=(_Q, _K, _V),
        ),
        Bug(
            "blends the keys",
            mistake=_KEYS,
            others=(_BY_D_V, _BY_S, _BY_ANGLE, _COLUMNS),
            hides=(_Q, _K, _K.copy()),
            shows=(_Q, _K, _V),
        ),
    ),
    conditions=are_ordinary(scaled_dot_product_attention, queries=2, keys=3),
    hints=(
        "Put the suspect beside your own function, line by line. Where do they compute something "
        "different?",
        "Write down the number (or the array) that the suspect uses and the one that is right. For "
        "which sizes, or for which values, are the two equal? Choose such inputs for `hides`.",
        "Start from `rng = np.random.default_rng(0)` and small random matrices, call both "
        "functions, look at the right weights, and then change *one* thing (a size, a length, one "
        "of the arrays) until both agree. Almost any other input will do for `shows`.",
    ),
    minutes=15,
)
