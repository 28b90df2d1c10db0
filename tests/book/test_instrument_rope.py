"""The dials of RoPE: what they show is what `attend` computes, and only the distance counts."""

import numpy as np
import pytest

import attend
from tests.book import test_instruments as instruments
from tests.book.test_instruments import PHONE, reveal, same, sentence, table_of

pytestmark = pytest.mark.browser

visit, compute = instruments.visit, instruments.compute  # fixtures are found by these names
TAG = "attend-rope"
KEY = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])


def contributions(m, n, base):
    """What each of the four pairs gives to the score, by attend."""
    query = attend.apply_rope(KEY[None], attend.rope_angles([-3], 8, base))
    q = attend.apply_rope(query, attend.rope_angles([m], 8, base))
    k = attend.apply_rope(KEY[None], attend.rope_angles([n], 8, base))
    return (q * k).reshape(2, 4).sum(axis=0)


def slider(page, name):
    return page.get_by_role("slider", name=name)


def test_rope_in_the_page_equals_that_of_attend(compute):
    x = np.random.default_rng(0).standard_normal((3, 10))
    positions = np.array([0.0, 2.5, 1000.0])
    angles = attend.rope_angles(positions, 10, 500.0)
    same(compute("ropeAngles", positions, 10, 500.0), angles)
    same(compute("ropeAngles", positions, 10), attend.rope_angles(positions, 10))
    np.testing.assert_allclose(
        compute("applyRope", x, angles), attend.apply_rope(x, angles), atol=1e-12
    )


@pytest.mark.parametrize("base", [100, 10000])
def test_the_dials_show_what_attend_computes(visit, base):
    page = visit(TAG)
    reveal(page, TAG)
    page.get_by_label(str(base), exact=True).check()
    for m, n in ((12, 9), (0, 0), (40, 0), (0, 40), (31, 22)):
        slider(page, "query").fill(str(m))
        slider(page, "key").fill(str(n))
        expected = contributions(m, n, base)
        shown = table_of(page, ".instrument-weight")
        np.testing.assert_allclose(shown, expected, atol=0.005001)
        assert f"Query at {m}, key at {n}: distance {m - n}." in sentence(page)
        score = float(sentence(page).rsplit(" ", 1)[1].rstrip("."))
        assert score == pytest.approx(expected.sum(), abs=0.005001)


def test_the_arrows_stand_at_the_angles_that_attend_computes(visit):
    page = visit(TAG)
    reveal(page, TAG)
    page.get_by_label("100", exact=True).check()
    slider(page, "query").fill("17")
    slider(page, "key").fill("6")
    angles = attend.rope_angles([17 - 3, 6], 8, 100.0)
    for kind, expected in zip(("query", "key"), angles, strict=True):
        arrows = page.locator(f".instrument-dials .instrument-{kind}").all()
        turned = [float(a.get_attribute("transform")[7:-1]) for a in arrows]
        off = (np.array(turned) + np.degrees(expected) + 180) % 360 - 180
        np.testing.assert_allclose(off, 0, atol=0.01)


def test_the_curve_is_the_score_at_every_distance(visit):
    page = visit(TAG)
    reveal(page, TAG)
    page.get_by_label("100", exact=True).check()
    path = page.locator("path.instrument-curve").get_attribute("d")
    points = np.array([point.split() for point in path[1:].split("L")], dtype=float)
    distances = (points[:, 0] - 170) / (272 / 80)
    scores = 4 - (points[:, 1] - 12) / 20
    np.testing.assert_allclose(distances, np.arange(-40, 40.1, 0.25), atol=1e-9)
    expected = [contributions(d, 0, 100.0).sum() for d in distances]
    np.testing.assert_allclose(scores, expected, atol=0.001)


def test_nothing_of_the_sum_is_seen_before_the_guess(visit):
    page = visit(TAG)
    assert not page.locator("path.instrument-curve").is_visible()
    assert not page.locator(".instrument-dot").is_visible()
    assert "score" not in sentence(page)
    reveal(page, TAG)
    assert page.locator("path.instrument-curve").is_visible()
    assert page.locator(".instrument-dot").is_visible()


def test_the_right_guess_is_the_one_that_the_scores_of_attend_say(visit):
    scores = np.array([contributions(d, 0, 10_000.0).sum() for d in range(41)])
    foot = 3 + int(np.argmax(np.diff(scores[3:]) > 0))
    peak = foot + int(scores[foot:].argmax())
    assert scores[peak] > 0.9 * scores[3]
    page = visit(TAG)
    reveal(page, TAG, 0)
    words = page.locator(".instrument-verdict").inner_text().replace("\N{MINUS SIGN}", "-")
    assert words.startswith("Yes: you said \N{LEFT DOUBLE QUOTATION MARK}as high again")
    assert f"falls to {scores[foot]:.2f} at distance {foot}" in words
    assert f"is {scores[peak]:.2f}, at {peak}." in words


def test_moving_both_together_turns_the_arrows_and_changes_no_number(visit):
    page = visit(TAG)
    reveal(page, TAG)
    slider(page, "key").fill("4")
    before = table_of(page, ".instrument-weight")
    arrow = page.locator(".instrument-dials .instrument-query").first
    turned = arrow.get_attribute("transform")
    page.get_by_role("switch").check()
    slider(page, "query").press("ArrowRight")
    assert "Query at 13, key at 5: distance 8" in sentence(page)
    np.testing.assert_array_equal(table_of(page, ".instrument-weight"), before)
    assert arrow.get_attribute("transform") != turned
    slider(page, "key").press("Home")
    assert "Query at 8, key at 0: distance 8" in sentence(page)


def test_together_they_stop_where_the_first_of_them_must(visit):
    page = visit(TAG)
    reveal(page, TAG)
    page.get_by_role("switch").check()
    slider(page, "key").press("End")  # the query is 3 ahead
    assert "Query at 40, key at 37: distance 3" in sentence(page)
    assert slider(page, "key").input_value() == "37"
    assert slider(page, "key").get_attribute("aria-valuetext") == "at 37"
    slider(page, "query").press("Home")
    assert "Query at 3, key at 0: distance 3" in sentence(page)


def test_it_works_by_keyboard_alone(visit):
    page = visit(TAG)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    assert focused.get_attribute("aria-valuetext") == "at 12"
    page.keyboard.press("ArrowRight")
    assert "Query at 13" in sentence(page)
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    assert "key at 8" in sentence(page)
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowLeft")
    assert "Query at 12, key at 7" in sentence(page)


def test_it_answers_to_taps(visit):
    page = visit(TAG, **PHONE)
    page.locator(".instrument-choices button").first.tap()
    page.get_by_role("switch").tap()
    page.get_by_label("10000", exact=True).tap()
    box = page.get_by_role("slider", name="query").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
    assert "Query at 40, key at 37: distance 3." in sentence(page)
    assert "score 4.00" in sentence(page)
