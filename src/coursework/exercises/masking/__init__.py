"""Exercises of chapter 05, Causal masking: a module for each idea."""

from __future__ import annotations

from coursework.exercises.masking.attention import CAUSAL_ATTENTION
from coursework.exercises.masking.leaks import LEAKS_FUTURE
from coursework.exercises.masking.masks import CAUSAL_MASK, PADDED_CAUSAL_MASK, PADDING_MASK
from coursework.exercises.masking.pairs import NEXT_TOKEN_PAIRS
from coursework.exercises.masking.softmax import BUG_HUNT, MASKED_SOFTMAX

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    CAUSAL_MASK,
    MASKED_SOFTMAX,
    CAUSAL_ATTENTION,
    LEAKS_FUTURE,
    PADDING_MASK,
    PADDED_CAUSAL_MASK,
    NEXT_TOKEN_PAIRS,
)
