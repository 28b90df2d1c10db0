"""`ablate_head`: what is left when one head says nothing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attend.reading import ablate_head
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import normal


def _heads(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(normal(rng, *shape)).to(dtype)


def _single_sentences(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (_heads(rng, 2, 3, 4), 1),
        (_heads(rng, 3, 5, 2), 0),
        (_heads(rng, 5, 2, 3), 4),
        (_heads(rng, 5, 7, 6), 2),
        (_heads(rng, 7, 11, 8), 5),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (_heads(rng, 2, 3, 5, 4), 1),
        (_heads(rng, 5, 3, 2, 7), 2),
        (_heads(rng, 3, 2, 5, 7, 4), 3),
        (_heads(rng, 7, 4, 3, 2), 0),
    )


def _narrow_and_single(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (_heads(rng, 3, 5, 4, dtype=torch.float32), 1),
        (_heads(rng, 2, 5, 3, 7, dtype=torch.float32), 4),
        (_heads(rng, 1, 3, 2), 0),
        (_heads(rng, 3, 1, 2), 2),
    )


def _no_such_head(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (_heads(rng, 2, 3, 4), 2),
        (_heads(rng, 3, 5, 2), -1),
        (_heads(rng, 5, 3, 7, 4), 3),
        (_heads(rng, 3, 5, 2, 7), -5),
        (_heads(rng, 2, 7, 11), 5),
        (_heads(rng, 7, 3, 5, 2), -2),
    )


def _tokens(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[..., index % heads.shape[-2], :] = 0
    return result


def _tokens_plainly(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[..., index, :] = 0
    return result


def _columns(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[..., index % heads.shape[-1]] = 0
    return result


def _first_axis(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[index % heads.shape[0]] = 0
    return result


def _first_axis_plainly(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[index] = 0
    return result


def _second_axis(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[:, index % heads.shape[1]] = 0
    return result


def _in_place(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    heads[..., index, :, :] = 0
    return heads


def _in_place_with_a_copy(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    heads[..., index, :, :] = 0
    return heads.clone()


def _counts_from_the_end(heads, index):
    if not -heads.shape[-3] <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[..., index, :, :] = 0
    return result


def _wraps(heads, index):
    result = heads.clone()
    result[..., index % heads.shape[-3], :, :] = 0
    return result


def _any_index(heads, index):
    result = heads.clone()
    if 0 <= index < heads.shape[-3]:
        result[..., index, :, :] = 0
    return result


def _value_error(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise ValueError("there is no such head")
    result = heads.clone()
    result[..., index, :, :] = 0
    return result


def _keeps_only_it(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads * 0
    result[..., index, :, :] = heads[..., index, :, :]
    return result


def _removed(heads, index):
    H = heads.shape[-3]
    if not 0 <= index < H:
        raise IndexError("there is no such head")
    return heads[..., [h for h in range(H) if h != index], :, :]


def _mean_in_its_place(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[..., index, :, :] = heads[..., index, :, :].mean(-2, keepdim=True)
    return result


def _rescaled(heads, index):
    H = heads.shape[-3]
    if not 0 <= index < H:
        raise IndexError("there is no such head")
    result = heads * (H / (H - 1)) if H > 1 else heads.clone()
    result[..., index, :, :] = 0
    return result


def _head_after(heads, index):
    H = heads.shape[-3]
    if not 0 <= index < H:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[..., (index + 1) % H, :, :] = 0
    return result


def _ones(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError("there is no such head")
    result = heads.clone()
    result[..., index, :, :] = 1
    return result


ABLATE_HEAD = Exercise(
    chapter=11,
    signature="ablate_head(heads, index) -> (..., H, T, K)",
    task="""\
Take one head away. `heads` is what the heads of a layer hand on before they are merged,
`(..., H, T, K)`. Return a **new** tensor in which head `index` is zero and all others are as they
were.

- There may be any leading axes, or none. The heads are axis −3.
- `index` is a whole number. Outside 0 … H − 1 it is an `IndexError`, and so are negative ones:
  there is no head −1.
- The result has the shape and the dtype of `heads`, float64 or float32, and shares no memory with
  it. Leave `heads` as they are: one wants to compare *with* and *without*.""",
    reference=ablate_head,
    properties=(
        Property("one head is zero, the others are as they were", 2, _single_sentences),
        Property("any leading axes: batches", 1, _batches),
        Property("float32, a single head, a single token", 1, _narrow_and_single),
        Property("an index outside 0 … H − 1 is an IndexError", 1, _no_such_head, edge=True),
    ),
    misconceptions=(
        Misconception(
            "silences a token",
            "You set one *token* of every head to zero: axis −2. The heads are axis −3.",
            _tokens,
            symptom="zeros stand in every head",
            also=(_tokens_plainly,),
        ),
        Misconception(
            "silences a column",
            "You set one *column* of every head to zero: axis −1. The heads are axis −3.",
            _columns,
            symptom="zeros stand in every head",
        ),
        Misconception(
            "takes the first axis for the heads",
            "You index the first axis. With a batch in front that is a whole sentence: count the "
            "axes from the end, the heads are axis −3.",
            _first_axis,
            symptom="with a batch, a whole sentence is zero",
            also=(_first_axis_plainly,),
        ),
        Misconception(
            "takes the second axis for the heads",
            "You index the second axis. That is right for one axis of batches, and for no other "
            "number: count the axes from the end, the heads are axis −3.",
            _second_axis,
            symptom="it depends on the number of leading axes what is silenced",
        ),
        Misconception(
            "changes what it is given",
            "You write the zeros into the tensor that was handed over. Whoever compares the model "
            "with and without the head then compares it without and without. Make a copy first.",
            _in_place,
            symptom="heads is not what it was before the call",
            also=(_in_place_with_a_copy,),
        ),
        Misconception(
            "counts from the end",
            "Python counts index −1 from the end, and silently takes the last head away. An index "
            "that was computed wrongly should be noticed: IndexError.",
            _counts_from_the_end,
            symptom="a negative index takes a head away",
        ),
        Misconception(
            "accepts any index",
            "An index outside 0 … H − 1 should be an IndexError. Yours carries on, and somebody "
            "will believe that a head was tested which is not there.",
            _wraps,
            symptom="a head that is not there is accepted",
            also=(_any_index,),
        ),
        Misconception(
            "raises a ValueError",
            "You notice the index that is outside. For an index Python's word is IndexError.",
            _value_error,
            symptom="the error is of another type",
        ),
        Misconception(
            "keeps only this head",
            "You silence all the others and keep the one. Asked for is the opposite.",
            _keeps_only_it,
            symptom="one head is left, and it should be the one that is gone",
        ),
        Misconception(
            "removes the head",
            "You cut the head out, and the shape changes: W_O expects H heads. Silence it with "
            "zeros instead.",
            _removed,
            symptom="a head is missing from the shape",
        ),
        Misconception(
            "puts the mean in its place",
            "You replace the head by its mean over the tokens. That is another experiment, mean "
            "ablation; here the head is set to zero.",
            _mean_in_its_place,
            symptom="the head still says something",
        ),
        Misconception(
            "makes the others louder",
            "You scale the other heads up, as dropout does. Then two things change at once. Leave "
            "them as they were.",
            _rescaled,
            symptom="the other heads are changed",
        ),
        Misconception(
            "silences the head after",
            "Heads are counted from 0: head `index` has that very place on its axis.",
            _head_after,
            symptom="another head is silenced",
        ),
        Misconception(
            "writes ones",
            "You put ones where zeros belong. A head that says 1 everywhere still says something.",
            _ones,
            symptom="the head still says something",
        ),
    ),
    hints=(
        "Which axis are the heads, counted from the end? And what happens to `heads` itself if you "
        "assign to a part of it?",
        "Check the index first, both ends. Then make a copy, and write 0 into the one head of it, "
        "all tokens and all columns.",
        "`result = heads.clone()` and an assignment to `result[..., index, :, :]`.",
    ),
    minutes=8,
    keeps_dtype=True,
    new_arrays=True,
)
