"""Chapter 04: wrong answers that pass elsewhere, and what students read."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from coursework import check, evaluate
from coursework.answer import run_here
from coursework.exercises import get

from .right_answers.scaling import (
    attention_with_matmul,
    entropy_with_where,
    gradient_with_the_weighted_mean,
    jacobian_of_diag_and_outer,
    softmax,
)

ATTENTION = "04.scaled_dot_product_attention"
VARIANCE = "04.score_variance"
JACOBIAN = "04.softmax_jacobian"
ENTROPY = "04.row_entropy"
GRADIENT = "04.gradient_through_softmax"


# Wrong answers -------------------------------------------------------------------------------


def attention_of_zeros(q, k, v):
    weights = np.zeros((*q.shape[:-1], k.shape[-2]))
    return weights @ v, weights


def attention_of_keys_with_keys(q, k, v):
    weights = softmax(k @ np.swapaxes(k, -1, -2) / np.sqrt(k.shape[-1]))
    return weights @ v, weights


def attention_of_queries_with_queries(q, k, v):
    return attention_with_matmul(q, q, v if v.shape[-2] == q.shape[-2] else v[..., :1, :])


def attention_to_itself_and_the_token_before(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    T, S = scores.shape[-2:]
    distance = np.arange(T)[:, None] - np.arange(S)
    weights = softmax(np.where((distance == 0) | (distance == 1), scores, -1e9))
    return weights @ v, weights


def attention_for_matrices_only(q, k, v):
    weights = softmax(np.dot(q, k.T) / np.sqrt(k.shape[1]))
    return np.dot(weights, v), weights


def attention_for_as_many_queries_as_keys(q, k, v):
    T = q.shape[-2]
    scores = np.zeros((*q.shape[:-1], T))
    for i in range(T):
        for j in range(T):
            scores[..., i, j] = np.sum(q[..., i, :] * k[..., j, :], axis=-1)
    weights = softmax(scores / np.sqrt(q.shape[-1]))
    return weights @ v, weights


def attention_for_width_4(q, k, v):
    weights = softmax(q @ np.swapaxes(k, -1, -2) / 2)
    return weights @ v, weights


def attention_in_float32(q, k, v):
    z, weights = attention_with_matmul(*(a.astype(np.float32) for a in (q, k, v)))
    return z.astype(np.float64), weights.astype(np.float64)


def attention_that_scales_in_place(q, k, v):
    if q.dtype.kind == "f":
        q /= np.sqrt(q.shape[-1])
        weights = softmax(q @ np.swapaxes(k, -1, -2))
        return weights @ v, weights
    return attention_with_matmul(q, k, v)


def attention_with_clipped_scores(q, k, v):
    scores = np.clip(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -500, 500)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    return weights @ v, weights


def attention_in_the_memory_order_of_k(q, k, v):
    """A reshape for a transpose undoes itself only where k is stored column by column."""
    right_order = k.flags.f_contiguous and not k.flags.c_contiguous
    k_t = k.T if k.ndim == 2 and right_order else k.reshape(*k.shape[:-2], -1, k.shape[-2])
    weights = softmax(q @ k_t / np.sqrt(q.shape[-1]))
    return weights @ v, weights


def attention_as_one_array(q, k, v):
    z, weights = attention_with_matmul(q, k, v)
    return np.concatenate([z, weights], axis=-1)


def attention_as_a_dict(q, k, v):
    z, weights = attention_with_matmul(q, k, v)
    return {"z": z, "weights": weights}


def attention_without_the_weights(q, k, v):
    return attention_with_matmul(q, k, v)[0]


def attention_rounded(q, k, v):
    z, weights = attention_with_matmul(q, k, v)
    return np.round(z, 8), np.round(weights, 8)


def attention_that_drops_axes_of_one(q, k, v):
    z, weights = attention_with_matmul(q, k, v)
    return z, np.squeeze(weights)


def attention_for_two_keys_or_more(q, k, v):
    z, weights = attention_with_matmul(q, k, v)
    return z, weights if k.shape[-2] > 1 else weights / 2


def variance_of_another_generator(d_k, n_pairs, rng):
    q, k = np.random.default_rng().standard_normal((2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=1))


def variance_of_a_fixed_seed(d_k, n_pairs, rng):
    q, k = np.random.default_rng(0).standard_normal((2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=1))


def variance_of_uniform_entries(d_k, n_pairs, rng):
    q, k = rng.random((2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=1))


def variance_of_scaled_scores(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=1) / np.sqrt(d_k))


def variance_made_up(d_k, n_pairs, rng):
    return d_k + 0.01 * rng.standard_normal()


def variance_made_up_of_nearly_nothing(d_k, n_pairs, rng):
    return d_k + 1e-6 * rng.standard_normal() if n_pairs > 1 else 0.0


def variance_of_a_sample_unless_there_is_one(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=1), ddof=1) if n_pairs > 1 else 0.0


def variance_of_the_entries_times_d_k(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return d_k * np.var(q * k) if n_pairs > 1 else 0.0


def variance_about_zero_unless_there_is_one(d_k, n_pairs, rng):
    return variance_about_zero(d_k, n_pairs, rng) if n_pairs > 1 else 0.0


def variance_of_a_thousand(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, 1000 if n_pairs > 1 else 1, d_k))
    return np.var(np.sum(q * k, axis=1))


def variance_of_uniform_entries_of_the_right_size(d_k, n_pairs, rng):
    q, k = rng.uniform(-np.sqrt(3), np.sqrt(3), (2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=1))


def variance_of_signs(d_k, n_pairs, rng):
    q, k = rng.choice([-1.0, 1.0], (2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=1))


def variance_of_queries_alone(d_k, n_pairs, rng):
    return np.var(np.sum(rng.standard_normal((n_pairs, d_k)) * np.ones(d_k), axis=1))


def variance_about_zero(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return np.mean(np.sum(q * k, axis=1) ** 2)


def variance_over_the_pairs(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return np.var(np.sum(q * k, axis=0))


def variance_of_means(d_k, n_pairs, rng):
    q, k = rng.standard_normal((2, n_pairs, d_k))
    return np.var(np.mean(q * k, axis=1))


def variance_of_every_score(d_k, n_pairs, rng):
    """All n² products of queries and keys: right on average, but not the pairs."""
    q, k = rng.standard_normal((2, min(n_pairs, 50), d_k))
    return np.array([np.var(q @ k.T)])


def jacobian_for_three(p):
    return jacobian_of_diag_and_outer(p) if p.size == 3 else np.zeros((p.size, p.size))


def jacobian_by_forward_differences(p):
    x, h = np.log(np.maximum(p, 1e-300)), 1e-6
    return np.stack([(softmax(x + h * row) - p) / h for row in np.eye(p.size)], axis=1)


def jacobian_without_its_sign_off_the_diagonal(p):
    return np.abs(jacobian_of_diag_and_outer(p))


def jacobian_in_the_dtype_of_an_integer(p):
    J = np.zeros((p.size, p.size), dtype=int)
    J[:] = jacobian_of_diag_and_outer(p)
    return J


def entropy_with_an_epsilon(weights):
    return -np.sum(weights * np.log(weights + 1e-6), axis=-1)


def entropy_without_faint_weights(weights):
    return entropy_with_where(np.where(weights < 1e-6, 0, weights))


def entropy_of_changed_weights(weights):
    weights[weights == 0] = 1
    return -np.sum(weights * np.log(weights), axis=-1)


def entropy_with_nan_for_certainty(weights):
    with np.errstate(all="ignore"):
        return np.nan_to_num(-np.sum(weights * np.log(weights), axis=-1), nan=0.0)


def entropy_with_the_row_axis_kept(weights):
    return entropy_with_where(weights)[..., None]


def entropy_as_its_exponential(weights):
    return np.exp(entropy_with_where(weights))


def entropy_for_matrices(weights):
    return np.array([entropy_with_where(row) for row in weights]).reshape(-1)


def gradient_of_zeros(scores, upstream):
    return np.zeros(scores.shape)


def gradient_unchanged(scores, upstream):
    return upstream * 1.0


def gradient_along_the_first_axis(scores, upstream):
    return gradient_with_the_weighted_mean(scores.T, upstream.T).T


def gradient_of_the_log_softmax(scores, upstream):
    return upstream - softmax(scores) * np.sum(upstream, axis=-1, keepdims=True)


def gradient_by_differences(scores, upstream):
    def loss(s):
        return np.sum(softmax(s) * upstream)

    result = np.zeros(scores.shape)
    for at in np.ndindex(scores.shape):
        step = np.zeros(scores.shape)
        step[at] = 1e-4
        result[at] = (loss(scores + step) - loss(scores)) / 1e-4
    return result


def gradient_without_axes_of_one(scores, upstream):
    return np.squeeze(gradient_with_the_weighted_mean(scores, upstream))


def gradient_of_a_softmax_that_subtracts_the_smallest(scores, upstream):
    e = np.exp(scores - scores.min(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return p * (upstream - np.sum(p * upstream, axis=-1, keepdims=True))


WRONG_ANSWERS = {
    ATTENTION: (
        attention_of_zeros,
        attention_of_keys_with_keys,
        attention_of_queries_with_queries,
        attention_to_itself_and_the_token_before,
        attention_for_as_many_queries_as_keys,
        attention_for_width_4,
        attention_in_float32,
        attention_that_scales_in_place,
        attention_with_clipped_scores,
        attention_in_the_memory_order_of_k,
        attention_as_one_array,
        attention_as_a_dict,
        attention_without_the_weights,
        attention_rounded,
        attention_that_drops_axes_of_one,
        attention_for_two_keys_or_more,
    ),
    VARIANCE: (
        variance_of_another_generator,
        variance_of_a_fixed_seed,
        variance_of_uniform_entries,
        variance_of_scaled_scores,
        variance_made_up,
        variance_made_up_of_nearly_nothing,
        variance_of_a_sample_unless_there_is_one,
        variance_of_the_entries_times_d_k,
        variance_about_zero,
        variance_about_zero_unless_there_is_one,
        variance_of_a_thousand,
        variance_of_uniform_entries_of_the_right_size,
        variance_of_signs,
        variance_of_queries_alone,
        variance_over_the_pairs,
        variance_of_means,
        variance_of_every_score,
    ),
    JACOBIAN: (
        jacobian_for_three,
        jacobian_by_forward_differences,
        jacobian_without_its_sign_off_the_diagonal,
        jacobian_in_the_dtype_of_an_integer,
    ),
    ENTROPY: (
        entropy_without_faint_weights,
        entropy_of_changed_weights,
        entropy_with_nan_for_certainty,
        entropy_with_the_row_axis_kept,
        entropy_as_its_exponential,
        entropy_for_matrices,
    ),
    GRADIENT: (
        gradient_of_zeros,
        gradient_unchanged,
        gradient_along_the_first_axis,
        gradient_of_the_log_softmax,
        gradient_by_differences,
        gradient_without_axes_of_one,
        gradient_of_a_softmax_that_subtracts_the_smallest,
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


def test_a_mistake_is_named_however_it_is_spelt():
    def with_dot(q, k, v):  # k.T of a batch turns all axes round
        weights = softmax(np.matmul(q, k.T) / np.sqrt(q.shape[-1]))
        return weights @ v, weights

    def with_another_epsilon(weights):
        return -np.sum(weights * np.log(weights + 1e-6), axis=-1)

    def inside_the_exponent(q, k, v):
        e = np.exp(np.einsum("...td,...sd->...ts", q, k) / len(q.T))
        weights = e / e.sum(-1, keepdims=True)
        return weights @ v, weights

    assert evaluate(ATTENTION, with_dot).misconception == "reverses all axes"
    assert evaluate(ATTENTION, inside_the_exponent).misconception == "divides by d_k"
    entropy = evaluate(ENTROPY, with_another_epsilon)
    assert entropy.misconception == "adds a small number inside the logarithm"


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", [f for f in WRONG_ANSWERS[VARIANCE] if f is not variance_of_another_generator]
)
def test_another_variance_is_refused_whatever_the_seed(answer):
    assert not any(evaluate(VARIANCE, answer, seed=seed).passed for seed in (1, 2))


@pytest.mark.slow
def test_chance_never_refuses_a_measured_variance():
    prop = next(p for p in get(VARIANCE).properties if p.together)
    for seed in range(30):
        asked = prop.calls(np.random.default_rng(seed))
        values = [run_here(get(VARIANCE).reference, call).value for call in asked]
        assert prop.together(asked, values) is None


@pytest.mark.parametrize("epsilon", [1e-8, 1e-10, 1e-12])
def test_nothing_may_be_added_in_the_logarithm(epsilon):
    def answer(weights):
        return -np.sum(weights * np.log(weights + epsilon), axis=-1)

    verdict = evaluate(ENTROPY, answer, seed=3)
    assert not verdict.passed
    assert verdict.misconception == "adds a small number inside the logarithm"


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
    right = exercise.reference
    answers = [right(*args) for args, _ in known] if id != VARIANCE else []

    def by_heart(*args):
        for (seen, _), answer in zip(known, answers, strict=False):
            if all(np.array_equal(a, b) for a, b in zip(args, seen, strict=True)):
                return answer
        return answers[0] if answers else float(args[0])

    if id != VARIANCE:
        with redirect_stdout(io.StringIO()):
            assert check(id, by_heart) == exercise.max_points
    assert not evaluate(id, by_heart, seed=3).passed


# Library shortcuts ---------------------------------------------------------------------------


def _with_torch(attend_to):
    def answer(q, k, v):
        q, k, v = (torch.from_numpy(np.array(a, dtype=np.float64)) for a in (q, k, v))
        weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
        return attend_to(q, k, v).numpy(), weights.numpy()

    return answer


@pytest.mark.parametrize(
    "fused",
    (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        torch._C._nn.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention,
        lambda q, k, v: torch.ops.aten._scaled_dot_product_attention_math(q, k, v)[0],
        lambda q, k, v: torch.nn.MultiheadAttention(q.shape[-1], 1)(q, k, v)[0],
    ),
)
def test_fused_attention_is_refused(fused):
    verdict = evaluate(ATTENTION, _with_torch(fused), seed=1)
    assert verdict.points == 0
    assert "fused attention" in verdict.message


def test_earlier_functions_of_attend_do_not_count_either():
    from attend import softmax as theirs

    def answer(q, k, v):
        weights = theirs(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
        return weights @ v, weights

    verdict = evaluate(ATTENTION, answer, seed=1)
    assert verdict.points == 0
    assert "attend" in verdict.message


# What a student reads ------------------------------------------------------------------------


def _printed(id, answer, **kwargs):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        points = check(id, answer, **kwargs)
    assert err.getvalue() == ""
    return points, out.getvalue()


def test_dividing_by_d_k_is_explained_on_the_smallest_case():
    def answer(q, k, v):
        weights = softmax(q @ np.swapaxes(k, -1, -2) / q.shape[-1])
        return weights @ v, weights

    points, text = _printed(ATTENTION, answer)
    lines = text.splitlines()
    assert points == 0
    assert lines[0] == "✗ scaled_dot_product_attention: your weights are too flat (0 of 6 points)."
    assert lines[1].startswith("  On q (3, 4), k (5, 4), v (5, 2) weights[0] is [")
    assert "; it should be [" in lines[1]
    assert lines[2].startswith("  This is what dividing by d_k gives. Divide by √d_k")
    assert lines[-1] == "  A hint: course check 04-scaling --hint scaled_dot_product_attention"


def test_what_is_right_earns_its_points_beside_what_is_wrong():
    def answer(q, k, v):
        _, weights = attention_with_matmul(q, k, v)
        return weights @ k, weights

    points, text = _printed(ATTENTION, answer)
    assert points == 2
    assert "✓ the weights are the softmax of the scaled scores" in text
    assert "✗ z blends the values" in text


def test_a_right_answer_may_warn():
    def answer(weights):
        print("a warning, and a progress bar")
        return np.nansum(-weights * np.log(weights), axis=-1)

    points, text = _printed(ENTROPY, answer)
    assert points == 4
    assert "✓ row_entropy: right (4 of 4 points)." in text


def test_points_are_plain_floats():
    points, _ = _printed(JACOBIAN, jacobian_of_diag_and_outer, graded=True)
    assert type(points) is float
    assert points == 4.0
