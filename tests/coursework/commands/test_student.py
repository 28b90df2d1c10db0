"""A student's way through a chapter: start, check, submit."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import nbformat
import pytest

from coursework import workbook
from coursework.exercises import declared_chapters
from coursework.judge.submission import read_cells
from tests.coursework.commands.conftest import Ran, snapshot
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow

Run = Callable[..., Ran]
Notebook = Callable[..., Any]


def test_start_lays_the_released_notebook_and_says_how_to_open_it(run: Run, tmp_path: Path) -> None:
    ran = run(tmp_path, "start", "4")
    assert ran.code == 0 and f"jupyter lab {SLUG}.ipynb" in ran.out
    assert (tmp_path / f"{SLUG}.ipynb").read_text("utf-8") == workbook.released(SLUG).read_text(
        "utf-8"
    )
    before = snapshot(tmp_path)
    assert "as it was released" in run(tmp_path, "start", SLUG).out
    assert snapshot(tmp_path) == before


def test_start_keeps_work_under_a_dated_name_each_time(tmp_path: Path) -> None:
    now = datetime(2026, 3, 4, 15, 6, 7)
    path = workbook.start(SLUG, tmp_path, now).path
    kept = []
    for work in ("first", "second"):
        path.write_text(work)
        started = workbook.start(SLUG, tmp_path, now)
        assert started.fresh and started.kept is not None
        kept.append((started.kept.name, started.kept.read_text()))
    assert kept == [
        (f"{SLUG}.2026-03-04-150607.ipynb", "first"),
        (f"{SLUG}.2026-03-04-150607-2.ipynb", "second"),
    ]
    assert nbformat.read(path, as_version=4).cells


def test_a_started_notebook_is_all_to_do(run: Run, tmp_path: Path) -> None:
    run(tmp_path, "start", SLUG)
    ran = run(tmp_path, "check", SLUG)
    assert ran.code == 1
    assert "right" not in re.sub("right answers", "", ran.out).split()
    assert ran.out.count("still to do") == 6


def test_check_all_has_a_line_for_each_chapter(
    run: Run, tmp_path: Path, notebook: Notebook
) -> None:
    nbformat.write(notebook(**RIGHT), tmp_path / f"{SLUG}.ipynb")
    ran = run(tmp_path, "check", "--all")
    assert ran.code == 0
    lines = ran.out.splitlines()
    for chapter in declared_chapters():
        (line,) = [one for one in lines if one.startswith(f"{chapter.number:02d} ")]
        assert ("not begun" in line) == (chapter.slug != SLUG)
    (mine,) = [one for one in lines if one.startswith("04 ")]
    assert "5 of 6" in mine
    assert run(tmp_path, "check", SLUG, "--all").code == 2


def test_check_all_names_what_cannot_be_checked_and_goes_on(
    run: Run, tmp_path: Path, notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat.write(notebook(**RIGHT), tmp_path / f"{SLUG}.ipynb")
    (tmp_path / "05-masking.ipynb").write_text('{"cells": [')
    exercises = sys.modules["coursework.exercises"]
    find = exercises.find_spec
    monkeypatch.setattr(
        exercises, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    ran = run(tmp_path, "check", "--all")
    lines = {line[:2]: line for line in ran.out.splitlines()}
    assert "5 of 6" in lines["04"]
    assert "cut off or damaged" in re.sub(r"\s+", " ", ran.out)
    assert "needs PyTorch" in lines["07"]
    assert "07-block" in run(tmp_path, "check", "00-why-attention").err


def test_submit_makes_the_file_and_says_what_it_holds(
    run: Run, tmp_path: Path, notebook: Notebook
) -> None:
    mine = notebook(**{**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K})
    nbformat.write(mine, tmp_path / f"{SLUG} (2).ipynb")
    ran = run(tmp_path, "submit", f"{SLUG} (2).ipynb")
    assert ran.code == 0
    assert "divides by d_k" in ran.out and "still to do" in ran.out
    assert f"to-hand-in/{SLUG}.ipynb" in ran.out
    handed_in, _ = read_cells(tmp_path / "to-hand-in" / f"{SLUG}.ipynb")
    assert [c.source for c in handed_in] == [c.source for c in mine.cells]


def test_submit_leaves_out_outputs_that_are_too_large(tmp_path: Path, notebook: Notebook) -> None:
    from coursework.chapters import by_slug

    mine = notebook(**RIGHT)
    code = next(c for c in mine.cells if c.cell_type == "code")
    code.outputs = [nbformat.v4.new_output("stream", text="x" * 2_000_000)]
    path = tmp_path / f"{SLUG}.ipynb"
    nbformat.write(mine, path)
    made = workbook.prepare(path, by_slug(SLUG), tmp_path / "out")
    assert made.outputs_left_out and made.size < 100_000
    cells, _ = read_cells(made.path)
    assert [c.source for c in cells] == [c.source for c in mine.cells]
    assert path.stat().st_size > 2_000_000


def test_submit_notes_what_a_grader_would_have_to_repair(
    run: Run, tmp_path: Path, notebook: Notebook
) -> None:
    mine = notebook(**RIGHT)
    for cell in mine.cells:
        cell.metadata = {}
    nbformat.write(mine, tmp_path / f"{SLUG}.ipynb")
    assert "metadata were gone" in run(tmp_path, "submit", SLUG).out


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "empty"), (b"<html>log in</html>", "web page"), (b'{"cells": []}', "no answer")],
)
def test_submit_refuses_what_is_no_work(
    run: Run, tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / f"{SLUG}.ipynb").write_bytes(content)
    before = snapshot(tmp_path)
    ran = run(tmp_path, "submit", SLUG)
    assert ran.code == 2 and words in ran.err
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("command", ["start", "submit"])
@pytest.mark.parametrize("slug", ["04-scalng", "00-why-attention"])
def test_a_chapter_that_cannot_be_meant(run: Run, tmp_path: Path, command: str, slug: str) -> None:
    ran = run(tmp_path, command, slug)
    assert ran.code == 2 and SLUG in ran.err
    assert snapshot(tmp_path) == {}


def test_submit_without_a_notebook(run: Run, tmp_path: Path) -> None:
    ran = run(tmp_path, "submit", SLUG)
    assert ran.code == 2 and f"there is no {SLUG}.ipynb" in ran.err
