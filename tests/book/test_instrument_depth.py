"""The stack of blocks: what it shows is what `tools/depth.py` measures, and that is right."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.book import test_instruments as instruments
from tests.book.test_instruments import PHONE, reveal, sentence

ROOT = Path(__file__).parents[2]
TAG = "attend-depth"

visit = instruments.visit  # fixtures are found by these names


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("depth", ROOT / "tools" / "depth.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_untrained_pre_norm_stack_measures_as_it_should(tool):
    measured = tool.profile("pre", 4, seeds=(0,))
    assert [len(measured[name]) for name in ("size", "own", "gradient")] == [5, 5, 4]
    assert measured["size"] == sorted(measured["size"]), "the stream only grows"
    assert measured["own"][0] == pytest.approx(0, abs=0.05), "an own share near 1 to begin with"
    model = tool.Stack("pre", 4, tool.text_as_ids()[1], 0)
    n_learned = sum(p.numel() for p in model.blocks.parameters())
    import attend

    without_biases = 4 * attend.block_parameters(tool.D, 4 * tool.D)
    assert n_learned == without_biases


def test_the_table_tells_no_residual_from_residual(tool):
    with_path, without = (tool.profile(kind, 8, seeds=(0,)) for kind in ("pre", "pre without"))
    assert with_path["own"][-1] > without["own"][-1] + 1
    assert math.isfinite(without["gradient"][0])


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["pre", "post", "none", "pre without"])
def test_the_numbers_in_the_page_are_those_of_the_tool(visit, tool, kind):
    page = visit(TAG)
    held = page.evaluate(f"() => customElements.get('{TAG}').profile({kind!r}, 4)")
    torch.set_num_threads(1)
    for name, logs in tool.profile(kind, 4).items():
        np.testing.assert_allclose(held[name], logs, atol=0.02)


@pytest.mark.browser
def test_every_stack_has_its_numbers(visit, tool):
    page = visit(TAG)
    for kind in tool.SHOWN:
        for depth in tool.DEPTHS:
            held = page.evaluate(f"() => customElements.get('{TAG}').profile({kind!r}, {depth})")
            assert [len(held[n]) for n in ("size", "own", "gradient")] == [
                depth + 1,
                depth + 1,
                depth,
            ]


@pytest.mark.browser
def test_without_a_residual_path_the_tokens_become_alike(visit):
    page = visit(TAG)
    reveal(page, TAG)

    def own_share():
        text = re.search(r"own share of ([\d.]+)(?: × 10⁻([⁰¹²³⁴⁵⁶⁷⁸⁹]+))?", sentence(page))
        power = text[2].translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")) if text[2] else 0
        return float(text[1]) * 10.0 ** -int(power)

    after_sums = own_share()
    page.get_by_label("before", exact=True).check()
    before_parts = own_share()
    page.get_by_role("switch").uncheck()
    assert own_share() < after_sums < before_parts
    assert "without a residual path" in sentence(page)


@pytest.mark.browser
def test_the_depth_moves_by_keys_and_is_spoken(visit):
    page = visit(TAG)
    reveal(page, TAG)
    depth = page.get_by_role("slider", name="depth")
    depth.focus()
    page.keyboard.press("ArrowRight")
    assert depth.get_attribute("aria-valuetext") == "64 blocks"
    page.keyboard.press("Home")
    assert sentence(page).startswith("2 blocks, with a residual path, norms after the sums")


@pytest.mark.browser
def test_a_curve_that_leaves_its_chart_says_so(visit):
    page = visit(TAG)
    reveal(page, TAG)
    below, above = page.get_by_text("↓ goes on below"), page.get_by_text("↑ goes on above")
    assert below.count() == above.count() == 0
    page.get_by_label("nowhere").check()
    assert above.count() == 1, "the gradient"
    page.get_by_role("switch").uncheck()
    assert below.count() >= 1, "the size of the stream"


@pytest.mark.browser
def test_numbers_have_the_two_digits_that_the_table_holds(visit):
    page = visit(TAG)
    reveal(page, TAG)
    page.get_by_label("nowhere").check()
    for depth in range(1, 7):
        page.get_by_role("slider", name="depth").fill(str(depth))
        for text in page.locator(".instrument-weight").all_inner_texts():
            digits = re.match(r"[\d.]+|", text)[0].replace(".", "").lstrip("0")
            assert len(digits) <= 2 or digits == text, text


@pytest.mark.browser
def test_the_legend_says_what_the_dashed_line_is(visit):
    legend = visit(TAG).locator(".instrument-legend")
    assert legend.locator(".instrument-unscaled").count() == 1
    assert "pre-norm with a residual path, as deep" in legend.inner_text()


@pytest.mark.browser
def test_the_curves_are_drawn_after_the_guess_only_and_stay_in_their_frames(visit):
    page = visit(TAG, **PHONE)
    curves = page.locator(f"{TAG} [role=img] path.instrument-scaled")
    assert [c.get_attribute("d") for c in curves.all()] == [None] * 3
    reveal(page, TAG)
    page.get_by_label("nowhere").check()
    page.get_by_role("slider", name="depth").fill("6")
    for curve in curves.all():
        heights = [float(y) for y in re.findall(r" ([\d.]+)", curve.get_attribute("d"))]
        assert min(heights) >= 12
        assert max(heights) <= 150
