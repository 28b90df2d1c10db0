"""Attention in which no query sees a later key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attend.masks import causal_attention
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import loud_qkv, normal, ordered, sizes, unequal

Rng = np.random.Generator
Array = np.ndarray


def _weigh(scores: Array, allowed: Array, v: Array, forbidden: float = -np.inf) -> Any:
    """Softmax over the allowed keys, and the blend: z and weights."""
    scores = np.where(allowed, scores, forbidden)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ v, weights


def _products(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2)


def _scaled(q: Array, k: Array) -> Array:
    return _products(q, k) / np.sqrt(q.shape[-1])


def _up_to(q: Array, k: Array, ahead: int = 0) -> Array:
    """Keys up to the query's own position, or `ahead` beyond it."""
    T, S = q.shape[-2], k.shape[-2]
    return np.tril(np.ones((T, S), dtype=bool), k=S - T + ahead)


def _unscaled(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_products(q, k), _up_to(q, k), v)


def _divided_by_k(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_products(q, k) / q.shape[-1], _up_to(q, k), v)


def _divided_by_root_s(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_products(q, k) / np.sqrt(k.shape[-2]), _up_to(q, k), v)


def _leaks_by_one(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), _up_to(q, k, 1), v)


def _strictly_past(q: Array, k: Array, v: Array) -> Any:
    scores = _scaled(q, k)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True)) * _up_to(q, k, -1)
    total = e.sum(axis=-1, keepdims=True)
    weights = e / np.where(total == 0, 1, total)
    return weights @ v, weights


def _nan_first_row(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), _up_to(q, k, -1), v)


def _uniform_past(q: Array, k: Array, v: Array) -> Any:
    allowed = np.broadcast_to(_up_to(q, k), (*q.shape[:-1], k.shape[-2]))
    weights = allowed / np.maximum(allowed.sum(axis=-1, keepdims=True), 1)
    return weights @ v, weights


def _no_mask(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), np.True_, v)


def _square_mask(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), np.tri(q.shape[-2], dtype=bool), v)


def _lined_up_at_the_start(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), np.tri(q.shape[-2], k.shape[-2], dtype=bool), v)


def _zeroed_after_softmax(q: Array, k: Array, v: Array) -> Any:
    weights = _no_mask(q, k, v)[1] * _up_to(q, k)
    return weights @ v, weights


def _future_only(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), ~_up_to(q, k, -1), v)


def _itself_and_the_one_before(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), _up_to(q, k) & ~_up_to(q, k, -2), v)


def _blends_keys(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), _up_to(q, k), k)


def _nan_without_keys(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), _up_to(q, k), v)


def _overflowing(q: Array, k: Array, v: Array) -> Any:
    e = np.exp(np.where(_up_to(q, k), _scaled(q, k), -np.inf))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights @ v, weights


def _minus_a_billion(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), _up_to(q, k), v, forbidden=-1e9)


def _lower_still(q: Array, k: Array, v: Array) -> Any:
    return _weigh(_scaled(q, k), _up_to(q, k), v, forbidden=-1e30)


def _finite_but_for_empty_rows(q: Array, k: Array, v: Array) -> Any:
    allowed = _up_to(q, k)
    weights = _minus_a_billion(q, k, v)[1] * allowed.any(axis=-1, keepdims=True)
    return weights @ v, weights


def _qkv(rng: Rng, lead: tuple[int, ...], T: int, S: int) -> tuple[Array, Array, Array]:
    """Queries, keys and values whose widths differ from each other and from T and S."""
    widths = [w for w in (2, 3, 4, 5, 6, 8) if w not in (T, S)]
    K, d_v = (int(w) for w in rng.permutation(widths)[:2])
    return normal(rng, *lead, T, K), normal(rng, *lead, S, K), normal(rng, *lead, S, d_v)


def _same_length(rng: Rng) -> Sequence[Call]:
    B, H, T = ordered(rng, 3, up_to=7)
    return calls(
        _qkv(rng, (), 3, 3),
        _qkv(rng, (), 7, 7),
        _qkv(rng, (B,), T, T),
        _qkv(rng, (B, H), 4, 4),
    )


def _longer_past(rng: Rng) -> Sequence[Call]:
    return calls(
        _qkv(rng, (), 2, 5),
        _qkv(rng, (), 1, 7),
        *(_qkv(rng, (), T, S) for T, S in unequal(rng, 2)),
        _qkv(rng, sizes(rng, 2, up_to=5), 3, 7),
    )


def _no_past(rng: Rng) -> Sequence[Call]:
    return calls(
        _qkv(rng, (), 4, 2),
        _qkv(rng, (), 7, 3),
        *(_qkv(rng, (), S, T) for T, S in unequal(rng, 2)),
        _qkv(rng, sizes(rng, 2, up_to=5), 7, 5),
    )


def _large_scores(rng: Rng) -> Sequence[Call]:
    K, d_v = sizes(rng, 2, up_to=5)
    return [
        *(loud_qkv(rng, T, S, K, d_v) for T, S in [(3, 4), (2, 7), (11, 11), (6, 9)]),
        *(
            _deep_qkv(rng, T, S, K, d_v, level)
            for level in (1e10, 1e40, 1e300)
            for T, S in [(3, 3), (2, 5), (7, 11)]
        ),
    ]


def _deep_qkv(rng: Rng, T: int, S: int, K: int, d_v: int, level: float) -> Call:
    """Scores between -level and -2 level, so far apart that each row has one weight of 1.

    Rounding leaves nothing else of scores of this size to compare.
    """
    q, k, v = normal(rng, T, K), normal(rng, S, K), normal(rng, S, d_v)
    q[:, 0] = -np.sqrt(K)
    k[:, 0] = level * (1 + rng.permutation(S) / S)
    return Call((q, k, v))


def _future_is_zero(made: Sequence[Call], values: Sequence[Any]) -> str | None:
    for call, (_, weights) in zip(made, values, strict=True):
        T, S = call.args[0].shape[-2], call.args[1].shape[-2]
        if np.any(weights[..., np.triu(np.ones((T, S), dtype=bool), k=S - T + 1)] != 0):
            return "a later key keeps a tiny weight; it must get exactly 0"
    return None


CAUSAL_ATTENTION = Exercise(
    chapter=5,
    signature="causal_attention(q, k, v) -> (z, weights)",
    task="""
Return the blended values `z` (..., T, d_v) and the weights (..., T, S) of scaled dot-product
attention in which no query sees a later key.

- `q` is (..., T, K), `k` is (..., S, K), `v` is (..., S, d_v). The leading axes are the same in all
  three, and there may be none.
- Scores are divided by √K.
- The queries are the last T of the S tokens, as in `causal_mask`.
- Later keys get a weight of **exactly** 0.
- Where S < T, the first T − S queries see nothing: their rows of both results are zeros.
- Scores may be of any size that a float64 holds: all of a row may lie below −10³⁰. The inputs stay
  as they were.

You may call the `masked_softmax` and `causal_mask` that you have written above. PyTorch's fused
attention is refused.
""",
    reference=causal_attention,
    properties=(
        Property(
            "weights, as many keys as queries: each token sees itself and the past",
            2,
            _same_length,
            outputs=("weights",),
            together=_future_is_zero,
        ),
        Property(
            "weights, more keys than queries: the queries are the last T tokens",
            2,
            _longer_past,
            outputs=("weights",),
            together=_future_is_zero,
        ),
        Property("the weights blend the values", 1, _longer_past),
        Property(
            "a query that sees nothing gets zeros",
            1,
            _no_past,
            edge=True,
            together=_future_is_zero,
        ),
        Property("scores of any size are no trouble", 1, _large_scores, edge=True),
    ),
    misconceptions=(
        Misconception(
            "unscaled",
            "This is what leaving out the division gives. The masked scores need it as the others "
            "did: a dot product of K terms spreads by √K.",
            _unscaled,
            "your weights are too sharp",
        ),
        Misconception(
            "leaks by one",
            "Each query sees one key too many: the next token, which is what it will have to "
            "guess. Look at the first row of your weights when there are as many keys as queries.",
            _leaks_by_one,
            "each token sees the next one",
        ),
        Misconception(
            "diagonal excluded",
            "Your queries see the keys before their own and stop there. A token may attend to "
            "itself; without that the first one has nothing to blend.",
            _strictly_past,
            "no token sees itself",
        ),
        Misconception(
            "diagonal excluded, NaN in the first row",
            "Your queries see the keys before their own and stop there, so the first has a row of "
            "−∞ and gets NaN. A token may attend to itself.",
            _nan_first_row,
            "no token sees itself",
        ),
        Misconception(
            "uniform over the past",
            "Your weights depend on the mask alone. Which of the allowed keys counts more is "
            "decided by the scores of q with k.",
            _uniform_past,
            "all allowed keys get the same weight",
        ),
        Misconception(
            "divided by K",
            "This is what dividing by K gives. Divide by √K: the *standard deviation* of a dot "
            "product is √K.",
            _divided_by_k,
            "your weights are too flat",
        ),
        Misconception(
            "not masked",
            "This is attention without a mask: the first query already sees the last key.",
            _no_mask,
            "your tokens see the future",
        ),
        Misconception(
            "lined up at the start",
            "Your queries are the first T tokens; they should be the last T. With a single query "
            "and S keys, as in generation, the query must see all of them.",
            _lined_up_at_the_start,
            "queries and keys are lined up at the wrong end",
        ),
        Misconception(
            "mask of T queries and T keys",
            "Your mask has as many columns as there are queries. Its columns are keys, and their "
            "number, S, comes from k.",
            _square_mask,
            "it fails where there are more keys than queries",
        ),
        Misconception(
            "masked after the softmax",
            "This is what zeroing weights *after* the softmax gives: the future has already taken "
            "its share, and the rest no longer sums to 1. What a query passes on then depends on "
            "keys that it must not see.",
            _zeroed_after_softmax,
            "your rows do not sum to 1",
        ),
        Misconception(
            "upper triangle",
            "This is the other triangle: your queries see themselves and the future, and never the "
            "past.",
            _future_only,
            "your tokens look ahead",
        ),
        Misconception(
            "itself and the token before",
            "Each of your queries sees two keys. Causal means no *later* keys; all earlier ones "
            "are allowed.",
            _itself_and_the_one_before,
            "the past is cut short",
        ),
        Misconception(
            "divided by √S",
            "You divide by the square root of the number of keys. The spread of a score comes from "
            "the K products that it sums: divide by √K.",
            _divided_by_root_s,
            "the scale is the wrong one",
        ),
        Misconception(
            "keys blended",
            "The weights are right, but they blend the keys. A key says where to look; the value "
            "is what is handed over.",
            _blends_keys,
            "keys are blended instead of values",
        ),
        Misconception(
            "NaN where nothing may be seen",
            "A query that comes before every key has only −∞ in its row, and −∞ − (−∞) is NaN. Its "
            "weights, and what it blends, should be zeros.",
            _nan_without_keys,
            "queries that see nothing get NaN",
        ),
        Misconception(
            "overflow, and NaN where nothing may be seen",
            "exp(710) is already too large for a float64, and a query that comes before every key "
            "divides 0 by 0. Your `masked_softmax` takes care of both.",
            _overflowing,
            "queries that see nothing and large scores give NaN",
        ),
        Misconception(
            "a finite number in place of −∞",
            "This is what a very low but finite score in the forbidden places gives. A query whose "
            "allowed scores are lower still, or that has none, hands its weight to keys that it "
            "must not see. −∞, and a zero row, are asked for.",
            _minus_a_billion,
            "weight goes to later keys where all scores are low",
            also=(_lower_still, _finite_but_for_empty_rows),
        ),
    ),
    hints=(
        "Only one thing is new since chapter 04: which entries of the scores count.",
        "Scores of every query with every key, divided by √K; the causal mask of the right shape; "
        "the masked softmax; the blend. Both sizes of the mask can be read from shapes.",
        "Write it in three lines, with what you have already: `scores` from a matrix product with "
        "the last two axes of k exchanged; `weights` from `masked_softmax` and `causal_mask` of "
        "(T, S); then both results. Take T from q and S from k, not both from q.",
    ),
    minutes=15,
    returns=("z", "weights"),
    look_first="weights",
    forbids_fused=True,
)
