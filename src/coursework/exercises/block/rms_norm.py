"""`rms_norm`: the half of LayerNorm that newer models kept."""

from __future__ import annotations

import numpy as np
import torch

from attend.blocks import rms_norm
from coursework.exercise import Call, Exercise, Misconception, Property, differentiated
from coursework.exercises.block.tensors import gains, tokens

Rng = np.random.Generator


def _call(rng: Rng, *shape: int, size: float = 1.0, dtype=torch.float64, **kwargs) -> Call:
    x = tokens(rng, *shape, size=size, dtype=dtype)
    return Call((x, gains(rng, shape[-1], dtype)), kwargs)


def _sentences(rng: Rng) -> tuple[Call, ...]:
    shapes = ((2, 3), (5, 7), (3, 4), (7, 2), (5,), (3, 2, 7), (2, 3, 5, 4))
    return tuple(_call(rng, *shape) for shape in shapes)


def _eps(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 2, 3, eps=0.5),
        _call(rng, 3, 5, eps=0.1),
        _call(rng, 5, 2, eps=2.0),
        _call(rng, 3, 7, size=1e-2),
        _call(rng, 2, 5, size=1e-3),
        _call(rng, 2, 3, 4, eps=1e-12),
    )


def _edges(rng: Rng) -> tuple[Call, ...]:
    zero = [_call(rng, *shape) for shape in ((2, 3), (3, 5), (2, 3, 7))]
    for call in zero:
        call.args[0][..., :1, :] = 0.0
    return (
        *zero,
        _call(rng, 4, 1),
        _call(rng, 3, 4, dtype=torch.float32),
        _call(rng, 2, 7, 5, dtype=torch.float32),
        _call(rng, 5, 11, dtype=torch.float32, eps=0.25),
        _call(rng, 3, 5, size=1e4),
    )


def _gradients(rng: Rng) -> tuple[Call, ...]:
    return differentiated(
        (_call(rng, 2, 3), _call(rng, 5, 4), _call(rng, 2, 3, 7), _call(rng, 3, 5, eps=0.5))
    )


def _mean_subtracted(x, gain, eps=1e-6):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps) * gain


def _eps_outside(x, gain, eps=1e-6):
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * gain


def _length(x, gain, eps=1e-6):
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + eps) * gain


def _length_without_eps(x, gain, eps=1e-6):
    return torch.nn.functional.normalize(x, dim=-1) * gain


def _no_root(x, gain, eps=1e-6):
    return x / (x.square().mean(-1, keepdim=True) + eps) * gain


def _no_gain(x, gain, eps=1e-6):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


def _one_more(x, gain, eps=1e-6):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * (1 + gain)


def _over_tokens(x, gain, eps=1e-6):
    return x / torch.sqrt(x.square().mean(-2, keepdim=True) + eps) * gain


def _all_together(x, gain, eps=1e-6):
    return x / torch.sqrt(x.square().mean() + eps) * gain


def _standard_deviation(x, gain, eps=1e-6):
    return x / torch.sqrt(x.var(-1, correction=0, keepdim=True) + eps) * gain


def _eps_of_layer_norm(x, gain, eps=1e-5):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps) * gain


def _eps_fixed(x, gain, eps=1e-6):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gain


def _no_eps(x, gain, eps=1e-6):
    return x / x.square().mean(-1, keepdim=True).sqrt() * gain


def _detached(x, gain, eps=1e-6):
    size = torch.sqrt(x.detach().square().mean(-1, keepdim=True) + eps)
    return x / size * gain


RMS_NORM = Exercise(
    chapter=7,
    signature="rms_norm(x, gain, eps=1e-6) -> (..., D)",
    task="""\
The norm of Llama and most models since: divide every token by its root mean square, and leave its
mean where it is. Return $\\frac{x}{\\sqrt{m + \\varepsilon}} \\cdot \\text{gain}$, where $m$ is the
mean of the squares of the token's D features.

- `x` is a tensor `(..., D)` with any leading axes, or none; each row along the last axis is a
  token. `gain` is `(D,)`, `eps` is a number, passed by name. Its default is 1e-6.
- A token of zeros stays one.
- Shape and dtype of the result are those of `x`, float64 or float32; compute in that precision.
  Leave the arguments as they are.
- The result can be differentiated with respect to `x` and `gain`.""",
    reference=rms_norm,
    properties=(
        Property("every token is brought to one size, then stretched", 2, _sentences),
        Property("eps is added to the mean square, whatever it is", 1, _eps),
        Property("tokens of zeros, float32 and large numbers do no harm", 1, _edges, edge=True),
        Property("it can be differentiated", 1, _gradients),
    ),
    misconceptions=(
        Misconception(
            "subtracts the mean",
            "This is LayerNorm without its bias. RMSNorm does not touch the mean: it divides, and "
            "that is all.",
            _mean_subtracted,
            symptom="the mean of each token is gone",
        ),
        Misconception(
            "adds eps outside the root",
            "You add eps to the root mean square. It belongs to the mean square, inside the root.",
            _eps_outside,
            symptom="right up to a few millionths, and wrong for small tokens",
        ),
        Misconception(
            "divides by the length",
            "You divide by the root of the *sum* of the squares, the token's length. The root "
            "*mean* square is smaller by √D, and keeps the features at size 1 whatever the width.",
            _length,
            symptom="your tokens are too small, and the more so the wider they are",
            also=(_length_without_eps,),
        ),
        Misconception(
            "divides by the mean square",
            "The root is missing: you divide by the mean of the squares. Its root is what has the "
            "size of the features.",
            _no_root,
            symptom="large tokens come out small, and small ones large",
        ),
        Misconception(
            "forgets the gain",
            "`gain` is missing: each feature is stretched by its own.",
            _no_gain,
            symptom="all features come out at one size",
        ),
        Misconception(
            "adds 1 to the gain",
            "You multiply by 1 + gain. Some models store their gains that way (Gemma does); here "
            "the gain is the factor itself.",
            _one_more,
            symptom="your tokens are about twice as large as they should be",
        ),
        Misconception(
            "norms over the tokens",
            "You take the mean square over the tokens, one for each feature. Each *token* has its "
            "own, over its D features: the last axis.",
            _over_tokens,
            symptom="a token's result depends on the other tokens",
        ),
        Misconception(
            "norms the whole array together",
            "You take one mean square of all numbers. Each token has its own: reduce the last axis "
            "only, and keep it (`keepdim=True`).",
            _all_together,
            symptom="a token's result depends on the other tokens",
        ),
        Misconception(
            "divides by the standard deviation",
            "You divide by the standard deviation, which is measured about the mean. The root mean "
            "square is measured about 0.",
            _standard_deviation,
            symptom="tokens with a large mean come out too large",
        ),
        Misconception(
            "has LayerNorm's default for eps",
            "Your default for eps is 1e-5, that of LayerNorm. The signature has 1e-6.",
            _eps_of_layer_norm,
            symptom="right if eps is given, and off by millionths if not",
        ),
        Misconception(
            "fixes eps at 1e-6",
            "`eps` is not used: yours is always 1e-6. Models were trained with 1e-5 or 1e-6, and "
            "each needs its own.",
            _eps_fixed,
            symptom="another eps changes nothing",
        ),
        Misconception(
            "leaves eps out",
            "eps is missing. A token of zeros becomes 0/0, which is not a number, and a tiny one "
            "is blown up.",
            _no_eps,
            symptom="right up to a millionth, and NaN for a token of zeros",
        ),
        Misconception(
            "treats the size as a constant",
            "The values are right, but the gradient takes the root mean square for a constant. It "
            "depends on x: compute it with gradients on, without detach, item or no_grad.",
            _detached,
            symptom="the values are right, the gradients are not",
        ),
    ),
    hints=(
        "Take your `layer_norm` and cross out what this formula does not have.",
        "Square, take the mean over the last axis (`keepdim=True`), add eps, take the root, divide "
        "x by it, multiply by gain.",
        "`torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)` is what x has to be multiplied by "
        "before the gain.",
    ),
    minutes=5,
    returns=("the result",),
    keeps_dtype=True,
)
