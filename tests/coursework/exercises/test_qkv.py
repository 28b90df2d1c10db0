"""Chapter 03: wrong answers that pass elsewhere, and what students read."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import numpy as np
import pytest

from coursework import check, evaluate
from coursework.exercises import get

from .right_answers.qkv import (
    attention_with_matmul,
    lookup_in_one_line,
    projections_by_matmul,
    scores_by_matmul,
    softmax_with_keepdims,
)

PROJECT = "03.project_qkv"
SCORES = "03.attention_scores"
SOFTMAX = "03.softmax"
ATTENTION = "03.attention"
LOOKUP = "03.soft_lookup"


# Wrong answers -------------------------------------------------------------------------------


def projections_of_matrices_only(x, w_q, w_k, w_v):
    return tuple(
        np.array([[row @ w[:, j] for j in range(w.shape[1])] for row in x]) for w in (w_q, w_k, w_v)
    )


def projections_of_one_width(x, w_q, w_k, w_v):
    return tuple(np.stack([x @ w_q, x @ w_k, x @ w_v]))


def projections_with_a_bias(x, w_q, w_k, w_v):
    return tuple(z + 0.01 for z in projections_by_matmul(x, w_q, w_k, w_v))


def projections_that_overwrite(x, w_q, w_k, w_v):
    q, k, v = projections_by_matmul(x, w_q, w_k, w_v)
    x[...] = 0
    return q, k, v


def projections_in_float32(x, w_q, w_k, w_v):
    x = x.astype(np.float32)
    return tuple((x @ w.astype(np.float32)).astype(float) for w in (w_q, w_k, w_v))


def projections_of_the_first_sentence(x, w_q, w_k, w_v):
    first = x if x.ndim == 2 else np.broadcast_to(x[:1], x.shape)
    return projections_by_matmul(first, w_q, w_k, w_v)


def projections_in_a_dict(x, w_q, w_k, w_v):
    return dict(zip("qkv", projections_by_matmul(x, w_q, w_k, w_v), strict=True))


def scores_with_their_signs_lost(q, k):
    return np.abs(scores_by_matmul(q, k))


def scores_of_distances(q, k):
    return -np.sum((q[..., :, None, :] - k[..., None, :, :]) ** 2, axis=-1)


def scores_rounded(q, k):
    return np.round(scores_by_matmul(q, k), 7)


def scores_of_the_memory(q, k):
    """Reads k as it lies in memory."""
    flat = np.ravel(k, order="K")
    return q @ np.reshape(flat, (*k.shape[:-2], k.shape[-1], k.shape[-2]))


def scores_by_outer(q, k):
    return np.outer(q, k)


def scores_by_dot(q, k):
    """np.dot of a batch takes every sentence's queries with every sentence's keys."""
    return np.dot(q, np.swapaxes(k, -1, -2))


def scores_as_booleans(q, k):
    return scores_by_matmul(q, k) > 0


def softmax_in_float32(x, axis=-1):
    return softmax_with_keepdims(x.astype(np.float32), axis).astype(x.dtype)


def softmax_with_an_epsilon(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / (np.sum(e, axis=axis, keepdims=True) + 1e-8)


def softmax_with_hardly_any_epsilon(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / (np.sum(e, axis=axis, keepdims=True) + e.dtype.type(1e-9))


def softmax_clipped(x, axis=-1):
    return softmax_with_keepdims(np.clip(x, -700, 700), axis)


def softmax_of_two_axes(x, axis=-1):
    return softmax_with_keepdims(x if x.ndim < 3 else x.reshape(x.shape[0], -1), axis).reshape(
        x.shape
    )


def softmax_to_base_2(x, axis=-1):
    e = 2.0 ** (x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def softmax_without_negative_axes(x, axis=-1):
    if axis < -1:
        raise ValueError("axis")
    return softmax_with_keepdims(x, axis)


def softmax_with_another_name_for_its_axis(x, dim=-1):
    return softmax_with_keepdims(x, dim)


def softmax_with_infinities_cut(x, axis=-1):
    return np.nan_to_num(np.exp(x) / np.sum(np.exp(x), axis=axis, keepdims=True))


def softmax_of_integers_as_float32(x, axis=-1):
    x = x if x.dtype.kind == "f" else x.astype(np.float32)
    return softmax_with_keepdims(x, axis)


def softmax_stored_in_its_input(x, axis=-1):
    if x.dtype.kind == "f":
        x[...] = softmax_with_keepdims(x, axis)
        return x
    return softmax_with_keepdims(x, axis)


def attention_of_zeros(q, k, v):
    weights = np.zeros((*q.shape[:-1], k.shape[-2]))
    return weights @ v, weights


def attention_to_itself_and_the_token_before(q, k, v):
    scores = scores_by_matmul(q, k)
    T, S = scores.shape[-2:]
    distance = np.arange(T)[:, None] - np.arange(S)
    weights = softmax_with_keepdims(np.where((distance == 0) | (distance == 1), scores, -1e9))
    return weights @ v, weights


def attention_that_sees_no_later_key(q, k, v):
    scores = scores_by_matmul(q, k)
    allowed = np.tril(np.ones(scores.shape, dtype=bool))
    weights = softmax_with_keepdims(np.where(allowed, scores, -np.inf))
    return weights @ v, weights


def attention_with_a_residual(q, k, v):
    z, weights = attention_with_matmul(q, k, v)
    return z + np.mean(v, axis=-2, keepdims=True), weights


def attention_of_the_first_sentence(q, k, v):
    _, weights = attention_with_matmul(q, k, v)
    if q.ndim > 2:
        weights = np.broadcast_to(weights[:1], weights.shape)
    return weights @ v, weights


def attention_that_changes_the_values(q, k, v):
    z, weights = attention_with_matmul(q, k, v)
    v *= 1 + (v.dtype.kind == "f")
    return z, weights


def attention_without_weights(q, k, v):
    return attention_with_matmul(q, k, v)[0]


def lookup_of_the_nearest(query, keys, values, temperature):
    scores = -np.sum((keys - query) ** 2, axis=1)
    return softmax_with_keepdims(scores / temperature) @ values


def lookup_with_a_squared_temperature(query, keys, values, temperature):
    return lookup_in_one_line(query, keys, values, temperature**2)


def lookup_with_whole_temperatures(query, keys, values, temperature):
    return lookup_in_one_line(query, keys, values, max(int(temperature), 1))


def lookup_hard_when_cold(query, keys, values, temperature):
    if temperature < 0.4:
        return values[np.argmax(keys @ query)] * 1.0
    return lookup_in_one_line(query, keys, values, temperature)


def lookup_as_a_row(query, keys, values, temperature):
    return lookup_in_one_line(query, keys, values, temperature)[None]


WRONG_ANSWERS = {
    PROJECT: (
        projections_of_matrices_only,
        projections_of_one_width,
        projections_with_a_bias,
        projections_that_overwrite,
        projections_in_float32,
        projections_of_the_first_sentence,
        projections_in_a_dict,
    ),
    SCORES: (
        scores_with_their_signs_lost,
        scores_of_distances,
        scores_rounded,
        scores_of_the_memory,
        scores_by_outer,
        scores_by_dot,
        scores_as_booleans,
    ),
    SOFTMAX: (
        softmax_in_float32,
        softmax_with_an_epsilon,
        softmax_with_hardly_any_epsilon,
        softmax_clipped,
        softmax_of_two_axes,
        softmax_to_base_2,
        softmax_without_negative_axes,
        softmax_with_another_name_for_its_axis,
        softmax_with_infinities_cut,
        softmax_of_integers_as_float32,
    ),
    ATTENTION: (
        attention_of_zeros,
        attention_to_itself_and_the_token_before,
        attention_that_sees_no_later_key,
        attention_with_a_residual,
        attention_of_the_first_sentence,
        attention_that_changes_the_values,
        attention_without_weights,
    ),
    LOOKUP: (
        lookup_of_the_nearest,
        lookup_with_a_squared_temperature,
        lookup_with_whole_temperatures,
        lookup_hard_when_cold,
        lookup_as_a_row,
    ),
}


@pytest.mark.parametrize(
    ("id", "answer"),
    [pytest.param(id, f, id=f.__name__) for id, fs in WRONG_ANSWERS.items() for f in fs],
)
def test_a_wrong_answer_fails_and_gets_no_name_that_is_not_its_own(id, answer):
    verdict = evaluate(id, answer, seed=5)
    assert not verdict.passed
    assert verdict.misconception is None


@pytest.mark.parametrize("id", WRONG_ANSWERS)
def test_visible_answers_learnt_by_heart_fail(id):
    """An answer that knows what is right on every visible input, and on no other."""
    exercise = get(id)
    known = []

    def remember(*args, **kwargs):
        known.append((args, kwargs))
        raise RuntimeError

    with redirect_stdout(io.StringIO()):
        check(id, remember)
    answers = [exercise.reference(*args, **kwargs) for args, kwargs in known]

    def by_heart(*args, **kwargs):
        for (seen, named), answer in zip(known, answers, strict=True):
            if kwargs == named and all(map(np.array_equal, args, seen)):
                return answer
        return answers[0]

    with redirect_stdout(io.StringIO()):
        assert check(id, by_heart) >= exercise.max_points - 1  # float32 may equal float64
    assert not evaluate(id, by_heart, seed=3).passed


def test_a_mistake_is_named_however_it_is_spelt():
    def transposed(x, w_q, w_k, w_v):
        return tuple(np.einsum("...td,kd->...tk", x, w) for w in (w_q, w_k, w_v))

    def too_large(x, axis=-1):
        total = np.add.reduce(np.exp(x), axis=axis, keepdims=True)
        return np.exp(x) / total

    def mixed_up(q, k, v):
        scores = np.einsum("...td,...sd->...st", q, k)
        weights = np.swapaxes(softmax_with_keepdims(scores), -1, -2)
        return weights @ v, weights

    def hot(query, keys, values, temperature):
        scores = temperature * np.array([np.dot(key, query) for key in keys])
        return np.average(values, axis=0, weights=np.exp(scores - scores.max()))

    assert evaluate(PROJECT, transposed).misconception == "transposes the matrices"
    assert evaluate(SOFTMAX, too_large).misconception == "overflows"
    assert evaluate(SOFTMAX, softmax_stored_in_its_input).misconception == "changes its input"
    assert evaluate(ATTENTION, mixed_up).misconception == "normalises the columns"
    assert evaluate(LOOKUP, hot).misconception == "multiplies by the temperature"


# What a student reads ------------------------------------------------------------------------


def _printed(id, answer):
    out = io.StringIO()
    with redirect_stdout(out):
        points = check(id, answer)
    return points, out.getvalue()


def test_an_error_shows_the_line_that_raised_it_and_the_mistake_behind_it():
    def transposed(x, w_q, w_k, w_v):
        return x @ w_q.T, x @ w_k.T, x @ w_v.T

    points, text = _printed(PROJECT, transposed)
    assert points == 0
    assert "project_qkv: the matrices are the wrong way round" in text
    assert "In your line: return x @ w_q.T, x @ w_k.T, x @ w_v.T" in text
    assert "`x @ w`" in text


def test_a_changed_input_is_named():
    def in_place(x, axis=-1):
        x -= np.max(x, axis=axis, keepdims=True)
        e = np.exp(x)
        return e / np.sum(e, axis=axis, keepdims=True)

    def in_place_elsewhere(q, k):
        k[..., 0] = 0
        return q @ np.swapaxes(k, -1, -2)

    assert "the scores that you were given are no longer the same" in _printed(SOFTMAX, in_place)[1]
    assert "it changes its input k: work on a copy" in _printed(SCORES, in_place_elsewhere)[1]


def test_differences_too_small_for_four_digits_are_shown_with_more():
    def nearly(q, k):
        return scores_by_matmul(q, k) + 1e-7

    _, text = _printed(SCORES, nearly)
    given, right = text.split("scores[0] is ")[1].split(". \n")[0].split("; it should be ")
    assert given.strip() != right.splitlines()[0].strip(" .")


def test_earlier_answers_of_ones_own_may_be_called():
    def attention(q, k, v):
        weights = softmax_with_keepdims(scores_by_matmul(q, k))
        return weights @ v, weights

    assert evaluate(ATTENTION, attention).passed


def test_attend_does_not_count_even_for_a_part():
    import attend

    def attention(q, k, v):
        weights = attend.softmax(scores_by_matmul(q, k))
        return weights @ v, weights

    assert evaluate(ATTENTION, attention).points == 0
