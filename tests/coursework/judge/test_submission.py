"""What arrives is read by its content, whatever has happened to the file on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coursework.exercises import for_chapter
from coursework.judge.submission import Unreadable, find_notebook, match, read_cells

EXERCISES = for_chapter(4)
ANSWER = "def row_entropy(weights):\n    return 'größer als null'"


def code(source: str, grade_id: str | None = None, **metadata: Any) -> dict[str, Any]:
    marks = {"nbgrader": {"grade_id": grade_id}} if grade_id else {}
    return {"cell_type": "code", "source": source, "metadata": {**marks, **metadata}}


def notebook(*cells: dict[str, Any]) -> dict[str, Any]:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells)}


@pytest.fixture
def written(tmp_path: Path) -> Any:
    def write(content: Any, name: str = "04-scaling.ipynb") -> Path:
        path = tmp_path / name
        if not isinstance(content, bytes):
            content = json.dumps(content, ensure_ascii=False).encode()
        path.write_bytes(content)
        return path

    return write


def test_a_notebook_as_it_was_released_needs_no_repair(written: Any) -> None:
    cells, repairs = read_cells(written(notebook(code(ANSWER, "row_entropy"))))
    assert [c.source for c in cells] == [ANSWER]
    assert repairs == []


@pytest.mark.parametrize(
    ("encoding", "says"),
    [
        ("utf-8-sig", "byte-order mark"),
        ("cp1252", "Windows-1252"),
        ("utf-16", "UTF-16"),
    ],
)
def test_other_encodings_are_read_and_noted(written: Any, encoding: str, says: str) -> None:
    text = json.dumps(notebook(code(ANSWER, "row_entropy")), ensure_ascii=False)
    cells, repairs = read_cells(written(text.encode(encoding)))
    assert cells[0].source == ANSWER
    assert says in repairs[0]


def test_the_old_format_with_worksheets_is_read(written: Any) -> None:
    cell = {"cell_type": "code", "input": ANSWER.splitlines(keepends=True), "metadata": {}}
    old = {"nbformat": 3, "worksheets": [{"cells": [cell]}], "metadata": {}}
    cells, repairs = read_cells(written(old))
    assert cells[0].source == ANSWER
    assert "nbformat 3" in repairs[0]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b"<!DOCTYPE html><html><body>Please log in</body></html>", "web page"),
        (json.dumps(notebook(code(ANSWER))).encode()[:-20], "cut off"),
        (b'{"a": 1}', "no cells"),
        (b'{"cells": [], "x": ' + b"9" * 5000 + b"}", "damaged"),
        (b"[1, 2]", "no notebook"),
        (b"%PDF-1.7", "not a notebook"),
        (b"\x00\x01\x02\xff", "not a notebook"),
        (b"[" * 100_000, "not a notebook"),
    ],
)
def test_what_is_no_notebook_is_said_to_be_what_it_is(
    written: Any, content: bytes, says: str
) -> None:
    with pytest.raises(Unreadable, match=says):
        read_cells(written(content))


def test_worksheets_of_any_shape_are_read_without_complaint(written: Any) -> None:
    assert read_cells(written({"worksheets": [{"cells": 5}, 3, {}]}))[0] == []


@pytest.mark.parametrize(
    "cell",
    [
        {},
        {"cell_type": "code"},
        {"cell_type": "code", "source": None, "metadata": None},
        {"cell_type": "code", "source": 3, "metadata": {"nbgrader": "yes", "tags": "demo"}},
        {"cell_type": ["code"], "source": [1, None], "metadata": {"nbgrader": {"grade_id": 7}}},
        "not a cell",
    ],
)
def test_cells_of_any_shape_are_read_without_complaint(written: Any, cell: Any) -> None:
    cells, _ = read_cells(written(notebook(cell, code(ANSWER, "row_entropy"))))
    assert match(cells, EXERCISES).parts[-1].answers == ("row_entropy",)


class TestFinding:
    def test_another_name_is_overlooked_and_noted(self, written: Any, tmp_path: Path) -> None:
        path = written(notebook(), "04-scaling (1).ipynb")
        found, repairs = find_notebook(tmp_path, "04-scaling")
        assert found == path
        assert "04-scaling (1).ipynb" in repairs[0]

    def test_no_notebook_and_two_notebooks_are_unreadable(
        self, written: Any, tmp_path: Path
    ) -> None:
        with pytest.raises(Unreadable, match="no notebook"):
            find_notebook(tmp_path, "04-scaling")
        written(notebook(), "a.ipynb")
        written(notebook(), "b.ipynb")
        with pytest.raises(Unreadable, match=r"2 notebooks.*a\.ipynb, b\.ipynb"):
            find_notebook(tmp_path, "04-scaling")

    def test_a_link_that_leads_out_of_the_folder_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "secret.ipynb").write_text("{}")
        folder = tmp_path / "handed-in"
        folder.mkdir()
        (folder / "04-scaling.ipynb").symlink_to(tmp_path / "secret.ipynb")
        with pytest.raises(Unreadable, match="leads out"):
            find_notebook(folder, "04-scaling")


class TestMatching:
    def matched(self, written: Any, *cells: dict[str, Any]) -> Any:
        return match(read_cells(written(notebook(*cells)))[0], EXERCISES, ["open_question"])

    def test_stripped_metadata_are_made_up_for_by_names(self, written: Any) -> None:
        found = self.matched(written, code("x = 1"), code(ANSWER))
        assert [p.answers for p in found.parts] == [(), ("row_entropy",)]
        assert "metadata were gone" in found.repairs[0]

    def test_an_answer_in_two_cells_is_both_of_them(self, written: Any) -> None:
        found = self.matched(
            written, code("import math", "row_entropy"), code(ANSWER, "row_entropy")
        )
        assert [p.answers for p in found.parts] == [("row_entropy",), ("row_entropy",)]
        assert any("stood in 2 cells" in r for r in found.repairs)

    def test_checks_and_demonstrations_are_not_the_students_code(self, written: Any) -> None:
        found = self.matched(
            written,
            code('check("04.row_entropy", row_entropy)', "check_row_entropy"),
            code("assert False", "graded_row_entropy"),
            code("plot()", tags=["demo"]),
            code(ANSWER, "row_entropy"),
            code('check("04.row_entropy", row_entropy)'),
        )
        assert [p.answers for p in found.parts] == [("row_entropy",)]

    def test_a_missing_test_cell_is_noted(self, written: Any) -> None:
        found = self.matched(written, code(ANSWER, "row_entropy"))
        assert any("test cell of row_entropy was gone" in r for r in found.repairs)

    def test_an_answer_that_became_text_is_still_an_answer(self, written: Any) -> None:
        cell = {**code(ANSWER, "row_entropy"), "cell_type": "markdown"}
        found = self.matched(written, cell)
        assert found.parts[0].answers == ("row_entropy",)
        assert any("text cell" in r for r in found.repairs)

    def test_source_that_is_not_python_is_known_by_its_look(self, written: Any) -> None:
        found = self.matched(written, code("def row_entropy(weights)\n    return ("))
        assert found.parts[0].answers == ("row_entropy",)

    def test_an_open_question_is_kept_for_a_person(self, written: Any) -> None:
        cell = {**code("Because …", "open_question"), "cell_type": "markdown"}
        assert self.matched(written, cell).manual == {"open_question": "Because …"}
