"""`rope_permutation`: from one layout of pairs to the other."""

from __future__ import annotations

import numpy as np

from attend.positions import (
    rope_permutation,
)
from coursework.exercise import Call, Exercise, Misconception, Property, calls


def _widths(rng: np.random.Generator) -> tuple[Call, ...]:
    more = 2 * rng.permutation(np.arange(4, 60))[:4]
    return calls((6,), (10,), *((int(K),) for K in more))


def _narrow_widths(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls((2,), (4,), (6,))


def _inverse(d_head):
    return np.arange(d_head).reshape(2, -1).T.reshape(-1)


def _as_it_is(d_head):
    return np.arange(d_head)


def _odd_first(d_head):
    return np.concatenate([np.arange(1, d_head, 2), np.arange(0, d_head, 2)])


def _exchanged_halves(d_head):
    return np.roll(np.arange(d_head), d_head // 2)


def _neighbours_exchanged(d_head):
    return np.arange(d_head).reshape(-1, 2)[:, ::-1].reshape(-1)


def _counted_from_one(d_head):
    return np.concatenate([np.arange(1, d_head, 2), np.arange(2, d_head + 1, 2)])


def _as_a_matrix(d_head):
    p = np.concatenate([np.arange(0, d_head, 2), np.arange(1, d_head, 2)])
    return np.eye(d_head, dtype=int)[p]


def _as_floats(d_head):
    return np.concatenate([np.arange(0.0, d_head, 2), np.arange(1.0, d_head, 2)])


def _pairs_as_rows(d_head):
    return np.arange(d_head).reshape(-1, 2).T


def _every_second_only(d_head):
    return np.arange(0, d_head, 2)


ROPE_PERMUTATION = Exercise(
    chapter=2,
    signature="rope_permutation(d_head) -> int (d_head,)",
    task="""\
The two layouts of RoPE hold the same pairs at different places: *interleaved*, pair i is features
2i and 2i + 1; *half-split*, it is features i and i + K/2. Return the permutation that carries the
one into the other:

$$
x_\\text{half} = x_\\text{interleaved}[\\dots, \\text{perm}]
$$

- `d_head` (K) is even, 2 or more.
- Return a NumPy array of integers of shape (`d_head`,): entry j says at which *interleaved* place
  feature j of the half-split layout is found.""",
    reference=rope_permutation,
    properties=(
        Property("from the interleaved layout to the half-split one", 2, _widths),
        Property("also for narrow heads", 1, _narrow_widths, edge=True),
    ),
    misconceptions=(
        Misconception(
            "goes the other way",
            "This permutation makes the interleaved layout of the half-split one: the inverse. For "
            "4 features the two happen to be the same, from 6 on they are not.",
            _inverse,
            symptom="the permutation goes the wrong way",
        ),
        Misconception(
            "changes nothing",
            "0, 1, 2, … leaves every feature where it is. The layouts agree for d_head = 2 only.",
            _as_it_is,
            symptom="every feature stays where it is",
        ),
        Misconception(
            "takes the second members first",
            "You take the odd places first. The first half holds the *first* members of the pairs, "
            "which stand at even places; exchanged, the pairs would turn backwards.",
            _odd_first,
            symptom="first and second members have changed places",
        ),
        Misconception(
            "exchanges the halves",
            "You exchange first and second half. The layouts differ in which features are "
            "neighbours: those of a pair stand side by side in the one, K/2 apart in the other.",
            _exchanged_halves,
            symptom="the pairs are not pulled apart",
        ),
        Misconception(
            "exchanges neighbours",
            "You exchange the two members of each pair and leave the pair where it is. Pull the "
            "pairs apart instead: all first members, then all second ones.",
            _neighbours_exchanged,
            symptom="the pairs are not pulled apart",
        ),
        Misconception(
            "counts from 1",
            "Your places begin with 1. Indices count from 0; K itself is outside.",
            _counted_from_one,
            symptom="your indices are one too large",
        ),
        Misconception(
            "returns a matrix",
            "You return the permutation as a K × K matrix. Indices are asked for, (K,): indexing "
            "with them does the same, and costs nothing.",
            _as_a_matrix,
            symptom="what comes back is a matrix",
        ),
        Misconception(
            "returns floats",
            "The numbers are right, but they are floats, and NumPy does not index with floats.",
            _as_floats,
            symptom="your indices are floats",
        ),
        Misconception(
            "leaves the pairs as rows",
            "You return two rows, first and second members. Put the second after the first: (K,).",
            _pairs_as_rows,
            symptom="the two halves are two rows",
        ),
        Misconception(
            "returns the first half only",
            "These are the places of the first members. The second members follow them.",
            _every_second_only,
            symptom="half of the features are missing",
        ),
    ),
    hints=(
        "Write the six places of an interleaved head side by side: a₀ b₀ a₁ b₁ a₂ b₂. In which "
        "order must you read them to get a₀ a₁ a₂ b₀ b₁ b₂?",
        "First all even places, then all odd ones. To see that it is not the inverse, try it on "
        "the six letters above.",
        "`np.arange(0, d_head, 2)` are the even places.",
    ),
    minutes=5,
    returns=("the permutation",),
)
