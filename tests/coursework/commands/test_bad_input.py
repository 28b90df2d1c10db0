"""A command that cannot run says so in one sentence, exits with 2 and changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coursework.classroom import Attempt, Course
from coursework.judge.grading import Result
from tests.coursework.commands.conftest import Ran, snapshot
from tests.coursework.submissions import RIGHT, SLUG

Run = Callable[..., Ran]


def refused(ran: Ran, *words: str) -> None:
    assert ran.code == 2, ran
    assert "Traceback" not in ran.err and ran.out == ""
    (sentence,) = ran.err.strip().splitlines()
    for word in words:
        assert word in sentence


@pytest.mark.parametrize("command", ["sync", "release", "grade", "grades", "feedback", "build"])
def test_the_wrong_folder(run: Run, tmp_path: Path, command: str) -> None:
    refused(run(tmp_path, command), "nbgrader_config.py and solutions/")
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("command", ["sync", "release", "grade", "grades", "feedback", "check"])
def test_an_unknown_chapter(run: Run, course: Course, command: str) -> None:
    before = snapshot(course.root)
    refused(run(course.root, command, "04-scalng"), "04-scalng", "04-scaling")
    assert snapshot(course.root) == before


@pytest.mark.parametrize("command", ["sync", "release", "grade", "grades", "feedback"])
def test_a_chapter_without_exercises(run: Run, course: Course, command: str) -> None:
    refused(run(course.root, command, "00-why-attention"), "has no exercises", SLUG)


def test_only_near_chapters_are_offered(run: Run, course: Course) -> None:
    refused(run(course.root, "grade", "04-scalng"), "did you mean 04-scaling?")
    refused(run(course.root, "grade", "4-masking"), "did you mean 05-masking or 04-scaling?")
    refused(run(course.root, "grade", "quux"), "there are 00-why-attention, 01-tokens", " and 12-")


def test_nothing_to_grade(run: Run, course: Course) -> None:
    refused(run(course.root, "grade"), "nothing to grade", "submitted")
    assert not (course.classroom / "gradebook.db").exists()


def test_a_student_who_handed_in_nothing(
    run: Run, course: Course, hand_in: Callable[..., Path]
) -> None:
    hand_in("ada", **RIGHT)
    refused(run(course.root, "grade", "--student", "bob"), "bob")


@pytest.mark.parametrize("command", ["sync", "release", "grade"])
def test_a_damaged_solution(
    run: Run, course: Course, hand_in: Callable[..., Path], command: str
) -> None:
    hand_in("ada", **RIGHT)
    master = course.master(SLUG)
    master.write_text(master.read_text()[:1000])
    before = snapshot(course.root / "solutions")
    refused(run(course.root, command), "cannot be read")
    assert snapshot(course.root / "solutions") == before
    assert not (course.classroom / "attempts").exists()


def test_an_unwritable_gradebook(run: Run, course: Course, hand_in: Callable[..., Path]) -> None:
    hand_in("ada", **RIGHT)
    (course.classroom / "gradebook.db").mkdir()
    refused(run(course.root, "grade"), "gradebook", "cannot be used")
    assert not (course.classroom / "attempts").exists()


def test_a_gradebook_that_can_only_be_read(
    run: Run, course: Course, hand_in: Callable[..., Path]
) -> None:
    hand_in("ada", **RIGHT)
    assert run(course.root, "grade").code == 0
    address = f"sqlite:///file:{course.classroom}/gradebook.db?mode=ro&uri=true"
    with (course.root / "nbgrader_config.py").open("a") as settings:
        settings.write(f"\nc.CourseDirectory.db_url = {address!r}\n")
    before = snapshot(course.classroom)
    refused(run(course.root, "grade", "--force"), "gradebook", "readonly")
    assert snapshot(course.classroom) == before


def test_a_full_disk(
    run: Run, course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    before = snapshot(course.root)
    refused(run(course.root, "sync"), "No space left on device")
    assert snapshot(course.root) == before


def test_an_isolation_that_does_not_exist_or_cannot_be_had(
    run: Run, course: Course, hand_in: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)
    refused(run(course.root, "grade", "--isolation", "none"), "strict, process")
    from coursework.judge import sandbox

    monkeypatch.setattr(sandbox, "why_not_strict", lambda: "bubblewrap is not installed")
    refused(run(course.root, "grade", "--isolation", "strict"), "bubblewrap is not installed")


def test_feedback_on_nothing_and_for_nobody(
    run: Run, course: Course, hand_in: Callable[..., Path]
) -> None:
    hand_in("ada", b"<html>")
    refused(run(course.root, "feedback"), "nothing has been graded", "course grade comes first")
    refused(run(course.root, "feedback", SLUG), f"nothing of {SLUG} has been graded")
    assert not (course.classroom / "feedback").exists()
    result = Result(SLUG, "unreadable", "The file is a web page.")
    course.save(Attempt("ada", "2026-01-02T03:04:05+00:00", "", "", result))
    refused(run(course.root, "feedback", "--student", "zoe"), "nobody is called zoe")


def test_jobs_for_a_cluster(run: Run, course: Course) -> None:
    refused(run(course.root, "grade", "--cluster", "tcp://x:1", "--jobs", "2"), "--jobs")


def test_a_model_that_is_not_known(run: Run, tmp_path: Path) -> None:
    refused(run(tmp_path, "fetch-models", "smollm3"), "smollm3", "smollm2-135m")


def test_a_format_that_is_not_known(run: Run, course: Course) -> None:
    refused(run(course.root, "grades", "--format", "xls"), "xls", "canvas, moodle")


@pytest.mark.parametrize("format", ["canvas", "moodle"])
def test_a_platforms_format_without_its_export(
    run: Run, course: Course, tmp_path: Path, format: str
) -> None:
    asked = ("grades", SLUG, "--format", format)
    refused(run(course.root, *asked), "--into EXPORT")
    refused(run(course.root, *asked, "--into", str(tmp_path / "none.csv")), "cannot be read")
    assert not course.classroom.exists()


def test_a_report_on_nothing(run: Run, course: Course) -> None:
    refused(run(course.root, "report"), "course grade comes first")


@pytest.mark.parametrize("roster", ["", "name\nx\n", "id\na\na\n"])
def test_collecting_with_no_roster_worth_the_name(
    run: Run, course: Course, tmp_path: Path, roster: str
) -> None:
    (tmp_path / "class.csv").write_text(roster)
    (tmp_path / "down").mkdir()
    (tmp_path / "down" / "x.ipynb").write_text("{}")
    refused(
        run(
            course.root,
            "collect",
            SLUG,
            str(tmp_path / "down"),
            "--roster",
            str(tmp_path / "class.csv"),
        ),
        "the roster",
    )
    refused(run(course.root, "collect", SLUG, str(tmp_path / "none.zip")), "there is no file")
    assert not course.classroom.exists()


def test_a_missing_package(
    run: Run, course: Course, hand_in: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)
    for name in [n for n in sys.modules if n.partition(".")[0] == "nbgrader"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nbgrader", None)  # type: ignore[arg-type]
    refused(run(course.root, "grade"), "nbgrader", "not installed")


class TestCheck:
    def test_no_notebook_here(self, run: Run, tmp_path: Path) -> None:
        refused(run(tmp_path, "check"), "no notebook")
        refused(run(tmp_path, "check", SLUG), f"no {SLUG}.ipynb")
        refused(run(tmp_path, "check", "mine.ipynb"), "no file mine.ipynb")

    def test_a_notebook_that_is_none(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / f"{SLUG}.ipynb").write_text("<html>")
        refused(run(tmp_path, "check", SLUG), "web page")

    def test_a_notebook_of_no_chapter(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "holidays.ipynb").write_text("{}")
        refused(run(tmp_path, "check", "holidays.ipynb"), "holidays.ipynb", SLUG)

    def test_a_hint_to_no_exercise(self, run: Run, tmp_path: Path) -> None:
        refused(run(tmp_path, "check", SLUG, "--hint", "row_entrpy"), "row_entrpy", "row_entropy")

    def test_a_hint_of_no_level(self, run: Run, tmp_path: Path) -> None:
        ran = run(tmp_path, "check", SLUG, "--hint", "row_entropy", "--level", "4")
        refused(ran, "--level is 4", "1, 2 and 3")

    def test_a_hint_to_an_exercise_that_several_chapters_have(
        self, run: Run, tmp_path: Path
    ) -> None:
        refused(run(tmp_path, "check", "--hint", "bug_hunt"), "03.bug_hunt", "say which")

    def test_a_chapter_that_has_no_exercises(self, run: Run, tmp_path: Path) -> None:
        refused(run(tmp_path, "check", "00-why-attention"), "has no exercises", SLUG)


def test_an_unexpected_failure_is_not_swallowed(
    run: Run, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("coursework.release.read_solution", broken)
    with pytest.raises(ZeroDivisionError):
        run(course.root, "sync")
