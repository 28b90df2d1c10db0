"""`attention`: scores, weights and the blend of values."""

from __future__ import annotations

import numpy as np

from attend.dot_product import attention
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, loud_qkv, qkv


def _softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _single_sequences(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        qkv(rng, 2, 3, 4, 5),
        qkv(rng, 7, 3, 2, 11),
        qkv(rng, 5, 11, 3, 2),
        qkv(rng, 1, 5, 7, 3),
        qkv(rng, 3, 7, 5, 13),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        qkv(rng, 3, 5, 4, 7, 2),
        qkv(rng, 5, 2, 3, 7, 11),
        qkv(rng, 3, 7, 2, 5, 1),
        qkv(rng, 5, 7, 2, 3, 4, 11),
        qkv(rng, 2, 3, 5, 4, 7, 1, 2),
    )


def _loud(rng: np.random.Generator) -> tuple[Call, ...]:
    spread = qkv(rng, 3, 4, 7, 2)
    return (
        loud_qkv(rng, 2, 3, 5, 4),
        loud_qkv(rng, 5, 3, 2, 7, level=-1e4),
        loud_qkv(rng, 3, 7, 11, 5),
        Call((100 * spread.args[0], 100 * spread.args[1], spread.args[2])),
    )


def _other_arrays(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        qkv(rng, 2, 5, 3, 4, dtype=np.int64),
        qkv(rng, 5, 3, 2, 7, dtype=np.int64),
        qkv(rng, 2, 7, 3, 5, 4, dtype=np.int64),
        qkv(rng, 7, 3, 5, 2, dtype=np.float32),
        qkv(rng, 5, 7, 3, 4, 2, dtype=np.float32),
        in_columns(qkv(rng, 5, 11, 7, 3)),
        in_columns(qkv(rng, 3, 7, 2, 5, 4)),
    )


def _as_many_queries_as_keys(rng: np.random.Generator) -> tuple[Call, ...]:
    """Where what needs T = S does not raise an error."""
    return tuple(
        qkv(rng, T, T, d_k, d_v) for T, d_k, d_v in ((2, 3, 5), (5, 2, 3), (3, 7, 2), (7, 5, 4))
    )


def _weights_transposed(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return np.swapaxes(weights, -1, -2) @ v, weights


def _keys_as_values(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ k, weights


def _columns_normalised(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores, axis=-2, keepdims=True))
    weights = e / np.sum(e, axis=-2, keepdims=True)
    return weights @ v, weights


def _first_axis_normalised(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores, axis=0, keepdims=True))
    weights = e / np.sum(e, axis=0, keepdims=True)
    return weights @ v, weights


def _all_normalised_together(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores))
    weights = e / np.sum(e)
    return weights @ v, weights


def _scaled(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    return weights @ v, weights


def _queries_with_queries(q, k, v):
    scores = q @ np.swapaxes(q, -1, -2)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _keys_with_keys(q, k, v):
    weights = _softmax(k @ np.swapaxes(k, -1, -2))
    return weights @ v, weights


def _uniform(q, k, v):
    weights = np.full((*q.shape[:-1], k.shape[-2]), 1 / k.shape[-2])
    return weights @ v, weights


def _largest_only(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    weights = np.eye(k.shape[-2])[np.argmax(scores, axis=-1)]
    return weights @ v, weights


def _no_softmax(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    return scores @ v, scores


def _scores_for_weights(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    return _softmax(scores) @ v, scores


def _weights_first(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2))
    return weights, weights @ v


def _negated(q, k, v):
    weights = _softmax(-(q @ np.swapaxes(k, -1, -2)))
    return weights @ v, weights


def _all_axes_reversed(q, k, v):
    weights = _softmax(q @ k.T)
    return weights @ v, weights


def _overflows(q, k, v):
    e = np.exp(q @ np.swapaxes(k, -1, -2))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _one_maximum(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _cut_to_the_input(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2)).astype(q.dtype)
    return (weights @ v).astype(v.dtype), weights


ATTENTION = Exercise(
    chapter=3,
    signature="attention(q, k, v) -> (z, weights)",
    task="""\
Put it together: scores, weights, and for each query the values blended by its weights.

- `q` is `(..., T, K)`, `k` is `(..., S, K)`, `v` is `(..., S, d_v)`, with the same leading axes or
  none. `T`, `S`, `K` and `d_v` need not be equal.
- Return the tuple `(z, weights)` of NumPy arrays. Row `i` of `weights`, `(..., T, S)`, is the
  softmax of the scores of query `i`; row `i` of `z`, `(..., T, d_v)`, is the sum of the values,
  each times its weight.
- *Unscaled*: the softmax takes the dot products as they are.
- Scores of 10,000 and more, or −10,000 and less, must do no harm, also side by side in one array.
- The results are floats, whatever the inputs are: float64, float32 or integers, in any memory
  order. Compute in the input's precision (integers: in float64); whether what you return is wider
  is up to you. Leave `q`, `k` and `v` as they are.""",
    reference=attention,
    properties=(
        Property(
            "the weights are the softmax of the scores, row by row",
            2,
            _single_sequences,
            outputs=("weights",),
        ),
        Property("z blends the values with these weights", 1, _single_sequences, outputs=("z",)),
        Property("any leading axes: batches, heads", 1, _batches),
        Property("scores of ±10,000 do no harm", 1, _loud, edge=True),
        Property("float32, integers and any memory order will do", 1, _other_arrays, edge=True),
    ),
    misconceptions=(
        Misconception(
            "transposes the weights",
            "You blend with the transposed weights. Row i of the weights belongs to query i and "
            "says how much of each value it takes: weights @ v, with nothing transposed.",
            _weights_transposed,
            symptom="the weights are right, but they are turned round before they blend",
        ),
        Misconception(
            "blends the keys",
            "The weights are right, but they blend the keys. Keys say where to look; what is "
            "handed over are the values.",
            _keys_as_values,
            symptom="z is made of keys",
        ),
        Misconception(
            "normalises the columns",
            "Your columns sum to 1 (the softmax runs over the queries). Each *query* spreads a "
            "weight of 1 over the keys: the rows must sum to 1, which is the last axis.",
            _columns_normalised,
            symptom="your rows do not sum to 1",
            also=(_first_axis_normalised,),
        ),
        Misconception(
            "normalises all weights together",
            "All weights of the array together sum to 1. Each query spreads a weight of 1 of its "
            "own: sum along the last axis, and keep it (`keepdims=True`).",
            _all_normalised_together,
            symptom="your rows do not sum to 1",
        ),
        Misconception(
            "scales already",
            "You divide the scores by √d_k. That is the subject of chapter 04; here the softmax "
            "takes them as they are.",
            _scaled,
            symptom="your weights are too flat",
        ),
        Misconception(
            "compares queries with queries",
            "The keys play no part: you compare the queries with themselves.",
            _queries_with_queries,
            symptom="your weights do not depend on k",
        ),
        Misconception(
            "compares keys with keys",
            "The queries play no part: you compare the keys with themselves.",
            _keys_with_keys,
            symptom="your weights do not depend on q",
        ),
        Misconception(
            "weighs all keys alike",
            "Every key gets 1/S, so that z is the mean of the values for every query. The weights "
            "must come from the scores q · k.",
            _uniform,
            symptom="your weights are all the same",
        ),
        Misconception(
            "takes the best key only",
            "Each query takes the value of its best key and nothing of the others. That is a "
            "lookup in an ordinary dictionary; attention blends, and only so can it be trained.",
            _largest_only,
            symptom="your weights are all 0 or 1",
        ),
        Misconception(
            "leaves the softmax out",
            "You blend with the scores themselves. They may be negative and have any sum: the "
            "softmax makes weights of them.",
            _no_softmax,
            symptom="your weights are scores",
        ),
        Misconception(
            "returns the scores as weights",
            "z is right, but what you return beside it are the scores. Return what the softmax "
            "made of them.",
            _scores_for_weights,
            symptom="your weights are scores",
        ),
        Misconception(
            "returns the weights first",
            "Both are right, in the wrong order: return `(z, weights)`.",
            _weights_first,
            symptom="z and weights have changed places",
        ),
        Misconception(
            "negates the scores",
            "The softmax of −q · k favours the keys that fit the query *least*. The stabilised "
            "form is exp(x − max), not exp(max − x).",
            _negated,
            symptom="the key that fits least gets the largest weight",
        ),
        Misconception(
            "reverses all axes",
            "This does for one sequence. k.T turns *all* axes round, the batch as well, and a loop "
            "over q or k meets whole sequences there. Exchange the last two axes only: "
            "`np.swapaxes(k, -1, -2)`.",
            _all_axes_reversed,
            symptom="right for one sequence, but it cannot take a batch",
        ),
        Misconception(
            "overflows",
            "exp(10000) is infinite, exp(−10000) is 0, and neither ∞/∞ nor 0/0 is a number. "
            "Subtract the row's largest score first: the weights stay the same.",
            _overflows,
            symptom="large scores make NaN",
        ),
        Misconception(
            "subtracts one maximum for all rows",
            "You subtract the largest score of the whole array. A row whose scores are all far "
            "below it becomes 0/0. Each row needs its own maximum (`axis=-1, keepdims=True`).",
            _one_maximum,
            symptom="rows of very different size spoil each other",
        ),
        Misconception(
            "cuts to the integers of the input",
            "You store the results in the dtype of the inputs, which cuts the weights of integer "
            "inputs to 0 or 1. Weights are floats: do not fill arrays made with `empty_like(q)`.",
            _cut_to_the_input,
            symptom="integer inputs give integers",
        ),
    ),
    hints=(
        "You have written two of the three steps already. Which axis of the scores belongs to the "
        "keys?",
        "Scores from `q` and `k`, their softmax along the last axis, and a matrix product of the "
        "weights with `v`. Call your own functions.",
        "`weights = softmax(attention_scores(q, k))`. What is `weights @ v`, and which of the two "
        "is returned first?",
    ),
    minutes=12,
    returns=("z", "weights"),
    look_first="weights",
    probes=_as_many_queries_as_keys,
)
