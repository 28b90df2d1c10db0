"""The directive ``{instrument}``: a custom element, and what stands in for it without JavaScript.

::

    ```{instrument} attend-scale
    :label: Softmax and the scale

    Anything here is shown where scripts do not run: a figure that tells the same.
    ```

The element's script is ``instruments/attend-scale.js`` among the static files. Files there whose
names do not begin with ``attend-`` are shared and come first, and then those whose names go on
behind the element's (``attend-scale.data.js``: what a program computed for it). They are asked
for only by pages that hold an instrument. ``:attributes: model=minilm layer=3`` is handed to the
element.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)
FOLDER = "instruments"


class instrument(nodes.General, nodes.Element):
    """A custom element around its stand-in."""


class Instrument(SphinxDirective):
    required_arguments = 1
    option_spec = {
        "label": directives.unchanged_required,
        "attributes": directives.unchanged_required,
    }
    has_content = True

    def run(self) -> list[nodes.Node]:
        tag = self.arguments[0]
        if not re.fullmatch(r"attend(-[a-z]+)+", tag):
            raise self.error(f"{tag!r} is no instrument: names look like attend-scale")
        if "label" not in self.options:
            raise self.error(f"{tag} needs a :label: that says what it is")
        self.assert_has_content()  # the stand-in
        node = instrument(tag=tag, label=self.options["label"], given=self._attributes())
        self.set_source_info(node)
        self.state.nested_parse(self.content, self.content_offset, node)
        return [node]

    def _attributes(self) -> dict[str, str]:
        pairs = [part.partition("=") for part in shlex.split(self.options.get("attributes", ""))]
        for name, equals, _ in pairs:
            if not equals or not re.fullmatch(r"[a-z]+", name):
                raise self.error(f"{name!r} is no attribute: they look like layer=3")
        return {name: value for name, _, value in pairs}


def visit(translator, node: instrument) -> None:
    label = translator.attval(node["label"])
    given = "".join(f' {k}="{translator.attval(v)}"' for k, v in node["given"].items())
    translator.body.append(f'<{node["tag"]} class="instrument" aria-label="{label}"{given}>\n')


def depart(translator, node: instrument) -> None:
    translator.body.append(f"</{node['tag']}>\n")


def files_for(static: Path, tags: list[str]) -> tuple[list[str], list[str]]:
    """Return the scripts and style sheets that a page with these instruments asks for, in order.

    Raises:
        FileNotFoundError: an instrument has no script.
    """
    folder = static / FOLDER
    shared = [p.name for p in sorted(folder.glob("*.js")) if not p.name.startswith("attend-")]
    own = []
    for tag in dict.fromkeys(tags):
        if not (folder / f"{tag}.js").is_file():
            raise FileNotFoundError(f"no script {FOLDER}/{tag}.js among the static files")
        own += [*(p.name for p in sorted(folder.glob(f"{tag}.*.js"))), f"{tag}.js"]
    styles = [p.name for p in sorted(folder.glob("*.css"))]
    return [f"{FOLDER}/{n}" for n in shared + own], [f"{FOLDER}/{n}" for n in styles]


def add_files(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    tags = [node["tag"] for node in doctree.findall(instrument)] if doctree else []
    if not tags:
        return
    try:
        scripts, styles = files_for(Path(app.srcdir, app.config.html_static_path[0]), tags)
    except FileNotFoundError as missing:
        logger.warning("%s", missing, location=page, type="instruments")
        return
    for name in scripts:
        app.add_js_file(name, defer="defer")
    for name in styles:
        app.add_css_file(name)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(instrument, html=(visit, depart))
    app.add_directive("instrument", Instrument)
    app.connect("html-page-context", add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
