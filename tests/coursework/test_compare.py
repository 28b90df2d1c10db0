"""Kind, then shape, then dtype, then values; nothing is broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coursework.compare import compare
from coursework.exercise import Call

CALL = Call((np.zeros(3),))  # float64 in: float64 tolerances
NARROW = Call((np.zeros(3, dtype=np.float32),))


def kind_of(expected: Any, value: Any, call: Call = CALL, **options: Any) -> str | None:
    difference = compare(call, expected, value, **options)
    return difference and difference.kind


def test_equal_values_have_no_difference() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for value in (x, 2.0, 3, True, "text", None, [1, 2], {"a": 1}, {1: x}):
        assert kind_of(value, value) is None


@pytest.mark.parametrize(
    "value", [[0.0, 0.0], (0.0, 0.0), 0.0, None, "0", {}, np.zeros(()), np.zeros((1, 2))]
)
def test_an_array_is_an_array_of_its_own_shape(value: Any) -> None:
    assert kind_of(np.zeros(2), value) in ("type", "shape")


@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (3, 3), (1,), (3, 3, 1), (0,), ()])
def test_nothing_is_broadcast(shape: tuple[int, ...]) -> None:
    assert kind_of(np.ones(3), np.ones(shape)) in ("shape", "type")


def test_kinds_and_shapes_of_all_parts_come_before_values() -> None:
    right = np.zeros((2, 3)), np.zeros((2, 5))
    wrong = np.ones((2, 3)), np.zeros((5, 2))
    difference = compare(CALL, right, wrong, names=("z", "weights"))
    assert difference is not None
    assert (difference.kind, difference.what) == ("shape", "weights has the wrong shape")


def test_the_part_that_tells_most_is_looked_at_first() -> None:
    right, wrong = (np.zeros(2), np.zeros(3)), (np.ones(2), np.ones(3))
    difference = compare(CALL, right, wrong, names=("z", "weights"), look_first="weights")
    assert difference is not None
    assert difference.what.startswith("weights")


def test_parts_that_do_not_count_may_be_anything() -> None:
    right, half = (np.zeros(2), np.zeros(3)), ("anything", np.zeros(3))
    assert kind_of(right, half, names=("z", "weights"), only=("weights",)) is None
    assert kind_of(right, half, names=("z", "weights"), only=("z",)) == "type"
    assert kind_of(right, half[1:], names=("z", "weights"), only=("weights",)) == "type"


def test_a_list_may_stand_for_a_tuple() -> None:
    right = np.zeros(2), np.ones(3)
    assert kind_of(right, list(right), names=("z", "weights")) is None
    assert kind_of((1, (2, 3)), [1, [2, 3]]) is None
    assert kind_of((1, 2), [1, 2, 3]) == "type"
    assert kind_of((1, 2), {0: 1, 1: 2}) == "type"


@pytest.mark.parametrize("value", [2, 2.0, np.array(2.0), np.array(2)])
def test_a_number_may_be_a_python_number_or_a_0d_array(value: Any) -> None:
    assert kind_of(2.0, value) is None


@pytest.mark.parametrize("value", [True, "2", [2.0], np.array([2.0]), None, 2 + 0j, float("nan")])
def test_other_things_are_no_numbers(value: Any) -> None:
    assert kind_of(2.0, value) is not None
    assert kind_of(1.0, True) == "dtype"


def test_integers_booleans_and_floats_are_told_apart() -> None:
    assert kind_of(np.zeros(2), np.zeros(2, dtype=int)) == "dtype"
    assert kind_of(np.zeros(2, dtype=int), np.zeros(2)) == "dtype"
    assert kind_of(np.zeros(2, dtype=bool), np.zeros(2, dtype=int)) == "dtype"
    assert kind_of(np.zeros(2, dtype=int), np.zeros(2, dtype=np.uint8)) is None
    assert kind_of(True, 1) == "dtype"
    assert kind_of(1, True) == "dtype"
    assert kind_of(3, 3.0) == "dtype"


def test_the_width_of_floats_counts_only_where_it_is_graded() -> None:
    x = np.array([0.25, 0.75])
    assert kind_of(x, x.astype(np.float32)) is None
    assert kind_of(x, x.astype(np.float32), keeps_dtype=True) == "dtype"


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**64, 2**63])
def test_integers_may_be_larger_than_any_dtype(number: int) -> None:
    assert kind_of(number, number) is None
    assert kind_of(number, number + 1) == "value"
    assert kind_of(3, number) == "value"
    assert kind_of(3.0, number) == "value"
    assert kind_of(np.zeros(2), number) == "type"


def test_tolerances_come_from_the_narrowest_floats_of_the_input() -> None:
    x = np.array([1.0, 1000.0])
    assert kind_of(x, x * (1 + 5e-10)) is None
    assert kind_of(x, x * (1 + 1e-8)) == "value"
    assert kind_of(x, x * (1 + 5e-5), NARROW) is None
    assert kind_of(x, x * (1 + 5e-3), NARROW) == "value"
    assert kind_of(x, x + np.array([9e-3, 0]), NARROW) is None  # 1e-5 of the largest, 1000
    assert kind_of(x / 1000, x / 1000 + np.array([9e-3, 0]), NARROW) == "value"
    mixed = Call((np.zeros(2), np.zeros(2, dtype=np.float32)))
    assert kind_of(x, x * (1 + 5e-5), mixed) is None
    assert kind_of(x, x * (1 + 5e-5), Call((np.zeros(2, dtype=int),))) == "value"


def test_every_value_counts() -> None:
    right = np.zeros((7, 11, 13))
    for at in ((0, 0, 0), (6, 10, 12), (3, 5, 2)):
        wrong = right.copy()
        wrong[at] = 1e-6
        assert kind_of(right, wrong) == "value"


def test_nan_and_infinity_are_not_near_anything_else() -> None:
    right = np.array([1.0, 2.0])
    for odd in (np.nan, np.inf, -np.inf):
        assert kind_of(right, np.array([1.0, odd])) == "value"
    assert kind_of(np.array([np.inf]), np.array([np.inf])) is None
    assert kind_of(np.array([np.inf]), np.array([1e300])) == "value"
    assert kind_of(np.array([np.nan]), np.array([np.nan])) == "value"
    assert kind_of(np.array([np.nan]), np.array([np.nan]), only_whether=True) is None


def test_plain_values_are_compared_all_the_way_down() -> None:
    assert kind_of({(1, 2): 3}, {(1, 2): 3}) is None
    assert kind_of({(1, 2): 3}, {(1, 2): 4}) == "value"
    assert kind_of({(1, 2): 3}, {(2, 1): 3}) == "value"
    assert kind_of([1, [2, "a"]], [1, [2, "b"]]) == "value"
    assert kind_of([1, 2], [1, True]) == "value"
    assert kind_of([1.0, 2.0], [1.0, 2.0 + 1e-12]) is None
    assert kind_of([np.zeros(2), np.ones(2)], [np.zeros(2), np.zeros(2)]) == "value"
    assert kind_of([np.zeros(2)], [np.zeros((1, 2))]) == "value"
    assert kind_of("text", b"text") == "type"
    assert kind_of(None, 0) == "type"


def detail(expected: Any, value: Any) -> str:
    difference = compare(CALL, expected, value)
    assert difference is not None
    return difference.detail


def test_the_first_row_that_differs_is_shown() -> None:
    right = np.arange(24.0).reshape(2, 3, 4)
    wrong = right.copy()
    wrong[1, 2, 0] = -1
    assert detail(right, wrong) == "result[1, 2] is [-1 21 22 23]; it should be [20 21 22 23]."


def test_as_many_digits_are_shown_as_it_takes() -> None:
    assert detail(np.array([1.0]), np.array([1.1])) == "result is [1.1]; it should be [1]."
    assert "[1.0000001]" in detail(np.array([1.0]), np.array([1.0000001]))
    assert "[1.00000002]" in detail(np.array([1.0]), np.array([1 + 2e-8]))


def test_what_is_wrong_is_said_without_numbers() -> None:
    for right, wrong in (
        (np.array([0.123]), np.array([0.456])),
        (0.123, 0.456),
        (np.array([0.123]), 0.456),
        ([0.123], [0.456]),
    ):
        difference = compare(CALL, right, wrong)
        assert difference is not None
        assert "0." not in difference.what


def test_a_result_that_float32_spoilt_is_said_to_be_one() -> None:
    right = np.array([[0.36427146, 0.92953647], [1.0, 1 / 3]])
    narrow = right.astype(np.float32)
    for wrong, words in ((narrow, "computed in float32"), (narrow.astype(float), "rounded, or")):
        difference = compare(CALL, right, wrong)
        assert difference is not None
        assert difference.what == "result is right to about 7 digits only"
        assert words in difference.detail
        assert "Compute in the input's precision" in difference.detail
    assert compare(NARROW, right, narrow) is None


@pytest.mark.parametrize("call", [CALL, NARROW])
def test_a_wrong_float32_result_is_merely_wrong(call: Call) -> None:
    difference = compare(call, np.ones(3), np.array([1, 1, 1.01], dtype=np.float32))
    assert difference is not None
    assert "digits" not in difference.what + difference.detail


def detail_of(expected: Any, value: Any) -> str:
    difference = compare(CALL, expected, value)
    assert difference is not None
    return difference.detail


def test_lists_of_different_lengths_are_shown_beside_each_other() -> None:
    detail = detail_of([(1, 2), (3, 4)], [(1, 2)])
    assert detail == "result is [(1, 2)]; it should be [(1, 2), (3, 4)], a list of 2."
    assert detail_of([np.zeros(2)], []) == "it should be a list of 1."
    assert len(detail_of(list(range(1000)), [])) < 100


def test_a_long_list_is_shown_up_to_where_it_differs() -> None:
    right, wrong = list(range(100)), list(range(100))
    wrong[12] = -1
    assert "10, 11, 12, 13, 14, …]." in detail_of(right, wrong)
    assert "10, 11, -1, 13, 14, …];" in detail_of(right, wrong)
    wrong[12], wrong[99] = 12, -1
    assert len(detail_of(right, wrong)) < 400
