"""Student notebooks: what nbgrader's `generate_assignment` makes of the solutions.

`release` writes `notebooks/` from `solutions/`; `stale` says where the two do not belong together.
Both let nbgrader work in a folder of its own, so that a solution which cannot be released leaves
the notebooks of yesterday where they are.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from coursework import markers, private
from coursework.errors import CourseError

IGNORED = ("__pycache__", ".ipynb_checkpoints")


class ReleaseError(CourseError):
    """A solution that cannot be released, and a sentence that says why."""


def slugs_with_solutions(root: Path) -> tuple[str, ...]:
    """Slugs of the chapters that have a solution notebook, in order."""
    found = (p for home in private.homes(root) for p in home.glob("solutions/*/*.ipynb"))
    return tuple(sorted(p.parent.name for p in found))


def release(root: Path, slugs: Sequence[str] = (), *, progress: bool = True) -> tuple[str, ...]:
    """Write the student notebooks that are not what their solutions say.

    Args:
        root: the course's folder.
        slugs: which chapters; none means all that have a solution.
        progress: show a bar on stderr.

    Returns:
        the slugs of the notebooks that changed.

    Raises:
        ReleaseError: a solution is missing, or its markers or nbgrader's metadata are wrong.
            Nothing has been written then.
    """
    slugs = tuple(slugs) or slugs_with_solutions(root)
    with tempfile.TemporaryDirectory() as fresh:
        for slug in _shown(slugs, "Making student notebooks", progress):
            generate(root, slug, Path(fresh))
        return tuple(s for s in slugs if _install(Path(fresh) / s, released_folder(root, s)))


def released_folder(root: Path, slug: str) -> Path:
    """Where the student notebook of an assignment lies."""
    return private.home(root, slug) / "notebooks" / slug


def stale(root: Path, slugs: Sequence[str] = (), *, progress: bool = False) -> list[str]:
    """Which student notebooks are not what would be made now: a sentence for each."""
    every = slugs_with_solutions(root)
    sentences = [
        f"notebooks/{folder.name} comes from no solution"
        for home in private.homes(root)
        for folder in sorted((home / "notebooks").glob("*/"))
        if not slugs and folder.name not in every
    ]
    with tempfile.TemporaryDirectory() as fresh:
        for slug in _shown(tuple(slugs) or every, "Comparing student notebooks", progress):
            try:
                generate(root, slug, Path(fresh))
            except ReleaseError as error:
                sentences.append(str(error))
                continue
            sentences += _differences(Path(fresh) / slug, released_folder(root, slug))
    return sentences


# nbgrader ------------------------------------------------------------------------------------


def generate(root: Path, slug: str, into: Path, *, record: bool = False) -> Path:
    """Make a chapter's student notebook by `nbgrader generate_assignment`.

    Args:
        root: the course's folder, with `nbgrader_config.py` and `solutions/`.
        slug: the chapter.
        into: the folder in which nbgrader makes the folder `slug`.
        record: enter the assignment and its cells into the gradebook as well.

    Returns:
        the student notebook.

    Raises:
        ReleaseError: it cannot be made, or it would hold something of the solution.
    """
    from nbgrader.converters import GenerateAssignment
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory

    master = _master(root, slug)
    config = nbgrader_config(root)
    config.CourseDirectory.root = str(root.resolve())
    if (home := private.home(root, slug)) != root:
        config.CourseDirectory.source_directory = str(home.resolve() / "solutions")
    config.CourseDirectory.release_directory = str(into)
    if not record:
        config.GenerateAssignment.no_database = True
        config.SaveCells.enabled = False
    directory = CourseDirectory(config=config, assignment_id=slug)
    converter = GenerateAssignment(coursedir=directory, config=config, force=True)
    with _log_of(converter.log) as log, _same_folder():
        try:
            converter.start()
        except NbGraderException as error:
            raise ReleaseError(f"solutions/{slug}: {_cause(log.getvalue(), error)}") from error
    student = into / slug / f"{slug}.ipynb"
    leaked = leaks(master, nbformat.read(student, as_version=4))
    if leaked:
        raise ReleaseError(f"solutions/{slug}: {leaked[0]}")
    return student


def read_solution(root: Path, slug: str) -> NotebookNode:
    """A chapter's solution notebook.

    Raises:
        ReleaseError: it is missing, or cannot be read.
    """
    path = private.home(root, slug) / "solutions" / slug / f"{slug}.ipynb"
    if not path.is_file():
        raise ReleaseError(f"there is no solution solutions/{slug}/{slug}.ipynb")
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises what its readers raise
        first = str(error).partition("\n")[0][:120]
        raise ReleaseError(f"solutions/{slug}/{slug}.ipynb cannot be read: {first}") from error


def _master(root: Path, slug: str) -> NotebookNode:
    master = read_solution(root, slug)
    faults = markers.faults(master)
    if faults:
        raise ReleaseError(f"solutions/{slug}: {faults[0]}")
    return master


def nbgrader_config(root: Path) -> Any:
    from traitlets.config.loader import ConfigFileNotFound, PyFileConfigLoader

    try:
        return PyFileConfigLoader("nbgrader_config.py", path=str(root)).load_config()
    except ConfigFileNotFound as error:
        raise ReleaseError(f"there is no nbgrader_config.py in {root}") from error


@contextmanager
def _log_of(log: logging.Logger) -> Iterator[io.StringIO]:
    """Keep what nbgrader logs: it is of interest only if something fails."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    before, propagates = log.handlers[:], log.propagate
    log.handlers, log.propagate = [handler], False
    try:
        yield text
    finally:
        log.handlers, log.propagate = before, propagates


@contextmanager
def _same_folder() -> Iterator[None]:
    """nbgrader changes the working directory, and forgets it where that is gone."""
    before = os.getcwd()
    try:
        yield
    finally:
        os.chdir(before)


def _cause(log: str, error: Exception) -> str:
    """The exception at the end of the first traceback that nbgrader logged."""
    lines = log.partition("Traceback (most recent call last)")[2].splitlines()
    causes = [line for line in lines[1:] if line and not line.startswith((" ", "Traceback"))]
    return causes[0].partition(": ")[2] or causes[0] if causes else str(error)


# What students must not get ------------------------------------------------------------------


def leaks(master: NotebookNode, student: NotebookNode) -> list[str]:
    """What of a solution notebook a student notebook still holds: a sentence for each place."""
    secrets = {
        line.strip()
        for cell in master.cells
        for line in markers.withheld(cell.source)
        if len(line.strip()) > 12  # "return x" may well stand in a hint or an example
    }
    sentences = []
    for cell in student.cells:
        where = f"cell {cell.get('id', '?')} of the student notebook"
        lines = [line.strip() for line in cell.source.splitlines()]
        # A bug hunt's wrong function has right lines too, and is printed on purpose.
        told = set() if cell.metadata.get("coursework", {}).get("role") == "suspect" else secrets
        sentences += [f"{where} holds a line of the solution: {x!r}" for x in lines if x in told]
        sentences += [f"{where} holds the marker {x!r}" for x in lines if x in markers.MARKERS]
        if cell.get("outputs") or cell.get("execution_count"):
            sentences.append(f"{where} holds outputs")
        if "graded=True" in cell.source:
            sentences.append(f"{where} holds a graded test")
    return sentences


# Files ---------------------------------------------------------------------------------------


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part in IGNORED for part in path.parts)
    }


def _differences(fresh: Path, there: Path) -> list[str]:
    wanted, found = _files(fresh), _files(there)
    name = f"notebooks/{there.name}"
    return [
        *(f"{name}/{f} is missing" for f in wanted if f not in found),
        *(f"{name}/{f} comes from no solution" for f in found if f not in wanted),
        *(
            f"{name}/{f} is not what solutions/{there.name} gives now"
            for f in wanted
            if f in found and wanted[f] != found[f]
        ),
    ]


def _install(fresh: Path, there: Path) -> bool:
    """Make a folder equal to a fresh one, file by file; returns whether anything changed."""
    wanted, found = _files(fresh), _files(there)
    for name in found.keys() - wanted.keys():
        (there / name).unlink()
    changed = [name for name in wanted if wanted[name] != found.get(name)]
    for name in changed:
        target = there / name
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.new")
        aside.write_bytes(wanted[name])
        os.replace(aside, target)
    return bool(changed or found.keys() - wanted.keys())


def _shown(items: Iterable[str], what: str, progress: bool) -> Iterable[str]:
    """The items, behind a progress bar if wanted."""
    if not progress:
        return items
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(
        tuple(items),
        description=what,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
