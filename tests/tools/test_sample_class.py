"""The sample class of `make course`: each student gets what their name promises."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLUG = "04-scaling"
TOOL = Path("tools") / "sample_class.py"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of as much of the course as grading needs."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    for name in ("solutions", "notebooks", "tools"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def run(course, *command):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=course, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def grades(course):
    """The rows of the class's grades, by student."""
    graded = run(course, sys.executable, TOOL)
    assert graded.returncode == 0, graded.stderr
    assert "index.html" in graded.stdout
    assert "gradebook.db" in graded.stdout
    rows = run(course, "course", "grades").stdout
    return {row["student_id"]: row for row in csv.DictReader(rows.splitlines())}


def test_twelve_students_hand_in_and_every_one_has_a_grade_or_a_reason(grades):
    assert len(grades) == 12
    for student, row in grades.items():
        assert row["score"] or row["reason"], student


@pytest.mark.parametrize("student", ["right", "right-another-style", "lost-metadata"])
def test_right_work_gets_all_points_that_a_machine_gives(grades, student):
    assert float(grades[student]["score"]) == 26


def test_an_open_question_waits_for_a_person(grades):
    assert grades["right"]["status"] == "needs manual"
    assert grades["right-another-style"]["status"] == "graded"


@pytest.mark.parametrize(
    ("student", "exercise"),
    [
        ("forgot-the-scale", "scaled_dot_product_attention"),
        ("divides-by-d_k", "scaled_dot_product_attention"),
        ("entropy-in-bits", "row_entropy"),
        ("jacobian-diagonal", "softmax_jacobian"),
        ("endless-loop", "row_entropy"),
        ("kills-its-process", "softmax_jacobian"),
    ],
)
def test_one_wrong_answer_costs_one_exercise_and_is_explained(grades, student, exercise):
    row = grades[student]
    assert row["status"] == "graded"
    assert row["reason"].startswith(f"{exercise}: ")
    assert float(row["score"]) in (20, 22)


def test_work_that_was_not_done_earns_nothing(grades):
    assert float(grades["untouched"]["score"]) == 0
    assert 0 < float(grades["half-done"]["score"]) < 26


def test_what_is_no_notebook_is_unreadable_and_has_no_score(grades):
    assert grades["login-page"]["status"] == "unreadable"
    assert grades["login-page"]["score"] == ""


def test_a_real_class_is_left_alone(course, grades):
    somebody = course / "classroom" / "submitted" / "Smith, Jr." / SLUG
    somebody.mkdir(parents=True)
    before = sorted(course.rglob("*"))
    graded = run(course, sys.executable, TOOL)
    assert "no sample class is added" in graded.stdout
    assert sorted(course.rglob("*")) == before
