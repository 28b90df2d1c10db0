"""Exercises of chapter 08, A language model: a module for each."""

from __future__ import annotations

from coursework.exercises.language_model.generate import GENERATE
from coursework.exercises.language_model.hunt import BUG_HUNT
from coursework.exercises.language_model.loss import NEXT_TOKEN_LOSS
from coursework.exercises.language_model.model import LANGUAGE_MODEL
from coursework.exercises.language_model.sampling import NEXT_TOKEN_DISTRIBUTION
from coursework.exercises.language_model.schedule import WARMUP_COSINE

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    LANGUAGE_MODEL,
    NEXT_TOKEN_LOSS,
    WARMUP_COSINE,
    NEXT_TOKEN_DISTRIBUTION,
    GENERATE,
)
