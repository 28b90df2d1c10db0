"""Tables that people save from a spreadsheet or get from a platform: CSV, however it was written.

Spreadsheets separate cells by what a country's comma leaves free, and save in the encoding of a
system. All that can be told for certain is read; what cannot is refused.
"""

from __future__ import annotations

import csv
import io
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path

from coursework.errors import CourseError

SEPARATORS = ",;\t"
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  #: how .xlsx and .ods begin, and .xls

Row = dict[str, str]


def read_text(path: Path, what: str) -> str:
    """The text of a file: UTF-8, UTF-16 with its mark, or else Windows-1252.

    Args:
        path: the file.
        what: what it is to the person who named it, such as "the roster".

    Raises:
        CourseError: there is no such file, or no text in it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CourseError(f"{what} {path} cannot be read: there is no such file") from error
    except OSError as error:
        raise CourseError(f"{what} {path} cannot be read: {error.strerror}") from error
    if data.startswith(_WORKBOOKS):
        raise CourseError(f"{what} {path} is a spreadsheet's own file: save it as CSV")
    marked = data.startswith((BOM_UTF16_LE, BOM_UTF16_BE))
    for encoding in ("utf-16",) if marked else ("utf-8-sig", "cp1252"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text
    raise CourseError(f"{what} {path} cannot be read: it is no text. Save it as CSV in UTF-8")


def parse(text: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The names of the columns, and the lines that are not blank, each with its number.

    Raises:
        ValueError: this is no CSV.
    """
    lines = io.StringIO(text, newline="")
    first = next((line for line in text.splitlines() if line.strip()), "")
    if first.casefold().startswith("sep="):  # a line by which Excel is told the separator
        separator = first[4:5] or ","
        lines.readline()
    else:
        separator = max(SEPARATORS, key=first.count)
    try:
        reader = csv.reader(lines, delimiter=separator)
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ValueError(f"this is no CSV: {error}") from error
    return (rows[0][1], rows[1:]) if rows else ([], [])


def read(path: Path, what: str, columns: Mapping[str, Iterable[str]]) -> list[tuple[int, Row]]:
    """The lines of a table, each with its number, their cells under our names of the columns.

    Args:
        path: the file.
        what: as in `read_text`.
        columns: our names, and by which others a file may call them. Case, spaces and underscores
            do not matter. Where a file has several of them, our own name counts, then the last.

    Raises:
        CourseError: it cannot be read, it has none of these columns, or a line has more cells than
            there are columns.
    """
    try:
        header, lines = parse(read_text(path, what))
    except ValueError as error:
        raise CourseError(f"{what} {path} cannot be read: {error}") from error
    there = {_plain(name): place for place, name in enumerate(header)}
    ours = {
        name: there[_plain(called)]
        for name, others in columns.items()
        for called in (*others, name)
        if _plain(called) in there
    }
    if not ours:
        found = f"its first line is {', '.join(header)}" if header else "it is empty"
        raise CourseError(
            f"{what} {path} needs a line of column names, such as {', '.join(columns)}; {found}"
        )
    for number, cells in lines:
        if any(cell.strip() for cell in cells[len(header) :]):
            raise CourseError(
                f"line {number} of {what} {path} has {len(cells)} cells, and there are "
                f"{len(header)} columns: a cell with a comma in it stands in quotation marks"
            )
    return [
        (number, {name: _cell(cells, place) for name, place in ours.items()})
        for number, cells in lines
    ]


def under(header: list[str], cells: list[str]) -> Row:
    """The cells of a line under the names of their columns; those that lack are empty."""
    return dict(zip_longest(header, cells[: len(header)], fillvalue=""))


def _cell(cells: list[str], place: int) -> str:
    return cells[place].strip() if place < len(cells) else ""


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").split())
