"""CSV is read however a spreadsheet wrote it, and what is none is refused in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from coursework import spreadsheet
from coursework.errors import CourseError

COLUMNS = {"student_id": ("id",), "name": ("full name",)}
EXPECTED = [
    (2, {"student_id": "ada", "name": "Lovelace, Ada"}),
    (3, {"student_id": "zoe", "name": "Saldaña, Zoë"}),
]
TEXT = 'Student ID,Full_Name\nada,"Lovelace, Ada"\nzoe,"Saldaña, Zoë"\n'


def read(tmp_path: Path, content: bytes) -> list[tuple[int, dict[str, str]]]:
    path = tmp_path / "class.csv"
    path.write_bytes(content)
    return spreadsheet.read(path, "the roster", COLUMNS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_encoding_and_end_of_line_is_read(tmp_path: Path, encoding: str, end: str):
    assert read(tmp_path, TEXT.replace("\n", end).encode(encoding)) == EXPECTED


@pytest.mark.parametrize("separator", [";", "\t"])
def test_every_separator_is_read(tmp_path: Path, separator: str):
    text = f'id{separator}name\nada{separator}"Lovelace, Ada"\nzoe{separator}Saldaña, Zoë\n'
    assert read(tmp_path, text.encode()) == EXPECTED


def test_a_line_that_names_the_separator_is_not_one_of_the_table(tmp_path: Path):
    text = "sep=;\nid;name\nada;Lovelace, Ada\n"
    assert read(tmp_path, text.encode())[0][1] == EXPECTED[0][1]


def test_blank_lines_are_passed_over_and_counted(tmp_path: Path):
    text = "\nid,name\n,\nada,Ada\n  ,  \n\nzoe\n"
    assert read(tmp_path, text.encode()) == [
        (4, {"student_id": "ada", "name": "Ada"}),
        (7, {"student_id": "zoe", "name": ""}),
    ]


def test_our_own_name_of_a_column_counts_before_others(tmp_path: Path):
    rows = read(tmp_path, b"student_id,ID\nada,101\n")
    assert rows == [(2, {"student_id": "ada"})]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the roster .*class.csv needs a line of column names.*it is empty"),
        (b"who,what\na,b\n", "its first line is who, what"),
        (b"id,name\nada,Lovelace, Ada\n", "line 2 of the roster .* has 3 cells.*2 columns"),
        (b"PK\x03\x04rest", "a spreadsheet's own file: save it as CSV"),
        (b"\xff\xfe\x00", "it is no text. Save it as CSV in UTF-8"),
        (b"i\0d\0", "it is no text"),
        (b"id,name\n\x81\x8d,x\n", "it is no text"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, content: bytes, words: str):
    with pytest.raises(CourseError, match=words):
        read(tmp_path, content)


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(CourseError, match=r"the roster .*none\.csv .*there is no such file"):
        spreadsheet.read(tmp_path / "none.csv", "the roster", COLUMNS)
    with pytest.raises(CourseError, match="Is a directory"):
        spreadsheet.read(tmp_path, "the roster", COLUMNS)
