"""Whatever an answer is, does or returns: a verdict comes out, and it is no pass."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache, partial

import numpy as np
import pytest
import torch

from coursework.answer import LocalAnswer, run_here
from coursework.evaluate import evaluate_exercise

from .declared import EXERCISES, RIGHT, every_exercise

pytestmark = pytest.mark.slow


def judged(exercise, answer):
    """The verdict on the inputs of one seed: enough for answers that are wrong on all."""
    return evaluate_exercise(exercise, answer, (1,))


@pytest.fixture
def short_deadline(monkeypatch):
    """An endless loop costs a test a tenth of a second."""
    module = importlib.import_module("coursework.evaluate")
    monkeypatch.setattr(module, "LocalAnswer", partial(LocalAnswer, deadline=0.1))


class AlwaysEqual:
    """Equal to everything, whatever is asked of it."""

    def __eq__(self, other):
        return True

    __hash__ = None

    def __array__(self, *args, **kwargs):
        raise AssertionError("nobody may turn this into an array")


class Disguised(np.ndarray):
    """An array whose operators say what one wants to hear."""

    def __eq__(self, other):
        return np.ones(self.shape, dtype=bool)

    def __array_ufunc__(self, *args, **kwargs):
        return np.zeros(self.shape)


def _raises(*args, **kwargs):
    raise RuntimeError("no")


def _quits(*args, **kwargs):
    raise SystemExit(0)


def _loops(*args, **kwargs):
    while True:
        pass


def _recurses(*args, **kwargs):
    return _recurses(*args, **kwargs)


def _nothing_right(*args, **kwargs):
    class Own(BaseException):
        def __str__(self):
            raise ValueError

    raise Own


NONSENSE = (
    None, 0, 1, -1, 2.5, True, "text", b"", [], (), {}, (None, None), (None, None, None), [1], 1j,
    float("nan"), 10**1000, AlwaysEqual(), (AlwaysEqual(), AlwaysEqual()), object(), print,
    np.zeros(0), np.array(0.0), np.array(["a"]), np.array([None]), np.zeros((2, 3)),
    np.zeros(3).view(Disguised), np.zeros(1, dtype=[("a", float)]), float, {1: [2]}, {"a"}, ...,
)  # fmt: skip


@every_exercise
@pytest.mark.parametrize("value", NONSENSE, ids=lambda v: f"{type(v).__name__}")
def test_nonsense_is_a_failed_verdict(exercise, value):
    verdict = judged(exercise, lambda *args, **kwargs: value)
    assert not verdict.passed
    assert verdict.misconception in {None, *_constant_misconceptions(exercise)}


@cache  # the source of a class takes a second to find
def _constant_misconceptions(exercise):
    """Misconceptions that give one constant whatever is asked, as nonsense does."""
    return [
        m.name
        for m in exercise.misconceptions
        if re.search(r"\n    return (True|False)\n*$", inspect.getsource(m.function))
    ]


@every_exercise
@pytest.mark.parametrize(
    "answer", (_raises, _quits, _recurses, _nothing_right, None, 3, "no function", AlwaysEqual())
)
def test_what_cannot_be_called_or_raises_is_a_failed_verdict(exercise, answer):
    verdict = judged(exercise, answer)
    assert verdict.points == 0
    assert verdict.misconception is None


@every_exercise
def test_the_wrong_number_of_arguments_is_a_failed_verdict(exercise):
    verdict = judged(exercise, lambda: None)
    assert verdict.points == 0
    assert "TypeError" in verdict.message


@every_exercise
def test_an_endless_loop_is_a_failed_verdict(exercise, short_deadline):
    verdict = judged(exercise, _loops)
    assert verdict.points == 0
    assert "too long" in verdict.message


def _converted(right, convert):
    """A right answer whose arrays are handed over as something else."""

    def change(value):
        if isinstance(value, (tuple, list)):
            return tuple(change(v) for v in value)
        if isinstance(value, torch.Tensor) and value.ndim:
            other = convert(value.detach().numpy())
            return torch.from_numpy(other) if _fits_a_tensor(other) else other
        return convert(value) if isinstance(value, np.ndarray) and value.ndim else value

    return lambda *args, **kwargs: change(right(*args, **kwargs))


def _fits_a_tensor(value):
    return type(value) is np.ndarray and value.dtype.kind in "biufc"


#: Of an array. Numbers of a tensor go through an array and come back as a tensor where they can.
WRONG_KINDS = {
    "lists": lambda a: a.tolist(),
    "tensors": lambda a: torch.from_numpy(np.ascontiguousarray(a)),
    "a subclass of ndarray": lambda a: a.view(Disguised),
    "one axis more": lambda a: a[None],
    "one axis less": lambda a: a.reshape(-1) if a.ndim > 1 else a.sum(),
    "objects": lambda a: a.astype(object),
    "text": lambda a: a.astype(str),
    "NaN": lambda a: a * np.nan if a.dtype.kind == "f" else a.astype(float) * np.nan,
    "one number for all": lambda a: a.flat[0] if a.size else None,
    "zeros": lambda a: np.zeros_like(a),
    "something added": lambda a: a + 1,
    "half precision": lambda a: a.astype(np.float16).astype(a.dtype),
    "complex": lambda a: a.astype(complex),
}


def _output(exercise):
    call = exercise.properties[0].calls(np.random.default_rng(0))[-1]
    value = run_here(RIGHT[exercise.id][0], call).value
    return value if isinstance(value, (tuple, list)) else [value]


def _wrong_kinds_of(exercise):
    """The conversions that change what this exercise returns."""
    if exercise.is_class:
        return
    outputs = [v for v in _output(exercise) if np.ndim(v)]
    tensors = [v for v in outputs if isinstance(v, torch.Tensor)]
    arrays = [v.detach().numpy() for v in tensors] or [
        v for v in outputs if isinstance(v, np.ndarray)
    ]
    for kind in WRONG_KINDS if arrays else ():
        if kind == "tensors" and tensors:
            continue
        if kind != "half precision" or any(a.dtype.kind == "f" for a in arrays):
            yield kind


@pytest.mark.parametrize(
    ("exercise", "kind"),
    [
        pytest.param(e, kind, id=f"{e.id}-{kind}")
        for e in EXERCISES
        if "rng" not in e.parameters
        for kind in _wrong_kinds_of(e)
    ],
)
def test_right_numbers_in_the_wrong_kind_are_wrong(exercise, kind):
    verdict = judged(exercise, _converted(RIGHT[exercise.id][0], WRONG_KINDS[kind]))
    assert not verdict.passed
