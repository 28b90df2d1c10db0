"""A file that cannot be written is refused before there is anything to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from coursework.commands.arguments import writable
from coursework.errors import CourseError


def test_a_file_that_can_be_written_is_not_made_yet(tmp_path: Path):
    assert writable(tmp_path / "grades.csv") == tmp_path / "grades.csv"
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_refused_and_named(tmp_path: Path):
    (tmp_path / "file").touch()
    for path, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "x.csv", f"there is no folder {tmp_path / 'no'}"),
        (tmp_path / "file" / "x.csv", f"there is no folder {tmp_path / 'file'}"),
        (Path("/proc/x.csv"), "/proc/x.csv cannot be written: "),
    ):
        with pytest.raises(CourseError, match=words):
            writable(path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
