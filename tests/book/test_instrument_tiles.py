"""The tiles of the online softmax: what they show is what `attend` computes."""

import numpy as np
import pytest

from attend.dot_product import softmax
from attend.long_context import merge_softmax_blocks, softmax_block
from tests.book import test_instruments as instruments
from tests.book.test_instruments import PHONE, reveal, same, sentence, table_of

pytestmark = pytest.mark.browser

visit, compute = instruments.visit, instruments.compute  # fixtures are found by these names
TAG = "attend-tiles"
SCORES = np.array([0.0, 2.0, 5.0, 1.0, 4.0, 0.5])
VALUES = np.array([1.0, -1.0, 2.0, 0.5, -2.0, 3.0])
EMPTY = (np.array(-np.inf), np.array(0.0), np.array([0.0]))


def plain(block):
    """A block of attend as the page has it."""
    largest, total, output = block
    return {"max": float(largest), "sum": float(total), "output": output.tolist()}


def running(size, seen, scores=SCORES):
    """Running maximum, sum and output after `seen` keys, by attend."""
    state = EMPTY
    for start in range(0, seen, size):
        tile = slice(start, start + size)
        state = merge_softmax_blocks(state, softmax_block(scores[tile], VALUES[tile, None]))
    return float(state[0]), float(state[1]), float(state[2][0])


def keys_seen(page):
    return page.get_by_role("slider", name="keys seen")


def together(page):
    """Maximum, sum and output of the last row of the second table, as numbers."""
    return table_of(page, "table:last-of-type tbody tr:last-child td:nth-of-type(-n + 3)")


def test_blocks_in_the_page_equal_those_of_attend(compute):
    rng = np.random.default_rng(0)
    blocks = [softmax_block(rng.standard_normal(n), rng.standard_normal((n, 3))) for n in (5, 7)]
    merged = compute("mergeSoftmaxBlocks", *map(plain, blocks))
    expected = plain(merge_softmax_blocks(*blocks))
    for part in ("max", "sum", "output"):
        same(merged[part], expected[part])
    scores, values = rng.standard_normal(5), rng.standard_normal((5, 2))
    block = compute("softmaxBlock", scores, values)
    for part, right in plain(softmax_block(scores, values)).items():
        same(block[part], right)


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_the_tiles_show_what_attend_computes(visit, size):
    page = visit(TAG)
    reveal(page, TAG)
    page.get_by_label(str(size), exact=True).check()
    for seen in range(size, 7, size):
        keys_seen(page).fill(str(seen))
        np.testing.assert_allclose(together(page), running(size, seen), atol=0.000501)
        whole = softmax(SCORES[:seen]) @ VALUES[:seen]
        assert f"at once give {whole:.4f}: the same." in sentence(page)


def test_without_rescaling_the_result_is_another_one_unless_the_first_tile_leads(visit):
    page = visit(TAG)
    reveal(page, TAG)
    keys_seen(page).fill("6")
    assert sentence(page).endswith(": the same.")
    page.get_by_role("switch").uncheck()
    assert sentence(page).endswith(": not the same.")
    page.get_by_label("6", exact=True).check()
    assert sentence(page).endswith(": the same.")


def test_the_terms_count_from_the_running_maximum_and_what_is_not_seen_counts_nothing(visit):
    page = visit(TAG)
    reveal(page, TAG)
    keys_seen(page).fill("4")
    terms = page.locator("table:first-of-type tbody tr:last-child td").all_inner_texts()
    np.testing.assert_allclose([float(t) for t in terms[:4]], np.exp(SCORES[:4] - 5), atol=0.00501)
    assert terms[4:] == ["–", "–"]
    outlined = page.locator("tr:last-child td.instrument-tile").all_inner_texts()
    assert outlined == terms[2:4]


def test_the_right_guess_is_the_one_that_attend_says(visit):
    first, second = running(2, 2), running(2, 4)
    added = second[1] - (np.exp(SCORES[2:4] - second[0])).sum()
    assert added == pytest.approx(first[1] * np.exp(2 - 5))
    page = visit(TAG)
    verdict = reveal(page, TAG, choice=1).locator(".instrument-verdict p").first.inner_text()
    assert verdict.startswith("Yes:")
    assert f"{first[1]:.3f} becomes {added:.3f}" in verdict


def test_powers_are_raised_and_the_question_is_not_the_example_of_the_page(visit):
    page = visit(TAG)
    assert "^" not in page.locator(TAG).inner_text()
    choice = page.locator(".instrument-choices button").nth(1)
    assert choice.locator("sup").inner_text() == "2\N{MINUS SIGN}5"
    choice.click()
    verdict = page.locator(".instrument-verdict p").first
    assert verdict.locator("sup").first.inner_text() == "2\N{MINUS SIGN}5"
    assert page.get_by_text("a term is e").is_visible()
    text = (instruments.ROOT / "book/10-long-context.md").read_text("utf-8")
    assert "scores = np.array([1.0, 3.0, 2.0, 5.0" in text
    assert "row = np.array([0.0, 2.0, 5.0, 1.0, 4.0, 0.5])" in text


def test_other_scores_are_drawn_and_computed_with(visit):
    page = visit(TAG)
    reveal(page, TAG)
    keys_seen(page).fill("6")
    page.get_by_role("button", name="Draw other scores").click()
    scores = table_of(page, "table:first-of-type tbody tr:first-child td")
    assert not np.array_equal(scores, SCORES)
    np.testing.assert_allclose(together(page), running(2, 6, scores), atol=0.000501)


def test_the_tiles_work_by_keyboard_alone(visit):
    page = visit(TAG)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".instrument-verdict").inner_text().startswith("Yes:")
    keys_seen(page).press("End")
    assert "6 of 6 keys seen" in sentence(page)
    keys_seen(page).press("ArrowLeft")
    assert "4 of 6 keys seen" in sentence(page)
    keys_seen(page).press("Tab")
    page.keyboard.press("ArrowRight")
    assert page.get_by_label("3", exact=True).is_checked()
    assert "6 of 6 keys seen" in sentence(page)  # a tile that is begun is seen whole
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert not page.get_by_role("switch").is_checked()


def test_the_tiles_answer_to_taps(visit):
    page = visit(TAG, **PHONE)
    page.locator(".instrument-choices button").nth(0).tap()
    assert page.locator(".instrument-verdict").inner_text().startswith("Not so:")
    page.locator("fieldset label", has_text="6").tap()
    assert "6 of 6 keys seen" in sentence(page)
    page.get_by_text("rescale the old part").tap()
    assert not page.get_by_role("switch").is_checked()
