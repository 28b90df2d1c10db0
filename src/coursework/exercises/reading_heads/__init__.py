"""Exercises of chapter 11, Reading heads: a module for each."""

from __future__ import annotations

from coursework.exercises.reading_heads.ablation import ABLATE_HEAD
from coursework.exercises.reading_heads.hunt import BUG_HUNT
from coursework.exercises.reading_heads.induction import INDUCTION_SCORE
from coursework.exercises.reading_heads.preference import ANTECEDENT_PREFERENCE
from coursework.exercises.reading_heads.previous import PREVIOUS_TOKEN_SCORE
from coursework.exercises.reading_heads.sink import SINK_SCORE

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    PREVIOUS_TOKEN_SCORE,
    SINK_SCORE,
    INDUCTION_SCORE,
    ANTECEDENT_PREFERENCE,
    ABLATE_HEAD,
)
