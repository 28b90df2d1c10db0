"""`swiglu`: the feed-forward part of a Llama."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attend.blocks import swiglu
from coursework.exercise import Call, Exercise, Misconception, Property, differentiated


def arguments(
    rng: np.random.Generator,
    *leading: int,
    D: int,
    F: int,
    dtype: torch.dtype = torch.float64,
    size: float = 1.0,
) -> Call:
    """Tokens (..., D) and three matrices, such that the hidden numbers are about as large as x."""

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.from_numpy(scale * rng.standard_normal(shape)).to(dtype)

    return Call(
        (
            normal(*leading, D, scale=size),
            normal(D, F, scale=1.3 / D**0.5),
            normal(D, F, scale=1.3 / D**0.5),
            normal(F, D, scale=F**-0.5),
        )
    )


def _sentences(rng: np.random.Generator) -> tuple[Call, ...]:
    sizes = ((3, 2, 5), (2, 7, 3), (5, 3, 11), (1, 5, 7), (7, 11, 13))
    return tuple(arguments(rng, T, D=D, F=F) for T, D, F in sizes)


def _leading_axes(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        arguments(rng, D=5, F=3),
        arguments(rng, 2, 3, D=5, F=7),
        arguments(rng, 3, 2, 5, D=7, F=11),
        arguments(rng, 5, 1, D=3, F=2),
    )


def _to_be_differentiated(rng: np.random.Generator) -> tuple[Call, ...]:
    return differentiated(
        (
            arguments(rng, 2, D=3, F=5),
            arguments(rng, 5, D=7, F=2),
            arguments(rng, 2, 3, D=5, F=7),
        )
    )


def _other_floats(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        arguments(rng, 3, D=5, F=7, dtype=torch.float32),
        arguments(rng, 2, 5, D=7, F=3, dtype=torch.float32),
        arguments(rng, 3, D=2, F=5, size=3e3),
        arguments(rng, 5, D=3, F=7, size=3e3),
        arguments(rng, 7, D=5, F=2, size=3e3, dtype=torch.float32),
    )


def _exchanged(x, w_gate, w_up, w_down):
    return ((x @ w_gate) * F.silu(x @ w_up)) @ w_down


def _gelu(x, w_gate, w_up, w_down):
    return (F.gelu(x @ w_gate) * (x @ w_up)) @ w_down


def _gelu_tanh(x, w_gate, w_up, w_down):
    return (F.gelu(x @ w_gate, approximate="tanh") * (x @ w_up)) @ w_down


def _sigmoid(x, w_gate, w_up, w_down):
    return (torch.sigmoid(x @ w_gate) * (x @ w_up)) @ w_down


def _relu(x, w_gate, w_up, w_down):
    return (F.relu(x @ w_gate) * (x @ w_up)) @ w_down


def _no_activation(x, w_gate, w_up, w_down):
    return ((x @ w_gate) * (x @ w_up)) @ w_down


def _of_the_product(x, w_gate, w_up, w_down):
    return F.silu((x @ w_gate) * (x @ w_up)) @ w_down


def _on_both(x, w_gate, w_up, w_down):
    return (F.silu(x @ w_gate) * F.silu(x @ w_up)) @ w_down


def _added(x, w_gate, w_up, w_down):
    return (F.silu(x @ w_gate) + x @ w_up) @ w_down


def _on_top(x, w_gate, w_up, w_down):
    return x + (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


def _no_up(x, w_gate, w_up, w_down):
    return F.silu(x @ w_gate) @ w_down


def _at_the_end(x, w_gate, w_up, w_down):
    return F.silu(((x @ w_gate) * (x @ w_up)) @ w_down)


def _overflows(x, w_gate, w_up, w_down):
    gate = x @ w_gate
    return (gate * torch.exp(gate) / (1 + torch.exp(gate)) * (x @ w_up)) @ w_down


def _computed_in_float32(x, w_gate, w_up, w_down):
    x, w_gate, w_up, w_down = x.float(), w_gate.float(), w_up.float(), w_down.float()
    return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


SWIGLU = Exercise(
    chapter=12,
    signature="swiglu(x, w_gate, w_up, w_down) -> (..., D)",
    task="""\
The feed-forward part of a Llama. Each token is projected twice to the hidden width `F`. The one
projection, after the activation, is a *gate*: entry by entry it says how much of the other is let
through. The third matrix brings the product back:

$$\\bigl(\\operatorname{silu}(x W_\\text{gate}) \\odot x W_\\text{up}\\bigr) W_\\text{down},
\\qquad \\operatorname{silu}(a) = \\frac{a}{1 + e^{-a}}.$$

- `x` is `(..., D)` with any number of leading axes, none included; `w_gate` and `w_up` are `(D,
  F)`, `w_down` is `(F, D)`, all used as `x @ w`. There are no biases.
- All are PyTorch tensors of one dtype, float64 or float32. Return a tensor `(..., D)` of that
  dtype, computed in it.
- Numbers of several thousand in front of the gate must do no harm. Leave the arguments as they are.
- The result must be differentiable with respect to all four.""",
    reference=swiglu,
    properties=(
        Property("a gate for each hidden number of each token", 2, _sentences),
        Property("any leading axes, and none", 1, _leading_axes),
        Property("it can be differentiated", 1, _to_be_differentiated),
        Property("float32, and large numbers", 1, _other_floats, edge=True),
    ),
    misconceptions=(
        Misconception(
            "exchanges gate and up",
            "You put the activation on the projection by `w_up`. The gate is the projection that "
            "goes through the activation, and it is made by `w_gate`.",
            _exchanged,
            symptom="gate and up have changed places",
        ),
        Misconception(
            "opens the gate with GELU",
            "This is a gate with GELU, which looks almost the same as SiLU and is another "
            "function. SiLU is a times the *logistic* function of a, not times the normal "
            "distribution's.",
            _gelu,
            symptom="your numbers are near, but not right",
            also=(_gelu_tanh,),
        ),
        Misconception(
            "opens the gate with a sigmoid",
            "Your gate is σ(a), between 0 and 1. SiLU is a · σ(a): the gate keeps the size of what "
            "it was computed from.",
            _sigmoid,
            symptom="your gate never exceeds 1",
        ),
        Misconception(
            "opens the gate with ReLU",
            "Your gate is max(a, 0). SiLU is smooth, and slightly negative for negative a.",
            _relu,
            symptom="your gate is shut for all negative numbers",
        ),
        Misconception(
            "leaves out the activation",
            "You multiply the two projections as they are. Without the activation nothing opens or "
            "shuts: the gate goes through SiLU first.",
            _no_activation,
            symptom="your gate has no bend",
        ),
        Misconception(
            "takes SiLU of the product",
            "You multiply first and take SiLU then. Only the gate goes through it; what is let "
            "through is a plain projection.",
            _of_the_product,
            symptom="the activation stands in the wrong place",
        ),
        Misconception(
            "takes SiLU of both",
            "You take SiLU of both projections. Only the gate goes through it; what is let through "
            "is a plain projection.",
            _on_both,
            symptom="there is one activation too many",
        ),
        Misconception(
            "adds gate and up",
            "You add the two projections. A gate multiplies, entry by entry: where it is 0, "
            "nothing passes.",
            _added,
            symptom="your gate lets everything pass",
        ),
        Misconception(
            "adds what came in",
            "You add x. The block does that, once; what is asked for here is the branch alone.",
            _on_top,
            symptom="the stream is in the result",
        ),
        Misconception(
            "forgets up",
            "This is a feed-forward part with two matrices. SwiGLU has a third, `w_up`, that makes "
            "what the gate lets through.",
            _no_up,
            symptom="w_up makes no difference",
        ),
        Misconception(
            "takes SiLU at the end",
            "You take SiLU of the result. It belongs to the gate, before the product and before "
            "`w_down`.",
            _at_the_end,
            symptom="the activation stands in the wrong place",
        ),
        Misconception(
            "overflows",
            "exp of a large number is infinite, and infinite divided by infinite is not a number. "
            "Write the logistic function with exp(−a), or use PyTorch's.",
            _overflows,
            symptom="large numbers make NaN",
        ),
        Misconception(
            "computes in float32",
            "You compute in float32 whatever comes in. Compute in the dtype of the arguments.",
            _computed_in_float32,
            symptom="the dtype of the arguments is lost",
        ),
    ),
    hints=(
        "How many matrices does a token meet on its way, and which of them one after the other?",
        "Two products with `x` side by side, both of width F. One of them goes through SiLU, then "
        "they are multiplied entry by entry, then comes the third matrix.",
        "`torch.nn.functional.silu` is there. With `gate = x @ w_gate` and `up = x @ w_up`, the "
        "rest is one product of entries and one of matrices.",
    ),
    minutes=8,
    keeps_dtype=True,
)
