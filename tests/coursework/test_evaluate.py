"""Any object is judged, and said about in words; nothing but a wrong id raises."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from coursework import check, evaluate, exercises
from coursework.answer import LocalAnswer
from coursework.compare import Difference
from coursework.evaluate import Verdict, evaluate_exercise
from coursework.exercise import Call, Callback, Exercise, Misconception, Property, Seed, calls

SOFTMAX = "03.softmax"


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def double(x: Any) -> Any:
    if np.any(x < 0):
        raise ValueError("x must not be negative")
    return 2 * x


def small(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls((rng.random((7, 5)),), (rng.random(3),), (rng.random(11),))


def negative(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls((-rng.random(3) - 1,), (-rng.random((2, 5)) - 1,), (-rng.random(7) - 1,))


DOUBLE = Exercise(
    chapter=4,
    signature="double(x)",
    task="",
    reference=double,
    properties=(Property("it doubles", 2, small), Property("it says no", 1, negative, edge=True)),
    misconceptions=(
        Misconception("squares", "Multiply by two.", lambda x: x**2, symptom="you square"),
    ),
    hints=("", "", ""),
    minutes=1,
)


def judged(answer: Any, exercise: Exercise = DOUBLE, seeds: tuple[int, ...] = (0, 1)) -> Verdict:
    return evaluate_exercise(exercise, answer, seeds)


def with_properties(*properties: Property, **changes: Any) -> Exercise:
    return replace(DOUBLE, properties=properties, **changes)


# Points and words ----------------------------------------------------------------------------


def test_a_right_answer_has_all_points_and_no_complaint() -> None:
    verdict = judged(_own_double)
    assert verdict.passed
    assert (verdict.points, verdict.max_points) == (3.0, 3.0)
    assert verdict.message.startswith("✓ double: right (3 of 3 points).")
    assert all(type(p) is float for p in (verdict.points, verdict.max_points))


def _own_double(x: Any) -> Any:
    if np.any(x < 0):
        raise ValueError
    return x + x


def test_calling_the_reference_is_no_answer() -> None:
    verdict = judged(lambda x: x + x if np.all(x >= 0) else double(x))
    assert verdict.points == 0
    assert "Write yours" in verdict.message


def test_each_property_earns_its_own_points() -> None:
    verdict = judged(lambda x: x + x)
    assert verdict.points == 2
    assert [r.points for r in verdict.results] == [2, 0]
    assert "✓ it doubles" in verdict.message
    assert "✗ it says no" in verdict.message
    assert "accepts an input that calls for a ValueError" in verdict.message


def test_an_error_of_the_right_type_is_right_whatever_it_says() -> None:
    class Own(ValueError):
        pass

    def answer(error: type[Exception]) -> Callable[[Any], Any]:
        def double(x: Any) -> Any:
            if np.any(x < 0):
                raise error("any words")
            return x + x

        return double

    assert judged(answer(ValueError)).passed
    assert judged(answer(Own)).passed
    wrong = judged(answer(IndexError))
    assert wrong.points == 2
    assert "it raised IndexError" in wrong.message
    assert "It should raise ValueError" in wrong.message


def test_the_smallest_input_that_shows_the_mistake_is_shown() -> None:
    verdict = judged(lambda x: 3 * x)
    assert "On x = [" in verdict.message  # the one of three numbers, and not the first one asked
    assert "(7, 5)" not in verdict.message


def test_a_named_mistake_is_explained_after_the_case_that_shows_it() -> None:
    verdict = judged(lambda x: x * x)
    assert verdict.misconception == "squares"
    lines = verdict.message.splitlines()
    assert lines[0] == "✗ double: you square (0 of 3 points)."
    assert lines[1].startswith("  On x = [")
    assert lines[2] == "  Multiply by two."
    assert lines[-1] == "  A hint: course check 04-scaling --hint double"


def test_what_is_right_counts_though_what_is_made_from_it_is_wrong() -> None:
    def reference(x: Any) -> Any:
        return 2 * x, 3 * x

    parts = with_properties(
        Property("twice", 2, small, outputs=("twice",)),
        Property("thrice", 1, small, outputs=("thrice",)),
        reference=reference,
        returns=("twice", "thrice"),
    )
    assert judged(lambda x: (x + x, x), parts).points == 2
    assert judged(lambda x: ("?", x + 2 * x), parts).points == 1
    assert judged(lambda x: (x + x,), parts).points == 0


def test_a_check_of_its_own_may_give_a_sentence_or_a_difference() -> None:
    def own(call: Call, value: Any) -> Any:
        if value is None:
            return "it returns nothing"
        return None if value == 1 else Difference("value", "it is not 1", f"it is {value}.")

    one = with_properties(Property("it is 1", 1, small, compare=own), misconceptions=())
    assert judged(lambda x: 1, one).passed
    assert "double: it returns nothing (0 of 1" in judged(lambda x: None, one).message
    verdict = judged(lambda x: 0.125, one)
    assert "it is 0.125" in verdict.message
    assert "it is 0.125" not in verdict.feedback


def test_what_must_hold_of_all_values_together_is_looked_at_last() -> None:
    def all_different(asked: Any, values: Any) -> str | None:
        return "two are the same" if len(set(map(float, values))) < len(values) else None

    one = with_properties(
        Property("different", 1, small, compare=lambda c, v: None, together=all_different)
    )
    numbers = iter(range(100))
    assert judged(lambda x: next(numbers), one).passed
    assert "two are the same" in judged(lambda x: 1, one).message


# What may be handed in -----------------------------------------------------------------------


class Doubler:
    def __call__(self, x: Any) -> Any:
        return _own_double(x)

    def method(self, x: Any) -> Any:
        return _own_double(x)


def test_anything_that_can_be_called_is_an_answer() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    if (x < 0).any(): raise ValueError\n    return x + x", namespace)
    for answer in (
        namespace["f"],
        Doubler(),
        Doubler().method,
        partial(_own_double),
        lambda x: _own_double(x),
    ):
        assert judged(answer).passed


@pytest.mark.parametrize("answer", [None, 3, "double", [], np.zeros(3), Doubler.__dict__])
def test_what_cannot_be_called_is_said_to_be_what_it_is(answer: Any) -> None:
    verdict = judged(answer)
    assert verdict.points == 0
    assert "there is no function, but" in verdict.message


def test_an_untouched_stub_is_still_to_do() -> None:
    def stub(x: Any) -> Any:
        raise NotImplementedError()

    assert judged(stub).message == "· double: still to do (0 of 3 points)."


def test_an_answer_that_is_done_in_part_keeps_its_points() -> None:
    def half(x: Any) -> Any:
        if np.any(x < 0):
            raise NotImplementedError
        return x + x

    verdict = judged(half)
    assert verdict.points == 2
    assert "NotImplementedError" in verdict.message


def test_arguments_are_copies_and_changing_them_is_a_fault() -> None:
    def in_place(x: Any) -> Any:
        if np.any(x < 0):
            raise ValueError
        x += x
        return x

    verdict = judged(in_place)
    assert "it changes its input x: work on a copy" in verdict.message
    assert judged(_own_double).passed


def test_a_generator_crosses_as_its_seed() -> None:
    def reference(rng: Any) -> Any:
        return rng.standard_normal(3)

    def seeds(rng: np.random.Generator) -> tuple[Call, ...]:
        return calls(*((Seed(n),) for n in (1, 2, 3)))

    one = with_properties(Property("draws", 1, seeds), reference=reference, misconceptions=())
    assert judged(lambda rng: rng.normal(size=3), one).passed
    verdict = judged(lambda rng: np.zeros(3), one)
    assert "default_rng(1)" in verdict.message


def test_a_function_among_the_arguments_is_answered_here_and_hands_over_copies() -> None:
    kept = np.arange(3.0)
    asked: list[Any] = []

    def count(x: Any) -> Any:
        asked.append(x)
        return kept

    def reference(f: Any, x: Any) -> Any:
        return f(x)

    def with_callback(rng: np.random.Generator) -> tuple[Call, ...]:
        return calls(*((Callback(count, "a counter"), rng.random(n)) for n in (3, 4, 5)))

    one = with_properties(
        Property("asks", 1, with_callback),
        reference=reference,
        signature="ask(f, x)",
        misconceptions=(),
    )
    assert judged(lambda f, x: f(x), one).passed

    def spoils(f: Any, x: Any) -> Any:
        result = f(x)
        result += 1
        return result

    verdict = judged(spoils, one)
    assert "f = a counter" in verdict.message
    np.testing.assert_array_equal(kept, [0, 1, 2])
    assert all(type(x) is np.ndarray for x in asked)


# Answers that behave badly -------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("coursework.evaluate")
    monkeypatch.setattr(module, "LocalAnswer", partial(LocalAnswer, deadline=0.5))


def test_an_endless_loop_is_left_behind_and_ended(impatient: None) -> None:
    running = threading.active_count()

    def endless(x: Any) -> Any:
        while True:
            pass

    started = time.monotonic()
    verdict = judged(endless)
    assert "it took too long" in verdict.message
    assert verdict.misconception is None
    assert time.monotonic() - started < 30
    assert threading.active_count() == running


@pytest.mark.slow
def test_a_loop_that_swallows_everything_is_left_behind(impatient: None) -> None:
    stop = threading.Event()

    def stubborn(x: Any) -> Any:
        while not stop.is_set():
            with contextlib.suppress(BaseException):
                time.sleep(0.01)

    try:
        assert "it took too long" in judged(stubborn).message
        assert judged(_own_double).passed
    finally:
        stop.set()


def test_one_slow_answer_spends_the_time_of_all_its_calls(impatient: None) -> None:
    asked = []

    def slow(x: Any) -> Any:
        asked.append(x)
        started = time.thread_time()
        while time.thread_time() < started + 0.3:
            pass
        return x + x

    assert "it took too long" in judged(slow).message
    assert len(asked) == 2


@pytest.mark.slow
def test_an_answer_that_only_waits_is_waited_for_as_on_a_busy_machine(impatient: None) -> None:
    asked = []

    def waiting(x: Any) -> Any:
        asked.append(x)
        time.sleep(1)
        return x + x

    assert "it took too long" in judged(waiting).message
    assert 2 <= len(asked) <= 3  # five times half a second


class Nameless(BaseException):
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, Nameless])
def test_no_exception_gets_out(error: type[BaseException]) -> None:
    def raises(x: Any) -> Any:
        raise error

    verdict = judged(raises)
    assert verdict.points == 0
    assert "it raised" in verdict.message


def test_an_error_shows_its_words_and_the_students_line() -> None:
    def typo(x: Any) -> Any:
        return x.doubled()

    message = judged(typo).message
    assert "AttributeError: 'numpy.ndarray' object has no attribute 'doubled'." in message
    assert "In your line: return x.doubled()" in message


def test_of_a_very_long_line_the_beginning_is_quoted() -> None:
    answer = lambda x: x.no_such_name + 1000 + 1000 + 1000 + 1000 + 1000 + 1000 + 1000 + 100000  # noqa: E731
    quoted = judged(answer).message.partition("In your line: ")[2].splitlines()[0]
    assert quoted.startswith("answer = lambda x: x.no_such_name")
    assert len(quoted) == 100
    assert quoted.endswith("…")


def test_the_input_and_what_should_come_make_one_sentence() -> None:
    message = judged(lambda x: None).message
    assert re.search(r"On x = \[.*\] it should be an array of shape \(3,\)\.", message)


def test_warnings_and_stderr_go_nowhere_and_prints_stay() -> None:
    def noisy(x: Any, axis: int = -1) -> Any:
        warnings.warn("careful", stacklevel=1)
        print("progress", file=sys.stderr)
        print("a print")
        np.log(np.zeros(1))
        return softmax(x, axis)

    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        assert check(SOFTMAX, noisy) == 5.0
    assert err.getvalue() == ""
    assert "a print" in out.getvalue()


def test_mistakes_that_overflow_warn_nobody() -> None:
    err = io.StringIO()
    with contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict = evaluate(
            SOFTMAX, lambda x, axis=-1: np.exp(x) / np.exp(x).sum(axis, keepdims=True)
        )
    assert verdict.misconception == "overflows"
    assert err.getvalue() == ""


# Feedback ------------------------------------------------------------------------------------


def test_feedback_holds_neither_inputs_nor_right_values_nor_the_students_words() -> None:
    def gossip(x: Any) -> Any:
        raise ValueError(f"the input was {x[0]}")

    def called_after_its_input(x: Any) -> Any:
        raise type(f"input_{np.round(np.ravel(x)[0], 4)}", (Exception,), {})

    def returns_its_input_as_a_name(x: Any) -> Any:
        return type(f"input_{np.round(np.ravel(x)[0], 4)}", (), {})()

    for answer in (gossip, called_after_its_input, returns_its_input_as_a_name, lambda x: 3 * x):
        verdict = judged(answer)
        assert "0." not in verdict.feedback
        assert "✗ it doubles" in verdict.feedback
    assert "it raised Exception" in judged(called_after_its_input).feedback


def test_a_graded_check_prints_feedback_and_a_visible_one_the_whole_message() -> None:
    def printed(**options: Any) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            check(SOFTMAX, lambda x, axis=-1: x, **options)
        return out.getvalue()

    assert "it should be [" in printed()
    assert "it should be [" not in printed(graded=True)


# Ids and seeds -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "near"),
    [
        ("04.scaled_dot_product", "04.scaled_dot_product_attention"),
        ("4.softmax_jacobian", "04.softmax_jacobian"),
        ("03.Softmax", "03.softmax"),
        ("nothing like it", "there are 0"),
        ("", "there are 0"),
        (None, "there are 0"),
        (["03.softmax"], "03.softmax"),
        (3, "there are 0"),
    ],
)
def test_an_unknown_id_is_a_value_error_that_names_near_ones(id: Any, near: str) -> None:
    for ask in (evaluate, check):
        with pytest.raises(ValueError, match="there is no exercise") as caught:
            ask(id, softmax)
        assert near in str(caught.value)


def test_exercises_lists_the_ids() -> None:
    ids = exercises()
    assert SOFTMAX in ids
    assert "04.bug_hunt" in ids
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids, key=lambda id: id[:2])


def test_the_same_seed_asks_the_same_and_another_asks_something_else() -> None:
    def asked(seed: int | None) -> list[Any]:
        seen: list[Any] = []

        def remember(x: Any, axis: int = -1) -> Any:
            seen.append(x)
            return softmax(x, axis)

        evaluate(SOFTMAX, remember, seed=seed)
        return seen

    def same(a: list[Any], b: list[Any]) -> bool:
        return len(a) == len(b) and all(map(np.array_equal, a, b))

    assert same(asked(7), asked(7))
    assert not same(asked(7), asked(8))
    assert not same(asked(None), asked(None))
    for odd in (-1, 0, 2**70):
        assert evaluate(SOFTMAX, softmax, seed=odd).passed


def test_a_bug_hunt_that_is_not_there_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="variant 99"):
        check("04.bug_hunt", dict, variant=99)
