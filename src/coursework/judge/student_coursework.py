"""What a student's code finds under the name `coursework` while it is being graded: names only.

This file becomes `coursework/__init__.py` among the worker's files. Checks and declarations are
with the judge; a notebook that calls `check` runs on, and nothing comes of it.
"""

from __future__ import annotations

from typing import Any


def check(*args: Any, **kwargs: Any) -> float:
    """Nothing is checked here: the judge does that."""
    return 0.0


def exercises() -> list[str]:
    """No exercises are declared here."""
    return []


def evaluate(*args: Any, **kwargs: Any) -> None:
    """Nothing is evaluated here: the judge does that."""
    raise RuntimeError("evaluate is not available while a notebook is graded")
