"""`course sync --run` stores what the cells of a solution notebook give now."""

from __future__ import annotations

from collections.abc import Callable

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from coursework.classroom import Course
from tests.coursework.commands.conftest import Ran, snapshot
from tests.coursework.submissions import SLUG

Run = Callable[..., Ran]


def add_cell(course: Course, source: str) -> None:
    path = course.master(SLUG)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(2, new_code_cell(source, id="demo"))
    nbformat.write(notebook, path)


@pytest.mark.slow
def test_sync_runs_a_notebook_when_asked_to(run: Run, course: Course) -> None:
    add_cell(course, "6 * 7")
    assert run(course.root, "sync").code == 0
    assert '"42"' not in course.master(SLUG).read_text(encoding="utf-8")
    ran = run(course.root, "sync", "--run")
    assert ran.code == 0 and "running its cells" in ran.err
    assert '"42"' in course.master(SLUG).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_notebook_that_does_not_run_stays_as_it_was(run: Run, course: Course) -> None:
    add_cell(course, "nowhere")
    before = snapshot(course.root)
    ran = run(course.root, "sync", "--run")
    assert ran.code == 2
    assert "a cell raises NameError: name 'nowhere' is not defined" in ran.err
    assert snapshot(course.root) == before
