"""Keep a number and what belongs to it on one line: `2.0 × 10⁻⁴`, `85 MB`."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

SPACE = re.compile(r"(?<=\d) (?=(?:×|%|[kMGT]?B|[KMGT]iB|[mµn]?s|px)(?:\W|$))|(?<=\d ×) (?=\d)")
VERBATIM = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)


def joined(text: str) -> str:
    """Return the text with no-break spaces between numbers and their units."""
    return SPACE.sub("\u00a0", text)


def join_numbers(tree: nodes.Element) -> None:
    """Put no-break spaces into the prose of a tree."""
    for parent in tree.findall(nodes.Element):
        if isinstance(parent, VERBATIM):
            continue
        before = ""  # the end of what comes before: a number may be a node of its own
        for place, child in enumerate(parent.children):  # some do not know their parent
            if isinstance(child, nodes.Text):
                parent[place] = nodes.Text(joined(before + child)[len(before) :])
            before = child.astext()[-3:]


class NoBreak(SphinxPostTransform):
    default_priority = 300  # when the numbers of cells stand in the prose
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        join_numbers(self.document)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(NoBreak)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
