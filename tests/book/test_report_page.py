"""The instructor's page about a class, in a browser: one file that everybody can read."""

from datetime import datetime

import pytest

from coursework.chapters import by_slug
from coursework.feedback import template
from coursework.report import Assignment, Bar, Change, Mistake, Row
from tests.book.conftest import violations

pytestmark = pytest.mark.browser

LONG, MARKUP = "w" * 200, "<img src=x onerror=alert(1)>"
CLASS = Assignment(
    chapter=by_slug("04-scaling"),
    graded=12,
    missing=("ada", LONG),
    waiting=("bob",),
    mean=17.25,
    median=20.0,
    max_points=26.0,
    bars=tuple(Bar(f"{10 * i}–{10 * i + 10} %", i % 4, (i % 4) / 3) for i in range(10)),
    rows=(Row("scaled_dot_product_attention", 15, 6.0, 4.5, 9, 2, 1),) * 3,
    named=(Mistake("row_entropy", "bits", f"Nats are asked for. {LONG}", ("cleo", MARKUP)),),
    unnamed=(Mistake("row_entropy", MARKUP, "", ("dan",), f"return {LONG}", f"# {LONG}"),),
    broken=(("eve", "the file is a web page."),),
    repaired=((MARKUP, "a byte-order mark was taken off"),),
    changes=(Change("fay", None, 3.0), Change("gus", 4.0, 3.5)),
)


@pytest.fixture
def opened(visit, tmp_path):
    def open_page(**settings):
        text = template("report.html").render(
            assignments=[CLASS], students=14, people=16, now=datetime(2026, 3, 4, 5, 6)
        )
        path = tmp_path / "report.html"
        path.write_text(text, encoding="utf-8")
        page = visit(path.as_uri(), **settings)
        page.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        return page

    return open_page


def test_it_asks_for_nothing_and_runs_nothing(opened):
    page = opened()
    assert page.complaints == []
    assert page.locator("img, script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_complain_of(opened, scheme):
    page = opened(color_scheme=scheme, bypass_csp=True)
    assert violations(page) == []


def test_nothing_is_wider_than_a_phone(opened):
    page = opened(width=320)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
