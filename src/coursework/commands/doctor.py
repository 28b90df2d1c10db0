"""`course doctor`: what this machine has, and what it lacks for what."""

from __future__ import annotations

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version

import typer
from rich.table import Table

from coursework import private
from coursework.classroom import Course, NoCourse
from coursework.commands.console import out
from coursework.judge.sandbox import why_not_strict

#: Package, and what it is needed for.
_PACKAGES = (
    ("numpy", "chapters 01–06 and 10"),
    ("torch", "chapters 07–09, 11 and 12"),
    ("jupyterlab", "working in notebooks"),
    ("nbgrader", "grading a class"),
    ("distributed", "grading on a Dask cluster"),
    ("psycopg", "a gradebook on a PostgreSQL server"),
    ("jupyter-book", "building the book"),
)


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor() -> None:
    """Say what this machine has, and what is missing for which part of the course."""
    table = Table("part", "found", "needed for", box=None, pad_edge=False)
    table.add_row("Python", platform.python_version(), "everything (3.11 or newer)")
    for package, purpose in _PACKAGES:
        table.add_row(package, _version(package), purpose)
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    table.add_row("Chromium", browser or "not found", "testing the pages, and make pdf")
    reason = why_not_strict()
    level = f"process ({reason})" if reason else "strict (bubblewrap)"
    table.add_row("isolation", level, "grading what strangers wrote: strict")
    table.add_row("course", _course(), "commands for instructors")
    own = f"{private.folder() or 'none'} ({private.VARIABLE})"
    table.add_row("own exercises", own, "assignments of an instructor's own")
    out.print(table)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _course() -> str:
    try:
        return str(Course.find().root)
    except NoCourse:
        return "not in this folder (students need none)"
