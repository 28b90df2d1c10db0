"""What holds for every exercise: no wrong answer passes, no right one is refused, no name is wrong.

Runs over all declarations; a new exercise is tested by being declared and by having right answers
in `right_answers/<topic>.py`.
"""

from __future__ import annotations

import inspect
import random
import re
from functools import partial

import numpy as np
import pytest

from coursework import evaluate
from coursework.answer import run_here
from coursework.diagnose import Outcome, same_outcome
from coursework.known import inputs, outcome

from .declared import (
    RIGHT,
    every_exercise,
    every_misconception,
    every_misconception_by_seed,
    every_right_answer,
    some_seeds,
    verdict_on,
)

# Declarations --------------------------------------------------------------------------------


@every_exercise
def test_a_declaration_says_all_that_a_student_must_know(exercise):
    assert all(p.points >= 1 for p in exercise.properties)
    assert len({p.name for p in exercise.properties}) == len(exercise.properties)
    assert len({m.name for m in exercise.misconceptions}) == len(exercise.misconceptions)
    assert len(exercise.hints) == 3
    assert all(hint.strip() for hint in exercise.hints)
    assert 5 <= exercise.minutes <= 30
    for parameter in exercise.parameters:
        assert f"`{parameter}`" in exercise.task, f"the task does not speak of {parameter}"
    for m in exercise.misconceptions:
        assert m.symptom, m.name
        assert m.sentence.endswith("."), m.sentence


@every_exercise
def test_every_property_is_asked_of_inputs_of_several_sizes(exercise):
    for prop in exercise.properties:
        calls = prop.calls(np.random.default_rng(0))
        sizes = {tuple(map(_size_of, call.args)) for call in calls}
        assert len(calls) >= 3, f"{prop.name!r} has {len(calls)} inputs"
        assert len(sizes) >= 2, f"{prop.name!r} has inputs of one size only"


def _size_of(argument):
    if isinstance(argument, tuple):
        return tuple(map(_size_of, argument))
    return np.shape(argument) or repr(argument)


@every_misconception
def test_a_misconception_stands_alone(exercise, misconception):
    source = inspect.getsource(misconception.function)
    assert "attend" not in source.replace("attention", "")


# Truth ---------------------------------------------------------------------------------------


@every_misconception_by_seed
def test_a_misconception_is_rejected_and_named(exercise, misconception, seed):
    for function in (misconception.function, *misconception.also):
        verdict = verdict_on(exercise.id, function, seed)
        assert not verdict.passed
        assert verdict.points < verdict.max_points
        assert verdict.misconception == misconception.name, verdict.message
        assert misconception.sentence in verdict.message
        assert misconception.symptom in verdict.message


@some_seeds
@every_right_answer
def test_a_right_answer_passes(id, answer, seed):
    verdict = evaluate(id, answer, seed=seed)
    assert verdict.passed, verdict.message
    assert verdict.points == verdict.max_points
    assert verdict.misconception is None


@every_exercise
def test_there_are_three_styles_of_a_right_answer(exercise):
    assert len(RIGHT[exercise.id]) >= 3


@every_exercise
def test_the_reference_is_not_an_answer_and_neither_is_a_wrapper_around_it(exercise):
    for answer in (
        exercise.reference,
        lambda *args, **kwargs: exercise.reference(*args, **kwargs),
        partial(exercise.reference),
    ):
        verdict = evaluate(exercise.id, answer, seed=1)
        assert verdict.points == 0
        assert "Write yours" in verdict.message


@every_exercise
def test_an_untouched_stub_scores_nothing_and_is_still_to_do(exercise):
    def stub(*args, **kwargs):
        raise NotImplementedError

    verdict = evaluate(exercise.id, stub, seed=1)
    assert verdict.points == 0
    assert "still to do" in verdict.message


@pytest.mark.slow
@every_exercise
def test_two_mistakes_at_once_are_never_called_by_the_name_of_a_third(exercise):
    rng = random.Random(exercise.id)
    right = RIGHT[exercise.id][0]
    several = len(exercise.misconceptions) > 1
    pairs = [rng.sample(exercise.misconceptions, 2) for _ in range(3 * several)]
    for a, b in pairs:
        for mix in (_by_turns, _part_by_part, _halfway, _one_on_top(right)):
            verdict = evaluate(exercise.id, mix(a.function, b.function), seed=rng.randrange(3))
            if verdict.misconception not in {None, a.name, b.name}:
                third = next(m for m in exercise.misconceptions if m.name == verdict.misconception)
                said = (mix.__name__, a.name, b.name, third.name)
                assert _is_just(exercise, third, mix(a.function, b.function)), said


def _is_just(exercise, third, mix):
    """Whether two mistakes add up to a third one: it does on all inputs what the mix does."""
    calls = [call for p in exercise.properties for call in inputs(p.calls, 7)]
    with np.errstate(all="ignore"):
        return all(
            same_outcome(
                exercise,
                Outcome(call, run_here(mix, call)),
                Outcome(call, outcome(third.function, call)),
            )
            for call in calls
        )


def _by_turns(a, b):
    """Each call makes the one mistake or the other."""
    turn = iter(range(10**6))
    return lambda *args, **kw: (a, b)[next(turn) % 2](*args, **kw)


def _part_by_part(a, b):
    """The first output with one mistake, the others with the other."""

    def answer(*args, **kw):
        one, other = a(*args, **kw), b(*args, **kw)
        return (one[0], *other[1:]) if isinstance(one, tuple) else one

    return answer


def _halfway(a, b):
    """The mean of both."""

    def answer(*args, **kw):
        one, other = a(*args, **kw), b(*args, **kw)
        if isinstance(one, tuple):
            return tuple((x + y) / 2 for x, y in zip(one, other, strict=True))
        return (one + other) / 2

    return answer


def _one_on_top(right):
    """What both mistakes change, added up."""

    def mix(a, b):
        def answer(*args, **kw):
            values = [f(*args, **kw) for f in (a, b, right)]
            if isinstance(values[0], tuple):
                return tuple(x + y - r for x, y, r in zip(*values, strict=True))
            return values[0] + values[1] - values[2]

        return answer

    return mix


# What feedback may say -----------------------------------------------------------------------


@every_misconception
def test_feedback_holds_no_graded_numbers(exercise, misconception):
    verdict = verdict_on(exercise.id, misconception.function, 1)
    for result in verdict.results:
        if result.failure and result.failure.detail:
            assert result.failure.detail not in verdict.feedback
    without_points = verdict.feedback.replace(misconception.sentence, "")
    assert not re.search(r"\d\.\d\d", without_points.replace(misconception.symptom, ""))
