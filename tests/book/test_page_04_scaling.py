"""The words of chapter 04 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.book.cells import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("04-scaling")


def number(page, name: str) -> float:
    return float(page.said[f"scaling-{name}"])


def test_attention_to_noise_grows_certain_with_the_width(page):
    favourites = [number(page, f"favourite-{width}") for width in (4, 64, 512)]
    assert favourites == sorted(favourites)
    assert favourites[-1] > 0.9


def test_the_measured_variances_lie_where_the_proof_puts_them(page):
    outside = np.abs(page.names["ratio"] - 1) > page.names["scatter"]
    assert outside.sum() <= 2, "95 % of the points belong into the band"
    assert number(page, "sd-512-large") > 100, "the text says that scores spread over hundreds"


def test_the_median_row_goes_deaf_and_the_mean_falls_like_a_root(page):
    norm, unscaled = page.names["jacobian_norm"], page.names["unscaled"]
    norms = {d: norm(unscaled[d]) for d in (64, 4096)}
    assert 5 < norms[64].mean() / norms[4096].mean() < 12, "about the root of 64"
    assert np.median(norms[64]) / np.median(norms[4096]) > 1e6
    assert number(page, "top-tenth") > 50
    assert number(page, "deaf-large") > 80


def test_the_division_makes_the_width_irrelevant(page):
    norm, entropy = page.names["jacobian_norm"], page.names["row_entropy"]
    softmax, scaled = page.names["softmax"], page.names["scaled"]
    wide = [d for d in scaled if d >= 16]
    assert np.ptp([np.median(norm(scaled[d])) for d in wide]) < 0.03
    assert np.ptp([entropy(softmax(scaled[d])).mean() for d in wide]) < 0.1


def test_both_versions_learn_the_lookup_and_the_undivided_one_later(page):
    errors, nothing = page.names["errors"], page.names["nothing"]
    for size in (1, 3):
        assert errors[size, "not divided"][0] > nothing, "worse than knowing nothing"
        late, early = (number(page, f"steps-{name}-{size}") for name in ("not", "divided"))
        assert late > 5 * early
    assert abs(number(page, "start-dk") - nothing) < 0.05, "even weights know nothing"


def test_no_version_would_learn_faster_beyond_the_rates_that_were_tried(page):
    smallest, *_, largest = page.names["rates"]
    assert all(smallest < rate < largest for rate in page.names["best"].values())


def test_each_wrong_version_shows_its_symptom(page):
    sums, in_play, apart = (
        {name: row[column] for name, row in page.names["table"].items()} for column in range(3)
    )
    assert sums["after it"] == pytest.approx(1 / 8)
    assert in_play["times √d_k"] < in_play["not divided"] < in_play["by √T"] < in_play["right"]
    assert in_play["by d_k"] > 6.9
    assert apart["by d_k"] < apart["right"] / 5


def test_wrong_roots_hide_where_all_sizes_are_equal(page):
    draw, versions = page.names["draw"], page.names["versions"]
    for name in ("by √T", "by √d_v"):
        equal, different = draw(0, 6, 6, 6, 6), draw(0, 5, 7, 64, 16)
        np.testing.assert_allclose(versions[name](*equal), versions["right"](*equal))
        assert np.abs(versions[name](*different) - versions["right"](*different)).max() > 0.1
