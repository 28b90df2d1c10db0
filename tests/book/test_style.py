"""The look of the pages, on plain ones that hold what is looked at: nothing is built."""

import pytest

from tests.book.conftest import ROOT

pytestmark = pytest.mark.browser

COLOURS_OF_CODE = """
    .highlight { background: #f2f2f2 }
    html[data-theme="dark"] .highlight { background: #0d1117; color: #c9d1d9 }
"""
CODE = "<div class='highlight-python notranslate'><div class='highlight'><pre>{}</pre></div></div>"
OUTPUT = "<div class='cell'><div class='cell_output'><div class='output'>{}</div></div></div>"


@pytest.fixture
def open_page(chromium, tmp_path):
    """Opens a page with the style of the book, after that of its code as in a built page."""
    pages = []

    def open_it(body, *, theme="light", width=800):
        file = tmp_path / "page.html"
        style = (ROOT / "book/_static/course.css").as_uri()
        file.write_text(
            f"<!doctype html><html lang='en' data-theme='{theme}'><style>{COLOURS_OF_CODE}</style>"
            f"<link rel='stylesheet' href='{style}'><article class='bd-article'>{body}</article>",
            encoding="utf-8",
        )
        page = chromium.new_page(viewport={"width": width, "height": 600})
        pages.append(page)
        page.goto(file.as_uri())
        return page

    yield open_it
    for page in pages:
        page.close()


def style(page, selector, name):
    return page.locator(selector).first.evaluate(
        "(node, name) => getComputedStyle(node)[name]", name
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_code_has_one_ground_and_no_bands(open_page, theme):
    page = open_page(CODE.format("x = 1"), theme=theme)
    assert style(page, ".highlight", "backgroundColor") == "rgba(0, 0, 0, 0)"
    assert style(page, "pre", "backgroundColor") != "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_code_and_output_have_the_shade_of_what_goes_on_sideways(open_page, theme):
    body = CODE.format("x" * 300) + OUTPUT.format(CODE.format("y" * 300))
    page = open_page(body + "<div class='math-scroll'>z</div>", theme=theme, width=320)
    for place in (".highlight pre", ".output pre", ".math-scroll"):
        assert style(page, place, "backgroundImage").count("linear-gradient") == 4, place
        assert style(page, place, "backgroundAttachment").startswith("local, local, scroll, scroll")
    grounds = {style(page, place, "backgroundColor") for place in (".output pre", ".math-scroll")}
    assert len(grounds) == 1
    assert style(page, "pre", "backgroundColor") not in grounds
