"""The words of chapter 07 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.book.cells import run
from tests.book.test_instrument_depth import tool  # noqa: F401  (a fixture)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("07-block")


def number(page, name: str) -> float:
    return float(page.said[f"block-{name}"].replace(",", ""))


def test_what_a_wrong_norm_costs(page):
    assert 12 <= number(page, "unbiased-4") <= 17, "a sixth at width 4, the caption says"
    assert number(page, "unbiased-512") <= 0.1
    assert number(page, "inside-tiny") < 0.05 < 0.9 < number(page, "outside-tiny")


def test_the_approximations_of_gelu_are_as_far_off_as_said(page):
    assert 4e-4 < page.names["error_tanh"].max() < 5e-4
    assert 0.015 < page.names["error_sigmoid"].max() < 0.025


def test_a_change_goes_through_attention_and_nowhere_else(page):
    moved = page.names["moved"]
    assert moved["attention"].bool().all()
    assert torch.equal(moved["causal attention"], torch.ones(5, 5).triu())
    assert torch.equal(moved["norm, feed-forward"], torch.eye(5))
    assert page.said["block-permuted"] == "the same"


def test_only_the_pre_norm_stack_keeps_its_tokens_apart(page):
    kept, grown = page.names["kept"], page.names["grown"]
    assert kept["pre"][-1] > 0.3
    assert kept["post"][-1] < 1e-3
    assert kept["no residual"][-1] < 1e-10
    assert grown["pre"][-1] < 10 < 1e6 < grown["no norm"][-1]
    assert grown["post"][-1] == pytest.approx(1, abs=0.01)


def test_the_instrument_shows_what_the_page_has_measured(page, tool):  # noqa: F811
    names = page.names
    shown = {"pre": "pre", "post": "post", "no residual": "pre without", "no norm": "none"}
    for kind, name in shown.items():
        held = tool.profile(name, 32)
        np.testing.assert_allclose(held["own"], np.log10(names["kept"][kind]), atol=0.02)
        np.testing.assert_allclose(held["size"], np.log10(names["grown"][kind]), atol=0.02)
        if kind in ("pre", "post"):
            gradient = np.log10(names["norms"][kind, 32])
            np.testing.assert_allclose(held["gradient"], gradient, atol=0.02)


def test_the_gradient_of_post_norm_grows_with_depth_and_that_of_late_pre_norm_blocks_falls(page):
    norms, depths = page.names["norms"], page.names["DEPTHS"]
    last = {kind: [norms[kind, d][-1] for d in depths] for kind in ("pre", "post")}
    assert last["pre"][-1] < last["pre"][0] / 2
    assert last["post"][-1] > last["post"][0]
    assert all(min(norms["post", d]) > 0.5 for d in depths), "it vanishes nowhere"
    whole = {kind: np.linalg.norm(norms[kind, 64]) for kind in ("pre", "post")}
    assert whole["post"] > 2.5 * whole["pre"]


def test_the_same_step_moves_a_deep_post_norm_stack_much_further(page):
    moves = page.names["step_moves"]
    assert moves["post", 2] < 3 * moves["pre", 2], "at depth 2 they do not differ by much"
    assert moves["post", 32] > 0.5 > 0.25 > moves["pre", 32]


def test_after_equal_steps_pre_norm_is_ahead(page):
    nothing = number(page, "nothing")
    assert number(page, "end-pre") < nothing - 0.1
    assert number(page, "end-post") > nothing - 0.05


def test_a_feed_forward_part_holds_more_facts_with_a_bend(page):
    known = page.names["known"]
    assert known["GELU"][:3] == [32, 128, 512]
    assert min(known["GELU"][3], known["SwiGLU"][3]) > 1900
    assert max(known["no bend"][2:]) < 160, "little more than a hundred"


def test_a_silent_pre_norm_block_returns_its_input_and_wrong_ones_do_not(page):
    off = {name: by for name, (by, _) in page.names["identity"].items()}
    assert off["right"] == off["bend last"] == off["norm over tokens"] == 0
    assert min(off[n] for n in ("post-norm", "norm in the stream", "a residual missing")) > 0.5
    assert page.names["identity"]["bend last"][1] > -0.18


def test_shares_of_parameters_are_as_told(page):
    assert number(page, "block-768") == 7_084_800
    assert number(page, "quiz-share") == pytest.approx(2 / 3, abs=0.01)
    assert abs(number(page, "total-gpt-2-small") - 124) < 1
    assert abs(number(page, "total-llama-3-8b") - 8030) < 10
    assert abs(number(page, "total-smollm2-135m") - 134.5) < 1
