"""All that is declared, as parameters for the tests of this folder."""

from __future__ import annotations

import importlib
from functools import cache

import pytest

from coursework import evaluate
from coursework.chapters import CHAPTERS, by_number
from coursework.evaluate import Verdict
from coursework.exercises import bug_hunt_of, declared_chapters, for_chapter


def _right_answers(chapter):
    module = importlib.import_module(f"{__package__}.right_answers.{chapter.topic}")
    return module.RIGHT_ANSWERS


EXERCISES = [e for c in declared_chapters() for e in for_chapter(c.number) if e.reference]
HUNTS = [(c, n) for c in CHAPTERS if bug_hunt_of(c) for n in range(len(bug_hunt_of(c).bugs))]
RIGHT = {id: fs for c in declared_chapters() for id, fs in _right_answers(c).items()}


def _marks(id):
    """`make check` leaves alone what takes ten times as long: PyTorch, and measured memory."""
    slow = by_number(int(id[:2])).needs_torch or id == "10.flash_attention"
    return [pytest.mark.slow] if slow else []


every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
every_misconception = pytest.mark.parametrize(
    ("exercise", "misconception"),
    [
        pytest.param(e, m, id=f"{e.id}-{m.name}", marks=_marks(e.id))
        for e in EXERCISES
        for m in e.misconceptions
    ],
)
#: With a second seed where that is cheap.
every_misconception_by_seed = pytest.mark.parametrize(
    ("exercise", "misconception", "seed"),
    [
        pytest.param(e, m, seed, id=f"{e.id}-{m.name}-{seed}", marks=_marks(e.id) or marks)
        for e in EXERCISES
        for m in e.misconceptions
        for seed, marks in ((1, []), (2, [pytest.mark.slow]))
        if seed == 1 or not _marks(e.id)
    ],
)
every_right_answer = pytest.mark.parametrize(
    ("id", "answer"),
    [
        pytest.param(id, f, id=f"{id}-{f.__name__}", marks=_marks(id))
        for id, fs in RIGHT.items()
        for f in fs
    ],
)
every_hunt = pytest.mark.parametrize(
    ("chapter", "variant"), [pytest.param(c, n, id=f"{c.slug}-{n}") for c, n in HUNTS]
)
#: While one works, a single seed will do.
some_seeds = pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])


@cache
def verdict_on(id: str, answer: object, seed: int) -> Verdict:
    """What is said of one of our own functions, found out once."""
    return evaluate(id, answer, seed=seed)
