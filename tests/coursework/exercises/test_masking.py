"""Chapter 05: wrong answers that look right, and right ones that look odd."""

import numpy as np
import pytest
import torch  # here, and not within an answer, whose seconds are counted

from coursework import evaluate
from coursework.answer import run_here
from coursework.exercise import Call
from coursework.exercises import get
from coursework.exercises.masking.leaks import F
from tests.coursework.exercises.right_answers.masking import (
    attention_in_steps,
    leak_by_random_tokens,
    mask_by_tril,
    padding_by_comparing,
    pairs_by_stacking,
    softmax_with_minus_infinity,
)

SEEDS = range(3)


def failed_properties(verdict):
    return [r.property for r in verdict.results if r.failure]


def rejected(id, answer):
    """The verdict of an answer that no seed may let pass."""
    verdicts = [evaluate(id, answer, seed=seed) for seed in SEEDS]
    assert not any(v.passed for v in verdicts)
    return verdicts[0]


# causal_mask ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        lambda T, S=None: np.tri(T, S, k=(S or T) - T),  # floats
        lambda T, S=None: mask_by_tril(T, S).T,
        lambda T, S=None: mask_by_tril(T, S)[None],
        lambda T, S=None: mask_by_tril(T, S).astype(object),
        lambda T, S=None: mask_by_tril(T, S).tolist(),
        lambda T, S=None: np.tril(np.ones((T, S or T), dtype=bool), k=abs((S or T) - T)),
        lambda T, S=None: mask_by_tril(T, max(T, S or T)),
        lambda T, S=None: np.ones((T, S or T), dtype=bool),
        lambda T, S=None: np.zeros((T, S or T), dtype=bool),
        lambda T, S=None: ~mask_by_tril(T, S)[::-1, ::-1],
    ],
)
def test_masks_of_another_kind_shape_or_corner_are_rejected(answer):
    rejected("05.causal_mask", answer)


def test_a_mask_that_is_right_only_for_squares_earns_the_squares_alone():
    verdict = rejected("05.causal_mask", lambda T, S=None: np.tril(np.ones((T, S or T), bool)))
    assert verdict.points == 2
    assert verdict.misconception == "lined up at the start"


# masked_softmax ------------------------------------------------------------------------------


def softmax_with(forbidden, mend_empty_rows=False, keep=True):
    def answer(scores, mask):
        dtype = scores.dtype if scores.dtype.kind == "f" else np.float64
        s = np.where(mask, scores, forbidden).astype(dtype)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        weights = e / e.sum(axis=-1, keepdims=True)
        if mend_empty_rows:
            weights = weights * mask.any(axis=-1, keepdims=True)
        return weights.astype(dtype)

    return answer


STAND_INS = [-1e3, -1e4, -1e9, -1e10, -1e30, float(np.finfo(np.float32).min)]


@pytest.mark.parametrize("forbidden", STAND_INS)
def test_a_finite_stand_in_is_rejected(forbidden):
    verdict = rejected("05.masked_softmax", softmax_with(forbidden))
    assert "a row that may attend to nothing is all zeros" in failed_properties(verdict)
    assert verdict.misconception == "a finite number in place of −∞"


def test_equal_shares_in_empty_rows_are_called_so_however_they_come_about():
    def shares(scores, mask):
        empty = ~mask.any(axis=-1, keepdims=True)
        weights = softmax_with_minus_infinity(scores, mask)
        return np.where(empty, np.asarray(1 / scores.shape[-1], weights.dtype), weights)

    def lowest(scores, mask):
        scores = scores * np.ones((), scores.dtype if scores.dtype.kind == "f" else float)
        return softmax_with(np.finfo(scores.dtype).min)(scores, mask)

    for answer in (shares, lowest):
        assert rejected("05.masked_softmax", answer).misconception == "empty rows are uniform"


@pytest.mark.parametrize("forbidden", [-50, *STAND_INS])
@pytest.mark.slow
def test_a_finite_stand_in_is_rejected_even_where_empty_rows_are_mended(forbidden):
    verdict = rejected("05.masked_softmax", softmax_with(forbidden, mend_empty_rows=True))
    assert "forbidden keys get exactly 0 whatever the scores" in failed_properties(verdict)


def test_only_the_largest_of_the_allowed_scores_may_be_subtracted():
    def smallest(scores, mask):
        least = np.where(mask, scores, np.inf).min(axis=-1, keepdims=True)
        e = np.exp(np.where(mask, scores - np.where(np.isinf(least), 0, least), -np.inf))
        total = e.sum(axis=-1, keepdims=True)
        return (e / np.where(total == 0, 1, total)).astype(e.dtype)

    verdict = rejected("05.masked_softmax", smallest)
    assert failed_properties(verdict) == ["forbidden keys get exactly 0 whatever the scores"]


@pytest.mark.parametrize("little", [1e-9, 1e-12, 1e-300])
def test_a_little_weight_on_forbidden_keys_is_not_zero(little):
    def answer(scores, mask):
        weights = softmax_with_minus_infinity(scores, mask)
        left = (weights > 0).any(axis=-1, keepdims=True) & ~mask
        return np.where(left, np.asarray(little, dtype=weights.dtype), weights)

    verdict = rejected("05.masked_softmax", answer)
    assert "exactly 0" in verdict.message


def test_weights_of_the_mask_alone_earn_nothing():
    def answer(scores, mask):
        mask = np.broadcast_to(mask, scores.shape)
        return mask / np.maximum(mask.sum(axis=-1, keepdims=True), 1)

    def mask_itself(scores, mask):
        return np.broadcast_to(mask, scores.shape).astype(scores.dtype)

    assert rejected("05.masked_softmax", answer).points == 0
    assert rejected("05.masked_softmax", mask_itself).points == 0


def test_renormalising_after_the_softmax_is_right_until_forbidden_scores_are_far_above():
    def answer(scores, mask):
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = e / e.sum(axis=-1, keepdims=True) * mask
        total = weights.sum(axis=-1, keepdims=True)
        return weights / np.where(total == 0, 1, total)

    verdict = rejected("05.masked_softmax", answer)
    assert failed_properties(verdict) == ["forbidden keys get exactly 0 whatever the scores"]
    assert verdict.misconception == "largest score of all keys"


def test_nan_for_empty_rows_is_named_although_the_dtype_is_wrong_too():
    def answer(scores, mask):
        s = np.where(mask, scores.astype(np.float64), -np.inf)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    verdict = rejected("05.masked_softmax", answer)
    assert verdict.misconception in {"NaN on empty rows", None}
    assert verdict.points == 6


def test_a_mask_that_is_not_broadcast_is_told_apart_from_scores_changed_in_place():
    def copies_first(scores, mask):
        scores = scores.astype(float)
        scores[~mask] = -np.inf
        return np.nan_to_num(softmax_with_minus_infinity(scores, np.isfinite(scores)))

    verdict = rejected("05.masked_softmax", copies_first)
    assert "a mask with fewer axes, or axes of 1, is broadcast" in failed_properties(verdict)
    assert verdict.misconception != "scores changed in place"


# causal_attention ----------------------------------------------------------------------------


def test_scores_of_keys_with_keys_are_rejected():
    def answer(q, k, v):
        return attention_in_steps(k[..., -q.shape[-2] :, :], k, v)

    rejected("05.causal_attention", answer)


@pytest.mark.parametrize("change", [np.negative, np.zeros_like, lambda q: q * 1.001])
def test_other_scores_are_rejected(change):
    rejected("05.causal_attention", lambda q, k, v: attention_in_steps(change(q), k, v))


def test_right_weights_beside_values_that_are_not_blended_earn_the_weights():
    def answer(q, k, v):
        z, weights = attention_in_steps(q, k, v)
        return np.zeros_like(z), weights

    verdict = rejected("05.causal_attention", answer)
    assert verdict.points == 4


def test_right_values_beside_other_weights_are_rejected():
    def answer(q, k, v):
        z, weights = attention_in_steps(q, k, v)
        return z, weights[..., ::-1]

    assert rejected("05.causal_attention", answer).points == 0


@pytest.mark.parametrize(
    ("leaks", "points"),
    [(lambda T, S: True, 2), (lambda T, S: T != S, 4), (lambda T, S: T > S, 6)],
)
def test_a_tiny_weight_on_the_future_is_no_zero(leaks, points):
    def answer(q, k, v):
        z, weights = attention_in_steps(q, k, v)
        T, S = weights.shape[-2:]
        little = 1e-12 if leaks(T, S) else 0
        return z, np.where(mask_by_tril(T, S), weights, little)

    verdict = rejected("05.causal_attention", answer)
    assert "later key" in verdict.message
    assert verdict.points == points


@pytest.mark.parametrize("forbidden", STAND_INS)
@pytest.mark.parametrize("mend_empty_rows", [False, True])
@pytest.mark.slow
def test_a_finite_stand_in_in_attention_is_rejected(forbidden, mend_empty_rows):
    def answer(q, k, v):
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        mask = mask_by_tril(*scores.shape[-2:])
        weights = softmax_with(forbidden, mend_empty_rows)(scores, mask)
        return weights @ v, weights

    verdict = rejected("05.causal_attention", answer)
    assert "scores of any size are no trouble" in failed_properties(verdict)
    assert verdict.misconception in {"a finite number in place of −∞", None}


def test_fused_attention_is_refused_and_numpy_is_not_disturbed_by_it():
    def answer(q, k, v):
        q, k, v = (torch.from_numpy(x) for x in (q, k, v))
        mask = torch.from_numpy(mask_by_tril(q.shape[-2], k.shape[-2]))
        z = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
        return z.numpy(), softmax_with_minus_infinity((q @ k.mT).numpy(), mask.numpy())

    verdict = rejected("05.causal_attention", answer)
    assert verdict.points == 0
    assert "fused attention" in verdict.message
    assert evaluate("05.causal_attention", attention_in_steps, seed=1).passed


# leaks_future --------------------------------------------------------------------------------


def leak_test(change, watch=lambda z, t: z[..., : t + 1, :], tolerance=0.0):
    """A leak test that makes a `change` of the future and watches a part of the outputs."""

    def answer(f, x, t):
        changed = x.copy()
        changed[..., t + 1 :, :] = change(x[..., t + 1 :, :])
        difference = np.abs(watch(f(x), t) - watch(f(changed), t))
        return not bool(np.all(difference <= tolerance))

    return answer


def noise(future):
    return future + np.random.default_rng(3).standard_normal(future.shape)


def test_the_leak_test_that_the_others_vary_is_right():
    assert evaluate("05.leaks_future", leak_test(noise), seed=1).passed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda future: future + 1, "adds a constant"),
        (lambda future: future + 1e6, "adds a constant"),
        (lambda future: np.full_like(future, 3.0), None),
        (lambda future: future * 0, "leaves a future of zeros as it is"),
        (lambda future: future * 2, "leaves a future of zeros as it is"),
        (lambda future: -future, "leaves a future of zeros as it is"),
        (lambda future: future[..., ::-1, :], "exchanges future tokens"),
        (lambda future: future[..., ::-1], None),
        (lambda future: np.full_like(future, np.nan), "NaN as the future"),
        (lambda future: np.full_like(future, np.inf), None),
        (lambda future: future + np.arange(future.shape[-2])[:, None], None),
        (lambda future: np.roll(future, 1, axis=-2), None),
        (lambda future: future + 1e-12 * noise(future), None),
        (lambda future: np.concatenate([noise(future[..., :1]), future[..., 1:]], -1), None),
    ],
)
def test_changes_that_do_not_show_every_leak_are_rejected(change, name):
    def answer(f, x, t):
        with np.errstate(all="ignore"):
            return leak_test(change, tolerance=1e-10)(f, x, t)

    verdict = rejected("05.leaks_future", answer)
    assert name is None or verdict.misconception in {name, None}
    assert verdict.points <= 5


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0, -1, 2, 0.5])
def test_a_multiple_of_the_future_is_named_by_the_zeros_that_it_leaves(factor):
    verdict = rejected("05.leaks_future", leak_test(lambda future: future * factor))
    assert verdict.misconception == "leaves a future of zeros as it is"


def only_at(places, change=noise):
    """Changes the later tokens at `places` alone, as far as there are such."""

    def answer(future):
        changed, all_changed = future.copy(), change(future)
        for place in places:
            if -future.shape[-2] <= place < future.shape[-2]:
                changed[..., place, :] = all_changed[..., place, :]
        return changed

    return answer


def one_noise_for_all(future):
    return future + np.random.default_rng(3).standard_normal(future.shape[-1])


def noise_that_sums_to_zero(future):
    if not future.size:
        return future
    change = noise(future) - future
    return future + change - change.mean(axis=-2, keepdims=True)


def only_in_feature(feature):
    def change(future):
        changed = future.copy()
        changed[..., feature] = noise(future)[..., feature]
        return changed

    return change


def only_in_the_first_entry(future):
    changed = future.copy()
    changed[(0,) * (future.ndim - 2)] = noise(future)[(0,) * (future.ndim - 2)]
    return changed


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        only_in_feature(-1),
        only_in_feature(0),
        only_at([0, -1]),
        only_at(range(1, 20)),  # all from t + 2 on
        only_at(range(-20, -1)),  # all but the last
        one_noise_for_all,
        noise_that_sums_to_zero,
        only_in_the_first_entry,
    ],
)
@pytest.mark.parametrize("tolerance", [0.0, 1e-10])
def test_changes_of_a_part_of_the_future_are_rejected_and_not_called_something_else(
    change, tolerance
):
    verdict = rejected("05.leaks_future", leak_test(change, tolerance=tolerance))
    assert verdict.misconception is None


@pytest.mark.parametrize(
    "watch",
    [
        lambda z, t: z[..., [0, t], :],
        lambda z, t: z[..., : t + 1, -1],
        lambda z, t: z[..., : t + 1, 0],
        lambda z, t: z[(0,) * (z.ndim - 2)][: t + 1],
        lambda z, t: z,
        lambda z, t: z[..., t, :],
        lambda z, t: z[..., :t, :],
        lambda z, t: z[..., 0, :],
        lambda z, t: z[..., : t + 2, :],
        lambda z, t: z[..., : t + 1, :].sum(axis=-2),
        lambda z, t: z[..., : t + 1, :1],
        lambda z, t: z[:1, ..., : t + 1, :] if z.ndim > 2 else z[: max(t, 1)],
    ],
)
@pytest.mark.slow
def test_watching_another_part_of_the_outputs_is_rejected(watch):
    rejected("05.leaks_future", leak_test(noise, watch=watch))


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-5])
def test_a_tolerance_that_forgives_a_small_leak_is_rejected(tolerance):
    verdict = rejected("05.leaks_future", leak_test(noise, tolerance=tolerance))
    assert "leaks that hide, and functions that only seem to leak" in failed_properties(verdict)


@pytest.mark.parametrize("value", [True, False])
def test_an_answer_that_looks_at_nothing_earns_nothing(value):
    assert rejected("05.leaks_future", lambda f, x, t: value).points == 0


def test_a_number_is_no_bool():
    rejected("05.leaks_future", lambda f, x, t: int(leak_by_random_tokens(f, x, t)))


def test_changing_x_is_a_fault_although_the_verdict_on_f_is_right():
    def answer(f, x, t):
        before = f(x)[..., : t + 1, :]
        x[..., t + 1 :, :] = np.random.default_rng(0).standard_normal(x[..., t + 1 :, :].shape)
        return not np.array_equal(before, f(x)[..., : t + 1, :])

    verdict = rejected("05.leaks_future", answer)
    assert verdict.misconception == "writes into x"


@pytest.mark.parametrize("name", F)
def test_each_function_leaks_or_not_as_its_own_outputs_say(name):
    """The oracle asks for the derivative of each early output by each later token, numerically."""
    f, rng = F[name].make(), np.random.default_rng(1)
    x = rng.standard_normal((6, 3))
    z = f(x)
    for t in range(6):
        moved = False
        for token in range(t + 1, 6):
            for feature in range(3):
                step = x.copy()
                step[token, feature] += 1e-3
                moved |= bool(np.any(f(step)[: t + 1] != z[: t + 1]))
        assert leak_by_random_tokens(f, x, t) == moved
        reply = run_here(get("05.leaks_future").reference, Call((F[name], x, t)))
        assert reply.value == moved


# Padding and pairs ---------------------------------------------------------------------------


@pytest.mark.parametrize("error", [IndexError, AssertionError, TypeError, Exception])
def test_another_error_is_not_the_one_that_was_asked_for(error):
    def answer(lengths, S):
        if np.any(lengths < 0) or np.any(lengths > S):
            raise error("no")
        return np.arange(S) < lengths[:, None]

    assert rejected("05.padding_mask", answer).points == 2


def test_an_answer_that_always_raises_earns_nothing():
    def always(*args):
        raise ValueError("no")

    for id in ("05.padding_mask", "05.next_token_pairs"):
        assert rejected(id, always).points == 0


def test_lengths_may_not_be_cut_to_fit():
    verdict = rejected("05.padding_mask", lambda n, S: padding_by_comparing(n.clip(0, S), S))
    assert verdict.misconception == "no error"


@pytest.mark.parametrize("some", [[0, -1], slice(1), slice(-1, None), slice(2)])
@pytest.mark.parametrize("is_bad", [lambda n, S: n < 0, lambda n, S: n > S])
def test_every_length_must_be_looked_at(some, is_bad):
    def answer(lengths, S):
        other_side = (lengths < 0) | (lengths > S)
        other_side &= ~is_bad(lengths, S)
        if other_side.any() or is_bad(lengths[some], S).any():
            raise ValueError
        return np.arange(S) < lengths[:, None]

    assert rejected("05.padding_mask", answer).points == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda pairs: (pairs[0], pairs[1][::-1]),
        lambda pairs: (pairs[0][::-1], pairs[1][::-1]),
        lambda pairs: (pairs[0].T, pairs[1].T),
        lambda pairs: (pairs[0], pairs[0] + 1),  # right for a text that counts up
        lambda pairs: (pairs[0] % 256, pairs[1] % 256),
        lambda pairs: np.stack(pairs),
        lambda pairs: (pairs[0].ravel(), pairs[1].ravel()),
    ],
)
def test_pairs_in_another_order_shape_or_width_are_rejected(change):
    rejected("05.next_token_pairs", lambda ids, context: change(pairs_by_stacking(ids, context)))


def test_padding_is_judged_by_keys_and_not_by_queries():
    def answer(lengths, T):
        real = np.arange(T) < lengths[:, None]
        return mask_by_tril(T) & real[:, None, :, None]

    verdict = rejected("05.padded_causal_mask", answer)
    assert verdict.misconception == "padding queries emptied"
