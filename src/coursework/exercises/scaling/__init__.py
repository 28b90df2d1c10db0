"""Exercises of chapter 04, The √d_k: a module for each."""

from __future__ import annotations

from coursework.exercises.scaling.attention import SCALED_DOT_PRODUCT_ATTENTION
from coursework.exercises.scaling.entropy import ROW_ENTROPY
from coursework.exercises.scaling.gradient import GRADIENT_THROUGH_SOFTMAX
from coursework.exercises.scaling.hunt import BUG_HUNT
from coursework.exercises.scaling.jacobian import SOFTMAX_JACOBIAN
from coursework.exercises.scaling.variance import SCORE_VARIANCE

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    SCORE_VARIANCE,
    SCALED_DOT_PRODUCT_ATTENTION,
    SOFTMAX_JACOBIAN,
    ROW_ENTROPY,
    GRADIENT_THROUGH_SOFTMAX,
)
