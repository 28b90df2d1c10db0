"""Embeddings: a row of numbers for every token (chapter 01).

An id says nothing about what a token means; a learned vector can. Looking the vector up is the
product of a one-hot row with the table, without the V multiplications by 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.arrays import Array, namespace


def one_hot(ids: Sequence | Array, vocab: int) -> np.ndarray:
    """The tokens as rows with a single 1: `one_hot(ids, V) @ table` equals `embed(ids, table)`.

    Args:
        ids: (...) whole numbers 0 … vocab - 1; nested lists will do.
        vocab: V, the number of different tokens.

    Returns:
        float64 (..., V).

    Raises:
        IndexError: an id is outside 0 … V - 1.
    """
    return embed(ids, np.eye(vocab))


def embed(ids: Sequence | Array, table: Array) -> Array:
    """The row of `table` that belongs to each id.

    Args:
        ids: (..., T) whole numbers 0 … V - 1; nested lists will do.
        table: (V, D), one row a token.

    Returns:
        (..., T, D), a copy of rows of the table in the table's dtype.

    Raises:
        IndexError: an id is outside 0 … V - 1. A negative one would otherwise count from the end.
        ValueError: an id is not a whole number.
    """
    xp = namespace(table)
    if isinstance(ids, (list, tuple)):
        ids = np.asarray(ids if np.size(ids) else np.zeros(np.shape(ids), dtype=np.int64))
    ids = xp.asarray(ids, device=table.device)
    if not xp.isdtype(ids.dtype, "integral"):
        raise ValueError(f"ids have dtype {ids.dtype}: they must be whole numbers")
    vocab = table.shape[0]
    outside = ids[(ids < 0) | (ids >= vocab)]
    if outside.shape[0]:
        raise IndexError(f"id {int(outside[0])} is outside 0 … {vocab - 1}, the rows of the table")
    # int64 first: PyTorch reads an index of small unsigned numbers as a mask.
    return table[xp.astype(ids, xp.int64)]
