"""`layer_norm`: each token brought to one size, then stretched and shifted."""

from __future__ import annotations

import numpy as np
import torch

from attend.blocks import layer_norm
from coursework.exercise import Call, Exercise, Misconception, Property, differentiated
from coursework.exercises.block.tensors import gains, normal, tokens

Rng = np.random.Generator


def _call(rng: Rng, *shape: int, size: float = 1.0, dtype=torch.float64, **kwargs) -> Call:
    D = shape[-1]
    x = tokens(rng, *shape, size=size, dtype=dtype)
    return Call((x, gains(rng, D, dtype), normal(rng, D, dtype=dtype)), kwargs)


def _sentences(rng: Rng) -> tuple[Call, ...]:
    return tuple(_call(rng, *shape) for shape in ((2, 3), (5, 7), (3, 4), (7, 2), (4, 11)))


def _leading(rng: Rng) -> tuple[Call, ...]:
    shapes = ((5,), (3, 2, 7), (2, 3, 5, 4), (7, 1, 3), (1, 2, 5))
    return tuple(_call(rng, *shape) for shape in shapes)


def _eps(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 2, 3, eps=0.5),
        _call(rng, 3, 5, eps=0.1),
        _call(rng, 5, 2, eps=2.0),
        _call(rng, 3, 7, size=1e-2),
        _call(rng, 2, 5, size=1e-3, eps=1e-4),
        _call(rng, 2, 3, 4, eps=1e-12),
    )


def _edges(rng: Rng) -> tuple[Call, ...]:
    constant = [_call(rng, *shape) for shape in ((2, 3), (3, 5), (2, 3, 7), (4, 1))]
    for call in constant:
        call.args[0][..., :1, :] = 3.0  # every feature of the first token
    return (
        *constant,
        _call(rng, 3, 4, dtype=torch.float32),
        _call(rng, 2, 7, 5, dtype=torch.float32),
        _call(rng, 5, 11, dtype=torch.float32, eps=0.25),
        _call(rng, 3, 5, size=100.0),
    )


def _far_from_zero(rng: Rng) -> tuple[Call, ...]:
    """Tokens whose mean is large beside their spread."""
    calls = tuple(_call(rng, *shape) for shape in ((1, 3), (2, 5), (3, 2, 7)))
    for call in calls:
        call.args[0].add_(1e6)
    return calls


def _gradients(rng: Rng) -> tuple[Call, ...]:
    return differentiated(
        (_call(rng, 2, 3), _call(rng, 5, 4), _call(rng, 2, 3, 7), _call(rng, 3, 5, eps=0.5))
    )


def _unbiased(x, gain, bias, eps=1e-5):
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def _eps_outside(x, gain, bias, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)
    deviation = torch.sqrt((centred**2).mean(dim=-1, keepdim=True))
    return centred / (deviation + eps) * gain + bias


def _unbiased_and_eps_outside(x, gain, bias, eps=1e-5):
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return gain * (x - mean) / (deviation + eps) + bias


def _over_tokens(x, gain, bias, eps=1e-5):
    mean = x.mean(dim=-2, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-2, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def _all_together(x, gain, bias, eps=1e-5):
    centred = x - x.mean()
    return centred / torch.sqrt((centred**2).mean() + eps) * gain + bias


def _no_gain(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps) + bias


def _no_bias(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps) * gain


def _bias_first(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return (centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + eps) + bias) * gain


def _no_mean(x, gain, bias, eps=1e-5):
    size = torch.sqrt((x**2).mean(dim=-1, keepdim=True) + eps)
    return x / size * gain + bias


def _spread_about_zero(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) * gain + bias


def _no_root(x, gain, bias, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)
    spread = (centred**2).mean(dim=-1, keepdim=True) + eps
    return centred / spread * gain + bias


def _difference_of_squares(x, gain, bias, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = (x**2).mean(-1, keepdim=True) - mean**2
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


def _eps_fixed(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * gain + bias


def _no_eps(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt() * gain + bias


def _detached(x, gain, bias, eps=1e-5):
    with torch.no_grad():
        mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + eps) * gain + bias


LAYER_NORM = Exercise(
    chapter=7,
    signature="layer_norm(x, gain, bias, eps=1e-5) -> (..., D)",
    task="""\
Bring every token to one size. With the mean $\\mu$ and the **biased** variance $\\sigma^2$ of a
token's D features (the mean of the squared distances from $\\mu$, divided by D and not by D − 1),
return
$\\frac{x - \\mu}{\\sqrt{\\sigma^2 + \\varepsilon}} \\cdot \\text{gain} + \\text{bias}$.

- `x` is a tensor `(..., D)` with any leading axes, or none; each row along the last axis is a token
  with a mean and a variance of its own. `gain` and `bias` are `(D,)`, `eps` is a number, passed by
  name.
- A token whose features are all equal has variance 0. It must come out as `bias`. A mean that is
  large beside the spread, 10⁶ beside 1, must cost no precision.
- Shape and dtype of the result are those of `x`, float64 or float32; compute in that precision.
  Leave the arguments as they are.
- The result can be differentiated with respect to `x`, `gain` and `bias`.
- Any function of PyTorch will do, `F.layer_norm` too; but written out, it will be of more use to
  you.""",
    reference=layer_norm,
    properties=(
        Property("every token is brought to one size, then stretched and shifted", 1, _sentences),
        Property("a mean that is large beside the spread costs no precision", 1, _far_from_zero),
        Property("any leading axes", 1, _leading),
        Property("eps is added to the variance, whatever it is", 1, _eps),
        Property("constant tokens, float32 and large numbers do no harm", 1, _edges, edge=True),
        Property("it can be differentiated", 1, _gradients),
    ),
    misconceptions=(
        Misconception(
            "divides the variance by D - 1",
            "This is what the unbiased variance gives, the default of torch.var and torch.std. "
            "Nothing is estimated here: the D features are all there are, so divide by D.",
            _unbiased,
            symptom="your tokens are a little too small, and the more so the narrower they are",
        ),
        Misconception(
            "adds eps outside the root",
            "You add eps to the standard deviation. It belongs to the variance, inside the root: "
            "there it counts as √eps for a token that is nearly constant, and hardly at all for "
            "others.",
            _eps_outside,
            symptom="right up to a few millionths, and wrong for tokens that are nearly constant",
        ),
        Misconception(
            "divides by std + eps with D - 1",
            "Two things at once: torch.std divides by D − 1 unless it is told not to, and eps "
            "belongs to the variance, inside the root.",
            _unbiased_and_eps_outside,
            symptom="your tokens are too small, and eps hardly acts",
        ),
        Misconception(
            "norms over the tokens",
            "You take mean and variance over the tokens, one for each feature. Each *token* has "
            "its own, over its D features: the last axis.",
            _over_tokens,
            symptom="a token's result depends on the other tokens",
        ),
        Misconception(
            "norms the whole array together",
            "You take one mean and one variance of all numbers. Each token has its own: reduce the "
            "last axis only, and keep it (`keepdim=True`).",
            _all_together,
            symptom="a token's result depends on the other tokens",
        ),
        Misconception(
            "forgets the gain",
            "The normed token is right, but `gain` is missing: each feature is stretched by its "
            "own before the bias is added.",
            _no_gain,
            symptom="all features come out at one size",
        ),
        Misconception(
            "forgets the bias",
            "The bias is missing: it is added last.",
            _no_bias,
            symptom="every token has a mean of about 0",
        ),
        Misconception(
            "adds the bias before the gain",
            "You stretch the bias as well. First the gain, then the bias.",
            _bias_first,
            symptom="the bias is stretched",
        ),
        Misconception(
            "does not subtract the mean",
            "This is RMSNorm: you divide by the root mean square and leave the mean where it is. "
            "LayerNorm subtracts the mean first.",
            _no_mean,
            symptom="the mean of a token is still there",
        ),
        Misconception(
            "measures the spread about 0",
            "You subtract the mean, but then divide by the root mean square of the token as it was "
            "before. The variance is measured about the mean.",
            _spread_about_zero,
            symptom="tokens with a large mean come out too small",
        ),
        Misconception(
            "divides by the variance",
            "You divide by the variance. Its root is what has the size of the features.",
            _no_root,
            symptom="large tokens come out small, and small ones large",
        ),
        Misconception(
            "subtracts the squared mean from the mean square",
            "On paper E[x²] − μ² is the variance, too. A computer subtracts two large numbers "
            "there, and what is left is their rounding. Subtract the mean first, then square.",
            _difference_of_squares,
            symptom="tokens whose mean is large beside their spread come out wrong",
        ),
        Misconception(
            "fixes eps at 1e-5",
            "`eps` is not used: yours is always 1e-5. Models were trained with 1e-5, 1e-6 or "
            "1e-12, and each needs its own.",
            _eps_fixed,
            symptom="another eps changes nothing",
        ),
        Misconception(
            "leaves eps out",
            "eps is missing. A token whose features are equal has variance 0, and 0/0 is not a "
            "number; nearly equal ones are blown up.",
            _no_eps,
            symptom="right up to a few millionths, and NaN for a constant token",
        ),
        Misconception(
            "treats mean and variance as constants",
            "The values are right, but the gradient takes mean and variance for constants. They "
            "depend on x: compute them with gradients on, without detach, item or no_grad.",
            _detached,
            symptom="the values are right, the gradients are not",
        ),
    ),
    hints=(
        "Which axis holds the features of one token? Mean and variance have one number a token.",
        "Subtract the mean of the last axis (`keepdim=True`). The variance is the mean of the "
        "squares of what is left. Add eps, take the root, divide, multiply by gain, add bias.",
        "`centred = x - x.mean(-1, keepdim=True)`; `variance = (centred ** 2).mean(-1, "
        "keepdim=True)`; what remains is one line with `torch.sqrt(variance + eps)`.",
    ),
    minutes=10,
    returns=("the result",),
    keeps_dtype=True,
)
