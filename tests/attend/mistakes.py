"""Feeding known mistakes to the checks of a part.

A check is a function that takes an implementation and raises AssertionError with what is wrong.
The tests run it on ours, and on wrong versions that learners write: those it must reject.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest


def mistakes(of: dict[Callable, dict[str, Callable]]) -> pytest.MarkDecorator:
    """Parametrizes a test with (check, wrong) for every mistake of every check."""
    cases = [
        pytest.param(check, wrong, id=f"{check.__name__.removeprefix('check_')}: {name}")
        for check, versions in of.items()
        for name, wrong in versions.items()
    ]
    return pytest.mark.parametrize(("check", "wrong"), cases)


def must_reject(check: Callable, wrong: Callable) -> None:
    with pytest.raises(AssertionError):
        check(wrong)
