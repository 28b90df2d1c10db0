"""Only plain values pass, and nothing of a hostile one is ever run."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch

from coursework import plain


def refused(value: object) -> str:
    with pytest.raises(plain.NotPlain) as caught:
        plain.take(value)
    return str(caught.value)


class Touched(Exception):
    """Something of a hostile value was run."""


def touch(*args: object, **kwargs: object) -> object:
    raise Touched


class Untouchable:
    """Raises at every question."""

    __eq__ = __ne__ = __lt__ = __len__ = __iter__ = __getattr__ = __repr__ = __str__ = touch
    __hash__ = __bool__ = __float__ = __int__ = __array__ = __reduce__ = __reduce_ex__ = touch
    __deepcopy__ = __copy__ = __getstate__ = __class_getitem__ = __format__ = touch


class EqualToEverything(type):
    """A metaclass whose classes are equal to, and instances of, everything."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(float)

    def __instancecheck__(cls, instance: object) -> bool:
        return True

    def __getattribute__(cls, name: str) -> object:
        raise Touched(name)


class Posing(metaclass=EqualToEverything):
    __qualname__ = "float"
    __module__ = "builtins"


class FloatThatAgrees(float):
    __eq__ = __float__ = __repr__ = touch  # type: ignore[assignment]
    __hash__ = float.__hash__


class ArrayThatAgrees(np.ndarray):
    __eq__ = __array_ufunc__ = __array_function__ = __len__ = __getitem__ = touch  # type: ignore[assignment]


class ListThatCounts(list):
    __iter__ = __len__ = __getitem__ = touch  # type: ignore[assignment]


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -3, 2.5, 1j, "text", b"bytes", float("inf"), [], (), {},
        [1, [2.0, ("three", None)]], {"a": [1], 2: {3.0: True}}, {(1, 2): 3},
    ],
    ids=repr,
)  # fmt: skip
def test_plain_values_come_back_as_they_are(value: object) -> None:
    taken = plain.take(value)
    assert taken == value
    assert type(taken) is type(value)


def test_arrays_come_back_as_copies() -> None:
    x = np.arange(6.0).reshape(2, 3)
    taken = plain.take((x, x.T))
    x[:] = 0
    np.testing.assert_array_equal(taken[0], [[0, 1, 2], [3, 4, 5]])
    assert all(type(part) is np.ndarray and part.flags.c_contiguous for part in taken)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(np.float32(0.5), float), (np.float64(2), float), (np.int8(3), int), (np.bool_(True), bool)],
)
def test_numpy_scalars_become_numbers(value: object, kind: type) -> None:
    assert type(plain.take(value)) is kind


def test_every_kind_of_dictionary_becomes_a_dict() -> None:
    for value in (Counter("aab"), OrderedDict(a=2, b=1), defaultdict(int, {"a": 2, "b": 1})):
        taken = plain.take(value)
        assert type(taken) is dict
        assert taken == {"a": 2, "b": 1}


def test_named_tuples_are_tuples_and_subclasses_of_list_are_lists() -> None:
    pair = namedtuple("pair", "z weights")(1, 2)
    assert plain.take(pair) == (1, 2)
    assert type(plain.take(pair)) is tuple
    assert plain.take(ListThatCounts([1, 2])) == [1, 2]


#: Made when they are needed: pytest, too, would touch them.
HOSTILE = {
    "an object": Untouchable,
    "in a list": lambda: [Untouchable()],
    "in a dict": lambda: {"a": (Untouchable(),)},
    "a class": lambda: Posing,
    "a float": lambda: FloatThatAgrees(1.0),
    "an array": lambda: np.zeros(3).view(ArrayThatAgrees),
    "an array of objects": lambda: np.array([print], dtype=object),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_are_refused_and_never_run(name: str) -> None:
    assert refused(HOSTILE[name]())


def test_an_instance_of_a_hostile_class_is_refused_by_its_type_alone() -> None:
    sentences = [refused(object.__new__(Posing)), refused({"a": object.__new__(Posing)})]
    assert sentences == ["a Posing", "a Posing"]


def test_keys_of_dictionaries_are_plain_and_hostile_ones_are_not_compared() -> None:
    class Key:
        def __hash__(self) -> int:
            return hash("a")

        def __eq__(self, other: object) -> bool:
            return True

    assert refused({Key(): 1}) == "a dictionary with a tests.Key among its keys"
    assert refused({frozenset(): 1})
    deep: object = 1
    for _ in range(50):
        deep = (deep,)
    assert "deep" in refused({deep: 1})


def test_a_value_may_not_be_endless() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    own: list[object] = []
    own.append(own)
    wide = [0] * 1000
    for _ in range(5):
        wide = [wide] * 1000
    for value in (deep, own, wide, [0] * 2_000_000, "a" * 2_000_000, np.zeros(2_000_000)):
        assert "more than" in refused(value)
    assert "more than" in refused(np.broadcast_to(0.0, (10**5, 10**5, 10**5)))


def test_integers_may_be_large_but_not_huge() -> None:
    assert plain.take(10**1000) == 10**1000
    assert "digits" in refused(1 << 100_000)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array(["a"]), "an array of dtype <U1"),
        (np.array([1, None]), "an array of dtype object"),
        (np.zeros(1, dtype=[("a", float)]), "an array of dtype [('a', '<f8')]"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "an array of dtype datetime64[D]"),
        (object(), "an object"),
        ({1, 2}, "a set"),
        ((i for i in ()), "a generator"),
        (print, "a builtin_function_or_method"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_refused_is_named(value: object, words: str) -> None:
    assert refused(value) == words


def test_a_tensor_is_copied_and_one_of_a_class_of_its_own_is_refused() -> None:
    tensor = torch.ones(2, requires_grad=True)
    for given in (tensor, torch.nn.Parameter(tensor), tensor * 1):
        taken = plain.take((given,))[0]
        assert type(taken) is torch.Tensor
        assert not taken.requires_grad
        assert torch.equal(taken, torch.ones(2))
        assert taken.data_ptr() != given.data_ptr()

    class Own(torch.Tensor):
        __eq__ = touch

    assert refused(torch.ones(2).as_subclass(Own)) == "a tests.Own"
    assert refused(torch.ones(2).to_sparse()) == plain.UNUSUAL_TENSOR
    assert refused(torch.ones(2_000, 1_000)).startswith("a value of more than")


def test_the_name_of_a_class_cannot_carry_numbers_out() -> None:
    for name in ("x0_4321", "[0.1234 0.5678]", "é", "a" * 100):
        assert "unusual" in refused(type(name, (), {})())


def test_descriptions_hold_shapes_and_no_numbers() -> None:
    assert plain.describe(np.full((2, 3), 0.1234)) == "an array of shape (2, 3)"
    assert plain.describe([0.1234, 2]) == "a list of 2"
    assert plain.describe(0.1234) == "a number"
    assert plain.describe(None) == "None"
    assert plain.describe("0.1234") == "a str"


def test_large_floats_that_differ_are_not_printed_alike() -> None:
    assert plain.short(np.array([10000.05, 10001.86, -9999.97])) == "[10000.05 10001.86 -9999.97]"
    assert plain.short(np.array([1.5e30, np.inf, np.nan])) == "[1.5e+30 inf nan]"


def test_values_are_printed_short() -> None:
    assert plain.short(np.array([0.123456, 2.0])) == "[0.1235 2]"
    assert plain.short(np.array([0.123456, 2.0]), digits=8) == "[0.123456 2]"
    assert plain.short([1, (2,)]) == "[1, (2,)]"
    assert plain.short(list(range(100))) == "[0, 1, 2, 3, 4, 5, 6, 7, …]"
    assert len(plain.short(np.zeros(10_000))) < 80
    assert len(plain.short("a" * 1000)) <= 80
    assert len(plain.short(10**2000)) <= 80


def test_sizes_count_what_lists_hold() -> None:
    assert plain.size(np.zeros((2, 3))) == 6
    assert plain.size([1, [2, 3], {"a": (4, 5)}]) == 5
    assert plain.size([[1], [1, 2]]) == 3  # ragged
    assert plain.size("text") == plain.size(None) == 1
