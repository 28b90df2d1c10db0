"""The instruments in the page: their arithmetic is that of `attend`, and everybody can use them.

Each test writes a plain page that loads the scripts from disk, in the colours of the book.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import attend
from tests.book import conftest

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "book/_static/instruments"
INSTRUMENTS = (
    "attend-rope",
    "attend-qk-plane",
    "attend-scale",
    "attend-mask",
    "attend-live-model",
    "attend-tiles",
    "attend-tokens",
    "attend-head-gallery",
    "attend-depth",
)
QUIET_MS = 600  # after which a change is announced, as in instrument.js


@cache
def merges():
    """What the page of chapter 01 hands to its instrument, learned from less."""
    return attend.train_bpe(attend.pride_and_prejudice()[:20_000], 200)


DATA = {
    "attend-tokens": lambda: (
        '<script type="application/json" class="attend-tokens-merges">'
        f"{json.dumps(merges())}</script>"
    ),
}


@pytest.fixture
def visit(chromium, tmp_path):
    """Opens a page with instruments; it may not print, throw, or ask for anything but files."""
    contexts, complaints = [], []

    def open_page(*tags, theme="light", width=800, scripts=None, **settings):
        names = scripts_of(*tags) if scripts is None else scripts
        file = tmp_path / "page.html"
        file.write_text(html(tags, names, theme), encoding="utf-8")
        context = chromium.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: request.url.startswith("file:") or complaints.append(request.url),
        )
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def scripts_of(*tags):
    """What a page with these instruments loads, in order: as `book/_ext/instruments.py` has it."""
    own = [
        p.stem for tag in tags for p in (*sorted(SOURCE.glob(f"{tag}.*.js")), SOURCE / f"{tag}.js")
    ]
    return ["attention", "instrument", *own]


def html(tags, scripts, theme):
    load = "".join(f'<script src="{(SOURCE / name).as_uri()}.js"></script>' for name in scripts)
    body = "".join(f"<{tag}><p>What a reader sees without scripts.</p></{tag}>" for tag in tags)
    # Before the elements: here the scripts do not wait until the page is there.
    body = "".join(DATA[tag]() for tag in tags if tag in DATA) + body
    return f"""<!doctype html><html lang="en" data-theme="{theme}"><head><meta charset="utf-8">
        <title>Instruments</title><meta name="viewport" content="width=device-width">
        <link rel="stylesheet" href="{(SOURCE.parent / "course.css").as_uri()}">
        <link rel="stylesheet" href="{(SOURCE / "instruments.css").as_uri()}">
        <style>body {{ margin: 1rem; background: var(--course-ground); color: var(--course-ink) }}
        </style>
        {load}</head><body><main><h1>Instruments</h1>{body}</main></body></html>"""


def reveal(page, tag, choice=-1):
    page.locator(f"{tag} .instrument-choices button").nth(choice).click()
    return page.locator(tag)


def words(element):
    """What an element says, with the minus signs and the spaces of a keyboard."""
    text = element.inner_text()
    return text.replace("\N{MINUS SIGN}", "-").replace("\N{NO-BREAK SPACE}", " ")


def sentence(page):
    return words(page.locator(".instrument-sentence"))


def table_of(page, selector):
    """The numbers in the elements `selector`, as a vector."""
    texts = page.locator(selector).all_inner_texts()
    return np.array([float(text.replace("\N{MINUS SIGN}", "-")) for text in texts])


# The arithmetic ---------------------------------------------------------------------------------


@pytest.fixture
def compute(visit):
    """Calls a function of attention.js with arrays."""
    page = visit(scripts=["attention"])

    def call(name, *arguments):
        plain = [a.tolist() if isinstance(a, np.ndarray) else a for a in arguments]
        return page.evaluate(
            "([name, args]) => globalThis.attend.attention[name](...args)", [name, plain]
        )

    return call


def same(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("size", [1.0, 1e4])
def test_softmax_in_the_page_equals_that_of_attend(compute, rng, size):
    scores = size * rng.standard_normal(11)
    same(compute("softmax", scores), attend.softmax(scores))


def test_masked_softmax_in_the_page_equals_that_of_attend_also_in_an_empty_row(compute, rng):
    scores = rng.standard_normal((5, 7))
    mask = rng.random((5, 7)) < 0.5
    mask[2] = False
    rows = [compute("maskedSoftmax", s, m) for s, m in zip(scores, mask, strict=True)]
    same(rows, attend.masked_softmax(scores, mask))


def test_attention_in_the_page_equals_that_of_attend(compute, rng):
    q, k, v = (rng.standard_normal(shape) for shape in ((5, 3), (7, 3), (7, 2)))
    z, weights = attend.attention(q, k, v)
    result = compute("attention", q, k, v)
    same(result["z"], z)
    same(result["weights"], weights)
    same(compute("attentionScores", q, k), attend.attention_scores(q, k))


@pytest.mark.parametrize("T, S", [(5, 7), (7, 7), (7, 5)])
def test_scaled_attention_behind_a_causal_mask_equals_that_of_attend(compute, rng, T, S):
    q, k, v = (rng.standard_normal(shape) for shape in ((T, 3), (S, 3), (S, 2)))
    mask = attend.causal_mask(T, S)
    assert compute("causalMask", T, S) == mask.tolist()
    for given in (mask, None):
        z, weights = attend.scaled_dot_product_attention(q, k, v, given)
        result = compute("scaledDotProductAttention", q, k, v, given)
        same(result["z"], z)
        same(result["weights"], weights)


def test_entropy_jacobian_and_gradient_equal_those_of_attend(compute, rng):
    scores, upstream = rng.standard_normal((2, 7))
    p = attend.softmax(scores)
    same(compute("rowEntropy", p), attend.row_entropy(p))
    same(compute("rowEntropy", [0.0, 1.0]), 0.0)
    jacobian = attend.softmax_jacobian(p)
    same(compute("softmaxJacobian", p), jacobian)
    same(compute("norm", jacobian), np.linalg.norm(jacobian))
    same(
        compute("gradientThroughSoftmax", scores, upstream),
        attend.gradient_through_softmax(scores, upstream),
    )


def test_a_seed_fixes_the_normal_numbers_and_they_are_normal(visit):
    page = visit(scripts=["attention"])
    draw = "seed => Array.from({ length: 20000 }, globalThis.attend.attention.normals(seed))"
    x = np.array(page.evaluate(draw, 3))
    assert page.evaluate(draw, 3) == x.tolist()
    assert page.evaluate(draw, 4) != x.tolist()
    # Five standard errors of each moment, and of the correlation of neighbours.
    assert abs(x.mean()) < 5 / np.sqrt(x.size)
    assert abs((x**2).mean() - 1) < 5 * np.sqrt(2 / x.size)
    assert abs((x**4).mean() - 3) < 5 * np.sqrt(96 / x.size)
    assert abs((x[1:] * x[:-1]).mean()) < 5 / np.sqrt(x.size)


# Each instrument computes the real thing ----------------------------------------------------------


def test_the_arrows_at_the_start_give_the_weights_of_chapter_03(visit):
    page = visit("attend-qk-plane")
    host = page.locator("attend-qk-plane")
    q, k = (np.array(host.evaluate(f"host => host.{name}")) for name in ("queries", "keys"))
    _, weights = attend.attention(q, k, np.eye(3))
    same(weights, [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]])


def test_the_plane_shows_what_attend_computes_from_the_arrows(visit):
    page = visit("attend-qk-plane")
    host = reveal(page, "attend-qk-plane")
    for handle in page.get_by_role("slider").all():
        handle.press("Shift+ArrowRight")
        handle.press("ArrowDown")
    q, k = (np.array(host.evaluate(f"host => host.{name}")) for name in ("queries", "keys"))
    z, weights = attend.attention(q, k, np.array([[0.0, 2.0], [-2.0, -1.0], [2.0, -1.0]]))
    shown = table_of(page, ".instrument-table .instrument-weight")
    np.testing.assert_allclose(shown.reshape(3, 3), weights, atol=0.005001)
    scores = table_of(page, ".instrument-table .instrument-score")
    np.testing.assert_allclose(scores.reshape(3, 3), attend.attention_scores(q, k), atol=0.005001)
    assert f"= ({z[2][0]:.2f}, {z[2][1]:.2f})." in sentence(page)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_scale_shows_what_attend_computes_from_its_vectors_at_every_width(visit, scaled):
    page = visit("attend-scale")
    drawn = page.evaluate("() => customElements.get('attend-scale').draw(5)")
    query, keys = np.array([drawn["query"]]), np.array(drawn["keys"])
    for power in range(13):
        d = 2**power
        measured = page.evaluate(
            """([power, scaled]) => {
                const { draw, measure, scoresByPower } = customElements.get("attend-scale");
                return measure(scoresByPower(draw(5))[power], 2 ** power, scaled);
            }""",
            [power, scaled],
        )
        q, k = query[:, :d], keys[:, :d]
        by_attend = attend.scaled_dot_product_attention if scaled else attend.attention
        _, (weights,) = by_attend(q, k, k)
        scores = attend.attention_scores(q, k)[0] / (np.sqrt(d) if scaled else 1)
        # Sums of up to 4096 products, added in another order.
        close = {"rtol": 1e-10, "atol": 1e-14 * d}
        np.testing.assert_allclose(measured["scores"], scores, **close)
        np.testing.assert_allclose(measured["spread"], scores.std(), **close)
        np.testing.assert_allclose(measured["weights"], weights, **close)
        np.testing.assert_allclose(measured["entropy"], attend.row_entropy(weights), **close)
        norm = np.linalg.norm(attend.softmax_jacobian(weights))
        np.testing.assert_allclose(measured["gradient"], norm, **close)


def test_the_curves_of_the_scale_fall_only_without_the_division(visit):
    page = visit("attend-scale")
    picture = page.locator("attend-scale svg")
    assert picture.locator("path[d]").count() == 0
    reveal(page, "attend-scale")
    picture.locator("path[d]").nth(1).wait_for()
    means = page.evaluate("() => customElements.get('attend-scale').meanGradients()")
    scaled, unscaled = np.array(means["scaled"]), np.array(means["unscaled"])
    assert scaled[0] == unscaled[0]
    assert scaled.min() > 0.3
    assert unscaled[-1] < 0.1
    assert f"{scaled[-1]:.3f} at 4096" in picture.get_attribute("aria-label")
    assert picture.get_attribute("aria-label").endswith(f"and {unscaled[-1]:.3f}.")


@pytest.mark.parametrize("way", ["before", "after"])
def test_the_mask_shows_what_attend_computes(visit, way):
    page = visit("attend-mask")
    reveal(page, "attend-mask")
    page.locator(f"input[value={way}]").check()
    page.get_by_role("button", name="was sees it").click()
    page.get_by_role("button", name="because sees because").click()
    scores = np.array(page.evaluate("() => customElements.get('attend-mask').SCORES"))
    mask = attend.causal_mask(5)
    mask[2, 1] = mask[0, 0] = False
    if way == "before":
        expected = attend.masked_softmax(scores, mask)
    else:
        expected = attend.softmax(scores) * mask
    shown = table_of(page, ".instrument-cell").reshape(5, 5)
    np.testing.assert_allclose(shown, expected, atol=0.005001)
    np.testing.assert_allclose(table_of(page, ".instrument-sum"), expected.sum(-1), atol=0.005001)


def causal(scores, mask):
    return attend.masked_softmax(scores, mask)


def masked_too_late(scores, mask):
    return attend.softmax(scores) * mask


@pytest.mark.parametrize(
    "name, weigh", [("maskedSoftmax", causal), ("maskAfterSoftmax", masked_too_late)]
)
def test_the_leak_light_finds_the_pairs_that_a_change_of_one_token_finds(visit, rng, name, weigh):
    page = visit(scripts=["attention"])
    scores, v = rng.standard_normal((5, 5)), rng.standard_normal((5, 2))
    mask = attend.causal_mask(5)
    for more in (np.zeros((5, 5), bool), rng.random((5, 5)) < 0.3):
        allowed = mask | more
        pairs = page.evaluate(
            """([name, scores, v, mask]) => {
                const api = globalThis.attend.attention;
                return api.leaks(api[name], scores, v, mask);
            }""",
            [name, scores.tolist(), v.tolist(), allowed.tolist()],
        )
        expected = []
        for j in range(1, 5):
            other, w = scores.copy(), v.copy()
            other[:, j] += rng.standard_normal(5)
            w[j] += rng.standard_normal(2)
            moved = np.abs(weigh(other, allowed) @ w - weigh(scores, allowed) @ v).max(-1) > 1e-9
            expected += [[i, j] for i in range(j) if moved[i]]
        assert sorted(pairs) == sorted(expected)


# The prediction -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_exactly_one_guess_is_right_and_each_gets_a_sentence_of_its_own(visit, tag):
    verdicts = []
    count = visit(tag).locator(".instrument-choices button").count()
    for choice in range(count):
        page = visit(tag)
        reveal(page, tag, choice)
        verdicts.append(page.locator(".instrument-verdict p").first.inner_text())
    assert sum(verdict.startswith("Yes:") for verdict in verdicts) == 1
    assert sum(verdict.startswith("Not so:") for verdict in verdicts) == count - 2
    assert verdicts[-1].startswith("No guess made.")
    assert len(set(verdicts)) == count


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_nothing_answers_before_the_guess_and_no_weight_is_given_away(visit, tag):
    page = visit(tag)
    stage = page.locator(".instrument-stage")
    assert stage.evaluate("node => node.inert")
    if tag != "attend-mask":  # the mask starts open, with its weights; the guess is what follows
        assert set(page.locator(".instrument-weight").all_inner_texts()) == {"?"}
        assert "softmax" not in sentence(page) and "entropy" not in sentence(page)
    reveal(page, tag)
    assert not stage.evaluate("node => node.inert")
    assert page.evaluate("() => document.activeElement.className") == "instrument-verdict"


# By mouse, keyboard and touch ---------------------------------------------------------------------


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_dragging_a_query_along_its_key_hardens_the_weights(visit):
    page = visit("attend-qk-plane")
    reveal(page, "attend-qk-plane")
    before = table_of(page, ".instrument-chosen .instrument-weight")
    page.mouse.move(*centre(page.get_by_role("slider", name="query of street")))
    page.mouse.down()
    page.mouse.move(*centre(page.get_by_role("slider", name="key of street")), steps=5)
    page.mouse.up()
    after = table_of(page, ".instrument-chosen .instrument-weight")
    assert before.argmax() == after.argmax() == 2
    assert after[2] > 0.95
    assert "= (0.00, -1.63)" in sentence(page)
    page.get_by_role("button", name="Put the arrows back").click()
    np.testing.assert_array_equal(table_of(page, ".instrument-chosen .instrument-weight"), before)


def test_an_arrow_stays_within_the_picture(visit):
    page = visit("attend-qk-plane")
    host = reveal(page, "attend-qk-plane")
    page.mouse.move(*centre(page.get_by_role("slider", name="key of animal")))
    page.mouse.down()
    page.mouse.move(3000, 0, steps=3)
    page.mouse.up()
    assert host.evaluate("host => host.keys[0]") == [2.4, 2.4]


def test_the_plane_works_by_keyboard_alone(visit):
    page = visit("attend-qk-plane")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    host = page.locator("attend-qk-plane")
    start = host.evaluate("host => host.keys[0]")
    page.keyboard.press("Tab")
    handle = page.locator(":focus")
    assert handle.get_attribute("aria-label") == "key of animal"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    x, y = host.evaluate("host => host.keys[0]")
    assert (x, y) == pytest.approx((start[0] + 0.1, start[1] + 0.5))
    assert handle.get_attribute("aria-valuetext") == f"x {x:.2f}, y {y:.2f}"
    page.keyboard.press("Home")
    assert host.evaluate("host => host.keys[0]") == start


def test_the_plane_says_to_the_eye_that_keys_move_its_arrows(visit):
    page = visit("attend-qk-plane")
    note = page.get_by_text("arrow keys move it by 0.1")
    assert note.is_visible()
    assert note.bounding_box()["width"] > 100
    handle = page.get_by_role("slider", name="key of animal")
    assert handle.get_attribute("aria-describedby") == note.get_attribute("id")


def test_no_name_in_the_plane_lies_on_another_or_on_a_tip(visit):
    page = visit("attend-qk-plane")
    reveal(page, "attend-qk-plane")
    names, tips = page.locator(".instrument-plane").evaluate(
        """plane => [".instrument-label", ".instrument-grip"].map((part) =>
            [...plane.querySelectorAll(part)].map((node) => {
                const { left, right, top, bottom } = node.getBoundingClientRect();
                return [left, right, top, bottom];
            }))"""
    )

    def apart(a, b):
        return a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2]

    for i, name in enumerate(names):
        middle = [sum(name[:2]) / 2] * 2 + [sum(name[2:]) / 2] * 2
        assert all(apart(name, other) for other in names[:i])
        assert all(apart(middle, tip) for tip in tips)


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_the_words_of_a_verdict_keep_clear_of_its_frame(visit, tag):
    page = visit(tag)
    reveal(page, tag)
    padding = page.locator(".instrument-verdict").evaluate(
        "node => { const s = getComputedStyle(node);"
        " return [s.paddingTop, s.paddingRight, s.paddingBottom, s.paddingLeft].map(parseFloat) }"
    )
    assert min(padding) >= 4


def test_choosing_a_row_shows_the_blend_of_its_query(visit):
    page = visit("attend-qk-plane")
    reveal(page, "attend-qk-plane")
    page.get_by_role("button", name="cross").click()
    assert sentence(page).endswith("softmax 0.10, 0.80, 0.10; blend z2 = (-1.40, -0.70).")


def test_the_scale_works_by_mouse(visit):
    page = visit("attend-scale")
    host = reveal(page, "attend-scale")
    assert "512, not divided" in sentence(page)
    page.get_by_role("switch").click()
    assert "512, divided" in sentence(page)
    box = page.get_by_role("slider").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    assert "4096, divided" in sentence(page)
    weights = table_of(page, ".instrument-weight")
    page.get_by_role("button", name="Draw other vectors").click()
    assert (table_of(page, ".instrument-weight") != weights).any()
    assert host.evaluate("host => host.seed") == 13


def test_the_scale_works_by_keyboard_alone(visit):
    page = visit("attend-scale")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    slider = page.locator(":focus")
    assert slider.get_attribute("aria-valuetext") == "512"
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "1024"
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") == "1"
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert " = 1, divided" in sentence(page)


def test_a_click_shuts_a_cell_and_the_row_sums_to_one_again(visit):
    page = visit("attend-mask")
    reveal(page, "attend-mask")
    light = page.locator(".instrument-light")
    assert light.inner_text().startswith("No leak")
    cell = page.get_by_role("button", name="it sees tired")
    cell.click()
    assert cell.get_attribute("aria-pressed") == "true"
    assert "Changing “tired” changes what “it” gets." in light.inner_text()
    cell.click()
    assert cell.inner_text() == "0"
    assert light.inner_text().startswith("No leak")
    assert set(page.locator(".instrument-sum").all_inner_texts()) == {"1.00"}


def test_a_causal_mask_after_the_softmax_breaks_the_sums_and_leaks(visit):
    page = visit("attend-mask")
    reveal(page, "attend-mask")
    page.get_by_label("after it (wrong)").check()
    assert (
        "still in the sum that the softmax divides by"
        in page.locator(".instrument-light").inner_text()
    )
    assert "4 of 5 rows no longer sum to 1" in sentence(page)
    assert page.locator(".instrument-wrong").count() == 4


def test_a_row_that_may_see_nothing_is_all_zeros(visit):
    page = visit("attend-mask")
    reveal(page, "attend-mask")
    page.get_by_role("button", name="because sees because").click()
    assert "sum 0.00. A row that may see nothing is all zeros" in sentence(page)


def test_the_mask_works_by_keyboard_alone_with_one_stop_for_the_grid(visit):
    page = visit("attend-mask")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".instrument-buttons button").last.focus()
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    assert focused.get_attribute("aria-label").startswith("it sees tired")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert focused.get_attribute("aria-label").startswith("was sees it")
    page.keyboard.press("Space")
    assert focused.get_attribute("aria-pressed") == "false"
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")  # the edge holds
    assert focused.get_attribute("aria-label").startswith("because sees tired")
    assert page.locator("[role=grid] [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.locator("[role=grid] :focus").count() == 0


PHONE = {"width": 320, "has_touch": True, "is_mobile": True}


def drag_by_finger(page, start, end):
    touch = page.context.new_cdp_session(page)

    def send(kind, *points):
        points = [{"x": x, "y": y} for x, y in points]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    send("touchStart", start)
    for t in np.linspace(0, 1, 6):
        send("touchMove", tuple((1 - t) * a + t * b for a, b in zip(start, end, strict=True)))
    send("touchEnd")


def test_an_arrow_follows_a_finger_and_the_page_does_not_scroll(visit):
    page = visit("attend-qk-plane", **PHONE)
    page.locator(".instrument-choices button").first.tap()
    page.locator(".instrument-plane").scroll_into_view_if_needed()
    scrolled = page.evaluate("() => scrollY")
    start = centre(page.get_by_role("slider", name="query of street"))
    drag_by_finger(page, start, centre(page.get_by_role("slider", name="key of street")))
    assert table_of(page, ".instrument-chosen .instrument-weight")[2] > 0.95
    assert page.evaluate("() => scrollY") == scrolled


def test_scale_and_mask_answer_to_taps(visit):
    page = visit("attend-scale", "attend-mask", **PHONE)
    for tag in ("attend-scale", "attend-mask"):
        page.locator(f"{tag} .instrument-choices button").first.tap()
    page.get_by_role("switch").tap()
    assert "512, divided" in page.locator("attend-scale .instrument-sentence").inner_text()
    cell = page.get_by_role("button", name="it sees tired")
    cell.tap()
    assert cell.get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_every_target_measures_24_pixels_at_a_width_of_320(visit, tag):
    page = visit(tag, **PHONE)
    targets = f"{tag} :is(button, input, [role=slider])"

    def too_small():
        boxes = [(t, t.bounding_box()) for t in page.locator(targets).all()]
        return [t.inner_text() for t, b in boxes if min(b["width"], b["height"]) < 24]

    assert too_small() == []
    reveal(page, tag)
    assert too_small() == []


# For every reader ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_a_flurry_of_changes_is_announced_once_politely_and_in_words(visit, tag):
    page = visit(tag)
    page.clock.install(time=0)
    page.clock.pause_at(60)  # time stands still, however long a busy machine takes for a key
    reveal(page, tag)
    live = page.locator(".instrument-live")
    assert live.get_attribute("role") == "status"
    page.evaluate(
        """() => {
            globalThis.announced = [];
            const live = document.querySelector(".instrument-live");
            const hear = new MutationObserver(() => announced.push(live.textContent));
            hear.observe(live, { childList: true });
        }"""
    )
    control = page.locator(f"{tag} :is([role=slider], input[type=range], .instrument-cell)").first
    key = {"attend-mask": "Space", "attend-tokens": "ArrowRight"}.get(tag, "ArrowLeft")
    for _ in range(7):
        control.press(key)
    assert page.evaluate("() => announced") == []
    page.clock.run_for(QUIET_MS)
    (words,) = page.evaluate("() => announced")
    start = {
        "attend-rope": "Query at 5, key at 9, distance \N{MINUS SIGN}4: score ",
        "attend-qk-plane": "Query of street: weights animal ",
        "attend-scale": "Width 4, not divided by its root: largest weight ",
        "attend-mask": "Row because: because 0.00",
        "attend-live-model": "From “ at”, token 13 of 13, ",
        "attend-tiles": "0 of 6 keys seen: maximum \N{MINUS SIGN}\N{INFINITY}, sum 0.000",
        "attend-tokens": "7 merges: ",
        "attend-depth": "2 blocks, with a residual path, norms after the sums: ",
        "attend-head-gallery": "SmolLM2-135M, layer 9, head 0: \N{LEFT DOUBLE QUOTATION MARK}it",
    }
    assert words.startswith(start[tag])


def violations(page):
    page.wait_for_timeout(300)  # colours that are still on their way have no contrast yet
    return conftest.violations(page)


@pytest.mark.parametrize("settings", [{}, {"theme": "dark"}, {"forced_colors": "active"}, PHONE])
@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_axe_finds_nothing_before_and_after_the_guess(visit, tag, settings):
    page = visit(tag, **settings)
    assert violations(page) == []
    reveal(page, tag)
    assert violations(page) == []
    if tag == "attend-mask":  # with leaks and wrong sums in view
        page.get_by_label("after it (wrong)").check()
        assert violations(page) == []


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_nothing_overflows_at_a_width_of_320(visit, tag):
    page = visit(tag, width=320)
    for choice in range(page.locator(".instrument-choices button").count()):
        page.reload()
        reveal(page, tag, choice)
        assert page.evaluate("() => document.documentElement.scrollWidth") == 320
        beyond = page.evaluate(
            """tag => [...document.querySelectorAll(`${tag} .instrument-app *`)].filter((node) => {
                const frame = node.closest(".instrument-app").getBoundingClientRect();
                const box = node.getBoundingClientRect();
                return !node.closest(".instrument-spoken") && box.width &&
                    (box.right > frame.right + 0.5 || box.left < frame.left - 0.5);
            }).map((node) => node.outerHTML)""",
            tag,
        )
        assert beyond == []


@pytest.mark.parametrize("motion, moves", [("reduce", False), ("no-preference", True)])
@pytest.mark.parametrize(
    "pseudo, part", [("::after", "attend-scale .instrument-bar"), (None, "td")]
)
def test_bars_and_cells_move_only_where_the_reader_allows_it(visit, motion, moves, pseudo, part):
    page = visit("attend-qk-plane", "attend-scale", reduced_motion=motion)
    duration = page.locator(part).first.evaluate(
        "(node, pseudo) => getComputedStyle(node, pseudo).transitionDuration", pseudo
    )
    assert (duration != "0s") == moves


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_colours_follow_the_theme_of_the_page(visit, tag):
    def look(theme):
        page = visit(tag, theme=theme)
        return page.locator(".instrument-app").evaluate(
            """app => [...getComputedStyle(app).backgroundColor.matchAll(/[\\d.]+/g)].map(Number)"""
        )

    assert min(look("light")) > 200
    assert max(look("dark")[:3]) < 60


def test_the_page_can_give_the_colours(visit):
    page = visit("attend-scale")
    page.add_style_tag(content="body { --course-accent: rgb(1, 2, 3) }")
    bar = page.locator(".instrument-bar").first
    colour = bar.evaluate("node => getComputedStyle(node, '::after').backgroundColor")
    assert colour == "rgb(1, 2, 3)"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_where_colours_are_forced_the_theme_gives_way(visit, theme):
    page = visit("attend-qk-plane", theme=theme, forced_colors="active")
    app, shaft = page.locator(".instrument-app"), page.locator(".instrument-key line").first
    ink = app.evaluate("node => getComputedStyle(node).color")
    assert shaft.evaluate("node => getComputedStyle(node).stroke") == ink


def test_where_colours_are_forced_a_shut_cell_and_a_leak_still_look_different(visit):
    page = visit("attend-mask", forced_colors="active")
    reveal(page, "attend-mask")
    page.get_by_role("button", name="it sees tired").click()

    def border(name):
        return page.get_by_role("button", name=name).evaluate(
            "b => getComputedStyle(b).borderStyle"
        )

    assert border("it sees it") == "solid"
    assert border("it sees was") == "dashed"
    assert border("it sees tired") == "double"


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_what_stands_between_the_tags_shows_without_scripts_and_on_paper_only(visit, tag):
    def shown(page):
        return page.get_by_text("without scripts").is_visible()

    assert shown(visit(tag, java_script_enabled=False))
    page = visit(tag)
    assert not shown(page)
    page.emulate_media(media="print")
    assert shown(page)
    assert not page.locator(".instrument-app").is_visible()


def upgrade_late(page, tag, attributes):
    """Writes the element first and loads the scripts then, as `defer` does."""
    markup = f"<{tag} {attributes}>What a reader sees without scripts.</{tag}>"
    page.evaluate("markup => { document.querySelector('main').innerHTML = markup }", markup)
    for name in scripts_of(tag):
        page.add_script_tag(path=SOURCE / f"{name}.js")


@pytest.mark.parametrize("tag", INSTRUMENTS)
def test_an_instrument_takes_its_name_from_the_page(visit, tag):
    page = visit(scripts=[])
    upgrade_late(page, tag, 'aria-label="A name"')
    assert page.get_by_role("group", name="A name").is_visible()
    assert page.locator(tag).get_attribute("aria-label") is None


def test_the_tokens_of_the_plane_can_be_given(visit):
    page = visit(scripts=[])
    upgrade_late(page, "attend-qk-plane", 'tokens="one two three"')
    assert page.locator(".instrument-choices button").all_inner_texts()[:3] == [
        "one",
        "two",
        "three",
    ]


def test_an_instrument_that_is_moved_in_the_page_keeps_its_state(visit):
    page = visit("attend-scale")
    reveal(page, "attend-scale")
    page.get_by_role("switch").click()
    page.evaluate("() => document.body.append(document.querySelector('attend-scale'))")
    assert page.locator(".instrument-app").count() == 1
    assert "512, divided" in sentence(page)
