"""Positions, against the formulas of the papers written out and what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attend

from .mistakes import mistakes, must_reject


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def check_sinusoidal(positions):
    for n, width, base in ((5, 6, 1e4), (3, 10, 50.0), (0, 4, 1e4)):
        table = positions(n, width, base=base)
        assert table.shape == (n, width)
        for p in range(n):
            for i in range(width // 2):
                angle = p / base ** (2 * i / width)
                assert abs(table[p, 2 * i] - math.sin(angle)) < 1e-12
                assert abs(table[p, 2 * i + 1] - math.cos(angle)) < 1e-12


def check_angles(angles):
    for positions in (range(5), [7, 3, 2.5], [40_000.0]):
        for width, base in ((6, 1e4), (10, 50.0)):
            got = angles(np.asarray(positions), width, base=base)
            assert got.shape == (len(positions), width // 2)
            for t, p in enumerate(positions):
                for i in range(width // 2):
                    assert abs(got[t, i] - p / base ** (2 * i / width)) < 1e-9


def check_rope(rope):
    """Each pair (i, i + K/2) is a complex number that is multiplied by e^(i · angle)."""
    for T, K in ((3, 6), (5, 2)):
        x, angles = normal(2, T, K), 3 * normal(T, K // 2, seed=1)
        z = (x[..., : K // 2] + 1j * x[..., K // 2 :]) * np.exp(1j * angles)
        got = rope(x, angles)
        np.testing.assert_allclose(got, np.concatenate([z.real, z.imag], axis=-1), rtol=1e-9)


def check_permutation(permutation):
    for K in (2, 6, 10):
        order = permutation(K)
        x, angles = normal(3, K), normal(3, K // 2, seed=1)
        interleaved = attend.apply_rope(x, angles, layout="interleaved")
        np.testing.assert_allclose(
            attend.apply_rope(x[..., order], angles), interleaved[..., order]
        )


def check_order_blind(is_order_blind):
    def position_aware(x):
        return x + np.arange(x.shape[-2])[:, None]

    def self_attention(x):
        return attend.attention(x, x, x)[0]

    order = [1, 2, 0, 4, 3]  # not its own inverse
    x = normal(2, 5, 3)
    assert is_order_blind(self_attention, x, order) is True
    assert is_order_blind(lambda x: 7 * x, x, order) is True
    assert is_order_blind(position_aware, x, order) is False
    assert is_order_blind(lambda x: attend.causal_attention(x, x, x)[0], x, order) is False
    assert is_order_blind(position_aware, x, range(5)) is True, "nothing moves in this order"


def interleaved(x, angles):
    return attend.apply_rope(x, angles, layout="interleaved")


MISTAKES = {
    check_sinusoidal: {
        "halves concatenated": lambda n, d, base: np.concatenate(
            [f(np.arange(n)[:, None] * attend.frequencies(d, base)) for f in (np.sin, np.cos)], -1
        ),
        "exponent i/d": lambda n, d, base: attend.sinusoidal_positions(n, d, base=base**0.5),
        "sine and cosine swapped": lambda n, d, base: (
            attend.sinusoidal_positions(n, d, base).reshape(n, -1, 2)[..., ::-1].reshape(n, d)
        ),
        "starts at 1": lambda n, d, base: attend.sinusoidal_positions(n + 1, d, base)[1:],
    },
    check_angles: {
        "exponent doubled": lambda p, d, base: attend.rope_angles(p, d, base**2),
        "base ignored": lambda p, d, base: attend.rope_angles(p, d),
        "degrees": lambda p, d, base: np.degrees(attend.rope_angles(p, d, base)),
        "position squared": lambda p, d, base: attend.rope_angles(p**2, d, base),
        "always from 0": lambda p, d, base: attend.rope_angles(range(len(p)), d, base),
        "full turns removed": lambda p, d, base: attend.rope_angles(p, d, base) % (2 * np.pi),
        "base 100": lambda p, d, base: attend.rope_angles(p, d, 100.0),
    },
    check_rope: {
        "identity": lambda x, angles: x,
        "interleaved": interleaved,
        "sine negated": lambda x, angles: attend.apply_rope(x, -angles),
        "norms not kept": lambda x, angles: 2 * attend.apply_rope(x, angles),
        "half the angle": lambda x, angles: attend.apply_rope(x, angles / 2),
    },
    check_permutation: {
        "none": lambda K: np.arange(K),
        "the inverse": lambda K: np.argsort(attend.rope_permutation(K)),
    },
    check_order_blind: {
        "compares unpermuted": lambda f, x, order: bool(np.allclose(f(x[..., order, :]), f(x))),
        "always yes": lambda f, x, order: True,
        "the inverse order": lambda f, x, order: bool(
            np.allclose(f(x[..., order, :])[..., order, :], f(x))
        ),
    },
}


@mistakes(MISTAKES)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_sinusoidal, attend.sinusoidal_positions),
        (check_angles, attend.rope_angles),
        (check_rope, attend.apply_rope),
        (check_permutation, attend.rope_permutation),
        (check_order_blind, attend.is_order_blind),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_positions_are_what_the_papers_say(check, ours):
    check(ours)


@given(st.integers(0, 500), st.integers(-200, 500))
def test_a_shift_of_sinusoidal_positions_is_a_rotation_that_does_not_depend_on_where(p, shift):
    p = max(p, -shift)
    table = attend.sinusoidal_positions(p + max(shift, 0) + 1, 8)
    pairs = table.reshape(-1, 4, 2)
    turn = shift * attend.frequencies(8)
    sin, cos = pairs[p, :, 0], pairs[p, :, 1]
    shifted = np.stack(
        [sin * np.cos(turn) + cos * np.sin(turn), cos * np.cos(turn) - sin * np.sin(turn)], -1
    )
    np.testing.assert_allclose(pairs[p + shift], shifted, atol=1e-9)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@given(m=st.integers(0, 2000), n=st.integers(0, 2000), shift=st.integers(0, 2000))
def test_the_score_of_rotated_query_and_key_depends_on_their_distance_alone(layout, m, n, shift):
    q, k = normal(1, 6), normal(1, 6, seed=1)

    def score(at_q, at_k):
        turned = [
            attend.apply_rope(x, attend.rope_angles([at], 6), layout=layout)
            for x, at in ((q, at_q), (k, at_k))
        ]
        return float((turned[0] @ turned[1].T)[0, 0])

    assert score(m, n) == pytest.approx(score(m + shift, n + shift), abs=1e-9)
    if m != n:  # and it does depend on the distance
        assert score(m, n) != pytest.approx(score(m, m), abs=1e-12)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_a_rotation_keeps_the_length_of_every_row(layout):
    x = normal(2, 5, 6)
    turned = attend.apply_rope(x, attend.rope_angles(range(5), 6), layout=layout)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1))


def test_positions_that_go_on_continue_the_same_sequence():
    whole = attend.rope_angles(range(11), 6)
    np.testing.assert_array_equal(attend.rope_angles(range(7, 11), 6), whole[7:])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_rotated_by_exact_angles_and_keeps_its_dtype(dtype):
    """In a bfloat16 table position 1023 would be 1024, a whole radian off."""
    angles = attend.rope_angles(torch.arange(1020, 1024), 6)
    assert angles.dtype == torch.float64
    x = torch.from_numpy(normal(4, 6)).to(dtype)
    got = attend.apply_rope(x, angles)
    assert got.dtype == dtype
    exact = attend.apply_rope(x.double(), angles)
    assert (got - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()


def test_whole_numbers_are_turned_like_the_same_floats():
    x = np.arange(12).reshape(2, 6)
    angles = attend.rope_angles([3, 5], 6)
    np.testing.assert_array_equal(attend.apply_rope(x, angles), attend.apply_rope(x * 1.0, angles))
    turned = attend.apply_rope(torch.from_numpy(x), torch.from_numpy(angles))
    assert turned.dtype == torch.float64


def test_sentences_of_a_batch_may_start_at_different_positions():
    x = normal(2, 3, 4, 6)
    angles = attend.rope_angles(np.array([[0, 1, 2, 3], [5, 6, 7, 8]]), 6)[:, None]  # (B, 1, T, 3)
    got = attend.apply_rope(x, angles)
    np.testing.assert_array_equal(
        got[1], attend.apply_rope(x[1], attend.rope_angles(range(5, 9), 6))
    )


def test_a_table_can_be_made_like_a_tensor():
    table = attend.sinusoidal_positions(5, 4, like=torch.zeros(1, dtype=torch.float16))
    assert table.dtype == torch.float16
    np.testing.assert_allclose(table, attend.sinusoidal_positions(5, 4), atol=1e-3)


def test_what_does_not_fit_is_refused():
    for make in (
        lambda: attend.sinusoidal_positions(3, 5),
        lambda: attend.rope_angles([0, 1], 5),
        lambda: attend.rope_permutation(5),
        lambda: attend.apply_rope(normal(3, 5), normal(3, 2)),
        lambda: attend.apply_rope(normal(3, 4), normal(1, 2)),
        lambda: attend.apply_rope(normal(3, 4), normal(3, 1)),
        lambda: attend.apply_rope(normal(3, 4), normal(2, 3, 2)),
        lambda: attend.apply_rope(normal(2, 3, 4), normal(5, 3, 2)),
        lambda: attend.apply_rope(normal(3, 4), normal(3, 2), layout="llama"),
    ):
        with pytest.raises(ValueError):
            make()
