"""Exercises of chapter 03, Query, key, value: a module for each."""

from __future__ import annotations

from coursework.exercises.qkv.attention import ATTENTION
from coursework.exercises.qkv.hunt import BUG_HUNT
from coursework.exercises.qkv.lookup import SOFT_LOOKUP
from coursework.exercises.qkv.projections import PROJECT_QKV
from coursework.exercises.qkv.scores import ATTENTION_SCORES
from coursework.exercises.qkv.softmax import SOFTMAX

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    PROJECT_QKV,
    ATTENTION_SCORES,
    SOFTMAX,
    ATTENTION,
    SOFT_LOOKUP,
)
