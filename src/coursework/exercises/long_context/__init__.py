"""Exercises of chapter 10, Long contexts: a module for each."""

from __future__ import annotations

from coursework.exercises.long_context.cost import ATTENTION_COST
from coursework.exercises.long_context.flash import FLASH_ATTENTION
from coursework.exercises.long_context.hunt import BUG_HUNT
from coursework.exercises.long_context.linear import LINEAR_ATTENTION
from coursework.exercises.long_context.merge import MERGE_SOFTMAX_BLOCKS
from coursework.exercises.long_context.window import SLIDING_WINDOW_MASK

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    ATTENTION_COST,
    MERGE_SOFTMAX_BLOCKS,
    FLASH_ATTENTION,
    SLIDING_WINDOW_MASK,
    LINEAR_ATTENTION,
)
