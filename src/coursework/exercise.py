"""What an exercise is: one declaration, from which everything else about it is made.

The visible check, the graded check, the diagnosis of a wrong answer, the notebook's cells, the bug
hunts and the statistics of a class all come from an `Exercise`. Declarations live in
`coursework/exercises/`, one module a chapter.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from coursework.compare import Difference


@dataclass(frozen=True)
class Seed:
    """A random generator among the arguments. It crosses to the student's process as its seed."""

    number: int
    of_torch: bool = False  #: PyTorch's generator, in place of NumPy's

    def generator(self, turn: int = 0) -> Any:
        """The generator; another one for each turn of a call that is made many times."""
        if self.of_torch:
            import torch

            return torch.Generator().manual_seed(self.number + turn)
        return np.random.default_rng([self.number, turn] if turn else self.number)

    def __str__(self) -> str:
        """How to make it."""
        maker = "torch.Generator().manual_seed" if self.of_torch else "default_rng"
        return f"{maker}({self.number})"


@dataclass(frozen=True)
class Stub:
    """An object among the arguments. It stays with the judge; the student gets a stand-in.

    The stand-in has the methods that are listed, and asks the judge's object. A method may return
    further stubs, in lists as well; stand-ins among its arguments arrive as their objects.
    """

    make: Callable[[], Any]  #: a fresh object for every call of the answer
    name: str  #: how messages call it: "a small model"
    methods: tuple[str, ...]
    attributes: tuple[str, ...] = ()  #: plain values, read when the stand-in is made
    counted: tuple[str, ...] = ()  #: methods whose calls are written down, for `Property.watch`
    #: Whether gradients flow through a call: of one tensor, which gives one tensor.
    differentiable: bool = False


def Callback(
    function: Callable[..., Any],
    name: str,
    *,
    counted: bool = False,
    differentiable: bool = False,
) -> Stub:
    """A function among the arguments, as a `Stub` with nothing but its call."""
    calls = ("__call__",)
    return Stub(
        lambda: function, name, calls, counted=calls * counted, differentiable=differentiable
    )


@dataclass(frozen=True)
class Event:
    """A call that an answer made of a stub's counted method."""

    stub: str  #: its name
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    gradients: bool = False  #: whether PyTorch would have recorded it for a backward pass


@dataclass(frozen=True)
class New:
    """A step: construct another instance. Later steps speak to it by its number, from 1 on."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Inspect:
    """A step: the names and shapes of a module's state, and which of it is trained or shared."""

    on: int = 0


@dataclass(frozen=True)
class Load:
    """A step: give a module its state, in the state's dtype, and set it to evaluation."""

    state: dict[str, Any]
    on: int = 0


@dataclass(frozen=True)
class Use:
    """A step: call a method of an instance, or with "__call__" the instance itself."""

    method: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    on: int = 0
    gradient: bool = False  #: whether it is differentiated by its arguments and all parameters
    spoil: bool = False  #: whether the arguments are overwritten afterwards


Step = New | Inspect | Load | Use


@dataclass(frozen=True, eq=False)
class Call:
    """Arguments that an answer is called with: arrays, tensors, plain values, `Seed`, `Stub`.

    Where the answer is a class, they are its constructor's, and `steps` are taken on the instance.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    memory: int | None = None  #: bytes that the answer must need fewer of at its peak
    #: Whether the result is also differentiated by each tensor of floats among the arguments.
    gradient: bool = False
    steps: tuple[Step, ...] | None = None  #: None: the answer is a function
    #: How often it is made, with other random generators each time. If more than once, the value is
    #: the list of what came back, as statistics need it.
    times: int = 1


def calls(*argument_tuples: tuple[Any, ...]) -> tuple[Call, ...]:
    """One `Call` for each tuple of positional arguments."""
    return tuple(Call(args) for args in argument_tuples)


def differentiated(plain_calls: Sequence[Call]) -> tuple[Call, ...]:
    """The same calls, in which the result is differentiated as well."""
    return tuple(replace(call, gradient=True) for call in plain_calls)


@dataclass(frozen=True)
class Property:
    """Something that must hold of an answer, and the points it earns.

    By default it holds if the answer gives what the reference gives, on every call: the same kind
    and shape, and the same values up to the tolerance of the inputs' dtype, or an exception of the
    same type; and if it leaves its arguments as they were.
    """

    name: str  #: a sentence about a right answer, without a full stop: "each row sums to 1"
    points: int
    calls: Callable[[np.random.Generator], Sequence[Call]]  #: small ones first
    #: Inputs at the edge (empty rows, huge scores): a learner's main mistake is told from the
    #: ordinary ones, and may go along with any behaviour at the edge.
    edge: bool = False
    #: Which of the returned values count here; all if empty. What an answer gets right earns its
    #: points, though what is made from it be wrong.
    outputs: tuple[str, ...] = ()
    #: In place of the reference: what is wrong with the value, as a sentence without numbers or as
    #: a `Difference` with them; None if nothing is.
    compare: Callable[[Call, Any], str | Difference | None] | None = None
    #: In addition: what is wrong with the use that was made of the stubs, as a symptom, or None.
    watch: Callable[[Call, tuple[Event, ...]], str | None] | None = None
    #: In addition: a sentence about what is wrong with all values together, or None.
    together: Callable[[Sequence[Call], Sequence[Any]], str | None] | None = None


@dataclass(frozen=True)
class Misconception:
    """A wrong implementation that real learners write, and what they should read about it.

    `function` stands alone: it calls NumPy and nothing of `attend`, because its source is printed
    in bug hunts and because answers that call `attend` are refused before they are understood.
    """

    name: str  #: short, for tables: "divides by d_k"
    sentence: str  #: for the student: "This is what dividing by d_k gives. Divide by √d_k: …"
    function: Callable[..., Any]
    symptom: str | None = None  #: what is seen, after "name: ": "your weights are too flat"
    #: Other implementations of the same mistake that give other values.
    also: tuple[Callable[..., Any], ...] = ()
    #: For answers that draw random numbers, where equal outputs cannot be asked for: whether this
    #: value is what the misconception would give.
    recognises: Callable[[Call, Any], bool] | None = None


@dataclass(frozen=True, eq=False)
class Exercise:
    """One exercise. Its id is the chapter's number, a dot and the name of what is asked for."""

    chapter: int
    signature: str  #: "row_entropy(weights) -> (...)", as printed in the notebook
    task: str  #: what is asked, in Markdown: shapes, edge cases, errors, all that is graded
    reference: Callable[..., Any] | None
    properties: tuple[Property, ...]
    misconceptions: tuple[Misconception, ...]
    hints: tuple[str, str, str]  #: a nudge, a plan, near-code
    minutes: int
    returns: tuple[str, ...] = ("result",)  #: what messages call the outputs
    #: The output whose values are compared first: weights tell more than what they blend.
    look_first: str | None = None
    keeps_dtype: bool = False  #: whether the width of floats is graded
    new_arrays: bool = False  #: whether what is returned must not be an argument or a view of it
    forbids_fused: bool = False  #: whether PyTorch's fused attention is refused
    #: Inputs that are asked for only to tell misconceptions apart, once an answer has failed.
    probes: Callable[[np.random.Generator], Sequence[Call]] | None = None
    #: For bug hunts: which of the wrong functions the notebook prints.
    variant: int | None = None

    @property
    def name(self) -> str:
        return self.signature.partition("(")[0].removeprefix("class ").strip()

    @property
    def is_class(self) -> bool:
        return self.signature.startswith("class ")

    @property
    def id(self) -> str:
        return f"{self.chapter:02d}.{self.name}"

    @property
    def max_points(self) -> int:
        return sum(p.points for p in self.properties)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters, as the signature has them."""
        head = self.signature.partition("->")[0].removeprefix("class ").strip()
        function = ast.parse(f"def {head}: ...").body[0]
        arguments = function.args  # type: ignore[attr-defined]
        return tuple(
            a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        )
