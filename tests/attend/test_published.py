"""The published models on our code, against numbers that transformers computed with the same files
(reference/make_reference.py). They must have been fetched (`course fetch-models`); CI fetches them
itself."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import attend
from attend.tokenizer import DIGIT_PATTERN, GPT2_PATTERN
from tests.published import load

from .test_checkpoints import interleaved_rows
from .test_tokenizer import NOVEL, SOURCE, library_version, random_texts

pytestmark = pytest.mark.slow
REFERENCE = np.load(Path(__file__).parent / "reference" / "published.npz")


def reference(name: str) -> torch.Tensor:
    return torch.from_numpy(REFERENCE[name])


@pytest.fixture(scope="module")
def smollm2():
    return load("smollm2-135m")


@pytest.fixture(scope="module")
def minilm():
    return load("minilm-l6")


@pytest.fixture(scope="module")
def logits(smollm2):
    with torch.no_grad():
        return smollm2.model(reference("smollm2_ids")[None])[0]


def same_best_token(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Wherever the best two differ by more than rounding."""
    top = ours.topk(2).values
    clear = top[..., 0] - top[..., 1] > 1e-3
    return torch.equal(ours.argmax(-1)[clear], theirs[clear])


def loss_of(model) -> float:
    ids = reference("smollm2_ids")[None]
    with torch.no_grad():
        return attend.next_token_loss(model(ids), ids).item()


def test_the_logits_are_those_of_transformers(logits):
    ours = logits[:64, ::97]
    torch.testing.assert_close(ours, reference("smollm2_logits"), rtol=0, atol=2e-4)
    assert same_best_token(logits, reference("smollm2_best"))


def test_the_loss_on_the_novel_is_the_measured_one(smollm2, logits):
    ids = reference("smollm2_ids")
    start = NOVEL.index("It is a truth")
    assert smollm2.tokenizer.encode(NOVEL[start : start + 4000])[:384] == ids.tolist()
    loss = attend.next_token_loss(logits, ids).item()
    assert loss == pytest.approx(2.859, abs=0.005)
    assert loss == pytest.approx(float(REFERENCE["smollm2_loss"]), abs=1e-4)


@contextmanager
def kernel(model, change):
    kept = [block.attention.kernel for block in model.blocks]
    for block in model.blocks:
        block.attention.kernel = change
    yield
    for block, old in zip(model.blocks, kept, strict=True):
        block.attention.kernel = old


@contextmanager
def rotated_by(model, rotary):
    kept = model.blocks[0].attention.rotary
    for block in model.blocks:
        block.attention.rotary = rotary
    yield
    for block in model.blocks:
        block.attention.rotary = kept


@contextmanager
def rows_as_published(model):
    """Queries and keys left in the interleaved order of the file."""
    kept = []
    for block in model.blocks:
        for name, heads in (("w_q", 9), ("w_k", 3)):
            w = getattr(block.attention, name)
            kept.append((w, w.data))
            w.data = interleaved_rows(w.data.T, heads).T.contiguous()
    yield
    for w, data in kept:
        w.data = data


def _unscaled(q, k, v, mask):
    return attend.fused_attention(8 * q, k, v, mask)


def _tiled_groups(q, k, v, mask):
    return attend.fused_attention(q, k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1), mask)


@pytest.mark.parametrize(
    ("mistake", "loss"),
    [
        (lambda m: rows_as_published(m), 5.03),
        (lambda m: rotated_by(m, attend.Rotary(64, 512, 1e4)), 3.04),
        (lambda m: kernel(m, _unscaled), 7.43),
        (lambda m: kernel(m, _tiled_groups), 10.7),
    ],
    ids=["interleaved rows, half-split", "RoPE base 10,000", "no √d_k", "groups tiled"],
)
def test_mistakes_that_still_speak_show_in_the_loss(smollm2, mistake, loss):
    with mistake(smollm2.model):
        assert loss_of(smollm2.model) == pytest.approx(loss, abs=0.1)


def test_the_text_is_that_of_transformers(smollm2):
    for i in range(3):
        text = reference(f"smollm2_greedy_{i}")
        prompt = text[:-30][None]
        assert attend.generate_cached(smollm2.model, prompt, 30)[0].tolist() == text.tolist()


@pytest.fixture(scope="module")
def exact(smollm2):
    """The model in float64, where a mistake cannot hide in rounding, and its logits."""
    model = copy.deepcopy(smollm2.model).double()
    with torch.no_grad():
        return model, model(reference("smollm2_ids")[None, :24])[0]


CHUNKS = [[24], [1] * 24, [7, 1, 16], [3, 5, 1, 1, 14], [23, 1]]


@pytest.mark.parametrize("chunks", CHUNKS)
def test_caches_change_nothing_for_any_chunking(exact, chunks):
    model, logits = exact
    ids, caches = reference("smollm2_ids")[None, :24], attend.new_caches(model, 1, 24)
    with torch.no_grad():
        parts = [model(part, caches)[0] for part in ids.split(chunks, dim=1)]
    torch.testing.assert_close(torch.cat(parts), logits, rtol=0, atol=1e-9)
    formula = attend.kv_cache_bytes(30, 3, 64, 24, bytes_per_value=8)
    assert sum(cache.nbytes for cache in caches) == formula


@pytest.mark.parametrize("chunks", CHUNKS[1:3])
def test_in_float32_caches_change_no_more_than_rounding_does(smollm2, exact, logits, chunks):
    """The logits are up to 30; each is off by about 1e-4 in float32, with caches and without."""
    model, ids = smollm2.model, reference("smollm2_ids")[None, :24]
    assert (logits[:24] - exact[1]).abs().max() < 2e-4
    caches = attend.new_caches(model, 1, 24)
    with torch.no_grad():
        cached = torch.cat([model(part, caches)[0] for part in ids.split(chunks, dim=1)])
    torch.testing.assert_close(cached, logits[:24], rtol=0, atol=3e-4)
    assert same_best_token(cached, logits[:24].argmax(-1))


def test_prompts_of_unequal_lengths_share_a_batch(exact):
    model, logits = exact
    ids, pad = reference("smollm2_ids")[:24], 5
    batch = torch.stack([ids.roll(pad), ids])
    caches = attend.new_caches(model, 2, 24)
    padding = torch.tensor([pad, 0])
    with torch.no_grad():
        parts = [model(part, caches, padding=padding) for part in batch.split(10, dim=1)]
    together = torch.cat(parts, dim=1)
    torch.testing.assert_close(together[0, pad:], logits[: 24 - pad], rtol=0, atol=1e-9)
    torch.testing.assert_close(together[1], logits, rtol=0, atol=1e-9)


def test_the_kernels_give_the_same_numbers(exact):
    model, logits = exact
    ids = reference("smollm2_ids")[None, :24]
    with kernel(model, attend.explicit_attention), torch.no_grad():
        torch.testing.assert_close(model(ids)[0], logits, rtol=0, atol=1e-9)


def test_the_heads_that_are_told_of_are_there(smollm2):
    ids = torch.randint(100, 49_000, (1, 50), generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), attend.captured_weights(smollm2.model) as weights:
        smollm2.model(torch.cat([ids, ids], dim=1))
    induction = torch.stack([attend.induction_score(w[0], 50) for w in weights])
    sink = torch.stack([attend.sink_score(w[0]) for w in weights])
    assert induction.shape == (30, 9) and induction[18, 6] > 0.7
    assert sink[18, 8] > 0.9
    weights.clear()
    with torch.no_grad(), attend.captured_weights(smollm2.model) as weights:
        smollm2.model(reference("smollm2_ids")[None, :64])
    previous = torch.stack([attend.previous_token_score(w[0]) for w in weights])
    assert previous[16, 0] > 0.6 and previous[16, 0] == previous.max()


@pytest.mark.parametrize("text", [NOVEL[:300_000], SOURCE], ids=["English", "Python"])
def test_long_texts_get_the_ids_of_the_library(smollm2, text):
    ours = smollm2.tokenizer
    ids = ours.encode(text)
    assert ids == library_version(ours, (DIGIT_PATTERN, GPT2_PATTERN)).encode(text).ids
    assert ours.decode(ids) == text


def test_random_unicode_gets_the_ids_of_the_library(smollm2):
    theirs = library_version(smollm2.tokenizer, (DIGIT_PATTERN, GPT2_PATTERN))
    for text in random_texts(4000):
        assert smollm2.tokenizer.encode(text) == theirs.encode(text).ids, repr(text)


def test_special_tokens_of_smollm2_are_commands(smollm2):
    tokenizer = smollm2.tokenizer
    assert len(tokenizer) == 49_152 and tokenizer.special["<|im_start|>"] == 1
    assert tokenizer.eos_id == 2
    ids = tokenizer.encode(attend.chat_prompt("Hi"), special=True)
    assert ids[0] == 1 and ids.count(2) == 2
    assert 1 not in tokenizer.encode(attend.chat_prompt("Hi"))


def test_minilm_gives_the_vectors_and_weights_of_transformers(minilm):
    sentence = "The animal did not cross the street because it was too {}."
    for i, word in enumerate(("tired", "wide")):
        ids = minilm.tokenizer.encode(sentence.format(word))
        assert ids == reference(f"minilm_ids_{i}").tolist()
        with torch.no_grad(), attend.captured_weights(minilm.model) as weights:
            vectors = minilm.model(torch.tensor([ids]))[0]
        torch.testing.assert_close(vectors, reference(f"minilm_vectors_{i}"), rtol=0, atol=1e-5)
        torch.testing.assert_close(
            torch.cat(weights), reference(f"minilm_weights_{i}"), rtol=0, atol=1e-5
        )


def test_minilm_reads_its_tokens_as_the_library_does(minilm):
    tokenizer = minilm.tokenizer
    assert len(tokenizer) == 30_522 and tokenizer.pad_id == 0
    words = ["[CLS]", "pride", "and", "prejudice", ",", "un", "##ive", "##rs", "##ally", "[SEP]"]
    ids = tokenizer.encode("Pride and Prejudice, universally")
    assert tokenizer.names(ids)[:5] == words[:5] and tokenizer.names(ids)[-1] == "[SEP]"


def test_a_batch_of_sentences_is_its_sentences(minilm):
    rows = [minilm.tokenizer.encode(text) for text in ("A cat.", "A much longer sentence, it is.")]
    T = max(map(len, rows))
    ids = torch.tensor([row + [minilm.tokenizer.pad_id] * (T - len(row)) for row in rows])
    mask = attend.padding_mask([len(row) for row in rows], T, like=ids)[:, None, None, :]
    with torch.no_grad():
        together = minilm.model(ids, mask=mask)
        alone = minilm.model(torch.tensor([rows[0]]))[0]
    torch.testing.assert_close(together[0, : len(rows[0])], alone, rtol=0, atol=1e-5)
