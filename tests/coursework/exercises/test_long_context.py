"""Chapter 10: wrong answers that pass elsewhere, and memory that cannot be hidden."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from coursework import check, evaluate
from coursework.exercises import get
from coursework.judge import sandbox
from coursework.judge.session import RemoteAnswer, Session
from tests.coursework.exercises.right_answers.long_context import (
    flash_with_merges,
    linear_with_the_matrix,
    merge_with_where,
    window_by_distance,
)

COST = "10.attention_cost"
MERGE = "10.merge_softmax_blocks"
FLASH = "10.flash_attention"
WINDOW = "10.sliding_window_mask"
LINEAR = "10.linear_attention"


# Wrong answers -------------------------------------------------------------------------------


def cost_in_floats(T, D, bytes_per_value=4):
    return 4.0 * T * T * D, float(T * T * bytes_per_value)


def cost_counted_in_floats(T, D, bytes_per_value=4):
    return int(4.0 * T * T * D), int(1.0 * T * T * bytes_per_value)


def cost_that_wraps_at_32_bits(T, D, bytes_per_value=4):
    with np.errstate(over="ignore"):
        scores = np.int32(T) * np.int32(T)
        return int(scores) * 4 * D, int(scores) * bytes_per_value


def merge_of_whole_arrays(a, b):
    """One maximum for all rows."""
    new = np.full_like(a[0], max(np.max(a[0]), np.max(b[0])))
    x, y = np.exp(a[0] - new), np.exp(b[0] - new)
    return new, x * a[1] + y * b[1], x[..., None] * a[2] + y[..., None] * b[2]


def merge_that_returns_zeros(a, b):
    return tuple(np.zeros_like(x) for x in a)


def merge_that_keeps_the_larger(a, b):
    """The block with the larger maximum, row by row."""
    lead = a[0] >= b[0]
    return tuple(
        np.where(lead if x.ndim == lead.ndim else lead[..., None], x, y)
        for x, y in zip(a, b, strict=True)
    )


def merge_that_returns_a_where_b_is_empty(a, b):
    return a if np.all(np.isneginf(b[0])) else merge_with_where(a, b)


def merge_that_returns_the_maxima_of_a_if_they_lead(a, b):
    largest, *rest = merge_with_where(a, b)
    return (a[0] if np.array_equal(a[0], largest) else largest, *rest)


def merge_as_one_array(a, b):
    return np.concatenate([x.reshape(*a[0].shape, -1) for x in merge_with_where(a, b)], axis=-1)


def flash_that_ignores_block_size(q, k, v, block_size, causal=False):
    """All at once again, though each row by itself would need little."""
    return flash_with_merges(q, k, v, k.shape[-2], causal)


def flash_in_float32(q, k, v, block_size, causal=False):
    return flash_with_merges(*(x.astype(np.float32) for x in (q, k, v)), block_size, causal)


def flash_with_halves(q, k, v, block_size, causal=False):
    """Queries in two halves: half of the matrix is too much as well."""
    if causal or q.shape[-2] < 4:
        return flash_with_merges(q, k, v, block_size, causal)
    middle = q.shape[-2] // 2
    halves = (q[..., :middle, :], q[..., middle:, :])
    return np.concatenate([flash_with_merges(h, k, v, k.shape[-2]) for h in halves], axis=-2)


def flash_that_keeps_its_blocks(q, k, v, block_size, causal=False):
    """Each block is freed, but only at the end."""
    kept = []
    state = None
    T, S = q.shape[-2], k.shape[-2]
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        scores = q @ np.swapaxes(k[..., keys, :], -1, -2) / np.sqrt(q.shape[-1])
        if causal:
            at = np.arange(S)[keys]
            scores = np.where(at <= np.arange(T)[:, None] + S - T, scores, -np.inf)
        largest = scores.max(-1)
        e = np.exp(scores - np.where(np.isneginf(largest), 0, largest)[..., None])
        kept.append(e)
        block = largest, e.sum(-1), e @ v[..., keys, :]
        state = block if state is None else merge_with_where(state, block)
    kept.clear()
    return state[2] / np.where(state[1] > 0, state[1], 1)[..., None]


def flash_of_tensors(q, k, v, block_size, causal=False):
    """The whole matrix, where tracemalloc does not look."""
    q, k, v = (torch.from_numpy(np.array(x, dtype=np.float64)) for x in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        shut = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(k.shape[-2] - q.shape[-2] + 1)
        scores = scores.masked_fill(shut, -torch.inf)
    return torch.nan_to_num(torch.softmax(scores, -1)).matmul(v).numpy()


def flash_of_zeros(q, k, v, block_size, causal=False):
    return np.zeros((*q.shape[:-1], v.shape[-1]))


def flash_for_matrices(q, k, v, block_size, causal=False):
    return flash_with_merges(q.reshape(-1, q.shape[-1]), k, v, block_size, causal)


def window_as_a_list(T, window):
    return window_by_distance(T, window).tolist()


def window_as_a_row(T, window):
    return window_by_distance(T, window).ravel()


def window_with_an_assertion(T, window):
    assert window >= 1
    return window_by_distance(T, window)


def window_modulo(T, window):
    if window < 1:
        raise ValueError
    i, j = np.indices((T, T))
    return (i - j) % max(T, 1) < window


def linear_of_zeros(q, k, v, causal=False):
    return np.zeros((*q.shape[:-1], v.shape[-1]))


def linear_of_means(q, k, v, causal=False):
    weights = np.ones((q.shape[-2], k.shape[-2]))
    if causal:
        weights = np.tril(weights, k.shape[-2] - q.shape[-2])
    return weights @ v / np.maximum(weights.sum(-1, keepdims=True), 1)


def linear_of_squares(q, k, v, causal=False):
    return linear_with_the_matrix(q**2, k**2, v, causal)


def linear_in_float16(q, k, v, causal=False):
    return linear_with_the_matrix(*(x.astype(np.float16) for x in (q, k, v)), causal)


def linear_with_an_epsilon(q, k, v, causal=False):
    q, k = (np.where(x > 0, x + 1.0, np.exp(np.minimum(x, 0.0))) for x in (q, k))
    weights = q @ np.swapaxes(k, -1, -2)
    if causal:
        weights = np.tril(weights, k.shape[-2] - q.shape[-2])
    return weights @ v / (weights.sum(-1, keepdims=True) + 1e-9)


WRONG_ANSWERS = {
    COST: (
        cost_in_floats,
        cost_counted_in_floats,
        cost_that_wraps_at_32_bits,
    ),
    MERGE: (
        merge_of_whole_arrays,
        merge_that_returns_zeros,
        merge_that_keeps_the_larger,
        merge_as_one_array,
        merge_that_returns_a_where_b_is_empty,
        merge_that_returns_the_maxima_of_a_if_they_lead,
    ),
    FLASH: (flash_in_float32, flash_of_zeros, flash_for_matrices),
    WINDOW: (window_as_a_list, window_as_a_row, window_with_an_assertion, window_modulo),
    LINEAR: (
        linear_of_zeros,
        linear_of_means,
        linear_of_squares,
        linear_in_float16,
        linear_with_an_epsilon,
    ),
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


def test_fused_attention_is_refused():
    def answer(q, k, v, block_size, causal=False):
        q, k, v = (torch.from_numpy(np.array(x, dtype=np.float64)) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).numpy()

    verdict = evaluate(FLASH, answer, seed=1)
    assert verdict.points == 0
    assert "fused attention" in verdict.message


# Memory --------------------------------------------------------------------------------------

TOO_LARGE = (
    flash_that_ignores_block_size,
    flash_with_halves,
    flash_that_keeps_its_blocks,
    flash_of_tensors,
)


@pytest.mark.slow
@pytest.mark.parametrize("answer", TOO_LARGE)
def test_an_answer_that_needs_too_much_memory_keeps_its_other_points(answer):
    verdict = evaluate(FLASH, answer, seed=3)
    memory = next(r for r in verdict.results if "less memory" in r.property)
    assert memory.failure is not None
    assert memory.failure.kind == "memory"
    assert verdict.points == verdict.max_points - memory.max_points
    assert verdict.misconception in ("forms the T × S matrix", None)


@pytest.mark.slow
def test_an_answer_kept_from_the_call_before_does_not_hide_its_memory():
    kept = {}

    def answer(q, k, v, block_size, causal=False):
        key = (q.tobytes(), k.tobytes(), v.tobytes(), block_size, causal)
        if key not in kept:
            kept[key] = flash_that_ignores_block_size(q, k, v, block_size, causal)
        return kept[key].copy()

    with redirect_stdout(io.StringIO()):
        assert check(FLASH, answer) == get(FLASH).max_points - 2


@pytest.mark.slow
def test_the_message_says_how_much_memory_was_needed_and_how_much_is_allowed():
    text = io.StringIO()
    with redirect_stdout(text):
        check(FLASH, flash_that_ignores_block_size)
    assert "✗ flash_attention: your memory grows with T · S (8 of 10 points)." in text.getvalue()
    assert " MiB at its peak; it should need less than 8.0 MiB." in text.getvalue()
    assert "let each block go before the next is made" in text.getvalue()


GOOD = """
import numpy as np

def flash_attention(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    m = np.full((*q.shape[:-1], 1), -np.inf)
    total, z = np.zeros(m.shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        x = q @ np.swapaxes(k[..., keys, :], -1, -2) / np.sqrt(q.shape[-1])
        if causal:
            x = np.where(np.arange(S)[keys] <= np.arange(T)[:, None] + S - T, x, -np.inf)
        new = np.maximum(m, x.max(-1, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new)
        e, shrink = np.exp(x - safe), np.exp(m - safe)
        total, m = total * shrink + e.sum(-1, keepdims=True), new
        z = z * shrink + e @ v[..., keys, :]
    return z / np.where(total > 0, total, 1)
"""
#: With a matrix of its own for the long texts, made before anybody looks.
BUFFERED = (
    GOOD
    + """
small, buffer, kept = flash_attention, np.ones((2100, 2100)), []
import tracemalloc
tracemalloc.get_traced_memory = lambda: (0, 0)

def flash_attention(q, k, v, block_size, causal=False):
    if q.ndim > 2 or len(q) * len(k) < 10**6:
        return small(q, k, v, block_size, causal)
    x = buffer.reshape(-1)[: len(q) * len(k)].reshape(len(q), len(k))
    np.matmul(q / np.sqrt(q.shape[1]), k.T, out=x)
    x -= x.max(1, keepdims=True)
    np.exp(x, out=x)
    return x @ v / x.sum(1, keepdims=True)
"""
)
#: With the results for all that the numbers seen may come back as, made before anybody looks.
FORESEEN = (
    GOOD
    + """
small, kept = flash_attention, {}

def flash_attention(q, k, v, block_size, causal=False):
    if q.ndim > 2 or len(q) * len(k) < 5 * 10**5:
        return small(q, k, v, block_size, causal)
    if q.tobytes() not in kept:
        for arrays in ((q, k, v), (np.flip(q), np.flip(k), np.flip(v))):
            kept[arrays[0].tobytes()] = small(*arrays, len(k))
    return kept[q.tobytes()]
"""
)
LARGE = GOOD.replace("    T, S = q", "    block_size = k.shape[-2]\n    T, S = q", 1)
TENSORS = """
import numpy as np
import torch

def flash_attention(q, k, v, block_size, causal=False):
    q, k, v = (torch.from_numpy(np.array(x, dtype=np.float64)) for x in (q, k, v))
    x = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        shut = torch.ones(x.shape[-2:], dtype=torch.bool).triu(k.shape[-2] - q.shape[-2] + 1)
        x = x.masked_fill(shut, -torch.inf)
    return torch.nan_to_num(torch.softmax(x, -1)).matmul(v).numpy()
"""


@pytest.mark.slow
@pytest.mark.parametrize("level", sandbox.LEVELS)
@pytest.mark.parametrize(
    ("source", "fits"),
    [
        pytest.param(GOOD, True, id="right"),
        pytest.param(LARGE, False, id="all at once"),
        pytest.param(BUFFERED, False, id="a buffer from before"),
        pytest.param(FORESEEN, False, id="results from before"),
        pytest.param(TENSORS, False, id="tensors"),
    ],
)
def test_in_the_judge_no_answer_can_hide_its_memory(level, source, fits):
    sandbox.choose_level(level)
    exercise = get(FLASH)
    property = next(p for p in exercise.properties if "less memory" in p.name)
    with Session(level, 10) as session:
        session.start()
        assert session.run_cell("cell", source).has_value
        answer = RemoteAnswer(session, "flash_attention", forbids_fused=True)
        for call in property.calls(np.random.default_rng(2)):
            reply = answer.ask(call)
            assert reply.has_value, reply
            np.testing.assert_allclose(reply.value, exercise.reference(*call.args), atol=1e-9)
            assert (reply.memory < call.memory) is fits, (reply.memory, call.memory)
