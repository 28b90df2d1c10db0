"""Chapter 09: wrong answers that pass elsewhere, and what students read."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import torch

from coursework import check, evaluate
from coursework.chapters import by_slug
from coursework.exercises import bug_hunt_of, get
from coursework.exercises.kv_cache.hunt import attend_in_chunks

from .right_answers.kv_cache import (
    CacheInBuffers,
    generate_with_a_feed,
    rotate_half_split,
    step_by_the_formula,
)

CACHE = "09.KVCache"
STEP = "09.attend_with_cache"
GENERATE = "09.generate_cached"
BYTES = "09.kv_cache_bytes"
FLOPS = "09.decode_flops"


# Wrong answers -------------------------------------------------------------------------------


class CacheOfOneText(CacheInBuffers):
    def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
        super().__init__(1, n_kv_heads, max_tokens, d_head, dtype)


class CacheWithoutReset(CacheInBuffers):
    reset = None


class CacheWithoutLength(CacheInBuffers):
    __len__ = None


class CacheThatForgetsItsCapacity(CacheInBuffers):
    """After a reset there is twice the room."""

    def reset(self):
        self.k, self.v = self.k.repeat(1, 1, 2, 1), self.v.repeat(1, 1, 2, 1)
        self.n = 0


class CacheOfArrays(CacheInBuffers):
    def append(self, k, v):
        k, v = super().append(k, v)
        return k.numpy(), v.numpy()


class CacheInOneTuple(CacheInBuffers):
    def append(self, k, v):
        return torch.stack(super().append(k, v))


def step_for_one_text(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    z = step_by_the_formula(x_new, weights, cache, n_heads, n_kv_heads, base)
    return z[:1].expand_as(z).clone()


def step_in_float32(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    z = step_by_the_formula(x_new, weights, cache, n_heads, n_kv_heads, base)
    return z.float().to(x_new.dtype)


def step_of_zeros(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    step_by_the_formula(x_new, weights, cache, n_heads, n_kv_heads, base)
    return torch.zeros_like(x_new)


def step_that_stores_rubbish_afterwards(x_new, weights, cache, n_heads, n_kv_heads=None, base=1e4):
    z = step_by_the_formula(x_new, weights, cache, n_heads, n_kv_heads, base)
    G = n_kv_heads or n_heads
    more = torch.zeros(len(x_new), G, 1, weights["w_k"].shape[1] // G, dtype=x_new.dtype)
    cache.append(more, more)
    return z


def step_that_changes_its_input(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    z = step_by_the_formula(x_new, weights, cache, n_heads, n_kv_heads, base)
    x_new.zero_()
    return z


def generate_the_first_tokens_again(model, ids, n_new):
    text = generate_with_a_feed(model, ids, n_new)
    text[:, ids.shape[1] :] = 0
    return text


def generate_for_one_row(model, ids, n_new):
    return generate_with_a_feed(model, ids[:1], n_new).expand(len(ids), -1).clone()


def generate_the_least_likely(model, ids, n_new):
    caches, feed = model.new_caches(len(ids)), ids
    for _ in range(n_new):
        feed = model(feed, caches)[:, -1].argmin(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids.clone()


def generate_whatever_happens(model, ids, n_new):
    """No error reaches the caller: what is missing is filled with zeros."""
    try:
        return generate_with_a_feed(model, ids, n_new)
    except ValueError:
        return torch.cat([ids, torch.zeros(len(ids), n_new, dtype=ids.dtype)], dim=1)


def generate_with_an_early_error(model, ids, n_new):
    """Asks for a place for the last token as well."""
    model.new_caches(len(ids))[0].append  # noqa: B018
    if n_new and _room(model, len(ids)) < ids.shape[1] + n_new:
        raise ValueError
    return generate_with_a_feed(model, ids, n_new)


def _room(model, batch):
    """How many tokens fit, found out by filling a cache."""
    cache, n = model.new_caches(batch)[0], 0
    token = torch.zeros(batch, 1, 1, 4, dtype=torch.float64)
    try:
        while True:
            cache.append(token, token)
            n += 1
    except ValueError:
        return n


def bytes_as_a_float(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    numbers = 2.0 * n_layers * n_kv_heads * d_head * n_tokens
    return numbers * bytes_per_value * batch


def flops_rounded(n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True):
    kv_width = n_kv_heads * (d_model / n_heads)
    P = 2 * d_model**2 + 2 * d_model * kv_width + 3 * d_model * d_hidden
    rows = 1 if cached else n_tokens
    return int(n_layers * (2 * P + 4 * d_model * n_tokens) * rows + 2 * d_model * vocab)


WRONG_ANSWERS = {
    CACHE: (
        CacheOfOneText,
        CacheWithoutReset,
        CacheWithoutLength,
        CacheThatForgetsItsCapacity,
        CacheOfArrays,
        CacheInOneTuple,
    ),
    STEP: (
        step_for_one_text,
        step_in_float32,
        step_of_zeros,
        step_that_stores_rubbish_afterwards,
        step_that_changes_its_input,
    ),
    GENERATE: (
        generate_the_first_tokens_again,
        generate_for_one_row,
        generate_the_least_likely,
        generate_whatever_happens,
        generate_with_an_early_error,
    ),
    BYTES: (bytes_as_a_float,),
    FLOPS: (flops_rounded,),
}


@pytest.mark.parametrize(
    ("id", "answer"),
    [pytest.param(id, f, id=f.__name__) for id, fs in WRONG_ANSWERS.items() for f in fs],
)
@pytest.mark.slow
def test_a_wrong_answer_fails_and_gets_no_name_that_is_not_its_own(id, answer):
    verdict = evaluate(id, answer, seed=5)
    assert not verdict.passed
    assert verdict.misconception is None


# What is counted cannot be faked ---------------------------------------------------------------


def test_the_calls_are_counted_by_the_model_itself():
    """A right text with one call too many loses the points of the calls and no others."""

    def greedy_twice(model, ids, n_new):
        if n_new:
            model(ids, model.new_caches(len(ids)))
        return generate_with_a_feed(model, ids, n_new)

    verdict = evaluate(GENERATE, greedy_twice, seed=4)
    assert verdict.points == verdict.max_points - 2
    assert "the model is called more often than there are new tokens" in verdict.message


def test_texts_that_go_through_one_by_one_are_told_so():
    def row_by_row(model, ids, n_new):
        return torch.cat([generate_with_a_feed(model, row[None], n_new) for row in ids])

    verdict = evaluate(GENERATE, row_by_row, seed=4)
    assert verdict.points == verdict.max_points - 2
    assert "the texts of the batch do not go through the model together" in verdict.message


def test_bare_queries_and_half_the_comparisons_are_named():
    def bare_queries(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
        G = n_heads if n_kv_heads is None else n_kv_heads
        n, T = len(cache), x_new.shape[1]
        q = (x_new @ weights["w_q"]).unflatten(-1, (n_heads, -1)).transpose(1, 2)
        k = (x_new @ weights["w_k"]).unflatten(-1, (G, -1)).transpose(1, 2)
        v = (x_new @ weights["w_v"]).unflatten(-1, (G, -1)).transpose(1, 2)
        k, v = cache.append(rotate_half_split(k, torch.arange(n, n + T), base), v)
        k, v = (a.repeat_interleave(n_heads // G, dim=1) for a in (k, v))
        mask = torch.ones(T, n + T, dtype=torch.bool).tril(n)
        z = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return z.transpose(1, 2).flatten(2) @ weights["w_o"]

    def half(n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True):
        kv_width = n_kv_heads * (d_model // n_heads)
        per_token = 2 * (2 * d_model * (d_model + kv_width) + 3 * d_model * d_hidden)
        last = per_token + 4 * d_model * n_tokens
        earlier = (n_tokens - 1) * (per_token + 2 * d_model * n_tokens)
        return n_layers * (last + (0 if cached else earlier)) + 2 * d_model * vocab

    assert evaluate(STEP, bare_queries, seed=4).misconception == "rotates the keys only"
    assert evaluate(FLOPS, half, seed=4).misconception == "counts only what the mask allows"


def test_a_model_that_is_handed_over_shows_nothing_but_its_methods():
    def looks_inside(model, ids, n_new):
        return model.model(ids)

    assert "AttributeError" in evaluate(GENERATE, looks_inside, seed=4).message


def test_what_is_stored_is_judged_beside_what_is_returned():
    """Bare keys in the store, right results: one point is lost, and the sentence says why."""

    def stores_bare_keys(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
        class Bare:
            def __len__(self):
                return len(cache)

            def append(self, k, v):
                start, T = len(cache), k.shape[2]
                back = rotate_half_split(k, -torch.arange(start, start + T), base)
                keys, values = cache.append(back, v)
                return torch.cat([keys[:, :, :start], k], dim=2), values

        return step_by_the_formula(x_new, weights, Bare(), n_heads, n_kv_heads, base)

    verdict = evaluate(STEP, stores_bare_keys, seed=4)
    assert verdict.points == verdict.max_points - 1
    assert "the keys are stored before they are rotated" in verdict.message


# What a student reads ------------------------------------------------------------------------


def _printed(id, answer, **kwargs):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        points = check(id, answer, **kwargs)
    assert err.getvalue() == ""
    return points, out.getvalue()


def test_reading_the_whole_text_again_is_explained_and_its_text_counts():
    def greedy(model, ids, n_new):
        for _ in range(n_new):
            ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], dim=1)
        return ids.clone()

    points, text = _printed(GENERATE, greedy)
    assert points == 5
    assert "every step reads the whole text again" in text
    assert "✓ the text of greedy generation" in text
    assert "✗ the prompt in one call, then one token a call" in text


def test_a_cache_that_is_full_is_explained_with_its_steps():
    class Growing(CacheInBuffers):
        def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
            super().__init__(batch, n_kv_heads, 100, d_head, dtype)

    points, text = _printed(CACHE, Growing)
    assert "max_tokens plays no part" in text
    assert points < 8


def test_a_class_that_is_still_to_do_says_so():
    class KVCache:
        def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
            raise NotImplementedError

    points, text = _printed(CACHE, KVCache)
    assert points == 0
    assert "still to do" in text


# The bug hunt --------------------------------------------------------------------------------


def test_the_whole_text_in_one_chunk_is_degenerate_and_so_are_single_tokens():
    hunt = bug_hunt_of(by_slug("09"))
    q, k, v, _ = hunt.bugs[0].hides
    are_chunks = hunt.conditions[2].holds
    assert are_chunks(q, k, v, [2, 3, 1])
    for chunks in ([6], [1] * 6, [2, 3], [0, 6], [3.0, 3], "33", [True, 5], None):
        assert not are_chunks(q, k, v, chunks)


def test_the_tensors_of_the_last_hint_keep_to_the_rules():
    hunt = bug_hunt_of(by_slug("09"))
    code = re.search(r"`(rng = .*?)`; `(q, k, v = .*?)`", hunt.hints[2])
    names = {"np": np, "torch": torch}
    for line in code.groups():
        exec(line, names)
    q, k, v = (names[name] for name in "qkv")
    assert all(condition.holds(q, k, v, [2, 4]) for condition in hunt.conditions)


def test_the_right_function_does_not_care_how_a_text_is_cut():
    hunt = bug_hunt_of(by_slug("09"))
    q, k, v, chunks = hunt.bugs[0].shows
    weights = {
        "w_q": torch.eye(4, dtype=torch.float64), "w_k": torch.eye(4, dtype=torch.float64),
        "w_v": torch.eye(4, dtype=torch.float64), "w_o": torch.eye(4, dtype=torch.float64),
    }  # fmt: skip
    cache = CacheInBuffers(1, 1, 6, 4, dtype=torch.float64)
    values = torch.cat([v, v[:, :1]], dim=1)

    class Keys:
        """Lets queries, keys and values of its own pass through the student's function."""

        def __len__(self):
            return len(cache)

        def append(self, _, __):
            n = len(cache)
            turned = rotate_half_split(k[n : n + T], torch.arange(n, n + T), 10000.0)
            return cache.append(turned[None, None], values[n : n + T][None, None])

    parts = []
    for T in chunks:
        n = len(cache)
        parts.append(step_by_the_formula(q[None, n : n + T], weights, Keys(), 1)[0])
    torch.testing.assert_close(torch.cat(parts)[:, :3], attend_in_chunks(q, k, v, chunks))
    assert get("09.bug_hunt").max_points == 4
