"""The words of chapter 01 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest

import attend
from tests.book.cells import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("01-tokens")


def number(page, name: str) -> float:
    return float(page.said[f"tokens-{name}"].replace(",", ""))


def test_a_list_of_words_is_never_complete_and_bytes_are_few(page):
    assert number(page, "new") > 100
    assert number(page, "different-bytes") == number(page, "different-characters") < 256
    assert number(page, "different-words") > 6000


def test_the_small_text_ends_as_it_is_drawn(page):
    assert page.names["learned"] == attend.train_bpe_plainly("banana bandana", 9)
    assert number(page, "tiny-merges") == 3, "after three merges no pair occurs twice"
    assert number(page, "tied") == 2
    assert number(page, "tiny-after") == 6


def test_every_merge_shortens_and_each_a_little_less(page):
    lengths = page.names["followed"]["novel, trained on"][0]
    saved = -np.diff(lengths)
    assert np.all(saved >= 1)
    assert saved[:100].mean() > 10 * saved[-100:].mean()
    assert number(page, "last-thousand") < number(page, "first-hundred") / 4


def test_the_order_of_the_curves_is_that_of_the_caption(page):
    gain = {name: lengths[0] / lengths[-1] for name, (lengths, _) in page.names["followed"].items()}
    names = ("novel, trained on", "novel, not seen")
    assert gain[names[0]] > gain[names[1]] > max(v for k, v in gain.items() if k not in names)
    assert gain["novel, not seen"] > 0.75 * gain["novel, trained on"], "nearly as much"
    assert gain["Japanese"] == 1, "not at all"
    assert max(gain["German"], gain["Python code"]) < 2.5, "end near two"


def test_the_same_sentence_costs_more_elsewhere(page):
    sizes = page.names["sizes"]
    assert sizes["English"] == min(sizes.values())
    assert sizes["Greek"] == max(sizes.values()) > 4 * sizes["English"]


def test_arrays_merge_as_lists_do(page):
    rng = np.random.default_rng(3)
    for _ in range(200):
        row = rng.integers(0, 2, rng.integers(0, 13))
        for pair in ((0, 0), (0, 1)):
            merged = page.names["merge_everywhere"](row, pair, 7)
            assert merged.tolist() == attend.merge_pair(row.tolist(), pair, 7)


def test_some_tokens_are_only_steps_to_longer_ones(page):
    assert number(page, "never") > 0
    assert number(page, "median-use") < 100


def test_everything_comes_back_and_random_ids_do_not(page):
    assert page.names["kept"] == len(page.names["awkward"])
    assert 0.2 < np.mean(page.names["back"]) < 0.8
    assert 0.05 < np.mean(page.names["broken"]) < 0.8


def test_the_longest_match_comes_back_and_is_another_spelling(page):
    names = page.names
    assert names["decode"](names["greedy"], names["merges"]) == names["page"]
    assert names["differ"] > 0.05


def test_cutting_a_text_changes_its_ids(page):
    assert np.mean(page.names["moved"]) > 0.2
    pieces, merges, by_price = (page.names[name] for name in ("pieces", "merges", "by_price"))
    assert pieces("she said", merges)[0] == "she " != pieces("she", merges)[0]
    spelt = {number: pieces(f" {number} ", by_price) for number in (1813, 18134, 11813)}
    assert spelt == {
        1813: [" 18", "1", "3", " "],
        18134: [" 18", "1", "3", "4", " "],
        11813: [" 11", "8", "1", "3", " "],
    }
