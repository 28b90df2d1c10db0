"""Exercises of an instructor's own, in a folder outside the repository.

The environment variable `COURSE_EXERCISES` names the folder, which is laid out as the course is:

    chapters.py               CHAPTERS: number (50 to 99), topic and title of each
    exam/                     the declarations of a chapter, as in `coursework/exercises/`
    right_answers/exam.py     for the general tests
    solutions/50-exam/        the solution notebook; notebooks/50-exam/ is made from it

The folder lies on the path of the package `coursework.exercises`, so that its declarations are
imported by names like those of published ones. It is named by a variable and not in a file because
checks run in many processes (notebooks, nbgrader, the judge), each of which inherits it. Workers,
which run student code, do not: they get variables of their own and see nothing of the folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from coursework.chapters import CHAPTERS, PRIVATE, Chapter
from coursework.errors import CourseError

VARIABLE = "COURSE_EXERCISES"
PACKAGE = "coursework.exercises"
#: Names in the folder that are no chapter's, and modules that lie beside the published ones.
RESERVED = ("chapters", "right_answers", "solutions", "notebooks", "conditions", "inputs")


def folder() -> Path | None:
    """The folder that the environment names; None if it names none."""
    value = os.environ.get(VARIABLE)
    return Path(value).expanduser() if value else None


@cache
def chapters() -> tuple[Chapter, ...]:
    """The private chapters that are declared here.

    Raises:
        CourseError: the folder is not there, or its `chapters.py` is not as it must be.
    """
    there = folder()
    if there and not (there.is_absolute() and (there / "chapters.py").is_file()):
        raise CourseError(
            f"{VARIABLE} must name a folder with a chapters.py, by its whole path, and it says "
            f"{there}. course new-exercise --into DIR lays one out"
        )
    if find_spec(f"{PACKAGE}.chapters") is None:
        return ()
    listed = tuple(getattr(load("chapters"), "CHAPTERS", ()))
    refuse_misfits(listed)
    return listed


def refuse_misfits(listed: Sequence[Chapter]) -> None:
    """See to it that private chapters keep to their numbers and to names of their own.

    Raises:
        CourseError: one does not.
    """
    numbers, topics = [c.number for c in listed], [c.topic for c in listed]
    taken = {*RESERVED, *(c.topic for c in CHAPTERS), *_names_in_the_package()}
    for chapter in listed:
        if chapter.number not in PRIVATE:
            raise CourseError(
                f"chapter {chapter.slug} is private: its number must be from {PRIVATE[0]} to "
                f"{PRIVATE[-1]}"
            )
        if chapter.topic in taken:
            raise CourseError(f"the topic {chapter.topic} is the course's own: choose another")
        if numbers.count(chapter.number) > 1 or topics.count(chapter.topic) > 1:
            raise CourseError(f"two private chapters are like {chapter.slug} in number or topic")


def _names_in_the_package() -> set[str]:
    """Names that a package of declarations would take away from `coursework.exercises`."""
    package = import_module(PACKAGE)
    modules = {n for n in vars(package) if f"{PACKAGE}.{n}" in sys.modules}
    return set(vars(package)) - modules


def load(name: str) -> ModuleType:
    """A private module of declarations.

    Raises:
        CourseError: it cannot be imported; the message says why.
    """
    try:
        return import_module(f"{PACKAGE}.{name}")
    except Exception as error:  # it may hold anything: one's own exam must not end in a traceback
        why = f"{type(error).__name__}: {error}"
        raise CourseError(f"the private exercises in {name} cannot be loaded: {why}") from error


def home(root: Path, slug: str) -> Path:
    """The folder with `solutions/` and `notebooks/` of an assignment: the private one or `root`."""
    return (folder() if is_private(slug) else None) or root


def homes(root: Path) -> tuple[Path, ...]:
    """All folders with `solutions/` and `notebooks/`."""
    there = folder()
    return (root, there) if there else (root,)


def files() -> list[Path]:
    """All declarations of the folder."""
    there = folder()
    found = sorted(there.rglob("*.py")) if there else []
    return [p for p in found if not p.is_relative_to(there / "right_answers")]  # type: ignore[operator]


def is_private(name: str) -> bool:
    """Whether a slug or an id is that of a private chapter."""
    return name[:2].isdecimal() and int(name[:2]) in PRIVATE


def is_elsewhere(name: str) -> bool:
    """Whether a slug or an id is a private one whose declarations are not on this machine."""
    return (
        is_private(name)
        and folder() is None
        and not any(f"{c.number}" == name[:2] for c in chapters())
    )


def elsewhere(name: str) -> str:
    """What there is to say of one."""
    return (
        f"the exercises of {name} are an instructor's own and not on this machine: hand in the "
        f"notebook as it is, they are checked then (for instructors: {VARIABLE} is not set)"
    )


def unknown(slug: str) -> str:
    """What there is to say of work for an assignment that the course does not have."""
    there = folder()
    names = f"names {there}" if there else "is not set"
    return (
        f"this course has no assignment {slug}. An instructor's own are found by the variable "
        f"{VARIABLE}, which {names}"
    )


def use(path: Path) -> None:
    """Take private exercises from a folder, in this process and in those that it starts."""
    os.environ[VARIABLE] = str(path)
    package = import_module(PACKAGE)
    package.__path__[1:] = [str(path)]
    sys.modules.pop(f"{PACKAGE}.chapters", None)
    invalidate_caches()
    chapters.cache_clear()
