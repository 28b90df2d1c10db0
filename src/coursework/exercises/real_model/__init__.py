"""Exercises of chapter 12, Your code runs a real model: a module for each."""

from __future__ import annotations

from coursework.exercises.real_model.block import DECODER_BLOCK
from coursework.exercises.real_model.generation import GREEDY
from coursework.exercises.real_model.hunt import BUG_HUNT
from coursework.exercises.real_model.load import LOAD_BLOCK
from coursework.exercises.real_model.swiglu import SWIGLU
from coursework.exercises.real_model.unpermute import UNPERMUTE_ROPE

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (SWIGLU, UNPERMUTE_ROPE, LOAD_BLOCK, DECODER_BLOCK, GREEDY)
