"""Classes as answers: an instance is made, steps are taken on it, and each has its outcome.

The same steps are taken by a student's class and by the reference. An exception is an outcome too,
after which the next step is taken: "it says no, and is as it was" can be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from coursework import plain, tensors
from coursework.exercise import Call, Inspect, Load, New, Step, Use
from coursework.withhold import Forbidden, Withheld

GAVE, RAISED = "gave", "raised"  #: the first word of an outcome

_STEPS = {kind.__name__: kind for kind in (New, Inspect, Load, Use)}


def as_plain(steps: Sequence[Step] | None) -> Any:
    """Steps as plain values, to be sent."""
    return steps and tuple((type(step).__name__, dict(vars(step))) for step in steps)


def from_plain(told: Any) -> tuple[Step, ...] | None:
    """Steps as they were before `as_plain`."""
    return None if told is None else tuple(_STEPS[name](**fields) for name, fields in told)


def arguments_of(call: Call, *, spoiled: bool = True) -> Iterator[Any]:
    """All arguments of a call, those of its steps last; without those that a step spoils if so."""
    yield from call.args
    yield from call.kwargs.values()
    for step in call.steps or ():
        if isinstance(step, New) or (isinstance(step, Use) and (spoiled or not step.spoil)):
            yield from step.args
            yield from step.kwargs.values()


def take(
    instance: Any, answer: Callable[..., Any], steps: Sequence[Step], describe: Callable[..., Any]
) -> tuple[Any, ...]:
    """Take steps on an instance, and give their outcomes.

    Args:
        instance: of the class.
        answer: the class, for further instances.
        steps: what to do; their arguments may be changed.
        describe: makes plain words of an exception.
    """
    instances = [instance]
    outcomes: list[Any] = []
    for step in steps:
        try:
            if isinstance(step, New):
                instances.append(answer(*step.args, **step.kwargs))
                outcomes.append((GAVE, None))
            else:
                outcomes.append((GAVE, *_outcome(instances[step.on], step)))
        except (plain.NotPlain, Withheld, Forbidden):  # about the whole answer
            raise
        except BaseException as error:  # quit() in a method ends the step only
            raised = describe(error)
            outcomes.append((RAISED, raised.kinds, raised.message, raised.line))
    return tuple(outcomes)


def _outcome(instance: Any, step: Step) -> tuple[Any, ...]:
    if isinstance(step, Inspect):
        return (_inspect(instance),)
    if isinstance(step, Load):
        dtype = next(iter(step.state.values())).dtype
        instance.to(dtype)
        instance.load_state_dict(step.state, strict=True)
        instance.eval()
        return (None,)
    assert isinstance(step, Use)
    inputs = [a for a in (*step.args, *step.kwargs.values()) if tensors.has_floats(a)]
    if step.gradient:
        for tensor in inputs:
            tensor.requires_grad_()
    value = getattr(instance, step.method)(*step.args, **step.kwargs)
    gradients = None
    if step.gradient:
        parameters = [p for _, p in sorted(instance.named_parameters())]
        gradients = gradients_of(value, [*inputs, *parameters])
    given = plain.take(None if value is instance else value)
    if step.spoil:
        for tensor in inputs:
            tensor.data.fill_(float("nan"))
    return (given, gradients)


def _inspect(module: Any) -> dict[str, Any]:
    """What a module is made of."""
    state = module.state_dict(keep_vars=True)
    places: dict[int, list[str]] = {}
    for name, tensor in state.items():
        if tensor.numel():
            places.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    return {
        "shapes": {name: tuple(tensor.shape) for name, tensor in state.items()},
        "trained": sorted(name for name, p in module.named_parameters() if p.requires_grad),
        "shared": sorted(names for names in places.values() if len(names) > 1),
    }


@cache
def warm_up() -> None:
    """Differentiate once, so that what PyTorch loads for it is not charged to an answer."""
    import torch

    x = torch.zeros(1, requires_grad=True)
    gradients_of(2 * x, [x])


def gradients_of(value: Any, inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """A vector–Jacobian product: by each input, for one fixed random upstream gradient.

    Returns:
        plain tensors, zeros for an input that plays no part; None if nothing leads back at all.
    """
    import torch

    outputs = [t for t in _flat(value) if tensors.has_floats(t)]
    generator = torch.Generator().manual_seed(0)
    upstreams = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in outputs]
    joined = [(t, u) for t, u in zip(outputs, upstreams, strict=True) if t.requires_grad]
    if not joined:
        return None
    found = torch.autograd.grad(
        [t for t, _ in joined], inputs, [u for _, u in joined], allow_unused=True
    )
    return tuple(
        torch.zeros_like(x).detach() if g is None else plain.take(g)
        for x, g in zip(inputs, found, strict=True)
    )


def _flat(value: Any) -> Iterator[Any]:
    if type(value) is tuple or type(value) is list:
        for part in value:
            yield from _flat(part)
    else:
        yield value
