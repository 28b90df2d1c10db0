"""The bug hunt of chapter 03: four wrong attentions, each right on some inputs."""

from __future__ import annotations

import numpy as np

from attend.dot_product import attention
from coursework.bug_hunt import Bug, BugHunt
from coursework.exercises.conditions import are_ordinary
from coursework.exercises.qkv.attention import ATTENTION

_ANGLES = np.radians([0, 120, 240])
_TRIANGLE = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
_Q = np.array([[1.0, 0.5], [-0.5, 1.0], [0.5, -1.0]])
_K = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]])
_K4 = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [0.5, -0.5]])
_V = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
_V4 = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0], [0.0, 1.0]])

_TRANSPOSED = "The weights are transposed before they blend the values."
_COLUMNS = "The columns of the weights sum to 1, not the rows."
_NO_KEYS = "The queries are compared with the queries."
_KEYS = "The weights blend the keys, not the values."
_SCALE = "The scores are divided by the root of the width."
_NEGATED = "The key that fits a query least gets the largest weight."
_ALL = "All weights together sum to 1, not each row."

BUG_HUNT = BugHunt(
    target=ATTENTION,
    bugs=(
        Bug(
            "compares queries with queries",
            mistake=_NO_KEYS,
            others=(_TRANSPOSED, _KEYS, _COLUMNS, _NEGATED),
            hides=(_K4, _K4.copy(), _V4),
            shows=(_Q, _K, _V),
        ),
        Bug(
            "normalises the columns",
            mistake=_COLUMNS,
            others=(_TRANSPOSED, _ALL, _KEYS, _NEGATED),
            hides=(_TRIANGLE, _TRIANGLE.copy(), _V),
            shows=(_Q, _K4, _V4),
        ),
        Bug(
            "transposes the weights",
            mistake=_TRANSPOSED,
            others=(_COLUMNS, _NO_KEYS, _KEYS, _SCALE),
            hides=(_TRIANGLE, _TRIANGLE.copy(), _V),
            shows=(_Q, _K, _V),
        ),
        Bug(
            "blends the keys",
            mistake=_KEYS,
            others=(_TRANSPOSED, _NO_KEYS, _ALL, _SCALE),
            hides=(_Q, _K, _K.copy()),
            shows=(_Q, _K, _V),
        ),
    ),
    conditions=are_ordinary(attention, queries=3, keys=3),
    hints=(
        "Put the suspect beside your own function, line by line. Where do they compute something "
        "different?",
        "Write down the array that the suspect uses in that place, and the one that is right. What "
        "would have to be true of `q`, `k` or `v` for the two to be equal, or to have the same "
        "effect? It may be a matter of values, or of symmetry.",
        "Start from `rng = np.random.default_rng(0)` and small random matrices, call both "
        "functions, look at the right weights, and then change *one* thing (a size, one array for "
        "another, points that lie evenly) until both agree. Almost any other input will do for "
        "`shows`.",
    ),
    minutes=15,
)
