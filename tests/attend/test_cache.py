"""The cache: the same numbers as without one, however the text is cut."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import attend

from .mistakes import mistakes, must_reject
from .test_model import GPT, LLAMA, ids_of, make
from .test_sampling import Recorder

B, H, G, K, D = 2, 6, 3, 4, 10
WEIGHTS = {
    name: torch.randn(shape, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
    for i, (name, shape) in enumerate(
        {"w_q": (D, H * K), "w_k": (D, G * K), "w_v": (D, G * K), "w_o": (H * K, D)}.items()
    )
}
MODELS = {"gpt": make(attend.gpt, GPT), "llama": make(attend.llama, LLAMA)}


def normal(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)


def chunkings(total: int):
    """All ways to cut a text: a set of places between tokens."""
    cuts = st.sets(st.integers(1, total - 1))
    return cuts.map(lambda c: list(zip([0, *sorted(c)], [*sorted(c), total], strict=True)))


# KVCache


def check_cache(make_cache):
    cache = make_cache(B, G, 7, K, dtype=torch.float64)
    k, v = normal(B, G, 7, K), normal(B, G, 7, K, seed=1)
    for a, b in ((0, 3), (3, 4), (4, 4), (4, 6)):
        new_k, new_v = k[:, :, a:b].clone(), v[:, :, a:b].clone()
        assert len(cache) == a
        for got, all_ in zip(cache.append(new_k, new_v), (k, v), strict=True):
            assert torch.equal(got, all_[:, :, :b]), "keys and values so far, oldest first"
        assert len(cache) == b
        new_k.zero_()
        new_v.zero_()  # what the caller does to its tensors later must not reach the cache
    wide = normal(B, G, 1, K + 1)
    for bad_k, bad_v in (
        (k[:, :, :2], v[:, :, :2]),  # one too many
        (k[:1, :, :1], v[:1, :, :1]),
        (k[:, :1, :1], v[:, :1, :1]),
        (wide, wide),
        (k[:, :, :1].float(), v[:, :, :1].float()),
    ):
        try:
            cache.append(bad_k, bad_v)
        except ValueError:
            assert len(cache) == 6
            continue
        raise AssertionError(f"{tuple(bad_k.shape)} {bad_k.dtype} does not fit")
    assert torch.equal(cache.append(k[:, :, 6:], v[:, :, 6:])[0], k), "unchanged after refusals"
    cache.reset()
    assert len(cache) == 0
    assert torch.equal(cache.append(v, k)[0], v), "same capacity after a reset"


class Lists:
    """A cache as a learner may write it, with a place for each mistake."""

    def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
        self.shape, self.max, self.dtype = (batch, n_kv_heads, d_head), max_tokens, dtype
        self.reset()

    def reset(self):
        self.k = torch.empty(*self.shape[:2], 0, self.shape[2], dtype=self.dtype)
        self.v = self.k

    def __len__(self):
        return self.k.shape[2]

    def misfit(self, k):
        shape = (k.shape[0], k.shape[1], k.shape[3])
        return shape != self.shape or k.dtype != self.dtype or len(self) + k.shape[2] > self.max

    def join(self, old, new):
        return torch.cat([old, new], dim=2)

    def append(self, k, v):
        if self.misfit(k):
            raise ValueError("misfit")
        self.k, self.v = self.join(self.k, k), self.join(self.v, v)
        return self.k, self.v


class NewestFirst(Lists):
    def join(self, old, new):
        return torch.cat([new, old], dim=2)


class Aliasing(Lists):
    def join(self, old, new):
        return new if old.shape[2] == 0 else super().join(old, new)


class Growing(Lists):
    def misfit(self, k):
        return super().misfit(k) and len(self) + k.shape[2] <= self.max


class AnyDtype(Lists):
    def misfit(self, k):
        return super().misfit(k.to(self.dtype))


class DropsTheOldest(Lists):
    def misfit(self, k):
        return len(self) + k.shape[2] <= self.max and super().misfit(k)

    def join(self, old, new):
        return super().join(old, new)[:, :, -self.max :]


class AllHeads(Lists):
    def append(self, k, v):
        return tuple(attend.repeat_kv(x, 2) for x in super().append(k, v))


class Rounded(Lists):
    def join(self, old, new):
        return torch.cat([old, new], dim=2).float()


class ChangedBeforeRefusing(Lists):
    def append(self, k, v):
        self.k = self.join(self.k, k) if k.shape[1:] == self.k.shape[1:] else self.k[:, :, :-1]
        return super().append(k, v)


# attend_with_cache


def whole(x):
    """The oracle: grouped attention with RoPE over the whole text, by PyTorch's kernel."""
    T = x.shape[1]
    angles = attend.rope_angles(torch.arange(T), K, 50.0)
    q = attend.apply_rope(attend.split_heads(x @ WEIGHTS["w_q"], H), angles)
    k = attend.apply_rope(attend.split_heads(x @ WEIGHTS["w_k"], G), angles)
    v = attend.split_heads(x @ WEIGHTS["w_v"], G)
    z = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return attend.merge_heads(z) @ WEIGHTS["w_o"]


def check_attend(attend_with_cache, chunks=((0, 4), (4, 5), (5, 8), (8, 10), (10, 11))):
    x = normal(B, 11, D, seed=9)
    cache = attend.KVCache(B, G, 11, K, dtype=torch.float64)
    parts = [attend_with_cache(x[:, a:b], WEIGHTS, cache, H, G, base=50.0) for a, b in chunks]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole(x))


def _attend(*, mask=None, start=len, own=True, rotate_again=False, scale=True, value_rope=False):
    def f(x, w, cache, n_heads, n_kv_heads, base):
        T, old = x.shape[1], len(cache)
        q = attend.split_heads(x @ w["w_q"], n_heads)
        k, v = (attend.split_heads(x @ w[name], n_kv_heads) for name in ("w_k", "w_v"))
        angles = attend.rope_angles(torch.arange(T) + start(cache), K, base)
        turn = attend.apply_rope
        q, k = turn(q, angles), k if rotate_again else turn(k, angles)
        v = turn(v, angles) if value_rope else v
        k, v = cache.append(k, v)
        S = old + T
        allowed = attend.causal_mask(T, S, like=x) if mask is None else mask(T, S)
        if not own:
            allowed = allowed & ~attend.causal_mask(T, S, like=x).logical_xor(
                torch.ones(T, S).tril(S - T - 1) > 0
            )
        if rotate_again:  # the whole store, each time
            k = turn(k, attend.rope_angles(torch.arange(S), K, base))
            cache._k[:, :, :S] = k
        q = q if scale else q * K**0.5
        return attend.merge_heads(attend.explicit_attention(q, k, v, allowed)) @ w["w_o"]

    return f


@mistakes(
    {
        check_cache: {
            "newest first": NewestFirst,
            "the caller's tensor": Aliasing,
            "grows for ever": Growing,
            "any dtype": AnyDtype,
            "drops the oldest": DropsTheOldest,
            "changed before refusing": ChangedBeforeRefusing,
            "H heads for G": AllHeads,
            "wrong dtype": Rounded,
        },
        check_attend: {
            "own token missing": _attend(own=False),
            "mask lined up at the start": _attend(
                mask=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril()
            ),
            "no mask within a chunk": _attend(mask=lambda T, S: torch.ones(T, S) > 0),
            "positions restart": _attend(start=lambda cache: 0),
            "positions off by one": _attend(start=lambda cache: len(cache) - (len(cache) > 0)),
            "stored keys rotated again": _attend(rotate_again=True),
            "values rotated": _attend(value_rope=True),
            "no scale": _attend(scale=False),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


def test_a_cache_keeps_what_it_is_given_and_says_no_to_the_rest():
    check_cache(attend.KVCache)
    check_cache(Lists)


def test_attention_with_a_cache_is_attention_over_the_whole_text():
    check_attend(attend.attend_with_cache)
    check_attend(_attend())


@settings(max_examples=40)
@given(chunkings(11))
def test_it_does_not_matter_how_the_text_is_cut(chunks):
    check_attend(attend.attend_with_cache, chunks)


def test_a_refusal_names_the_numbers():
    cache = attend.KVCache(B, G, 4, K)
    k = normal(B, G, 3, K, dtype=torch.float32)
    cache.append(k, k)
    with pytest.raises(ValueError, match=r"3 new tokens after 3 make 6, but the cache holds 4"):
        cache.append(k, k)
    with pytest.raises(ValueError, match=r"3 key/value heads and width 4"):
        cache.append(k[:, :2], k[:, :2])
    with pytest.raises(ValueError, match="3 new keys but 1 new values"):
        cache.append(k, k[:, :, :1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_memory_of_a_cache_is_what_the_formula_says(dtype):
    model = make(attend.llama, LLAMA).to(dtype)
    caches = attend.new_caches(model, batch=2, max_tokens=7)
    formula = attend.kv_cache_bytes(3, 3, 2, 7, bytes_per_value=dtype.itemsize, batch=2)
    assert sum(cache.nbytes for cache in caches) == formula
    assert all(cache.max_tokens == 7 for cache in caches)


def test_the_published_sizes_of_a_cache():
    # SmolLM2-135M at its full context in float16, and what it would take without grouped queries
    assert attend.kv_cache_bytes(30, 3, 64, 8192) == 2 * 30 * 3 * 64 * 8192 * 2 == 188_743_680
    assert attend.kv_cache_bytes(30, 9, 64, 8192) == 3 * attend.kv_cache_bytes(30, 3, 64, 8192)


# Models


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@settings(max_examples=25)
@given(chunks=chunkings(11))
def test_a_model_with_caches_gives_the_same_logits_for_every_chunking(model, chunks):
    ids = ids_of(2, 11)
    caches = attend.new_caches(model, 2)
    with torch.no_grad():
        parts = [model(ids[:, a:b], caches) for a, b in chunks]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=0, atol=1e-9)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
@settings(max_examples=15)
@given(chunks=chunkings(11), pad=st.integers(0, 5))
def test_prompts_of_unequal_lengths_share_a_batch(model, chunks, pad):
    """Row 0 is padded at the start; it must come out as it does alone, without padding."""
    ids, padding = ids_of(2, 11), torch.tensor([pad, 0])
    caches = attend.new_caches(model, 2)
    with torch.no_grad():
        parts = [model(ids[:, a:b], caches, padding=padding) for a, b in chunks]
        together = torch.cat(parts, dim=1)
        torch.testing.assert_close(together[:1, pad:], model(ids[:1, pad:]), rtol=0, atol=1e-9)
        torch.testing.assert_close(together[1:], model(ids[1:]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_caches_work_in_every_precision(model, dtype):
    low, ids = copy.deepcopy(model).to(dtype), ids_of(2, 11)
    caches = attend.new_caches(low, 2)
    with torch.no_grad():
        cached = torch.cat([low(ids[:, :7], caches), low(ids[:, 7:], caches)], dim=1)
        plain = low(ids)
    assert cached.dtype == dtype
    limit = 20 * torch.finfo(dtype).eps * plain.abs().max()
    assert (cached - plain).abs().max() <= limit


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS.keys())
def test_generation_with_and_without_cache_gives_the_same_tokens(model):
    ids = ids_of(2, 5)
    greedy = attend.generate_cached(model, ids, 11)
    assert torch.equal(greedy, attend.generate(model, ids, 11, temperature=0))

    def drawn(generate):
        rng = torch.Generator().manual_seed(4)
        return generate(model, ids, 11, temperature=2.0, top_k=9, top_p=0.9, generator=rng)

    assert torch.equal(drawn(attend.generate_cached), drawn(attend.generate))
    assert not torch.equal(drawn(attend.generate), greedy)


def test_a_padded_prompt_goes_on_as_it_does_alone():
    model, ids = MODELS["llama"], ids_of(2, 7)
    together = attend.generate_cached(model, ids, 8, padding=torch.tensor([3, 0]))
    assert torch.equal(together[:1, 3:], attend.generate_cached(model, ids[:1, 3:], 8))
    assert torch.equal(together[1:], attend.generate_cached(model, ids[1:], 8))


class CachedRecorder(Recorder):
    """A model with caches that keeps what it is fed."""

    def __call__(self, ids, caches=None):
        assert caches is not None, "a model without its caches forgets the prompt"
        return super().__call__(ids)


def check_generate_cached(generate):
    prompt = torch.tensor([[1, 2, 3], [4, 5, 6]])
    for n_new in (0, 1, 4):
        model = CachedRecorder()
        got = generate(model, prompt, n_new, caches=["any cache"])
        assert torch.equal(got, attend.generate(Recorder(), prompt, n_new, temperature=0))
        shapes = [tuple(ids.shape) for ids in model.fed]
        assert shapes == [(2, 3), *[(2, 1)] * (n_new - 1)][: len(shapes)]
        assert len(shapes) == n_new
        assert not any(model.gradients)


def _generate_cached(*, prefix_again=False, one_more=False, prompt_in_pieces=False):
    def f(model, ids, n_new, *, caches):
        feed = ids
        with torch.no_grad():
            for piece in ids[:, :-1].split(1, dim=1) if prompt_in_pieces and n_new else ():
                model(piece, caches)
            feed = ids[:, -1:] if prompt_in_pieces else ids
            for _ in range(n_new):
                new = attend.pick(model(feed, caches)[:, -1], 0)
                ids = torch.cat([ids, new], dim=1)
                feed = ids if prefix_again else new
            if one_more:
                model(feed, caches)
        return ids

    return f


@mistakes(
    {
        check_generate_cached: {
            "whole prefix again": _generate_cached(prefix_again=True),
            "one call too many": _generate_cached(one_more=True),
            "prompt token by token": _generate_cached(prompt_in_pieces=True),
        }
    }
)
def test_mistakes_of_cached_generation_are_caught(check, wrong):
    must_reject(check, wrong)


def test_the_prompt_is_read_once_and_then_one_token_a_call():
    check_generate_cached(attend.generate_cached)
    check_generate_cached(_generate_cached())


def test_the_last_token_needs_no_room():
    model, ids = MODELS["llama"], ids_of(1, 10)  # a context of 16
    assert attend.generate_cached(model, ids, 7).shape == (1, 17)
    with pytest.raises(ValueError, match="17 tokens do not fit in a context of 16"):
        attend.generate_cached(model, ids, 8)
    assert torch.equal(attend.generate_cached(model, ids, 0), ids)


def test_a_stop_token_ends_the_stream():
    model, ids = MODELS["llama"], ids_of(1, 5)
    whole = attend.generate_cached(model, ids, 8)[0, 5:].tolist()
    end = whole[3]
    told = [int(token) for token in attend.stream(model, ids, 8, stop=[end])]
    assert told == whole[: whole.index(end) + 1]


def check_decode_flops(flops):
    """Counted by PyTorch on a Llama of these sizes; n = 7 tokens, the head for the last one."""
    sizes = dict(vocab=29, context=16, d_model=12, n_layers=3, n_heads=6, d_hidden=20)
    model = attend.llama(attend.LlamaConfig(**sizes, n_kv_heads=3))
    for block in model.blocks:
        block.attention.kernel = attend.explicit_attention
    ids = ids_of(1, 7)
    with torch.no_grad():
        caches = attend.new_caches(model, 1)
        model(ids[:, :-1], caches)
        with FlopCounterMode(display=False) as step:
            model(ids[:, -1:], caches)
        with FlopCounterMode(display=False) as all_again:
            model(ids)
    assert flops(3, 12, 20, 6, 3, 29, 7) == step.get_total_flops()
    head_of_the_others = 2 * 12 * 29 * 6
    expected = all_again.get_total_flops() - head_of_the_others
    assert flops(3, 12, 20, 6, 3, 29, 7, cached=False) == expected


@mistakes(
    {
        check_decode_flops: {
            "one flop per multiply-add": lambda *a, **k: attend.decode_flops(*a, **k) // 2,
            "output head forgotten": lambda *a, **k: attend.decode_flops(*a, **k) - 2 * a[1] * a[5],
            "n² with the cache": lambda *a, **k: attend.decode_flops(*a, cached=False),
            "GQA ignored": lambda *a, **k: attend.decode_flops(*a[:4], a[3], *a[5:], **k),
        }
    }
)
def test_mistakes_of_counting_are_caught(check, wrong):
    must_reject(check, wrong)


def test_flops_are_those_that_pytorch_counts():
    check_decode_flops(attend.decode_flops)
