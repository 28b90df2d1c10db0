"""The words of chapter 05 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.book.cells import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("05-masking")


def number(page, name: str) -> float:
    return float(page.said[f"masking-{name}"])


def test_the_leaking_model_looks_ten_times_better_than_is_possible(page):
    assert number(page, "end-causal") > 10 * number(page, "end-leaky")
    assert number(page, "end-leaky") < page.names["least"] / 5
    assert page.names["least"] < number(page, "end-causal") < 1.1 * page.names["least"]


def test_fresh_text_does_not_expose_a_leak(page):
    assert number(page, "fresh-leaky") == pytest.approx(number(page, "end-leaky"), abs=0.03)


def test_without_its_answers_the_leaking_model_is_worse_than_a_blind_guess(page):
    begun, whole = page.names["leaky_begun"], page.names["leaky_whole"]
    guess = np.log(page.names["V"])
    assert begun[:-1].mean() > guess
    assert (begun[:-1] > guess).sum() > 6, "at most of the twelve places"
    assert whole[:-1].max() < 0.1
    assert whole[-1] / len(whole) > 0.8 * whole.mean(), "the last place is nearly all of its loss"


def test_training_and_writing_are_the_same_for_the_causal_model(page):
    np.testing.assert_allclose(
        page.names["causal_whole"], page.names["causal_begun"], rtol=0, atol=1e-9
    )


def test_only_the_causal_model_can_write(page):
    assert number(page, "right-causal") > 95
    assert number(page, "right-leaky") < 5


def test_only_the_causal_mask_keeps_the_future_out(page):
    names = page.names
    moved = {
        name: names["influence"](f, names["x"], np.random.default_rng(4))[names["later"]]
        for name, f in names["versions"].items()
    }
    assert (moved["causal mask"] == 0).all()
    assert (moved["mask after softmax"] > 0).all()
    assert 0 < (moved["one too far"] > 0).sum() < names["later"].sum()


def test_a_mask_that_is_one_short_does_not_show_in_the_loss(page):
    too_far, right, short = (
        page.names["train"](np.tri(page.names["CONTEXT"], k=k, dtype=bool))[1][-50:].mean()
        for k in (1, 0, -1)
    )
    assert too_far < page.names["least"] / 5
    assert short == pytest.approx(right, abs=0.03)


def test_pytorch_reads_the_mask_both_ways(page):
    fused, module = (weights[0, 1].tolist() for weights in page.names["by_pytorch"].values())
    assert fused == pytest.approx([0.5, 0.5, 0])
    assert module == pytest.approx([0, 0, 1])
