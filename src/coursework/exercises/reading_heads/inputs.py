"""Random attention weights, as tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from coursework.exercises.inputs import normal


def attention(
    rng: np.random.Generator, *shape: int, causal: bool = False, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Rows of weights that sum to 1, of shape (..., H, T, T); of a causal model if asked for."""
    scores = 1.5 * normal(rng, *shape)
    if causal:
        scores[..., np.triu(np.ones(shape[-2:], dtype=bool), 1)] = -np.inf
    e = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-99))
    return torch.from_numpy(e / e.sum(axis=-1, keepdims=True)).to(dtype)
