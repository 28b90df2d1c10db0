"""Exercises of the course: what they ask, and how answers are judged.

A notebook needs `from coursework import check`; programs take `evaluate` and `exercises` as well.
"""

from __future__ import annotations

from coursework import exercises
from coursework.evaluate import Verdict, check, evaluate

__version__ = "0.1.0"
__all__ = ["Verdict", "check", "evaluate", "exercises"]
