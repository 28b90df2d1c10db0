"""`gradient_through_softmax`: what of a gradient reaches the scores."""

from __future__ import annotations

import numpy as np

from attend.dot_product import gradient_through_softmax
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, numbers


def _softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _scores_and_upstream(rng: np.random.Generator, *shape: int, dtype: type = np.float64) -> Call:
    return Call((numbers(rng, shape, dtype), numbers(rng, shape, dtype)))


def _single_rows(rng: np.random.Generator) -> tuple[Call, ...]:
    return tuple(_scores_and_upstream(rng, n) for n in (3, 2, 5, 11))


def _many_rows(rng: np.random.Generator) -> tuple[Call, ...]:
    shapes = ((2, 3), (5, 7), (7, 4), (3, 2, 5), (2, 5, 3, 7), (1, 4), (5, 1), (3, 1, 1))
    return tuple(_scores_and_upstream(rng, *shape) for shape in shapes)


def _edges_of_the_gradient(rng: np.random.Generator) -> tuple[Call, ...]:
    levels = 1e4 * (-1.0) ** np.arange(3)[:, None]
    loud = [_scores_and_upstream(rng, 3, n).args for n in (4, 2, 7)]
    spread, upstream = _scores_and_upstream(rng, 5, 4).args
    return (
        Call((5e3 * spread, upstream)),
        *(
            Call((scores + sign * levels, g))
            for sign, (scores, g) in zip((1, -1, 1), loud, strict=True)
        ),
        *(_scores_and_upstream(rng, *shape, dtype=np.int64) for shape in ((3,), (5, 2), (2, 3, 4))),
        _scores_and_upstream(rng, 5, 7, dtype=np.float32),
        in_columns(_scores_and_upstream(rng, 3, 5)),
    )


def _mean_forgotten(scores, upstream):
    return _softmax(scores) * upstream


def _elementwise(scores, upstream):
    p = _softmax(scores)
    return p * (1 - p) * upstream


def _plain_mean(scores, upstream):
    return _softmax(scores) * (upstream - np.mean(upstream, axis=-1, keepdims=True))


def _unweighted_sum(scores, upstream):
    return _softmax(scores) * (upstream - np.sum(upstream, axis=-1, keepdims=True))


def _one_sum(scores, upstream):
    p = _softmax(scores)
    return p * (upstream - np.sum(p * upstream))


def _gradient_sign(scores, upstream):
    p = _softmax(scores)
    return p * (np.sum(p * upstream, axis=-1, keepdims=True) - upstream)


def _no_softmax(scores, upstream):
    return scores * (upstream - np.sum(scores * upstream, axis=-1, keepdims=True))


def _not_weighted(scores, upstream):
    p = _softmax(scores)
    return upstream - np.sum(p * upstream, axis=-1, keepdims=True)


def _mean_term_not_weighted(scores, upstream):
    p = _softmax(scores)
    return p * upstream - np.sum(p * upstream, axis=-1, keepdims=True)


def _gradient_overflows(scores, upstream):
    e = np.exp(scores)
    p = e / np.sum(e, axis=-1, keepdims=True)
    return p * (upstream - np.sum(p * upstream, axis=-1, keepdims=True))


def _gradient_one_maximum(scores, upstream):
    e = np.exp(scores - np.max(scores))
    p = e / np.sum(e, axis=-1, keepdims=True)
    return p * (upstream - np.sum(p * upstream, axis=-1, keepdims=True))


def _gradient_cut(scores, upstream):
    p = _softmax(scores)
    right = p * (upstream - np.sum(p * upstream, axis=-1, keepdims=True))
    return right.astype(scores.dtype)


GRADIENT_THROUGH_SOFTMAX = Exercise(
    chapter=4,
    signature="gradient_through_softmax(scores, upstream) -> (..., n)",
    task="""\
Training sends a gradient backwards. `upstream` is what arrives at the weights
$p = \\operatorname{softmax}(\\text{scores})$, that is $\\partial L / \\partial p$. Return what goes
on to the scores, $\\partial L / \\partial \\text{scores}$: the Jacobian of the softmax times
`upstream`.

- `scores` and `upstream` have the same shape, `(n,)` or `(..., n)` with any leading axes, and so
  has the result. Each row along the last axis is a softmax of its own.
- Scores of 10,000 and −10,000 must do no harm, also side by side in one array.
- Floats come back, whatever comes in: float64, float32 or integers, in any memory order. The width
  of the floats is up to you. Leave both arrays as they are.""",
    reference=gradient_through_softmax,
    properties=(
        Property("right for a single row", 2, _single_rows),
        Property("every row on its own, with any leading axes", 1, _many_rows),
        Property(
            "scores of ±10,000, float32 and integers do no harm",
            1,
            _edges_of_the_gradient,
            edge=True,
        ),
    ),
    misconceptions=(
        Misconception(
            "forgets the mean term",
            "You have p ∘ g. Weights compete: a gradient that pulls on all of them alike moves "
            "nothing. Subtract the weighted mean Σ p g from g first.",
            _mean_forgotten,
            symptom="your gradients do not sum to 0 along a row",
        ),
        Misconception(
            "uses the diagonal of the Jacobian only",
            "You have p (1 − p) g, the diagonal of the Jacobian. Every score moves *every* weight "
            "of its row: the entries −p_i p_j off the diagonal are missing.",
            _elementwise,
            symptom="each score hears of its own weight only",
        ),
        Misconception(
            "subtracts the plain mean",
            "You subtract the plain mean of the upstream gradient. The mean must be weighted by p: "
            "Σ p g.",
            _plain_mean,
            symptom="your gradients do not sum to 0 along a row",
        ),
        Misconception(
            "subtracts the plain sum",
            "You subtract the sum of the upstream gradient. The sum must be weighted by p: Σ p g.",
            _unweighted_sum,
            symptom="your gradients do not sum to 0 along a row",
        ),
        Misconception(
            "makes one sum for all rows",
            "Σ p g runs over the whole array. Each row is a softmax of its own: sum along the last "
            "axis, and keep it (`keepdims=True`).",
            _one_sum,
            symptom="right for one row, wrong for several",
        ),
        Misconception(
            "has the sign wrong",
            "The sign is the other way round: p (g − Σ p g), not p (Σ p g − g).",
            _gradient_sign,
            symptom="your gradients point the wrong way",
        ),
        Misconception(
            "takes the scores for weights",
            "You use the scores as if they were the weights. Take their softmax first.",
            _no_softmax,
            symptom="the softmax is missing",
        ),
        Misconception(
            "forgets p before the bracket",
            "You have g − Σ p g. A weight near 0 hardly moves: the whole difference is multiplied "
            "by p.",
            _not_weighted,
            symptom="keys without weight get a gradient all the same",
        ),
        Misconception(
            "weighs only the first term",
            "You have p g − Σ p g. p stands before the whole bracket: p (g − Σ p g).",
            _mean_term_not_weighted,
            symptom="your gradients do not sum to 0 along a row",
        ),
        Misconception(
            "overflows",
            "exp(10000) is infinite, exp(−10000) is 0, and neither ∞/∞ nor 0/0 is a number. "
            "Subtract the row's largest score first: the weights stay the same.",
            _gradient_overflows,
            symptom="large scores make NaN",
        ),
        Misconception(
            "subtracts one maximum for all rows",
            "You subtract the largest score of the whole array. A row whose scores are all far "
            "below it becomes 0/0. Each row needs its own maximum (`axis=-1, keepdims=True`).",
            _gradient_one_maximum,
            symptom="rows of very different size spoil each other",
        ),
        Misconception(
            "cuts to the integers of the input",
            "You store the result in the dtype of the scores, which cuts it to integers where they "
            "are integers. Gradients are floats.",
            _gradient_cut,
            symptom="integer inputs give integers",
        ),
    ),
    hints=(
        "You have the Jacobian already. What does (diag(p) − p pᵀ) g come to, term by term?",
        "diag(p) g is p times g, entry by entry. p pᵀ g is p times the number pᵀ g. So take the "
        "stable softmax of each row, and subtract from g its mean weighted by p before you "
        "multiply.",
        "`mean = np.sum(p * upstream, axis=-1, keepdims=True)`; what remains is one product of p "
        "and a difference.",
    ),
    minutes=15,
    returns=("the gradient",),
)
