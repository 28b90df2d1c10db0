"""Exercises in PyTorch: classes step by step, gradients, and the use of what was handed over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from coursework.evaluate import Verdict, evaluate_exercise
from coursework.exercise import (
    Call,
    Callback,
    Event,
    Exercise,
    Inspect,
    Load,
    Misconception,
    New,
    Property,
    Stub,
    Use,
    differentiated,
)

HINTS = ("one", "two", "three")


def normal(rng: Any, *shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape))


# A function of tensors ------------------------------------------------------------------------


def squash(x: torch.Tensor, f: Callable[..., Any]) -> torch.Tensor:
    return x + f(torch.tanh(x))


def _calls(rng: Any) -> list[Call]:
    square = Callback(torch.square, "a square", counted=True, differentiable=True)
    return [Call((normal(rng, n, 3), square)) for n in (2, 3, 5)]


def _once(call: Call, events: tuple[Event, ...]) -> str | None:
    return None if len(events) == 1 else "the function is not called exactly once"


def _twice(x: torch.Tensor, f: Callable[..., Any]) -> torch.Tensor:
    return x + (f(torch.tanh(x)) + f(torch.tanh(x))) / 2


def _bare(x: torch.Tensor, f: Callable[..., Any]) -> torch.Tensor:
    return f(torch.tanh(x))


SQUASH = Exercise(
    chapter=7,
    signature="squash(x, f) -> (...)",
    task="",
    reference=squash,
    properties=(
        Property("it adds f of tanh to x", 2, _calls),
        Property("it can be differentiated", 1, lambda rng: differentiated(_calls(rng))),
        Property("it calls f once", 1, _calls, watch=_once),
    ),
    misconceptions=(
        Misconception("x is lost", "Add x.", _bare, symptom="there is no way around f"),
        Misconception("asks twice", "Once will do.", _twice, symptom="f is called twice"),
    ),
    hints=HINTS,
    minutes=5,
    keeps_dtype=True,
)


def points(exercise: Exercise, answer: Any) -> tuple[float, Verdict]:
    verdict = evaluate_exercise(exercise, answer, (0, 1))
    return verdict.points, verdict


def test_a_right_function_of_tensors_passes():
    assert points(SQUASH, lambda x, f: f(x.tanh()) + x)[0] == 4


def _leaves_gradients_off(x, f):
    y = x + f(x.tanh())
    torch.set_grad_enabled(False)
    return y


@pytest.mark.parametrize(
    ("answer", "score", "words"),
    [
        (lambda x, f: (x + f(x.tanh())).detach(), 3, "no gradient flows through it"),
        (lambda x, f: x + f(x.tanh()).detach(), 3, "the gradient of x is not right"),
        (lambda x, f: (x + f(x.tanh())).float(), 0, "does not keep the dtype"),
        (lambda x, f: (x + f(x.tanh())).detach().numpy(), 0, "result is an array of shape"),
        (lambda x, f: x + f(x.tanh()) + 0 * torch.rand(1), 0, "a global random generator"),
        (_leaves_gradients_off, 0, "gradient mode, changed"),
        (lambda x, f: x + f(x.tanh())[:1], 0, "result is not right"),
        (lambda x, f: (x + f(x.tanh()))[None], 0, "result has the wrong shape"),
        (lambda x, f: x.data.add_(f(x.tanh())), 0, "it changes its input x"),
    ],
)
def test_what_is_wrong_with_a_tensor_is_said(answer, score, words):
    got, verdict = points(SQUASH, answer)
    assert words in verdict.message
    assert got == score


def test_misconceptions_in_values_and_in_calls_are_named():
    assert points(SQUASH, _bare)[1].misconception == "x is lost"
    score, verdict = points(SQUASH, lambda x, f: x + 0.5 * f(x.tanh()) + 0.5 * f(x.tanh()))
    assert verdict.misconception == "asks twice"
    assert score == 3


def test_a_reference_of_tensors_is_no_answer():
    verdict = evaluate_exercise(SQUASH, lambda x, f: squash(x, f), (0,))
    assert "Write yours" in verdict.message


# A class --------------------------------------------------------------------------------------


class Scale(nn.Module):
    """Multiplies by a gain and adds a bias; widths from 2 on."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width < 2:
            raise ValueError(f"width {width} is not 2 or more")
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != len(self.gain):
            raise ValueError("x does not fit")
        return self.gain * x + self.bias


def _scale_calls(rng: Any) -> list[Call]:
    return [
        Call(
            (n,),
            steps=(
                Inspect(),
                Load({"gain": normal(rng, n), "bias": normal(rng, n)}),
                Use("__call__", (normal(rng, 3, n),), gradient=True),
                Use("__call__", (normal(rng, 3, n + 1),)),
                New((n,)),
                Load({"gain": normal(rng, n), "bias": normal(rng, n)}, on=1),
                Use("__call__", (normal(rng, 3, n),)),
            ),
        )
        for n in (2, 3, 5)
    ]


class _NoBias(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        if width < 2:
            raise ValueError
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1] != len(self.gain):
            raise ValueError
        return self.gain * x + 0 * self.bias


SCALE = Exercise(
    chapter=7,
    signature="class Scale(width)",
    task="",
    reference=Scale,
    properties=(
        Property("it scales and shifts", 3, _scale_calls),
        Property("it refuses a width of 1", 1, lambda rng: [Call((n,), steps=()) for n in (1, 0)]),
    ),
    misconceptions=(
        Misconception("no bias", "The bias is not added.", _NoBias, symptom="the bias is lost"),
    ),
    hints=HINTS,
    minutes=5,
)


def scale(**changes: Any) -> type[nn.Module]:
    """A right class of another style, some of whose methods are replaced."""

    class Mine(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            if width < 2:
                raise ValueError("too narrow")
            self.register_parameter("bias", nn.Parameter(torch.empty(width).normal_()))
            self.register_parameter("gain", nn.Parameter(torch.empty(width).normal_()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.size(-1) != self.gain.numel():
                raise ValueError("no")
            return torch.addcmul(self.bias, x, self.gain)

    for name, method in changes.items():
        setattr(Mine, name, method)
    return Mine


def test_a_right_class_passes():
    score, verdict = points(SCALE, scale())
    assert score == 4, verdict.message


def _built(*, trained: bool = True, name: str = "bias", shared: bool = False, size: int = 0):
    def init(self: nn.Module, width: int) -> None:
        nn.Module.__init__(self)
        if width < 2:
            raise ValueError
        self.gain = nn.Parameter(torch.ones(width))
        bias = self.gain.data if shared else torch.zeros(width + size)
        setattr(self, name, nn.Parameter(bias, requires_grad=trained))

    return init


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"__init__": _built(name="shift")}, "its state dict has no bias"),
        ({"__init__": _built(trained=False)}, "not all that should be trained is a parameter"),
        ({"__init__": _built(shared=True)}, "parameters share their memory"),
        ({"__init__": _built(size=1)}, "bias has the wrong shape"),
        ({"forward": lambda self, x: self.gain * x + self.bias}, "output should raise ValueError"),
        ({"forward": lambda self, x: 1 / 0}, "the output raised ZeroDivisionError"),
        ({"forward": lambda self, x: x.shape}, "the output is a tuple of 2"),
        ({"forward": lambda self, x: self}, "the output is None"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_class_is_said(changes, words):
    score, verdict = points(SCALE, scale(**changes))
    assert words in verdict.message
    assert score < 4


def test_a_class_is_told_by_what_it_computes():
    verdict = points(SCALE, _NoBias)[1]
    assert verdict.misconception == "no bias"
    assert "the bias is lost" in verdict.feedback


def test_a_class_that_lets_every_width_pass_loses_that_point_only():
    class Mine(scale()):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            nn.Module.__init__(self)
            self.gain = nn.Parameter(torch.ones(width))
            self.bias = nn.Parameter(torch.ones(width))

    score, verdict = points(SCALE, Mine)
    assert score == 3
    assert "it accepts an input that calls for a ValueError" in verdict.message


def test_a_reference_class_is_no_answer():
    for answer in (Scale, lambda width: Scale(width), type("Mine", (Scale,), {})):
        score, verdict = points(SCALE, answer)
        assert score == 0
        assert "Write yours" in verdict.message


def test_what_came_before_a_step_is_told():
    message = points(SCALE, scale(forward=lambda self, x: self.gain * x + self.bias))[1].message
    assert (
        "After a look at its state, then loading a state, then calling it with((3, 2))" in message
    )


# Objects --------------------------------------------------------------------------------------


class Shelf:
    def __init__(self) -> None:
        self.things: list[int] = []

    def put(self, n: int) -> int:
        if n > 9:
            raise ValueError("too large")
        self.things.append(n)
        return len(self.things)

    def __len__(self) -> int:
        return len(self.things)


def fill(shelf: Any, numbers: list[int]) -> int:
    for n in numbers:
        shelf.put(n)
    return len(shelf)


FILL = Exercise(
    chapter=9,
    signature="fill(shelf, numbers) -> int",
    task="",
    reference=fill,
    properties=(
        Property(
            "it puts every number on the shelf, in order",
            1,
            lambda rng: [
                Call(
                    (
                        Stub(Shelf, "a shelf", ("put", "__len__"), counted=("put",)),
                        rng.integers(0, 9, n).tolist(),
                    )
                )
                for n in (2, 3, 5)
            ],
            watch=lambda call, events: (
                None
                if [e.args[0] for e in events] == call.args[1]
                else "the shelf does not hold the numbers in order"
            ),
        ),
    ),
    misconceptions=(),
    hints=HINTS,
    minutes=5,
)


def test_the_use_of_an_object_is_judged_by_what_it_saw():
    assert points(FILL, lambda shelf, numbers: [shelf.put(n) for n in numbers] and len(shelf))[0]

    def backwards(shelf, numbers):
        return fill_from(shelf, numbers[::-1])

    def fill_from(shelf, numbers):
        for n in numbers:
            shelf.put(n)
        return len(shelf)

    score, verdict = points(FILL, backwards)
    assert score == 0
    assert "the shelf does not hold the numbers in order" in verdict.message


def test_an_object_shows_nothing_but_its_methods():
    def peeks(shelf, numbers):
        return shelf.things

    assert "AttributeError" in points(FILL, peeks)[1].message
