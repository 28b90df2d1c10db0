"""`attention_scores`: every query compared with every key."""

from __future__ import annotations

import numpy as np

from attend.dot_product import attention_scores
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, numbers


def _queries_and_keys(
    rng: np.random.Generator,
    T: int,
    S: int,
    d_k: int,
    *leading: int,
    dtype: type = np.float64,
) -> Call:
    shapes = ((*leading, T, d_k), (*leading, S, d_k))
    return Call(tuple(numbers(rng, shape, dtype) for shape in shapes))


def _single_sequences(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _queries_and_keys(rng, 2, 3, 4),
        _queries_and_keys(rng, 5, 2, 3),
        _queries_and_keys(rng, 3, 7, 5),
        _queries_and_keys(rng, 1, 5, 2),
        _queries_and_keys(rng, 7, 11, 13),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _queries_and_keys(rng, 3, 5, 4, 2),
        _queries_and_keys(rng, 5, 2, 3, 7),
        _queries_and_keys(rng, 2, 7, 3, 1),
        _queries_and_keys(rng, 3, 4, 5, 2, 7),
        in_columns(_queries_and_keys(rng, 5, 3, 2, 4)),
        _queries_and_keys(rng, 4, 7, 3, 5, dtype=np.float32),
    )


def _as_many_queries_as_keys(rng: np.random.Generator) -> tuple[Call, ...]:
    """Where what needs T = S does not raise an error."""
    return tuple(_queries_and_keys(rng, T, T, d_k) for T, d_k in ((2, 3), (5, 2), (3, 7), (7, 5)))


def _the_other_way_round(q, k):
    return k @ np.swapaxes(q, -1, -2)


def _entry_by_entry(q, k):
    return q * k


def _own_key_only(q, k):
    return np.sum(q * k, axis=-1)


def _as_many_as_queries(q, k):
    T = q.shape[-2]
    scores = np.zeros((*q.shape[:-1], T))
    for i in range(T):
        for j in range(T):
            scores[..., i, j] = np.sum(q[..., i, :] * k[..., j, :], axis=-1)
    return scores


def _scaled(q, k):
    return q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])


def _all_axes_reversed(q, k):
    return q @ k.T


def _reshaped(q, k):
    return q @ np.reshape(k, (*k.shape[:-2], k.shape[-1], k.shape[-2]))


def _queries_with_queries(q, k):
    return q @ np.swapaxes(q, -1, -2)


def _keys_with_keys(q, k):
    return k @ np.swapaxes(k, -1, -2)


def _cosine(q, k):
    q = q / np.sqrt(np.sum(q**2, axis=-1, keepdims=True))
    k = k / np.sqrt(np.sum(k**2, axis=-1, keepdims=True))
    return q @ np.swapaxes(k, -1, -2)


def _softmax_already(q, k):
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


ATTENTION_SCORES = Exercise(
    chapter=3,
    signature="attention_scores(q, k) -> (..., T, S)",
    task="""\
Compare every query with every key: entry `[i, j]` is the dot product of query `i` with key `j`.

- `q` is `(..., T, K)`, `k` is `(..., S, K)`, with the same leading axes or none. `T` and `S` need
  not be equal: the queries may come from another text than the keys.
- Return a NumPy array of shape `(..., T, S)`: a row for each query, a column for each key.
- The scores are *unscaled*; the scale is chapter 04's.
- Inputs are float64 or float32 in any memory order; leave them as they are.""",
    reference=attention_scores,
    properties=(
        Property("entry [i, j] is the dot product of query i with key j", 2, _single_sequences),
        Property("any leading axes, float32, any memory order", 1, _batches),
    ),
    misconceptions=(
        Misconception(
            "has a row for each key",
            "Your rows belong to the keys and your columns to the queries. In this course a row is "
            "what one query makes of all keys: q stands first in the product, k is transposed.",
            _the_other_way_round,
            symptom="your scores are turned round",
        ),
        Misconception(
            "multiplies entry by entry",
            "q * k multiplies entry by entry, and only where both have the same shape. A score is "
            "a *sum* of products, one for every pair of a query with a key: a matrix product.",
            _entry_by_entry,
            symptom="this is not a table of queries against keys",
        ),
        Misconception(
            "compares each query with one key",
            "You compare query 0 with key 0, query 1 with key 1, and no others. Attention compares "
            "*every* query with *every* key: T · S scores.",
            _own_key_only,
            symptom="there is one score a query, and there should be one a pair",
        ),
        Misconception(
            "takes T for the number of keys",
            "Your table is T by T. There are S keys, and there may be more or fewer of them than "
            "queries: take their number from k.",
            _as_many_as_queries,
            symptom="right only if there are as many keys as queries",
        ),
        Misconception(
            "scales already",
            "These scores are divided by √d_k. That is the subject of chapter 04; asked for here "
            "are the dot products themselves.",
            _scaled,
            symptom="your scores are all too small by one factor",
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
            "reshapes where it should transpose",
            "reshape keeps the numbers in their order and draws the borders anew, so that numbers "
            "of different keys get mixed. A transpose exchanges axes: `np.swapaxes(k, -1, -2)`.",
            _reshaped,
            symptom="the shape is right, the numbers are mixed up",
        ),
        Misconception(
            "compares queries with queries",
            "The keys play no part: you compare the queries with themselves.",
            _queries_with_queries,
            symptom="your scores do not depend on k",
        ),
        Misconception(
            "compares keys with keys",
            "The queries play no part: you compare the keys with themselves.",
            _keys_with_keys,
            symptom="your scores do not depend on q",
        ),
        Misconception(
            "compares directions only",
            "You divide by the lengths of the vectors: this is the cosine of their angle. The dot "
            "product counts length as well, so that a long query asks louder.",
            _cosine,
            symptom="your scores lie between −1 and 1",
        ),
        Misconception(
            "takes the softmax already",
            "You have taken the softmax of the scores. That is the next step; asked for are the "
            "scores themselves.",
            _softmax_already,
            symptom="these are weights already",
        ),
    ),
    hints=(
        "T queries, S keys: how many dot products are there, and how would you lay them out?",
        "Row i of `q` with column j of the *transposed* keys is one dot product, and a matrix "
        "product makes all of them. Transpose the last two axes of `k` and leave a batch alone.",
        "`np.swapaxes(k, -1, -2)` has shape (..., K, S). What must it be multiplied with, and from "
        "which side?",
    ),
    minutes=10,
    returns=("scores",),
    probes=_as_many_queries_as_keys,
)
