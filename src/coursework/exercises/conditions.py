"""What keeps the inputs of a bug hunt from being degenerate, for bugs of attention.

They rule out the inputs on which any two functions agree: equal tokens, even weights, weights of 0
and 1. They rule out no coincidence of sizes or values, which is where a bug hides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coursework.bug_hunt import Condition

MOST = 20  #: queries, and keys


def are_ordinary(
    attention: Callable[..., Any], *, queries: int, keys: int
) -> tuple[Condition, ...]:
    """Conditions on (q, k, v).

    Args:
        attention: the right function, which returns z and the weights.
        queries: how many there must be at least.
        keys: how many there must be at least.
    """

    def are_matrices(q: Any, k: Any, v: Any) -> bool:
        return all(
            type(a) is np.ndarray and a.ndim == 2 and a.dtype == np.float64 for a in (q, k, v)
        ) and bool(
            q.shape[1] == k.shape[1]
            and len(k) == len(v)
            and queries <= len(q) <= MOST
            and keys <= len(k) <= MOST
            and min(q.shape[1], v.shape[1]) >= 2
            and all(np.all(np.abs(a) <= 100) for a in (q, k, v))
        )

    def rows_differ(q: Any, k: Any, v: Any) -> bool:
        return all(
            np.max(np.abs(a[i] - a[j])) >= 0.1
            for a in (q, k, v)
            for i in range(len(a))
            for j in range(i)
        )

    def weights_are_spread(q: Any, k: Any, v: Any) -> bool:
        weights = attention(q, k, v)[1]
        return bool(np.all((weights >= 0.02) & (weights <= 0.8)))

    def weights_are_uneven(q: Any, k: Any, v: Any) -> bool:
        weights = attention(q, k, v)[1]
        return bool(np.all(np.max(weights, axis=1) >= 2 * np.min(weights, axis=1)))

    return (
        Condition(
            "`q`, `k` and `v` are matrices of float64 that fit together, with "
            f"{queries} to {MOST} queries, {keys} to {MOST} keys, widths from 2 on, and no entry "
            "beyond ±100",
            are_matrices,
        ),
        Condition(
            "no two rows of `q` are alike, nor two of `k`, nor two of `v`: somewhere they differ "
            "by 0.1 or more",
            rows_differ,
        ),
        Condition(
            "every weight that the right function gives lies between 0.02 and 0.8",
            weights_are_spread,
        ),
        Condition(
            "in each row of these weights the largest is at least twice the smallest",
            weights_are_uneven,
        ),
    )
