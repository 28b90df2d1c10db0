"""The page that a student gets back, in a browser: it is one file, and everybody can read it."""

from dataclasses import replace

import pytest

from coursework import feedback
from coursework.feedback import Marks
from coursework.judge.grading import Result
from tests.book.conftest import violations
from tests.coursework.test_feedback import ATTEMPT, MARKUP, SLUG

pytestmark = pytest.mark.browser

LONG = "w" * 300
MARKS = Marks({}, {"graded_bug_hunt": 1.0}, {"open_question": f"Good. {MARKUP} {LONG}"}, 2.0)
UNREADABLE = replace(ATTEMPT, result=Result(SLUG, "unreadable", f"there is no {LONG}."))
PAGES = {
    "graded": feedback.page(SLUG, f"{MARKUP} {LONG}", ATTEMPT, MARKS),
    "unreadable": feedback.page(SLUG, "ada", UNREADABLE),
    "missing": feedback.page(SLUG, "ada", None),
}
SCHEMES = ("light", "dark")


@pytest.fixture
def opened(visit, tmp_path):
    def open_page(name, **settings):
        path = tmp_path / f"{name}.html"
        path.write_text(PAGES[name], encoding="utf-8")
        return visit(path.as_uri(), **settings)

    return open_page


@pytest.mark.parametrize("name", PAGES)
def test_it_asks_for_nothing_and_runs_nothing(opened, name):
    assert opened(name).complaints == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_to_complain_of(opened, name, scheme):
    # The page forbids all scripts, which would keep axe out as well.
    page = opened(name, color_scheme=scheme, bypass_csp=True)
    assert violations(page) == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_overflows_at_320_pixels(opened, name):
    page = opened(name, width=320)
    assert page.evaluate("document.documentElement.scrollWidth") == 320


def test_it_is_light_or_dark_as_the_reader_likes(opened):
    ground = "getComputedStyle(document.body).backgroundColor"
    colours = {scheme: opened("graded", color_scheme=scheme).evaluate(ground) for scheme in SCHEMES}
    assert colours == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}
