"""The chapters: their numbers, slugs and titles, in one place.

`CHAPTERS` are the published ones. An instructor may add others, with numbers from 50 on
(`coursework.private`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    """A chapter. Its slug names the page, the assignment and the notebook."""

    number: int
    topic: str  #: names modules and tests: `exercises/scaling.py`, `test_scaling.py`
    title: str
    #: Modules of `attend` that this chapter completes; of a private one: that its answers must do
    #: without.
    modules: tuple[str, ...] = ()
    needs_torch: bool = False

    @property
    def slug(self) -> str:
        return f"{self.number:02d}-{self.topic.replace('_', '-')}"


CHAPTERS = (
    Chapter(0, "why_attention", "Why attention"),
    Chapter(
        1,
        "tokens",
        "Tokens and embeddings",
        ("tokens", "tokenizer", "wordpiece", "embeddings"),
    ),
    Chapter(2, "positions", "Positions", ("positions",)),
    Chapter(3, "qkv", "Query, key, value"),
    Chapter(4, "scaling", "The √d_k", ("dot_product",)),
    Chapter(5, "masking", "Causal masking", ("masks",)),
    Chapter(6, "heads", "Many heads", ("heads",)),
    Chapter(7, "block", "The block", ("blocks", "layers"), needs_torch=True),
    Chapter(
        8,
        "language_model",
        "A language model",
        ("model", "sampling", "training"),
        needs_torch=True,
    ),
    Chapter(9, "kv_cache", "The KV cache", ("cache",), needs_torch=True),
    Chapter(10, "long_context", "Long contexts", ("long_context",)),
    Chapter(11, "reading_heads", "Reading heads", ("reading",), needs_torch=True),
    Chapter(
        12,
        "real_model",
        "Your code runs a real model",
        ("pretrained", "checkpoints"),
        needs_torch=True,
    ),
)


PRIVATE = range(50, 100)  #: numbers of the chapters that an instructor adds


def chapters() -> tuple[Chapter, ...]:
    """The published chapters and, where there are any, an instructor's own.

    Raises:
        CourseError: the folder of the instructor's own is not as it must be.
    """
    from coursework import private

    return (*CHAPTERS, *private.chapters())


def by_number(number: int) -> Chapter:
    """The chapter of a number that is known to be one."""
    return next(c for c in chapters() if c.number == number)


def by_slug(slug: str) -> Chapter:
    """The chapter of a slug such as `04-scaling`, or of its number alone: `04`, `4`.

    Raises:
        ValueError: there is none; the message names the slugs that are near.
    """
    for chapter in chapters():
        if chapter.slug == slug or (slug.isdecimal() and int(slug) == chapter.number):
            return chapter
    from difflib import get_close_matches

    from coursework import private

    if private.is_elsewhere(slug):
        raise ValueError(private.elsewhere(slug))
    slugs = [chapter.slug for chapter in chapters()]
    near = get_close_matches(slug, slugs, n=3, cutoff=0.6)
    hint = f"did you mean {listed(near, 'or')}?" if near else f"there are {listed(slugs, 'and')}"
    raise ValueError(f"there is no chapter {slug!r}; {hint}")


def listed(names: Sequence[str], word: str) -> str:
    """Names as a sentence lists them: `a, b or c`."""
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last


def chapters_from(number: int) -> tuple[Chapter, ...]:
    """A published chapter and those after it; a private one alone, which stands in no order."""
    return tuple(c for c in CHAPTERS if c.number >= number) or (by_number(number),)


def modules_from(number: int) -> tuple[str, ...]:
    """Modules of `attend` that chapter `number` or a later one completes; a private one's own."""
    return tuple(f"attend.{module}" for c in chapters_from(number) for module in c.modules)
