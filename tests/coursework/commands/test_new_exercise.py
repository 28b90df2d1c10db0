"""`course new-exercise`, from a line in a terminal to points in the gradebook."""

from __future__ import annotations

import ast
import csv
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from coursework import private
from coursework.classroom import Course
from tests.coursework.commands.conftest import Ran, snapshot
from tests.coursework.conftest import ROOT

Run = Callable[..., Ran]
SLUG = "50-exam-1"
RIGHT = "def token_mean(x):\n    return np.einsum('...d->...', x) / x.shape[-1]"
WRONG = "def token_mean(x):\n    return x.mean(0)"
STOLEN = (
    "from coursework.exercises.exam_1.token_mean import _right\n\n\n"
    "def token_mean(x):\n    return _right(x)"
)


def with_answer(notebook: Path, source: str | None, to: Path) -> None:
    """A released notebook with this answer to `token_mean`; None: as it was released."""
    made = nbformat.read(notebook, as_version=4)
    (answer,) = (c for c in made.cells if c.id == "answer-token_mean")
    answer.source = source or answer.source
    to.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, to)


def ruff(folder: Path) -> None:
    config = ["--config", ROOT / "pyproject.toml"]
    for command in (["check"], ["format", "--check"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *config, folder],
            cwd=folder if (folder / "pyproject.toml").exists() else ROOT,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stdout


# In a folder outside of the course -----------------------------------------------------------


def test_what_is_laid_out_is_whole_and_well_kept(run: Run, own: Path, tmp_path: Path) -> None:
    ran = run(tmp_path, "new-exercise", "50.token_mean", "--into", str(own), "--title", "Exam 1")
    assert ran.code == 0, ran.err
    assert [name for name in sorted(snapshot(own)) if "__pycache__" not in name] == [
        "chapters.py",
        "exam_1/__init__.py",
        "exam_1/token_mean.py",
        "right_answers/exam_1.py",
        f"solutions/{SLUG}/{SLUG}.ipynb",
    ]
    assert f"export COURSE_EXERCISES={own}" in ran.out
    assert f"course sync --run {SLUG} && course release {SLUG}" in ran.out
    assert run(tmp_path, "new-exercise", "50.second", "--into", str(own)).code == 0
    third = ("new-exercise", f"51.{'long_' * 7}", "--title", "Übung 2")
    assert run(tmp_path, *third).code == 0
    assert (own / "solutions" / "51-ubung-2" / "51-ubung-2.ipynb").is_file()
    assert [c.slug for c in private.chapters()] == [SLUG, "51-ubung-2"]
    ruff(own)


@pytest.mark.slow
def test_a_private_exercise_from_its_layout_to_its_points(
    run: Run, course: Course, own: Path
) -> None:
    asked = ("new-exercise", "50.token_mean", "--into", str(own), "--title", "Exam 1")
    assert run(course.root, *asked).code == 0
    ours = snapshot(course.root)
    assert run(course.root, "sync", "--check", SLUG).code == 0
    assert run(course.root, "sync", "--run", SLUG).code == 0
    assert "token_mean: right (3 of 3" in course.master(SLUG).read_text("utf-8")
    assert run(course.root, "release", SLUG).code == 0
    assert run(course.root, "release", "--check", SLUG).code == 0
    assert snapshot(course.root) == ours

    released = own / "notebooks" / SLUG / f"{SLUG}.ipynb"
    assert "np.mean" not in released.read_text("utf-8")
    answers = {"ada": RIGHT, "bob": None, "eve": WRONG, "mal": STOLEN}
    for student, answer in answers.items():
        folder = course.classroom / "submitted" / student / SLUG
        with_answer(released, answer, folder / f"{SLUG}.ipynb")
    checked = run(
        course.root, "check", str(course.classroom / f"submitted/eve/{SLUG}/{SLUG}.ipynb")
    )
    assert checked.code == 1 and "averages over the tokens" in checked.out
    untouched = run(course.root, "check", str(released))
    assert untouched.code == 1 and "still to do" in untouched.out

    graded = run(course.root, "grade", SLUG)
    assert graded.code == 0, graded.err
    assert "50-exam-1   ada      3 / 3  graded" in graded.out
    rows = csv.DictReader(io.StringIO(run(course.root, "grades", SLUG).out))
    told = {row["student_id"]: (row["score"], row["reason"]) for row in rows}
    assert told["ada"] == ("3.0", "")
    assert told["bob"] == ("0.0", "still to do: token_mean")
    assert told["eve"][0] == "0.0" and "one mean for each column" in told["eve"][1]
    assert told["mal"][0] == "0.0" and "No module named" in told["mal"][1]
    assert run(course.root, "feedback", SLUG).code == run(course.root, "report", SLUG).code == 0


def test_an_author_may_do_without_an_open_question(run: Run, course: Course, own: Path) -> None:
    run(course.root, "new-exercise", "50.token_mean", "--into", str(own), "--title", "Exam 1")
    master = course.master(SLUG)
    notebook = nbformat.read(master, as_version=4)
    assert notebook.cells.pop().id == "open_question"
    nbformat.write(notebook, master)
    assert run(course.root, "new-exercise", "50.second").code == 0
    assert run(course.root, "sync", "--check", SLUG).code == 0
    ids = [c.id for c in nbformat.read(master, as_version=4).cells]
    assert ids[-1] == "hints-second" and "open_question" not in ids


# In the clone --------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of all that an author of exercises works on."""
    folder = tmp_path / "clone"
    litter = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
    for name in ("src", "solutions", "notebooks", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=litter)
    for name in ("pyproject.toml", "nbgrader_config.py"):
        shutil.copy(ROOT / name, folder)
    return folder


def of(clone: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a module of Python in the clone, on its own code."""
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


def course_of(clone: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    code = "from coursework.commands import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(clone / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_a_published_exercise_from_its_layout_to_its_points(clone: Path) -> None:
    for id in ("04.token_mean", "07.token_mean"):
        ran = course_of(clone, "new-exercise", id)
        assert ran.returncode == 0, ran.stderr
    ruff(clone)
    tests = (
        "tests/coursework/exercises/test_truth.py",
        "tests/coursework/exercises/test_nonsense.py",
    )
    ran = of(clone, "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k", "token_mean")
    assert ran.returncode == 0 and " passed" in ran.stdout, ran.stdout
    assert course_of(clone, "sync", "--check").returncode == 0

    slug = "04-scaling"
    assert course_of(clone, "release", slug).returncode == 0
    released = clone / "notebooks" / slug / f"{slug}.ipynb"
    for student, answer in {"ada": RIGHT, "bob": None, "eve": WRONG}.items():
        folder = clone / "classroom" / "submitted" / student / slug
        with_answer(released, answer, folder / f"{slug}.ipynb")
    assert "token_mean" in course_of(clone, "check", slug).stdout
    graded = course_of(clone, "grade", slug)
    assert graded.returncode == 0, graded.stderr
    lines = {line.split()[1]: line for line in graded.stdout.splitlines() if slug in line}
    assert "3 / 29" in lines["ada"] and "0 / 29" in lines["bob"] and "0 / 29" in lines["eve"]
    assert "one mean for each column" in lines["eve"]

    before = snapshot(clone / "src")
    again = course_of(clone, "new-exercise", "04.token_mean")
    assert again.returncode == 2
    assert again.stderr == "course: there is an exercise 04.token_mean already.\n"
    assert snapshot(clone / "src") == before


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["4.mean"], "'4.mean' is no id"),
        (["04.Mean"], "no id"),
        (["04.lambda"], "no id"),
        (["04.token-mean"], "no id"),
        (["mean"], "no id"),
        (["04.check"], "check means something else"),
        (["04.sum"], "sum means something else"),
        (["04.graded_mean"], "graded_mean means something else"),
        ([f"04.{'m' * 37}"], "37 letters; 36 are the most"),
        (["13.mean"], "there is no chapter 13"),
        (["00.mean"], "has no exercises"),
        (["04.row_entropy"], "there is an exercise 04.row_entropy already"),
        (["04.hunt"], "hunt.py is there already"),
        (["09.kv_cache"], "uses KV_CACHE for something else"),
        (["04.mean", "--into", "ours"], "04-scaling is a published chapter"),
        (["04.mean", "--title", "Exam"], "04-scaling is a published chapter"),
        (["50.mean"], "say with --into"),
        (["50.mean", "--into", "ours"], "chapter 50 is new: give it a title"),
        (["50.mean", "--into", "ours", "--title", "1. Exam"], "begins with a letter"),
        (["50.mean", "--into", "ours", "--title", 'The "exam"'], "no quotes"),
        (["50.mean", "--into", "ours", "--title", "Scaling"], "scaling is the course's own"),
        (["50.mean", "--into", str(ROOT / "ours"), "--title", "Exam"], "lies in the course"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence_and_changes_nothing(
    run: Run, own: Path, arguments: list[str], words: str
) -> None:
    into = [str(own) if a == "ours" else a for a in arguments]
    before = snapshot(ROOT / "src")
    ran = run(ROOT, "new-exercise", *into)
    assert ran.code == 2 and ran.out == ""
    (sentence,) = ran.err.splitlines()
    assert words in sentence
    assert not own.exists()
    assert snapshot(ROOT / "src") == before


def test_a_doubled_private_exercise_and_another_title(run: Run, own: Path, tmp_path: Path) -> None:
    asked = ("new-exercise", "50.token_mean", "--into", str(own))
    assert run(tmp_path, *asked, "--title", "Exam 1").code == 0
    before = snapshot(own)
    assert "50.token_mean already" in run(tmp_path, *asked).err
    other = ("new-exercise", "50.other", "--into", str(own), "--title", "Exam 2")
    assert "50-exam-1 is there already, as 'Exam 1'" in run(tmp_path, *other).err
    assert snapshot(own) == before


def test_another_copy_of_the_course_is_not_written_to(run: Run, course: Course, own: Path) -> None:
    before = snapshot(course.root)
    ran = run(course.root, "new-exercise", "04.mean")
    assert ran.code == 2 and "belongs to another copy of the course" in ran.err
    assert snapshot(course.root) == before


def test_a_damaged_solution_and_a_full_disk_leave_all_as_it_was(
    run: Run, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("new-exercise", "50.token_mean", "--into", str(own), "--title", "Exam 1")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("coursework.new_exercise.nbformat.writes", full)
        ran = run(tmp_path, *asked)
    assert ran.code == 2 and "No space left on device" in ran.err
    assert not own.exists()

    assert run(tmp_path, *asked).code == 0
    master = own / "solutions" / SLUG / f"{SLUG}.ipynb"
    master.write_text(master.read_text()[:500])
    before = snapshot(own)
    ran = run(tmp_path, "new-exercise", "50.second")
    assert ran.code == 2 and "cannot be read" in ran.err
    assert snapshot(own) == before


def test_the_templates_are_python() -> None:
    for path in (ROOT / "src" / "coursework" / "templates").glob("*.py"):
        ast.parse(path.read_text("utf-8"))
