"""What attention costs on T tokens, in operations and in bytes."""

from __future__ import annotations

import numpy as np

from attend.long_context import attention_cost
from coursework.exercise import Call, Exercise, Misconception, Property, calls


def _some_sizes(rng: np.random.Generator) -> tuple[Call, ...]:
    long = int(rng.integers(1000, 3000))
    return calls((3, 2), (7, 5), (11, 64), (long, 128), (2 * long + 1, 17))


def _other_widths(rng: np.random.Generator) -> tuple[Call, ...]:
    sizes = ((5, 3, 2), (7, 2, 8), (int(rng.integers(100, 200)), 64, 1), (1001, 16, 2))
    return tuple(Call((T, D), {"bytes_per_value": width}) for T, D, width in sizes)


def _smallest_and_largest(rng: np.random.Generator) -> tuple[Call, ...]:
    million = int(rng.integers(10**6, 2 * 10**6))
    odd = 2 * int(rng.integers(800_000, 10**6)) - 1  # the flops are more than a float can count
    return calls((1, 7), (0, 5), (1, 1), (million, 4096), (odd, 4093))


def _half_the_flops(T, D, bytes_per_value=4):
    return 2 * T * T * D, T * T * bytes_per_value


def _linear(T, D, bytes_per_value=4):
    return 4 * T * D, T * bytes_per_value


def _linear_scores(T, D, bytes_per_value=4):
    return 4 * T * T * D, T * bytes_per_value


def _linear_flops(T, D, bytes_per_value=4):
    return 4 * T * D, T * T * bytes_per_value


def _bits(T, D, bytes_per_value=4):
    return 4 * T * T * D, 8 * T * T * bytes_per_value


def _numbers_of_scores(T, D, bytes_per_value=4):
    return 4 * T * T * D, T * T


def _causal_half(T, D, bytes_per_value=4):
    pairs = T * (T + 1) // 2
    return 4 * pairs * D, pairs * bytes_per_value


def _causal_quarter(T, D, bytes_per_value=4):
    return 2 * T * T * D, T * T * bytes_per_value // 2


def _causal_flops(T, D, bytes_per_value=4):
    return 2 * T * (T + 1) * D, T * T * bytes_per_value


def _the_other_way_round(T, D, bytes_per_value=4):
    return T * T * bytes_per_value, 4 * T * T * D


def _with_projections(T, D, bytes_per_value=4):
    return 4 * T * T * D + 8 * T * D * D, T * T * bytes_per_value


def _queries_for_scores(T, D, bytes_per_value=4):
    return 4 * T * T * D, T * D * bytes_per_value


def _scores_and_weights(T, D, bytes_per_value=4):
    return 4 * T * T * D, 2 * T * T * bytes_per_value


def _width_squared(T, D, bytes_per_value=4):
    return 4 * T * D * D, T * T * bytes_per_value


def _always_four(T, D, bytes_per_value=4):
    return 4 * T * T * D, 4 * T * T


ATTENTION_COST = Exercise(
    chapter=10,
    signature="attention_cost(T, D, bytes_per_value=4) -> (flops, score_bytes)",
    task="""\
What does one attention head cost on `T` tokens, if queries, keys and values are all `D` wide?
Return a tuple of two whole numbers (Python's `int`):

- `flops`: the floating-point operations of the two matrix products, $Q K^\\top$ and weights times
  $V$. A multiplication followed by an addition counts as 2 operations. Leave out the projections
  and the softmax.
- `score_bytes`: the bytes of the `T` × `T` matrix of scores, at `bytes_per_value` bytes a score.

Count every score, those of the future as well. `T` is a whole number from 0 to 2 million, `D` one
from 1 to 4096, `bytes_per_value` one from 1 to 8.""",
    reference=attention_cost,
    properties=(
        Property("flops counts both products", 2, _some_sizes, outputs=("flops",)),
        Property("score_bytes counts the matrix", 1, _some_sizes, outputs=("score_bytes",)),
        Property("scores of other widths", 1, _other_widths),
        Property("no token, one token, two million", 1, _smallest_and_largest, edge=True),
    ),
    misconceptions=(
        Misconception(
            "counts one flop per multiply-add",
            "Each of the two products has T² entries, each a sum of D products: D multiplications "
            "and D additions. One product alone, or one operation for each multiply-add, gives "
            "half of it.",
            _half_the_flops,
            symptom="flops is half of what it should be",
        ),
        Misconception(
            "forgets the square",
            "Every token is compared with every token: T · T scores. What you count grows in "
            "proportion to T, as a recurrent network's cost does.",
            _linear,
            symptom="twice the tokens cost only twice as much",
            also=(_linear_scores, _linear_flops),
        ),
        Misconception(
            "counts bits",
            "You count bits. `bytes_per_value` is in bytes already; nothing is multiplied by 8.",
            _bits,
            symptom="score_bytes is eight times too large",
        ),
        Misconception(
            "counts scores for bytes",
            "This is how many scores there are. Each of them takes bytes_per_value bytes.",
            _numbers_of_scores,
            symptom="score_bytes does not depend on bytes_per_value",
        ),
        Misconception(
            "leaves out the future",
            "A causal model needs about half of the scores only, and a clever program computes no "
            "more. Here every score counts, as in the plain product Q Kᵀ.",
            _causal_half,
            symptom="you count only the scores of the past",
            also=(_causal_quarter, _causal_flops),
        ),
        Misconception(
            "adds the projections",
            "8 T D² is what the projections to Q, K, V and the output cost. They grow with T, not "
            "with T², and are left out here.",
            _with_projections,
            symptom="flops is too large, by 8 T D²",
        ),
        Misconception(
            "counts the bytes of the queries",
            "T · D numbers are what Q holds. The scores are a matrix of T rows and T columns, "
            "however wide the queries are.",
            _queries_for_scores,
            symptom="score_bytes depends on D",
        ),
        Misconception(
            "counts scores and weights",
            "Scores and weights are two matrices if they are kept apart. Asked for is the one of "
            "the scores.",
            _scores_and_weights,
            symptom="score_bytes is twice what it should be",
        ),
        Misconception(
            "returns bytes first",
            "Both numbers are right, in the other order: the operations come first.",
            _the_other_way_round,
            symptom="the two numbers have changed places",
        ),
        Misconception(
            "squares the width",
            "You have T · D². A score needs one dot product of width D, and there are T² of them: "
            "it is the tokens that are squared.",
            _width_squared,
            symptom="flops grows with D², and not with T²",
        ),
        Misconception(
            "takes 4 bytes for every score",
            "4 is only the default. Multiply by bytes_per_value: half precision has 2 bytes, "
            "float64 has 8.",
            _always_four,
            symptom="right at 4 bytes a score, wrong at any other width",
        ),
    ),
    hints=(
        "How many entries has Q Kᵀ, and how many multiplications and additions does one of them "
        "take?",
        "Q Kᵀ: T² entries, each a dot product of width D, at 2·D operations. Weights times V: T·D "
        "entries, each a sum over T keys. Both come to the same number. The bytes: T² scores.",
        "`flops = 2 * (2 * T * T * D)`; the scores are `T * T`, times the bytes of one.",
    ),
    minutes=5,
    returns=("flops", "score_bytes"),
)
