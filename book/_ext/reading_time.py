"""Say below the title of a chapter how long it takes to read."""

from __future__ import annotations

import math
import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

WORDS_A_MINUTE = 200
SECONDS_A_FORMULA = 15  # one that stands alone; those within a line count as a word
SECONDS_A_FIGURE = 30
SECONDS_A_LINE_OF_CODE = 4
CHAPTER = re.compile(r"book/\d\d-")


def minutes(doctree: nodes.document) -> int:
    """Return the minutes that a page takes: its prose, and some time for what is not prose.

    Folded code is not counted: it is there for a second reading.
    """
    words = sum(
        len(node.astext().split())
        for node in doctree.findall(nodes.TextElement)
        if isinstance(node, (nodes.paragraph, nodes.title, nodes.caption))
    )
    lines = sum(
        code.astext().count("\n") + 1
        for code in doctree.findall(nodes.literal_block)
        if not is_folded(code)
    )
    seconds = 60 * words / WORDS_A_MINUTE + SECONDS_A_LINE_OF_CODE * lines
    seconds += SECONDS_A_FORMULA * len(list(doctree.findall(nodes.math_block)))
    seconds += SECONDS_A_FIGURE * len(list(doctree.findall(nodes.figure)))
    return max(1, math.ceil(seconds / 60))


def is_folded(node: nodes.Node) -> bool:
    """Return whether a node is inside something that opens only when asked to."""
    while node.parent is not None:
        node = node.parent
        if isinstance(node, nodes.container) and (
            node.get("design_component") == "dropdown" or node.get("hide_mode")
        ):
            return True
    return False


class ReadingTime(SphinxPostTransform):
    default_priority = 6  # after the choice among a cell's outputs (4), before code is folded (199)
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        title = next(self.document.findall(nodes.title), None)
        if title is None or not CHAPTER.match(self.env.docname):
            return
        text = f"About {minutes(self.document)} minutes to read"
        line = nodes.paragraph(text, text, classes=["reading-time"])
        title.parent.insert(title.parent.index(title) + 1, line)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(ReadingTime)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
