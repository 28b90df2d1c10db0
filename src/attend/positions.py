"""Positions: how attention, which sees a set, learns what came first (chapter 02).

Two ways are here. Sinusoidal positions are added to the embeddings. Rotary positions (RoPE) turn
queries and keys, pair of features by pair, by an angle in proportion to the position, so that their
dot product depends on the distance alone. The third way, a learned row per position, is a lookup:
`attend.embed(positions, table)`.

RoPE comes in two layouts that differ only in which features form a pair: i and i + K/2 ("half", as
in Hugging Face's Llama; ours unless another is asked for) or 2i and 2i + 1 ("interleaved", as in
the paper and in GGUF files). `rope_permutation` carries one into the other.

Angles are float64 whatever the model computes in. A bfloat16 holds no whole number between 256 and
258: in such a table neighbouring positions fall together.

Sources: Vaswani et al. (2017), section 3.5; Su et al., "RoFormer" (2021), section 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attend.arrays import Array, namespace

LAYOUTS = ("half", "interleaved")


def is_order_blind(f: Callable[[Array], Array], x: Array, order: Sequence[int] | Array) -> bool:
    """Whether `f` treats the tokens of `x` as a set, as far as this one reordering can tell.

    Args:
        f: maps (..., T, D) to (..., T, D').
        x: (..., T, D).
        order: (T,) a permutation of 0 … T - 1.

    Returns:
        True if reordering the tokens reorders the results, f(x[order]) = f(x)[order], up to
        rounding (the root of the dtype's machine epsilon).
    """
    xp = namespace(x)
    order = xp.asarray(order, device=x.device)
    before, after = f(x), f(xp.take(x, order, axis=-2))
    if before.shape != after.shape:
        return False
    expected = xp.take(before, order, axis=-2)
    tolerance = xp.finfo(expected.dtype).eps ** 0.5
    return bool(xp.all(xp.abs(after - expected) <= tolerance * (1 + xp.abs(expected))))


def frequencies(width: int, base: float = 10000.0) -> np.ndarray:
    """How far each pair of features turns from one position to the next, in radians.

    Args:
        width: number of features, even.
        base: the larger, the slower the last pair turns.

    Returns:
        float64 (width / 2,): 1, then ever slower, base^(-2i / width).

    Raises:
        ValueError: `width` is odd, so that one feature has no partner.
    """
    if width % 2:
        raise ValueError(f"width is {width}: positions need pairs of features, so it must be even")
    return base ** (-np.arange(0, width, 2) / width)


def sinusoidal_positions(
    n: int, d_model: int, base: float = 10000.0, *, like: Array | None = None
) -> Array:
    """Positions as the readings of clocks that turn at different speeds.

    PE[p, 2i] = sin(p / base^(2i/d_model)) and PE[p, 2i+1] = cos of the same angle. A shift by k
    positions turns each pair by a fixed angle, whatever p is: a linear map can do it.

    Args:
        n: number of positions, 0 … n - 1.
        d_model: width, even.
        base: the slowest clock takes about 2π · base positions for a turn.
        like: a tensor whose library, device and float dtype the table shall have.

    Returns:
        (n, d_model), float64 without `like`.

    Raises:
        ValueError: `d_model` is odd.

    Source: Vaswani et al. (2017), section 3.5.
    """
    angles = np.arange(n)[:, None] * frequencies(d_model, base)  # (n, d_model / 2)
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)
    if like is None:
        return table
    return namespace(like).asarray(table, dtype=like.dtype, device=like.device)


def rope_angles(positions: Sequence[float] | Array, d_head: int, base: float = 10000.0) -> Array:
    """The angle by which RoPE turns each pair of features at each position.

    Args:
        positions: (..., T). They need not start at 0, so that a cache can go on where it stopped,
            nor be whole numbers.
        d_head: K, even.
        base: as in `frequencies`.

    Returns:
        float64 (..., T, K / 2): position / base^(2i/K), not reduced by full turns.

    Raises:
        ValueError: `d_head` is odd.
    """
    xp = namespace(positions)
    positions = xp.asarray(positions, dtype=xp.float64)
    return positions[..., None] * xp.asarray(frequencies(d_head, base), device=positions.device)


def apply_rope(x: Array, angles: Array, layout: str = "half") -> Array:
    """Queries or keys, turned by the angles of their positions.

    Args:
        x: (..., T, K).
        angles: (T, K / 2), or leading axes that broadcast to those of `x` where sentences start at
            different positions: (B, 1, T, K / 2).
        layout: "half" pairs feature i with i + K/2, "interleaved" 2i with 2i + 1.

    Returns:
        shape and dtype of `x`; integers become floats. Each row keeps its length.

    Raises:
        ValueError: the layout is unknown, or x and angles do not fit.

    Source: Su et al. (2021), equation 34.
    """
    xp = namespace(x, angles)
    return rotate(x, xp.cos(angles), xp.sin(angles), layout)


def rotate(x: Array, cos: Array, sin: Array, layout: str = "half") -> Array:
    """`apply_rope` for angles whose cosine and sine are at hand, as a model keeps them in a table.

    Args:
        x: (..., T, K).
        cos, sin: of the angles, as wide as x's dtype or wider; shapes as for `apply_rope`.
        layout: "half" or "interleaved".

    Returns:
        shape and dtype of `x`; integers become floats.

    Raises:
        ValueError: the layout is unknown, or x and angles do not fit.
    """
    xp = namespace(x, cos, sin)
    half = x.shape[-1] // 2
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}: it must be one of {', '.join(LAYOUTS)}")
    pairs = (*x.shape[:-1], half)
    if (
        cos.shape[-1] * 2 != x.shape[-1]
        or cos.shape[-2] != x.shape[-2]
        or np.broadcast_shapes(cos.shape, pairs) != pairs
    ):
        raise ValueError(
            f"x of shape {tuple(x.shape)} needs angles for {x.shape[-2]} positions and "
            f"{x.shape[-1]} / 2 pairs, not {tuple(cos.shape)}"
        )
    a, b = (x[..., :half], x[..., half:]) if layout == "half" else (x[..., ::2], x[..., 1::2])
    turned = (a * cos - b * sin, a * sin + b * cos)  # of the wider dtype
    if layout == "half":
        y = xp.concat(turned, axis=-1)
    else:
        y = xp.reshape(xp.stack(turned, axis=-1), x.shape)
    # Integers turn into floats: cut back to integers they would no longer be turned.
    return xp.astype(y, x.dtype, copy=False) if xp.isdtype(x.dtype, "real floating") else y


def rope_permutation(d_head: int) -> np.ndarray:
    """Where each feature of the half layout stands in the interleaved one.

    `x_half = x_interleaved[..., rope_permutation(K)]`. Dot products do not care about the order of
    features, so a model may use either layout, if queries, keys and the weights that make them use
    the same one.

    Args:
        d_head: K, even.

    Returns:
        int64 (K,): 0, 2, 4, …, 1, 3, 5, …

    Raises:
        ValueError: `d_head` is odd.
    """
    if d_head % 2:
        raise ValueError(f"d_head is {d_head}: rotations need pairs of features")
    return np.arange(d_head).reshape(-1, 2).T.reshape(-1)
