"""nbgrader's markers, the lines between which a notebook's secrets stand.

A line that was meant to be a marker and is spelt in another way releases an answer without a word.
So each marker has one spelling here, and whatever comes near one is a mistake.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

BEGIN_SOLUTION, END_SOLUTION = "### BEGIN SOLUTION", "### END SOLUTION"
BEGIN_HIDDEN, END_HIDDEN = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
PAIRS = {BEGIN_SOLUTION: END_SOLUTION, BEGIN_HIDDEN: END_HIDDEN}
MARKERS = (*PAIRS, *PAIRS.values())

#: nbgrader's other markers. It would obey them, and no cell of this course may hold them.
UNUSED = ("### BEGIN MARK SCHEME", "### END MARK SCHEME", "### AUTOTEST", "### HASHED AUTOTEST")

NEAR = 0.75  #: share of letters in common from which a line was meant to be a marker


def faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with the markers of a notebook: a sentence for each fault."""
    return [f for cell in notebook.cells for f in _faults_of(cell)]


def _faults_of(cell: NotebookNode) -> Iterator[str]:
    where = f"cell {cell.get('id', '?')}"
    yield from (
        f"{where}: {line!r} is no marker; did you mean {near!r}?" for line, near in _misspelt(cell)
    )
    nbgrader = cell.metadata.get("nbgrader", {})
    open_with: str | None = None
    for line in cell.source.splitlines():
        marker = line.strip()
        if marker in PAIRS:
            if open_with:
                yield f"{where}: {marker!r} stands before the end of {open_with!r}"
            if marker == BEGIN_SOLUTION and not nbgrader.get("solution"):
                yield f"{where}: {marker!r} stands in a cell that is not marked as a solution"
            if marker == BEGIN_HIDDEN and (not nbgrader.get("grade") or nbgrader.get("solution")):
                yield f"{where}: {marker!r} stands in a cell that is not marked as a test"
            open_with = marker
        elif marker in PAIRS.values():
            if open_with is None or PAIRS[open_with] != marker:
                yield f"{where}: {marker!r} ends nothing"
            open_with = None
    if open_with:
        yield f"{where}: {open_with!r} has no {PAIRS[open_with]!r}"


def _misspelt(cell: NotebookNode) -> Iterator[tuple[str, str]]:
    """Lines that are near a marker without being one, each with the marker that it is near."""
    for line in cell.source.splitlines():
        if line.strip() in MARKERS:
            continue
        letters = _letters(line)
        scores = {
            m: SequenceMatcher(None, letters, _letters(m)).ratio() for m in (*MARKERS, *UNUSED)
        }
        nearest = max(scores, key=scores.__getitem__)
        # nbgrader obeys its words anywhere in a line; and in code, "##" is kept for markers.
        obeyed = re.search(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS|MARK SCHEME)|AUTOTEST", line)
        kept = cell.cell_type == "code" and line.lstrip().startswith("##")
        comment = line.lstrip().startswith("#") and scores[nearest] >= NEAR
        bare = scores[nearest] >= 0.9
        if obeyed or kept or comment or bare:
            yield line.strip(), nearest


def _letters(line: str) -> str:
    """The letters of a line, in capitals, without accents."""
    plain = unicodedata.normalize("NFKD", line).upper()
    return "".join(c for c in plain if c.isalpha())


def released(source: str) -> str:
    """What of a cell's source is outside all markers."""
    kept, open_with = [], None
    for line in source.splitlines():
        if line.strip() in PAIRS:
            open_with = line.strip()
        elif line.strip() in PAIRS.values():
            open_with = None
        elif open_with is None:
            kept.append(line)
    return "\n".join(kept)


def withheld(source: str) -> list[str]:
    """The lines of a cell's source that stand between markers."""
    outside = set(released(source).splitlines())
    return [
        line for line in source.splitlines() if line.strip() not in MARKERS and line not in outside
    ]
