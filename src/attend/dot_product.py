"""Attention by dot products: who looks at whom, and what is handed over (chapters 03 and 04).

A sentence is a matrix `X` of row vectors, one token a row. Three learned matrices turn it into
queries, keys and values; the dot product of a query with a key is a score; the softmax of a row of
scores is a set of weights; the weights blend the values.

Shapes: T query tokens, S key tokens, D model width, K width of queries and keys (the d_k of the
literature), d_v width of values; `...` are leading dimensions (batch, heads), free everywhere.

Source: Vaswani et al., "Attention Is All You Need" (2017), section 3.2.1, equation 1.
"""

from __future__ import annotations

import math

import numpy as np

from attend.arrays import Array, as_floating, namespace


def project_qkv(x: Array, w_q: Array, w_k: Array, w_v: Array) -> tuple[Array, Array, Array]:
    """Queries, keys and values of the tokens `x`: three views of the same rows.

    Args:
        x: (..., T, D), one token a row.
        w_q, w_k: (D, K).
        w_v: (D, d_v).

    Returns:
        q (..., T, K), k (..., T, K), v (..., T, d_v).

    Raises:
        ValueError: a matrix does not have D rows.
    """
    for name, w in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        if w.shape[-2] != x.shape[-1]:
            raise ValueError(
                f"{name} has shape {tuple(w.shape)}, but x has {x.shape[-1]} features a token: "
                f"{name} must have {x.shape[-1]} rows"
            )
    return x @ w_q, x @ w_k, x @ w_v


def attention_scores(q: Array, k: Array) -> Array:
    """Dot product of every query with every key, unscaled: entry [i, j] is q_i · k_j.

    Args:
        q: (..., T, K).
        k: (..., S, K).

    Returns:
        (..., T, S).

    Raises:
        ValueError: queries and keys differ in width.
    """
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q has width {q.shape[-1]} and k has width {k.shape[-1]}: a dot product needs "
            "queries and keys of one width"
        )
    return as_floating(q) @ as_floating(k).mT


def softmax(x: Array, axis: int = -1) -> Array:
    """Positive weights that sum to 1 along `axis`, in proportion to exp(x).

    The largest entry is subtracted first. That changes nothing in the result, since the factor
    exp(-max) cancels, and keeps exp from overflowing: the largest exponent is then 0.

    Args:
        x: any shape; integers are taken as floats.
        axis: the axis along which the weights sum to 1.

    Returns:
        the shape and the float dtype of `x`.
    """
    xp = namespace(x)
    x = as_floating(x)
    if x.shape[axis] == 0:  # nothing to weigh, and no largest entry
        return xp.zeros_like(x)
    e = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return e / xp.sum(e, axis=axis, keepdims=True)


def masked_softmax(scores: Array, mask: Array) -> Array:
    """Softmax of each row over the entries that `mask` allows; the others get exactly 0.

    Forbidden scores become -inf, so that exp makes them 0 whatever the other scores are. A large
    negative number in their place would leave weight wherever all scores of a row are as low.

    Args:
        scores: (..., T, S).
        mask: booleans that broadcast to `scores`, True where the query may attend.

    Returns:
        the shape and dtype of `scores`. A row that may attend to nothing is all zeros, and its
        gradient is zero, not NaN.

    Raises:
        ValueError: `mask` is not boolean, or does not broadcast to `scores`.
    """
    xp = namespace(scores, mask)
    scores = as_floating(scores)
    if mask.dtype != xp.bool:
        raise ValueError(f"mask has dtype {mask.dtype}: it must be boolean, True = may attend")
    try:
        mask = xp.broadcast_to(mask, scores.shape)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} does not broadcast to scores of shape "
            f"{tuple(scores.shape)}"
        ) from error
    zero = xp.zeros((), dtype=scores.dtype, device=scores.device)
    if scores.shape[-1] == 0:
        return xp.zeros_like(scores)
    scores = xp.where(mask, scores, zero - math.inf)
    largest = xp.max(scores, axis=-1, keepdims=True)
    # In an empty row the largest score is -inf, and -inf - (-inf) is NaN: subtract 0 there.
    e = xp.exp(scores - xp.where(largest == -math.inf, zero, largest))
    total = xp.sum(e, axis=-1, keepdims=True)
    return e / xp.where(total == 0, zero + 1, total)


def attention(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """Unscaled attention, as chapter 03 builds it: softmax(q kᵀ) v.

    Args:
        q: (..., T, K).
        k: (..., S, K).
        v: (..., S, d_v).

    Returns:
        the blended values z (..., T, d_v) and the weights (..., T, S) that blend them.
    """
    weights = softmax(attention_scores(q, k))
    return weights @ v, weights


def soft_lookup(query: Array, keys: Array, values: Array, temperature: float) -> Array:
    """A dictionary that answers with a blend: values weighted by softmax(keys · query / τ).

    A low temperature hardens it into the lookup of the nearest key, a high one averages all values.

    Args:
        query: (K,).
        keys: (S, K).
        values: (S, d_v).
        temperature: τ, above 0.

    Returns:
        (d_v,).

    Raises:
        ValueError: the temperature is not above 0.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}: it must be above 0")
    return softmax(keys @ query / temperature) @ values


def scaled_dot_product_attention(
    q: Array, k: Array, v: Array, mask: Array | None = None
) -> tuple[Array, Array]:
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V, over the pairs that `mask` allows.

    Args:
        q: (..., T, K).
        k: (..., S, K).
        v: (..., S, d_v).
        mask: booleans that broadcast to (..., T, S), True = may attend; None allows every pair.

    Returns:
        the blended values z (..., T, d_v) and the weights (..., T, S). A query that may attend to
        nothing gets zeros in both.

    Raises:
        ValueError: shapes do not fit, or the mask is not boolean.

    Source: Vaswani et al. (2017), equation 1.
    """
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"{k.shape[-2]} keys but {v.shape[-2]} values: each key needs its value")
    scores = attention_scores(q, k) / math.sqrt(q.shape[-1])  # (..., T, S)
    weights = softmax(scores) if mask is None else masked_softmax(scores, mask)
    return weights @ v, weights  # (..., T, d_v), (..., T, S)


def score_variance(d_k: int, n_pairs: int, rng: np.random.Generator) -> float:
    """Measured variance of q · k for `n_pairs` pairs of standard normal vectors of width `d_k`.

    Each of the d_k products has variance 1 and they are independent, so this comes out near d_k.

    Args:
        d_k: width of the vectors.
        n_pairs: how many pairs are drawn.
        rng: where they are drawn from.

    Returns:
        the population variance (mean squared deviation) as a Python float.
    """
    q = rng.standard_normal((n_pairs, d_k))
    k = rng.standard_normal((n_pairs, d_k))
    return float(np.var(np.sum(q * k, axis=-1)))


def row_entropy(weights: Array) -> Array:
    """Entropy of each row of weights, in nats: 0 for one-hot, ln S for uniform.

    Args:
        weights: (..., S), each row a distribution. A weight of 0 counts 0, as p ln p → 0.

    Returns:
        (...).
    """
    xp = namespace(weights)
    weights = as_floating(weights)
    # ln 0 is never taken, so that neither a warning nor a NaN gradient comes of it.
    logs = xp.log(xp.where(weights > 0, weights, xp.ones_like(weights)))
    return 0.0 - xp.sum(weights * logs, axis=-1)  # not -sum: that would make -0.0 of certainty


def softmax_jacobian(p: Array) -> Array:
    """All derivatives of a softmax at its output `p`: J = diag(p) - p pᵀ, J[i, j] = ∂p_i/∂x_j.

    Args:
        p: (..., n), each row a distribution.

    Returns:
        (..., n, n), symmetric; each row sums to 0, since the weights always sum to 1.
    """
    xp = namespace(p)
    p = as_floating(p)
    identity = xp.eye(p.shape[-1], dtype=p.dtype, device=p.device)
    return p[..., :, None] * (identity - p[..., None, :])


def gradient_through_softmax(scores: Array, upstream: Array) -> Array:
    """What reaches the scores of a gradient that arrives at softmax(scores).

    The vector–Jacobian product (diag(p) - p pᵀ) g = p ∘ (g - Σ p g), without the Jacobian.

    Args:
        scores: (..., n).
        upstream: (..., n), the gradient with respect to the weights.

    Returns:
        (..., n), the gradient with respect to the scores.
    """
    xp = namespace(scores, upstream)
    p = softmax(scores)
    upstream = as_floating(upstream)
    return p * (upstream - xp.sum(p * upstream, axis=-1, keepdims=True))
