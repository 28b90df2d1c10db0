"""The folder for students holds what they need and nothing of the solutions."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from coursework import handout, private
from coursework.classroom import Course
from coursework.errors import CourseError
from coursework.new_exercise import lay_out
from coursework.release import release

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("handout") / "students"
    handout.make(Course(ROOT), ("03-qkv", "04-scaling"), to)
    return to


def test_notebooks_the_package_and_the_way_to_set_up_are_there(laid: Path):
    files = {str(p.relative_to(laid)) for p in laid.rglob("*") if p.is_file()}
    (wheel,) = [f for f in files if f.endswith(".whl")]
    assert files == {
        *("03-qkv/03-qkv.ipynb", "04-scaling/04-scaling.ipynb", "README.md", "requirements.txt"),
        wheel,
    }
    assert f"./{wheel}" in (laid / "requirements.txt").read_text()
    welcome = (laid / "README.md").read_text("utf-8")
    assert "course check 03-qkv" in welcome and "`04-scaling`: The √d_k" in welcome
    assert "torch" not in welcome


def test_nothing_of_a_solution_is_in_it(laid: Path):
    text = "".join(p.read_text("utf-8") for p in laid.rglob("*") if p.suffix in (".ipynb", ".md"))
    assert "BEGIN SOLUTION" not in text and "graded=True" not in text
    with zipfile.ZipFile(next(laid.glob("*.whl"))) as archive:
        assert not [n for n in archive.namelist() if n.startswith(("solutions", "tests", "book"))]


def test_made_again_it_is_the_same(laid: Path):
    before = {p: p.read_bytes() for p in laid.rglob("*.ipynb")}
    (laid / "notes.txt").write_text("mine")
    handout.make(Course(ROOT), ("03-qkv", "04-scaling"), laid)
    assert {p: p.read_bytes() for p in laid.rglob("*.ipynb")} == before
    assert (laid / "notes.txt").read_text() == "mine"
    assert len(list(laid.glob("*.whl"))) == 1


@pytest.mark.parametrize("name", [".", "solutions", "src/here", "notebooks"])
def test_a_folder_of_the_course_itself_is_refused(name: str):
    with pytest.raises(CourseError, match="a folder of the course itself"):
        handout.make(Course(ROOT), ("03-qkv",), ROOT / name)


def test_a_course_without_what_the_package_is_made_of(course: Course, tmp_path: Path):
    with pytest.raises(CourseError, match=r"lacks pyproject\.toml"):
        handout.make(course, ("04-scaling",), tmp_path / "to")
    assert not (tmp_path / "to").exists()


def with_a_private_one(own: Path) -> Course:
    """The course, and an assignment of the instructor's own that has been released."""
    lay_out("50.token_mean", own, "Exam 1")
    release(ROOT, ["50-exam-1"], progress=False)
    return Course(ROOT)


def names_in(laid: Path) -> list[str]:
    with zipfile.ZipFile(next(laid.glob("*.whl"))) as archive:
        return [n for n in archive.namelist() if "exam" in n or n.endswith("exercises/chapters.py")]


def test_of_a_private_assignment_students_get_the_notebook_alone(own: Path, tmp_path: Path):
    course, to = with_a_private_one(own), tmp_path / "students"
    handout.make(course, ("50-exam-1", "04-scaling"), to)
    assert (to / "50-exam-1" / "50-exam-1.ipynb").is_file()
    assert names_in(to) == []
    welcome = (to / "README.md").read_text("utf-8")
    assert "`50-exam-1`: Exam 1 (checked when it is graded" in welcome
    assert "course check 04-scaling" in welcome
    with pytest.raises(CourseError, match="holds your own exercises"):
        handout.make(course, ("50-exam-1",), own / "students")


def test_given_away_its_checks_run_where_nothing_is_set(own: Path, tmp_path: Path):
    course, to = with_a_private_one(own), tmp_path / "students"
    handout.make(course, ("50-exam-1",), to, with_checks=True)
    assert len(names_in(to)) == 4 and not [n for n in names_in(to) if "right_answers" in n]
    zipfile.ZipFile(next(to.glob("*.whl"))).extractall(to / "installed")
    environment = {k: v for k, v in os.environ.items() if k != private.VARIABLE}
    ran = subprocess.run(
        [sys.executable, "-c", "from coursework.commands import main; main()", "check", "50"],
        cwd=to,
        env={**environment, "PYTHONPATH": str(to / "installed")},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1 and "still to do" in ran.stdout, ran.stderr
