"""The table of chapter 11: its form everywhere, some of its numbers where the models are."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import attend
from tests.published import load

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("read_heads", ROOT / "tools" / "read_heads.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(tool):
    return json.loads(tool.TABLE.read_text("utf-8"))


def test_the_table_is_small_and_says_how_it_was_made(tool, table):
    assert tool.TABLE.stat().st_size < 300_000
    assert table["command"] == "python tools/read_heads.py"
    assert (ROOT / table["command"].split()[1]).is_file()


@pytest.mark.parametrize(("model", "shape"), [("smollm2", (30, 9)), ("minilm", (6, 12))])
def test_every_head_has_every_score(table, model, shape):
    for name, scores in table[model]["scores"].items():
        scores = np.array(scores)
        assert scores.shape == shape, name
        assert np.all(scores >= 0) and (name == "first_value" or np.all(scores <= 1)), name


@pytest.mark.parametrize(("model", "shape"), [("smollm2", (30, 9)), ("minilm", (6, 12))])
def test_each_pair_holds_what_the_page_reads(tool, table, model, shape):
    assert len(table[model]["pairs"]) == len(tool.PAIRS) == 8
    for pair, (first, second, *_, one, other) in zip(
        table[model]["pairs"], tool.PAIRS, strict=True
    ):
        names = [pair["tokens"][c].strip() for c in pair["candidates"]]
        assert names == [first, second]
        assert pair["tokens"][pair["at"]].strip() == "it"
        assert pair["endings"] == [one, other]
        before = () if model == "smollm2" else (2,)  # a causal model has one row for both endings
        assert np.shape(pair["at_it"]) == (*before, *shape, 2)
        key = "log_odds" if model == "smollm2" else "margin"
        assert np.shape(pair[key]) == (2,)
        assert np.shape(pair[f"{key}_without"]) == (*before, *shape)


def test_ablations_of_each_size_are_there(tool, table):
    ablation = table["smollm2"]["ablation"]
    assert len(ablation["ranked"]) == max(ablation["sizes"]) == 16
    for text in ("copy", "novel"):
        assert np.shape(ablation[text]["without_one"]) == (30, 9)
        assert np.shape(ablation[text]["without_top"]) == (5,)
        assert np.shape(ablation[text]["without_random"]) == (5, tool.DRAWS)
        best = ablation["ranked"][0]
        alone = np.array(ablation[text]["without_one"])[tuple(best)]
        assert alone == pytest.approx(ablation[text]["without_top"][0], abs=2e-3)


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    config = attend.LlamaConfig(
        vocab=50, context=64, d_model=12, n_layers=3, n_heads=6, d_hidden=8, n_kv_heads=2
    )
    model = attend.llama(config).requires_grad_(False).double()
    for parameter in model.parameters():
        parameter.normal_(std=0.3)
    return model


def test_an_ablation_in_a_batch_is_that_of_attend(tool, small):
    ids = torch.randint(50, (11,)).tolist()
    measure = tool.loss_from(small, ids, 3)
    each = tool.without_each(small, ids, measure, "")
    groups = [[(0, 1)], [(2, 5), (1, 0)], []]
    several = tool.without_groups(small, ids, groups, measure)

    def loss(heads):
        with attend.ablated(small, heads), torch.no_grad():
            logits = small(torch.tensor([ids]))[0, 2:-1]
        return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[3:]))

    for layer, head in ((0, 0), (1, 4), (2, 5)):
        torch.testing.assert_close(each[layer, head], loss([(layer, head)]))
    torch.testing.assert_close(several, torch.stack([loss(group) for group in groups]))


@pytest.mark.slow
def test_minilms_rows_at_it_are_those_of_the_table(tool, table):
    model, tokenizer = load("minilm-l6")
    for pair, (_, _, sentence, _, *endings) in zip(
        table["minilm"]["pairs"], tool.PAIRS, strict=True
    ):
        for ending, rows in zip(endings, pair["at_it"], strict=True):
            weights = tool.weights_of(model, tokenizer.encode(sentence.format(ending)))
            got = weights[:, :, pair["at"], pair["candidates"]]
            np.testing.assert_allclose(got, rows, rtol=1e-2, atol=1e-5)


@pytest.mark.slow
def test_smollm2s_rows_and_answers_are_those_of_the_table(tool, table):
    model, tokenizer = load("smollm2-135m")
    pair, (first, second, sentence, question, *endings) = (
        table["smollm2"]["pairs"][0],
        tool.PAIRS[0],
    )
    rows = []
    for ending, odds in zip(endings, pair["log_odds"], strict=True):
        text = sentence.format(ending)
        rows.append(tool.weights_of(model, tokenizer.encode(text))[:, :, pair["at"]])
        ids = tokenizer.encode(f"{text} What was {question.format(ending)}? The")
        one, other = (tokenizer.encode(f" {word}")[0] for word in (first, second))
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1]
        assert (logits[one] - logits[other]).item() == pytest.approx(odds, abs=0.01)
    assert torch.equal(*rows), "a causal row cannot depend on what follows"
    np.testing.assert_allclose(
        rows[0][..., pair["candidates"]], pair["at_it"], rtol=1e-2, atol=1e-5
    )
