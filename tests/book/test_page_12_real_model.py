"""The words of chapter 12 around its numbers are true of the numbers that its cells compute."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.book.cells import BOOK, run

pytestmark = pytest.mark.slow
TABLE = Path(BOOK) / "data" / "real_model.json"


@pytest.fixture(scope="module")
def page():
    return run("12-real-model")


@pytest.fixture(scope="module")
def table():
    return json.loads(TABLE.read_text("utf-8"))


def number(page, name: str) -> float:
    return float(page.said[f"real-{name}"].replace("−", "-"))


def test_the_table_is_small_and_says_how_it_was_made(table):
    assert TABLE.stat().st_size < 300_000
    assert table["command"] == "python tools/real_model.py"


def test_two_programs_that_share_nothing_give_the_same_logits(page):
    assert page.names["tiny_gap"] < 1e-11
    right = page.names["right"]
    assert right.shape == (24, 61) and right.abs().max() > 1


def test_the_published_logits_differ_by_what_float32_leaves_open(table):
    a = table["agreement"]
    assert a["largest difference"] < 2e-4
    # Both programs err, ours no more than theirs by much.
    assert max(a["ours from float64"], a["theirs from float64"]) < 3e-4
    assert a["ours from float64"] < 5 * a["theirs from float64"]
    assert a["loss"] == pytest.approx(a["loss of transformers"], abs=1e-4)
    assert a["same best token"] >= a["tokens"] - 1, "but for a tie within rounding"
    assert a["loss"] == pytest.approx(2.859, abs=0.005)


def test_the_greedy_texts_are_those_of_transformers(table):
    texts = table["agreement"]["texts"]
    assert len(texts) == 3 and all(text["same as transformers"] for text in texts)
    assert all(len(text["pieces"]) == len(text["lead"]) == 30 for text in texts)
    assert "Paris" in "".join(texts[0]["pieces"])


def test_mistakes_cost_on_the_published_model_what_the_page_says(table):
    m = table["mistakes"]
    loss = {name: row["loss"] for name, row in m.items()}
    assert loss["right"] == pytest.approx(2.859, abs=0.005)
    for name, known in {
        "q and k rows left interleaved": 5.03,
        "RoPE base 10,000": 3.04,
        "no √d_k": 7.43,
        "heads tiled, not repeated": 10.7,
    }.items():
        assert loss[name] == pytest.approx(known, abs=0.1), name
    short = m["one position short behind the cache"]
    assert 0 < short["loss"] - loss["right"] < 0.05 and short["largest gap"] > 0.5
    assert m["q and k rows left interleaved"]["p(Paris)"] > 0.1, "it still knows Paris"
    assert loss["no causal mask"] < loss["right"] - 1, "too good"
    assert m["positions from 1"]["largest gap"] < 1e-3, "distances alone matter"
    assert 0.7 < loss["GELU in the gate"] - loss["right"] < 1, "almost a nat"
    eps = m["eps 1e-6 for 1e-5"]
    assert abs(eps["loss"] - loss["right"]) < 0.005 and eps["largest gap"] > 0.01


def test_one_token_tells_scores_from_the_rest_in_both_models(page, table):
    gaps, published = page.names["gaps"], table["mistakes"]
    shows_late = ("q and k rows left interleaved", "no √d_k", "RoPE base 10,000")
    shows_at_once = (
        "heads tiled, not repeated",
        "gate and up swapped",
        "GELU in the gate",
        "v un-permuted",
        "square matrices left (out, in)",
    )
    for name in shows_late:
        assert gaps[name][0] < 1e-11 < 1e-3 < gaps[name][1]
        assert published[name]["gap at position 0"] < 1e-3 < published[name]["gap at position 1"]
    for name in shows_at_once:
        assert gaps[name][0] > 1e-3
        assert published[name]["gap at position 0"] > 1e-3
    late = gaps["one position short behind the cache"]
    assert late[:12].max() < 1e-11 and late[12] > 1e-3
    assert gaps["positions from 1"].max() < 1e-9
    base = gaps["RoPE base 10,000"]
    assert base[1] < base[12:].max() / 3, "its curve starts low and climbs"


def test_the_cache_pays_more_the_longer_the_text(table):
    steps = {row["tokens"]: row for row in table["speed"]["steps"]}
    times = [steps[n]["without"] / steps[n]["with cache"] for n in (64, 256, 512)]
    assert times == sorted(times) and times[-1] > 10
    with_cache = [row["with cache"] for row in steps.values()]
    assert max(with_cache) < 2 * min(with_cache), "nearly the same at every length"
    decode = table["speed"]["decode tokens/s"]
    assert decode["ours"] < decode["limit"]


def test_the_bytes_of_the_file_are_read_as_the_library_reads_them(page, table):
    library = table["file"]["first 32 numbers of blk.0.attn_q"]
    np.testing.assert_array_equal(page.names["piece"], np.float32(library))
    assert page.names["n_tensors"] == table["file"]["tensors"] == 272
    assert page.names["magic"] == b"GGUF"


def test_the_count_of_parameters_is_the_files(page, table):
    assert page.said["real-total"] == f"{table['file']['numbers']:,}"


def test_no_number_is_said_that_is_not_one(page):
    for name, value in page.said.items():
        assert "nan" not in value.lower(), name
    assert np.isfinite(number(page, "loss-right"))


def test_what_is_printed_fits_the_column(page):
    too_long = [line for line in page.printed.splitlines() if len(line) > 80]
    assert too_long == []
