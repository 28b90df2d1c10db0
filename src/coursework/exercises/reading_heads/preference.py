"""`antecedent_preference`: of the weight that goes to any candidate, the share of each."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attend.reading import antecedent_preference
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.reading_heads.inputs import attention


def _two_candidates(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 2, 5, 5), 3, [0, 2]),
        (attention(rng, 3, 7, 7, causal=True), 5, [1, 4]),
        (attention(rng, 5, 6, 6), 1, [3, 5]),
        (attention(rng, 2, 11, 11), 8, [7, 2]),
        (attention(rng, 1, 7, 7), 6, [4, 0]),
    )


def _several_candidates(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 2, 7, 7), 5, [4, 0, 2]),
        (attention(rng, 3, 11, 11, causal=True), 9, [1, 8, 3, 6]),
        (attention(rng, 5, 7, 7), 2, [6]),
        (attention(rng, 2, 7, 7), 3, [3, 1, 5, 0, 2]),
        (attention(rng, 3, 5, 5), 0, [2, 1]),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (attention(rng, 6, 6), 4, [3, 1]),
        (attention(rng, 3, 2, 5, 5), 3, [2, 0]),
        (attention(rng, 2, 5, 7, 7, causal=True), 6, [1, 4, 2]),
        (attention(rng, 2, 3, 5, 4, 4), 2, [3, 0]),
    )


def _without(weights: Tensor, at: int, keys: list[int], *heads: int) -> Tensor:
    """The same weights, of which row `at` of these heads gives nothing to `keys`."""
    for head in heads:
        row = weights[..., head, at, :]
        row[..., keys] = 0
        row /= row.sum(-1, keepdim=True)
    return weights


def _nothing(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (_without(attention(rng, 3, 5, 5), 3, [0, 2], 1), 3, [0, 2]),
        (attention(rng, 2, 7, 7, causal=True), 1, [4, 6, 3]),
        (_without(attention(rng, 2, 3, 6, 6), 4, [5, 1, 2], 0, 2), 4, [5, 1, 2]),
        (_without(attention(rng, 5, 7, 7), 2, [6], 0, 3), 2, [6]),
    )


def _faint(rng: np.random.Generator) -> tuple[Call, ...]:
    """Heads that give the candidates next to nothing: the share is what it is all the same."""

    def dimmed(weights: Tensor, at: int, keys: list[int], by: float) -> Tensor:
        weights[..., at, keys] *= by
        return weights

    narrow = torch.float32
    return calls(
        (dimmed(attention(rng, 3, 5, 5), 3, [0, 2], 1e-9), 3, [0, 2]),
        (dimmed(attention(rng, 2, 7, 7), 5, [1, 4, 6], 1e-13), 5, [1, 4, 6]),
        (dimmed(attention(rng, 5, 6, 6, causal=True), 4, [3, 1], 1e-13), 4, [3, 1]),
        (dimmed(attention(rng, 3, 2, 4, 4), 2, [3, 0, 1], 1e-14), 2, [3, 0, 1]),
        (attention(rng, 3, 7, 7, dtype=narrow), 4, [5, 2]),
        (dimmed(attention(rng, 2, 3, 5, 5, dtype=narrow), 3, [0, 1], 1e-7), 3, [0, 1]),
    )


def _raw(weights, at, candidates):
    return weights[..., at, list(candidates)]


def _column_for_row(weights, at, candidates):
    chosen = weights[..., list(candidates), at]
    total = chosen.sum(-1, keepdim=True)
    return chosen / (total + (total == 0))


def _nan_for_nothing(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    return chosen / chosen.sum(-1, keepdim=True)


def _even_for_nothing(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    total = chosen.sum(-1, keepdim=True)
    even = chosen * 0 + 1 / len(candidates)
    return (chosen / (total + (total == 0))).where(total != 0, even)


def _epsilon(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    return chosen / (chosen.sum(-1, keepdim=True) + 1e-9)


def _larger_epsilon(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    return chosen / (chosen.sum(-1, keepdim=True) + 1e-6)


def _clamped(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    return chosen / chosen.sum(-1, keepdim=True).clamp(min=1e-8)


def _clamped_by_normalize(weights, at, candidates):
    return F.normalize(weights[..., at, list(candidates)], p=1, dim=-1)  # no less than 1e-12


def _softmax_again(weights, at, candidates):
    return weights[..., at, list(candidates)].softmax(-1)


def _by_the_largest(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    largest = chosen.amax(-1, keepdim=True)
    return chosen / (largest + (largest == 0))


def _of_the_others(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    rest = weights[..., at, :].sum(-1, keepdim=True) - weights[..., at, at, None]
    return chosen / (rest + (rest == 0))


def _heads_together(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    total = chosen.sum((-2, -1), keepdim=True) if chosen.dim() > 1 else chosen.sum()
    return chosen / (total + (total == 0))


def _everything_together(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    return chosen / chosen.sum()


def _over_heads(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    axis = -2 if chosen.dim() > 1 else -1
    total = chosen.sum(axis, keepdim=True)
    return chosen / (total + (total == 0))


def _sorted(weights, at, candidates):
    chosen = weights[..., at, sorted(candidates)]
    total = chosen.sum(-1, keepdim=True)
    return chosen / (total + (total == 0))


def _row_after(weights, at, candidates):
    chosen = weights[..., (at + 1) % weights.shape[-1], list(candidates)]
    total = chosen.sum(-1, keepdim=True)
    return chosen / (total + (total == 0))


def _odds(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    rest = chosen.sum(-1, keepdim=True) - chosen
    return chosen / (rest + (rest == 0))


ANTECEDENT_PREFERENCE = Exercise(
    chapter=11,
    signature="antecedent_preference(weights, at, candidates) -> (..., H, n)",
    task="""\
A pronoun stands at position `at`; the nouns that it may refer to stand at `candidates`. Of the
weight that each head gives, in row `at`, to *any* of the candidates: what is the share of each?

$$\\frac{w_{\\text{at},\\,c}}{\\sum_{c'} w_{\\text{at},\\,c'}}$$

- `weights` is a tensor of attention weights, `(..., H, T, T)`, with any leading axes or, for a
  single head, `(T, T)`.
- `at` is a position, `candidates` a list of n different ones, in any order; all of them lie in
  0 … T − 1. `at` may be among them.
- Return a tensor `(..., H, n)` of the dtype of `weights`, float64 or float32, in the order of
  `candidates`. The shares of a head sum to 1.
- A head that gives nothing at all to the candidates gets zeros. One that gives them very little
  gets its shares like any other.
- Leave `weights` as they are.""",
    reference=antecedent_preference,
    properties=(
        Property("the shares of two candidates", 2, _two_candidates),
        Property("one candidate or several, in any order", 1, _several_candidates),
        Property("any leading axes: layers, batches", 1, _batches),
        Property("zeros for a head that gives the candidates nothing", 1, _nothing, edge=True),
        Property("very small weights, and float32", 1, _faint, edge=True),
    ),
    misconceptions=(
        Misconception(
            "returns the raw weights",
            "These are the weights themselves. A head that leaves most of its weight at a sink "
            "seems to care for neither noun: divide by what the candidates get together.",
            _raw,
            symptom="your shares do not sum to 1",
        ),
        Misconception(
            "takes the column for the row",
            "You read how much the nouns look at the pronoun. Row `at` holds what the *pronoun* "
            "looks at: rows are queries.",
            _column_for_row,
            symptom="the weights are those of other queries",
        ),
        Misconception(
            "divides nothing by nothing",
            "Where no candidate gets any weight, the sum is 0, and 0/0 is NaN. Such a head prefers "
            "nobody: zeros.",
            _nan_for_nothing,
            symptom="a head that looks elsewhere gives NaN",
        ),
        Misconception(
            "shares nothing out evenly",
            "A head that gives the candidates nothing gets equal shares from you. It has no "
            "preference to report: zeros are asked for.",
            _even_for_nothing,
            symptom="a head that looks elsewhere has a preference",
        ),
        Misconception(
            "adds a small number to the sum",
            "The small number that keeps the division from failing changes the shares of heads "
            "that give the candidates little. Treat a sum of exactly 0 apart.",
            _epsilon,
            symptom="small weights get too small a share",
            also=(_larger_epsilon, _clamped, _clamped_by_normalize),
        ),
        Misconception(
            "takes a softmax of the weights",
            "The weights are a softmax already. Taking one again brings all shares close to "
            "1/n. A share is a plain quotient.",
            _softmax_again,
            symptom="your shares are too even",
        ),
        Misconception(
            "divides by the largest",
            "You divide by the largest of the weights, so that the favourite gets 1. Shares sum to "
            "1: divide by the sum.",
            _by_the_largest,
            symptom="your shares do not sum to 1",
        ),
        Misconception(
            "divides by all the other tokens",
            "You divide by what goes to all tokens but the pronoun. Only the candidates compete: "
            "divide by what they get together.",
            _of_the_others,
            symptom="your shares do not sum to 1",
        ),
        Misconception(
            "divides by the sum over all heads",
            "One sum for all heads makes a quiet head look as if it had no preference. Each head "
            "has its own sum.",
            _heads_together,
            symptom="the shares of a head do not sum to 1",
            also=(_everything_together,),
        ),
        Misconception(
            "sums over the heads",
            "You sum each candidate over the heads. Each head is a reader of its own: its shares, "
            "over the candidates, sum to 1.",
            _over_heads,
            symptom="the shares of a head do not sum to 1",
        ),
        Misconception(
            "sorts the candidates",
            "The shares come in the order of the text. Keep the order of `candidates`: the first "
            "share belongs to the first candidate.",
            _sorted,
            symptom="the shares are in another order",
        ),
        Misconception(
            "reads the row after",
            "You read the row after `at`. Positions are counted from 0, in rows as in columns.",
            _row_after,
            symptom="the weights are those of other queries",
        ),
        Misconception(
            "divides by the other candidates",
            "You divide by what the *other* candidates get. These are odds. A share counts the "
            "candidate itself in the sum.",
            _odds,
            symptom="your shares do not sum to 1",
        ),
    ),
    hints=(
        "A head gives 0.02 to *animal* and 0.01 to *street*, and 0.97 to the first token. Which of "
        "the two nouns does it prefer, and how clearly?",
        "Pick row `at` and the columns of the candidates: n numbers for each head. Divide them by "
        "their sum. Where that is 0, divide by something harmless instead.",
        "`chosen = weights[..., at, candidates]` is `(..., H, n)`. With `total = chosen.sum(-1, "
        "keepdim=True)`, `torch.where(total == 0, ..., total)` is a safe divisor.",
    ),
    minutes=12,
    keeps_dtype=True,
)
