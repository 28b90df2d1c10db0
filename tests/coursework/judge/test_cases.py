"""Every kind of submission that instructors report comes to its end, and harms no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nbformat
import pytest

from coursework import batch
from coursework.classroom import Course
from coursework.judge import session
from coursework.judge.grading import Result
from tests.coursework.judge.cases import (
    BAD,
    DAMAGED,
    FULL,
    ODD,
    POINTS,
    UNREADABLE,
    Case,
    Folder,
    changed,
)
from tests.coursework.submissions import SLUG

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CALL_DEADLINE", 1.0)
    monkeypatch.setattr(session, "CELL_DEADLINE", 12.0)  # PyTorch may be imported


@pytest.fixture
def folder(course: Course, notebook: Callable[..., Any]) -> Folder:
    path = course.classroom / "submitted" / "student" / SLUG
    path.mkdir(parents=True)
    return Folder(path, notebook)


@pytest.fixture
def graded(course: Course, folder: Folder) -> Callable[[], Result]:
    def run() -> Result:
        (job,) = batch.jobs_of(course, [SLUG], [], None)
        return batch.grade_job(job).attempt.result

    return run


@pytest.mark.parametrize("case", DAMAGED.values(), ids=DAMAGED)
def test_damaged_work_is_graded_by_its_content_with_a_note(
    folder: Folder, graded: Callable[[], Result], case: Case
) -> None:
    case(folder)
    result = graded()
    assert (result.status, result.points) == ("graded", FULL), result.reason
    assert result.repairs and all(type(note) is str for note in result.repairs)


@pytest.mark.parametrize("case", ODD.values(), ids=ODD)
def test_odd_but_right_work_gets_full_marks(
    folder: Folder, graded: Callable[[], Result], case: Case
) -> None:
    case(folder)
    result = graded()
    assert (result.status, result.points) == ("graded", FULL), result.reason


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_work_that_runs_badly_loses_one_exercise_and_says_why(
    folder: Folder, graded: Callable[[], Result], case: Case
) -> None:
    case(folder)
    result = graded()
    assert (result.status, result.points) == ("graded", FULL - POINTS["row_entropy"]), result.reason
    assert "row_entropy" in result.reason


@pytest.mark.parametrize(("case", "says"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_has_no_score_and_a_sentence(
    folder: Folder, graded: Callable[[], Result], case: Case, says: str
) -> None:
    case(folder)
    result = graded()
    assert (result.status, result.exercises) == ("unreadable", ())
    assert says in result.reason and result.reason.endswith(".")


def test_a_notebook_of_nbformats_own_making_is_read(
    folder: Folder, graded: Callable[[], Result]
) -> None:
    nbformat.write(folder.right(), folder.path / f"{SLUG}.ipynb")
    assert graded().points == FULL


# All of them at once ---------------------------------------------------------------------------


def test_a_class_of_all_kinds_leaves_everybody_with_the_score_of_one_alone(
    course: Course, notebook: Callable[..., Any]
) -> None:
    expected: dict[str, tuple[str, float]] = {}
    full, less = ("graded", FULL), ("graded", FULL - POINTS["row_entropy"])
    kinds = {
        **{name: (case, full) for name, case in {**DAMAGED, **ODD}.items()},
        **{name: (case, less) for name, case in BAD.items()},
        **{name: (case, ("unreadable", 0.0)) for name, (case, _) in UNREADABLE.items()},
    }
    honest = {f"honest {i}": (changed(lambda notebook: None), full) for i in range(10)}
    for number, (name, (case, outcome)) in enumerate({**kinds, **honest}.items()):
        student = f"{number:02d} {name}".replace("/", "_")
        path = course.classroom / "submitted" / student / SLUG
        path.mkdir(parents=True)
        case(Folder(path, notebook))
        expected[student] = outcome
    assert len(expected) >= 60
    jobs = batch.jobs_of(course, [SLUG], [], None)
    outcomes = {o.student: o.attempt.result for o in batch.run(jobs, workers=2)}
    assert {s: (r.status, r.points) for s, r in outcomes.items()} == expected
