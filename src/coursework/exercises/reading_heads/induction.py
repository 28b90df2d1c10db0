"""`induction_score`: looking at what came next the last time."""

from __future__ import annotations

import numpy as np
import torch

from attend.reading import induction_score
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.reading_heads.inputs import attention


def _two_copies(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 2, 6, 6), 3),
        (attention(rng, 3, 8, 8, causal=True), 4),
        (attention(rng, 5, 10, 10), 5),
        (attention(rng, 2, 14, 14, causal=True), 7),
        (attention(rng, 1, 12, 12), 6),
    )


def _other_lengths(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 2, 7, 7), 2),
        (attention(rng, 3, 11, 11, causal=True), 3),
        (attention(rng, 5, 13, 13), 4),
        (attention(rng, 2, 11, 11), 7),
        (attention(rng, 3, 17, 17, causal=True), 5),
        (attention(rng, 4, 9, 9, causal=True), 6),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 7, 7), 3),
        (attention(rng, 3, 2, 7, 7, causal=True), 3),
        (attention(rng, 2, 5, 11, 11), 4),
        (attention(rng, 2, 3, 5, 8, 8), 3),
    )


def _edges(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 3, 7, 7, dtype=torch.float32), 3),
        (attention(rng, 2, 3, 11, 11, causal=True, dtype=torch.float32), 4),
        (attention(rng, 3, 6, 6), 5),
        (attention(rng, 2, 5, 5, causal=True), 4),
        (attention(rng, 2, 3, 7, 7), 6),
        (attention(rng, 3, 5, 5), 1),
    )


def _same_token(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t, t - period] for t in range(period, T)) / (T - period)


def _token_before(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t, t - period - 1] for t in range(period, T)) / (T - period)


def _token_before_from_where_it_is(weights, period):
    T = weights.shape[-1]
    rows = range(period + 1, T)
    total = sum(weights[..., t, t - period - 1] for t in rows)
    return total / len(rows) if len(rows) else weights[..., 0, 0] * 0


def _two_after(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t, t - period + 2] for t in range(period, T) if t - period + 2 < T) / (
        T - period
    )


def _first_copy_counted(weights, period):
    return weights.diagonal(1 - period, dim1=-2, dim2=-1).mean(-1)


def _first_copy_wraps(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t, t - period + 1] for t in range(T)) / T


def _divided_by_T(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t, t - period + 1] for t in range(period, T)) / T


def _divided_by_the_period(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t, t - period + 1] for t in range(period, T)) / period


def _one_row_too_late(weights, period):
    T = weights.shape[-1]
    rows = range(period + 1, T)
    total = sum(weights[..., t, t - period + 1] for t in rows)
    return total / len(rows) if len(rows) else weights[..., 0, 0] * 0


def _last_row_left_out(weights, period):
    T = weights.shape[-1]
    rows = range(period, T - 1)
    total = sum(weights[..., t, t - period + 1] for t in rows)
    return total / len(rows) if len(rows) else weights[..., 0, 0] * 0


def _second_copy_only(weights, period):
    rows = range(period, min(2 * period, weights.shape[-1]))
    return sum(weights[..., t, t - period + 1] for t in rows) / len(rows)


def _last_copy_only(weights, period):
    T = weights.shape[-1]
    rows = range(max(period, T - period), T)
    return sum(weights[..., t, t - period + 1] for t in rows) / len(rows)


def _rows_for_columns(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t - period + 1, t] for t in range(period, T)) / (T - period)


def _all_earlier_copies(weights, period):
    T = weights.shape[-1]
    total = 0
    for t in range(period, T):
        for s in range(t - period + 1, 0, -period):
            total = total + weights[..., t, s]
    return total / (T - period)


def _heads_averaged(weights, period):
    diagonal = weights[..., period:, :].diagonal(1, dim1=-2, dim2=-1)
    return diagonal.mean(-2) if diagonal.dim() > 1 else diagonal.mean(-1)


def _one_number(weights, period):
    return weights[..., period:, :].diagonal(1, dim1=-2, dim2=-1).mean()


def _not_averaged(weights, period):
    return weights[..., period:, :].diagonal(1, dim1=-2, dim2=-1).clone()


def _summed(weights, period):
    T = weights.shape[-1]
    return sum(weights[..., t, t - period + 1] for t in range(period, T))


def _largest(weights, period):
    return weights[..., period:, :].diagonal(1, dim1=-2, dim2=-1).amax(-1)


INDUCTION_SCORE = Exercise(
    chapter=11,
    signature="induction_score(weights, period) -> (..., H)",
    task="""\
A text repeats: its token `t` is that of `t - period`. A head that does induction looks, from each
token of the repetition, at what *came next* the last time. Return, for each head, the mean over
$t = P, \\dots, T - 1$ of the weight $w_{t,\\,t-P+1}$, where $P$ is `period`.

- `weights` is a tensor of attention weights, `(..., H, T, T)`, with any leading axes or, for a
  single head, `(T, T)`.
- `period` is a whole number from 1 to T − 1. The text may end in the middle of a copy, and there
  may be more than two copies; all tokens after the first copy count alike.
- The first copy, $t < P$, repeats nothing yet and does not count.
- Return a tensor `(..., H)` of the dtype of `weights`, float64 or float32. Leave `weights` as they
  are.""",
    reference=induction_score,
    properties=(
        Property("right on a text of two copies", 2, _two_copies),
        Property("right where the text ends within a copy, or goes on", 1, _other_lengths),
        Property("any leading axes: layers, batches", 1, _batches),
        Property("float32 stays float32; a single repeated token, a period of 1", 1, _edges),
    ),
    misconceptions=(
        Misconception(
            "looks at the same token",
            "You read column t − P: the *same* token, one copy earlier. A head that looks there "
            "finds duplicates. Induction looks one further, at what followed it.",
            _same_token,
            symptom="the score is that of another token",
        ),
        Misconception(
            "looks at the token before",
            "You read column t − P − 1, which is what *preceded* this token the last time. What "
            "followed it stands on the other side.",
            _token_before,
            symptom="the score is that of another token",
            also=(_token_before_from_where_it_is,),
        ),
        Misconception(
            "looks two tokens on",
            "You read column t − P + 2: one too far. What came next the last time stands right "
            "after column t − P.",
            _two_after,
            symptom="the score is that of another token",
        ),
        Misconception(
            "counts a row of the first copy",
            "Your diagonal begins at row P − 1, which belongs to the first copy: it repeats "
            "nothing, and looks at token 0, the sink. Begin at row P.",
            _first_copy_counted,
            symptom="one row too many is counted",
        ),
        Misconception(
            "counts the first copy, wrapped around",
            "Your sum begins at t = 0, where column t − P + 1 is negative: in Python that counts "
            "from the *end* of the text. The first copy has no earlier one; begin at t = P.",
            _first_copy_wraps,
            symptom="the first copy is counted",
        ),
        Misconception(
            "divides by T",
            "The sum is right; it is divided by T. Only the T − P tokens after the first copy are "
            "in it.",
            _divided_by_T,
            symptom="your scores are too small",
        ),
        Misconception(
            "divides by the period",
            "The sum is right; it is divided by P. That many tokens follow the first copy only if "
            "there are two whole copies: divide by T − P.",
            _divided_by_the_period,
            symptom="right only on a text of two whole copies",
        ),
        Misconception(
            "begins a row too late",
            "Row P counts as well: its token has been seen before, at 0, and what followed stands "
            "at 1.",
            _one_row_too_late,
            symptom="one row too few is counted",
        ),
        Misconception(
            "leaves out the last row",
            "The last token counts like the others. Your mean ends a row too early.",
            _last_row_left_out,
            symptom="one row too few is counted",
        ),
        Misconception(
            "counts the second copy only",
            "Your mean ends with the second copy. A text may go on repeating, and later tokens "
            "count alike.",
            _second_copy_only,
            symptom="on three copies, rows are missing",
        ),
        Misconception(
            "counts the last copy only",
            "You take the last P rows. On a text of more than two copies there are others after "
            "the first copy, and they count alike.",
            _last_copy_only,
            symptom="on three copies, rows are missing",
        ),
        Misconception(
            "takes columns for rows",
            "You let the *earlier* token look at the later one. Rows are queries: the later token "
            "looks back, and in a causal model the other half is 0.",
            _rows_for_columns,
            symptom="a causal model scores 0",
        ),
        Misconception(
            "adds up all earlier copies",
            "You add the weights on what came next in *every* earlier copy. Asked for is the last "
            "one, column t − P + 1.",
            _all_earlier_copies,
            symptom="on three copies, your scores are too large",
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
            "takes the largest instead of the mean",
            "You take the best token of each head. One lucky token does not make an induction "
            "head: average over all of them.",
            _largest,
            symptom="your scores are too large",
        ),
    ),
    hints=(
        "Write A B C A B C with its positions. You stand at the second A. Where is the token that "
        "followed the first A, and how far back is that?",
        "For t = 3 and P = 3 it is column 1, for t = 4 column 2: always P − 1 back. So the weights "
        "lie on a diagonal again. Only its rows from P on count.",
        "Cut the rows first, `weights[..., period:, :]`; in what is left, row 0 looks at column 1. "
        "Which diagonal is that? Or a sum over `t in range(period, T)`, divided by how many there "
        "are.",
    ),
    minutes=12,
    returns=("the score",),
    keeps_dtype=True,
)
