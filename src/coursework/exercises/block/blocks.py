"""`pre_norm_block` and `post_norm_block`: in which order the four parts of a block are joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attend.blocks import post_norm_block, pre_norm_block
from coursework.exercise import (
    Call,
    Callback,
    Exercise,
    Misconception,
    Property,
    differentiated,
)
from coursework.exercises.block.tensors import tokens

Rng = np.random.Generator
Part = Callable[[Tensor], Tensor]

# The parts. They live with the judge; no two of them can change places unnoticed.


def _mean_so_far(x: Tensor) -> Tensor:
    count = torch.arange(1, x.shape[-2] + 1, dtype=x.dtype)[:, None]
    return torch.tanh(x).cumsum(-2) / count


def _from_the_token_before(x: Tensor) -> Tensor:
    before = torch.cat([torch.zeros_like(x[..., :1, :]), x[..., :-1, :]], dim=-2)
    return 0.5 * x + torch.sin(before)


def _waves(x: Tensor) -> Tensor:
    return torch.sin(2 * x) + 0.5 * x.roll(1, dims=-1)


def _bends(x: Tensor) -> Tensor:
    return torch.tanh(x.flip(-1)) - 0.25 * x**2


def _to_size_one(x: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 0.1)


def _centred(x: Tensor) -> Tensor:
    return 0.7 * (x - x.mean(-1, keepdim=True)) + 0.2


def _into_a_box(x: Tensor) -> Tensor:
    return x / (1 + x.abs())


def _normed_and_shifted(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return 1.5 * centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 0.1) - 0.3


def _parts(attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> tuple[Callback, ...]:
    named = {"attention": attention, "mlp": mlp, "norm_1": norm_1, "norm_2": norm_2}
    return tuple(
        Callback(function, name, counted=True, differentiable=True)
        for name, function in named.items()
    )


ONE = _parts(_mean_so_far, _waves, _to_size_one, _centred)
OTHER = _parts(_from_the_token_before, _bends, _normed_and_shifted, _into_a_box)


def _call(rng: Rng, parts: tuple[Callback, ...], *shape: int, dtype=torch.float64) -> Call:
    return Call((tokens(rng, *shape, dtype=dtype), *parts))


def _sentences(rng: Rng) -> tuple[Call, ...]:
    shapes = ((2, 3), (3, 5), (5, 2), (7, 4), (3, 2))
    return tuple(
        _call(rng, (ONE, OTHER)[i % 2], *shape) for i, shape in enumerate((*shapes, (4, 7)))
    )


def _batches(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, ONE, 2, 3, 5),
        _call(rng, OTHER, 3, 2, 4, 7),
        _call(rng, OTHER, 5, 1, 3),
        _call(rng, ONE, 3, 4, dtype=torch.float32),
        _call(rng, OTHER, 2, 5, 3, dtype=torch.float32),
    )


def _gradients(rng: Rng) -> tuple[Call, ...]:
    return differentiated(
        (
            _call(rng, ONE, 2, 3),
            _call(rng, OTHER, 3, 5),
            _call(rng, ONE, 2, 4, 3),
            _call(rng, OTHER, 5, 2),
        )
    )


NAMES = ("attention", "mlp", "norm_1", "norm_2")


def _called_once(call: Call, events: Sequence[Any]) -> str | None:
    """What is wrong with the calls of the four parts."""
    called = [event.stub for event in events]
    for name in NAMES:
        if called.count(name) != 1:
            often = "never" if name not in called else "more than once"
            return f"{name} is called {often}"
    if called.index("mlp") < called.index("attention"):
        return "mlp is called before attention"
    return None


def _properties(first: str) -> tuple[Property, ...]:
    return (
        Property(first, 2, _sentences),
        Property("any leading axes, and float32", 1, _batches),
        Property(
            "each part is called exactly once, attention before mlp",
            1,
            _sentences,
            watch=_called_once,
        ),
        Property("gradients reach x along every way", 1, _gradients),
    )


TASK = """\
- `x` is a tensor `(..., T, D)`. `attention`, `mlp`, `norm_1` and `norm_2` are functions that take
  one tensor and return one of the same shape. Call each **exactly once**: attention first, with
  `norm_1`; then mlp, with `norm_2`. What they compute is none of your business, and they need not
  be what their names say.
- Shape and dtype of the result are those of `x`. Leave `x` as it is: no `+=`.
- The result can be differentiated with respect to `x`."""


# What learners write ---------------------------------------------------------------------------


def _pre(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))


def _post(x, attention, mlp, norm_1, norm_2):
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def _pre_no_residual(x, attention, mlp, norm_1, norm_2):
    return mlp(norm_2(attention(norm_1(x))))


def _pre_no_first_residual(x, attention, mlp, norm_1, norm_2):
    x = attention(norm_1(x))
    return x + mlp(norm_2(x))


def _pre_no_second_residual(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_1(x))
    return mlp(norm_2(x))


def _pre_norm_1_twice(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_1(x))
    return x + mlp(norm_1(x))


def _pre_norms_exchanged(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_2(x))
    return x + mlp(norm_1(x))


def _pre_inside(x, attention, mlp, norm_1, norm_2):
    x = norm_1(x)
    x = x + attention(x)
    x = norm_2(x)
    return x + mlp(x)


def _pre_parallel(x, attention, mlp, norm_1, norm_2):
    return x + attention(norm_1(x)) + mlp(norm_2(x))


def _pre_from_the_start(x, attention, mlp, norm_1, norm_2):
    return x + mlp(norm_2(x + attention(norm_1(x))))


def _mlp_first(x, attention, mlp, norm_1, norm_2):
    x = x + mlp(norm_2(x))
    return x + attention(norm_1(x))


def _after_the_part(x, attention, mlp, norm_1, norm_2):
    x = x + norm_1(attention(x))
    return x + norm_2(mlp(x))


def _pre_called_twice(x, attention, mlp, norm_1, norm_2):
    return x + attention(norm_1(x)) + mlp(norm_2(x + attention(norm_1(x))))


def _pre_in_place(x, attention, mlp, norm_1, norm_2):
    x += attention(norm_1(x))
    x += mlp(norm_2(x))
    return x


def _post_no_residual(x, attention, mlp, norm_1, norm_2):
    return norm_2(mlp(norm_1(attention(x))))


def _post_no_first_residual(x, attention, mlp, norm_1, norm_2):
    x = norm_1(attention(x))
    return norm_2(x + mlp(x))


def _post_no_second_residual(x, attention, mlp, norm_1, norm_2):
    x = norm_1(x + attention(x))
    return norm_2(mlp(x))


def _post_norm_1_twice(x, attention, mlp, norm_1, norm_2):
    x = norm_1(x + attention(x))
    return norm_1(x + mlp(x))


def _post_norms_exchanged(x, attention, mlp, norm_1, norm_2):
    x = norm_2(x + attention(x))
    return norm_1(x + mlp(x))


def _post_from_the_start(x, attention, mlp, norm_1, norm_2):
    return norm_2(x + mlp(norm_1(x + attention(x))))


def _post_last_norm_only(x, attention, mlp, norm_1, norm_2):
    x = x + attention(x)
    return norm_2(x + mlp(x))


def _post_mlp_first(x, attention, mlp, norm_1, norm_2):
    x = norm_2(x + mlp(x))
    return norm_1(x + attention(x))


def _post_called_twice(x, attention, mlp, norm_1, norm_2):
    return norm_2(norm_1(x + attention(x)) + mlp(norm_1(x + attention(x))))


def _post_in_place(x, attention, mlp, norm_1, norm_2):
    x += attention(x)
    x = norm_1(x)
    x += mlp(x)
    return norm_2(x)


_IN_PLACE = (
    "You write into x: `x += …` changes the tensor of whoever called you, and autograd refuses it. "
    "`x = x + …` makes a new one."
)
_TWICE = (
    "The result is right, but a part is called more than once. Keep the sum in a variable: "
    "attention is the dearest part of a block, and with dropout two calls would not even agree."
)

PRE_NORM_BLOCK = Exercise(
    chapter=7,
    signature="pre_norm_block(x, attention, mlp, norm_1, norm_2) -> (..., T, D)",
    task="""\
Join the four parts of a block as GPT-2, Llama and nearly every model since do: **pre-norm**. Each
of the two parts reads a *normed copy* of the stream, and what it returns is *added* to the stream,
which itself is never normed.

"""
    + TASK,
    reference=pre_norm_block,
    properties=_properties("each part reads a normed copy and adds to the stream"),
    misconceptions=(
        Misconception(
            "post-norm",
            "This is the post-norm block: you norm the sums. In a pre-norm block each part reads a "
            "normed copy, and the sum goes on as it is.",
            _post,
            symptom="the stream itself is normed",
        ),
        Misconception(
            "has no residual",
            "Nothing goes past the two parts: what they do not hand on is lost. Add what each "
            "returns to what was there before it.",
            _pre_no_residual,
            symptom="x is not in your result",
        ),
        Misconception(
            "forgets the first residual",
            "What attention returns replaces the stream. It must be added to it.",
            _pre_no_first_residual,
            symptom="x is lost at the attention",
        ),
        Misconception(
            "forgets the second residual",
            "What the mlp returns replaces the stream. It must be added to it.",
            _pre_no_second_residual,
            symptom="the stream ends at the mlp",
        ),
        Misconception(
            "norm_1 twice",
            "You use norm_1 before the mlp too. Each norm has learned gains of its own: norm_2 "
            "belongs to the mlp.",
            _pre_norm_1_twice,
            symptom="norm_2 is not used",
        ),
        Misconception(
            "exchanges the norms",
            "norm_1 belongs to the attention and norm_2 to the mlp; you have them the other way "
            "round.",
            _pre_norms_exchanged,
            symptom="the norms have changed places",
        ),
        Misconception(
            "norms inside the highway",
            "You norm the stream itself and go on with that. The norm is for the copy that a part "
            "reads; what is added to is the stream as it was.",
            _pre_inside,
            symptom="the stream itself is normed",
        ),
        Misconception(
            "both parts read x",
            "Both parts read the stream as it came in (a parallel block, as in GPT-J). Here the "
            "mlp reads what the attention has written.",
            _pre_parallel,
            symptom="the mlp does not see what attention wrote",
        ),
        Misconception(
            "adds to the x it began with",
            "The mlp's result is added to x as it came in, so that what attention wrote is lost "
            "again. Go on with the sum.",
            _pre_from_the_start,
            symptom="what attention wrote is missing from the result",
        ),
        Misconception(
            "mlp first",
            "You call the mlp before the attention. Attention comes first.",
            _mlp_first,
            symptom="the two parts have changed places",
        ),
        Misconception(
            "norms what the parts return",
            "You norm what a part returns, not what it reads. In a pre-norm block the norm comes "
            "before the part.",
            _after_the_part,
            symptom="the parts read the stream as it is",
        ),
        Misconception(
            "calls a part twice", _TWICE, _pre_called_twice, symptom="a part is called twice"
        ),
        Misconception(
            "adds in place", _IN_PLACE, _pre_in_place, symptom="x is another one afterwards"
        ),
    ),
    hints=(
        "Two lines, one for each part. What does the part read, and what becomes of what it "
        "returns?",
        "Norm x with norm_1, hand that to attention, add the result to x. Then the same again with "
        "norm_2 and mlp, beginning with the sum.",
        "`x = x + attention(...)`, then `return x + mlp(...)`.",
    ),
    minutes=5,
    returns=("the result",),
    keeps_dtype=True,
)

POST_NORM_BLOCK = Exercise(
    chapter=7,
    signature="post_norm_block(x, attention, mlp, norm_1, norm_2) -> (..., T, D)",
    task="""\
Join the same four parts as the first transformer and BERT do: **post-norm**. Each of the two parts
reads the stream as it is, what it returns is added, and the *sum* is normed before it goes on.

"""
    + TASK,
    reference=post_norm_block,
    properties=_properties("each part adds to the stream, and the sum is normed"),
    misconceptions=(
        Misconception(
            "pre-norm",
            "This is the pre-norm block: your parts read normed copies. In a post-norm block they "
            "read the stream, and the sums are normed.",
            _pre,
            symptom="the stream is never normed",
        ),
        Misconception(
            "has no residual",
            "Nothing goes past the two parts. Add what each returns to what it read, and norm the "
            "sum.",
            _post_no_residual,
            symptom="x is not in your result",
        ),
        Misconception(
            "forgets the first residual",
            "You norm what attention returns, without x. The sum of both is what is normed.",
            _post_no_first_residual,
            symptom="x is lost at the attention",
        ),
        Misconception(
            "forgets the second residual",
            "You norm what the mlp returns, without what it read. The sum of both is what is "
            "normed.",
            _post_no_second_residual,
            symptom="the stream ends at the mlp",
        ),
        Misconception(
            "norm_1 twice",
            "You use norm_1 after the mlp too. Each norm has learned gains of its own: norm_2 "
            "belongs to the mlp.",
            _post_norm_1_twice,
            symptom="norm_2 is not used",
        ),
        Misconception(
            "exchanges the norms",
            "norm_1 belongs to the attention and norm_2 to the mlp; you have them the other way "
            "round.",
            _post_norms_exchanged,
            symptom="the norms have changed places",
        ),
        Misconception(
            "norms what the parts return",
            "You norm what a part returns before you add it. In a post-norm block the *sum* is "
            "normed.",
            _after_the_part,
            symptom="the stream itself is not normed",
        ),
        Misconception(
            "norms before the parts, inside the highway",
            "You norm the stream before each part and go on with that. In a post-norm block the "
            "norm comes after the sum.",
            _pre_inside,
            symptom="the result itself is not normed",
        ),
        Misconception(
            "adds to the x it began with",
            "The mlp's result is added to x as it came in, so that what attention wrote is lost "
            "again. Go on with the normed sum.",
            _post_from_the_start,
            symptom="what attention wrote is missing from the result",
        ),
        Misconception(
            "norms at the end only",
            "The first sum goes on without a norm. There are two norms, one after each sum.",
            _post_last_norm_only,
            symptom="norm_1 is not used",
        ),
        Misconception(
            "mlp first",
            "You call the mlp before the attention. Attention comes first.",
            _post_mlp_first,
            symptom="the two parts have changed places",
        ),
        Misconception(
            "calls a part twice", _TWICE, _post_called_twice, symptom="a part is called twice"
        ),
        Misconception(
            "adds in place", _IN_PLACE, _post_in_place, symptom="x is another one afterwards"
        ),
    ),
    hints=(
        "The same two lines as before. Only the places of the norms change.",
        "Add to x what attention makes of x, and norm the sum with norm_1. Then the same again "
        "with mlp and norm_2, beginning with the normed sum.",
        "`x = norm_1(...)`, then `return norm_2(...)`; in each bracket stands a sum.",
    ),
    minutes=5,
    returns=("the result",),
    keeps_dtype=True,
)
