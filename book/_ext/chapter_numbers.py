"""Number by chapter: Figure 4.1 is the first of chapter 04, and the list of chapters says 04.
A page that is no chapter has its own Figure 1.

Sphinx would count figures through the whole book, and chapters by its own count of pages.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

CHAPTER = re.compile(r"book/(\d\d)-")


def renumber(app: Sphinx, env: BuildEnvironment) -> None:
    for page, kinds in env.toc_fignumbers.items():
        chapter = CHAPTER.match(page)
        place = (int(chapter[1]),) if chapter else ()
        for kind, numbers in kinds.items():
            counted = enumerate(numbers, start=1)
            kinds[kind] = {label: (*place, count) for count, label in counted}


def number_chapters(app: Sphinx, env: BuildEnvironment) -> None:
    """Put the chapter's number before its title in lists of contents."""
    for page, contents in env.tocs.items():
        chapter = CHAPTER.match(page)
        entry = next(contents.findall(nodes.reference), None)
        if chapter and entry is not None:
            entry.insert(0, nodes.inline("", f"{chapter[1]} ", classes=["chapter-number"]))


def setup(app: Sphinx) -> dict[str, bool]:
    # After all pages are read and all numbers given out.
    app.connect("env-check-consistency", renumber)
    app.connect("env-check-consistency", number_chapters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
