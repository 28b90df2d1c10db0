"""Mend what parts of a page tell screen readers wrongly; the tests run axe-core over every page."""

from __future__ import annotations

from sphinx.application import Sphinx

MENDS = {
    # myst-nb hides the words of a fold ("Show the code") behind a label of its own.
    '<summary aria-label="Toggle hidden content">': "<summary>",
    # sphinxcontrib-bibtex writes a list whose entries have a withdrawn role.
    'role="doc-biblioentry"': 'role="listitem"',
}


def mend(app: Sphinx, page: str, template: str, context: dict, doctree: object) -> None:
    if "body" in context:
        for wrong, right in MENDS.items():
            context["body"] = context["body"].replace(wrong, right)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
