"""Exercises of chapter 07, The block: a module for each, or for two that belong together."""

from __future__ import annotations

from coursework.exercises.block.blocks import POST_NORM_BLOCK, PRE_NORM_BLOCK
from coursework.exercises.block.feed_forward import FEED_FORWARD
from coursework.exercises.block.gelu import GELU
from coursework.exercises.block.hunt import BUG_HUNT
from coursework.exercises.block.layer_norm import LAYER_NORM
from coursework.exercises.block.parameters import BLOCK_PARAMETERS
from coursework.exercises.block.rms_norm import RMS_NORM
from coursework.exercises.block.transformer_block import TRANSFORMER_BLOCK

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (
    LAYER_NORM,
    RMS_NORM,
    GELU,
    FEED_FORWARD,
    PRE_NORM_BLOCK,
    POST_NORM_BLOCK,
    TRANSFORMER_BLOCK,
    BLOCK_PARAMETERS,
)
