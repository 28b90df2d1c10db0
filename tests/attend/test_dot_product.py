"""Attention by dot products, against PyTorch's functions, autograd and what is known on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import attend

from .mistakes import mistakes, must_reject

LIBRARIES = (np.asarray, lambda x: torch.from_numpy(np.asarray(x)))
either_library = pytest.mark.parametrize("of", LIBRARIES, ids=["numpy", "torch"])
scores = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 7)),
    elements=st.floats(-1e4, 1e4, width=32),
)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_projecting_gives_queries_keys_and_values_in_this_order():
    x, w_q, w_k, w_v = (
        normal(5, 4),
        normal(4, 3, seed=1),
        normal(4, 3, seed=2),
        normal(4, 2, seed=3),
    )
    for ours, theirs in zip(attend.project_qkv(x, w_q, w_k, w_v), (w_q, w_k, w_v), strict=True):
        np.testing.assert_allclose(
            ours, torch.nn.functional.linear(*map(torch.tensor, (x, theirs.T)))
        )


def test_a_matrix_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"w_k has shape \(3, 4\).*4 rows"):
        attend.project_qkv(normal(5, 4), normal(4, 3), normal(3, 4), normal(4, 2))


@either_library
def test_a_score_is_the_dot_product_of_one_query_with_one_key(of):
    q, k = normal(2, 3, 5), normal(2, 7, 5, seed=1)
    got = np.asarray(attend.attention_scores(of(q), of(k)))
    for b in range(2):
        for i in range(3):
            for j in range(7):
                assert got[b, i, j] == pytest.approx(sum(q[b, i] * k[b, j]))


def test_scores_of_unequal_widths_are_refused():
    with pytest.raises(ValueError, match="q has width 3 and k has width 5"):
        attend.attention_scores(normal(2, 3), normal(7, 5))


@pytest.mark.parametrize("axis", [0, 1, -1])
@either_library
def test_softmax_is_the_one_of_pytorch_on_every_axis(of, axis):
    x = normal(3, 5, 7)
    expected = torch.softmax(torch.from_numpy(x), axis).numpy()
    np.testing.assert_allclose(np.asarray(attend.softmax(of(x), axis=axis)), expected, rtol=1e-12)


@given(scores, st.floats(-1e4, 1e4))
def test_softmax_is_a_distribution_that_a_common_shift_leaves_alone(x, shift):
    p = attend.softmax(x)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(-1), 1)
    np.testing.assert_allclose(attend.softmax(x + shift), p, atol=1e-9)


@given(scores)
def test_a_larger_score_never_gets_a_smaller_weight(x):
    order = np.argsort(x, axis=-1)
    assert (np.diff(np.take_along_axis(attend.softmax(x), order, -1), axis=-1) >= 0).all()


def test_softmax_of_whole_numbers_is_not_truncated():
    np.testing.assert_allclose(attend.softmax(np.array([1, 2])), [0.26894142, 0.73105858])
    np.testing.assert_allclose(attend.softmax(torch.tensor([1, 2])), [0.26894142, 0.73105858])


@given(scores, st.data())
def test_masked_softmax_is_softmax_of_what_is_left(x, data):
    mask = data.draw(arrays(bool, x.shape))
    p = attend.masked_softmax(x, mask)
    assert (p[~mask] == 0).all()
    for row, allowed, weights in zip(x, mask, p, strict=True):
        if allowed.any():
            np.testing.assert_allclose(weights[allowed], attend.softmax(row[allowed]), rtol=1e-12)


def test_no_finite_score_is_low_enough_to_be_taken_for_a_masked_one():
    p = attend.masked_softmax(np.full((1, 4), -1e300), np.array([True, False, True, False]))
    np.testing.assert_array_equal(p, [[0.5, 0, 0.5, 0]])


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (np.ones((3, 5)), "must be boolean"),
        (np.ones((3, 4), dtype=bool), r"\(3, 4\) does not broadcast to scores of shape \(3, 5\)"),
        (np.ones((2, 3, 5), dtype=bool), "does not broadcast"),
    ],
)
def test_a_mask_that_cannot_be_meant_is_refused(mask, words):
    for of in LIBRARIES:
        with pytest.raises(ValueError, match=words):
            attend.masked_softmax(of(normal(3, 5)), of(mask))


def test_plain_attention_blends_values_with_the_softmax_of_the_scores():
    q, k, v = normal(3, 4), normal(5, 4, seed=1), normal(5, 2, seed=2)
    z, weights = attend.attention(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(x) for x in (q, k, v)), scale=1.0
    )
    np.testing.assert_allclose(z, expected, rtol=1e-12)
    np.testing.assert_allclose(weights @ v, z)


def test_the_third_token_of_the_worked_example_attends_mostly_to_itself():
    weights = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.3, 0.5]])
    _, got = attend.attention(np.log(weights), np.eye(3), np.eye(3))
    np.testing.assert_allclose(got, weights)


def test_a_cold_lookup_returns_the_nearest_value_and_a_hot_one_the_mean():
    keys, values = normal(5, 4), normal(5, 3, seed=1)
    query = 3 * keys[2]
    cold = attend.soft_lookup(query, keys, values, 1e-3)
    np.testing.assert_allclose(cold, values[np.argmax(keys @ query)])
    np.testing.assert_allclose(
        attend.soft_lookup(query, keys, values, 1e9), values.mean(0), atol=1e-6
    )
    for temperature in (0, -1, math.nan):
        with pytest.raises(ValueError, match="must be above 0"):
            attend.soft_lookup(query, keys, values, temperature)


def test_the_weights_returned_are_the_weights_used():
    q, k, v = normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 2, seed=2)
    z, weights = attend.scaled_dot_product_attention(q, k, v, attend.causal_mask(3, 5))
    assert weights.shape == (2, 3, 5)
    np.testing.assert_allclose(weights.sum(-1), 1)
    np.testing.assert_allclose(weights @ v, z)


def test_every_key_needs_a_value():
    with pytest.raises(ValueError, match="5 keys but 6 values"):
        attend.scaled_dot_product_attention(normal(3, 4), normal(5, 4), normal(6, 4))


@pytest.mark.parametrize("d_k", [1, 8, 128])
def test_the_variance_of_a_dot_product_of_unit_vectors_is_their_width(d_k):
    n = 20_000
    got = attend.score_variance(d_k, n, np.random.default_rng(3))
    assert type(got) is float
    assert abs(got - d_k) < 6 * d_k * math.sqrt((2 + 6 / d_k) / n)
    assert got == attend.score_variance(d_k, n, np.random.default_rng(3)) != d_k


@either_library
def test_entropy_is_zero_when_certain_and_log_n_when_undecided(of):
    weights = of(np.array([[0.0, 1.0, 0.0, 0.0], [0.25] * 4, [0.5, 0.5, 0.0, 0.0]]))
    expected = [0, math.log(4), math.log(2)]
    np.testing.assert_allclose(np.asarray(attend.row_entropy(weights)), expected, atol=1e-15)


def test_entropy_has_finite_gradients_at_weights_of_zero():
    weights = torch.tensor([0.0, 0.25, 0.75], requires_grad=True)
    attend.row_entropy(weights).backward()
    assert weights.grad.isfinite().all()


@given(arrays(np.float64, 5, elements=st.floats(-20, 20)))
def test_the_jacobian_is_what_autograd_finds(x):
    expected = torch.autograd.functional.jacobian(
        lambda t: torch.softmax(t, -1), torch.from_numpy(x)
    )
    np.testing.assert_allclose(attend.softmax_jacobian(attend.softmax(x)), expected, atol=1e-12)


def test_the_jacobian_of_many_distributions_is_many_jacobians():
    p = attend.softmax(normal(2, 3, 5))
    J = attend.softmax_jacobian(p)
    assert J.shape == (2, 3, 5, 5)
    np.testing.assert_array_equal(J[1, 2], attend.softmax_jacobian(p[1, 2]))


@either_library
def test_the_gradient_through_a_softmax_is_the_one_of_autograd(of):
    x, g = normal(2, 3, 5), normal(2, 3, 5, seed=1)
    t = torch.from_numpy(x).requires_grad_()
    (expected,) = torch.autograd.grad(torch.softmax(t, -1), t, torch.from_numpy(g))
    got = np.asarray(attend.gradient_through_softmax(of(x), of(g)))
    np.testing.assert_allclose(got, expected, atol=1e-12)


# Checks that learners' mistakes must fail. Attention itself is in test_conformance.py.


def check_softmax(softmax):
    for dtype in (np.float32, np.float64):
        x = (1e4 * normal(3, 5, 4)).astype(dtype)
        for axis in (-1, 0, 1):
            kept = x.copy()
            with np.errstate(all="ignore"):
                got = softmax(x, axis=axis)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, torch.softmax(torch.from_numpy(kept), axis), atol=1e-6)
            np.testing.assert_array_equal(x, kept)
    np.testing.assert_allclose(softmax(np.array([1, 2])), [0.26894142, 0.73105858])


def check_lookup(lookup):
    query, keys, values = normal(4), normal(5, 4, seed=1), normal(5, 3, seed=2)
    for temperature in (0.3, 1.0, 4.0):
        p = torch.softmax(torch.from_numpy(keys @ query) / temperature, -1).numpy()
        np.testing.assert_allclose(lookup(query, keys, values, temperature), p @ values)


def check_variance(variance):
    for d_k, n in ((3, 5000), (64, 5000)):
        got = [variance(d_k, n, np.random.default_rng(seed)) for seed in (1, 1, 2)]
        assert all(abs(x - d_k) < 6 * d_k * math.sqrt((2 + 6 / d_k) / n) for x in got)
        assert got[0] == got[1] != got[2], "the vectors are drawn from the generator"


def check_jacobian(jacobian):
    p = torch.softmax(torch.from_numpy(normal(5)), -1)
    expected = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, -1), p.log())
    np.testing.assert_allclose(jacobian(p.numpy()), expected, atol=1e-12)


def check_entropy(entropy):
    p = np.array([[[0.5, 0.5, 0, 0], [1, 0, 0, 0]], [[0.25] * 4, [0.7, 0.1, 0.1, 0.1]]])
    with np.errstate(all="ignore"):
        got = entropy(p)
    torch.testing.assert_close(
        torch.from_numpy(np.asarray(got)),
        torch.distributions.Categorical(torch.from_numpy(p)).entropy(),
        rtol=1e-6,
        atol=1e-6,
    )


def check_gradient(gradient):
    x, g = normal(2, 3, 5), normal(2, 3, 5, seed=1)
    t = torch.from_numpy(x).requires_grad_()
    (expected,) = torch.autograd.grad(torch.softmax(t, -1), t, torch.from_numpy(g))
    np.testing.assert_allclose(gradient(x, g), expected, atol=1e-12)


def check_masked(masked):
    for dtype in (np.float32, np.float64):
        scores = (5 * normal(2, 3, 5) - 2e9).astype(dtype)
        scores[0] += dtype(2e9)
        mask = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0]], dtype=bool)
        with np.errstate(all="ignore"):
            got = masked(scores, mask)
        assert got.dtype == dtype
        s = torch.from_numpy(scores).masked_fill(~torch.from_numpy(mask), -math.inf)
        np.testing.assert_allclose(got, torch.softmax(s, -1).nan_to_num(0), atol=1e-6)


def _unstable(x, axis=-1):
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


def _in_place(x, axis=-1):
    if x.dtype.kind == "i":
        return attend.softmax(x, axis)
    x -= x.max(axis, keepdims=True)
    return np.exp(x) / np.exp(x).sum(axis, keepdims=True)


@mistakes(
    {
        check_softmax: {
            "overflow": _unstable,
            "wrong axis": lambda x, axis=-1: attend.softmax(x, axis=-1),
            "all entries together": lambda x, axis=-1: attend.softmax(x.reshape(-1)).reshape(
                x.shape
            ),
            "integers truncated": lambda x, axis=-1: attend.softmax(x, axis).astype(x.dtype),
            "input changed": _in_place,
            "always float64": lambda x, axis=-1: attend.softmax(x.astype(float), axis),
        },
        check_lookup: {
            "temperature multiplied": lambda q, k, v, t: attend.soft_lookup(q, k, v, 1 / t),
            "argmax": lambda q, k, v, t: v[np.argmax(k @ q)],
            "temperature ignored": lambda q, k, v, t: attend.soft_lookup(q, k, v, 1),
        },
        check_variance: {
            "standard deviation": lambda d, n, rng: attend.score_variance(d, n, rng) ** 0.5,
            "of the entries": lambda d, n, rng: float(np.var(rng.standard_normal((n, d)))),
            "not drawn": lambda d, n, rng: float(d),
        },
        check_jacobian: {
            "diagonal only": lambda p: np.diag(p),
            "sign": lambda p: np.outer(p, p) - np.diag(p),
            "outer product missing": lambda p: np.diag(p * (1 - p)),
        },
        check_entropy: {
            "bits": lambda p: attend.row_entropy(p) / math.log(2),
            "NaN at zero weights": lambda p: -(p * np.log(p)).sum(-1),
            "wrong axis": lambda p: attend.row_entropy(np.swapaxes(p, 0, 1)),
        },
        check_gradient: {
            "mean forgotten": lambda x, g: attend.softmax(x) * g,
            "elementwise": lambda x, g: attend.softmax(x) * (1 - attend.softmax(x)) * g,
        },
        check_masked: {
            "multiplied by the mask": lambda s, m: attend.softmax(s * m),
            "masked after": lambda s, m: attend.softmax(s) * m,
            "-1e9 stand-in": lambda s, m: attend.softmax(np.where(m, s, s.dtype.type(-1e9))),
            "NaN on empty rows": lambda s, m: _unstable(np.where(m, s - s.max(), -np.inf)),
            "inverted": lambda s, m: attend.masked_softmax(s, ~m),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_softmax, attend.softmax),
        (check_lookup, attend.soft_lookup),
        (check_variance, attend.score_variance),
        (check_jacobian, attend.softmax_jacobian),
        (check_entropy, attend.row_entropy),
        (check_gradient, attend.gradient_through_softmax),
        (check_masked, attend.masked_softmax),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_the_checks_let_the_right_version_pass(check, ours):
    check(ours)
