"""The words of chapter 06 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import numpy as np
import pytest

from tests.book.cells import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("06-heads")


def number(page, name: str) -> float:
    return float(page.said[f"heads-{name}"])


def test_the_error_lies_on_the_line_until_there_is_a_head_for_each_place(page):
    for asked, heads in page.names["HEADS"].items():
        for H, error in zip(heads, page.names["errors"][asked], strict=True):
            if asked >= H:
                assert error == pytest.approx(1 - H / asked, abs=0.03)
            elif H <= 12:
                assert error < 0.03


def test_heads_of_width_1_are_too_narrow(page):
    assert page.names["errors"][4][-1] > 0.2


def test_every_number_of_heads_has_the_same_parameters(page):
    names = page.names
    sizes = {names["attention_parameters"](768, H) for H in (1, 12, 768)}
    assert sizes == {4 * 768**2}


def test_one_mixture_explains_one_place_in_all_whatever_its_weights(page):
    alpha = np.random.default_rng(0).dirichlet(np.ones(5))
    values = np.random.default_rng(1).standard_normal((20_000, 5))
    mixture = values @ alpha
    explained = [np.corrcoef(mixture, v)[0, 1] ** 2 for v in values.T]
    assert sum(explained) == pytest.approx(1, abs=0.05)


def test_previous_token_heads_are_few_and_the_first_token_is_the_commonest_habit(page):
    assert 1 <= number(page, "previous-half") < 20
    assert 1 <= number(page, "induction-half") < 20
    assert number(page, "first-half") > 3 * number(page, "previous-half")


def test_the_pair_that_we_would_like_to_believe_in_is_not_rare(page):
    assert number(page, "pairs-above") >= 20
    assert number(page, "pairs-half") >= 30
    assert page.names["mine"] == page.names["tired"][13, 8, page.names["at"], 1]


def test_wrong_splits_leak_unless_the_merge_is_wrong_as_well(page):
    names = page.names
    f, x, other = names["versions"], names["x"], names["other"]
    leaks = {
        name: any(names["leaks_future"](g, x, t) for t in range(len(x))) for name, g in f.items()
    }
    assert leaks == {
        "right": False,
        "split wrong": True,
        "merge wrong": True,
        "both wrong": False,
    }
    far = {name: np.abs(g(other)[-1] - g(x)[-1]).max() for name, g in f.items()}
    assert far["right"] > 0.01
    assert far["both wrong"] == 0


def test_tiling_ruins_a_model_that_was_trained_with_groups(page):
    assert number(page, "loss-right") < 3
    assert number(page, "loss-tiled") > 2 * number(page, "loss-right")


def test_heads_that_find_the_verb_hold_on_sentences_that_they_were_not_chosen_on(page):
    for model in ("smollm2", "minilm"):
        tested = number(page, f"{model}-object-to-verb-tested")
        assert tested > 2 * number(page, f"{model}-object-to-verb-rival")
        assert number(page, f"{model}-object-to-verb-others") > 0.4, "they look for verbs anyway"
    fall = number(page, "minilm-verb-to-object-chosen") - number(
        page, "minilm-verb-to-object-tested"
    )
    assert fall > 0.15


def test_one_head_has_two_stories(page):
    assert page.said["heads-minilm-verb-to-object-head"] == page.said["heads-reader-best"]


def test_no_head_has_the_rare_word_for_its_job(page):
    assert number(page, "rare-most") < 0.5
    assert number(page, "rare-times-low") > 2


def test_a_model_with_tiled_heads_is_no_better_than_a_guess(page):
    assert number(page, "loss-tiled") == pytest.approx(number(page, "guess"), abs=0.3)
