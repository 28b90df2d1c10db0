"""Exercises of chapter 06, Many heads: a module for each idea."""

from __future__ import annotations

from coursework.exercises.heads.attention import MULTI_HEAD_ATTENTION
from coursework.exercises.heads.grouped import GROUPED_QUERY_ATTENTION, REPEAT_KV
from coursework.exercises.heads.hunt import BUG_HUNT
from coursework.exercises.heads.parameters import ATTENTION_PARAMETERS
from coursework.exercises.heads.splitting import MERGE_HEADS, SPLIT_HEADS

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    SPLIT_HEADS,
    MERGE_HEADS,
    MULTI_HEAD_ATTENTION,
    REPEAT_KV,
    GROUPED_QUERY_ATTENTION,
    ATTENTION_PARAMETERS,
)
