"""Exercises of chapter 02, Positions: a module for each."""

from __future__ import annotations

from coursework.exercises.positions.angles import ROPE_ANGLES
from coursework.exercises.positions.hunt import BUG_HUNT
from coursework.exercises.positions.order import IS_ORDER_BLIND
from coursework.exercises.positions.permutation import ROPE_PERMUTATION
from coursework.exercises.positions.rotation import APPLY_ROPE
from coursework.exercises.positions.sinusoidal import SINUSOIDAL_POSITIONS

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    IS_ORDER_BLIND,
    SINUSOIDAL_POSITIONS,
    ROPE_ANGLES,
    APPLY_ROPE,
    ROPE_PERMUTATION,
)
