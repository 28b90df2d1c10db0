"""Chapter 11: wrong answers that look right on most inputs, and what students read."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import torch

from coursework import check, evaluate
from coursework.chapters import by_slug
from coursework.evaluate import evaluate_exercise
from coursework.exercises import bug_hunt_of, get

from .right_answers.reading_heads import (
    ablation_of_a_copy,
    induction_of_cut_rows,
    preference_with_a_safe_divisor,
    previous_by_diagonal,
    sink_of_a_column,
)

PREVIOUS = "11.previous_token_score"
SINK = "11.sink_score"
INDUCTION = "11.induction_score"
PREFERENCE = "11.antecedent_preference"
ABLATION = "11.ablate_head"


# Wrong answers -------------------------------------------------------------------------------


def previous_of_zeros(weights):
    if weights.shape[-1] < 2:
        raise ValueError
    return torch.zeros(weights.shape[:-2], dtype=weights.dtype)


def previous_as_an_array(weights):
    return previous_by_diagonal(weights).numpy()


def previous_as_a_list(weights):
    return previous_by_diagonal(weights).tolist()


def previous_in_the_default_dtype(weights):
    return previous_by_diagonal(weights).float()


def previous_always_in_float64(weights):
    return previous_by_diagonal(weights.double())


def previous_rounded(weights):
    return torch.round(previous_by_diagonal(weights), decimals=6)


def previous_with_the_axis_kept(weights):
    return previous_by_diagonal(weights)[..., None]


def previous_of_single_layers(weights):
    if weights.shape[-1] < 2:
        raise ValueError
    return torch.stack([torch.diagonal(head, -1).mean() for head in weights])


def previous_that_refuses_two_tokens(weights):
    if weights.shape[-1] < 3:
        raise ValueError
    return previous_by_diagonal(weights)


def previous_with_an_assertion(weights):
    assert weights.shape[-1] >= 2
    return previous_by_diagonal(weights)


def previous_that_clears_the_rest(weights):
    if weights.shape[-1] < 2:
        raise ValueError
    weights.tril_(-1).triu_(-1)
    return weights.sum((-2, -1)) / (weights.shape[-1] - 1)


def sink_of_causal_rows(weights):
    """Renormalises rows as if no token could look ahead."""
    causal = weights.tril()
    return sink_of_a_column(causal / causal.sum(-1, keepdim=True))


def sink_by_the_median(weights):
    return weights[..., 1:, 0].median(-1).values


def induction_for_two_copies(weights, period):
    T = weights.shape[-1]
    return induction_of_cut_rows(weights, T // 2)


def induction_of_full_copies(weights, period):
    T = weights.shape[-1] // period * period
    return induction_of_cut_rows(weights[..., :T, :T], period) if period < T else weights[..., 0, 0]


def induction_without_the_sink(weights, period):
    rest = weights.clone()
    rest[..., 0] = 0
    return induction_of_cut_rows(rest / rest.sum(-1, keepdim=True), period)


def preference_of_two(weights, at, candidates):
    one, other = weights[..., at, candidates[0]], weights[..., at, candidates[-1]]
    total = torch.where(one + other == 0, 1, one + other)
    return torch.stack([one / total, other / total], dim=-1)


def preference_with_zeros_for_faint_heads(weights, at, candidates):
    chosen = weights[..., at, candidates]
    total = chosen.sum(-1, keepdim=True)
    return torch.where(total < 1e-6, 0, chosen / torch.where(total == 0, 1, total))


def preference_in_place(weights, at, candidates):
    weights[..., at, :] /= weights[..., at, candidates].sum(-1, keepdim=True)
    return torch.nan_to_num(weights[..., at, candidates], nan=0.0, posinf=0.0)


def preference_of_causal_rows(weights, at, candidates):
    return preference_with_a_safe_divisor(weights.tril(), at, candidates)


def ablation_that_is_a_view(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError
    return heads


def ablation_of_almost_all(heads, index):
    result = ablation_of_a_copy(heads, index)
    result[..., index, :, 0] = heads[..., index, :, 0]
    return result


def ablation_to_almost_zero(heads, index):
    result = heads.clone()
    if not 0 <= index < heads.shape[-3]:
        raise IndexError
    result[..., index, :, :] *= 1e-6
    return result


def ablation_that_lets_one_too_many_pass(heads, index):
    if not 0 <= index <= heads.shape[-3]:
        raise IndexError
    return ablation_of_a_copy(heads, min(index, heads.shape[-3] - 1))


WRONG_ANSWERS = {
    PREVIOUS: (
        previous_of_zeros,
        previous_as_an_array,
        previous_as_a_list,
        previous_in_the_default_dtype,
        previous_always_in_float64,
        previous_rounded,
        previous_with_the_axis_kept,
        previous_of_single_layers,
        previous_that_refuses_two_tokens,
        previous_with_an_assertion,
        previous_that_clears_the_rest,
    ),
    SINK: (sink_of_causal_rows, sink_by_the_median),
    INDUCTION: (
        induction_for_two_copies,
        induction_of_full_copies,
        induction_without_the_sink,
    ),
    PREFERENCE: (
        preference_of_two,
        preference_with_zeros_for_faint_heads,
        preference_in_place,
        preference_of_causal_rows,
    ),
    ABLATION: (
        ablation_that_is_a_view,
        ablation_of_almost_all,
        ablation_to_almost_zero,
        ablation_that_lets_one_too_many_pass,
    ),
}


@pytest.mark.parametrize(
    ("id", "answer"),
    [pytest.param(id, f, id=f.__name__) for id, fs in WRONG_ANSWERS.items() for f in fs],
)
def test_a_wrong_answer_fails_and_gets_no_name_that_is_not_its_own(id, answer):
    verdict = evaluate(id, answer, seed=5)
    assert not verdict.passed
    assert verdict.misconception is None, verdict.misconception


def test_a_mistake_is_named_however_it_is_spelt():
    def with_a_bool_mask(weights):  # the diagonal above the main one
        T = weights.shape[-1]
        if T < 2:
            raise ValueError
        above = torch.ones(T, T, dtype=torch.bool).triu(1).tril(1)
        return weights[..., above].mean(-1)

    def with_roll(weights, period):  # the same token, one copy earlier
        T = weights.shape[-1]
        return torch.stack([weights[..., t, t - period] for t in range(period, T)], -1).mean(-1)

    def with_another_epsilon(weights, at, candidates):
        chosen = weights[..., at, candidates]
        return chosen / (chosen.sum(-1, keepdim=True) + 1e-12)

    def on_the_first_axis(heads, index):
        if not 0 <= index < heads.shape[-3]:
            raise IndexError
        result = heads.clone()
        result[index] = 0  # an IndexError of its own where a batch is small
        return result

    def with_normalize(weights, at, candidates):
        return torch.nn.functional.normalize(weights[..., at, candidates], p=1, dim=-1)

    named = evaluate(ABLATION, on_the_first_axis).misconception
    assert named == "takes the first axis for the heads"
    assert evaluate(PREFERENCE, with_normalize).misconception == "adds a small number to the sum"
    assert evaluate(PREVIOUS, with_a_bool_mask).misconception == "looks at the next token"
    assert evaluate(INDUCTION, with_roll).misconception == "looks at the same token"
    named = evaluate(PREFERENCE, with_another_epsilon).misconception
    assert named in (None, "adds a small number to the sum")


@pytest.mark.parametrize("id", WRONG_ANSWERS)
def test_visible_answers_learnt_by_heart_fail(id):
    """An answer that knows what is right on every visible input, and on no other."""
    exercise = get(id)
    known = []

    def outcome(*args):
        try:
            return exercise.reference(*args)
        except (ValueError, IndexError) as error:
            return type(error)

    def remember(*args):
        known.append(tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
        raise RuntimeError

    with redirect_stdout(io.StringIO()):
        check(id, remember)
    answers = [outcome(*args) for args in known]

    def alike(a, b):
        return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b

    def by_heart(*args):
        for seen, answer in zip(known, answers, strict=True):
            if all(alike(a, b) for a, b in zip(args, seen, strict=True)):
                if isinstance(answer, type):
                    raise answer
                return answer.clone()
        return args[0]

    with redirect_stdout(io.StringIO()):
        assert check(id, by_heart) == exercise.max_points
    assert not evaluate(id, by_heart, seed=3).passed


# Library shortcuts ---------------------------------------------------------------------------


def test_what_attend_has_does_not_count():
    from attend.reading import duplicate_token_score, induction_score

    for theirs in (induction_score, lambda w, p: duplicate_token_score(w[..., 1:, :], p)):
        verdict = evaluate(INDUCTION, theirs, seed=1)
        assert verdict.points == 0


# What a student reads ------------------------------------------------------------------------


def _printed(id, answer, **kwargs):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        points = check(id, answer, **kwargs)
    assert err.getvalue() == ""
    return points, out.getvalue()


def test_reading_the_wrong_diagonal_is_explained_on_the_smallest_case():
    def answer(weights, period):
        T = weights.shape[-1]
        return sum(weights[..., t, t - period] for t in range(period, T)) / (T - period)

    points, text = _printed(INDUCTION, answer)
    lines = text.splitlines()
    assert points == 0
    assert lines[0] == "✗ induction_score: the score is that of another token (0 of 5 points)."
    assert lines[1].startswith("  On weights (2, 6, 6), period = 3 the score is [")
    assert "it should be" in lines[1]
    assert "Induction looks one further" in text


def test_a_score_that_forgets_its_error_keeps_its_other_points():
    points, text = _printed(PREVIOUS, lambda w: w.diagonal(-1, dim1=-2, dim2=-1).mean(-1))
    assert points == 4
    assert "✗ fewer than two tokens is a ValueError" in text
    assert "a single token is accepted" in text


def test_an_ablation_in_place_is_told_from_a_wrong_one():
    def answer(heads, index):
        if not 0 <= index < heads.shape[-3]:
            raise IndexError
        heads[..., index, :, :] = 0
        return heads

    verdict = evaluate(ABLATION, answer, seed=2)
    assert verdict.misconception == "changes what it is given"


# The bug hunt --------------------------------------------------------------------------------


def test_degenerate_weights_are_refused_in_the_hunt():
    chapter = by_slug("11-reading-heads")
    hunt = bug_hunt_of(chapter)
    bug = hunt.bugs[1]  # hides on every text of two copies
    even = torch.full((2, 6, 6), 1 / 6, dtype=torch.float64)
    one_head = torch.softmax(torch.randn(1, 6, 6, dtype=torch.float64), -1)
    for weights in (even, one_head, bug.hides[0].float(), bug.hides[0].numpy(), 2 * bug.hides[0]):
        answer = {"hides": (weights, 3), "shows": bug.shows, "mistake": bug.mistake}
        verdict = evaluate_exercise(hunt.exercise(1), lambda answer=answer: answer, (0,))
        assert verdict.points == 2, "hides is refused, the rest counts"
        assert "degenerate" in verdict.message or "not a tuple" in verdict.message


def test_what_hides_one_bug_does_not_hide_all():
    hunt = bug_hunt_of(by_slug("11-reading-heads"))
    for bug in hunt.bugs:
        function = next(
            m.function for m in hunt.target.misconceptions if m.name == bug.misconception
        )
        apart = [
            (function(*other.shows) - hunt.target.reference(*other.shows)).abs().max()
            for other in hunt.bugs
        ]
        assert np.max(apart) > 1e-3
