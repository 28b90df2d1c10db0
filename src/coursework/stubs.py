"""Objects that an exercise hands over and that stay with the judge: models, caches, functions.

A `Host` has the objects. What crosses is a `Handle`, from which the student's side makes a
`StandIn`; each of its methods is a question to the host, which answers and writes down what is
counted. In a student's own notebook both sides are in one process; the words are the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from coursework import plain, tensors
from coursework.exercise import Call, Event, Step, Stub

BACKWARD = "the gradient of a call"
FIRST_OF_A_CALL = 1000  #: below are stubs that stand for longer than one call


@dataclass(frozen=True)
class Handle:
    """What crosses of a stub. Its name does not: it would tell which function one is handed."""

    number: int
    methods: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    differentiable: bool = False


class Host:
    """The objects behind the stubs of one call, and what was asked of them."""

    def __init__(self, first: int = FIRST_OF_A_CALL) -> None:
        self.first = first
        self.stubs: list[Stub] = []
        self.objects: list[Any] = []
        self.events: list[Event] = []

    def __contains__(self, number: object) -> bool:
        return type(number) is int and 0 <= number - self.first < len(self.stubs)

    def handle(self, stub: Stub) -> Handle:
        """The handle of a stub: the same object each time within a call."""
        at = next((i for i, known in enumerate(self.stubs) if known is stub), len(self.stubs))
        if at == len(self.stubs):
            self.stubs.append(stub)
            self.objects.append(stub.make())
        attributes = {name: getattr(self.objects[at], name) for name in stub.attributes}
        return Handle(self.first + at, stub.methods, attributes, stub.differentiable)

    def outgoing(self, value: Any) -> Any:
        """A value in which handles stand for stubs."""
        return plain.mapped(value, lambda v: self.handle(v) if isinstance(v, Stub) else v)

    def call(self, call: Call) -> Call:
        """A call in which handles stand for stubs."""

        def step(old: Step) -> Step:
            parts = {k: self.outgoing(v) for k, v in vars(old).items() if k in ("args", "kwargs")}
            return replace(old, **parts)

        steps = call.steps and tuple(map(step, call.steps))
        args, kwargs = self.outgoing(call.args), self.outgoing(call.kwargs)
        return replace(call, args=args, kwargs=kwargs, steps=steps)

    def answer(
        self,
        number: int,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        gradients: bool,
    ) -> Any:
        """What an object's method gives: a plain value, with handles for further stubs.

        Raises:
            AttributeError: the stub has no such method.
            Exception: whatever the object raises.
        """
        stub, thing = self.stubs[number - self.first], self.objects[number - self.first]
        if method == BACKWARD and stub.differentiable:
            return _gradient_of(thing, *args)
        if method not in stub.methods:
            raise AttributeError(f"it has no {method!r}")
        if method in stub.counted:
            self.events.append(Event(stub.name, method, args, kwargs, gradients))
        args, kwargs = (plain.mapped(v, self._incoming) for v in (args, kwargs))
        value = _without_gradients(lambda: getattr(thing, method)(*args, **kwargs))
        return plain.take(self.outgoing(value), _is_handle)

    def _incoming(self, value: Any) -> Any:
        if type(value) is not Handle:
            return value
        if value.number not in self:
            raise ValueError("an object that does not belong to this call")
        return self.objects[value.number - self.first]


#: Asks the host: number, method, arguments, keyword arguments, whether gradients are recorded.
Ask = Callable[[int, str, tuple[Any, ...], dict[str, Any], bool], Any]


class StandIn:
    """What a student's code gets in place of a stub."""

    def __init__(self, handle: Handle, ask: Ask) -> None:
        self.__dict__.update(handle.attributes)
        self.__dict__.update(_handle=handle, _ask=ask)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._handle.differentiable and len(args) == 1 and not kwargs:
            (x,) = args
            if tensors.is_tensor(x) and x.requires_grad and _records_gradients():
                return _asked().apply(x, self._asks)
        return self._asks("__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._handle.methods:
            raise AttributeError(f"what you were handed has no {name!r}")
        return partial(self._asks, name)

    def __deepcopy__(self, memo: object) -> StandIn:
        return self

    def _asks(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = plain.take(args, _handle_of), plain.take(kwargs, _handle_of)
        value = self._ask(self._handle.number, method, args, kwargs, _records_gradients())
        return plain.mapped(value, lambda v: stand_in(v, self._ask) if type(v) is Handle else v)


class SizedStandIn(StandIn):
    """A stand-in with a length."""

    def __len__(self) -> int:
        return self._asks("__len__")


def stand_in(handle: Handle, ask: Ask) -> StandIn:
    """The stand-in of a handle, which asks its questions by `ask`."""
    return (SizedStandIn if "__len__" in handle.methods else StandIn)(handle, ask)


def _handle_of(value: Any) -> Handle | None:
    return value._handle if type(value) is StandIn or type(value) is SizedStandIn else None


def _is_handle(value: Any) -> Handle | None:
    return value if type(value) is Handle else None


def _records_gradients() -> bool:
    torch = tensors.loaded()
    return torch is not None and torch.is_grad_enabled()


def _without_gradients(function: Callable[[], Any]) -> Any:
    torch = tensors.loaded()
    with contextlib.nullcontext() if torch is None else torch.no_grad():
        return function()


def _gradient_of(function: Callable[[Any], Any], x: Any, upstream: Any) -> Any:
    """The vector–Jacobian product of a function of one tensor."""
    import torch

    with torch.enable_grad():
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(function(x), x, upstream)
    return gradient


@cache
def _asked() -> Any:
    """A differentiable operation that the host computes, forward and backward."""
    import torch

    class Asked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, ask: Callable[..., Any]) -> Any:
            ctx.save_for_backward(x)
            ctx.ask = ask
            return ask("__call__", x)

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:  # type: ignore[override]
            return ctx.ask(BACKWARD, *ctx.saved_tensors, upstream), None

    return Asked
