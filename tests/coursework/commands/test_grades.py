"""`course grades` says what may be amiss with the file that it writes."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from coursework.classroom import Course
from tests.coursework.commands.conftest import Ran, snapshot
from tests.coursework.submissions import RIGHT, SLUG

Run = Callable[..., Ran]

CANVAS = (
    "Student,ID,SIS Login ID,Section,{column}\n    Points Possible,,,,{most}\n"
    '"Lovelace, Ada",ada,,A,\n"Ghost, Gil",555,,A,3\n"Student, Test",9999,,A,\n'
)


def refused(ran: Ran, words: str) -> None:
    assert (ran.code, ran.out) == (2, ""), ran
    (sentence,) = ran.err.strip().splitlines()
    assert words in sentence


def test_nobodys_grades_are_refused(run: Run, course: Course, tmp_path: Path) -> None:
    refused(run(course.root, "grades", "--to", str(tmp_path / "x.csv")), "course grade comes first")
    assert not course.classroom.exists() and not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("place", ["no/such/x.csv", "solutions"])
def test_a_file_that_cannot_be_written_is_named_as_it_was_given(
    run: Run, course: Course, place: str
) -> None:
    before = snapshot(course.root)
    refused(run(course.root, "grades", "--to", place), place)
    refused(run(course.root, "release", SLUG, "--gradescope", place), place)
    assert snapshot(course.root) == before and not (course.root / "no").exists()


@pytest.mark.slow
def test_a_platforms_file_comes_with_what_there_is_to_know(
    run: Run, course: Course, hand_in: Callable[..., Path], tmp_path: Path
) -> None:
    hand_in("ada", **RIGHT, open_question="Because.")
    assert run(course.root, "grade").code == 0
    export, to = tmp_path / "canvas.csv", tmp_path / "to.csv"

    def fill(column: str, most: str) -> Ran:
        export.write_text(CANVAS.format(column=column, most=most), encoding="utf-16")
        into = ("--format", "canvas", "--into", str(export), "--to", str(to))
        return run(course.root, "grades", SLUG, *into)

    ran = fill("04 Scaling (123456)", "1.00")
    assert ran.code == 1
    assert "Canvas counts to 1.00 points" in ran.err
    assert "Rows of nobody who is graded here: Ghost, Gil; Student, Test." in ran.err
    assert "1 score is provisional: open answers wait" in ran.err
    assert "No column" not in ran.err
    assert "No column is called like 04-scaling" in fill("Essay (123457)", "10").err


@pytest.mark.slow
def test_work_that_course_grade_has_not_seen_is_not_called_missing(
    run: Run, course: Course, hand_in: Callable[..., Path]
) -> None:
    hand_in("ada", **RIGHT)
    assert run(course.root, "grade").code == 0
    score = lines(run(course.root, "grades"))["ada"]["score"]
    # As after `nbgrader autograde`: the gradebook alone knows.
    shutil.rmtree(course.classroom / "attempts")
    hand_in("bob", **RIGHT)
    (course.classroom / "submitted" / "eve").mkdir()
    table = lines(run(course.root, "grades"))
    assert (table["ada"]["score"], table["ada"]["status"]) == (score, "graded")
    assert "nbgrader autograde" in table["ada"]["reason"]
    assert (table["bob"]["score"], table["bob"]["status"]) == ("", "missing")
    assert f"not graded yet: course grade {SLUG}" in table["bob"]["reason"]


def lines(ran: Ran) -> dict[str, dict[str, str]]:
    return {row["student_id"]: row for row in csv.DictReader(io.StringIO(ran.out))}
