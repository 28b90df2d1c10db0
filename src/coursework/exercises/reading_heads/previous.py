"""`previous_token_score`: the mean of a diagonal."""

from __future__ import annotations

import numpy as np
import torch

from attend.reading import previous_token_score
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.reading_heads.inputs import attention


def _layers(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 2, 3, 3),),
        (attention(rng, 3, 5, 5, causal=True),),
        (attention(rng, 5, 4, 4),),
        (attention(rng, 2, 11, 11, causal=True),),
        (attention(rng, 7, 6, 6),),
        (attention(rng, 1, 7, 7),),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 5, 5),),  # a single head, without an axis for heads
        (attention(rng, 3, 2, 5, 5),),
        (attention(rng, 2, 5, 7, 7, causal=True),),
        (attention(rng, 2, 3, 5, 4, 4),),
        (attention(rng, 1, 3, 6, 6),),
    )


def _narrow_and_short(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 3, 5, 5, dtype=torch.float32),),
        (attention(rng, 2, 3, 7, 7, causal=True, dtype=torch.float32),),
        (attention(rng, 3, 2, 2),),
        (attention(rng, 2, 2, 2, causal=True),),
        (attention(rng, 2, 5, 2, 2),),
    )


def _too_short(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 3, 1, 1),), (attention(rng, 2, 5, 1, 1),), (attention(rng, 1, 1, 1),)
    )


def _itself(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights[..., 1:, 1:].diagonal(dim1=-2, dim2=-1).mean(-1)


def _whole_diagonal(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights.diagonal(dim1=-2, dim2=-1).mean(-1)


def _next_token(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights.diagonal(1, dim1=-2, dim2=-1).mean(-1)


def _first_two_axes(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights.diagonal(-1).mean(-1)


def _two_back(weights):
    T = weights.shape[-1]
    if T < 2:
        raise ValueError("at least two tokens are needed")
    return sum(weights[..., t, t - 2] for t in range(1, T)) / (T - 1)


def _row_0_wraps(weights):
    T = weights.shape[-1]
    if T < 2:
        raise ValueError("at least two tokens are needed")
    return sum(weights[..., t, t - 1] for t in range(T)) / T


def _row_0_as_itself(weights):
    T = weights.shape[-1]
    if T < 2:
        raise ValueError("at least two tokens are needed")
    return sum(weights[..., t, max(t - 1, 0)] for t in range(T)) / T


def _divided_by_T(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights.diagonal(-1, dim1=-2, dim2=-1).sum(-1) / weights.shape[-1]


def _last_row_left_out(weights):
    T = weights.shape[-1]
    if T < 2:
        raise ValueError("at least two tokens are needed")
    if T == 2:
        return weights[..., 1, 0].clone()
    return weights[..., : T - 1, :].diagonal(-1, dim1=-2, dim2=-1).mean(-1)


def _heads_averaged(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    diagonal = weights.diagonal(-1, dim1=-2, dim2=-1)
    return diagonal.mean(-2) if diagonal.dim() > 1 else diagonal.mean(-1)


def _one_number(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights.diagonal(-1, dim1=-2, dim2=-1).mean()


def _not_averaged(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights.diagonal(-1, dim1=-2, dim2=-1).clone()


def _summed(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens are needed")
    return weights.diagonal(-1, dim1=-2, dim2=-1).sum(-1)


def _any_earlier_token(weights):
    T = weights.shape[-1]
    if T < 2:
        raise ValueError("at least two tokens are needed")
    return weights.tril(-1).sum((-2, -1)) / (T - 1)


def _share_of_hits(weights):
    T = weights.shape[-1]
    if T < 2:
        raise ValueError("at least two tokens are needed")
    best = weights.argmax(-1)  # (..., H, T)
    hits = sum((best[..., t] == t - 1).to(weights.dtype) for t in range(1, T))
    return hits / (T - 1)


def _accepts_one_token(weights):
    return weights.diagonal(-1, dim1=-2, dim2=-1).mean(-1)


def _one_token_is_zero(weights):
    if weights.shape[-1] < 2:
        return weights[..., 0, 0] * 0
    return weights.diagonal(-1, dim1=-2, dim2=-1).mean(-1)


PREVIOUS_TOKEN_SCORE = Exercise(
    chapter=11,
    signature="previous_token_score(weights) -> (..., H)",
    task="""\
How much does each head look at the token before? Return, for each head, the mean over
$t = 1, \\dots, T - 1$ of the weight $w_{t,\\,t-1}$ that token $t$ gives to token $t - 1$.

- `weights` is a tensor of attention weights, `(..., H, T, T)`: rows are queries, columns are keys,
  and each row sums to 1. There may be any leading axes, or none; where there is a single head
  without an axis, `(T, T)`, the result is a 0-d tensor.
- Row 0 has no token before it and does not count.
- Return a tensor `(..., H)` of the dtype of `weights`, float64 or float32. Leave `weights` as they
  are.
- Fewer than two tokens: `ValueError`.""",
    reference=previous_token_score,
    properties=(
        Property("each head's mean weight on the token before", 2, _layers),
        Property("any leading axes: layers, batches", 1, _batches),
        Property("float32 stays float32, and two tokens are enough", 1, _narrow_and_short),
        Property("fewer than two tokens is a ValueError", 1, _too_short, edge=True),
    ),
    misconceptions=(
        Misconception(
            "looks at the token itself",
            "This is the main diagonal: how much each token looks at *itself*. The token before t "
            "stands in column t − 1, one diagonal further down.",
            _itself,
            symptom="the score is that of another token",
            also=(_whole_diagonal,),
        ),
        Misconception(
            "looks at the next token",
            "You read the diagonal above the main one, where each token looks at the *next* one. "
            "Rows are queries, columns are keys: below the main diagonal a token looks back.",
            _next_token,
            symptom="a causal model scores 0",
        ),
        Misconception(
            "goes two tokens back",
            "You read column t − 2. Between a token and the one before lies a distance of 1.",
            _two_back,
            symptom="the score is that of another token",
        ),
        Misconception(
            "counts row 0 with the last column",
            "Your sum begins at t = 0, where column t − 1 is column −1: in Python that is the "
            "*last* token. The first token has none before it; begin at t = 1.",
            _row_0_wraps,
            symptom="one row too many is counted",
        ),
        Misconception(
            "counts row 0 with itself",
            "You let the first token look at itself and count that. In a causal model this weight "
            "is always 1, and it lifts every head's score. Begin at t = 1.",
            _row_0_as_itself,
            symptom="one row too many is counted",
        ),
        Misconception(
            "divides by T",
            "The sum is right; it is divided by T. Only T − 1 tokens have one before them.",
            _divided_by_T,
            symptom="your scores are a little too small",
        ),
        Misconception(
            "leaves out the last row",
            "The last token has one before it as well. Your mean ends a row too early.",
            _last_row_left_out,
            symptom="one row too few is counted",
        ),
        Misconception(
            "averages the heads",
            "The mean is taken over the heads, and the tokens are kept. It is the other way round: "
            "a score for each head, averaged over tokens.",
            _heads_averaged,
            symptom="heads are mixed",
        ),
        Misconception(
            "takes the diagonal of the first two axes",
            "`diagonal` takes the first two axes if it is not told which. Rows and columns are the "
            "last two, axes −2 and −1.",
            _first_two_axes,
            symptom="the diagonal runs along other axes",
        ),
        Misconception(
            "returns one number for all",
            "The mean runs over everything. Keep the heads apart, and every axis before them: a "
            "mean over all heads hides the one that does it.",
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
            "counts every earlier token",
            "You add up the weights on all tokens before t. Of these only one is *the* token "
            "before: column t − 1.",
            _any_earlier_token,
            symptom="your scores are too large",
        ),
        Misconception(
            "counts how often it is the favourite",
            "You count the rows whose largest weight lies on the token before. The score is the "
            "mean of the weight itself: a narrow victory and a clear one differ.",
            _share_of_hits,
            symptom="your scores are shares of rows, not of weight",
        ),
        Misconception(
            "accepts a single token",
            "With a single token there is nothing to average: the mean of no numbers is NaN. Raise "
            "a ValueError before you take it.",
            _accepts_one_token,
            symptom="a single token is accepted",
            also=(_one_token_is_zero,),
        ),
    ),
    hints=(
        "Write down the matrix of four tokens and mark the weights that count. On which line do "
        "they lie?",
        "They are the diagonal just below the main one. Take it along the last two axes, and then "
        "its mean; every other axis stays. The error comes first.",
        "`weights.diagonal(offset, dim1=-2, dim2=-1)` with the right sign of `offset`, or "
        "`weights[..., t, t - 1]` for each `t` in `range(1, T)`, then a mean over the last axis.",
    ),
    minutes=10,
    returns=("the score",),
    keeps_dtype=True,
)
