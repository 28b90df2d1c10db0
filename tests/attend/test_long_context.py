"""Long contexts: equal to attention that is not tiled, windowed or recurrent; and smaller."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import attend

from .mistakes import mistakes, must_reject
from .test_model import LLAMA, ids_of, make


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def qkv(T: int, S: int, scale: float = 1.0):
    return scale * normal(2, T, 6), normal(2, S, 6, seed=1), normal(2, S, 5, seed=2)


def sdpa(q, k, v, mask=None):
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    mask = None if mask is None else torch.from_numpy(mask)
    return F.scaled_dot_product_attention(*tensors, attn_mask=mask).numpy()


LENGTHS = [(11, 11), (3, 11), (13, 4), (1, 7)]

# Checks


def check_cost(cost):
    flops, score_bytes = cost(1024, 64)
    assert (flops, score_bytes) == (4 * 1024**2 * 64, 4 * 1024**2)
    assert cost(10, 3, bytes_per_value=2) == (1200, 200)


def check_merge(merge):
    scores, v = normal(3, 11), normal(11, 5, seed=1)
    scores[0] *= 1000  # the exponentials of one block overflow unless the maximum is renewed
    scores[1, :4] = -math.inf
    empty = np.full(3, -math.inf), np.zeros(3), np.zeros((3, 5))
    for cut in (4, 1, 10):
        a = attend.softmax_block(scores[:, :cut], v[:cut])
        b = attend.softmax_block(scores[:, cut:], v[cut:])
        kept = [x.copy() for x in (*a, *b)]
        for parts in ([a, b], [b, a], [empty, a, b], [a, empty, b], [a, b, empty]):
            merged = parts[0]
            for part in parts[1:]:
                with np.errstate(all="ignore"):
                    merged = merge(merged, part)
            largest, total, numerator = merged
            np.testing.assert_array_equal(largest, scores.max(-1))
            np.testing.assert_allclose(total, np.exp(scores - scores.max(-1)[:, None]).sum(-1))
            np.testing.assert_allclose(numerator / total[:, None], attend.softmax(scores) @ v)
        for before, after in zip(kept, (*a, *b), strict=True):
            np.testing.assert_array_equal(before, after)
    with np.errstate(all="ignore"):
        for got, expected in zip(merge(empty, empty), empty, strict=True):
            np.testing.assert_array_equal(got, expected)


def check_flash(flash):
    for T, S in LENGTHS:
        for scale in (1.0, 1e4):
            q, k, v = qkv(T, S, scale)
            for block in (1, 3, 4, 11, 99):
                for causal in (False, True):
                    mask = attend.causal_mask(T, S) if causal else None
                    with np.errstate(all="ignore"):
                        got = flash(q, k, v, block, causal=causal)
                    np.testing.assert_allclose(got, sdpa(q, k, v, mask), rtol=1e-9, atol=1e-9)


def check_memory(flash):
    """Never a quarter of the T × S matrix."""
    T, d, block = 2048, 8, 64
    q, k, v = normal(T, d), normal(T, d, seed=1), normal(T, d, seed=2)
    tracemalloc.start()
    flash(q, k, v, block)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < T * T * 8 / 4, f"{peak:,} bytes at the peak"


def check_window(mask_of):
    for T in (1, 7):
        for window in (1, 3, 7, 9):
            mask = mask_of(T, window)
            assert mask.shape == (T, T) and mask.dtype == bool
            for i in range(T):
                for j in range(T):
                    assert mask[i, j] == (i - window < j <= i)
    try:
        mask_of(5, 0)
    except ValueError:
        return
    raise AssertionError("a window of 0 sees nothing")


def check_linear(linear):
    def phi(x):
        return F.elu(torch.from_numpy(x)).numpy() + 1

    for T, S in LENGTHS:
        q, k, v = qkv(T, S)
        for causal in (False, True):
            expected = np.zeros((2, T, 5))
            for b in range(2):
                for i in range(T):
                    last = S - T + i if causal else S - 1
                    weights = [phi(q[b, i]) @ phi(k[b, j]) for j in range(last + 1)]
                    for j, w in enumerate(weights):
                        expected[b, i] += w / sum(weights) * v[b, j]
            np.testing.assert_allclose(linear(q, k, v, causal=causal), expected, rtol=1e-9)


# Mistakes


def _merge(scale=True, renew=True, guard=True):
    def f(a, b):
        largest = np.maximum(a[0], b[0]) if renew else a[0]
        shift = np.where(largest == -np.inf, 0, largest) if guard else largest
        s_a = np.exp(a[0] - shift) if scale else np.ones_like(a[1])
        s_b = np.exp(b[0] - shift)
        return largest, a[1] * s_a + b[1] * s_b, a[2] * s_a[:, None] + b[2] * s_b[:, None]

    return f


def _whole_matrix(q, k, v, block, causal=False):
    mask = attend.causal_mask(q.shape[-2], k.shape[-2]) if causal else None
    return attend.scaled_dot_product_attention(q, k, v, mask)[0]


def _no_maximum(q, k, v, block, causal=False):
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    e = np.exp(scores)
    if causal:
        e = e * attend.causal_mask(*scores.shape[-2:])
    return np.nan_to_num(e @ v / e.sum(-1, keepdims=True))


def _blocks_dropped(q, k, v, block, causal=False):
    whole = max(k.shape[-2] // block, 1) * block
    return attend.flash_attention(q, k[..., :whole, :], v[..., :whole, :], block, causal)


def _first_block_masked(q, k, v, block, causal=False):
    if causal:
        return attend.flash_attention(q, k, v, block, causal)
    return attend.flash_attention(q, k[..., block:, :], v[..., block:, :], block)


def _linear(phi=attend.feature_map, normalised=True, axis=-2):
    def f(q, k, v, causal=False):
        w = phi(q) @ np.swapaxes(phi(k), -1, -2)
        if causal:
            w = w * attend.causal_mask(*w.shape[-2:])
        total = w.sum(-1 if axis == -2 else -2, keepdims=True) if normalised else 1
        with np.errstate(all="ignore"):
            return np.nan_to_num((w / total) @ v)

    return f


MISTAKES = {
    check_cost: {
        "one flop per multiply-add": lambda T, D, bytes_per_value=4: (
            2 * T * T * D,
            T * T * bytes_per_value,
        ),
        "n for n²": lambda T, D, bytes_per_value=4: (4 * T * D, T * bytes_per_value),
        "bits": lambda T, D, bytes_per_value=4: (4 * T * T * D, 8 * T * T * bytes_per_value),
    },
    check_merge: {
        "old part not rescaled": _merge(scale=False),
        "maximum not renewed": _merge(renew=False),
        "NaN when a block is masked": _merge(guard=False),
    },
    check_flash: {
        "no running maximum": _no_maximum,
        "block size must divide": _blocks_dropped,
        "first block masked": _first_block_masked,
        "no scale": lambda q, k, v, b, causal=False: attend.flash_attention(
            q * math.sqrt(q.shape[-1]), k, v, b, causal
        ),
        "causal ignored": lambda q, k, v, b, causal=False: attend.flash_attention(q, k, v, b),
        "causal lined up at the start": lambda q, k, v, b, causal=False: sdpa(
            q, k, v, np.tri(q.shape[-2], k.shape[-2], dtype=bool) if causal else None
        ),
    },
    check_memory: {"forms the matrix": _whole_matrix},
    check_window: {
        "one too many": lambda T, w: attend.sliding_window_mask(T, w + 1),
        "one too few": lambda T, w: (
            attend.sliding_window_mask(T, w) & ~attend.sliding_window_mask(T, 1)
        ),
        "not causal": lambda T, w: (
            attend.sliding_window_mask(T, w) | attend.sliding_window_mask(T, w).T
        ),
        "no error": lambda T, w: attend.sliding_window_mask(T, max(w, 1)),
    },
    check_linear: {
        "not normalised": _linear(normalised=False),
        "normalised on the wrong axis": _linear(axis=-1),
        "|x| as feature map": _linear(phi=np.abs),
        "softmax attention": lambda q, k, v, causal=False: _whole_matrix(q, k, v, 1, causal),
        "all zeros": lambda q, k, v, causal=False: np.zeros((*q.shape[:-1], v.shape[-1])),
    },
}


@mistakes(MISTAKES)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_cost, attend.attention_cost),
        (check_merge, attend.merge_softmax_blocks),
        (check_merge, _merge()),
        (check_flash, attend.flash_attention),
        (check_memory, attend.flash_attention),
        (check_window, attend.sliding_window_mask),
        (check_linear, attend.linear_attention),
        (check_linear, _linear()),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_long_contexts_are_computed_right(check, ours):
    check(ours)


# Properties


@settings(max_examples=30)
@given(st.data())
def test_blocks_may_be_merged_in_any_grouping(data):
    n = data.draw(st.integers(3, 9))
    scores, v = 10 * normal(2, n, seed=n), normal(n, 3, seed=1)
    blocks = [attend.softmax_block(scores[:, i : i + 1], v[i : i + 1]) for i in range(n)]
    while len(blocks) > 1:
        i = data.draw(st.integers(0, len(blocks) - 2))
        blocks[i : i + 2] = [attend.merge_softmax_blocks(blocks[i], blocks[i + 1])]
    _, total, numerator = blocks[0]
    np.testing.assert_allclose(numerator / total[:, None], attend.softmax(scores) @ v)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_merging_keeps_the_dtype(dtype):
    block = attend.softmax_block(normal(3, 4).astype(dtype), normal(4, 2).astype(dtype))
    assert {x.dtype for x in attend.merge_softmax_blocks(block, block)} == {np.dtype(dtype)}


@given(st.integers(1, 12), st.integers(1, 14), st.integers(0, 14))
def test_the_window_is_lined_up_with_the_last_tokens(T, window, S):
    mask = attend.sliding_window_mask(T, window, S)
    assert mask.shape == (T, S)
    for i in range(T):
        at = S - T + i
        assert mask[i].tolist() == [at - window < j <= at for j in range(S)]


def test_gradients_flow_through_the_tiles():
    q, k, v = (torch.from_numpy(x[:1]).requires_grad_() for x in qkv(3, 4))

    def tiled(q, k, v):
        return attend.flash_attention(q, k, v, 3, causal=True)

    assert torch.autograd.gradcheck(tiled, (q, k, v))


@given(st.integers(1, 12), st.integers(0, 11))
@settings(max_examples=30)
def test_the_recurrence_is_the_parallel_form_and_goes_on_from_its_state(chunk, cut):
    q, k, v = qkv(11, 11)
    expected = attend.linear_attention(q, k, v, causal=True)
    first, state = attend.linear_attention_recurrent(
        q[:, :cut], k[:, :cut], v[:, :cut], chunk=chunk
    )
    rest, state = attend.linear_attention_recurrent(
        q[:, cut:], k[:, cut:], v[:, cut:], state, chunk=chunk
    )
    np.testing.assert_allclose(np.concatenate([first, rest], axis=1), expected, rtol=1e-9)
    assert state[0].shape == (2, 6, 5) and state[1].shape == (2, 6), "its size does not grow"


def test_what_cannot_be_meant_is_refused():
    q, k, v = qkv(3, 3)
    for call in (
        lambda: attend.flash_attention(q, k, v, 0),
        lambda: attend.sliding_window_attention(q, k, v, 0),
        lambda: attend.WindowCache(1, 1, 0, 4),
        lambda: attend.linear_attention_recurrent(q, k, v, chunk=0),
    ):
        with pytest.raises(ValueError, match="is 0"):
            call()


# The ring-buffer cache

WINDOW = 5


def windowed_model(window: int = WINDOW):
    model = make(attend.llama, dataclasses.replace(LLAMA, context=64))

    def pattern(T, S, *, like):
        return attend.sliding_window_mask(T, window, S, like=like)

    for block in model.blocks:
        block.attention.pattern = pattern
    return model


@settings(max_examples=20)
@given(st.sets(st.integers(1, 4 * WINDOW), max_size=12))
def test_a_ring_of_one_window_gives_the_logits_of_the_whole_text_three_windows_beyond(cuts):
    model, total = windowed_model(), 4 * WINDOW + 1
    ids = ids_of(2, total)
    edges = [0, *sorted(cuts), total]
    caches = attend.new_caches(model, 2, WINDOW, make=attend.WindowCache)
    with torch.no_grad():
        parts = [model(ids[:, a:b], caches) for a, b in pairwise(edges)]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), rtol=0, atol=1e-9)
    assert len(caches[0]) == total
    assert caches[0].nbytes == 2 * 2 * 3 * WINDOW * 2 * 8, "memory of one window, whatever the text"


def test_generation_goes_on_far_beyond_the_window():
    model, ids = windowed_model(), ids_of(1, 4)
    caches = attend.new_caches(model, 1, WINDOW, make=attend.WindowCache)
    got = attend.generate_cached(model, ids, 3 * WINDOW + 2, caches=caches)
    assert torch.equal(got, attend.generate(model, ids, 3 * WINDOW + 2, temperature=0))


def test_a_ring_that_is_one_token_short_shows_at_the_boundary():
    """The mistake that only texts longer than the window reveal."""
    model, ids = windowed_model(), ids_of(1, 3 * WINDOW)
    caches = attend.new_caches(model, 1, WINDOW - 1, make=attend.WindowCache)
    with torch.no_grad():
        step = torch.cat([model(ids[:, t : t + 1], caches) for t in range(3 * WINDOW)], dim=1)
        off = (step - model(ids)).abs().amax(-1)[0]
    assert off[: WINDOW - 1].max() < 1e-9 and off[WINDOW - 1] > 1e-3


def test_a_ring_works_on_numpy_arrays_and_refuses_what_does_not_fit():
    cache = attend.WindowCache(2, 3, 4, 6)
    x = normal(2, 3, 11, 6)
    for start, end in ((0, 3), (3, 4), (4, 10), (10, 11)):
        k, v = cache.append(x[:, :, start:end], 2 * x[:, :, start:end])
        first = max(0, start - 3)
        np.testing.assert_array_equal(k, x[:, :, first:end])
        np.testing.assert_array_equal(v, 2 * x[:, :, first:end])
    for bad in (x[:1, :, :1], x[:, :, :1, :5], x[:, :, :1].astype(np.float32)):
        with pytest.raises(ValueError):
            cache.append(bad, bad)
    with pytest.raises(ValueError, match="v has shape"):
        cache.append(x[:, :, :2], x[:, :, :1])
    assert len(cache) == 11
    cache.reset()
    assert len(cache) == 0
    np.testing.assert_array_equal(cache.append(x[:, :, :1], x[:, :, :1])[0], x[:, :, :1])
