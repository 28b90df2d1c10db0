"""A class: everybody has the score that they would have alone, in one run or in many."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coursework import batch
from coursework.classroom import Course
from coursework.errors import CourseError
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow

HandIn = Callable[..., Path]


def graded(course: Course, **options: Any) -> dict[str, batch.Outcome]:
    jobs = batch.jobs_of(course, [SLUG], [], None)
    return {o.student: o for o in batch.run(jobs, workers=2, **options)}


def scores(outcomes: dict[str, batch.Outcome]) -> dict[str, float]:
    return {student: o.attempt.result.points for student, o in outcomes.items()}


def statuses(outcomes: dict[str, batch.Outcome]) -> dict[str, str]:
    return {student: o.attempt.result.status for student, o in outcomes.items()}


@pytest.fixture
def mixed(hand_in: HandIn, course: Course, tmp_path: Path) -> dict[str, str]:
    """A class with one of each kind, and the status that each must come to."""
    hand_in("honest", **RIGHT)
    hand_in("half", **{**RIGHT, "softmax_jacobian": "def softmax_jacobian(p):\n    return None"})
    hand_in("d_k", **{**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K})
    hand_in("crash", **{**RIGHT, "row_entropy": "def row_entropy(w):\n    import os; os._exit(0)"})
    hand_in("page", b"<html>log in</html>")
    hand_in("empty", b"")
    (course.classroom / "submitted" / "nothing" / SLUG).mkdir(parents=True)
    hand_in("two", name="a.ipynb", **RIGHT)
    hand_in("two", name="b.ipynb", **RIGHT)
    hand_in("Smith, Jr.", **RIGHT)
    hand_in("=cmd()", **RIGHT)
    hand_in("Ünïcode", **RIGHT)
    bad = dict.fromkeys(("page", "empty", "nothing", "two"), "unreadable")
    good = ("honest", "half", "d_k", "crash", "Smith, Jr.", "=cmd()", "Ünïcode")
    return {**bad, **dict.fromkeys(good, "graded")}


def test_a_mixed_class_is_graded_to_the_end_and_honest_scores_are_those_of_one_alone(
    mixed: dict[str, str], course: Course
) -> None:
    together = graded(course)
    assert statuses(together) == mixed
    alone = {
        s: batch.grade_job(job).attempt.result.points
        for job in batch.jobs_of(course, [SLUG], [], None)
        for s in [job.student]
    }
    assert scores(together) == alone
    assert all(o.attempt.result.reason for s, o in together.items() if mixed[s] == "unreadable")


def test_unchanged_submissions_are_not_graded_again_unless_forced(
    hand_in: HandIn, course: Course
) -> None:
    hand_in("ada", **RIGHT)
    hand_in("bob")
    (course.classroom / "submitted" / "nothing" / SLUG).mkdir(parents=True)
    first = graded(course)
    assert all(o.graded_now for o in first.values())
    hand_in("bob", **RIGHT)
    second = graded(course)
    assert {s for s, o in second.items() if o.graded_now} == {"bob"}
    assert second["bob"].score_changed and not second["ada"].score_changed
    assert all(o.graded_now for o in graded(course, force=True).values())


def test_a_resubmission_that_breaks_shows_the_breakage_and_not_the_old_score(
    hand_in: HandIn, course: Course
) -> None:
    hand_in("ada", **RIGHT)
    graded(course)
    hand_in("ada", b"{broken")
    result = graded(course)["ada"].attempt.result
    assert (result.status, result.points) == ("unreadable", 0)


def test_a_corrected_check_grades_anew_and_says_whose_score_changed(
    hand_in: HandIn, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)
    graded(course)
    monkeypatch.setattr(batch, "checks_sha256", lambda: "another")
    outcome = graded(course)["ada"]
    assert outcome.graded_now and not outcome.score_changed


def test_a_failure_of_our_own_is_an_error_with_a_sentence_and_is_tried_again(
    hand_in: HandIn, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the worker did not start")

    monkeypatch.setattr(batch, "grade", broken)
    (job,) = batch.jobs_of(course, [SLUG], [], None)
    result = batch.grade_job(job).attempt.result
    assert result.status == "error" and "did not start" in result.reason
    monkeypatch.undo()
    assert graded(course)["ada"].attempt.result.status == "graded"


def _grade_or_die(job: batch.Job) -> batch.Outcome:
    """Stands for a judge whose process is ended by the system, for one student's work."""
    if job.student == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return _grade_job(job)


_grade_job = batch.grade_job


def test_a_process_of_the_judge_that_dies_costs_one_submission(
    hand_in: HandIn, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ada", "bob", "deadly", "kim"):
        hand_in(name, **RIGHT)
    monkeypatch.setattr(batch, "grade_job", _grade_or_die)
    outcomes = graded(course)
    assert {s for s, o in statuses(outcomes).items() if o == "error"} == {"deadly"}
    assert len(outcomes) == 4
    assert "died" in outcomes["deadly"].attempt.result.reason


GRADE = """
import sys
from pathlib import Path
from coursework import batch
from coursework.classroom import Course

course = Course(Path(sys.argv[1]))
list(batch.run(batch.jobs_of(course, [sys.argv[2]], [], None), workers=2))
"""


def _killed_after(course: Course, finished: int) -> None:
    """Start grading in a process of its own, and end it by force when so many are finished."""
    command = [sys.executable, "-c", GRADE, str(course.root), SLUG]
    process = subprocess.Popen(command, start_new_session=True)
    until = time.monotonic() + 120
    while len(_finished(course)) < finished and time.monotonic() < until:
        assert process.poll() in (None, 0), "it failed before it was killed"
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _finished(course: Course) -> list[Path]:
    return sorted((course.classroom / "attempts" / SLUG).glob("*/[0-9]*.json"))


def test_a_run_that_is_killed_five_times_ends_as_one_that_was_not(
    mixed: dict[str, str], hand_in: HandIn, course: Course
) -> None:
    for number in range(6):
        hand_in(f"student-{number}", **RIGHT)
    seed = course.seed
    moments = sorted(random.Random(7).sample(range(1, 16), 5))
    for finished in moments:
        kept = {p: p.read_bytes() for p in _finished(course)}
        _killed_after(course, finished)
        assert {p: p.read_bytes() for p in kept} == kept  # nothing lost, nothing done again
    assert moments[-1] <= len(_finished(course)) < 18
    interrupted = graded(course)
    assert len(_finished(course)) == len(interrupted) == 17
    shutil.rmtree(course.classroom / "attempts")
    assert course.seed == seed
    at_once = graded(course)
    assert _lasting(interrupted) == _lasting(at_once)


def _lasting(outcomes: dict[str, batch.Outcome]) -> dict[str, Any]:
    """All of the results but the time that they took."""
    return {s: {**o.attempt.result.to_json(), "seconds": 0} for s, o in outcomes.items()}


def test_a_damaged_attempt_stops_the_run_before_anything_is_graded(
    hand_in: HandIn, course: Course
) -> None:
    hand_in("ada", **RIGHT)
    hand_in("bob", **RIGHT)
    graded(course)
    course.attempts(SLUG, "bob")[0].write_text("{")
    with pytest.raises(CourseError, match="damaged"):
        graded(course)
