"""The words of chapter 09 around its numbers are true of the numbers that its cells compute.

Times are never asserted: what was measured in a build stands on its page, in words that hold on any
machine. What the stored table says is asserted, as far as it is no time.
"""

from __future__ import annotations

import json

import pytest

from attend import decode_flops
from tests.book.cells import BOOK, run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page():
    return run("09-kv-cache")


@pytest.fixture(scope="module")
def stored():
    return json.loads((BOOK / "data" / "09-kv-cache.json").read_text("utf-8"))


def test_without_a_cache_every_token_is_read_again_and_again(page):
    assert page.said["kv-fed"] == "14,950" == f"{sum(range(100, 200)):,}"
    assert page.said["kv-fed-once"] == "199"


def test_old_keys_stay_with_the_mask_and_move_without_it_from_the_second_layer_on(page):
    moved = page.names["moved"]
    assert moved["with the mask"].max() < 1e-12
    without = moved["without it"]
    assert without[0].max() < 1e-12, "a key of the first layer is made of its own token alone"
    assert without[1:].min() > 0.01


def test_chunks_give_the_logits_of_the_whole_text(page):
    model, ids = page.names["model"], page.names["ids"]
    whole = model(ids)
    for lengths in page.names["ways"].values():
        off = (page.names["in_chunks"](model, ids, lengths) - whole).abs().max()
        assert off < 1e-9


def test_what_is_kept_is_what_the_formula_counts(page):
    assert page.names["as_counted"]
    held = page.names["held"]
    assert held["MHA", 1024] == 4 * held["GQA", 1024]


def test_only_chunks_show_the_wrong_masks(page):
    furthest = page.names["furthest"]
    for name in ("mask lined up at the start", "no mask once the cache is warm"):
        assert furthest[name, "all at once"] < 1e-9
        assert furthest[name, "one by one"] < 1e-9
        assert furthest[name, "chunks"] > 1
    for name in page.names["versions"]:
        assert (furthest[name, "chunks"] > 0.5) == (name != "right")
    assert furthest["stored keys rotated again", "all at once"] > 0.5, "from the first call on"


def test_positions_off_by_one_hide_in_the_loss_and_show_in_the_logits(stored):
    rows = {row["positions"]: row for row in stored["positions"]}
    right, rounding = rows["right"], rows["right, token by token"]["furthest logit"]
    for name in ("one too early", "one too late"):
        assert abs(rows[name]["loss"] - right["loss"]) < 0.01
        assert rows[name]["furthest logit"] > 1000 * rounding
        assert min(rows[name]["by token"]) > 100 * rounding, "plain at every token"
        assert rows[name]["other first choice"] < len(right["by token"]) / 20
    assert rows["begun again at 0"]["loss"] > right["loss"] + 0.3
    assert rows["0 for every token"]["loss"] > right["loss"] + 2


def test_the_table_of_the_published_model_is_whole(stored):
    assert [row["tokens"] for row in stored["lengths"]] == [64, 128, 256, 512, 1024]
    assert [row["batch"] for row in stored["batches"]] == [1, 2, 4, 8, 16]
    assert all(len(row["by token"]) == 320 for row in stored["positions"] if "loss" in row)


def test_the_notebook_tells_the_counted_gain_of_the_published_model():
    sizes = (30, 576, 1536, 9, 3, 49152, 512)
    assert 400 < decode_flops(*sizes, cached=False) / decode_flops(*sizes) < 430


def test_six_texts_of_llama_2_weigh_as_much_as_the_model(page):
    assert page.said["kv-llama-2-texts"] == "6"
    assert page.said["kv-llama-3-long"] == "17"
