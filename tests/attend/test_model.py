"""The model as a whole. That it is the same model as Hugging Face's is in test_pretrained.py."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

import attend

SIZES = dict(vocab=29, context=16, d_model=12, n_layers=3, n_heads=6, d_hidden=20)
GPT = attend.GPTConfig(**SIZES)
LLAMA = attend.LlamaConfig(**SIZES, n_kv_heads=3)
BERT = attend.BertConfig(**SIZES)


def make(build, config) -> attend.Transformer:
    """A model whose weights are large enough to make its outputs differ."""
    torch.manual_seed(5)
    model = build(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= 20
    return model


def ids_of(*shape: int) -> torch.Tensor:
    return torch.randint(0, 29, shape, generator=torch.Generator().manual_seed(6))


causal_models = pytest.mark.parametrize(
    "model",
    [
        make(attend.gpt, GPT),
        make(attend.gpt, dataclasses.replace(GPT, tied=False, bias=True)),
        make(attend.llama, LLAMA),
        make(attend.llama, dataclasses.replace(LLAMA, tied=False)),
    ],
    ids=["gpt", "gpt with bias and head", "llama", "llama with head"],
)


@causal_models
def test_a_generator_gives_logits_and_never_reads_ahead(model):
    ids = ids_of(2, 11)
    logits = model(ids)
    assert logits.shape == (2, 11, 29)
    for t in range(1, 11):
        changed = ids.clone()
        changed[:, t:] = (ids[:, t:] + 7) % 29
        after = model(changed)
        torch.testing.assert_close(after[:, :t], logits[:, :t], rtol=0, atol=1e-12)
        assert (after[:, t] - logits[:, t]).abs().max() > 1e-3


def test_a_reader_gives_vectors_and_sees_everything():
    model, ids = make(attend.bert, BERT), ids_of(2, 11)
    vectors = model(ids)
    assert vectors.shape == (2, 11, 12)
    ids[:, -1] = (ids[:, -1] + 1) % 29
    assert (model(ids) - vectors)[:, 0].abs().max() > 1e-3


def test_padding_at_the_end_changes_nothing_for_a_reader():
    model, ids = make(attend.bert, BERT), ids_of(2, 11)
    mask = attend.padding_mask([7, 11], 11, like=ids)[:, None, None, :]
    together = model(ids, mask=mask)
    torch.testing.assert_close(together[:1, :7], model(ids[:1, :7]))
    torch.testing.assert_close(together[1:], model(ids[1:]))


@causal_models
def test_padding_at_the_start_changes_nothing_for_a_generator(model):
    ids = ids_of(2, 11)
    together = model(ids, padding=torch.tensor([4, 0]))
    torch.testing.assert_close(together[:1, 4:], model(ids[:1, 4:]))
    torch.testing.assert_close(together[1:], model(ids[1:]))


@causal_models
def test_positions_matter(model):
    same = model(torch.full((1, 5), 3))
    different = model(torch.tensor([[3, 4, 3, 4, 3]]))
    if isinstance(model.embedding, attend.PositionedEmbedding):
        assert (same[0, 0] - same[0, 4]).abs().max() > 1e-3
    swapped = model(torch.tensor([[4, 3, 3, 4, 3]]))
    assert (different[0, 4] - swapped[0, 4]).abs().max() > 1e-3


@causal_models
def test_every_parameter_learns(model):
    model = copy.deepcopy(model)
    model(ids_of(2, 11)).logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name


def test_tied_weights_are_one_parameter_even_in_a_copy():
    for build, config in ((attend.gpt, GPT), (attend.llama, LLAMA)):
        model = copy.deepcopy(make(build, config))
        assert "head.w_vocab" not in model.state_dict()
        with torch.no_grad():
            model.embedding.tokens.zero_()
        assert (model(ids_of(1, 3)) == 0).all()


def test_tokens_beyond_the_context_are_refused_with_the_numbers():
    for build, config in ((attend.gpt, GPT), (attend.llama, LLAMA), (attend.bert, BERT)):
        model = make(build, config)
        assert model(ids_of(1, 16)).shape[1] == 16
        with pytest.raises(ValueError, match="17 tokens do not fit in a context of 16"):
            model(ids_of(1, 17))


def test_an_id_outside_the_vocabulary_is_refused():
    with pytest.raises(IndexError, match="id 29"):
        make(attend.gpt, GPT)(torch.tensor([[29]]))


def test_each_block_needs_its_cache():
    with pytest.raises(ValueError, match="2 caches for 3 blocks"):
        make(attend.gpt, GPT)(ids_of(1, 3), caches=[None, None])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab": 0}, "vocab is 0"),
        ({"d_model": 12.0}, "d_model is 12.0"),
        ({"n_layers": True}, "n_layers is True"),
        ({"norm_eps": -1.0}, "norm_eps is -1.0: it must be a number above 0"),
        ({"norm_eps": float("nan")}, "norm_eps is nan"),
        ({"norm_eps": "1e-5"}, "norm_eps is '1e-5'"),
        ({"rope_base": -5.0}, "rope_base is -5.0"),
        ({"tied": "yes"}, "tied is 'yes': it must be True or False"),
        ({"n_heads": 5}, "n_heads = 5 must divide d_model = 12"),
        ({"n_kv_heads": 4}, "n_kv_heads = 4 must divide n_heads = 6"),
        ({"n_heads": 12, "n_kv_heads": 12}, "heads are 1 wide"),
    ],
)
def test_sizes_that_cannot_work_are_refused_in_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(LLAMA, **change)


def test_configs_cannot_be_changed_afterwards():
    with pytest.raises(dataclasses.FrozenInstanceError):
        GPT.d_model = 8


def test_parameters_are_counted_by_part():
    counts = attend.count_parameters(attend.gpt(GPT))
    assert counts == {
        "embedding": (29 + 16) * 12,
        "attention": 3 * attend.attention_parameters(12, 6),
        "feed-forward": 3 * (2 * 12 * 20 + 20 + 12),
        "norms": 7 * 2 * 12,
        "head": 0,
        "total": sum(p.numel() for p in attend.gpt(GPT).parameters()),
    }
    gated = attend.count_parameters(attend.llama(dataclasses.replace(LLAMA, tied=False)))
    block = attend.block_parameters(12, 20, 6, 3, gated=True, norm="rms")
    assert gated["total"] == 3 * block + 2 * 29 * 12 + 12
    assert gated["head"] == 29 * 12
