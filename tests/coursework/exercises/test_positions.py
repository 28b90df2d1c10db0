"""Chapter 02: wrong answers that pass elsewhere, and what students read."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest

from coursework import check, evaluate
from coursework.chapters import by_slug
from coursework.exercises import bug_hunt_of, get
from coursework.exercises.positions import BUG_HUNT
from coursework.exercises.positions.order import F

from .right_answers.positions import (
    angles_by_broadcasting,
    blind_by_indexing,
    permutation_by_slices,
    rope_by_halves,
    sinusoids_by_slices,
)

BLIND = "02.is_order_blind"
SINUSOIDS = "02.sinusoidal_positions"
ANGLES = "02.rope_angles"
ROPE = "02.apply_rope"
PERMUTATION = "02.rope_permutation"


# Wrong answers -------------------------------------------------------------------------------


def blind_for_a_random_order(f, x, order):
    return blind_by_indexing(f, x, np.random.default_rng(0).permutation(len(order)))


def blind_for_two_exchanged_tokens(f, x, order):
    exchanged = np.arange(len(order))
    exchanged[:2] = 1, 0
    return blind_by_indexing(f, x, exchanged)


def blind_within_a_tenth(f, x, order):
    return bool(np.allclose(f(x[..., order, :]), f(x)[..., order, :], atol=0.1))


def blind_at_the_first_token(f, x, order):
    return bool(np.allclose(f(x[..., order, :])[..., 0, :], f(x)[..., order[0], :]))


def blind_in_the_first_feature(f, x, order):
    return bool(np.allclose(f(x[..., order, :])[..., 0], f(x)[..., order, 0], atol=0.02))


def blind_by_changing_x(f, x, order):
    before = f(x)[..., order, :]
    x[:] = x[..., order, :]
    return bool(np.allclose(f(x), before))


def moved(f, x, order):
    """What f gives for moved tokens, and what a blind f would give."""
    return f(x[..., order, :]), f(x)[..., order, :]


def blind_in_feature_0(f, x, order):
    a, b = moved(f, x, order)
    return bool(np.allclose(a[..., 0], b[..., 0]))


def blind_in_the_last_feature(f, x, order):
    a, b = moved(f, x, order)
    return bool(np.allclose(a[..., -1], b[..., -1]))


def blind_by_the_sum_of_features(f, x, order):
    a, b = moved(f, x, order)
    return bool(np.allclose(a.sum(axis=-1), b.sum(axis=-1)))


def blind_in_the_first_entry(f, x, order):
    a, b = moved(f, x, order)
    first = (0,) * (x.ndim - 2)
    return bool(np.allclose(a[first], b[first]))


def blind_within_less_than_a_hundredth(f, x, order):
    return bool(np.allclose(*moved(f, x, order), rtol=0, atol=0.0099))


def blind_within_a_two_hundredth(f, x, order):
    return bool(np.allclose(*moved(f, x, order), rtol=0, atol=0.005))


def blind_within_a_hundredth_of_the_value(f, x, order):
    return bool(np.allclose(*moved(f, x, order), rtol=1e-2))


def blind_to_two_digits(f, x, order):
    a, b = moved(f, x, order)
    return bool(np.array_equal(np.round(a, 2), np.round(b, 2)))


def blind_on_average(f, x, order):
    a, b = moved(f, x, order)
    return bool(np.mean(np.abs(a - b)) < 1e-3)


def blind_where_tokens_move(f, x, order):
    a, b = moved(f, x, order)
    moves = order != np.arange(len(order))
    return bool(np.allclose(a[..., moves, :], b[..., moves, :]))


def blind_unless_all_stay(f, x, order):
    return not np.array_equal(order, np.arange(len(order))) and blind_by_indexing(f, x, order)


def blind_unless_there_is_one_token(f, x, order):
    return len(order) > 1 and blind_by_indexing(f, x, order)


def blind_at_the_second_and_last(f, x, order):
    a, b = moved(f, x, order)
    some = [min(1, len(order) - 1), -1]
    return bool(np.allclose(a[..., some, :], b[..., some, :]))


def blind_if_a_shape_is_kept(f, x, order):
    return f(x[..., order, :]).shape == x.shape


def blind_as_a_number(f, x, order):
    return int(blind_by_indexing(f, x, order))


def sinusoids_of_base_100(n, d_model, base=100.0):
    return sinusoids_by_slices(n, d_model, base)


def sinusoids_of_squares(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] ** 2 / base ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def sinusoids_of_one_speed(n, d_model, base=10000.0):
    return np.tile(sinusoids_by_slices(n, 2, base), d_model // 2)


def sinusoids_of_whole_exponents(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d_model, 2) // d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def sinusoids_for_half_precision(n, d_model, base=10000.0):
    return sinusoids_by_slices(n, d_model, base).astype(np.float16)


def sinusoids_with_a_row_too_many(n, d_model, base=10000.0):
    return sinusoids_by_slices(n + 1, d_model, base)


def sinusoids_with_a_batch_axis(n, d_model, base=10000.0):
    return sinusoids_by_slices(n, d_model, base)[None]


def sinusoids_of_zeros(n, d_model, base=10000.0):
    return np.zeros((n, d_model))


def angles_of_base_100(positions, d_head, base=100.0):
    return angles_by_broadcasting(positions, d_head, base)


def angles_from_the_first_position(positions, d_head, base=10000.0):
    return angles_by_broadcasting(positions - positions[0], d_head, base)


def angles_without_a_sign(positions, d_head, base=10000.0):
    return angles_by_broadcasting(np.abs(positions), d_head, base)


def angles_in_order(positions, d_head, base=10000.0):
    return angles_by_broadcasting(np.sort(positions), d_head, base)


def angles_as_cosines(positions, d_head, base=10000.0):
    return np.cos(angles_by_broadcasting(positions, d_head, base))


def angles_of_half_a_turn(positions, d_head, base=10000.0):
    angles = angles_by_broadcasting(positions, d_head, base)
    return np.arctan2(np.sin(angles), np.cos(angles))


def angles_in_half_precision(positions, d_head, base=10000.0):
    return angles_by_broadcasting(positions, d_head, base).astype(np.float16)


def angles_of_one_speed(positions, d_head, base=10000.0):
    return np.repeat(positions[:, None] * 1.0, d_head // 2, axis=1)


def angles_that_change_positions(positions, d_head, base=10000.0):
    result = angles_by_broadcasting(positions, d_head, base)
    positions += 1
    return result


def rope_in_both_layouts(x, angles):
    y = rope_by_halves(x, angles)
    a, b = y[..., 0::2], y[..., 1::2]
    c, s = np.cos(angles), np.sin(angles)
    return np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(x.shape)


def rope_by_twice_the_angle(x, angles):
    return rope_by_halves(x, 2 * angles)


def rope_that_stretches(x, angles):
    return 2 * rope_by_halves(x, angles)


def rope_of_the_first_pairs_only(x, angles):
    some = angles.copy()
    some[:, (angles.shape[1] + 1) // 2 :] = 0
    return rope_by_halves(x, some)


def rope_by_distance_to_the_first_token(x, angles):
    return rope_by_halves(x, angles - angles[:1])


def rope_along_the_first_axis(x, angles):
    """For heads laid out as (T, ..., K)."""
    shape = (len(angles), *(1,) * (x.ndim - 2), -1)
    return rope_by_halves(x, angles.reshape(shape))


def rope_in_place(x, angles):
    if x.dtype.kind != "f":
        return rope_by_halves(x, angles)
    x[:] = rope_by_halves(x, angles)
    return x.copy()


def rope_in_float32(x, angles):
    return rope_by_halves(x.astype(np.float32), angles.astype(np.float32))


def rope_for_four_features(x, angles):
    return rope_by_halves(x, angles) if x.shape[-1] == 4 else x * 1.0


def rope_with_tokens_in_reverse(x, angles):
    return rope_by_halves(x, angles[::-1])


def permutation_as_a_list(d_head):
    return permutation_by_slices(d_head).tolist()


def permutation_in_reverse(d_head):
    return permutation_by_slices(d_head)[::-1].copy()


def permutation_for_four_features(d_head):
    return np.array([0, 2, 1, 3])


def permutation_with_a_half_reversed(d_head):
    return np.r_[0:d_head:2, d_head - 1 : 0 : -2]


def permutation_of_strides(d_head):
    """2j modulo K - 1, which is the permutation but for its last entry."""
    return 2 * np.arange(d_head) % max(d_head - 1, 1)


WRONG_ANSWERS = {
    BLIND: (
        blind_for_a_random_order,
        blind_for_two_exchanged_tokens,
        blind_within_a_tenth,
        blind_at_the_first_token,
        blind_in_the_first_feature,
        blind_in_feature_0,
        blind_in_the_last_feature,
        blind_by_the_sum_of_features,
        blind_in_the_first_entry,
        blind_within_less_than_a_hundredth,
        blind_within_a_two_hundredth,
        blind_within_a_hundredth_of_the_value,
        blind_to_two_digits,
        blind_on_average,
        blind_where_tokens_move,
        blind_unless_all_stay,
        blind_unless_there_is_one_token,
        blind_at_the_second_and_last,
        blind_by_changing_x,
        blind_if_a_shape_is_kept,
        blind_as_a_number,
    ),
    SINUSOIDS: (
        sinusoids_of_base_100,
        sinusoids_of_squares,
        sinusoids_of_one_speed,
        sinusoids_of_whole_exponents,
        sinusoids_for_half_precision,
        sinusoids_with_a_row_too_many,
        sinusoids_with_a_batch_axis,
        sinusoids_of_zeros,
    ),
    ANGLES: (
        angles_of_base_100,
        angles_from_the_first_position,
        angles_without_a_sign,
        angles_in_order,
        angles_as_cosines,
        angles_of_half_a_turn,
        angles_in_half_precision,
        angles_of_one_speed,
        angles_that_change_positions,
    ),
    ROPE: (
        rope_in_both_layouts,
        rope_by_twice_the_angle,
        rope_that_stretches,
        rope_of_the_first_pairs_only,
        rope_by_distance_to_the_first_token,
        rope_along_the_first_axis,
        rope_in_place,
        rope_in_float32,
        rope_for_four_features,
        rope_with_tokens_in_reverse,
    ),
    PERMUTATION: (
        permutation_as_a_list,
        permutation_in_reverse,
        permutation_for_four_features,
        permutation_with_a_half_reversed,
        permutation_of_strides,
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


def test_a_mistake_is_named_however_it_is_spelt():
    def by_the_inverse_of_the_wrong_side(f, x, order):  # f(x[order])[order] = f(x), turned round
        back = np.argsort(order)
        return bool(np.allclose(f(np.take(x, order, axis=-2)), np.take(f(x), back, axis=-2)))

    def on_average(f, x, order):
        return bool(abs(np.mean(f(x[..., order, :]) - f(x)[..., order, :])) < 1e-9)

    def with_complex_numbers(x, angles):
        z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)

    def rotate_half_without_a_minus(x, angles):
        a, b = np.split(x, 2, axis=-1)
        wide = np.concatenate([angles, angles], axis=-1)
        return x * np.cos(wide) + np.concatenate([b, a], axis=-1) * np.sin(wide)

    def arange_by_two_and_doubled(positions, d_head, base=10000.0):
        return np.outer(positions, base ** (-2 * np.arange(0, d_head, 2) / d_head))

    def argsort_of_the_right_one(d_head):
        return np.argsort(permutation_by_slices(d_head))

    named = {
        (BLIND, by_the_inverse_of_the_wrong_side): "applies the order again to go back",
        (BLIND, on_average): "compares sums over the tokens",
        (ROPE, with_complex_numbers): "pairs neighbours",
        (ROPE, rotate_half_without_a_minus): "forgets the minus sign",
        (ANGLES, arange_by_two_and_doubled): "doubles the exponent",
        (PERMUTATION, argsort_of_the_right_one): "goes the other way",
    }
    for (id, answer), name in named.items():
        assert evaluate(id, answer, seed=1).misconception == name


@pytest.mark.parametrize("id", [BLIND, SINUSOIDS, ANGLES, ROPE, PERMUTATION])
def test_visible_answers_learnt_by_heart_fail(id):
    """An answer that knows what is right on every visible input, and on no other."""
    known = []

    def remember(*args, **kwargs):
        known.append((args, kwargs))
        raise RuntimeError

    with redirect_stdout(io.StringIO()):
        check(id, remember)
    right = get(id).reference
    answers = [right(*args, **kwargs) for args, kwargs in known]

    def by_heart(*args, **kwargs):
        plain = [a for a in args if not callable(a)]
        for (seen, by_name), answer in zip(known, answers, strict=True):
            numbers = [a for a in seen if not callable(a)]
            if kwargs == by_name and all(map(np.array_equal, plain, numbers)):
                return answer
        return answers[0]

    with redirect_stdout(io.StringIO()):
        assert check(id, by_heart) == get(id).max_points
    assert not evaluate(id, by_heart, seed=3).passed


# The inputs ----------------------------------------------------------------------------------


def _calls(id, seed):
    for prop in get(id).properties:
        yield from prop.calls(np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(5))
def test_an_order_is_not_its_own_inverse_and_moves_all_tokens_unless_staying_is_the_point(seed):
    staying = []
    for call in _calls(BLIND, seed):
        order = call.args[2]
        assert sorted(order) == list(range(call.args[1].shape[-2]))
        stays = int((order == np.arange(len(order))).sum())
        if stays:
            staying.append((stays, len(order)))
        if stays < len(order):
            assert (order[order] != np.arange(len(order))).any()
    assert sorted(staying) == [(1, 1), (1, 1), (1, 5), (1, 7), (2, 7), (2, 11), (5, 5), (7, 7)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("answer", WRONG_ANSWERS[BLIND])
@pytest.mark.slow
def test_no_draw_of_the_inputs_lets_a_wrong_order_test_pass(answer, seed):
    assert not evaluate(BLIND, answer, seed=seed).passed


@pytest.mark.parametrize("seed", range(5))
def test_what_sees_the_order_differs_by_as_much_as_the_task_says(seed):
    for call in _calls(BLIND, seed):
        f, x, order = call.args
        gap = np.abs(f.make()(x[..., order, :]) - f.make()(x)[..., order, :]).max()
        assert gap < 1e-12 or gap >= 0.001


@pytest.mark.parametrize("name", F)
def test_a_function_of_the_exercise_takes_any_tokens_and_leaves_them_alone(name):
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 7))
    before = x.copy()
    assert F[name].make()(x).shape[:-1] == (2, 3, 5)
    np.testing.assert_array_equal(x, before)


def test_a_function_that_an_answer_has_kept_leaves_attend_as_it_is():
    kept = []

    def answer(f, x, order):
        kept.append((f, x))
        return True

    evaluate(BLIND, answer, seed=1)
    f, x = kept[0]
    f(x)  # after the check, when nothing is withheld
    np.testing.assert_array_equal(get(PERMUTATION).reference(4), [0, 2, 1, 3])


# What a student reads ------------------------------------------------------------------------


def _printed(id, answer, **kwargs):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        points = check(id, answer, **kwargs)
    assert err.getvalue() == ""
    return points, out.getvalue()


def test_the_other_layout_is_explained_on_the_smallest_case():
    def answer(x, angles):
        a, b = x[..., 0::2], x[..., 1::2]
        c, s = np.cos(angles), np.sin(angles)
        return np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(x.shape)

    points, text = _printed(ROPE, answer)
    lines = text.splitlines()
    assert points == 0
    assert lines[0] == "✗ apply_rope: other features are paired (0 of 5 points)."
    assert lines[1].startswith("  On x (3, 4), angles = [[")
    assert "; it should be [" in lines[1]
    assert lines[2].startswith("  You pair features 2i and 2i + 1. That is the interleaved layout")
    assert lines[-1] == "  A hint: course check 02-positions --hint apply_rope"


def test_a_function_that_was_judged_wrongly_is_called_by_its_name():
    points, text = _printed(BLIND, lambda f, x, order: True)
    assert points == 0
    assert "On f = x plus a number for each position, x = [[" in text
    assert "it always says True" in text


def test_a_single_head_is_worth_its_points_without_batches():
    def answer(x, angles):
        half = x.shape[1] // 2
        a, b = x[:, :half], x[:, half:]
        c, s = np.cos(angles), np.sin(angles)
        return np.concatenate([a * c - b * s, a * s + b * c], axis=1)

    points, text = _printed(ROPE, answer)
    assert points == 4
    assert "✗ the same angles for all leading axes" in text


def test_float32_tables_are_near_enough_and_a_wrong_entry_beside_them_is_shown():
    def answer(n, d_model, base=10000.0):
        table = sinusoids_by_slices(n, d_model, base).astype(np.float32)
        table[-1, -1] += 0.5
        return table

    points, text = _printed(SINUSOIDS, answer)
    assert points == 0
    assert "the table[2] is [" in text  # the last of three rows, not the first that was rounded


def test_points_are_plain_floats():
    points, _ = _printed(PERMUTATION, permutation_by_slices, graded=True)
    assert type(points) is float
    assert points == 3.0


# The bug hunt --------------------------------------------------------------------------------


def test_the_hunt_is_that_of_the_chapter():
    assert bug_hunt_of(by_slug("02-positions")) is BUG_HUNT


@pytest.mark.parametrize("variant", range(len(BUG_HUNT.bugs)))
def test_degenerate_inputs_are_refused(variant):
    """Zeros, full turns, equal angles and tokens alike would hide any of the bugs."""
    x, angles = BUG_HUNT.bugs[variant].shows
    one = np.ones((2, 4))
    degenerate = (
        (np.zeros((2, 4)), angles),
        (one, angles),
        (x, np.zeros((2, 2))),
        (x, 2 * np.pi * np.array([[1.0, 2.0], [3.0, 4.0]])),
        (x, np.full((2, 2), 0.7)),
        (x[:1], angles[:1]),
        (x[:, :2], angles[:, :1]),
        (np.full((2, 4), np.nan), angles),
        (x, np.full((2, 2), np.nan)),
    )
    for args in degenerate:
        assert not all(_holds(c, args) for c in BUG_HUNT.conditions)


def _holds(condition, args):
    try:
        return bool(condition.holds(*args))
    except Exception:
        return False
