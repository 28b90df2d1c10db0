"""The words of chapter 11 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.book.cells import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("11-reading-heads")


def number(page, name: str) -> float:
    return float(page.said[f"reading-{name}"])


def test_induction_comes_suddenly_with_two_layers_and_not_with_one(page):
    assert number(page, "before") < 35 < 85 < number(page, "after")
    assert number(page, "at-end") > 90
    assert number(page, "one-best") < 25
    assert number(page, "one-induction") < 0.2


def test_both_kinds_of_head_rise_together(page):
    moment = page.names["step"] == page.names["moment"]
    induction, previous = page.names["induction"], page.names["previous"]
    assert induction[0] < 0.1 < induction[moment] < induction[-1]
    assert previous[0] < 0.2 < previous[moment]


def test_no_single_head_is_needed_and_all_that_look_back_are(page):
    left, all_right = page.names["left"], page.names["all_right"]
    assert len(page.names["writers"]) >= 2
    assert page.names["single"].min() > 0.7 * all_right, "the others stand in"
    right, induction = left["all previous-token heads"]
    assert right < all_right / 3
    assert induction < left["nothing"][1] / 2, "in a layer that nobody touched"
    assert left["the rest of layer 0"][0] > 0.85 * all_right
    assert left["all of layer 1"][0] < all_right / 3


def test_induction_heads_lie_above_previous_token_heads(page):
    lowest = np.flatnonzero(page.names["looking_back"].any(axis=1))[0]
    assert np.flatnonzero(page.names["completing"].any(axis=1))[0] > lowest
    assert page.names["sinks"].sum() > 80
    assert number(page, "induction-sink") > 0.5, "the best induction head waits at the sink"
    assert number(page, "value-sink") < 0.5, "the value of the sink is short"


def test_induction_heads_are_needed_for_copies_and_hardly_for_the_novel(page):
    loss, top, random = (number(page, f"copy-{n}") for n in ("loss", "top-2", "random-2"))
    assert top - loss > 3 * (random - loss)
    loss, top = (number(page, f"novel-{n}") for n in ("loss", "top-2"))
    assert top - loss < 0.2


def test_the_encoder_has_no_head_that_resolves_pronouns(page):
    assert number(page, "l3h1-right") == 6
    assert number(page, "six-heads") > number(page, "six-coins") >= 10
    assert 45 < number(page, "moves-right") < 60
    assert number(page, "chosen-right") < 65
    assert 6 <= number(page, "minilm-signs") <= 10, "about what guessing gives"
    assert number(page, "gap-l3h1") < number(page, "gap-most") / 3


def test_the_causal_rows_are_the_same_to_the_last_bit(page):
    assert all(p["rows_differ_by"] == 0 for p in page.names["pairs"])
    moved = [np.subtract(*map(np.array, p["at_last"])) for p in page.names["pairs"]]
    assert all(np.abs(m).max() > 0.01 for m in moved), "at the ending itself they differ"


def test_the_model_names_the_animal_both_times(page):
    assert number(page, "odds-tired") > number(page, "odds-wide") > 0


def test_weights_on_the_noun_do_not_tell_which_heads_count(page):
    assert number(page, "reason-correlation") < 0.5
    assert number(page, "reason-moved") < number(page, "reason-most") / 2


def test_what_is_printed_fits_the_column(page):
    too_long = [line for line in page.printed.splitlines() if len(line) > 80]
    assert too_long == []
