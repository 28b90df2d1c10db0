"""Random inputs that exercises share."""

from __future__ import annotations

import numpy as np

from coursework.exercise import Call

PRIMES = (2, 3, 5, 7, 11)


def sizes(rng: np.random.Generator, n: int, *, up_to: int = 11) -> tuple[int, ...]:
    """`n` sizes of which no two are equal: a transposed or broadcast axis then shows."""
    return tuple(int(p) for p in rng.permutation([p for p in PRIMES if p <= up_to])[:n])


def ordered(rng: np.random.Generator, n: int, *, up_to: int = 11) -> tuple[int, ...]:
    """`n` sizes of which no two are equal, the smallest first."""
    return tuple(sorted(sizes(rng, n, up_to=up_to)))


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Standard normal numbers, float64."""
    return rng.standard_normal(shape)


def mixed_mask(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """A random mask (True = may attend) in which each row allows some keys and forbids some."""
    mask = rng.random(shape) < 0.5
    order = np.argsort(rng.random(shape), axis=-1)  # of which the first two are different places
    np.put_along_axis(mask, order[..., :1], True, axis=-1)
    np.put_along_axis(mask, order[..., 1:2], False, axis=-1)
    return mask


def numbers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: type = np.float64
) -> np.ndarray:
    """Standard normal floats of a dtype, or small integers if the dtype is one of integers."""
    if np.dtype(dtype).kind == "i":
        return rng.integers(-3, 4, shape).astype(dtype)
    return normal(rng, *shape).astype(dtype)


def distributions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows of positive weights that sum to 1, along the last axis."""
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1])


def qkv(
    rng: np.random.Generator,
    T: int,
    S: int,
    d_k: int,
    d_v: int,
    *leading: int,
    dtype: type = np.float64,
) -> Call:
    """Random queries (..., T, d_k), keys (..., S, d_k) and values (..., S, d_v)."""
    shapes = ((*leading, T, d_k), (*leading, S, d_k), (*leading, S, d_v))
    return Call(tuple(numbers(rng, shape, dtype) for shape in shapes))


def loud_qkv(
    rng: np.random.Generator, T: int, S: int, d_k: int, d_v: int, *, level: float = 1e4
) -> Call:
    """Queries, keys and values whose scores, divided by √d_k, lie about +level and -level by turns.

    Within a row the scores differ as those of `qkv` do, so that its weights are ordinary ones.
    """
    q, k, v = qkv(rng, T, S, d_k, d_v).args
    q[:, 0] = np.sqrt(d_k) * (-1.0) ** np.arange(T)
    k[:, 0] = level
    return Call((q, k, v))


def in_columns(call: Call) -> Call:
    """The same arrays, stored column by column, as a transposed array is."""
    return Call(tuple(np.asfortranarray(a) for a in call.args), call.kwargs)


def unequal(rng: np.random.Generator, n: int) -> list[tuple[int, int]]:
    """`n` pairs of sizes at least 2 apart, the smaller one first: fewer queries than keys."""
    pairs = [(1, 4), (2, 7), (3, 5), (3, 11), (5, 7), (5, 11)]
    return [pairs[i] for i in rng.permutation(len(pairs))[:n]]
