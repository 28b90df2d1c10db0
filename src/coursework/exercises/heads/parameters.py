"""How many parameters a layer of attention has, whatever the number of its heads."""

from __future__ import annotations

import numpy as np

from attend.heads import attention_parameters
from coursework.exercise import Call, Exercise, Misconception, Property, calls

Rng = np.random.Generator


def _without_output(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    return d_model**2 + 2 * d_model * G * (d_model // n_heads)


def _times_heads(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    return n_heads * (2 * d_model**2 + 2 * d_model * G * (d_model // n_heads))


def _times_heads_but_the_output(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    return d_model**2 * n_heads + d_model**2 + 2 * G * d_model**2


def _squares_times_heads(d_model, n_heads, n_kv_heads=None):
    return 4 * d_model**2 * n_heads


def _three_squares(d_model, n_heads, n_kv_heads=None):
    return 3 * d_model**2


def _groups_ignored(d_model, n_heads, n_kv_heads=None):
    return 4 * d_model**2


def _with_biases(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    kv = G * (d_model // n_heads)
    return 2 * d_model**2 + 2 * d_model * kv + 2 * d_model + 2 * kv


def _one_bias_each(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    return 2 * d_model**2 + 2 * d_model * G * (d_model // n_heads) + 4 * d_model


def _output_narrowed(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    return d_model**2 + 3 * d_model * G * (d_model // n_heads)


def _one_head_only(d_model, n_heads, n_kv_heads=None):
    return 4 * d_model * (d_model // n_heads)


def _values_kept_whole(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    return 3 * d_model**2 + d_model * G * (d_model // n_heads)


def _a_float(d_model, n_heads, n_kv_heads=None):
    G = n_kv_heads or n_heads
    return 2.0 * d_model**2 + 2 * d_model * G * d_model / n_heads


def _as_many_as_heads(rng: Rng) -> tuple[Call, ...]:
    H = int(rng.choice([3, 5, 6, 7]))
    return calls((4, 2), (12, 3), (H * 11, H), (768, 12), (64, 1))


def _fewer_than_heads(rng: Rng) -> tuple[Call, ...]:
    K = int(rng.choice([16, 24, 40]))
    made = ((12, 6, 2), (8, 4, 1), (576, 9, 3), (K * 12, 12, 4), (4096, 32, 8), (K * 6, 6, 6))
    return tuple(Call((D, H), {"n_kv_heads": G}) for D, H, G in made)


def _huge(rng: Rng) -> tuple[Call, ...]:
    odd = 2 * int(rng.integers(10**8, 2 * 10**8)) + 1  # beyond what a float can count
    return (
        Call((3 * odd, 3), {"n_kv_heads": 1}),
        Call((odd, 1)),
        Call((5 * odd, 5), {"n_kv_heads": 5}),
        Call((1, 1), {"n_kv_heads": 1}),
    )


ATTENTION_PARAMETERS = Exercise(
    chapter=6,
    signature="attention_parameters(d_model, n_heads, n_kv_heads=None) -> int",
    task="""
How many numbers are there in the four matrices of a layer of attention, without biases? Return a
Python `int`.

- `d_model` is D, `n_heads` is H, which divides D; each head is K = D / H wide.
- `n_kv_heads` is G, a divisor of H: how many heads the keys and the values have. `None` means
  H, as in `multi_head_attention`.
- The matrices are those of `multi_head_attention` and `grouped_query_attention`: W_Q and W_O
  belong to the H query heads, W_K and W_V to the G key/value heads.

Sizes may be so large that the answer is more than a float can count.
""",
    reference=attention_parameters,
    properties=(
        Property("as many key/value heads as query heads", 2, _as_many_as_heads),
        Property("fewer key/value heads", 2, _fewer_than_heads),
        Property("sizes beyond what a float can count", 1, _huge, edge=True),
    ),
    misconceptions=(
        Misconception(
            "forgets W_O",
            "Three matrices make queries, keys and values. A fourth one mixes what the heads bring "
            "back: W_O, D by D.",
            _without_output,
            "one matrix is missing",
            also=(_three_squares,),
        ),
        Misconception(
            "multiplies by the number of heads",
            "You count a whole set of matrices for every head. The heads *share* the D columns: "
            "each has D / H of them, and together they have D.",
            _times_heads,
            "the count grows with the number of heads",
            also=(_times_heads_but_the_output, _squares_times_heads),
        ),
        Misconception(
            "ignores the groups",
            "4·D² is right where keys and values have as many heads as queries. With G heads, W_K "
            "and W_V have G·K columns only.",
            _groups_ignored,
            "the number of key/value heads makes no difference",
        ),
        Misconception(
            "counts biases",
            "Your count has biases. They are a small part of a layer, and here there are none.",
            _with_biases,
            "it is a little too large",
            also=(_one_bias_each,),
        ),
        Misconception(
            "narrows W_O as well",
            "Only keys and values have fewer heads. W_O takes in what H *query* heads bring, H·K = "
            "D numbers.",
            _output_narrowed,
            "W_O is too small",
        ),
        Misconception(
            "counts one head",
            "This is the share of a single head. There are H of them.",
            _one_head_only,
            "only one head is counted",
        ),
        Misconception(
            "narrows the keys only",
            "Values are shared in the same way as keys: W_V has G·K columns too.",
            _values_kept_whole,
            "one of W_K and W_V is too large",
        ),
        Misconception(
            "returns a float",
            "The number is right as long as floats can count it, but it is a float: / always gives "
            "one. Count with whole numbers, //.",
            _a_float,
            "the count is not a whole number",
        ),
    ),
    hints=(
        "Write down the shape of each of the four matrices for D = 8, H = 4 and G = 2.",
        "W_Q makes D columns out of D, whatever H is; W_O takes D and makes D. W_K and W_V make "
        "G·K columns out of D.",
        "Two matrices of D × D and two of D × (G·K), with K = D // H. A default of None is "
        "replaced by H first.",
    ),
    minutes=6,
    returns=("the count",),
)
