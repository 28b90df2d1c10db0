"""The gallery of heads: what it shows is what its tables say, and everybody can walk through it."""

import numpy as np
import pytest

from tests.book import test_instruments as instruments
from tests.book.test_instruments import PHONE, html, reveal, scripts_of, sentence, table_of
from tests.tools.test_head_gallery import TABLES, census, weights

pytestmark = pytest.mark.browser

visit = instruments.visit  # fixtures are found by their names
TAG = "attend-head-gallery"


@pytest.fixture
def gallery(visit, tmp_path):
    """Opens a page whose gallery has these attributes."""

    def open_gallery(choice=-1, **attributes):
        page = visit(scripts=[])
        given = " ".join(f'{name}="{value}"' for name, value in attributes.items())
        names = ["attention", "instrument", *scripts_of(TAG)]
        file = tmp_path / "gallery.html"
        text = html((TAG,), names, "light").replace(f"<{TAG}>", f"<{TAG} {given}>")
        file.write_text(text, encoding="utf-8")
        page.goto(file.as_uri())
        reveal(page, TAG, choice)
        return page

    return open_gallery


def tokens(model, text):
    return TABLES["weights"][model][text]["tokens"]


def token_button(page, n):
    return page.locator(".instrument-word").nth(n)


def shown(page):
    """The table of the largest weights: tokens and weights."""
    names = page.locator("tbody th").all_inner_texts()
    values = page.locator(".instrument-weight").all_inner_texts()
    return [(n, float(v)) for n, v in zip(names, values, strict=True) if v != "–"]


@pytest.mark.parametrize("model", ["smollm2", "minilm"])
@pytest.mark.parametrize("text", ["tired", "wide", "nurse", "twice"])
def test_a_row_in_the_page_is_that_of_the_tables(visit, model, text):
    page = visit(TAG)
    expected = weights(model, text)
    L, H, T, _ = expected.shape
    for layer, head, query in ((0, 0, 0), (L - 1, H - 1, T - 1), (L // 2, H // 3, T // 2)):
        row = page.evaluate(
            "args => customElements.get('attend-head-gallery').rowOf(...args)",
            [model, text, layer, head, query],
        )
        np.testing.assert_allclose(row, expected[layer, head, query], atol=1e-12)


def test_the_table_and_the_sentence_tell_the_largest_weights_of_the_row(gallery):
    page = gallery(model="minilm", text="tired", layer=3, head=1, token="it")
    row = weights("minilm", "tired")[3, 1, tokens("minilm", "tired").index("it")]
    order = np.argsort(-row, kind="stable")[:5]
    names = tokens("minilm", "tired")
    assert [name for name, _ in shown(page)] == [names[j] for j in order]
    np.testing.assert_allclose([w for _, w in shown(page)], row[order], atol=0.005001)
    assert f"“it” looks at {names[order[0]]} {row[order[0]]:.2f}, " in sentence(page)
    assert sentence(page).startswith("MiniLM-L6, layer 3, head 1: ")


def test_score_and_rank_of_a_head_are_those_of_the_census(gallery):
    page = gallery(layer=7, head=2, score="first")
    scores = census("smollm2", "first").ravel()
    mine = scores[7 * 9 + 2]
    rank = (scores > mine).sum() + 1
    assert f"gives {mine:.2f} of its weight to the first token: rank {rank} of 270" in sentence(
        page
    )


def test_it_begins_with_the_head_that_the_question_is_about(gallery):
    page = gallery()
    layer, head = np.unravel_index(census("smollm2", "previous").argmax(), (30, 9))
    assert sentence(page).startswith(f"SmolLM2-135M, layer {layer}, head {head}: ")
    assert "rank 1 of 270" in sentence(page)


@pytest.mark.parametrize("ask", ["previous", "first", "itself"])
def test_the_right_guess_is_what_the_census_counts(gallery, ask):
    count = int((census("smollm2", ask) > 0.5).sum())
    choice = 0 if count < 20 else 1 if count <= 135 else 2
    page = gallery(choice, ask=ask)
    verdict = page.locator(".instrument-verdict p").first.inner_text()
    assert verdict.startswith("Yes:")
    assert f"It is {count} of 270." in verdict


def moves(model):
    """The furthest that a weight in the row of "it" moves with the ending, head by head."""
    at = tokens(model, "tired").index("it")
    tired, wide = (weights(model, text)[:, :, at] for text in ("tired", "wide"))
    return np.abs(tired - wide).max(axis=-1)


def test_the_ending_moves_few_rows_of_a_reader_and_none_of_a_causal_model(gallery):
    count = int((moves("minilm") > 0.1).sum())
    assert 0 < count < 20
    assert moves("smollm2").max() == 0
    page = gallery(2, ask="ending", model="minilm")
    verdict = page.locator(".instrument-verdict p").first.inner_text()
    assert verdict.startswith("Yes:")
    assert f"It is {count} of 72." in verdict
    assert "0 of 270" in verdict


def test_pointing_at_a_word_shows_its_row(gallery):
    page = gallery()
    token_button(page, 6).hover()
    assert "“street” looks at" in sentence(page)
    assert token_button(page, 6).get_attribute("aria-pressed") == "true"
    assert page.locator("[aria-pressed=true]").count() == 1


def test_pointing_at_the_large_picture_shows_the_row_under_the_pointer(gallery):
    page = gallery()
    box = page.locator(".instrument-matrix").bounding_box()
    step = box["height"] / len(tokens("smollm2", "tired"))
    page.mouse.move(box["x"] + 20, box["y"] + 1.5 * step)
    assert "“animal” looks at" in sentence(page)


def test_the_row_of_the_word_that_asks_is_framed_in_the_picture_of_all_rows(gallery):
    page = gallery()
    token_button(page, 6).click()
    row = page.locator(".instrument-matrix .instrument-row").bounding_box()
    box = page.locator(".instrument-matrix").bounding_box()
    step = box["height"] / len(tokens("smollm2", "tired"))
    assert row["height"] == pytest.approx(step, rel=0.2)
    assert row["y"] - box["y"] == pytest.approx(6 * step, abs=0.2 * step)
    assert page.get_by_text("queries down, keys across").is_visible()


@pytest.mark.parametrize("width", [660, 800])
def test_what_is_chosen_can_be_read_whole(gallery, width):
    page = gallery()
    page.set_viewport_size({"width": width, "height": 900})
    for name in ("Text", "Map: mean weight"):
        needs, has = page.get_by_role("combobox", name=name).evaluate(
            """select => {
                const words = document.createElement("span");
                words.style.font = getComputedStyle(select).font;
                document.body.append(words);
                const widths = [...select.options].map((option) => {
                    words.textContent = option.text;
                    return words.offsetWidth;
                });
                words.remove();
                return [Math.max(...widths) + 36, select.offsetWidth];
            }"""
        )
        assert needs <= has, name


def test_the_map_counts_the_heads_that_the_question_counts_again(gallery):
    page = gallery(ask="previous")
    for score in ("previous", "first"):
        page.get_by_label("Map: mean weight").select_option(score)
        count = int((census("smollm2", score) > 0.5).sum())
        assert page.get_by_text(f"{count} of 270 give it more than half").is_visible()


def test_the_words_are_one_stop_of_the_tab_key_and_arrows_go_through_them(gallery):
    page = gallery()
    token_button(page, 8).focus()
    page.keyboard.press("ArrowLeft")
    assert "“because” looks at" in sentence(page)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    assert "“The” looks at The 1.00." in sentence(page)
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert "“.” looks at" in sentence(page)
    assert page.locator(".instrument-word[tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.locator(".instrument-word:focus").count() == 0


def test_layer_and_head_are_chosen_with_sliders_or_on_the_map(gallery):
    page = gallery(layer=0, head=0)
    page.get_by_role("slider", name="layer").fill("12")
    page.get_by_role("slider", name="head").press("ArrowRight")
    assert "layer 12, head 1:" in sentence(page)
    box = page.locator(".instrument-heads").bounding_box()
    unit = box["width"] / 300
    page.mouse.click(box["x"] + (30 + 9 * 3.5) * unit, box["y"] + (14 + 9 * 4.5) * unit)
    assert "layer 3, head 4:" in sentence(page)
    assert page.get_by_role("slider", name="layer").input_value() == "3"


def test_another_model_keeps_the_word_and_fits_the_controls(gallery):
    page = gallery(token="street")
    page.get_by_label("MiniLM-L6, sees both ways").check()
    assert "“street” looks at" in sentence(page)
    assert page.get_by_role("slider", name="layer").get_attribute("max") == "5"
    assert page.get_by_role("slider", name="head").get_attribute("max") == "11"
    page.get_by_label("Map: mean weight").select_option(label="to the token after")
    page.get_by_label("SmolLM2-135M, causal").check()
    assert "to the token before" in sentence(page)


def test_another_text_keeps_the_head(gallery):
    page = gallery(layer=5, head=3)
    page.get_by_role("combobox", name="Text").select_option("nurse")
    assert "layer 5, head 3:" in sentence(page)
    assert page.locator(".instrument-word").all_inner_texts() == tokens("smollm2", "nurse")


def test_the_gallery_answers_to_taps(visit):
    page = visit(TAG, **PHONE)
    page.locator(".instrument-choices button").first.tap()
    token_button(page, 4).tap()
    assert "“cross” looks at" in sentence(page)


def test_attributes_that_mean_nothing_are_passed_over(gallery):
    page = gallery(model="gpt", text="poem", layer="99", head="x", token="whale", ask="why")
    assert sentence(page).startswith("SmolLM2-135M, layer 29, head 0: “The” looks at ")
    assert len(table_of(page, ".instrument-weight >> nth=0")) == 1
