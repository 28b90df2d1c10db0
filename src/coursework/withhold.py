"""What an answer may not call: `attend`'s own, and library shortcuts where an exercise says so.

While an exercise of chapter n is judged in one process, every function of `attend` that answers an
exercise of chapter n or later refuses to run. The function's code is exchanged rather than its
name, so that it is found under any alias. (The judge proper goes further: in its workers these
modules are not there at all.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType

from coursework.chapters import modules_from


class Withheld(Exception):
    """An answer called a function of `attend` that it is asked to write itself."""


class Forbidden(Exception):
    """An answer called a function of a library that its exercise forbids."""


def _refuse(*args: object, **kwargs: object) -> None:
    from coursework.withhold import Withheld

    raise Withheld


class Withholding:
    """A set of functions that can be made to refuse, and be given back for a while."""

    def __init__(self, functions: set[FunctionType]) -> None:
        # A closure's code cannot be exchanged for one without cells; there are none in attend.
        self.codes: dict[FunctionType, CodeType] = {
            f: f.__code__ for f in functions if not f.__code__.co_freevars
        }
        self.active = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.active = True
        self._exchange(withheld=True)
        try:
            yield
        finally:
            self.active = False
            self._exchange(withheld=False)

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """For a callback into the judge, whose functions may well be made of `attend`'s.

        An answer may keep the callback and call it when the check is over: then nothing is
        withheld, before or after.
        """
        self._exchange(withheld=False)
        try:
            yield
        finally:
            self._exchange(withheld=self.active)

    def _exchange(self, *, withheld: bool) -> None:
        for function, code in self.codes.items():
            function.__code__ = _refuse.__code__ if withheld else code


def from_chapter(number: int, references: set[FunctionType]) -> Withholding:
    """All functions of the loaded `attend` modules of chapter `number` on, and `references`."""
    functions = set(references)
    for name in modules_from(number):
        module = sys.modules.get(name)
        if module is not None:
            for value in vars(module).values():
                if getattr(value, "__module__", None) == name:
                    functions |= functions_of(value)
    return Withholding(functions)


def functions_of(thing: object) -> set[FunctionType]:
    """A function itself, or the methods that a class has of its own."""
    if isinstance(thing, FunctionType):
        return {thing}
    members = vars(thing).values() if isinstance(thing, type) else ()
    return {member for member in members if isinstance(member, FunctionType)}


@contextmanager
def no_fused_attention() -> Iterator[None]:
    """PyTorch's fused attention raises `Forbidden`, however it was imported, in every thread.

    A mode is offered each call of PyTorch's functions in this thread, those that
    `nn.MultiheadAttention` makes among them. A kernel put in place of the fused ones refuses where
    no mode is asked: in another thread, or in compiled code. Nothing happens while PyTorch is not
    imported.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch
    from torch.overrides import TorchFunctionMode

    class Refuse(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            name = str(getattr(function, "__name__", function))
            if any(part in name for part in ("scaled_dot_product", "multi_head_attention")):
                raise Forbidden(name)
            return function(*args, **(kwargs or {}))

    with torch.library._scoped_library("aten", "IMPL") as library, Refuse():
        for name in _FUSED:
            for key in ("CPU", "AutogradCPU"):
                library.impl(name, _forbid, key)
        yield


_FUSED = (
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_native_multi_head_attention",
)


def _forbid(*args: object, **kwargs: object) -> None:
    raise Forbidden
