"""The bug hunt of chapter 06: five wrong layers of heads, each of them right on some inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from attend.heads import attention_heads, multi_head_attention
from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.heads.attention import MULTI_HEAD_ATTENTION

MOST_TOKENS, MOST_COLUMNS = 20, 16

_INTERLEAVED = "Each head takes every H-th column, not K columns that lie side by side."
_AVERAGED = "All heads blend with the mean of their weights."
_TWICE = "The queries are multiplied by W_Q twice."
_KEYS = "The weights blend the keys, not the values."
_TRANSPOSED = "W_O is used the wrong way round."
_ROOT_D = "The scores are divided by √D, not by √K."
_UNMERGED = "The heads are merged without moving them behind the tokens."
_NO_W_O = "What the heads bring is not multiplied by W_O."


def _fit(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, n_heads: Any) -> bool:
    arrays = (x, w_q, w_k, w_v, w_o)
    if not all(type(a) is np.ndarray and a.ndim == 2 and a.dtype == np.float64 for a in arrays):
        return False
    T, D = x.shape
    return bool(
        type(n_heads) is int
        and 3 <= T <= MOST_TOKENS
        and 4 <= D <= MOST_COLUMNS
        and n_heads >= 2
        and D % n_heads == 0
        and all(w.shape == (D, D) for w in arrays[1:])
        and all(np.all(np.abs(a) <= 100) for a in arrays)
    )


def _apart(rows: np.ndarray) -> bool:
    """Whether any two rows differ by 0.1 or more somewhere."""
    return all(np.max(np.abs(rows[i] - rows[j])) >= 0.1 for i in range(len(rows)) for j in range(i))


def _rows_differ(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, n_heads: Any) -> bool:
    return _apart(x) and _apart(multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads))


def _weights_are_spread(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, n_heads: Any) -> bool:
    weights = attention_heads(x, w_q, w_k, w_v, n_heads)[1]
    return bool(np.all((weights >= 0.005) & (weights <= 0.95)))


def _weights_are_uneven(x: Any, w_q: Any, w_k: Any, w_v: Any, w_o: Any, n_heads: Any) -> bool:
    weights = attention_heads(x, w_q, w_k, w_v, n_heads)[1]
    return bool(np.all(weights.max(axis=-1) >= 1.2 * weights.min(axis=-1)))


CONDITIONS = (
    Condition(
        f"`x` is a float64 matrix of 3 to {MOST_TOKENS} tokens and 4 to {MOST_COLUMNS} columns, "
        "the four matrices are square and of its width, no entry is beyond ±100, and `n_heads` "
        "is a whole number from 2 on that divides the width",
        _fit,
    ),
    Condition(
        "no two rows of `x` are alike, nor two of the right result: somewhere they differ by 0.1 "
        "or more",
        _rows_differ,
    ),
    Condition(
        "every weight of every head lies between 0.005 and 0.95",
        _weights_are_spread,
    ),
    Condition(
        "in each row of each head's weights the largest is at least 1.2 times the smallest",
        _weights_are_uneven,
    ),
)


def _layer(n_heads: int = 2) -> dict[str, Any]:
    """Four tokens of width 4 and matrices with nothing particular about them."""
    rng = np.random.default_rng(37)
    return {
        "x": rng.standard_normal((4, 4)),
        **{name: 0.6 * rng.standard_normal((4, 4)) for name in ("w_q", "w_k", "w_v", "w_o")},
        "n_heads": n_heads,
    }


def _with(**changes: Any) -> tuple[Any, ...]:
    return tuple({**_layer(), **changes}.values())


def _alike(w: np.ndarray) -> np.ndarray:
    """The columns of the first head, for the second one as well."""
    return np.concatenate([w[:, :2], w[:, :2]], axis=1)


_USUAL = _layer()

BUG_HUNT = BugHunt(
    target=MULTI_HEAD_ATTENTION,
    bugs=(
        Bug(
            "interleaves the heads",
            mistake=_INTERLEAVED,
            others=(_AVERAGED, _ROOT_D, _UNMERGED, _TRANSPOSED),
            hides=_with(n_heads=4),
            shows=_with(),
        ),
        Bug(
            "averages the weights over the heads",
            mistake=_AVERAGED,
            others=(_INTERLEAVED, _ROOT_D, _NO_W_O, _UNMERGED),
            hides=_with(w_q=_alike(_USUAL["w_q"]), w_k=_alike(_USUAL["w_k"])),
            shows=_with(),
        ),
        Bug(
            "projects the queries twice",
            mistake=_TWICE,
            others=(_ROOT_D, _KEYS, _TRANSPOSED, _INTERLEAVED),
            hides=_with(w_q=np.eye(4)),
            shows=_with(),
        ),
        Bug(
            "blends the keys",
            mistake=_KEYS,
            others=(_TWICE, _AVERAGED, _NO_W_O, _UNMERGED),
            hides=_with(w_v=_USUAL["w_k"].copy()),
            shows=_with(),
        ),
        Bug(
            "transposes W_O",
            mistake=_TRANSPOSED,
            others=(_NO_W_O, _UNMERGED, _INTERLEAVED, _TWICE),
            hides=_with(w_o=_USUAL["w_o"] + _USUAL["w_o"].T),
            shows=_with(),
        ),
    ),
    conditions=CONDITIONS,
    hints=(
        "Put the suspect beside your own function, line by line. Where does it use something else "
        "than you do?",
        "Name the two arrays (the matrix it uses and the right one, the columns it takes and the "
        "right ones, the weights it blends with and the right ones). When are the two the same? "
        "Choose such a matrix, or such a number of heads, for `hides`.",
        "Start from `rng = np.random.default_rng(1)`, an `x` of four tokens and width 4, random "
        "matrices and two heads: that will do for `shows`. Then change *one* of the six arguments "
        "until both functions agree, for `hides`. If a head's weights are too uneven now, make "
        "`w_k` smaller; if they are too even, make it larger, or take another seed.",
    ),
    minutes=15,
)
