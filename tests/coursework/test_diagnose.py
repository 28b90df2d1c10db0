"""A mistake is named where the evidence is good enough, and only there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coursework.answer import run_here
from coursework.diagnose import ENOUGH, Evidence, name_misconception
from coursework.exercise import Call, Exercise, Misconception, Property, calls


def double(x: Any) -> Any:
    return 2 * x


def square(x: Any) -> Any:
    return x**2


def add_two(x: Any) -> Any:
    return x + 2


def absolute(x: Any) -> Any:
    return 2 * np.abs(x)


def double_in_place(x: Any) -> Any:
    x *= 2
    return x.copy()


def fails_on_two(x: Any) -> Any:
    if np.size(x) == 2:
        raise ValueError("two is too many")
    return 3 * x


ORDINARY = tuple(np.array([n, n + 1.0, n + 2.5]) for n in (1, 3, 5, 7))
EDGES = tuple(np.array([-n, n, 1.0]) for n in (1.5, 3, 4, 5))


def exercise(*functions: Callable[..., Any], **changes: Any) -> Exercise:
    """Doubling, with these functions for misconceptions, named as they are."""
    declared = {
        "chapter": 0,
        "signature": "double(x)",
        "task": "",
        "reference": double,
        "properties": (Property("it doubles", 1, lambda rng: calls(*((x,) for x in ORDINARY))),),
        "misconceptions": tuple(Misconception(f.__name__, "No.", f) for f in functions),
        "hints": ("", "", ""),
        "minutes": 1,
    }
    return Exercise(**{**declared, **changes})


def named(
    answer: Callable[..., Any],
    exercise: Exercise,
    ordinary: Any = ORDINARY,
    edges: Any = (),
    at: int | None = None,
) -> str | None:
    asked = [(Call((x,)), False) for x in ordinary] + [(Call((x,)), True) for x in edges]
    evidence = [Evidence(c, run_here(answer, c), edge) for c, edge in asked]
    misconception = name_misconception(exercise, evidence, None if at is None else asked[at][0])
    return misconception and misconception.name


def test_an_answer_that_does_as_a_misconception_does_is_named() -> None:
    assert named(lambda x: x * x, exercise(square, add_two)) == "square"
    assert named(lambda x: 2.0 + x, exercise(square, add_two)) == "add_two"


def test_another_mistake_has_no_name() -> None:
    assert named(lambda x: 3 * x, exercise(square, add_two)) is None


def test_two_inputs_are_not_enough() -> None:
    assert ENOUGH == 3
    assert named(square, exercise(square, add_two), ORDINARY[:2]) is None
    assert named(square, exercise(square, add_two), ORDINARY[:3]) == "square"


def test_inputs_on_which_the_misconception_is_right_are_no_evidence() -> None:
    two = np.array([2.0])  # 2 · 2 = 2² = 2 + 2
    assert named(square, exercise(square), [two, two, two, *ORDINARY[:2]]) is None


def test_misconceptions_that_the_inputs_do_not_tell_apart_have_no_name() -> None:
    same_as_square = exercise(square, lambda x: x * x)
    assert named(square, same_as_square) is None
    nearly = exercise(square, lambda x: np.where(x > 7.2, 0, x**2))  # two inputs tell these apart
    assert named(square, nearly, ORDINARY) is None


def test_a_single_disagreement_takes_the_name_away() -> None:
    def nearly_square(x: Any) -> Any:
        return x**2 + (x[0] == 7)

    assert named(nearly_square, exercise(square, add_two)) is None


def test_a_mistake_is_recognised_whatever_the_answer_does_at_the_edge() -> None:
    def square_but_odd_at_the_edge(x: Any) -> Any:
        return x**2 if x[0] > 0 else np.nan * x

    assert named(square_but_odd_at_the_edge, exercise(square), edges=EDGES) == "square"


def test_a_mistake_that_shows_at_the_edge_only_is_named_from_there() -> None:
    assert (
        named(lambda x: 2 * np.sqrt(x * x), exercise(square, absolute), edges=EDGES) == "absolute"
    )
    assert named(absolute, exercise(square, absolute), edges=EDGES[:2]) is None

    def absolute_but_once(x: Any) -> Any:
        return 2 * np.abs(x) + (x[1] == 5)

    assert named(absolute_but_once, exercise(absolute), edges=EDGES) is None


def test_answers_that_fail_on_some_inputs_are_told_by_the_others() -> None:
    pairs = [np.array([1.0, n]) for n in (2, 3, 4)]

    def same_kind_of_error(x: Any) -> Any:
        if len(x) == 2:
            raise ValueError("other words")
        return 3 * x

    def other_kind_of_error(x: Any) -> Any:
        if len(x) == 2:
            raise TypeError("two is too many")
        return 3 * x

    one = exercise(fails_on_two, square)
    assert named(same_kind_of_error, one, [*pairs, *ORDINARY]) == "fails_on_two"
    assert named(other_kind_of_error, one, [*pairs, *ORDINARY]) is None
    # Where there are nothing but errors, they must be the very same.
    assert named(same_kind_of_error, one, pairs) is None
    assert named(fails_on_two, one, pairs) == "fails_on_two"


def test_side_effects_are_part_of_what_an_answer_does() -> None:
    one = exercise(double_in_place, square)

    def also_in_place(x: Any) -> Any:
        x += x
        return x

    assert named(also_in_place, one) == "double_in_place"
    assert named(double, one) is None


def test_the_name_must_explain_the_input_that_is_shown() -> None:
    two = np.array([2.0])
    one = exercise(square)
    assert named(square, one, [two, *ORDINARY], at=1) == "square"
    assert named(square, one, [two, *ORDINARY], at=0) is None


def test_one_mistake_may_have_several_spellings() -> None:
    mistake = Misconception("adds", "No.", add_two, also=(lambda x: x + 3, lambda x: x + 4))
    one = exercise(misconceptions=(mistake, Misconception("squares", "No.", square)))
    for step in (2, 3, 4):
        assert named(lambda x, step=step: x + step, one) == "adds"
    assert named(lambda x: x + 5, one) is None


def test_random_answers_are_told_by_what_is_recognised_in_them() -> None:
    def is_large(call: Call, value: Any) -> bool:
        return bool(np.all(value > 100))

    one = exercise(
        misconceptions=(
            Misconception("large", "No.", lambda x: x + 200, recognises=is_large),
            Misconception("squares", "No.", square),
        )
    )
    rng = np.random.default_rng(0)
    assert named(lambda x: 150 + rng.random(3), one) == "large"
    assert named(lambda x: 50 + rng.random(3), one) is None


def test_nan_is_recognised_in_nan() -> None:
    def not_a_number(x: Any) -> Any:
        return x * np.nan

    assert named(lambda x: np.full(3, np.nan), exercise(not_a_number, square)) == "not_a_number"


@pytest.mark.parametrize("value", [None, "text", (1, 2), {}, 1.0, np.zeros(7)])
def test_nonsense_has_no_name(value: Any) -> None:
    assert named(lambda x: value, exercise(square, add_two, absolute), edges=EDGES) is None
