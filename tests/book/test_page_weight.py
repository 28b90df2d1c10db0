"""What a page asks of a reader's line, and whether it moves under the reader's eyes.

How long it takes is measured by `benchmarks/page_weight.py`: here that would depend on the machine.
"""

import pytest

from benchmarks.page_weight import load
from tests.book.conftest import pages

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("page", pages())
def test_a_page_is_light_asks_for_little_and_lies_still(chromium, site, page):
    cost = load(chromium, f"{site}/{page}.html")
    assert cost["kilobytes"] < 400
    assert cost["requests"] < 25
    assert cost["shift"] < 0.05, cost["moved"]


#: The heaviest pages: with much above the first formula, figure, instrument or model.
HEAVY = ("02-positions", "04-scaling", "08-language-model", "12-real-model")


@pytest.mark.parametrize("page", [f"book/{name}" for name in HEAVY])
def test_a_page_lies_still_on_a_slow_phone(chromium, site, page):
    cost = load(chromium, f"{site}/{page}.html", width=390, slowdown=4)
    assert cost["shift"] < 0.05, cost["moved"]
