"""Linear attention: a product of features in place of the softmax."""

from __future__ import annotations

import numpy as np

from attend.long_context import linear_attention
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, normal, qkv


def _within(call: Call, *, causal: bool = False) -> Call:
    """The same arrays, kept within ±5."""
    args = tuple(np.clip(a, -5, 5) for a in call.args)
    return Call(args, {"causal": True} if causal else {})


def _faint(rng: np.random.Generator, T: int, S: int, d_v: int, *, causal: bool = False) -> Call:
    """Queries and keys near -5, whose products are so small that nothing can be added to them."""
    q, k = rng.uniform(-5, -4.9, (T, 1)), rng.uniform(-5, -4.9, (S, 1))
    return _within(Call((q, k, normal(rng, S, d_v))), causal=causal)


def _all_keys(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _within(qkv(rng, 3, 5, 4, 2)),
        _within(qkv(rng, 2, 7, 3, 5)),
        _within(qkv(rng, 7, 3, 2, 11)),
        _within(qkv(rng, 1, 11, 5, 3)),
        _faint(rng, 5, 2, 3),
        _within(qkv(rng, 13, 29, 11, 7)),
    )


def _the_past(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _within(qkv(rng, 5, 5, 4, 2), causal=True),
        _within(qkv(rng, 3, 7, 2, 5), causal=True),
        _within(qkv(rng, 7, 7, 3, 2), causal=True),
        _within(qkv(rng, 1, 11, 5, 3), causal=True),
        _faint(rng, 3, 3, 2, causal=True),
        _within(qkv(rng, 11, 23, 7, 5), causal=True),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _within(qkv(rng, 3, 5, 7, 4, 2)),
        _within(qkv(rng, 5, 7, 3, 2, 3), causal=True),
        _within(qkv(rng, 5, 11, 3, 7, 2, 13)),
        _within(qkv(rng, 7, 7, 5, 2, 4, 1, 2), causal=True),
    )


def _more_queries(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _within(qkv(rng, 5, 3, 4, 2), causal=True),
        _within(qkv(rng, 7, 2, 3, 5), causal=True),
        _within(qkv(rng, 11, 7, 2, 3), causal=True),
        _within(qkv(rng, 7, 5, 2, 3, 2), causal=True),
    )


def _other_arrays(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _within(qkv(rng, 3, 5, 4, 2, dtype=np.int64)),
        _within(qkv(rng, 5, 5, 2, 3, dtype=np.int64), causal=True),
        _within(qkv(rng, 7, 11, 3, 5, dtype=np.float32)),
        _within(qkv(rng, 5, 7, 3, 2, 3, dtype=np.float32), causal=True),
        _within(in_columns(qkv(rng, 5, 7, 3, 2))),
    )


def _phi(x):
    return np.where(x > 0, x + 1.0, np.exp(np.minimum(x, 0.0)))


def _seen(weights, causal):
    T, S = weights.shape[-2:]
    return weights * np.tri(T, S, S - T) if causal else weights


def _blend(weights, v):
    total = np.sum(weights, axis=-1, keepdims=True)
    return (weights @ v) / np.where(total == 0, 1, total)


def _with(map_q, map_k=None):
    """Linear attention with other feature maps."""

    def answer(q, k, v, causal=False):
        weights = map_q(q) @ np.swapaxes((map_k or map_q)(k), -1, -2)
        return _blend(_seen(weights, causal), v)

    return answer


def _not_normalised(q, k, v, causal=False):
    return _seen(_phi(q) @ np.swapaxes(_phi(k), -1, -2), causal) @ v


def _divided_by_the_number_of_keys(q, k, v, causal=False):
    weights = _seen(_phi(q) @ np.swapaxes(_phi(k), -1, -2), causal)
    n = np.sum(_seen(np.ones(weights.shape), causal), axis=-1, keepdims=True)
    return weights @ v / np.maximum(n, 1)


def _sum_over_the_features(q, k, v, causal=False):
    if not causal:
        return _blend(_phi(q) @ np.swapaxes(_phi(k), -1, -2), v)
    # Each of the S outer products is summed up along the K features instead of along the tokens.
    T, S = q.shape[-2], k.shape[-2]
    outer = np.cumsum(_phi(k)[..., :, None] * v[..., None, :], axis=-2)
    total = np.cumsum(_phi(k), axis=-1)
    at = np.maximum(np.arange(T) + S - T, 0)
    numerator = np.sum(_phi(q)[..., None] * outer[..., at, :, :], axis=-2)
    return numerator / np.sum(_phi(q) * total[..., at, :], axis=-1, keepdims=True)


def _softmax_attention(q, k, v, causal=False):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    return _blend(_seen(np.exp(scores), causal), v)


def _softmax_without_scale(q, k, v, causal=False):
    return _blend(_seen(np.exp(q @ np.swapaxes(k, -1, -2)), causal), v)


def _absolute(x):
    return np.abs(x)


def _elu(x):
    return _phi(x) - 1


def _shifted_relu(x):
    return np.maximum(x, 0) + 1.0


def _relu(x):
    return np.maximum(x, 0.0)


def _softplus(x):
    return np.log1p(np.exp(x))


def _identity(x):
    return x * 1.0


def _map_of_the_score(q, k, v, causal=False):
    return _blend(_seen(_phi(q @ np.swapaxes(k, -1, -2)), causal), v)


def _scaled(q, k, v, causal=False):
    root = np.sqrt(q.shape[-1])
    return _blend(_seen(_phi(q / root) @ np.swapaxes(_phi(k), -1, -2), causal), v)


def _scaled_both(q, k, v, causal=False):
    root = np.sqrt(np.sqrt(q.shape[-1]))
    return _blend(_seen(_phi(q / root) @ np.swapaxes(_phi(k / root), -1, -2), causal), v)


def _something_in_the_denominator(q, k, v, causal=False):
    weights = _seen(_phi(q) @ np.swapaxes(_phi(k), -1, -2), causal)
    return weights @ v / (np.sum(weights, axis=-1, keepdims=True) + 1e-6)


def _more_in_the_denominator(q, k, v, causal=False):
    weights = _seen(_phi(q) @ np.swapaxes(_phi(k), -1, -2), causal)
    return weights @ v / (np.sum(weights, axis=-1, keepdims=True) + 1e-5)


def _future_seen(q, k, v, causal=False):
    return _blend(_phi(q) @ np.swapaxes(_phi(k), -1, -2), v)


def _future_at_minus_infinity(q, k, v, causal=False):
    weights = _phi(q) @ np.swapaxes(_phi(k), -1, -2)
    if causal:
        T, S = weights.shape[-2:]
        weights = np.where(np.tri(T, S, S - T, dtype=bool), weights, -np.inf)
    return weights / np.sum(weights, axis=-1, keepdims=True) @ v


def _future_in_the_denominator(q, k, v, causal=False):
    weights = _phi(q) @ np.swapaxes(_phi(k), -1, -2)
    return _seen(weights, causal) @ v / np.sum(weights, axis=-1, keepdims=True)


def _lined_up_at_the_start(q, k, v, causal=False):
    weights = _phi(q) @ np.swapaxes(_phi(k), -1, -2)
    return _blend(weights * np.tri(*weights.shape[-2:]) if causal else weights, v)


def _itself_shut_out(q, k, v, causal=False):
    weights = _phi(q) @ np.swapaxes(_phi(k), -1, -2)
    T, S = weights.shape[-2:]
    return _blend(weights * np.tri(T, S, S - T - 1) if causal else weights, v)


def _map_of_the_values(q, k, v, causal=False):
    return _blend(_seen(_phi(q) @ np.swapaxes(_phi(k), -1, -2), causal), _phi(v))


def _not_a_number(q, k, v, causal=False):
    weights = _seen(_phi(q) @ np.swapaxes(_phi(k), -1, -2), causal)
    return weights @ v / np.sum(weights, axis=-1, keepdims=True)


LINEAR_ATTENTION = Exercise(
    chapter=10,
    signature="linear_attention(q, k, v, causal=False) -> (..., T, d_v)",
    task="""\
Attention without a softmax. The weight of a key is $\\varphi(q) \\cdot \\varphi(k)$, divided by
the sum of these over all keys that the query may see, with the feature map $\\varphi(x) =
\\operatorname{elu}(x) + 1$, entry by entry: $x + 1$ above 0 and $e^x$ below.

- `q` is `(..., T, d_k)`, `k` is `(..., S, d_k)`, `v` is `(..., S, d_v)`, with the same leading axes
  (none, one or several). Return the blended values, `(..., T, d_v)`.
- There is **no** factor 1/√d_k, and nothing is added to the denominator.
- With `causal` set to True the queries are the **last** `T` of the `S` tokens: query `i` sees the
  keys up to `i + S − T`. If there are more queries than keys, the first ones see nothing: their
  rows are zeros.
- All entries lie within ±5. Inputs are float64, float32 or integers, in any memory order; floats
  come back. Compute in the input's precision (integers: in float64); whether what you return is
  wider is up to you. Leave `q`, `k` and `v` as they are.
- Write it as you like. The `T` × `S` matrix may be formed; that it need not be is what the chapter
  is about: $\\varphi(Q)\\,(\\varphi(K)^\\top V)$.""",
    reference=linear_attention,
    properties=(
        Property("every query blends all values", 2, _all_keys),
        Property("causal, lined up at the end", 2, _the_past),
        Property("any leading axes: batches, heads", 1, _batches),
        Property("queries that see no key get zeros", 1, _more_queries, edge=True),
        Property("float32, integers and any memory order will do", 1, _other_arrays, edge=True),
    ),
    misconceptions=(
        Misconception(
            "does not normalise",
            "φ(q) · φ(k) can be any positive number. Divide by its sum over the keys, so that the "
            "weights of each query sum to 1.",
            _not_normalised,
            symptom="your weights do not sum to 1",
        ),
        Misconception(
            "divides by the number of keys",
            "You divide by how many keys there are. The weights φ(q) · φ(k) have a sum of their "
            "own: divide by that.",
            _divided_by_the_number_of_keys,
            symptom="your weights do not sum to 1",
        ),
        Misconception(
            "sums along the features",
            "Your running sum runs along the d_k features. It must run along the *tokens*: after "
            "key j it holds everything up to j, a matrix of d_k × d_v.",
            _sum_over_the_features,
            symptom="causal sums along the wrong axis",
        ),
        Misconception(
            "takes the softmax",
            "This is attention with exp(q · k). Here the weight is φ(q) · φ(k), a plain product of "
            "features, which is what lets the sum over keys be taken before the query is known.",
            _softmax_attention,
            symptom="this is softmax attention",
            also=(_softmax_without_scale,),
        ),
        Misconception(
            "uses another feature map",
            "φ(x) = elu(x) + 1 is asked for: x + 1 above 0, exp(x) below. Yours (ReLU, |x|, "
            "softplus …) is another one; each gives other weights.",
            _with(_relu),
            symptom="your feature map is another one",
            also=(_with(_absolute), _with(_softplus), _with(_shifted_relu), _with(np.exp)),
        ),
        Misconception(
            "forgets the + 1",
            "elu alone goes down to −1, and a weight must not be negative: φ(x) = elu(x) + 1.",
            _with(_elu),
            symptom="your weights can be negative",
        ),
        Misconception(
            "has no feature map",
            "q · k itself can be negative, and so can be the sum you divide by. Send queries and "
            "keys through φ first.",
            _with(_identity),
            symptom="your weights can be negative",
        ),
        Misconception(
            "maps only one of the two",
            "Queries *and* keys go through φ. With one of them as it is, weights can be negative.",
            _with(_phi, _identity),
            symptom="your weights can be negative",
            also=(_with(_identity, _phi),),
        ),
        Misconception(
            "maps the score",
            "You take φ(q · k). Then the sum over keys must wait for the query, as with a softmax. "
            "Map first, and multiply then: φ(q) · φ(k).",
            _map_of_the_score,
            symptom="the feature map comes too late",
        ),
        Misconception(
            "maps the values as well",
            "Only queries and keys go through φ. The values are what is blended, as they are.",
            _map_of_the_values,
            symptom="z is made of features of the values",
        ),
        Misconception(
            "scales by √d_k",
            "There is no 1/√d_k here: no softmax that it would keep from saturating.",
            _scaled,
            symptom="queries are scaled",
            also=(_scaled_both,),
        ),
        Misconception(
            "adds something to the denominator",
            "You add a small number to the denominator. φ is positive, so the sum is, too; where "
            "no key is seen, divide by 1 instead.",
            _something_in_the_denominator,
            symptom="your weights sum to a little less than 1",
            also=(_more_in_the_denominator,),
        ),
        Misconception(
            "ignores causal",
            "With `causal=True` you give what you give without. Only keys up to the query's own "
            "place may count.",
            _future_seen,
            symptom="queries see the future",
        ),
        Misconception(
            "puts the future at −∞",
            "−∞ is for scores that go through exp. There is none here, and the weight of a later "
            "key is 0 itself: multiply by 0, or put a 0 there.",
            _future_at_minus_infinity,
            symptom="causal makes NaN",
        ),
        Misconception(
            "keeps the future in the denominator",
            "The numerator leaves the future out, the denominator does not. Both sums run over the "
            "same keys.",
            _future_in_the_denominator,
            symptom="causal weights do not sum to 1",
        ),
        Misconception(
            "lines the mask up at the start",
            "The queries are the *last* T tokens: query i stands at position i + S − T. You line "
            "them up with the first T keys.",
            _lined_up_at_the_start,
            symptom="causal is right only if T = S",
        ),
        Misconception(
            "shuts out the token itself",
            "A token may attend to itself: query i sees the keys up to and including i + S − T.",
            _itself_shut_out,
            symptom="no token sees itself",
        ),
        Misconception(
            "makes NaN where a query sees no key",
            "0/0 is not a number. Where the sum of the weights is 0, there is nothing to blend: "
            "divide by 1 there, and the row is zeros.",
            _not_a_number,
            symptom="a query that sees no key makes NaN",
        ),
    ),
    hints=(
        "Write it as ordinary attention first: which two lines change if the softmax is replaced "
        "by φ(q) · φ(k) and a division?",
        "Map q and k. Multiply them to (..., T, S), set the future to 0 (not to −∞: there is no "
        "exp any more), blend the values, divide by the row sums, or by 1 where one is 0.",
        "`phi = lambda x: np.where(x > 0, x + 1.0, np.exp(np.minimum(x, 0.0)))`; `weights = phi(q) "
        "@ np.swapaxes(phi(k), -1, -2)`; for causal multiply by `np.tri(T, S, S - T)`; then "
        "`weights @ v` over `np.sum(weights, axis=-1, keepdims=True)`.",
    ),
    minutes=15,
    returns=("z",),
)
