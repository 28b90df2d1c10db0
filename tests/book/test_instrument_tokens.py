"""The tokens in the page: what they show is what `attend` computes, byte for byte."""

import pytest

import attend
from tests.book import test_instruments as instruments
from tests.book.test_instruments import PHONE, merges, reveal, sentence

pytestmark = pytest.mark.browser

visit = instruments.visit  # a fixture is found by this name
TAG = "attend-tokens"
TEXTS = (
    "the café is here 🙂",
    "It is a truth universally acknowledged",
    "",
    "日本語 naïve\r\n\t\x00\u200d\u0301",
    "1813, 18134",
)
CALL = "([name, args]) => customElements.get('attend-tokens')[name](...args)"


def shown(page):
    """The ids of the tokens in the page."""
    return [int(text) for text in page.locator(".instrument-id").all_inner_texts()]


def name_of(token):
    """What a screen reader says: all that the token holds but the signs for the eye."""
    return token.evaluate(
        "t => [...t.children].filter((s) => !s.ariaHidden).map((s) => s.textContent).join('')"
    )


def write(page, text):
    page.get_by_label("your text").fill(text)


def move(page, n):
    page.get_by_role("slider", name="merges").fill(str(n))


def test_ids_in_the_page_equal_those_of_attend(visit):
    page = visit(TAG)
    learned = merges()
    for text in TEXTS:
        for n in (0, 1, 7, 64, len(learned)):
            ids = page.evaluate(CALL, ["encode", [text, learned, n]])
            assert ids == attend.encode(text, learned[:n]), (text, n)
    # Where merges compete, the one that was learned first goes first.
    for rivals in ([(98, 99), (97, 98), (256, 99)], [(97, 97), (256, 97), (98, 97)]):
        for text in ("abcabc", "aaaabaaa", "bca"):
            ids = page.evaluate(CALL, ["encode", [text, rivals]])
            assert ids == attend.encode(text, rivals)
    tokens = page.evaluate(CALL, ["tokenBytes", [learned]])
    assert tokens == [list(token) for token in attend.token_bytes(learned)]


@pytest.mark.parametrize("n", [0, 5, 200])
def test_the_tokens_show_what_attend_computes(visit, n):
    page = visit(TAG)
    reveal(page, TAG)
    move(page, n)
    for text in TEXTS[:3]:
        write(page, text)
        ids = attend.encode(text, merges()[:n])
        assert shown(page) == ids
        assert f"{len(text.encode())} byte" in sentence(page)
        assert f"{len(ids)} token" in sentence(page)
        assert f"The vocabulary has {256 + n} ids." in sentence(page)


def test_parts_of_a_character_are_shown_as_bytes_and_blanks_by_a_sign(visit):
    page = visit(TAG)
    reveal(page, TAG)
    move(page, 0)
    write(page, "é a\n")
    pieces = page.locator(".instrument-token > span:first-child").all_inner_texts()
    assert pieces == ["C3", "A9", "␣", "a", "↵"]
    assert [name_of(chip) for chip in page.locator(".instrument-token").all()] == [
        "byte C3, id 195",
        "byte A9, id 169",
        "space, id 32",
        "a, id 97",
        "line end, id 10",
    ]


def test_a_token_says_what_it_is_made_of(visit):
    page = visit(TAG)
    reveal(page, TAG)
    write(page, "the")
    move(page, len(merges()))
    (a, b), i = merges()[shown(page)[0] - 256], shown(page)[0]
    page.locator(".instrument-token").first.click()
    note = page.locator(".instrument-note").inner_text()
    assert f"is id {i}: merge {i - 255} made it of" in note
    assert f"({a}) and " in note
    assert f"({b})." in note
    move(page, 0)
    assert "Id 116 is the byte 74: “t”." in page.locator(".instrument-note").inner_text()


def test_the_latest_merge_is_marked_where_it_stands(visit):
    page = visit(TAG)
    reveal(page, TAG)
    write(page, "the theatre")
    for n in (1, 2, 3, 4, 5, 6):
        move(page, n)
        marked = page.locator(".instrument-latest .instrument-id").all_inner_texts()
        ids = attend.encode("the theatre", merges()[:n])
        assert len(marked) == ids.count(255 + n)
        assert f"Merge {n} joins" in sentence(page)


def test_it_starts_with_no_merge_and_goes_from_each_that_joins_here_to_the_next(visit):
    page = visit(TAG)
    reveal(page, TAG)
    text = "the café is here 🙂"
    assert shown(page) == attend.encode(text, [])
    cut = [attend.encode(text, merges()[:n]) for n in range(len(merges()) + 1)]
    steps = [n for n in range(1, len(cut)) if cut[n] != cut[n - 1]]
    assert len(steps) > 3
    slider = page.get_by_role("slider", name="merges")
    for n in [*steps, len(merges())]:
        page.get_by_role("button", name="next that joins here").click()
        assert int(slider.input_value()) == n
        assert shown(page) == cut[n]


def test_where_colours_are_forced_a_part_of_a_character_stays_dashed(visit):
    page = visit(TAG, forced_colors="active")
    reveal(page, TAG)
    write(page, "é a")
    styles = page.locator(".instrument-token").evaluate_all(
        "all => all.map((t) => getComputedStyle(t).borderStyle)"
    )
    assert styles == ["dashed", "dashed", "solid", "solid"]
    assert page.get_by_text("Dashed: no whole character").is_visible()


def test_the_right_guess_counts_bytes(visit):
    page = visit(TAG)
    text = "the café is here 🙂"
    labels = page.locator(".instrument-choices button").all_inner_texts()
    assert labels[2] == f"{len(attend.encode(text, []))}, one a byte"
    verdict = reveal(page, TAG, choice=2).locator(".instrument-verdict p").first.inner_text()
    assert verdict.startswith("Yes:")


def test_the_tokens_work_by_keyboard_alone_with_one_stop_for_the_row(visit):
    page = visit(TAG)
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".instrument-verdict").inner_text().startswith("Yes:")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type("no")
    assert "2 bytes" in sentence(page)
    page.get_by_role("slider", name="merges").press("Home")
    assert "No merge yet" in sentence(page)
    page.keyboard.press("ArrowRight")
    assert "Merge 1 joins" in sentence(page)
    page.keyboard.press("ArrowLeft")
    for _ in range(4):  # past the three buttons
        page.keyboard.press("Tab")
    assert name_of(page.locator(":focus")) == "n, id 110"
    page.keyboard.press("End")
    assert name_of(page.locator(":focus")) == "o, id 111"
    page.keyboard.press("ArrowRight")  # the end holds
    page.keyboard.press("Home")
    assert name_of(page.locator(":focus")) == "n, id 110"
    assert page.locator(".instrument-tokens [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.locator(".instrument-tokens :focus").count() == 0


def test_the_tokens_answer_to_taps(visit):
    page = visit(TAG, **PHONE)
    page.locator(".instrument-choices button").first.tap()
    assert page.locator(".instrument-verdict").inner_text().startswith("Not so:")
    page.get_by_role("button", name="numbers").tap()
    page.get_by_role("slider", name="merges").fill("32")
    page.get_by_role("button", name="one less").tap()
    assert shown(page) == attend.encode("1813, 18134 and 181,300", merges()[:31])
    page.locator(".instrument-token").nth(1).tap()
    assert page.locator(".instrument-token").nth(1).get_attribute("aria-current") == "true"


def test_the_page_holds_its_merges_for_the_instrument():
    """The cell that writes them writes what the instrument looks for."""
    page = (instruments.ROOT / "book" / "01-tokens.md").read_text(encoding="utf-8")
    script = (instruments.SOURCE / "attend-tokens.js").read_text(encoding="utf-8")
    assert 'class="attend-tokens-merges"' in page
    assert "script.attend-tokens-merges" in script
