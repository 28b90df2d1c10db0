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


class NoBreak(SphinxPostTransform):
    default_priority = 300  # when the numbers of cells stand in the prose
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        for parent in self.document.findall(nodes.Element):
            if isinstance(parent, VERBATIM):
                continue
            for place, child in enumerate(parent.children):  # some do not know their parent
                if isinstance(child, nodes.Text) and (text := joined(str(child))) != child:
                    parent[place] = nodes.Text(text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(NoBreak)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
