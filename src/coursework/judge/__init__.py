"""Grading: student code in a worker, checks in the judge, plain data between them."""

from __future__ import annotations

from coursework.judge.grading import Graded, Result, grade

__all__ = ["Graded", "Result", "grade"]
