"""What each command does when all is well."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from distributed import LocalCluster

from coursework.classroom import Course
from coursework.gradebook import open_gradebook
from tests.coursework.commands.conftest import Ran, snapshot
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
HandIn = Callable[..., Path]


def test_help_names_every_command(run: Run, tmp_path: Path) -> None:
    ran = run(tmp_path, "--help")
    of_students, of_instructors = (
        "start check submit doctor",
        "grade grades feedback sync release build serve",
    )
    for command in f"{of_students} {of_instructors}".split():
        assert command in ran.out
    assert ran.code == 0


def test_commands_are_there_on_systems_without_linux_calls() -> None:
    """Windows has no libc to load and no getuid: nothing may ask for them before it must."""
    code = (
        "import ctypes, os, sys\n"
        "def refuse(*args, **kwargs): raise TypeError('no libc here')\n"
        "ctypes.CDLL = refuse\n"
        "for name in ('getuid', 'setuid', 'setgid', 'setgroups', 'killpg', 'fork'):\n"
        "    delattr(os, name)\n"
        "sys.modules['resource'] = None\n"
        "import coursework.commands"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_doctor_names_the_level_of_isolation(run: Run, tmp_path: Path) -> None:
    ran = run(tmp_path, "doctor")
    assert ran.code == 0 and "isolation" in ran.out
    assert "strict (bubblewrap)" in ran.out or "process (" in ran.out


def test_grade_prints_a_table_and_grades_writes_it(
    run: Run, course: Course, hand_in: HandIn, tmp_path: Path
) -> None:
    hand_in("ada", **RIGHT)
    hand_in("bob", **{**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K})
    ran = run(course.root, "grade", "--jobs", "2")
    assert ran.code == 0, ran
    assert "ada" in ran.out and "scaled_dot_product_attention" in ran.out
    assert "2 graded now, 0 unchanged" in ran.out
    again = run(course.root, "grade", "--student", "ada")
    assert "0 graded now, 1 unchanged" in again.out
    to = tmp_path / "grades.csv"
    assert run(course.root, "grades", "--to", str(to)).code == 0
    rows = {r["student_id"]: r for r in csv.DictReader(to.open(encoding="utf-8", newline=""))}
    assert float(rows["ada"]["score"]) > float(rows["bob"]["score"])
    assert run(course.root, "grades").out.splitlines()[0].startswith('"assignment"')


def test_grade_needs_no_active_environment(
    run: Run, course: Course, hand_in: HandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)
    monkeypatch.setenv("PATH", os.defpath)
    ran = run(course.root, "grade")
    assert ran.code == 0, ran.err


def test_grade_exits_with_1_if_some_submission_needs_a_look(
    run: Run, course: Course, hand_in: HandIn
) -> None:
    hand_in("ada", **RIGHT)
    hand_in("eve", b"<html>")
    ran = run(course.root, "grade")
    assert ran.code == 1
    assert "web page" in ran.out


def test_grade_says_what_lies_where_it_is_not_read(
    run: Run, course: Course, hand_in: HandIn, notebook: Callable[..., Any]
) -> None:
    hand_in("ada", **RIGHT)
    stray = course.classroom / "submitted" / "fred" / f"{SLUG}.ipynb"
    stray.parent.mkdir()
    nbformat.write(notebook(**RIGHT), stray)
    ran = run(course.root, "grade", "4")
    assert ran.code == 0
    assert f"Not read: {stray}" in ran.err and "ada" not in ran.err.partition("Not read")[0]


def test_work_for_an_assignment_that_the_course_lacks_is_named_with_the_reason(
    run: Run, course: Course, hand_in: HandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COURSE_EXERCISES", raising=False)
    for student in ("ada", "bob"):
        path = hand_in(student, **RIGHT)
        exam = course.classroom / "submitted" / student / "50-exam-1" / "50-exam-1.ipynb"
        exam.parent.mkdir()
        exam.write_bytes(path.read_bytes())
    said = run(course.root, "grade", SLUG, "--student", "ada").err
    (line,) = (line for line in said.splitlines() if line.startswith("Not read"))
    assert "2 notebooks for 50-exam-1" in line and "STUDENT/SLUG" not in line
    assert "no assignment 50-exam-1" in line and "COURSE_EXERCISES, which is not set" in line
    table = run(course.root, "grades")
    assert table.err.startswith("Not in the table: 50-exam-1; this course has no assignment")
    assert "50-exam-1" not in run(course.root, "grades", SLUG).err


def test_grade_says_whose_answer_changed_after_it_was_graded_by_hand(
    run: Run, course: Course, hand_in: HandIn
) -> None:
    hand_in("ada", open_question="Because.", **RIGHT)
    run(course.root, "grade")
    with open_gradebook(course) as book:
        grade = book.find_grade("open_question", SLUG, SLUG, "ada")
        grade.manual_score, grade.needs_manual_grade = 3.5, False
        book.db.commit()
    assert "by hand" not in run(course.root, "grade").out
    hand_in("ada", open_question="Because I say so.", **RIGHT)
    said = run(course.root, "grade").out
    assert (
        "Changed after it was graded by hand: ada, 04-scaling, open question: "
        "its points stand until somebody reads it again in formgrader."
    ) in said
    run(course.root, "feedback")
    page = course.classroom / "feedback" / "ada" / f"{SLUG}.html"
    assert "has changed since a person graded it" in page.read_text("utf-8")


def test_a_score_that_is_gone_is_not_called_a_score_of_0(
    run: Run, course: Course, hand_in: HandIn
) -> None:
    hand_in("ada", **RIGHT)
    run(course.root, "grade")
    hand_in("ada", b"<html>")
    said = run(course.root, "grade").out
    assert re.search(r"Changed: ada, 04-scaling: \d+ before, – \(unreadable\) now\.", said), said


def test_check_names_the_mistake_and_gives_hints_step_by_step(
    run: Run, notebook: Callable[..., Any], tmp_path: Path
) -> None:
    answers = {**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K}
    nbformat.write(notebook(**answers), tmp_path / f"{SLUG}.ipynb")
    before = snapshot(tmp_path)
    ran = run(tmp_path, "check", SLUG)
    assert ran.code == 1
    assert "divides by d_k" in ran.out and "√d_k" in ran.out
    assert ran.out.count("still to do") == 1  # the bug hunt
    assert snapshot(tmp_path) == before
    one = run(tmp_path, "check", SLUG, "--hint", "row_entropy")
    three = run(tmp_path, "check", SLUG, "--hint", "04.row_entropy", "--level", "3")
    assert one.out.count("Hint") == 1 and three.out.count("Hint") == 3


def test_a_hint_is_of_the_chapter_whose_notebook_is_here(
    run: Run, notebook: Callable[..., Any], tmp_path: Path
) -> None:
    nbformat.write(notebook(), tmp_path / f"{SLUG}.ipynb")
    ran = run(tmp_path, "check", "--hint", "row_entropy")
    assert ran.code == 0 and f"course check {SLUG} --hint row_entropy --level 2" in ran.out
    assert run(tmp_path, "check", "04", "--hint", "bug_hunt").code == 0


def test_check_looks_for_notebooks_of_all_chapters(
    run: Run, notebook: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "notebooks" / SLUG).mkdir(parents=True)
    nbformat.write(notebook(), tmp_path / "notebooks" / SLUG / f"{SLUG}.ipynb")
    ran = run(tmp_path, "check")
    assert ran.code == 1
    assert ran.out.count("still to do") >= 5


def test_sync_and_release_bring_a_course_into_step(run: Run, course: Course) -> None:
    assert run(course.root, "release", "--check").code == 1
    assert run(course.root, "release").code == 0
    assert run(course.root, "release", "--check").code == 0
    path = course.master(SLUG)
    notebook = nbformat.read(path, as_version=4)
    cell = next(c for c in notebook.cells if c.metadata.get("coursework", {}).get("role") == "task")
    cell.source = "something else"
    nbformat.write(notebook, path)
    off = run(course.root, "sync", "--check")
    assert off.code == 1 and "does not say what the declaration says" in off.err
    assert run(course.root, "sync").code == 0
    assert cell.source not in path.read_text(encoding="utf-8")


def test_feedback_writes_a_page_for_everybody_or_for_one(
    run: Run, course: Course, hand_in: HandIn
) -> None:
    hand_in("ada", **RIGHT)
    hand_in("eve", b"<html>")
    assert run(course.root, "grade").code == 1
    ran = run(course.root, "feedback")
    assert ran.code == 0 and "2 pages in" in ran.out
    path = course.classroom / "feedback" / "ada" / f"{SLUG}.html"
    assert "row_entropy" in path.read_text(encoding="utf-8")
    path.unlink()
    assert "1 page in" in run(course.root, "feedback", SLUG, "--student", "ada").out
    assert path.is_file()


@pytest.mark.slow
def test_grade_works_over_a_cluster(run: Run, course: Course, hand_in: HandIn) -> None:
    hand_in("ada", **RIGHT)
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as workers:
        ran = run(course.root, "grade", "--cluster", workers.scheduler_address)
    assert ran.code == 0 and "1 graded now" in ran.out
    assert '"graded"' in run(course.root, "grades").out
