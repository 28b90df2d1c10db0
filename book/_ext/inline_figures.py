"""Put SVG figures into the page itself, in the page's colours; ask for alt text and captions.

An SVG behind ``<img>`` cannot see the page, so it cannot follow it into the dark. Inside the page
it can: the colours of `attend.figures` become the custom properties of ``course.css``. A figure
in any other colour, without alt text or without a caption is a warning, and so fails the build.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from attend.figures import COLOURS, INK, RULE

logger = logging.getLogger(__name__)

IN_PAGE = {colour: f"var(--course-{name})" for name, colour in COLOURS.items()}
IN_PAGE |= {INK: "currentColor", RULE: "var(--course-rule)"}


STYLE = re.compile(r'\bstyle="[^"]*"')
COLOUR = re.compile(r"(?<![(])#[0-9a-f]{6}\b", re.IGNORECASE)  # not the id in url(#…)


def foreign_colours(svg: str) -> set[str]:
    """Return the colours in `svg` that the course does not have."""
    found = COLOUR.findall(" ".join(STYLE.findall(svg)))
    return {colour.lower() for colour in found} - set(IN_PAGE)


def recoloured(svg: str) -> str:
    """Return `svg` with the course's colours exchanged for the page's."""

    def in_page(style: re.Match[str]) -> str:
        return COLOUR.sub(lambda colour: IN_PAGE.get(colour[0].lower(), colour[0]), style[0])

    return STYLE.sub(in_page, svg)


def with_own_ids(svg: str, prefix: str) -> str:
    """Return `svg` with `prefix` before each id, since ids are one space in a page."""
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", svg)
    return svg


def page_svg(file: str, alt: str, prefix: str) -> str:
    """Return the element ``<svg>`` for a page: no prologue, no metadata, sized by the page."""
    svg = file[file.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    svg = with_own_ids(recoloured(svg), prefix)
    opening, rest = svg.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', opening)
    width = re.search(r'\bwidth="([\d.]+)', opening)
    if not view_box or not width:
        raise ValueError("the <svg> has no viewBox or no width")
    # What says nothing of its fill would be black; glyphs of text are such.
    attributes = f'{view_box[0]} width="{width[1]}pt" fill="currentColor" role="img"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {attributes} aria-label="{escape(alt)}">{rest}'


class InlineFigures(SphinxPostTransform):
    default_priority = 20  # after myst-nb has chosen among the outputs of a cell (4)
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        for number, image in enumerate(list(self.document.findall(nodes.image)), start=1):
            if self.is_described(image) and image["uri"].endswith(".svg"):
                self.put_in_page(image, f"f{number}-")

    def is_described(self, image: nodes.image) -> bool:
        """Return whether the image has alt text; warn about that and about a missing caption."""
        uri = Path(image["uri"]).name
        described = bool(image.get("alt", "").strip())
        if not described:
            logger.warning("no alt text for the image %s", uri, location=image, type="figures")
        figure = next((n for n in self.ancestors(image) if isinstance(n, nodes.figure)), None)
        if figure is None or not any(isinstance(n, nodes.caption) for n in figure.children):
            logger.warning("no caption for the image %s", uri, location=image, type="figures")
        return described

    @staticmethod
    def ancestors(node: nodes.Node):
        while node.parent is not None:
            node = node.parent
            yield node

    def put_in_page(self, image: nodes.image, prefix: str) -> None:
        file = Path(self.app.srcdir, image["uri"]).read_text(encoding="utf-8")
        if foreign := foreign_colours(file):
            message = "colours that the course does not have: %s (see attend.figures.COLOURS)"
            logger.warning(message, ", ".join(sorted(foreign)), location=image, type="figures")
        html = page_svg(file, image["alt"], prefix)
        image.replace_self(nodes.raw("", f'<div class="figure-svg">{html}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(InlineFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
