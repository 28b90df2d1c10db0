"""Arguments that several commands share."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from coursework.chapters import by_slug
from coursework.classroom import Course
from coursework.errors import CourseError

Slugs = Annotated[
    list[str] | None,
    typer.Argument(help="Chapters, such as 04-scaling. None: all that there are.", metavar="SLUG"),
]


def known(slug: str) -> str:
    """The slug of a chapter, checked.

    Raises:
        CourseError: there is no such chapter; the message names near ones.
    """
    try:
        return by_slug(slug).slug
    except ValueError as error:
        raise CourseError(str(error)) from error


def chosen(course: Course, slugs: list[str] | None) -> tuple[str, ...]:
    """The assignments that are meant: those that are named, or all.

    Raises:
        CourseError: one does not exist, or has no exercises.
    """
    named = [known(slug) for slug in slugs or ()]
    for slug in named:
        if slug not in course.slugs:
            there = ", ".join(course.slugs)
            raise CourseError(f"chapter {slug} has no exercises; there are some for {there}")
    if not course.slugs:
        raise CourseError(f"{course.root / 'solutions'} holds no notebook")
    return tuple(named or course.slugs)


def writable(path: Path) -> Path:
    """A file that is to be written, checked before the work for it begins.

    Raises:
        CourseError: it is a folder, it would lie in none, or the system lets nobody write there.
    """
    if path.is_dir():
        raise CourseError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise CourseError(f"{path} cannot be written: there is no folder {path.parent}")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            return path
    except OSError as error:
        raise CourseError(f"{path} cannot be written: {error.strerror}") from error
