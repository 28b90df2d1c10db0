"""`scaled_dot_product_attention`: equation 1, whole."""

from __future__ import annotations

import numpy as np

from attend.dot_product import scaled_dot_product_attention
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, loud_qkv, qkv


def _softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def _single_sequences(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        qkv(rng, 3, 5, 4, 2),
        qkv(rng, 7, 2, 3, 11),
        qkv(rng, 5, 3, 11, 7),
        qkv(rng, 1, 11, 2, 3),
        qkv(rng, 11, 1, 3, 2),
        qkv(rng, 13, 7, 29, 17),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        qkv(rng, 3, 5, 7, 4, 2),
        qkv(rng, 5, 2, 3, 7, 11),
        qkv(rng, 3, 7, 11, 5, 1),
        qkv(rng, 5, 7, 11, 3, 2, 13),
        qkv(rng, 1, 5, 3, 2, 7),
        qkv(rng, 5, 1, 2, 7, 3),
        qkv(rng, 7, 3, 5, 2, 4, 1, 2),
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
        qkv(rng, 3, 5, 4, 2, dtype=np.int64),
        qkv(rng, 5, 3, 2, 7, dtype=np.int64),
        qkv(rng, 2, 7, 3, 5, 4, dtype=np.int64),
        qkv(rng, 7, 3, 5, 2, dtype=np.float32),
        qkv(rng, 5, 7, 11, 3, 2, dtype=np.float32),
        in_columns(qkv(rng, 5, 11, 7, 3)),
        in_columns(qkv(rng, 3, 7, 2, 5, 4)),
    )


def _unscaled(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2))
    return weights @ v, weights


def _divided_by_d_k(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / q.shape[-1])
    return weights @ v, weights


def _multiplied(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2) * np.sqrt(q.shape[-1]))
    return weights @ v, weights


def _scaled_after_softmax(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1])
    return weights @ v, weights


def _root_of_d_v(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(v.shape[-1])
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _root_of_T(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-2]))
    return weights @ v, weights


def _root_of_S(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(k.shape[-2])
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _width_from_axis_1(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[1]))
    return weights @ v, weights


def _measured_spread(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    scores = scores / np.std(scores)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _cosine(q, k, v):
    q = q / np.sqrt(np.sum(q**2, axis=-1, keepdims=True))
    k = k / np.sqrt(np.sum(k**2, axis=-1, keepdims=True))
    scores = q @ np.swapaxes(k, -1, -2)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _uniform(q, k, v):
    weights = np.full((*q.shape[:-1], k.shape[-2]), 1 / k.shape[-2])
    return weights @ v, weights


def _keys_as_values(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ k, weights


def _columns_normalised(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    weights = np.swapaxes(_softmax(np.swapaxes(scores, -1, -2)), -1, -2)
    return weights @ v, weights


def _all_normalised_together(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - np.max(scores))
    weights = e / np.sum(e)
    return weights @ v, weights


def _negated(q, k, v):
    weights = _softmax(-(q @ np.swapaxes(k, -1, -2)) / np.sqrt(q.shape[-1]))
    return weights @ v, weights


def _scores_for_weights(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    return _softmax(scores) @ v, scores


def _weights_first(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    return weights, weights @ v


def _all_axes_reversed(q, k, v):
    weights = _softmax(q @ k.T / np.sqrt(q.shape[-1]))
    return weights @ v, weights


def _overflows(q, k, v):
    e = np.exp(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _one_maximum(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    e = np.exp(scores - np.max(scores))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v, weights


def _cut_to_the_input(q, k, v):
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])).astype(q.dtype)
    return (weights @ v).astype(v.dtype), weights


SCALED_DOT_PRODUCT_ATTENTION = Exercise(
    chapter=4,
    signature="scaled_dot_product_attention(q, k, v) -> (z, weights)",
    task="""\
The whole of equation 1 of *Attention Is All You Need*:
$\\operatorname{softmax}(Q K^\\top / \\sqrt{d_k})\\,V$.

- `q` is `(..., T, d_k)`, `k` is `(..., S, d_k)`, `v` is `(..., S, d_v)`. There may be no leading
  axes, or one, or several (batch, heads); they are the same in all three. `T`, `S`, `d_k` and `d_v`
  need not be equal.
- Return the tuple `(z, weights)` of NumPy arrays: the blended values `z`, `(..., T, d_v)`, and the
  weights that blend them, `(..., T, S)`, each row of which sums to 1.
- Scores of 10,000 and −10,000 must do no harm, also side by side in one array.
- The results are floats, whatever the inputs are: float64, float32 or integers, in any memory
  order. Compute in the input's precision (integers: in float64); whether what you return is wider
  is up to you. Leave `q`, `k` and `v` as they are.
- PyTorch's fused attention (`F.scaled_dot_product_attention`, `F.multi_head_attention_forward`,
  `nn.MultiheadAttention`) and `attend` do not count as your answer.""",
    reference=scaled_dot_product_attention,
    properties=(
        Property(
            "the weights are the softmax of the scaled scores, row by row",
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
            "does not scale",
            "This is what q · k gives without a scale. Divide the scores by √d_k before the "
            "softmax: otherwise they spread by √d_k, and the softmax saturates.",
            _unscaled,
            symptom="your weights are too sharp",
        ),
        Misconception(
            "divides by d_k",
            "This is what dividing by d_k gives. Divide by √d_k: the *standard deviation* of a dot "
            "product is √d_k, its variance is d_k.",
            _divided_by_d_k,
            symptom="your weights are too flat",
        ),
        Misconception(
            "multiplies by √d_k",
            "This is what multiplying by √d_k gives. The scores spread too far already: divide.",
            _multiplied,
            symptom="your weights are nearly all 0 or 1",
        ),
        Misconception(
            "scales after the softmax",
            "You divide the weights by √d_k, and not the scores. The scale belongs inside the "
            "softmax: after it the weights no longer sum to 1, and they are as sharp as before.",
            _scaled_after_softmax,
            symptom="your weights do not sum to 1",
        ),
        Misconception(
            "divides by √d_v",
            "You take the root of the width of the values. It is the queries and keys whose "
            "products are summed: their width is d_k, the last axis of q.",
            _root_of_d_v,
            symptom="your weights depend on how wide the values are",
        ),
        Misconception(
            "divides by the root of the number of queries",
            "You take the root of T, the number of queries. A score is a sum of d_k products, "
            "however many queries there are: take the last axis of q, not the one before.",
            _root_of_T,
            symptom="your weights change with the number of queries",
        ),
        Misconception(
            "divides by the root of the number of keys",
            "You take the root of S, the number of keys. A score is a sum of d_k products, however "
            "many keys there are: take the last axis of k, not the one before.",
            _root_of_S,
            symptom="your weights change with the number of keys",
        ),
        Misconception(
            "takes axis 1 for the width",
            "q.shape[1] is d_k only while q is a matrix. With a batch before it, axis 1 is "
            "another: count from the end, q.shape[-1].",
            _width_from_axis_1,
            symptom="right for one sequence, wrong for a batch",
        ),
        Misconception(
            "divides by the measured spread",
            "You divide by the standard deviation of these very scores. Then every set of scores "
            "spreads by 1, and no query can be more decided than another. √d_k is a constant.",
            _measured_spread,
            symptom="the scale changes with the scores",
        ),
        Misconception(
            "compares directions only",
            "You divide queries and keys by their lengths: this is the cosine of their angle. A "
            "long query must be able to insist; divide q · k by √d_k, and by nothing else.",
            _cosine,
            symptom="the lengths of queries and keys make no difference",
        ),
        Misconception(
            "weighs all keys alike",
            "Every key gets 1/S, so that z is the mean of the values for every query. The weights "
            "must come from the scores q · k.",
            _uniform,
            symptom="your weights are all the same",
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
        ),
        Misconception(
            "normalises all weights together",
            "All weights of the array together sum to 1. Each query spreads a weight of 1 of its "
            "own: sum along the last axis, and keep it (`keepdims=True`).",
            _all_normalised_together,
            symptom="your rows do not sum to 1",
        ),
        Misconception(
            "negates the scores",
            "The softmax of −q · k favours the keys that fit the query *least*. The stabilised "
            "form is exp(x − max), not exp(max − x).",
            _negated,
            symptom="the key that fits least gets the largest weight",
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
        "Everything happens in three lines: scores, weights, z. Which axis must sum to 1, and "
        "which axis tells you d_k?",
        "Multiply `q` with `k` whose last two axes are exchanged; divide by the root of the last "
        "axis of `q`. Subtract each row's maximum, take exp, divide by each row's sum. Multiply "
        "with `v`.",
        "`scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])`; then the softmax of chapter "
        "03 along `axis=-1` (with `keepdims=True` for maximum and sum); then `weights @ v`, and "
        "return both.",
    ),
    minutes=15,
    returns=("z", "weights"),
    look_first="weights",
    forbids_fused=True,
)
