"""Exercises of chapter 01, Tokens and embeddings: a module for each."""

from __future__ import annotations

from coursework.exercises.tokens.counting import COUNT_PAIRS
from coursework.exercises.tokens.decoding import DECODE
from coursework.exercises.tokens.embedding import EMBED
from coursework.exercises.tokens.encoding import ENCODE
from coursework.exercises.tokens.hunt import BUG_HUNT
from coursework.exercises.tokens.merging import MERGE_PAIR
from coursework.exercises.tokens.training import TRAIN_BPE

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    COUNT_PAIRS,
    MERGE_PAIR,
    TRAIN_BPE,
    ENCODE,
    DECODE,
    EMBED,
)
