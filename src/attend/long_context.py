"""Long contexts: what of attention's T² can be saved (chapter 10).

Exactly, the memory: a softmax can be computed from blocks of keys that are seen one after another,
so the T × S matrix never has to exist (`flash_attention`). At a price, the time as well: a sliding
window looks at the nearest tokens only, and linear attention replaces the softmax by a product of
features, so that the past fits into a matrix of constant size.

Sources: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al.,
"FlashAttention" (2022); Beltagy et al., "Longformer" (2020); Katharopoulos et al., "Transformers
are RNNs" (2020).
"""

from __future__ import annotations

import math

from attend.arrays import Array, as_floating, namespace
from attend.dot_product import attention_scores, scaled_dot_product_attention
from attend.masks import causal_mask

Block = tuple[Array, Array, Array]  #: (max (..., T), sum (..., T), output (..., T, d_v))
State = tuple[Array, Array]  #: (Σ φ(k) vᵀ (..., K, d_v), Σ φ(k) (..., K))


def attention_cost(T: int, D: int, bytes_per_value: int = 4) -> tuple[int, int]:
    """What one head costs on T tokens, without its projections and without skipping the future.

    Args:
        T: number of tokens.
        D: width of queries, keys and values.
        bytes_per_value: of a score.

    Returns:
        floating-point operations 4·T²·D (Q Kᵀ and the blend, 2 for each multiply-add), and the
        bytes of the T × T scores.
    """
    return 4 * T * T * D, T * T * bytes_per_value


def _or_zero(largest: Array) -> Array:
    """The maximum to subtract: 0 where there is no key yet, since -inf - (-inf) is NaN."""
    xp = namespace(largest)
    return xp.where(largest == -math.inf, xp.zeros_like(largest), largest)


def softmax_block(scores: Array, v: Array) -> Block:
    """The part of a softmax that one block of keys contributes.

    Args:
        scores: (..., T, S), -inf where a query may not attend.
        v: (..., S, d_v).

    Returns:
        the largest score (..., T), the sum of exp(score - largest) (..., T), and the values
        weighted by these exponentials, not divided by the sum (..., T, d_v).
    """
    xp = namespace(scores, v)
    largest = xp.max(scores, axis=-1)
    e = xp.exp(scores - _or_zero(largest)[..., None])
    return largest, xp.sum(e, axis=-1), e @ v


def merge_softmax_blocks(a: Block, b: Block) -> Block:
    """Two blocks of keys as one. Both are rescaled to the larger of the two maxima.

    Args:
        a, b: each (max (..., T), sum (..., T), output (..., T, d_v)), where the output is the
            running numerator, not divided by the sum. A block without keys is (-inf, 0, 0).

    Returns:
        new arrays of the same shapes and dtype; two blocks without keys give one.

    Source: Milakov and Gimelshein (2018), equation 4.
    """
    xp = namespace(*a, *b)
    largest = xp.maximum(a[0], b[0])
    scale_a = xp.exp(a[0] - _or_zero(largest))
    scale_b = xp.exp(b[0] - _or_zero(largest))
    return (
        largest,
        a[1] * scale_a + b[1] * scale_b,
        a[2] * scale_a[..., None] + b[2] * scale_b[..., None],
    )


def flash_attention(q: Array, k: Array, v: Array, block_size: int, causal: bool = False) -> Array:
    """Scaled dot-product attention that never holds more than T × block_size scores.

    Args:
        q: (..., T, K).
        k: (..., S, K).
        v: (..., S, d_v).
        block_size: keys looked at in one go, above 0; it need not divide S.
        causal: queries are the last T tokens and see no later key.

    Returns:
        (..., T, d_v), up to rounding what `scaled_dot_product_attention` gives. A query that may
        attend to nothing gets zeros.

    Raises:
        ValueError: the block size is below 1.

    Source: Dao et al. (2022), algorithm 1, without its blocks of queries.
    """
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}: a block needs at least one key")
    xp = namespace(q, k, v)
    q = as_floating(q) / math.sqrt(q.shape[-1])  # scaled here: T · K divisions, not T · S
    T, S = q.shape[-2], k.shape[-2]
    rows = attention_scores(q, k[..., :0, :])  # (..., T, 0): the shape of the result, no key yet
    total = xp.sum(rows, axis=-1)
    largest, numerator = total - math.inf, rows @ as_floating(v)[..., :0, :]
    queries = xp.arange(T, device=q.device)[:, None] + (S - T)
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        scores = attention_scores(q, k[..., keys, :])  # (..., T, block)
        if causal:
            future = xp.arange(start, start + scores.shape[-1], device=q.device) > queries
            scores = xp.where(future, xp.full_like(scores, -math.inf), scores)
        block = softmax_block(scores, v[..., keys, :])
        largest, total, numerator = merge_softmax_blocks((largest, total, numerator), block)
    return numerator / xp.where(total == 0, xp.ones_like(total), total)[..., None]


def sliding_window_mask(
    T: int, window: int, S: int | None = None, *, like: Array | None = None
) -> Array:
    """Each query sees the last `window` tokens up to its own, which counts as one of them.

    Args:
        T: number of queries, which are the last T of the S tokens.
        window: at least 1; one above T is the causal mask.
        S: number of keys; None means T.
        like: a tensor whose library and device the mask shall have.

    Returns:
        booleans (T, S).

    Raises:
        ValueError: the window is below 1.
    """
    if window < 1:
        raise ValueError(f"window is {window}: a token sees at least itself")
    S = T if S is None else S
    xp = namespace(like)
    device = None if like is None else like.device
    queries = xp.arange(T, device=device)[:, None] + (S - T)
    keys = xp.arange(S, device=device)[None, :]
    return (keys <= queries) & (keys > queries - window)


def sliding_window_attention(q: Array, k: Array, v: Array, window: int) -> Array:
    """Scaled dot-product attention under `sliding_window_mask`, in time and memory T · window.

    Args:
        q: (..., T, K), the last T of S tokens.
        k: (..., S, K).
        v: (..., S, d_v).
        window: at least 1.

    Returns:
        (..., T, d_v).

    Raises:
        ValueError: the window is below 1.
    """
    xp = namespace(q, k, v)
    T, S = q.shape[-2], k.shape[-2]
    parts = []
    for start in range(0, max(T, 1), max(window, 1)):
        end = min(start + window, T)
        # Positions start … end - 1 of the queries are S - T later among the keys.
        first, last = max(0, start + S - T - window + 1), max(0, end + S - T)
        mask = sliding_window_mask(end - start, window, last - first, like=q)
        keys, values = k[..., first:last, :], v[..., first:last, :]
        parts.append(scaled_dot_product_attention(q[..., start:end, :], keys, values, mask)[0])
    return xp.concat(parts, axis=-2)


class WindowCache:
    """A cache that keeps the last `window` tokens in a ring: the newest takes the oldest's place.

    It is used like a `KVCache`, under a `sliding_window_mask` of the same window, and never full:
    `len` counts all tokens that have been seen, so that positions go on.

    Args:
        batch: B.
        n_kv_heads: G.
        window: how many tokens a query sees, itself among them.
        d_head: K.
        dtype, device: of keys and values; None takes those of the first ones.
    """

    def __init__(
        self, batch: int, n_kv_heads: int, window: int, d_head: int, dtype=None, device=None
    ):
        if window < 1:
            raise ValueError(f"window is {window}: a token sees at least itself")
        self.window, self._shape = window, (batch, n_kv_heads, window, d_head)
        self._dtype, self._device, self._len = dtype, device, 0
        self._rings: list[Array] | None = None

    def __len__(self) -> int:
        """Tokens of each text seen so far; the next token has this position."""
        return self._len

    @property
    def nbytes(self) -> int:
        """Memory taken: none before the first token, then the same for ever."""
        return sum(ring.nbytes for ring in self._rings or ())

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Takes the keys and values of new tokens, and gives those that these tokens may see.

        Args:
            k, v: (B, G, T_new, K), any number of tokens. They are copied.

        Returns:
            keys and values of the last min(len before, window - 1) + T_new tokens, oldest first.

        Raises:
            ValueError: a shape or dtype is not the cache's; the cache is then as it was.
        """
        B, G, window, K = self._shape
        for name, x in (("k", k), ("v", v)):
            if tuple(x.shape) != (B, G, k.shape[2], K):
                raise ValueError(f"{name} has shape {tuple(x.shape)}: not ({B}, {G}, T_new, {K})")
            if self._dtype is not None and x.dtype != self._dtype:
                raise ValueError(f"{name} is {x.dtype}, but the cache holds {self._dtype}")
        xp = namespace(k, v)
        if self._rings is None:
            self._dtype, device = k.dtype, self._device if self._device is not None else k.device
            self._rings = [xp.zeros(self._shape, dtype=k.dtype, device=device) for _ in "kv"]
        T = k.shape[2]
        held = min(self._len, window - 1)
        old = (xp.arange(held, device=k.device) + self._len - held) % window
        new = (xp.arange(min(T, window), device=k.device) + self._len + max(0, T - window)) % window
        seen = []
        for ring, x in zip(self._rings, (k, v), strict=True):
            seen.append(xp.concat([xp.take(ring, old, axis=2), x], axis=2))
            # A cache is for generating; gradients do not run through it.
            ring[:, :, new] = getattr(x, "detach", lambda x=x: x)()[:, :, max(0, T - window) :]
        self._len += T
        return seen[0], seen[1]

    def reset(self) -> None:
        """Forgets all tokens; the memory stays."""
        self._len = 0


def feature_map(x: Array) -> Array:
    """elu(x) + 1: positive, so that φ(q) · φ(k) can be a weight.

    Args:
        x: any shape.

    Returns:
        the same shape: x + 1 above 0, exp(x) below.
    """
    xp = namespace(x)
    x, zero = as_floating(x), xp.zeros_like(as_floating(x))
    # exp is taken of what is below 0 only: elsewhere it would overflow, though nobody uses it.
    return xp.where(x > 0, x + 1, xp.exp(xp.minimum(x, zero)))


def _divide(numerator: Array, total: Array) -> Array:
    """The blend of values; zeros where nothing was added up."""
    xp = namespace(numerator, total)
    return numerator / xp.where(total == 0, xp.ones_like(total), total)[..., None]


def linear_attention(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    """Attention whose weights are φ(q) · φ(k) divided by their sum, with φ(x) = elu(x) + 1.

    Args:
        q: (..., T, K); it is not scaled.
        k: (..., S, K).
        v: (..., S, d_v).
        causal: queries are the last T tokens and see no later key.

    Returns:
        (..., T, d_v). Without a mask, φ(q) (φ(k)ᵀ v): the T × S matrix is not needed. The causal
        form makes it; `linear_attention_recurrent` does not.

    Source: Katharopoulos et al. (2020), equations 5 and 7.
    """
    xp = namespace(q, k, v)
    q, k, v = feature_map(q), feature_map(k), as_floating(v)
    if not causal:
        return _divide(q @ (k.mT @ v), xp.sum(q * xp.sum(k, axis=-2, keepdims=True), axis=-1))
    weights = q @ k.mT  # (..., T, S)
    seen = causal_mask(q.shape[-2], k.shape[-2], like=q)
    weights = xp.where(seen, weights, xp.zeros_like(weights))
    return _divide(weights @ v, xp.sum(weights, axis=-1))


def linear_attention_recurrent(
    q: Array, k: Array, v: Array, state: State | None = None, chunk: int = 1
) -> tuple[Array, State]:
    """Causal `linear_attention` as an RNN: the past is a matrix whose size does not grow.

    Args:
        q, k: (..., T, K).
        v: (..., T, d_v).
        state: what came before, as returned by an earlier call; None means nothing did.
        chunk: tokens that are worked on together. 1 is the plain recurrence; any other number gives
            the same results with fewer steps.

    Returns:
        (..., T, d_v), and the state after these tokens.

    Raises:
        ValueError: the chunk is below 1.

    Source: Katharopoulos et al. (2020), equations 16 to 20.
    """
    if chunk < 1:
        raise ValueError(f"chunk is {chunk}: at least one token at a time")
    xp = namespace(q, k, v)
    q, k, v = feature_map(q), feature_map(k), as_floating(v)
    if state is None:
        empty = k[..., :0, :]
        state = empty.mT @ v[..., :0, :], xp.sum(empty, axis=-2)
    parts = [q[..., :0, :] @ state[0]]
    for start in range(0, q.shape[-2], chunk):
        now = slice(start, start + chunk)
        q_now, k_now, v_now = q[..., now, :], k[..., now, :], v[..., now, :]
        # Within the chunk by the causal form, everything before it by the state.
        weights = q_now @ k_now.mT
        seen = causal_mask(q_now.shape[-2], like=q)
        weights = xp.where(seen, weights, xp.zeros_like(weights))
        numerator = weights @ v_now + q_now @ state[0]
        total = xp.sum(weights, axis=-1) + xp.sum(q_now * state[1][..., None, :], axis=-1)
        parts.append(_divide(numerator, total))
        state = state[0] + k_now.mT @ v_now, state[1] + xp.sum(k_now, axis=-2)
    return xp.concat(parts, axis=-2), state
