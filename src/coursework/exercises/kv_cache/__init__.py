"""Exercises of chapter 09, The KV cache: a module for each, or for two that are alike."""

from __future__ import annotations

from coursework.exercises.kv_cache.attention import ATTEND_WITH_CACHE
from coursework.exercises.kv_cache.cache import KV_CACHE
from coursework.exercises.kv_cache.costs import DECODE_FLOPS, KV_CACHE_BYTES
from coursework.exercises.kv_cache.generation import GENERATE_CACHED
from coursework.exercises.kv_cache.hunt import BUG_HUNT

__all__ = ["BUG_HUNT", "EXERCISES"]

EXERCISES = (KV_CACHE, ATTEND_WITH_CACHE, GENERATE_CACHED, KV_CACHE_BYTES, DECODE_FLOPS)
