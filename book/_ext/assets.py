"""Leave out of every page what no page uses, and let scripts wait until the page is there.

What remains of the theme is its style sheet and one script; see also ``layout.html``. All style
sheets become one, ``book.css``: a page is drawn when they are there, and ten take longer than one.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx

UNUSED = {
    "_static/design-tabs.js",  # there are no tabs
    "_static/exercise.css",  # exercises look like every other box
    "_static/scripts/sphinx-book-theme.js",  # margin notes, and the bar that layout.html replaces
}
AT_ONCE = {"_static/documentation_options.js"}  # scripts in the page itself add to it
THEME = "_static/styles/pydata-sphinx-theme.css"  # which its own template would link by itself
URL = re.compile(r"""url\((["']?)(?!data:|#)([^"')]+)""")


def tidy(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    scripts = [file for file in context["script_files"] if file.filename not in UNUSED]
    for script in scripts:
        if script.filename and script.filename not in AT_ONCE:
            script.attributes["defer"] = "defer"
    context["script_files"] = scripts
    for sheet in context["css_files"]:
        app.sheets[sheet.filename] = sheet.priority
    context["css_files"] = []


def bundle(app: Sphinx, failure: Exception | None) -> None:
    """Write the style sheets of all pages, in their order, into one."""
    if failure or app.builder.format != "html":
        return
    used = [name for name in app.sheets if name not in UNUSED]
    names = [THEME, *sorted(used, key=app.sheets.get)]
    sheets = [moved(Path(app.outdir, name).read_text("utf-8"), name) for name in names]
    Path(app.outdir, "_static", "book.css").write_text("\n".join(sheets), "utf-8")


def moved(css: str, name: str) -> str:
    """Return `css`, which was the file `name`, with its addresses as seen from ``_static``."""
    folder = posixpath.dirname(name).removeprefix("_static").lstrip("/")

    def from_static(url: re.Match[str]) -> str:
        quote, address = url.groups()
        return f"url({quote}{posixpath.normpath(posixpath.join(folder, address))}"

    return URL.sub(from_static, css)


def setup(app: Sphinx) -> dict[str, bool]:
    app.sheets = {}  # what pages ask for: the order of each by its name
    app.connect("html-page-context", tidy, priority=900)
    app.connect("build-finished", bundle, priority=900)  # the theme writes pygments.css there too
    return {"parallel_read_safe": True, "parallel_write_safe": False}
