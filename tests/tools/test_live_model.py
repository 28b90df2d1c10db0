"""The script that makes the model of the page: what it writes down is what it reads back."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("regex")

import torch

import attend

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "tools" / "live_model.py"
    spec = importlib.util.spec_from_file_location("live_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_weights_come_back_to_half_a_step(tool):
    torch.manual_seed(5)
    model = attend.gpt(
        attend.GPTConfig(vocab=31, context=7, d_model=8, n_layers=2, n_heads=2, d_hidden=12)
    )
    again = tool.unpacked(*tool.packed(model))
    for name, parameter in model.named_parameters():
        rows = parameter.detach().T if tool.is_transposed(name) else parameter.detach()
        back = again[name].T if tool.is_transposed(name) else again[name]
        step = rows.abs().amax(-1, keepdim=True) / 127 if rows.ndim == 2 else 0 * rows
        assert ((back - rows).abs() <= step / 2 * 1.0001).all(), name


def test_what_a_script_puts_into_the_page_can_be_read_back(tool, tmp_path):
    content = {"a": [1, 2.5, None], "text": "“ü”\n"}
    file = tmp_path / "example.js"
    file.write_text(tool.script("example", content), "utf-8")
    assert tool.content_of(file) == content


def test_switches_are_back_where_they_were_afterwards(tool):
    model, tokenizer = tool.read()
    ids = torch.tensor([tokenizer.encode("My dear Mr. Bennet")])
    with torch.inference_mode():
        before = model(ids)
        everything = {"causal": False, "scaled": False, "positions": False, "removed": ((0, 1),)}
        with tool.switched(model, **everything):
            assert not torch.allclose(model(ids), before, atol=0.1)
        assert torch.equal(model(ids), before)


def test_the_text_is_that_of_the_novel_in_two_parts(tool):
    learned, held_out = tool.learned_and_held_out(tool.novel())
    assert learned + held_out == tool.novel()
    assert 0.03 < len(held_out) / len(learned + held_out) < 0.05 + 0.01
    assert "It is a truth universally acknowledged, that a single man in possession of" in learned
