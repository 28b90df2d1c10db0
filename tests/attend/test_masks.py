"""Masks, spelled out in loops, and the functions of chapter 05 that use them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attend

from .mistakes import mistakes, must_reject

sizes = st.integers(0, 9)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@given(sizes, sizes)
def test_query_i_is_token_s_minus_t_plus_i_and_sees_what_is_not_after_it(T, S):
    mask = attend.causal_mask(T, S)
    assert mask.shape == (T, S) and mask.dtype == bool
    for i in range(T):
        for j in range(S):
            assert mask[i, j] == (j <= S - T + i)


def test_one_size_means_as_many_keys_as_queries():
    np.testing.assert_array_equal(attend.causal_mask(3), np.tril(np.ones((3, 3), dtype=bool)))


def test_masks_are_numpy_unless_a_tensor_is_named():
    for make in (
        lambda like: attend.causal_mask(3, like=like),
        lambda like: attend.padding_mask([2, 1], 3, like=like),
        lambda like: attend.padded_causal_mask([2, 1], 3, like=like),
    ):
        assert isinstance(make(None), np.ndarray)
        tensor = make(torch.zeros(1))
        assert tensor.dtype == torch.bool
        np.testing.assert_array_equal(tensor, make(None))


@given(st.lists(st.integers(0, 7), max_size=5))
def test_padding_is_what_stands_after_the_length(lengths):
    mask = attend.padding_mask(lengths, 7)
    assert mask.shape == (len(lengths), 7)
    assert [row.tolist() for row in mask] == [[True] * n + [False] * (7 - n) for n in lengths]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_key_j_is_allowed_if_it_is_real_and_not_after_query_i(lengths):
    mask = attend.padded_causal_mask(lengths, 5)
    assert mask.shape == (len(lengths), 1, 5, 5)
    for b, length in enumerate(lengths):
        for i in range(5):
            for j in range(5):
                assert mask[b, 0, i, j] == (j <= i and j < length)


@pytest.mark.parametrize("length", [-1, 8])
def test_a_length_outside_the_text_is_refused(length):
    for make in (attend.padding_mask, attend.padded_causal_mask):
        with pytest.raises(ValueError, match=f"length {length} of sentence 1"):
            make([3, length], 7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_additive_form_gives_the_same_weights_as_the_boolean_one(dtype):
    mask = attend.causal_mask(5, like=torch.zeros(1))
    scores = torch.from_numpy(normal(5, 5)).to(dtype)
    added = attend.additive_mask(mask, dtype)
    assert added.dtype == dtype and set(added.unique().tolist()) == {0.0, -math.inf}
    torch.testing.assert_close(
        attend.softmax(scores + added), attend.masked_softmax(scores, mask), rtol=0, atol=0
    )


def test_the_first_token_of_causal_attention_takes_its_own_value():
    v = normal(5, 2)
    z, weights = attend.causal_attention(normal(5, 3), normal(5, 3, seed=1), v)
    np.testing.assert_allclose(z[0], v[0])
    assert (np.triu(weights, 1) == 0).all()


# leaks_future, on functions whose leaks are hard to see.


def running_mean(x):
    return np.cumsum(x, axis=-2) / np.arange(1, x.shape[-2] + 1)[:, None]


def times_zero(x):
    """Causal, although it touches the future: a NaN put there would spread."""
    seen = np.tril(np.ones((x.shape[-2], x.shape[-2])))
    return seen @ x


def unlike_neighbours(x):
    """Leaks the difference of the two tokens to come: adding one number to both hides it."""
    ahead = np.roll(x, -1, axis=-2) - np.roll(x, -2, axis=-2)
    ahead[..., -2:, :] = 0
    return x + ahead


def overflowing_mean(x):
    """Leaks by becoming NaN when the future is large: no comparison with NaN is true."""
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(50 * x)
        return x + 0 * e.sum(axis=-2, keepdims=True)


@pytest.mark.parametrize("f", [running_mean, times_zero, lambda x: x, lambda x: np.log(x - 1e9)])
def test_functions_of_the_past_alone_do_not_leak(f):
    x = normal(2, 6, 3)
    with np.errstate(invalid="ignore"):
        assert not any(attend.leaks_future(f, x, t) for t in range(6))


@pytest.mark.parametrize(
    "f", [lambda x: x.mean(axis=-2, keepdims=True) + x, unlike_neighbours, overflowing_mean]
)
def test_functions_that_read_ahead_leak(f):
    assert attend.leaks_future(f, normal(2, 6, 3), 0)


def test_a_leak_into_zeros_is_seen():
    x = normal(6, 3)
    x[3:] = 0
    kept = x.copy()
    assert attend.leaks_future(lambda x: x + np.flip(x, -2), x, 2)
    np.testing.assert_array_equal(x, kept)


def test_nothing_can_leak_from_after_the_end():
    assert not attend.leaks_future(lambda x: x.mean(-2, keepdims=True) + x, normal(6, 3), 5)
    for t in (-1, 6):
        with pytest.raises(ValueError, match=f"t is {t}"):
            attend.leaks_future(running_mean, normal(6, 3), t)


def test_leaks_are_found_in_pytorch_functions_too():
    x = torch.from_numpy(normal(2, 6, 3)).float()

    def through(attention):
        return lambda x: attention(x, x, x)[0]

    assert not attend.leaks_future(through(attend.causal_attention), x, 3)
    assert attend.leaks_future(through(attend.scaled_dot_product_attention), x, 3)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=20), st.data())
def test_each_target_is_the_token_after_its_input(ids, data):
    context = data.draw(st.integers(1, len(ids) - 1))
    inputs, targets = attend.next_token_pairs(ids, context)
    assert inputs.shape == targets.shape == (len(ids) - context, context)
    assert inputs.dtype.kind == targets.dtype.kind == "i"
    for i in range(len(inputs)):
        assert inputs[i].tolist() == ids[i : i + context]
        assert targets[i].tolist() == ids[i + 1 : i + context + 1]


def test_pairs_are_copies_that_share_nothing():
    ids = np.arange(9)
    inputs, targets = attend.next_token_pairs(ids, 4)
    inputs[:] = -1
    assert (ids >= 0).all() and (targets >= 0).all()


def test_a_text_without_a_next_token_is_refused():
    with pytest.raises(ValueError, match="3 tokens make no window of 3"):
        attend.next_token_pairs([1, 2, 3], 3)


# Mistakes that learners make.


def check_causal(causal):
    for T, S in ((4, 4), (2, 5), (5, 2)):
        mask = causal(T, S)
        assert mask.shape == (T, S)
        assert [row.tolist() for row in mask] == [
            [j <= S - T + i for j in range(S)] for i in range(T)
        ]


def check_padding(padding):
    assert padding([0, 2, 3], 3).tolist() == [[False] * 3, [True, True, False], [True] * 3]
    for bad in ([-1], [4]):
        try:
            padding(bad, 3)
        except ValueError:
            continue
        raise AssertionError(f"length {bad[0]} does not fit in 3 tokens")


def check_padded_causal(padded):
    mask = padded([1, 3], 3)
    assert mask.shape == (2, 1, 3, 3)
    for b, length in enumerate((1, 3)):
        assert mask[b, 0].tolist() == [[j <= i and j < length for j in range(3)] for i in range(3)]


def check_leaks(leaks):
    x = normal(2, 6, 3)
    for f, t, answer in (
        (running_mean, 2, False),
        (times_zero, 2, False),
        (lambda x: x.mean(-2, keepdims=True) + x, 2, True),
        (unlike_neighbours, 0, True),  # what it compares is all in the future of token 0
        (lambda x: x + np.roll(x, 1, axis=-2), 2, True),  # only the first token sees the last
    ):
        kept = x.copy()
        assert leaks(f, x, t) is answer
        np.testing.assert_array_equal(x, kept)
    assert leaks(lambda x: x.mean(-2, keepdims=True) + x, x, 5) is False


def check_pairs(pairs):
    inputs, targets = pairs([5, 6, 7, 8, 9], 2)
    assert inputs.tolist() == [[5, 6], [6, 7], [7, 8]]
    assert targets.tolist() == [[6, 7], [7, 8], [8, 9]]


def _leaks(change, upto=lambda y, t: y[..., : t + 1, :]):
    """A leak test that changes the future by `change`."""

    def f(g, x, t):
        y = x.copy()
        y[..., t + 1 :, :] = change(y[..., t + 1 :, :])
        with np.errstate(all="ignore"):
            same = np.isclose(upto(g(y), t), upto(g(x), t))
        return bool(not same.all())

    return f


def _changes_the_past(f, x, t):
    return bool(not np.allclose(f(x + 1)[..., : t + 1, :], f(x)[..., : t + 1, :]))


@mistakes(
    {
        check_causal: {
            "diagonal excluded": lambda T, S: np.tri(T, S, S - T - 1, dtype=bool),
            "upper": lambda T, S: ~np.tri(T, S, S - T - 1, dtype=bool),
            "lined up at the start": lambda T, S: np.tri(T, S, dtype=bool),
            "inverted": lambda T, S: ~attend.causal_mask(T, S),
            "one token too many": lambda T, S: np.tri(T, S, S - T + 1, dtype=bool),
        },
        check_padding: {
            "off by one": lambda lengths, S: np.arange(S) <= np.array(lengths)[:, None],
            "padding first": lambda lengths, S: attend.padding_mask(lengths, S)[:, ::-1],
            "inverted": lambda lengths, S: ~attend.padding_mask(lengths, S),
            "no error": lambda lengths, S: np.arange(S) < np.array(lengths)[:, None],
        },
        check_padded_causal: {
            "or for and": lambda lengths, T: (
                attend.padding_mask(lengths, T)[:, None, None] | attend.causal_mask(T)
            ),
            "no axis for the heads": lambda lengths, T: attend.padded_causal_mask(lengths, T)[:, 0],
            "queries emptied": lambda lengths, T: (
                attend.padded_causal_mask(lengths, T)
                & attend.padding_mask(lengths, T)[:, None, :, None]
            ),
        },
        check_leaks: {
            "never": lambda f, x, t: False,
            "always": lambda f, x, t: True,
            "a constant shift": _leaks(lambda future: future + 1),
            "NaN": _leaks(lambda future: np.nan * future),
            "the past as well": _changes_the_past,
            "present not looked at": _leaks(
                lambda f: 3 * f - 1, upto=lambda y, t: y[..., 1 : t + 1, :]
            ),
            "looks at the future": _leaks(lambda f: 3 * f - 1, upto=lambda y, t: y),
        },
        check_pairs: {
            "no shift": lambda ids, n: (attend.next_token_pairs(ids, n)[0],) * 2,
            "shift by two": lambda ids, n: (
                attend.next_token_pairs(ids[:-1], n)[0],
                attend.next_token_pairs(ids[1:], n)[1],
            ),
            "last window lost": lambda ids, n: tuple(
                x[:-1] for x in attend.next_token_pairs(ids, n)
            ),
            "stride of a window": lambda ids, n: tuple(
                x[::n] for x in attend.next_token_pairs(ids, n)
            ),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_causal, attend.causal_mask),
        (check_padding, attend.padding_mask),
        (check_padded_causal, attend.padded_causal_mask),
        (check_leaks, attend.leaks_future),
        (check_leaks, _leaks(lambda future: np.flip(future, -1) * 3 - np.arange(3))),
        (check_pairs, attend.next_token_pairs),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_the_checks_let_the_right_version_pass(check, ours):
    check(ours)
