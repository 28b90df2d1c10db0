"""Whether a value is the right one, and in a sentence what is wrong where it is not.

First the kind (an array, a number, a tuple of two), then the shape, then the kind of number, then
the values. Nothing is broadcast, and every value is compared.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from coursework import tensors
from coursework.exercise import Call, Inspect, Load, New, Step, Use
from coursework.plain import describe, short
from coursework.steps import GAVE, RAISED, arguments_of

MOST_ENTRIES = 40  #: of a list, in a message


@dataclass(frozen=True)
class Tolerance:
    """How far a float may be from the expected one."""

    relative: float
    absolute: float

    @classmethod
    def for_call(cls, call: Call, expected: Any) -> Tolerance:
        """From the narrowest floats among the arguments: float32 ones are computed in float32."""
        if _is_double(call):
            return cls(1e-9, 1e-9)
        largest = np.max(np.abs(expected), initial=1.0, where=np.isfinite(expected))
        return cls(1e-4, 1e-5 * float(largest))


@lru_cache(maxsize=16)  # one call is compared many times in a row; none is kept for long
def _is_double(call: Call) -> bool:
    """Whether no float among the arguments is narrower than float64."""
    states = (step.state for step in call.steps or () if isinstance(step, Load))
    dtypes = _dtypes((*arguments_of(call), *states))
    return all(dtype.itemsize >= 8 for dtype in dtypes if dtype.kind == "f")


def _dtypes(arguments: Iterable[Any]) -> Iterator[np.dtype[Any]]:
    """Of all arrays among the arguments, those in tuples and dictionaries as well."""
    for a in arguments:
        if tensors.is_array(a):
            yield tensors.numbers(a).dtype
        elif isinstance(a, (list, tuple)):
            yield from _dtypes(a)
        elif isinstance(a, dict):
            yield from _dtypes(a.values())


@dataclass(frozen=True)
class Difference:
    """What is wrong with a value: for everybody, and with the numbers that show it."""

    kind: str  #: "type", "shape", "dtype" or "value"
    what: str  #: "weights has shape (3, 4)": no graded numbers in it
    detail: str = ""  #: the numbers


def compare(
    call: Call,
    expected: Any,
    value: Any,
    *,
    names: tuple[str, ...] = ("result",),
    only: tuple[str, ...] = (),
    look_first: str | None = None,
    keeps_dtype: bool = False,
    only_whether: bool = False,
) -> Difference | None:
    """The first difference between a plain value and the expected one; None if there is none.

    Args:
        call: the arguments, whose dtypes give the tolerance.
        expected: what the reference returned.
        value: what the answer returned, plain.
        names: what the parts of a returned tuple are called, or the single value.
        only: the parts that are compared; all if empty.
        look_first: the part to compare first.
        keeps_dtype: whether the width of floats matters.
        only_whether: for comparing two answers, either of which may be wrong: NaN equals NaN, and
            numbers that differ are not put into words.
    """
    if type(expected) is tuple and len(names) == len(expected) > 1:
        difference = _sequence(expected, value, "it", "a tuple")
        if difference:
            return difference
        parts = list(zip(names, expected, value, strict=True))
    else:
        parts = [(names[0] if len(names) == 1 else "result", expected, value)]
    parts = [part for part in parts if not only or part[0] in only]
    parts.sort(key=lambda part: part[0] != look_first)
    # Kinds and shapes of all parts come before any value: they are easier to see.
    for check in (_kind, _shape, _dtype, _values):
        for name, right, given in parts:
            difference = check(_Comparison(call, name, right, given, keeps_dtype, only_whether))
            if difference:
                return difference
    return None


@dataclass(frozen=True)
class _Comparison:
    call: Call
    name: str
    expected: Any
    value: Any
    keeps_dtype: bool
    only_whether: bool

    @property
    def is_tensor(self) -> bool:
        return tensors.is_tensor(self.expected)

    @property
    def is_array(self) -> bool:
        arrays = (np.ndarray, np.generic)
        return self.is_tensor or (isinstance(self.expected, arrays) and np.ndim(self.expected) > 0)

    @property
    def is_number(self) -> bool:
        return not self.is_array and isinstance(
            self.expected, (bool, int, float, np.generic, np.ndarray)
        )


def _sequence(expected: Any, value: Any, name: str, noun: str) -> Difference | None:
    verb = "returns" if name == "it" else "is"
    if type(value) not in (tuple, list):
        return Difference(
            "type",
            f"{name} {verb} {describe(value)}",
            f"it should be {noun} of {len(expected)}.",
        )
    if len(value) != len(expected):
        return Difference(
            "type",
            f"{name} {verb} {describe(value)}",
            f"it should be {noun} of {len(expected)}.",
        )
    return None


def _kind(c: _Comparison) -> Difference | None:
    if c.is_array:
        right = tensors.is_tensor(c.value) if c.is_tensor else type(c.value) is np.ndarray
        if not right:
            noun = "a tensor" if c.is_tensor else "an array"
            return Difference(
                "type",
                f"{c.name} is {describe(c.value)}",
                f"it should be {noun} of shape {tuple(np.shape(c.expected))}.",
            )
    elif c.is_number:
        if type(c.value) not in (bool, int, float, np.ndarray) or np.shape(c.value) != ():
            return Difference("type", f"{c.name} is {describe(c.value)}", "it should be a number.")
    elif type(c.expected) in (list, tuple):
        noun = f"a {type(c.expected).__name__}"
        difference = _sequence(c.expected, c.value, c.name, noun)
        if difference and type(c.value) in (list, tuple) and _in_a_line(c.expected):
            detail = f"{_plain_difference(c).detail[:-1]}, {noun} of {len(c.expected)}."
            return replace(difference, detail=detail)
        return difference
    elif type(c.value) is not type(c.expected):
        return Difference(
            "type",
            f"{c.name} is {describe(c.value)}",
            f"it should be {describe(c.expected)}.",
        )
    return None


def _shape(c: _Comparison) -> Difference | None:
    if c.is_array and tuple(c.value.shape) != tuple(np.shape(c.expected)):
        shapes = tuple(c.value.shape), tuple(np.shape(c.expected))
        return Difference(
            "shape",
            f"{c.name} has the wrong shape",
            f"{c.name} has shape {shapes[0]}; it should have {shapes[1]}.",
        )
    return None


_KINDS = {"b": "booleans", "i": "integers", "u": "integers", "f": "floats", "c": "complex numbers"}


def _number_kind(value: Any) -> str:
    """ "b", "i", "f" or "c". Python integers may be larger than any dtype."""
    if type(value) is int:
        return "i"
    return tensors.numbers(value).dtype.kind.replace("u", "i")


def _dtype(c: _Comparison) -> Difference | None:
    if not (c.is_array or c.is_number):
        return None
    right, given = _number_kind(c.expected), _number_kind(c.value)
    # A whole number may stand for a float: 0 and 0.0 are the same to a reader.
    whole_for_float = c.is_number and right == "f" and given == "i"
    if right != given and not whole_for_float:
        return Difference(
            "dtype",
            f"{c.name} holds {_KINDS[given]}",
            f"{c.name} should hold {_KINDS[right]}, not {_KINDS[given]}.",
        )
    if c.keeps_dtype and c.is_array and c.expected.dtype != c.value.dtype:
        return Difference(
            "dtype",
            f"{c.name} does not keep the dtype",
            f"{c.name} has dtype {c.value.dtype}; it should be {c.expected.dtype}, as the input.",
        )
    return None


def _values(c: _Comparison) -> Difference | None:
    if not (c.is_array or c.is_number):
        return _plain_values(c)
    if type(c.value) is int and type(c.expected) is int:
        return None if c.value == c.expected else _plain_difference(c)
    right, given = tensors.numbers(c.expected), _as_numbers(c.value)
    if right.dtype.kind in "fc":
        if c.only_whether and given.dtype == right.dtype and given.tobytes() == right.tobytes():
            return None  # the most frequent outcome, found soonest
        tolerance = Tolerance.for_call(c.call, right)
        with np.errstate(all="ignore"):
            close = np.isclose(
                given,
                right,
                rtol=tolerance.relative,
                atol=tolerance.absolute,
                equal_nan=c.only_whether,
            )
    else:
        close = given == right
    if np.all(close):
        return None
    if c.only_whether:
        return Difference("value", f"{c.name} is another")
    what, where = _what_of(c.name, given, right), _where(c.name, given, right, close)
    if _is_narrow(c.call, given, right):
        what = f"{c.name} is right to about 7 digits only"
        where = f"{where}\n  {_why_narrow(given)} Compute in the input's precision, float64 here."
    return Difference("value", what, where)


def _is_narrow(call: Call, given: np.ndarray, right: np.ndarray) -> bool:
    """Whether all values are as near as float32 comes, where float64 is asked for."""
    if given.dtype.kind != "f" or right.dtype.kind != "f":
        return False
    if Tolerance.for_call(call, right).relative > 1e-6:
        return False
    largest = float(np.max(np.abs(right), initial=1.0, where=np.isfinite(right)))
    with np.errstate(all="ignore"):
        return bool(np.all(np.isclose(given, right, rtol=1e-6, atol=1e-6 * largest)))


def _why_narrow(given: np.ndarray) -> str:
    if given.dtype.itemsize < 8:
        return f"Only about 7 digits are right: it was computed in {given.dtype}."
    return "Only about 7 digits are right: was it computed in float32, rounded, or added to?"


def _as_numbers(value: Any) -> np.ndarray:
    """`value` as an array; a Python integer as a float, which is infinite if it is too large."""
    if type(value) is not int:
        return tensors.numbers(value)
    try:
        return np.asarray(float(value))
    except OverflowError:
        return np.asarray(np.inf if value > 0 else -np.inf)


def _plain_values(c: _Comparison) -> Difference | None:
    return None if _same(c, c.expected, c.value) else _plain_difference(c)


def _plain_difference(c: _Comparison) -> Difference:
    """With as many entries of a long list as it takes to see the difference, and at least 8."""
    most = 8
    if type(c.expected) in (list, tuple) and type(c.value) in (list, tuple):
        pairs = zip(c.expected, c.value, strict=False)
        same = next((i for i, pair in enumerate(pairs) if not _same(c, *pair)), 0)
        most = max(most, min(same + 3, MOST_ENTRIES))
    return Difference(
        "value",
        f"{c.name} is not right",
        f"{c.name} is {short(c.value, most)}; it should be {short(c.expected, most)}.",
    )


def _in_a_line(value: Any) -> bool:
    """Whether a list holds nothing but numbers, texts and tuples of them."""
    return all(
        type(part) in (bool, int, float, str) or (type(part) in (list, tuple) and _in_a_line(part))
        for part in value
    )


def _same(c: _Comparison, expected: Any, value: Any) -> bool:
    """Whether plain values are the same all the way down. A list may stand for a tuple."""
    if type(expected) in (list, tuple):
        return (
            type(value) in (list, tuple)
            and len(value) == len(expected)
            and all(_same(c, e, v) for e, v in zip(expected, value, strict=True))
        )
    if type(expected) is dict:
        return (
            type(value) is dict
            and value.keys() == expected.keys()
            and all(_same(c, expected[key], value[key]) for key in expected)
        )
    part = replace(c, expected=expected, value=value)
    if part.is_array or part.is_number:
        return not any(check(part) for check in (_kind, _shape, _dtype, _values))
    return type(value) is type(expected) and value == expected


def _what_of(name: str, given: np.ndarray, right: np.ndarray) -> str:
    if given.dtype.kind in "fc" and np.isnan(given).any() and not np.isnan(right).any():
        return f"{name} holds NaN"
    return f"{name} is not right"


def _where(name: str, given: np.ndarray, right: np.ndarray, close: np.ndarray) -> str:
    """The first row that differs: a row is what attention computes, and it fits a line."""
    if given.ndim >= 2:
        row = tuple(int(i) for i in np.argwhere(~close)[0][:-1])
        name = f"{name}[{', '.join(str(i) for i in row)}]"
        given, right = given[row], right[row]
    for digits in (4, 8, 12, 17):  # as many as it takes to see the difference
        texts = short(given, digits=digits), short(right, digits=digits)
        if texts[0] != texts[1]:
            break
    return f"{name} is {texts[0]}; it should be {texts[1]}."


# Classes -------------------------------------------------------------------------------------


def compare_steps(
    call: Call, expected: Any, value: Any, *, only_whether: bool = False
) -> Difference | None:
    """The first difference between the outcomes of steps and the expected ones, or None.

    Args:
        call: whose steps they are.
        expected: the outcomes that the reference class gave.
        value: the outcomes that the answer gave; anything, if a worker is hostile.
        only_whether: as in `compare`.
    """
    steps = call.steps or ()
    if type(value) is not tuple or len(value) != len(steps):
        return Difference("type", "its steps had no outcomes")
    for i, (step, right, given) in enumerate(zip(steps, expected, value, strict=True)):
        difference = _outcome(call, step, right, given, only_whether)
        if difference:
            before = ", then ".join(map(_in_words, steps[:i]))
            after = f"After {before}: " if before else ""
            return replace(difference, detail=f"{after}{difference.detail}".rstrip(": "))
    return None


def _outcome(
    call: Call, step: Step, right: Any, given: Any, only_whether: bool
) -> Difference | None:
    words = _in_words(step)
    if type(given) is not tuple or len(given) < 2 or given[0] not in (GAVE, RAISED):
        return Difference("type", f"{words} had no outcome")
    if given[0] == RAISED and (len(given) != 4 or type(given[1]) is not tuple):
        return Difference("type", f"{words} had no outcome")
    if right[0] == RAISED:
        if given[0] == RAISED and right[1][0] in given[1]:
            return None
        return Difference(
            "error",
            f"{_name(step)} should raise {right[1][0]}",
            f"{words} should raise {right[1][0]}: {right[2].rstrip('.')}.",
        )
    if given[0] == RAISED:
        kind = next((k for k in given[1] if hasattr(builtins, str(k))), "an exception")
        line = f"\n  In your line: {given[3]}" if given[3] else ""
        message = f": {given[2]}".rstrip(".: ")
        return Difference(
            "error", f"{_name(step)} raised {kind}", f"{words}: {kind}{message}.{line}"
        )
    if isinstance(step, Inspect):
        return _module(right[1], given[1])
    if not isinstance(step, Use):
        return None
    if len(given) != 3:
        return Difference("type", f"{words} had no outcome")
    parts = len(right[1]) if type(right[1]) is tuple else 1
    name = _name(step)
    names = tuple(f"part {i + 1} of {name}" for i in range(parts)) if parts > 1 else (name,)
    return compare(
        call, right[1], given[1], names=names, keeps_dtype=True, only_whether=only_whether
    ) or compare_gradients(call, right[2], given[2], ("the gradient",), only_whether)


def compare_gradients(
    call: Call,
    expected: Any,
    value: Any,
    names: Sequence[str],
    only_whether: bool = False,
) -> Difference | None:
    """The first difference between gradients. None: a result from which nothing leads back.

    Args:
        call: what was differentiated.
        expected: the reference's gradients, one for each input.
        value: the answer's.
        names: what each is called; the last name serves for all further ones.
        only_whether: as in `compare`.
    """
    if expected is None:
        return None
    if type(value) not in (tuple, list) or len(value) != len(expected):
        return Difference(
            "gradient",
            "no gradient flows through it",
            "The result is cut off from the inputs: stay with PyTorch's operations, without "
            "`.data`, `.detach()`, `.numpy()`, `torch.no_grad()` or values copied by hand.",
        )
    for i, (right, given) in enumerate(zip(expected, value, strict=True)):
        name = names[min(i, len(names) - 1)]
        difference = compare(call, right, given, names=(name,), only_whether=only_whether)
        if difference:
            return difference
    return None


def _module(right: dict[str, Any], given: Any) -> Difference | None:
    """What is wrong with a module's state: names, shapes, what is trained, what is shared."""
    kinds = {name: type(part) for name, part in right.items()}
    if type(given) is not dict or {n: type(part) for n, part in given.items()} != kinds:
        return Difference("type", "its state could not be read")
    missing = [name for name in right["shapes"] if name not in given["shapes"]]
    extra = [str(name) for name in given["shapes"] if name not in right["shapes"]]
    if missing:
        return Difference(
            "state",
            f"its state dict has no {missing[0]}",
            f"It has {', '.join(extra) or 'nothing else'}. A tensor is found only if it is an "
            "`nn.Parameter` set as an attribute of that name.",
        )
    if extra:
        return Difference(
            "state", "its state dict holds more than it should", f"Extra: {extra[0]}."
        )
    for name, shape in right["shapes"].items():
        if given["shapes"][name] != shape:
            return Difference(
                "state",
                f"{name} has the wrong shape",
                f"{name} has shape {given['shapes'][name]}; it should have {shape}.",
            )
    if given["shared"] != right["shared"]:
        shared = [names for names in given["shared"] if names not in right["shared"]]
        what = "parameters share their memory" if shared else "parameters should be one"
        return Difference("state", what, f"{short((shared or right['shared'])[0])}")
    if given["trained"] != right["trained"]:
        still = [name for name in right["trained"] if name not in given["trained"]]
        return Difference(
            "state",
            "not all that should be trained is a parameter",
            f"Not trained: {short(still)}.",
        )
    return None


def _name(step: Step) -> str:
    """What the outcome of a step is called."""
    if not isinstance(step, Use):
        return {New: "another instance", Load: "loading a state", Inspect: "its state"}[type(step)]
    if step.method == "__len__":
        return "the length"
    return "the output" if step.method == "__call__" else f"the result of {step.method}"


def _in_words(step: Step) -> str:
    """A step as it would be written."""
    if not isinstance(step, Use):
        return {New: "making another", Load: "loading a state", Inspect: "a look at its state"}[
            type(step)
        ]
    if step.method == "__len__":
        return "len of it"
    arguments = [_argument(a) for a in step.args]
    arguments += [f"{name}={_argument(a)}" for name, a in step.kwargs.items()]
    name = "calling it with" if step.method == "__call__" else step.method
    return f"{name}({', '.join(arguments)})" if arguments else f"{step.method}()"


def _argument(value: Any) -> str:
    if tensors.is_array(value):
        return f"{tuple(value.shape)}"
    return getattr(value, "name", None) or short(value)
