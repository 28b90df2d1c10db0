"""`gelu`: the bend between the two matrices."""

from __future__ import annotations

import math

import numpy as np
import torch

from attend.blocks import gelu
from coursework.exercise import Call, Exercise, Misconception, Property, differentiated
from coursework.exercises.block.tensors import normal

Rng = np.random.Generator


def _ordinary(rng: Rng) -> tuple[Call, ...]:
    return (
        Call((torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64),)),
        *(Call((normal(rng, *shape),)) for shape in ((3,), (2, 5), (7, 3, 2))),
        Call((normal(rng, 11, size=3.0),)),
    )


def _edges(rng: Rng) -> tuple[Call, ...]:
    ends = torch.tensor([-1e4, -40.0, -9.0, 9.0, 40.0, 1e4], dtype=torch.float64)
    return (
        Call((ends,)),
        Call((normal(rng, 2, 3, size=100.0),)),
        Call((normal(rng, 7, dtype=torch.float32),)),
        Call((normal(rng, 3, 5, size=30.0, dtype=torch.float32),)),
        Call((normal(rng, 0, 3),)),
    )


def _gradients(rng: Rng) -> tuple[Call, ...]:
    shapes = ((3,), (2, 5), (7, 3, 2), (11,))
    return differentiated([Call((normal(rng, *shape, size=2.0),)) for shape in shapes])


def _relu(x):
    return torch.relu(x)


def _tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sigmoid(x):
    return x * torch.sigmoid(1.702 * x)


def _silu(x):
    return x * torch.sigmoid(x)


def _probability_alone(x):
    return 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def _density(x):
    return x * torch.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _no_root_of_two(x):
    return 0.5 * x * (1 + torch.erf(x))


def _no_half(x):
    return x * (1 + torch.erf(x / math.sqrt(2)))


def _no_one(x):
    return 0.5 * x * torch.erf(x / math.sqrt(2))


def _detached(x):
    return x * 0.5 * (1 + torch.erf(x.detach() / math.sqrt(2)))


GELU = Exercise(
    chapter=7,
    signature="gelu(x) -> same shape",
    task="""\
The bend between the two matrices of the feed-forward part: every number $a$ becomes $a \\cdot
\\Phi(a)$, where $\\Phi(a) = \\frac{1}{2}\\left(1 + \\operatorname{erf}(a / \\sqrt 2)\\right)$ is
the probability that a standard normal number is smaller than $a$.

- `x` is a tensor of any shape. Shape and dtype of the result are those of `x`, float64 or float32;
  compute in that precision. Leave `x` as it is.
- The exact form is asked for, not one of its approximations. Numbers of ±10,000 must do no harm.
- The result can be differentiated.""",
    reference=gelu,
    properties=(
        Property("every number is multiplied by its Φ", 2, _ordinary),
        Property("numbers of ±10,000, float32 and empty tensors do no harm", 1, _edges, edge=True),
        Property("it can be differentiated", 1, _gradients),
    ),
    misconceptions=(
        Misconception(
            "ReLU",
            "This is ReLU: it cuts off at 0. GELU bends softly there, and dips below 0 for "
            "numbers a little under it.",
            _relu,
            symptom="your curve has a corner at 0",
        ),
        Misconception(
            "the approximation by tanh",
            "This is the approximation by tanh, with which GPT-2 was trained. It is off by up to "
            "5e-4; the exact form has erf.",
            _tanh,
            symptom="right to three digits, and no further",
        ),
        Misconception(
            "the approximation by a sigmoid",
            "This is the approximation x · σ(1.702 x), off by up to 0.02. The exact form has erf.",
            _sigmoid,
            symptom="right to one or two digits, and no further",
        ),
        Misconception(
            "SiLU",
            "This is SiLU (also called swish), x · σ(x). GELU has Φ, the normal distribution, in "
            "place of the sigmoid.",
            _silu,
            symptom="your curve bends too wide",
        ),
        Misconception(
            "Φ without x",
            "You return Φ(x) itself, which stays between 0 and 1. It is what x is multiplied by.",
            _probability_alone,
            symptom="your results never grow beyond 1",
        ),
        Misconception(
            "the density for the probability",
            "You multiply by the bell curve, the density. Φ is the area under it to the left of x.",
            _density,
            symptom="large numbers come out as 0",
        ),
        Misconception(
            "forgets the root of 2",
            "erf is not Φ: the root of 2 under x is missing. Without it the normal distribution "
            "has the variance ½.",
            _no_root_of_two,
            symptom="your curve bends too sharply",
        ),
        Misconception(
            "forgets the half",
            "Yours is twice too large: 1 + erf runs from 0 to 2, and a probability from 0 to 1.",
            _no_half,
            symptom="your results are twice too large",
        ),
        Misconception(
            "forgets the 1",
            "The 1 in 1 + erf is missing. Yours is even: negative numbers come out positive.",
            _no_one,
            symptom="negative numbers give positive results",
        ),
        Misconception(
            "treats Φ as a constant",
            "The values are right, but the gradient takes Φ for a constant. It depends on x: "
            "compute it with gradients on, without detach, item or no_grad.",
            _detached,
            symptom="the values are right, the gradients are not",
        ),
    ),
    hints=(
        "`torch.erf` exists. What do you do to its argument, and to its result, to get Φ?",
        "Divide x by the root of 2, take erf, add 1, halve: that is Φ. Multiply by x.",
        "`phi = 0.5 * (1 + torch.erf(...))`, and the result is `x * phi`.",
    ),
    minutes=5,
    returns=("the result",),
    keeps_dtype=True,
)
