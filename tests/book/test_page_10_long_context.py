"""The words of chapter 10 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.book.cells import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("10-long-context")


def number(page, name: str) -> float:
    return float(page.said[f"long-{name}"].replace(",", ""))


def test_blocks_change_no_number_and_save_most_of_the_memory(page):
    assert number(page, "gap") <= 10
    assert number(page, "times") > 10
    assert page.names["peaks"][1] < page.names["peaks"][64] < page.names["plain_peak"] / 10
    assert page.names["peaks"][2048] > page.names["plain_peak"] / 2, "one block is all at once"


def test_memory_is_quadratic_all_at_once_and_linear_in_the_other_three(page):
    assert number(page, "memory-plain") == pytest.approx(4, abs=0.2)
    for name in ("blocks", "window", "linear"):
        assert number(page, f"memory-{name}") < 2.2


def test_a_running_sum_that_is_not_rescaled_ends_far_too_large(page):
    assert number(page, "running-wrong") > 2 * number(page, "running-right")
    assert len(set(page.names["maxima"])) >= 3, "the maximum jumps a few times"


def test_softmax_remembers_and_linear_attention_forgets(page):
    curves = page.names["curves"]
    assert min(curves["softmax, width 64"]) == 1
    assert curves["linear, width 64"][-1] < 0.2
    assert curves["linear, width 64"][1] > 0.9
    assert np.mean(curves["linear, width 64"]) > np.mean(curves["linear, width 16"]), "only delays"
    assert number(page, "recall-signs-64") > 95
    assert number(page, "recall-signs-512") < 60


def test_of_the_three_guesses_about_forty_pairs_is_the_nearest(page):
    half, signs = number(page, "half"), number(page, "half-signs")
    assert min((40, 400, 2000), key=lambda n: abs(np.log(n / half))) == 40
    assert min((40, 400, 2000), key=lambda n: abs(np.log(n / signs))) == 400


def test_a_window_knows_all_within_it_and_guesses_beyond(page):
    assert number(page, "window-in") == 100
    assert number(page, "window-out") < 10


def test_each_mistake_hides_on_one_input_and_shows_on_another(page):
    names = page.names

    def off_by(rise, **mistake):
        q, k, v = names["inputs"](rise)
        with np.errstate(all="ignore"):
            z = names["in_blocks"](q, k, v, 5, **mistake)
        return np.abs(z - names["scaled_dot_product_attention"](q, k, v)[0]).max()

    assert off_by(0.2) < 1e-12
    assert off_by(0.2, rescale=False) > 0.1
    assert off_by(-5.0, rescale=False) < 1e-9, "right where the first block is the loudest"
    assert off_by(0.2, renew=False) < 1e-12
    assert np.isnan(off_by(100.0, renew=False))
    assert off_by(0.2, rest=False) > 0.1
