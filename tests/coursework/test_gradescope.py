"""The autograder that is uploaded to Gradescope, run in an empty folder as it is run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

from coursework import gradescope, private
from coursework.classroom import Course
from coursework.errors import CourseError
from coursework.new_exercise import lay_out
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def autograder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder /autograder, as it is before a submission comes."""
    folder = tmp_path_factory.mktemp("autograder")
    gradescope.pack(Course(ROOT), SLUG, folder / "upload.zip", torch=False)
    with zipfile.ZipFile(folder / "upload.zip") as archive:
        archive.extractall(folder / "source")
    (folder / "submission").mkdir()
    return folder


def run(autograder: Path, submission: Any, name: str = f"{SLUG}.ipynb") -> dict[str, Any]:
    """What Gradescope reads after `run_autograder`, with the package that was in the zip file."""
    for old in (autograder / "submission").iterdir():
        old.unlink()
    path = autograder / "submission" / name
    if isinstance(submission, bytes):
        path.write_bytes(submission)
    else:
        nbformat.write(submission, path)
    command = (autograder / "source" / "run_autograder").read_text().split("exec ")[1].split()
    command = [sys.executable, *command[1:-1], str(autograder)]
    package = autograder / "source" / "course" / "src"
    subprocess.run(command, check=True, cwd="/", env={**os.environ, "PYTHONPATH": str(package)})
    return json.loads((autograder / "results" / "results.json").read_text("utf-8"))


def test_the_zip_file_holds_one_solution_and_scripts_that_can_run(autograder: Path):
    source = autograder / "source"
    assert [p.name for p in source.rglob("*.ipynb")] == [f"{SLUG}.ipynb"]
    for script in ("setup.sh", "run_autograder"):
        assert (source / script).read_text().startswith("#!/usr/bin/env bash\n")
        subprocess.run(["bash", "-n", source / script], check=True)
    with zipfile.ZipFile(autograder / "upload.zip") as archive:
        assert all(
            archive.getinfo(name).external_attr >> 16 == 0o755
            for name in ("setup.sh", "run_autograder")
        )


def test_every_property_is_a_test_in_the_checks_words(autograder: Path, notebook):
    answers = {**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K}
    given = run(autograder, notebook(**answers), "my homework.ipynb")
    tests = {t["name"]: t for t in given["tests"]}
    assert given["score"] == sum(t["score"] for t in tests.values())
    failed = [t for t in tests.values() if t["status"] == "failed" and "attention" in t["name"]]
    assert "Divide by √d_k" in failed[0]["output"]
    assert not any("output" in t for t in failed[1:])
    assert all(t["visibility"] == "visible" for t in tests.values())
    assert "Repaired" in given["output"] and "given by a person" in given["output"]


def test_what_cannot_be_read_has_a_sentence_and_no_points(autograder: Path):
    given = run(autograder, b"<html>log in</html>")
    assert given["score"] == 0 and given["tests"] == []
    assert "web page" in given["output"]


def test_no_notebook_at_all(autograder: Path):
    assert "no notebook" in run(autograder, b"", "essay.pdf")["output"]


def test_a_course_without_its_sources_cannot_be_packed(course: Course, tmp_path: Path):
    with pytest.raises(CourseError, match=r"lacks pyproject\.toml"):
        gradescope.pack(course, SLUG, tmp_path / "x.zip", torch=False)
    assert not list(tmp_path.glob("*.zip"))


def test_a_private_assignment_brings_its_declarations(own: Path, tmp_path: Path):
    lay_out("50.token_mean", own, "Exam 1")
    gradescope.pack(Course(ROOT), "50-exam-1", tmp_path / "x.zip", torch=False)
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        names = [n for n in archive.namelist() if n.startswith(("exercises", "solutions"))]
        run = archive.read("run_autograder").decode()
    assert sorted(names) == [
        "exercises/chapters.py",
        "exercises/exam_1/__init__.py",
        "exercises/exam_1/token_mean.py",
        "solutions/50-exam-1/50-exam-1.ipynb",
    ]
    assert f"export {private.VARIABLE}=/autograder/source/exercises\n" in run
