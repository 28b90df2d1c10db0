"""Many heads: several small attentions side by side instead of a large one (chapter 06).

The projections are made once, for all heads together; then the D columns are split among H heads of
width K = D / H, each attends for itself, the results are put side by side again, and W_O mixes
them. The number of parameters does not depend on H.

With fewer key/value heads (G) than query heads (H), several query heads share one: grouped-query
attention, and for G = 1 multi-query attention. The cache of chapter 09 is H / G times smaller then.

Sources: Vaswani et al. (2017), section 3.2.2; Shazeer, "Fast Transformer Decoding" (2019);
Ainslie et al., "GQA" (2023).
"""

from __future__ import annotations

from attend.arrays import Array, namespace
from attend.dot_product import project_qkv, scaled_dot_product_attention


def split_heads(x: Array, n_heads: int) -> Array:
    """The columns of `x` dealt out to heads: head h gets columns h·K … (h+1)·K.

    Args:
        x: (..., T, D).
        n_heads: H.

    Returns:
        (..., H, T, K) with K = D / H.

    Raises:
        ValueError: H does not divide D.
    """
    xp = namespace(x)
    *leading, T, D = x.shape
    if n_heads < 1 or D % n_heads:
        raise ValueError(f"{n_heads} heads cannot share {D} columns evenly")
    # A row holds head after head, so the reshape must cut the row first; only then may the heads
    # move before the tokens. Reshaping to (H, T, K) at once would deal out whole tokens instead.
    x = xp.reshape(x, (*leading, T, n_heads, D // n_heads))
    return xp.moveaxis(x, -2, -3)


def merge_heads(x: Array) -> Array:
    """The heads put side by side again, the inverse of `split_heads`.

    Args:
        x: (..., H, T, K).

    Returns:
        (..., T, H · K).
    """
    xp = namespace(x)
    *leading, H, T, K = x.shape
    return xp.reshape(xp.moveaxis(x, -3, -2), (*leading, T, H * K))


def repeat_kv(x: Array, n_rep: int) -> Array:
    """Key/value heads repeated in place, so that each query head finds its own: 0 0 1 1 2 2.

    Args:
        x: (..., G, S, K).
        n_rep: how many query heads share a key/value head, H / G.

    Returns:
        (..., G · n_rep, S, K).
    """
    return namespace(x).repeat(x, n_rep, axis=-3)


def attention_heads(
    x: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    n_heads: int,
    n_kv_heads: int | None = None,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """What each head blends, before the heads are merged, and the weights it blends with.

    Args:
        x: (..., T, D).
        w_q: (D, H·K).
        w_k, w_v: (D, G·K).
        n_heads: H.
        n_kv_heads: G, a divisor of H; None means H. Query head h uses key/value head h // (H / G).
        mask: booleans that broadcast to (..., H, T, T), True = may attend; None allows every pair.

    Returns:
        heads (..., H, T, K) and weights (..., H, T, T).

    Raises:
        ValueError: the heads do not divide, or shapes do not fit.
    """
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} query heads cannot share {n_kv_heads} key/value heads evenly")
    q, k, v = project_qkv(x, w_q, w_k, w_v)
    q = split_heads(q, n_heads)  # (..., H, T, K)
    k = repeat_kv(split_heads(k, n_kv_heads), n_heads // n_kv_heads)  # (..., H, T, K)
    v = repeat_kv(split_heads(v, n_kv_heads), n_heads // n_kv_heads)
    return scaled_dot_product_attention(q, k, v, mask)


def grouped_query_attention(
    x: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array,
    n_heads: int,
    n_kv_heads: int,
    mask: Array | None = None,
) -> Array:
    """Self-attention of H query heads that share G key/value heads.

    Args:
        x: (..., T, D).
        w_q: (D, H·K).
        w_k, w_v: (D, G·K).
        w_o: (H·K, D).
        n_heads: H.
        n_kv_heads: G, a divisor of H.
        mask: booleans that broadcast to (..., H, T, T), True = may attend; None allows every pair.

    Returns:
        (..., T, D).

    Raises:
        ValueError: the heads do not divide, or shapes do not fit.

    Source: Ainslie et al. (2023), section 2.2.
    """
    heads, _ = attention_heads(x, w_q, w_k, w_v, n_heads, n_kv_heads, mask)
    return merge_heads(heads) @ w_o


def multi_head_attention(
    x: Array,
    w_q: Array,
    w_k: Array,
    w_v: Array,
    w_o: Array,
    n_heads: int,
    mask: Array | None = None,
) -> Array:
    """Self-attention in H heads: MultiHead(X) = Concat(head_1, …, head_H) W_O.

    Args:
        x: (..., T, D).
        w_q, w_k, w_v, w_o: (D, D).
        n_heads: H, a divisor of D.
        mask: booleans that broadcast to (..., H, T, T), True = may attend; None allows every pair.

    Returns:
        (..., T, D).

    Raises:
        ValueError: H does not divide D, or shapes do not fit.

    Source: Vaswani et al. (2017), section 3.2.2.
    """
    return grouped_query_attention(x, w_q, w_k, w_v, w_o, n_heads, n_heads, mask)


def attention_parameters(d_model: int, n_heads: int, n_kv_heads: int | None = None) -> int:
    """Numbers in the four matrices of an attention layer without biases.

    W_Q and W_O have D² each, whatever H is; W_K and W_V have D·G·K each.

    Args:
        d_model: D.
        n_heads: H, a divisor of D.
        n_kv_heads: G, a divisor of H; None means H.

    Returns:
        2·D² + 2·D·G·(D / H); 4·D² for G = H.

    Raises:
        ValueError: a division leaves a remainder.
    """
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    if d_model % n_heads or n_heads % n_kv_heads:
        raise ValueError(
            f"n_heads = {n_heads} must divide d_model = {d_model}, and n_kv_heads = {n_kv_heads} "
            f"must divide n_heads"
        )
    return 2 * d_model**2 + 2 * d_model * n_kv_heads * (d_model // n_heads)
