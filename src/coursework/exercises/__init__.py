"""All exercises, declared one module a chapter; `exercises()` lists their ids.

A module is named by its chapter's topic and holds `EXERCISES`, in the order of the notebook, and
`BUG_HUNT`. Those of an instructor's own chapters lie in another folder (`coursework.private`).
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from functools import cache
from importlib import import_module, invalidate_caches, reload
from importlib.util import find_spec
from types import ModuleType

from coursework import private
from coursework.bug_hunt import BugHunt
from coursework.chapters import Chapter, by_number, chapters_from
from coursework.chapters import chapters as all_chapters
from coursework.exercise import Exercise

if own := private.folder():
    __path__.append(str(own))


@cache
def _module(chapter: Chapter) -> ModuleType | None:
    if not _is_declared(chapter):
        return None
    if private.is_private(chapter.slug):
        return private.load(chapter.topic)
    return import_module(f"{__name__}.{chapter.topic}")


def declare_again(chapter: Chapter) -> None:
    """Read the declarations of a chapter anew, which have been added to."""
    _module.cache_clear()
    invalidate_caches()
    module = sys.modules.get(f"{__name__}.{chapter.topic}")
    if module:
        reload(module)


def _is_declared(chapter: Chapter) -> bool:
    return find_spec(f"{__name__}.{chapter.topic}") is not None and not lacks_torch(chapter)


def lacks_torch(chapter: Chapter) -> bool:
    """Whether a chapter's exercises cannot be had here, because they need PyTorch."""
    return chapter.needs_torch and find_spec("torch") is None


def declared_chapters() -> tuple[Chapter, ...]:
    """Chapters that have exercises, without those that need PyTorch where it is not installed."""
    return tuple(c for c in all_chapters() if _is_declared(c))


def bug_hunt_of(chapter: Chapter) -> BugHunt | None:
    """The chapter's bug hunt, from which an exercise is made for each wrong function."""
    return getattr(_module(chapter), "BUG_HUNT", None)


def for_chapter(number: int, variant: int | None = None) -> tuple[Exercise, ...]:
    """Exercises of a chapter in the order of its notebook, the bug hunt last.

    Args:
        number: the chapter's number.
        variant: which wrong function the bug hunt is about; None: the published notebook's.
    """
    chapter = by_number(number)
    module = _module(chapter)
    if module is None:
        return ()
    hunt = bug_hunt_of(chapter)
    return (*module.EXERCISES, *((hunt.exercise(variant),) if hunt else ()))


def all_exercises() -> tuple[Exercise, ...]:
    """Every exercise of the course, and an instructor's own."""
    return tuple(e for c in all_chapters() for e in for_chapter(c.number))


def asked_from(number: int) -> tuple[Exercise, ...]:
    """The exercises of a chapter and of those after it, which its students are to answer alone.

    For a chapter in NumPy only those in NumPy: the others would load PyTorch for nothing.
    """
    first, *after = chapters_from(number)
    later = [first, *(c for c in after if first.needs_torch or not c.needs_torch)]
    return tuple(e for c in later for e in for_chapter(c.number))


def ids() -> list[str]:
    """Ids of all exercises: the chapter's number, a dot and the name."""
    return [e.id for e in all_exercises()]


def get(id: str, variant: int | None = None) -> Exercise:
    """The exercise of an id.

    Raises:
        ValueError: there is none; the message names ids that are near.
    """
    number = id[:2] if type(id) is str else ""
    chapter = next((c for c in all_chapters() if f"{c.number:02d}" == number), None)
    if chapter and lacks_torch(chapter):
        raise ValueError(
            f"exercise {id!r} needs PyTorch, which is not installed: pip install torch"
        )
    if type(id) is str and private.is_elsewhere(id):
        raise ValueError(private.elsewhere(id))
    known = {e.id: e for e in (for_chapter(chapter.number) if chapter else ())}
    if type(id) is not str or id not in known:
        known = {e.id: e for e in all_exercises()}
        near = get_close_matches(str(id), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
        raise ValueError(f"there is no exercise {id!r}: {hint}")
    if variant is None:
        return known[id]
    return next(e for e in for_chapter(known[id].chapter, variant) if e.id == id)


class _Callable(ModuleType):
    """Lets `from coursework import exercises; exercises()` list ids, beside being this package."""

    def __call__(self) -> list[str]:
        return ids()


sys.modules[__name__].__class__ = _Callable
