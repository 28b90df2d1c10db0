"""Masks: who may look at whom (chapter 05).

A mask is boolean and True means "may attend", as in PyTorch's fused attention. Queries are the
*last* T of S tokens, so that one rule serves training (T = S) and generation with a cache (T = 1).

Masks are made before there is an array to look at. They are NumPy arrays unless `like=` names a
tensor, whose library and device they then share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from attend.arrays import Array, namespace
from attend.dot_product import scaled_dot_product_attention


def causal_mask(T: int, S: int | None = None, *, like: Array | None = None) -> Array:
    """Each query sees the keys up to its own position, and none after it.

    Args:
        T: number of queries, which are the last T of the S tokens.
        S: number of keys; None means T. Where S < T, the first T - S queries see nothing.
        like: a tensor whose library and device the mask shall have.

    Returns:
        booleans (T, S): row i allows keys 0 … S - T + i.
    """
    S = T if S is None else S
    xp = namespace(like)
    device = None if like is None else like.device
    queries = xp.arange(T, device=device)[:, None] + (S - T)  # position of each query in the text
    keys = xp.arange(S, device=device)[None, :]
    return keys <= queries


def padding_mask(lengths: Sequence[int] | Array, S: int, *, like: Array | None = None) -> Array:
    """Real tokens of sentences that were padded at the end to S tokens.

    Args:
        lengths: (B,) real tokens of each sentence, 0 … S.
        S: length after padding.
        like: a tensor whose library and device the mask shall have.

    Returns:
        booleans (B, S), True at real tokens.

    Raises:
        ValueError: a length is below 0 or above S.
    """
    for row, length in enumerate(lengths):
        if not 0 <= length <= S:
            raise ValueError(f"length {int(length)} of sentence {row} is not within 0 … {S}")
    xp = namespace(like)
    device = None if like is None else like.device
    lengths = xp.asarray([int(length) for length in lengths], dtype=xp.int64, device=device)
    return xp.arange(S, device=device)[None, :] < lengths[:, None]


def padded_causal_mask(
    lengths: Sequence[int] | Array, T: int, *, like: Array | None = None
) -> Array:
    """Causal and padding mask in one: key j is allowed for query i if j ≤ i and j is a real token.

    Args:
        lengths: (B,) real tokens of each sentence, 0 … T.
        T: length after padding.
        like: a tensor whose library and device the mask shall have.

    Returns:
        booleans (B, 1, T, T); the 1 stands for the heads, which share the mask. Rows of padding
        queries are not emptied: nobody reads their results.

    Raises:
        ValueError: a length is below 0 or above T.
    """
    return padding_mask(lengths, T, like=like)[:, None, None, :] & causal_mask(T, like=like)


def additive_mask(mask: Array, dtype: object | None = None) -> Array:
    """The mask in the form that is added to scores: 0 where allowed, -inf where not.

    Args:
        mask: booleans, True = may attend.
        dtype: float dtype of the result; None takes the library's default.

    Returns:
        floats of the mask's shape.
    """
    xp = namespace(mask)
    zeros = xp.zeros(mask.shape, dtype=dtype, device=mask.device)
    return xp.where(mask, zeros, zeros - math.inf)


def causal_attention(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Scaled dot-product attention in which no query sees a later key.

    Args:
        q: (..., T, K), the last T of S tokens.
        k: (..., S, K).
        v: (..., S, d_v).

    Returns:
        z (..., T, d_v) and weights (..., T, S), zero above the diagonal that ends in the corner.
    """
    mask = causal_mask(q.shape[-2], k.shape[-2], like=q)
    return scaled_dot_product_attention(q, k, v, mask)


def leaks_future(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    """Whether changing tokens after `t` changes any output of `f` up to and including `t`.

    The future is replaced by random tokens, small ones and large ones: a constant shift would miss
    an `f` that only compares future tokens with each other, and NaN would accuse an `f` that
    multiplies the future by 0, since 0 · NaN is NaN.

    Args:
        f: maps (..., T, D) to (..., T, D').
        x: (..., T, D); it is not changed.
        t: the last position that counts as present, 0 … T - 1. Nothing comes after T - 1: False.

    Raises:
        ValueError: `t` is no position of `x`.
    """
    T = x.shape[-2]
    if not 0 <= t < T:
        raise ValueError(f"t is {t}: x has {T} tokens, so t must be within 0 … {T - 1}")
    xp = namespace(x)
    before = f(x)[..., : t + 1, :]
    rng = np.random.default_rng(0)
    for size in (1.0, 100.0):
        noise = size * rng.standard_normal(tuple(x.shape))
        noise[..., : t + 1, :] = 0
        after = f(x + xp.asarray(noise, dtype=x.dtype, device=x.device))[..., : t + 1, :]
        # Above rounding: a causal f may add the same numbers in another order.
        near = xp.abs(after - before) <= 1e-9 * xp.maximum(xp.abs(before), xp.ones_like(before))
        # A number that became infinite or NaN has changed; one that was so before has not.
        same = near | (after == before) | (xp.isnan(after) & xp.isnan(before))
        if not bool(xp.all(same)):
            return True
    return False


def next_token_pairs(ids: Sequence[int] | Array, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Every window of `context` tokens, and the token that follows each of its positions.

    Args:
        ids: (n,) token ids of a text.
        context: length of a window.

    Returns:
        inputs and targets, integers (n - context, context): windows start one token apart, and
        `targets[i, t]` is the token after `inputs[i, t]`.

    Raises:
        ValueError: the text has no more than `context` tokens, so that the window has no next one.
    """
    ids = np.asarray(ids, dtype=np.int64)
    if len(ids) <= context:
        raise ValueError(
            f"{len(ids)} tokens make no window of {context} with its next token: "
            f"at least {context + 1} are needed"
        )
    # (n - context, context + 1): one token more than the inputs, for the last target
    windows = np.lib.stride_tricks.sliding_window_view(ids, context + 1)
    return windows[:, :-1].copy(), windows[:, 1:].copy()
