"""A small course whose only assignment is chapter 04, and students who hand something in."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from coursework import batch, exercises, private
from coursework.chapters import by_slug
from coursework.classroom import Course
from coursework.judge.grading import Result, grade
from coursework.sync import skeleton
from tests.coursework import postgresql
from tests.coursework.submissions import SLUG, notebook_maker

HandIn = Callable[..., Path]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A solution notebook without answers, which is all that grading needs of it."""
    path = tmp_path_factory.mktemp("solutions") / SLUG / f"{SLUG}.ipynb"
    path.parent.mkdir()
    nbformat.write(skeleton(by_slug(SLUG)), path)
    return path


@pytest.fixture
def notebook(master: Path) -> Callable[..., Any]:
    """Makes a student's notebook with these answers; others are left as they were released."""
    return notebook_maker(master)


@pytest.fixture
def graded(master: Path, notebook: Callable[..., Any], tmp_path: Path) -> Callable[..., Result]:
    """Grades a notebook with these answers, or one that was made by hand."""

    def run(ready: Any = None, **answers: str) -> Result:
        path = tmp_path / f"{SLUG}.ipynb"
        if isinstance(ready, bytes):
            path.write_bytes(ready)
        else:
            nbformat.write(ready or notebook(**answers), path)
        return grade(master, path, seed=5)

    return run


@pytest.fixture
def course(tmp_path: Path, master: Path) -> Course:
    """The folders of a course, with nobody in it yet."""
    return _new_course(tmp_path / "course", master)


def _new_course(root: Path, master: Path) -> Course:
    shutil.copytree(master.parent, root / "solutions" / SLUG)
    shutil.copyfile(ROOT / "nbgrader_config.py", root / "nbgrader_config.py")
    return Course(root)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for private exercises that is not there yet. What is declared in it is forgotten."""
    monkeypatch.setenv(private.VARIABLE, "")
    path, before = exercises.__path__[:], set(sys.modules)
    yield tmp_path / "ours"
    exercises.__path__[:] = path
    for name in set(sys.modules) - before:
        if name.startswith(f"{private.PACKAGE}."):
            del sys.modules[name]
            vars(exercises).pop(name.rpartition(".")[2], None)
    private.chapters.cache_clear()
    exercises._module.cache_clear()


def use_database(course: Course, db_url: str) -> None:
    """Let the course's gradebook be there, as an instructor would: by a line of the settings."""
    with (course.root / "nbgrader_config.py").open("a", encoding="utf-8") as settings:
        settings.write(f"\nc.CourseDirectory.db_url = {db_url!r}\n")


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.Server]:
    """A PostgreSQL server of the tests' own."""
    programs = postgresql.programs()
    if programs is None:
        pytest.skip("no PostgreSQL server: install it (Debian: apt-get install postgresql)")
    with postgresql.Server(programs) as server:
        yield server


@pytest.fixture
def hand_in(course: Course, notebook: Callable[..., Any]) -> HandIn:
    """Puts a notebook with these answers into a student's folder."""
    return _hand_in_at(course, notebook)


def _hand_in_at(course: Course, notebook: Callable[..., Any]) -> HandIn:
    def put(student: str, content: Any = None, name: str = f"{SLUG}.ipynb", **answers: str) -> Path:
        path = course.classroom / "submitted" / student / SLUG / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            nbformat.write(content or notebook(**answers), path)
        return path

    return put


@pytest.fixture(scope="session")
def graded_once(
    master: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Callable[[HandIn], None], Course], None]:
    """Lays the attempts of a class into a course. A class is graded once for all tests."""
    known: dict[Callable[[HandIn], None], Course] = {}

    def lay(everybody: Callable[[HandIn], None], course: Course) -> None:
        if everybody not in known:
            first = _new_course(tmp_path_factory.mktemp("graded") / "course", master)
            everybody(_hand_in_at(first, notebook_maker(master)))
            for _ in batch.run(batch.jobs_of(first, [SLUG], [], None), workers=2):
                pass
            known[everybody] = first
        everybody(_hand_in_at(course, notebook_maker(master)))
        for name in ("attempts", "seed"):
            there, here = known[everybody].classroom / name, course.classroom / name
            (shutil.copytree if there.is_dir() else shutil.copyfile)(there, here)

    return lay
