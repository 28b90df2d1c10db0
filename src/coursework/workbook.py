"""A student's own notebooks: laid out fresh, and made ready to be handed in."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from coursework.chapters import Chapter
from coursework.classroom import write_aside
from coursework.errors import CourseError
from coursework.evaluate import Verdict
from coursework.exercises import for_chapter
from coursework.judge.grading import check_notebook
from coursework.judge.submission import Unreadable, match, read_cells

FOLDER = "to-hand-in"
MOST_OUTPUT = 1_000_000  #: bytes of a notebook that is handed in with its outputs


def released(slug: str) -> Path:
    """The notebook of a chapter as it is given to students.

    Raises:
        CourseError: this installation has none.
    """
    package = Path(__file__).parent
    in_wheel, in_clone = package / "notebooks", package.parents[1] / "notebooks" / slug
    for folder in (in_wheel, in_clone):
        if (folder / f"{slug}.ipynb").is_file():
            return folder / f"{slug}.ipynb"
    raise CourseError(f"this installation of the course has no notebook for {slug}")


@dataclass(frozen=True)
class Started:
    """Where a fresh notebook was laid."""

    path: Path
    kept: Path | None  #: the copy of what was there before
    fresh: bool  #: False: it was there already, as it was released


def start(slug: str, folder: Path, now: datetime) -> Started:
    """Lay a chapter's notebook into a folder. Work that is there is kept under a dated name."""
    source, path = released(slug), folder / f"{slug}.ipynb"
    fresh, kept = source.read_text("utf-8"), None
    if path.exists():
        if path.read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n") == fresh:
            return Started(path, None, False)
        kept = _dated(path, now)
        os.replace(path, kept)
    write_aside(path, fresh)
    return Started(path, kept, True)


def _dated(path: Path, now: datetime) -> Path:
    """A name with the time in it that is not taken. Colons are no part of names on Windows."""
    stem = f"{path.stem}.{now:%Y-%m-%d-%H%M%S}"
    more = ("", *(f"-{n}" for n in range(2, 100)))
    names = (path.with_name(f"{stem}{part}{path.suffix}") for part in more)
    return next(name for name in names if not name.exists())


@dataclass(frozen=True)
class HandIn:
    """A file that is ready to be handed in, and what it holds."""

    path: Path
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]  #: what a grader will have to repair, in sentences
    size: int  #: bytes
    outputs_left_out: bool


def prepare(path: Path, chapter: Chapter, folder: Path) -> HandIn:
    """Check a notebook a last time, and copy it under the name that it is to be handed in by.

    Raises:
        CourseError: it cannot be read, or answers nothing.
    """
    try:
        cells, repaired = read_cells(path)
        verdicts = check_notebook(path, chapter)
    except Unreadable as error:
        raise CourseError(f"{path}: {error}") from error
    found = match(cells, for_chapter(chapter.number))
    if not found.parts:
        raise CourseError(f"{path} holds no answer to an exercise of {chapter.slug}")
    text = path.read_text(encoding="utf-8", errors="replace").lstrip("\ufeff")
    too_large = len(text.encode()) > MOST_OUTPUT
    if too_large:
        text = _without_outputs(text)
    target = folder / f"{chapter.slug}.ipynb"
    write_aside(target, text)
    notes = (*repaired, *found.repairs)
    return HandIn(target, verdicts, notes, target.stat().st_size, too_large)


def _without_outputs(text: str) -> str:
    notebook = json.loads(text)
    for cell in notebook.get("cells", []):
        if cell.get("cell_type") == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
