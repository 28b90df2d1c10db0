"""`row_entropy`: how undecided a query is."""

from __future__ import annotations

from typing import Any

import numpy as np

from attend.dot_product import row_entropy
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import distributions


def _matrices_of_weights(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(*((distributions(rng, T, S),) for T, S in ((2, 3), (5, 7), (11, 2), (3, 13))))


def _leading_axes(rng: np.random.Generator) -> tuple[Call, ...]:
    shapes = ((5,), (3,), (2, 3, 5), (7, 2, 11), (5, 1, 3), (2, 5, 3, 7))
    return calls(*((distributions(rng, *shape),) for shape in shapes))


def _with_zeros(rng: np.random.Generator) -> tuple[Call, ...]:
    one_hot = np.eye(5)[rng.permutation(5)[:3]]
    some = np.concatenate([distributions(rng, 3, 4), np.zeros((3, 2))], axis=1)
    causal = np.tril(np.ones((7, 7))) / np.arange(1, 8)[:, None]
    deep = np.zeros((2, 3, 5))
    deep[..., :2] = distributions(rng, 2, 3, 2)
    narrow = rng.permuted(some, axis=1).astype(np.float32)
    faint = distributions(rng, 3, 2) * (1 - 3e-7)
    faint = np.concatenate([faint, np.full((3, 3), 1e-7)], axis=1)
    many = distributions(rng, 2, 20011)  # what is added to each of them adds up
    some = rng.permuted(some, axis=1)
    return calls((one_hot,), (some,), (causal,), (deep,), (narrow,), (faint,), (many,))


def _bits(weights):
    return -np.sum(weights * np.log2(np.where(weights > 0, weights, 1)), axis=-1)


def _nan_at_zero(weights):
    return -np.sum(weights * np.log(weights), axis=-1)


def _over_queries(weights):
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-2)


def _over_axis_1(weights):
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=1)


def _sign_forgotten(weights):
    return np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)


def _mean_over_keys(weights):
    return -np.mean(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)


def _one_number(weights):
    return -np.sum(weights * np.log(np.where(weights > 0, weights, 1)))


def _mean_over_rows(weights):
    return np.mean(-np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1))


def _weight_forgotten(weights):
    return -np.sum(np.log(np.where(weights > 0, weights, 1)), axis=-1)


def _relative_to_uniform(weights):
    entropy = -np.sum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)
    return entropy / np.log(weights.shape[-1])


def _something_in_the_log(weights):
    return -np.sum(weights * np.log(weights + 1e-8), axis=-1)


def _is_something_in_the_log(call: Call, value: Any) -> bool:
    """Whether each row lacks the same small amount for each of its weights that is not 0."""
    (weights,) = call.args
    right = np.asarray(row_entropy(weights))
    if type(value) not in (float, np.ndarray) or np.shape(value) != right.shape:
        return False
    with np.errstate(all="ignore"):
        lacking = (right - value) / np.sum(weights > 0, axis=-1)
    smallest, largest = np.min(lacking), np.max(lacking)
    return bool(1e-13 < smallest <= largest < min(1.2 * smallest, 1e-3))


ROW_ENTROPY = Exercise(
    chapter=4,
    signature="row_entropy(weights) -> (...)",
    task="""\
How undecided is a query? The entropy of its weights tells: $-\\sum_j p_j \\ln p_j$, which is 0
if it looks at one key only and $\\ln S$ if it looks at all alike.

- `weights` is `(..., S)`, float64 or float32; each row along the last axis is a distribution. There
  may be any number of leading axes. Return one entropy a row, `(...)`; for a single distribution,
  `(S,)`, that is one number.
- In **nats**: with the natural logarithm.
- A weight of exactly 0 counts 0, as $p \\ln p \\to 0$; a row that is certain has entropy 0.
- Compute in the input's precision. To add a small number in the logarithm changes every entropy,
  and is not accurate enough.
- Leave `weights` as they are. A NumPy warning on the way costs nothing.""",
    reference=row_entropy,
    properties=(
        Property(
            "each row of a matrix of weights has its entropy, in nats", 2, _matrices_of_weights
        ),
        Property("any leading axes, and none", 1, _leading_axes),
        Property("weights of 0 count 0, in float64 and float32", 1, _with_zeros, edge=True),
    ),
    misconceptions=(
        Misconception(
            "measures in bits",
            "This is the entropy in bits, with the logarithm to base 2. Nats are asked for: take "
            "the natural logarithm, `np.log`.",
            _bits,
            symptom="every entropy is 1/ln 2 ≈ 1.44 times too large",
        ),
        Misconception(
            "makes NaN of weights of 0",
            "ln 0 is −∞, and 0 · (−∞) is not a number. As p goes to 0, p ln p goes to 0: let zero "
            "weights count 0, for instance by taking the logarithm of 1 in their place.",
            _nan_at_zero,
            symptom="a weight of 0 makes NaN",
        ),
        Misconception(
            "sums over the queries",
            "You sum over the axis of the queries. Each *row* is a distribution: its weights lie "
            "along the last axis.",
            _over_queries,
            symptom="you sum over the wrong axis",
        ),
        Misconception(
            "counts the axis from the front",
            "Axis 1 is the last one only while `weights` is a matrix. With a batch before it, axis "
            "1 is another: count from the end, `axis=-1`.",
            _over_axis_1,
            symptom="right for a matrix, wrong for other shapes",
        ),
        Misconception(
            "forgets the sign",
            "The logarithm of a weight is negative, so Σ p ln p is. Entropy is −Σ p ln p, never "
            "below 0.",
            _sign_forgotten,
            symptom="your entropies are negative",
        ),
        Misconception(
            "averages over the keys",
            "You take the mean over the keys where the sum is due. The weights p_j do the "
            "averaging already: entropy is the mean of −ln p *under p*.",
            _mean_over_keys,
            symptom="every entropy is S times too small",
        ),
        Misconception(
            "makes one number of all rows",
            "You sum over all axes. Each row is a query with an entropy of its own: sum along the "
            "last axis only.",
            _one_number,
            symptom="a single number came back for many rows",
        ),
        Misconception(
            "averages over the rows",
            "This is the mean entropy of all rows. Each row is a query with an entropy of its own: "
            "return them one by one.",
            _mean_over_rows,
            symptom="a single number came back for many rows",
        ),
        Misconception(
            "forgets the weight before the logarithm",
            "You sum −ln p. A surprise counts as often as it happens: each −ln p_j is weighted by "
            "p_j.",
            _weight_forgotten,
            symptom="unlikely keys count far too much",
        ),
        Misconception(
            "divides by ln S",
            "You divide by ln S, so that uniform weights give 1. Nats are asked for: uniform "
            "weights over S keys have entropy ln S.",
            _relative_to_uniform,
            symptom="your entropies never exceed 1",
        ),
        Misconception(
            "adds a small number inside the logarithm",
            "ln(p + ε) keeps ln 0 away, and makes every entropy a little wrong, by ε for each key. "
            "Leave the weights that are not 0 alone: `np.where` chooses which ones are changed.",
            _something_in_the_log,
            symptom="your entropies are slightly too small",
            recognises=_is_something_in_the_log,
        ),
    ),
    hints=(
        "One row is a sum over its keys. Try [0.5, 0.5, 0]: by hand it is ln 2. What does your "
        "code say?",
        "Multiply each weight with its logarithm, sum along the last axis, change the sign. Before "
        "you take the logarithm, put something harmless in the place of each 0: its product with "
        "the weight 0 is 0 in any case.",
        "`safe = np.where(weights > 0, weights, 1.0)` has a logarithm everywhere, and ln 1 = 0. "
        "Then sum `weights * np.log(safe)` along `axis=-1`.",
    ),
    minutes=10,
    returns=("the entropy",),
)
