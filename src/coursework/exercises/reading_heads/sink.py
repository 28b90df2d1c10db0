"""`sink_score`: the mean of a column, without its top."""

from __future__ import annotations

import numpy as np
import torch

from attend.reading import sink_score
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.reading_heads.inputs import attention


def _layers(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 2, 3, 3),),
        (attention(rng, 3, 5, 5, causal=True),),
        (attention(rng, 5, 4, 4),),
        (attention(rng, 2, 11, 11, causal=True),),
        (attention(rng, 7, 6, 6),),
        (attention(rng, 1, 7, 7, causal=True),),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 5, 5),),
        (attention(rng, 3, 2, 5, 5, causal=True),),
        (attention(rng, 2, 5, 7, 7),),
        (attention(rng, 2, 3, 5, 4, 4),),
        (attention(rng, 1, 3, 6, 6, causal=True),),
    )


def _narrow_and_short(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 3, 5, 5, dtype=torch.float32),),
        (attention(rng, 2, 3, 7, 7, causal=True, dtype=torch.float32),),
        (attention(rng, 3, 2, 2),),
        (attention(rng, 2, 5, 2, 2, causal=True),),
    )


def _row_0_counted(weights):
    return weights[..., :, 0].mean(-1)


def _last_key(weights):
    return weights[..., 1:, -1].mean(-1)


def _what_the_first_looks_at(weights):
    return weights[..., 0, 1:].mean(-1)


def _what_the_first_looks_at_in_all(weights):
    return weights[..., 0, :].mean(-1)


def _second_key(weights):
    return weights[..., 1:, 1].mean(-1)


def _divided_by_T(weights):
    return weights[..., 1:, 0].sum(-1) / weights.shape[-1]


def _last_row_left_out(weights):
    return weights[..., 1:-1, 0].mean(-1) if weights.shape[-1] > 2 else weights[..., 1, 0].clone()


def _last_row_only(weights):
    return weights[..., -1, 0].clone()


def _favourite_key(weights):
    return weights[..., 1:, :].mean(-2).amax(-1)


def _largest_of_each_row(weights):
    return weights[..., 1:, :].amax(-1).mean(-1)


def _heads_averaged(weights):
    column = weights[..., 1:, 0]
    return column.mean(-2) if column.dim() > 1 else column.mean(-1)


def _one_number(weights):
    return weights[..., 1:, 0].mean()


def _not_averaged(weights):
    return weights[..., 1:, 0].clone()


def _summed(weights):
    return weights[..., 1:, 0].sum(-1)


def _share_of_hits(weights):
    return (weights[..., 1:, :].argmax(-1) == 0).to(weights.dtype).mean(-1)


SINK_SCORE = Exercise(
    chapter=11,
    signature="sink_score(weights) -> (..., H)",
    task="""\
How much of its weight does each head leave at the first token? Return, for each head, the mean over
$t = 1, \\dots, T - 1$ of the weight $w_{t,0}$ that token $t$ gives to token 0.

- `weights` is a tensor of attention weights, `(..., H, T, T)`, with any leading axes or, for a
  single head, `(T, T)`. There are at least two tokens.
- Row 0 does not count: in a causal model the first token has nothing else to look at.
- Return a tensor `(..., H)` of the dtype of `weights`, float64 or float32. Leave `weights` as they
  are.""",
    reference=sink_score,
    properties=(
        Property("each head's mean weight on the first token", 2, _layers),
        Property("any leading axes: layers, batches", 1, _batches),
        Property("float32 stays float32, and two tokens are enough", 1, _narrow_and_short),
    ),
    misconceptions=(
        Misconception(
            "counts row 0",
            "Row 0 is in your mean. In a causal model the first token can look at itself only, so "
            "that this weight is 1 whatever the head does. Begin at row 1.",
            _row_0_counted,
            symptom="one row too many is counted",
        ),
        Misconception(
            "takes the last key",
            "You read the column of the *last* token. The sink is the first one, column 0.",
            _last_key,
            symptom="the weights are those of another key",
        ),
        Misconception(
            "takes the second key",
            "You read column 1. Tokens are counted from 0: the first one stands in column 0.",
            _second_key,
            symptom="the weights are those of another key",
        ),
        Misconception(
            "takes the row for the column",
            "This is what the first token looks *at*, row 0. Asked for is how much the others look "
            "at it: rows are queries, columns are keys.",
            _what_the_first_looks_at,
            symptom="the weights are those of one query",
            also=(_what_the_first_looks_at_in_all,),
        ),
        Misconception(
            "divides by T",
            "The sum is right; it is divided by T. Without row 0 there are T − 1 rows.",
            _divided_by_T,
            symptom="your scores are a little too small",
        ),
        Misconception(
            "leaves out the last row",
            "The last token counts like the others. Your mean ends a row too early.",
            _last_row_left_out,
            symptom="one row too few is counted",
        ),
        Misconception(
            "looks at the last row only",
            "This is what the last token gives to the first. A score is the mean over all tokens "
            "but the first.",
            _last_row_only,
            symptom="one token speaks for all",
        ),
        Misconception(
            "takes the most popular key",
            "You take the key that gets most, whichever it is. The sink score is about the first "
            "token, also where another one is more popular.",
            _favourite_key,
            symptom="some of your scores are too large",
        ),
        Misconception(
            "takes the largest weight of each row",
            "You average the largest weight of each row. That says how sure a head is, not where "
            "it looks.",
            _largest_of_each_row,
            symptom="some of your scores are too large",
        ),
        Misconception(
            "averages the heads",
            "The mean is taken over the heads, and the tokens are kept. It is the other way round: "
            "a score for each head, averaged over tokens.",
            _heads_averaged,
            symptom="heads are mixed",
        ),
        Misconception(
            "returns one number for all",
            "The mean runs over everything. Keep the heads apart, and every axis before them.",
            _one_number,
            symptom="one number came back for all heads",
        ),
        Misconception(
            "does not average",
            "You hold the right weights, one for each token. A score is their mean.",
            _not_averaged,
            symptom="a row of weights came back for each head",
        ),
        Misconception(
            "adds up instead of averaging",
            "This is the sum over the tokens. Divide by how many there are, so that texts of any "
            "length can be compared.",
            _summed,
            symptom="your scores grow with the length of the text",
        ),
        Misconception(
            "counts how often it is the favourite",
            "You count the rows whose largest weight lies on the first token. The score is the "
            "mean of the weight itself.",
            _share_of_hits,
            symptom="your scores are shares of rows, not of weight",
        ),
    ),
    hints=(
        "All the weights that count lie in one column. Which entry of it does not?",
        "Take column 0 of the keys, leave out its top entry, and average what is left over the "
        "queries. Every axis before these two stays.",
        "Queries are axis −2 and keys axis −1: `weights[..., rows, 0]` with the rows from 1 on, "
        "and then a mean over the last axis that is left.",
    ),
    minutes=8,
    returns=("the score",),
    keeps_dtype=True,
)
