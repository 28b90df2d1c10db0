"""Reading what students hand in, whatever has happened to the file on the way.

A submission is only ever data here: it is read as JSON, never opened by a tool that would run or
trust something in it. Repairs are noted in sentences.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coursework.exercise import Exercise

MAX_BYTES = 200 * 2**20


class Unreadable(Exception):
    """A file with no notebook in it, and a sentence that says what it is instead."""


@dataclass(frozen=True)
class Cell:
    """A cell, as much of it as grading looks at."""

    kind: str  #: "code", "markdown" or "raw"
    source: str
    grade_id: str | None = None
    role: str | None = None
    exercise: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A piece of a student's code, and the exercises that it answers (none: a helper)."""

    name: str
    source: str
    answers: tuple[str, ...] = ()  #: names of exercises


@dataclass
class Submission:
    """A notebook that has been read and matched to its exercises."""

    parts: list[Part]
    repairs: list[str]
    manual: dict[str, str] = field(default_factory=dict)  #: answers to open questions, by grade id


def find_notebook(folder: Path, slug: str) -> tuple[Path, list[str]]:
    """The one notebook of a submission's folder, and what had to be overlooked to find it.

    Raises:
        Unreadable: there is none, or there are several and none has the right name.
    """
    found = sorted(p for p in folder.glob("*.ipynb") if not p.name.startswith("."))
    if not found:
        return _raise(f"there is no notebook in the folder; {slug}.ipynb was expected")
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        return _raise(f"there are {len(found)} notebooks ({names}): which one is handed in?")
    (path,) = found
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        return _raise(f"{path.name} is a link that leads out of the folder")
    renamed = path.name != f"{slug}.ipynb"
    return path, [f"the file was called {path.name!r}"] if renamed else []


def _raise(sentence: str) -> Any:
    raise Unreadable(sentence)


def read_cells(path: Path) -> tuple[list[Cell], list[str]]:
    """The cells of a notebook file of any version, and what was repaired.

    Raises:
        Unreadable: there is no notebook in the file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"the file has more than {MAX_BYTES // 2**20} MB")
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"the file cannot be read: {error.strerror}") from error
    return cells_in(data)


def cells_in(data: bytes) -> tuple[list[Cell], list[str]]:
    """As `read_cells`, of a file's content.

    Raises:
        Unreadable: there is no notebook in it.
    """
    repairs: list[str] = []
    notebook = _parse(_text(data, repairs))
    cells = notebook.get("cells")
    if cells is None and isinstance(notebook.get("worksheets"), list):
        repairs.append("the notebook was in an old format (nbformat 3)")
        sheets = [s for s in notebook["worksheets"] if isinstance(s, dict)]
        lists = [sheet.get("cells") for sheet in sheets]
        cells = [cell for cells in lists if isinstance(cells, list) for cell in cells]
    if not isinstance(cells, list):
        raise Unreadable("the file is JSON, but no notebook: it has no cells")
    return [_cell(c) for c in cells if isinstance(c, dict)], repairs


def _text(data: bytes, repairs: list[str]) -> str:
    if not data.strip():
        raise Unreadable("the file is empty")
    if data.startswith(b"\xef\xbb\xbf"):
        repairs.append("the file began with a byte-order mark")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        repairs.append("the file was saved as UTF-16")
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        repairs.append("the file was not UTF-8 and was read as Windows-1252")
        return data.decode("cp1252", errors="replace")


def _parse(text: str) -> dict[str, Any]:
    try:
        notebook = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        start = text.lstrip()[:200].lower()
        if start.startswith("<"):
            raise Unreadable("the file is a web page, not a notebook") from error
        if start.startswith("{"):
            raise Unreadable("the file is cut off or damaged: it is not whole JSON") from error
        raise Unreadable("the file is not a notebook") from error
    if not isinstance(notebook, dict):
        raise Unreadable("the file is JSON, but no notebook")
    return notebook


def _cell(cell: dict[str, Any]) -> Cell:
    """One cell. Everything in it may be missing or of another type."""
    metadata = _dict(cell.get("metadata"))
    nbgrader, ours = _dict(metadata.get("nbgrader")), _dict(metadata.get("coursework"))
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    tags = metadata.get("tags")
    return Cell(
        kind=str(cell.get("cell_type", "code")),
        source=_encodable(source) if isinstance(source, str) else "",
        grade_id=_str(nbgrader.get("grade_id")),
        role=_str(ours.get("role")),
        exercise=_str(ours.get("exercise")),
        tags=tuple(t for t in tags if isinstance(t, str)) if isinstance(tags, list) else (),
    )


def _encodable(source: str) -> str:
    """JSON can hold half of a pair of UTF-16, which no file and no compiler takes."""
    return source.encode("utf-8", errors="replace").decode()


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# Matching ------------------------------------------------------------------------------------


def match(
    cells: Sequence[Cell], exercises: Iterable[Exercise], manual: Iterable[str] = ()
) -> Submission:
    """Which cell answers which exercise: by grade id, else by the name that it defines.

    Args:
        cells: of the submission, in its order.
        exercises: what is asked.
        manual: grade ids of open questions.
    """
    names = [e.name for e in exercises]
    open_questions = set(manual)
    found = Submission([], [])
    seen: dict[str, int] = {}
    for number, cell in enumerate(cells, 1):
        if cell.grade_id in open_questions:
            before = found.manual.get(cell.grade_id or "")
            text = cell.source if before is None else f"{before}\n\n{cell.source}"
            found.manual[cell.grade_id or ""] = text
            continue
        if not _is_students(cell, names):
            continue
        part = _part(cell, number, names, found.repairs)
        if part is not None:
            found.parts.append(part)
            for name in part.answers:
                seen[name] = seen.get(name, 0) + 1
    found.repairs += _notes(cells, names, seen)
    return found


def _is_students(cell: Cell, names: Sequence[str]) -> bool:
    """Whether a cell's code is the student's: not text, not a check, not a demonstration."""
    if "demo" in cell.tags or cell.role in ("check", "graded", "suspect", "task", "hints"):
        return False
    if (cell.grade_id or "").startswith(("check_", "graded_")) or cell.grade_id == "suspect":
        return False
    return cell.kind == "code" or cell.grade_id in names


def _part(cell: Cell, number: int, names: Sequence[str], repairs: list[str]) -> Part | None:
    defined = [name for name in defined_names(cell.source) if name in names]
    marked = cell.grade_id if cell.grade_id in names else None
    answers = tuple(dict.fromkeys([*([marked] if marked else []), *defined]))
    if cell.kind != "code":
        if not defined:
            return None
        repairs.append(f"the answer {marked} stood in a text cell")
    if not cell.source.strip() or (not answers and _only_checks(cell.source)):
        return None
    return Part(f"cell {number}", cell.source, answers)


def defined_names(source: str) -> Iterator[str]:
    """Names that a cell defines at its top level; by their look where it is not Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield from re.findall(r"^(?:async\s+def|def|class)\s+(\w+)", source, re.MULTILINE)
        return
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))


def _only_checks(source: str) -> bool:
    lines = [line.strip() for line in source.splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    return all(line.startswith("check(") for line in code)


def _notes(cells: Sequence[Cell], names: Sequence[str], seen: dict[str, int]) -> Iterator[str]:
    marked = [c.grade_id for c in cells if c.grade_id]
    answered = [c.grade_id for c in cells if c.grade_id in names]
    if not marked and cells:
        yield "nbgrader's metadata were gone: answers were found by the names they define"
        return
    for name in names:
        if name in seen and name not in answered:
            yield f"the cell of {name} had lost its metadata and was found by its name"
        if answered.count(name) > 1:
            yield f"the answer {name} stood in {answered.count(name)} cells"
        tests = marked.count(f"graded_{name}")
        if tests == 0:
            yield f"the test cell of {name} was gone; the course's own was used"
        elif tests > 1:
            yield f"the test cell of {name} was there {tests} times; the course's own was used"
    order = [name for name in answered if name]
    if order != sorted(order, key=names.index):
        yield "the answers stood in another order"


def sha256(path: Path) -> str:
    """Hash of a file, by which unchanged submissions are known."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
