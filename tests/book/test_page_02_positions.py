"""The words of chapter 02 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.book.cells import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("02-positions")


def number(page, name: str) -> float:
    return float(page.said[f"positions-{name}"])


def test_only_the_mask_and_the_added_numbers_see_the_order(page):
    blind, is_order_blind = page.names["blind"], page.names["is_order_blind"]
    x = np.random.default_rng(0).standard_normal((7, 16))
    verdicts = {name: is_order_blind(f, x, page.names["order"]) for name, f in blind.items()}
    assert [name for name, verdict in verdicts.items() if not verdict] == [
        "behind a causal mask",
        "each place's number added",
    ]


def test_sliding_changes_the_score_of_added_positions_and_not_that_of_turned_ones(page):
    assert number(page, "slide-added") > 1
    assert page.said["positions-slide-turned"].endswith(("10⁻¹³", "10⁻¹⁴", "10⁻¹⁵"))
    assert page.said["positions-spread-starts"].endswith(("10⁻¹¹", "10⁻¹²", "10⁻¹³"))


def test_the_designed_head_peaks_at_a_distance_of_three_and_nowhere_else(page):
    scores = page.names["contributions"](np.arange(41)).sum(axis=1)
    assert scores.argmax() == 3
    assert scores[3] == pytest.approx(4)
    assert np.delete(scores, [2, 3, 4]).max() < 3


def test_rope_alone_does_not_prefer_the_near(page):
    many, other, apply_rope, rope_angles = (
        page.names[n] for n in ("many", "other", "apply_rope", "rope_angles")
    )
    spreads, copies = [], []
    for d in (0, 10, 100, 1000):
        far = apply_rope(many, rope_angles([d], 64))
        spreads.append(np.sum(far * other, axis=-1).std())
        copies.append(np.sum(far * many, axis=-1).mean())
    np.testing.assert_allclose(spreads, 8, rtol=0.06)
    assert copies == sorted(copies, reverse=True)


def test_layouts_agree_after_the_permutation_and_on_the_diagonal_without_it(page):
    published, carried, gap = (page.names[n] for n in ("published", "carried", "gap"))
    np.testing.assert_allclose(carried, published, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(gap), 0, atol=1e-12)
    assert (gap[~np.eye(len(gap), dtype=bool)] > 1e-3).all(), "all the others are wrong"


def test_looking_back_goes_on_with_rope_has_gaps_with_sinusoids_and_ends_with_the_table(page):
    for runs in page.names["hits"].values():
        for run_ in runs:
            assert run_[: 64 - 3].mean() > 0.98, "trained"
    assert number(page, "near-learned") < 0.02
    assert 0.5 < number(page, "near-sinusoids") < 0.95
    assert number(page, "near-sinusoids-least") < 0.05
    assert number(page, "near-rope-least") > 0.9


def test_finding_fails_beyond_the_trained_distance_unless_positions_are_divided(page):
    rates, far = page.names["rates"], page.names["far"]
    for rate in rates.values():
        assert min(r for r, d in zip(rate, far, strict=True) if d <= 63) > 0.9
    assert number(page, "far-rope-128") < 0.8
    assert number(page, "far-rope-511") < 0.2
    assert number(page, "far-squeezed-least") > 0.9
    assert min(rates["no positions"]) > 0.9
    assert number(page, "slow-share") > 90, "the score came from the slow pairs"


def test_dividing_positions_moves_the_nearby_job_to_where_the_angle_lies(page):
    assert number(page, "squeezed-three") < 0.01
    assert number(page, "squeezed-looks") == 3 * 8


def test_five_of_seven_wrong_versions_pass_every_test_of_properties(page):
    passed = page.names["passed"]
    assert all(passed["right"])
    assert number(page, "pass-three") == 5
    assert not any(tests[3] for name, tests in passed.items() if name != "right")
    assert passed["position squared"][:3] == (True, True, False), "only distance 0 lets it through"
