"""The words of chapter 08 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from tests.book.cells import BOOK, run

pytestmark = pytest.mark.slow

DATA = BOOK / "data"


@pytest.fixture(scope="module")
def page():
    return run("08-language-model")


def number(page, name: str) -> float:
    return float(page.said[f"lm-{name}"].replace(",", ""))


def stored(name: str) -> dict:
    return json.loads((DATA / name).read_text("utf-8"))


def test_an_untrained_model_is_as_unsure_as_a_fair_choice(page):
    assert abs(number(page, "untrained") - math.log(75)) < 0.1


def test_the_example_by_hand_and_our_function_agree(page):
    loss = page.names["next_token_loss"](page.names["three_rows"], torch.tensor([0, 1, 2]))
    torch.testing.assert_close(loss, page.names["surprises"].mean())


def test_the_model_learns_more_than_short_contexts_can_tell(page):
    grams = page.names["n_gram_losses"]
    assert number(page, "final") < grams[2], "past the 3-gram"
    assert number(page, "beaten") >= 3
    assert min(grams) < grams[-1], "beyond the best order counting gets worse"


def test_words_begin_with_a_surprise(page):
    assert number(page, "first-letter") > 1.5 * number(page, "inside-word")


def test_context_helps_most_at_the_start(page):
    losses = [number(page, f"place-{n}") for n in ("1", "2", "8", "middle")]
    assert losses == sorted(losses, reverse=True)
    assert abs(number(page, "place-64") - losses[3]) < 0.05, "the rest adds almost nothing"


def test_the_nucleus_is_narrow_at_a_name_and_wide_at_a_word(page):
    assert number(page, "nucleus-0") < number(page, "nucleus-1") / 2
    assert number(page, "mass-0") > number(page, "mass-1") + 0.2


def test_cold_text_repeats_and_hot_text_misspells(page):
    assert number(page, "repeats-t0") > 5 * number(page, "repeats-novel") + 10
    assert number(page, "words-t2") < number(page, "words-t1") < number(page, "words-t05")
    assert number(page, "words-p9") > number(page, "words-t1")
    assert number(page, "words-hot-p9") > number(page, "words-t15")


def test_each_mistake_shows_its_symptom(page):
    right = number(page, "honest-right")
    assert number(page, "reported-no-shift") < 0.1
    assert number(page, "honest-no-shift") > math.log(75)
    assert number(page, "reported-no-mask") < 0.1
    assert 300 < number(page, "cliff") < 600, "some hundred steps"
    assert number(page, "honest-no-mask") > right + 0.2
    assert number(page, "reported-softmax-twice") >= number(page, "twice-least")
    assert right < number(page, "honest-no-positions") < right + 0.5


def test_what_the_page_reads_is_what_the_script_writes():
    sizes = [path.stat().st_size for path in DATA.glob("character-*.json")]
    assert len(sizes) == 2
    assert max(sizes) < 300_000
    long = stored("character-model.json")
    assert sum(long["parameters"].values()) == 2 * long["parameters"]["total"]
    assert len(long["characters"]) == 75
    assert list(map(int, long["samples"])) == sorted(map(int, long["samples"]))


def test_the_script_that_wrote_it_is_there():
    assert (Path(BOOK).parent / "tools" / "train_character_model.py").exists()


def test_what_is_printed_fits_the_column(page):
    too_long = [line for line in page.printed.splitlines() if len(line) > 80]
    assert too_long == []
