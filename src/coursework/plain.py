"""Plain values: what may pass between a student's code and the judge.

What a student returns is untrusted. A subclass of `ndarray` or `float` may answer `==` with True
for ever, so nothing is asked of the value itself: its exact type decides, and the functions of that
type, never its own methods, take it apart into a copy.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from coursework import tensors

MAX_DEPTH = 8
MAX_ITEMS = 1_000_000  #: numbers, characters and containers in one value, all in all
MAX_BITS = 10_000  #: of an integer

UNUSUAL_TENSOR = "a tensor of half precision, sparse, quantised or on another device"

_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_DICTS = (dict, Counter, OrderedDict, defaultdict)
_NUMPY_SCALARS = tuple(np.dtype(code).type for code in "?bhilqBHILQefdgFDG")


class NotPlain(Exception):
    """A value that cannot pass, and a sentence that says why."""


def take(value: Any, known: Callable[[Any], Any] = lambda value: None) -> Any:
    """A copy of `value` made of plain parts only.

    Arrays stay NumPy arrays and tensors tensors, NumPy scalars become Python numbers, dictionaries
    of any of the standard library's kinds become `dict`.

    Args:
        value: anything.
        known: what stands for a part of another type; None if nothing does.

    Raises:
        NotPlain: some part is of another type, or there is too much of it.
    """
    return _Taker(known).take(value, 0)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """A value in which `change` was made to all that is no list, tuple or dictionary."""
    if type(value) is list or type(value) is tuple:
        return type(value)(mapped(part, change) for part in value)
    if type(value) is dict:
        return {key: mapped(part, change) for key, part in value.items()}
    return change(value)


class _Taker:
    def __init__(self, known: Callable[[Any], Any]) -> None:
        self.known = known
        self.items = 0

    def take(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if depth > MAX_DEPTH:
            raise NotPlain(f"a value nested more than {MAX_DEPTH} deep")
        if _among(kind, _SCALARS):
            if kind is int and value.bit_length() > MAX_BITS:
                raise NotPlain("an integer of more than 3,000 digits")
            self.count(len(value) if _among(kind, (str, bytes)) else 1)
            return value
        if kind is np.ndarray:
            return self.array(value)
        if tensors.is_tensor(value):
            return self.tensor(value)
        if _among(kind, _NUMPY_SCALARS):
            return np.generic.item(value)
        for sequence in (list, tuple):
            if _among(sequence, ancestors(kind)):  # a named tuple is a tuple
                self.count(1 + sequence.__len__(value))
                return sequence(self.take(item, depth + 1) for item in sequence.__iter__(value))
        if _among(kind, _DICTS):
            self.count(1 + dict.__len__(value))
            pairs = list(dict.items(value))
            return {self.key(key, depth + 1): self.take(item, depth + 1) for key, item in pairs}
        stands_for = self.known(value)
        if stands_for is not None:
            return stands_for
        raise NotPlain(article(name_of(kind)))

    def array(self, value: np.ndarray) -> np.ndarray:
        if value.dtype.kind not in "biufc" or value.dtype.names:
            raise NotPlain(f"an array of dtype {value.dtype}")
        self.count(value.size)
        return np.array(value, copy=True, order="C")

    def tensor(self, value: Any) -> Any:
        if not tensors.can_pass(value):
            raise NotPlain(UNUSUAL_TENSOR)
        self.count(value.numel())
        return tensors.copy(value)

    def key(self, key: Any, depth: int) -> Any:
        """Keys of dictionaries: scalars, and tuples of scalars, which stay hashable."""
        if type(key) is not tuple and not _among(type(key), (*_SCALARS, *_NUMPY_SCALARS)):
            raise NotPlain(f"a dictionary with {article(name_of(type(key)))} among its keys")
        if type(key) is tuple and depth <= MAX_DEPTH:
            return tuple(self.key(part, depth + 1) for part in key)
        return self.take(key, depth)

    def count(self, items: int) -> None:
        self.items += items
        if self.items > MAX_ITEMS:
            raise NotPlain(f"a value of more than {MAX_ITEMS:,} numbers or characters")


def _among(kind: type, kinds: tuple[type, ...]) -> bool:
    """Identity, never `in`: that asks `==` of the type, and a metaclass answers as it likes."""
    return any(kind is known for known in kinds)


def ancestors(kind: type) -> tuple[type, ...]:
    """A class and what it is made from, asked of `type` and not of the class itself."""
    return type.__dict__["__mro__"].__get__(kind)


def bare_name(kind: type) -> str:
    """The name of a class, asked of `type` and not of the class itself."""
    return _word(type.__dict__["__name__"].__get__(kind))


def name_of(kind: type) -> str:
    """The name of a class as users know it: `torch.Tensor`, `list`."""
    module = type.__dict__["__module__"].__get__(kind)
    if type(module) is not str or module in ("builtins", "__main__"):
        return bare_name(kind)
    return _word(f"{module.partition('.')[0]}.{bare_name(kind)}")


def _word(name: str) -> str:
    """A name that may stand in feedback: a class could be named after the input that it saw."""
    plain = str.isascii(name) and len(name) <= 60 and not any(str.isdigit(c) for c in name)
    return str(name) if plain else "an object of an unusual class"


def article(noun: str) -> str:
    """The noun with "a" or "an" before it."""
    if noun.startswith("an "):
        return noun
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


_FOREIGN = [
    "object",
    "function",
    "method",
    "type",
    "module",
    "generator",
    "set",
    "frozenset",
    "range",
    "map",
    "filter",
    "zip",
    "slice",
    "bytearray",
    "memoryview",
    "ellipsis",
    "builtin_function_or_method",
    "numpy.matrix",
    "numpy.MaskedArray",
    "numpy.memmap",
    "torch.Tensor",
    "torch.Parameter",
    "torch.Size",
    "collections.deque",
    "fractions.Fraction",
    "decimal.Decimal",
    "pandas.DataFrame",
    "pandas.Series",
]

#: What `NotPlain` may say of a value that comes from elsewhere. The name of a class could be any
#: text at all, so that only names that everybody knows are passed on.
REFUSALS = frozenset(
    {
        *(article(name) for name in _FOREIGN),
        "an array of dtype object",
        UNUSUAL_TENSOR,
        "an integer of more than 3,000 digits",
        f"a value nested more than {MAX_DEPTH} deep",
        f"a value of more than {MAX_ITEMS:,} numbers or characters",
    }
)


def describe(value: Any) -> str:
    """What a plain value is, without its numbers: "an array of shape (3, 4)", "a list of 3"."""
    if tensors.is_array(value):
        noun = "a tensor" if tensors.is_tensor(value) else "an array"
        return f"{noun} of shape {tuple(value.shape)}"
    if type(value) in (list, tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if type(value) is dict:
        return f"a dict of {len(value)}"
    if value is None:
        return "None"
    if type(value) in (int, float):
        return "a number"
    return article(type(value).__name__)


def size(value: Any) -> int:
    """How many numbers, or other things that are not lists, a plain value is made of."""
    if tensors.is_array(value):
        return tensors.numbers(value).size
    parts = value.values() if type(value) is dict else value
    return sum(map(size, parts)) if type(value) in (list, tuple, dict) else 1


_UNREADABLE = re.compile(r"[^\n\t -~\u00a0-\ud7ff\ue000-\U0010ffff]")


def readable(text: str) -> str:
    """`text` fit for a file, a database and a terminal.

    An exception's message may hold what none of them takes: control characters, of which a
    terminal makes commands and PostgreSQL an error, and halves of a pair of UTF-16. Each becomes
    one replacement character.
    """
    return _UNREADABLE.sub("\ufffd", text)


def _digits(x: float, digits: int) -> int:
    """How many digits of `x` are printed: of 1,000 and more two behind the point as well.

    Scores near 10,000 whose weights differ would all be 1e+04 otherwise. From 100 million on, size
    is all that there is to see.
    """
    size = abs(x)
    return max(digits, len(str(int(size))) + 2) if 1e3 <= size < 1e8 else digits


def short(value: Any, most: int = 8, digits: int = 4) -> str:
    """A plain value as it is printed in a message, in at most about a line.

    Args:
        value: what is printed.
        most: entries of a list.
        digits: of a float in an array, or more if it is large; two more for one that stands alone.
    """
    if tensors.is_array(value):
        value = tensors.numbers(value)
        if value.ndim == 0:
            return short(value.item(), most, digits)
        rounded = np.array2string(
            value,
            threshold=most * most,
            edgeitems=3,
            max_line_width=sys.maxsize,
            formatter={"float_kind": lambda x: f"{x:.{_digits(x, digits)}g}"},
        )
        return " ".join(rounded.split())
    if type(value) is float:
        return f"{value:.{min(digits + 2, 17)}g}"
    if type(value) in (list, tuple) and len(value) > most:
        return f"{short(value[:most], most, digits)[:-1]}, …{']' if type(value) is list else ')'}"
    if type(value) in (list, tuple):
        inside = ", ".join(short(item, most, digits) for item in value)
        return f"[{inside}]" if type(value) is list else f"({inside}{',' * (len(value) == 1)})"
    if type(value) is dict:
        inside = ", ".join(f"{key!r}: {short(part, most, digits)}" for key, part in value.items())
        return f"{{{inside}}}" if len(inside) <= 200 else f"a dict of {len(value)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
