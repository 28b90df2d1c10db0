"""Random tensors that the exercises of this chapter share."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def normal(
    rng: np.random.Generator, *shape: int, size: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Normal numbers with mean 0 and standard deviation `size`."""
    return torch.from_numpy(size * rng.standard_normal(shape)).to(dtype)


def tokens(
    rng: np.random.Generator, *shape: int, size: float = 1.0, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Tokens (..., D), each with a mean and a spread of its own, so that none is normed already."""
    level = 1 + rng.random((*shape[:-1], 1))
    spread = size * (0.5 + 2 * rng.random((*shape[:-1], 1)))
    return torch.from_numpy(level * size + spread * rng.standard_normal(shape)).to(dtype)


def gains(rng: np.random.Generator, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers around 1, none of them 1: what a gain is after some training."""
    return torch.from_numpy(1 + rng.choice([-1, 1], n) * (0.2 + 0.6 * rng.random(n))).to(dtype)


def mixed_mask(rng: np.random.Generator, *shape: int) -> Tensor:
    """A random mask (True = may attend) whose rows each allow some keys and forbid some."""
    mask = rng.random(shape) < 0.5
    order = np.argsort(rng.random(shape), axis=-1)  # of which the first two are different places
    np.put_along_axis(mask, order[..., :1], True, axis=-1)
    np.put_along_axis(mask, order[..., 1:2], False, axis=-1)
    return torch.from_numpy(mask)
