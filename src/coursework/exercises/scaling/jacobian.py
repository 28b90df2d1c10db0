"""`softmax_jacobian`: how weights answer to scores."""

from __future__ import annotations

import numpy as np

from attend.dot_product import softmax_jacobian
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import distributions


def _softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _some_distributions(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(*((distributions(rng, n),) for n in (3, 2, 5, 7, 13)))


def _certain_and_even(rng: np.random.Generator) -> tuple[Call, ...]:
    certain = np.zeros(5)
    certain[rng.integers(5)] = 1.0
    partly = np.insert(distributions(rng, 3), rng.integers(4), 0.0)
    even, narrow = np.full(3, 1 / 3), distributions(rng, 7).astype(np.float32)
    return calls((np.ones(1),), (even,), (partly,), (certain,), (narrow,))


def _diagonal_only(p):
    return np.diag(p * (1 - p))


def _sign(p):
    return np.outer(p, p) - np.diag(p)


def _outer_missing(p):
    return np.diag(p)


def _diagonal_missing(p):
    return -np.outer(p, p)


def _outer_added(p):
    return np.diag(p) + np.outer(p, p)


def _delta_forgotten(p):
    return np.outer(p, 1 - p)


def _vector_of_derivatives(p):
    return p * (1 - p)


def _softmax_twice(p):
    p = _softmax(p)
    return np.diag(p) - np.outer(p, p)


SOFTMAX_JACOBIAN = Exercise(
    chapter=4,
    signature="softmax_jacobian(p) -> (n, n)",
    task="""\
All derivatives of a softmax, written with its output. `p` is one distribution, `(n,)`: the softmax
of some scores `x`, which you do not see and do not need. Return the matrix `J`, `(n, n)`, with
$J_{ij} = \\partial p_i / \\partial x_j$.

- `p` holds floats, float64 or float32, that sum to 1. Weights may be exactly 0 or 1, and `n` may be
  1. Leave `p` as it is.
- The result is a NumPy array of floats.""",
    reference=softmax_jacobian,
    properties=(
        Property(
            "entry [i, j] is the derivative of p_i with respect to x_j", 3, _some_distributions
        ),
        Property("certain, even and float32 distributions", 1, _certain_and_even, edge=True),
    ),
    misconceptions=(
        Misconception(
            "keeps the diagonal only",
            "You have how each weight changes with its *own* score. A score also takes weight from "
            "all the others: off the diagonal stands −p_i p_j.",
            _diagonal_only,
            symptom="off the diagonal everything is 0",
        ),
        Misconception(
            "has the sign wrong",
            "All entries have the wrong sign. Raising a score raises its own weight: the diagonal, "
            "p_i (1 − p_i), is positive.",
            _sign,
            symptom="raising a score lowers its own weight",
        ),
        Misconception(
            "forgets the outer product",
            "You have diag(p) alone. Raising every score by the same amount changes no weight, so "
            "each row of J must sum to 0: −p pᵀ is missing.",
            _outer_missing,
            symptom="your rows do not sum to 0",
        ),
        Misconception(
            "forgets the diagonal",
            "You have −p pᵀ alone. Raising every score by the same amount changes no weight, so "
            "each row of J must sum to 0: diag(p) is missing.",
            _diagonal_missing,
            symptom="your rows do not sum to 0",
        ),
        Misconception(
            "adds the outer product",
            "The diagonal and p pᵀ are there, with a plus between them. Weights compete: what one "
            "gains the others lose, so the outer product is subtracted.",
            _outer_added,
            symptom="raising one score raises every weight",
        ),
        Misconception(
            "takes every entry for one of the diagonal",
            "This is p_i (1 − p_j) everywhere. The 1 is the derivative of exp(x_i) by its own "
            "score, and there is none by another: it belongs on the diagonal only.",
            _delta_forgotten,
            symptom="raising one score raises every weight",
        ),
        Misconception(
            "returns the diagonal as a vector",
            "p (1 − p) is what each weight does with its own score. Asked for is what each weight "
            "does with *each* score, a matrix: off the diagonal stands −p_i p_j.",
            _vector_of_derivatives,
            symptom="a vector came back, and the Jacobian is a matrix",
        ),
        Misconception(
            "takes the softmax of p",
            "p is the output of the softmax already. Taking the softmax of it once more makes it "
            "flatter, and the derivatives are those of another distribution.",
            _softmax_twice,
            symptom="the entries belong to a flatter distribution",
        ),
    ),
    hints=(
        "Write p_i = exp(x_i) / Σ exp(x). Differentiate by x_i once, and by another x_j once: you "
        "get two different answers.",
        "∂p_i/∂x_i = p_i − p_i², and ∂p_i/∂x_j = −p_i p_j for j ≠ i. One of the two terms lives on "
        "the diagonal alone, the other everywhere.",
        "A matrix with p on its diagonal (`np.diag`), minus a matrix whose entry [i, j] is p_i p_j "
        "(`np.outer`).",
    ),
    minutes=15,
    returns=("J",),
)
