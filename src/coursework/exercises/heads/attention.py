"""`multi_head_attention`: heads that attend apart, and W_O that mixes what they bring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attend.heads import multi_head_attention
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import mixed_mask, normal, sizes

Rng = np.random.Generator
Array = np.ndarray


# Parts that several of the wrong answers below share.


def _split(x: Array, H: int) -> Array:
    *lead, T, D = x.shape
    return np.swapaxes(x.reshape(*lead, T, H, D // H), -2, -3)


def _merge(x: Array) -> Array:
    *lead, H, T, K = x.shape
    return np.swapaxes(x, -2, -3).reshape(*lead, T, H * K)


def _softmax(scores: Array, mask: Array | None) -> Array:
    """Rows that may see nothing are zeros."""
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(largest), largest, 0))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _scores(x: Array, w_q: Array, w_k: Array, H: int) -> Array:
    return _split(x @ w_q, H) @ np.swapaxes(_split(x @ w_k, H), -1, -2)


def _root_k(x: Array, H: int) -> float:
    return float(np.sqrt(x.shape[-1] // H))


def _weights(x: Array, w_q: Array, w_k: Array, H: int, mask: Array | None) -> Array:
    return _softmax(_scores(x, w_q, w_k, H) / _root_k(x, H), mask)


# Wrong answers. Those that bug hunts print stand alone.


def _root_of_d(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    weights = _softmax(_scores(x, w_q, w_k, n_heads) / np.sqrt(x.shape[-1]), mask)
    return _merge(weights @ _split(x @ w_v, n_heads)) @ w_o


def _unscaled(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    weights = _softmax(_scores(x, w_q, w_k, n_heads), mask)
    return _merge(weights @ _split(x @ w_v, n_heads)) @ w_o


def _divided_by_k(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    weights = _softmax(_scores(x, w_q, w_k, n_heads) / (x.shape[-1] // n_heads), mask)
    return _merge(weights @ _split(x @ w_v, n_heads)) @ w_o


def _without_output_matrix(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return _merge(_weights(x, w_q, w_k, n_heads, mask) @ _split(x @ w_v, n_heads))


def _mask_ignored(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return _merge(_weights(x, w_q, w_k, n_heads, None) @ _split(x @ w_v, n_heads)) @ w_o


def _mask_inverted(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    mask = None if mask is None else ~mask
    return _merge(_weights(x, w_q, w_k, n_heads, mask) @ _split(x @ w_v, n_heads)) @ w_o


def _masked_after_softmax(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    weights = _weights(x, w_q, w_k, n_heads, None)
    weights = weights if mask is None else weights * mask
    return _merge(weights @ _split(x @ w_v, n_heads)) @ w_o


def _first_mask_for_all_heads(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    if mask is not None and mask.ndim > 2:
        mask = mask[..., :1, :, :]
    return _merge(_weights(x, w_q, w_k, n_heads, mask) @ _split(x @ w_v, n_heads)) @ w_o


def _first_mask_of_the_batch(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    if mask is not None and mask.ndim > 3:
        mask = mask[0]
    return _merge(_weights(x, w_q, w_k, n_heads, mask) @ _split(x @ w_v, n_heads)) @ w_o


def _a_single_head(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    if mask is not None and mask.ndim > 2:
        mask = mask[..., :1, :, :]
    return _merge(_weights(x, w_q, w_k, 1, mask) @ _split(x @ w_v, 1)) @ w_o


def _never_split(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return _merge(_weights(x, w_q, w_k, 1, mask) @ _split(x @ w_v, 1)) @ w_o


def _averaged_weights(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    *lead, T, D = x.shape
    shape = (*lead, T, n_heads, D // n_heads)
    q, k = (np.swapaxes((x @ w).reshape(shape), -2, -3) for w in (w_q, w_k))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(D // n_heads)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = (e / e.sum(axis=-1, keepdims=True)).mean(axis=-3)
    return weights @ (x @ w_v) @ w_o


def _averaged_weights_and_zeros(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    mean = _weights(x, w_q, w_k, n_heads, mask).mean(axis=-3)
    return mean @ (x @ w_v) @ w_o


def _averaged_heads(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    heads = _weights(x, w_q, w_k, n_heads, mask) @ _split(x @ w_v, n_heads)
    return np.concatenate([heads.mean(axis=-3)] * n_heads, axis=-1) @ w_o


def _merged_without_transpose(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    heads = _weights(x, w_q, w_k, n_heads, mask) @ _split(x @ w_v, n_heads)
    return heads.reshape(x.shape) @ w_o


def _reshaped_both_ways(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    *lead, T, D = x.shape
    q, k, v = ((x @ w).reshape(*lead, n_heads, T, D // n_heads) for w in (w_q, w_k, w_v))
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / _root_k(x, n_heads), mask)
    return (weights @ v).reshape(x.shape) @ w_o


def _split_without_transpose(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    *lead, T, D = x.shape
    q, k, v = ((x @ w).reshape(*lead, n_heads, T, D // n_heads) for w in (w_q, w_k, w_v))
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / _root_k(x, n_heads), mask)
    return _merge(weights @ v) @ w_o


def _interleaved(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    K = x.shape[-1] // n_heads
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    out = np.zeros(x.shape)
    for h in range(n_heads):
        own = slice(h, None, n_heads)
        scores = q[..., own] @ np.swapaxes(k[..., own], -1, -2) / np.sqrt(K)
        if mask is not None:
            one = mask if mask.ndim == 2 else mask[..., h % mask.shape[-3], :, :]
            scores = np.where(one, scores, -np.inf)
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out[..., own] = e / e.sum(axis=-1, keepdims=True) @ v[..., own]
    return out @ w_o


def _projected_twice(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    *lead, T, D = x.shape
    shape = (*lead, T, n_heads, D // n_heads)
    q = np.swapaxes(((x @ w_q) @ w_q).reshape(shape), -2, -3)
    k = np.swapaxes((x @ w_k).reshape(shape), -2, -3)
    v = np.swapaxes((x @ w_v).reshape(shape), -2, -3)
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(D // n_heads)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = e / e.sum(axis=-1, keepdims=True) @ v
    return np.swapaxes(heads, -2, -3).reshape(x.shape) @ w_o


def _all_projected_twice(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    weights = _weights(x, w_q @ w_q, w_k @ w_k, n_heads, mask)
    return _merge(weights @ _split(x @ w_v @ w_v, n_heads)) @ w_o


def _blends_keys(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    *lead, T, D = x.shape
    shape = (*lead, T, n_heads, D // n_heads)
    q, k = (np.swapaxes((x @ w).reshape(shape), -2, -3) for w in (w_q, w_k))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(D // n_heads)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = e / e.sum(axis=-1, keepdims=True) @ k
    return np.swapaxes(heads, -2, -3).reshape(x.shape) @ w_o


def _transposed_output_matrix(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    *lead, T, D = x.shape
    shape = (*lead, T, n_heads, D // n_heads)
    q, k, v = (np.swapaxes((x @ w).reshape(shape), -2, -3) for w in (w_q, w_k, w_v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(D // n_heads)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    heads = e / e.sum(axis=-1, keepdims=True) @ v
    return np.swapaxes(heads, -2, -3).reshape(x.shape) @ w_o.T


def _all_transposed(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    weights = _weights(x, w_q.T, w_k.T, n_heads, mask)
    return _merge(weights @ _split(x @ w_v.T, n_heads)) @ w_o.T


def _nan_rows(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    scores = _scores(x, w_q, w_k, n_heads) / _root_k(x, n_heads)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return _merge(weights @ _split(x @ w_v, n_heads)) @ w_o


def _minus_a_billion(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    scores = _scores(x, w_q, w_k, n_heads) / _root_k(x, n_heads)
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    return _merge(_softmax(scores, None) @ _split(x @ w_v, n_heads)) @ w_o


def _a_billion_taken_away(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    scores = _scores(x, w_q, w_k, n_heads) / _root_k(x, n_heads)
    if mask is not None:
        scores = scores + np.where(mask, 0.0, -1e9)
    return _merge(_softmax(scores, None) @ _split(x @ w_v, n_heads)) @ w_o


def _minus_a_million(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    scores = _scores(x, w_q, w_k, n_heads) / _root_k(x, n_heads)
    if mask is not None:
        scores = np.where(mask, scores, -1e6)
    return _merge(_softmax(scores, None) @ _split(x @ w_v, n_heads)) @ w_o


def _overflowing(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    e = np.exp(_scores(x, w_q, w_k, n_heads) / _root_k(x, n_heads))
    if mask is not None:
        e = np.where(mask, e, 0)
    total = e.sum(axis=-1, keepdims=True)
    weights = e / np.where(total == 0, 1, total)
    return _merge(weights @ _split(x @ w_v, n_heads)) @ w_o


def _leftovers_dropped(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    D = x.shape[-1]
    kept = n_heads * (D // n_heads)
    heads = [_split((x @ w)[..., :kept], n_heads) for w in (w_q, w_k, w_v)]
    scores = heads[0] @ np.swapaxes(heads[1], -1, -2) / np.sqrt(max(D // n_heads, 1))
    return _merge(_softmax(scores, mask) @ heads[2]) @ w_o[:kept]


# Inputs ---------------------------------------------------------------------------------------


def layer(rng: Rng, T: int, H: int, K: int, *lead: int, dtype: type = np.float64) -> tuple:
    """Tokens and four matrices whose scores, divided by √K, spread by about 1."""
    D = H * K
    matrices = (normal(rng, D, D) / np.sqrt(D) for _ in range(4))
    return (*(a.astype(dtype) for a in (normal(rng, *lead, T, D), *matrices)), H)


def some_sizes(rng: Rng, n: int) -> list[tuple[int, int, int]]:
    """Tokens, heads and their width: all different."""
    known = [(5, 2, 3), (3, 4, 2), (7, 3, 4), (5, 3, 2), (4, 2, 5), (7, 2, 4), (2, 5, 3)]
    return [known[i] for i in rng.permutation(len(known))[:n]]


def _without_mask(rng: Rng) -> Sequence[Call]:
    B, C = sizes(rng, 2, up_to=7)
    return [
        Call(layer(rng, 3, 2, 4)),
        *(Call(layer(rng, *size)) for size in some_sizes(rng, 4)),
        Call(layer(rng, 5, 3, 2, B)),
        Call(layer(rng, 3, 2, 5, C, B)),
        Call(layer(rng, 4, 2, 3, B, dtype=np.float32)),
    ]


def _with_mask(rng: Rng) -> Sequence[Call]:
    B = int(rng.choice([2, 3, 5]))
    made = [
        Call(layer(rng, T, H, K), {"mask": mixed_mask(rng, T, T)})
        for T, H, K in [(3, 2, 4), *some_sizes(rng, 3)]
    ]
    return [
        *made,
        Call(layer(rng, 5, 3, 2), {"mask": np.tri(5, dtype=bool)}),
        Call(layer(rng, 7, 2, 3, B), {"mask": np.tri(7, dtype=bool)}),
    ]


def _masks_apart(rng: Rng) -> Sequence[Call]:
    shapes = [(5, 2, 3), (3, 4, 2), (4, 3, 5)]
    made = []
    for T, H, K in shapes:
        B = int(rng.choice([b for b in (2, 3, 5) if b not in (T, H)]))
        made += [
            Call(layer(rng, T, H, K), {"mask": mixed_mask(rng, H, T, T)}),
            Call(layer(rng, T, H, K, B), {"mask": mixed_mask(rng, B, 1, T, T)}),
            Call(layer(rng, T, H, K, B), {"mask": mixed_mask(rng, B, H, T, T)}),
        ]
    return made


def _ends(rng: Rng) -> Sequence[Call]:
    return [Call(layer(rng, T, H, K)) for T, H, K in ((3, 1, 5), (4, 6, 1), (1, 2, 3), (5, 1, 2))]


def _nothing_to_see(rng: Rng) -> Sequence[Call]:
    made = []
    for T, H, K in [(3, 2, 4), *some_sizes(rng, 3)]:
        mask = mixed_mask(rng, T, T)
        mask[int(rng.integers(T))] = False
        made.append(Call(layer(rng, T, H, K), {"mask": mask}))
    return [*made, Call(layer(rng, 3, 2, 2), {"mask": np.zeros((3, 3), dtype=bool)})]


def with_large_scores(rng: Rng, K: int, x: Array, w_q: Array, w_k: Array, *others: Any) -> Call:
    """Scores about ±10,000, so far apart that rounding leaves the weights as they are."""
    x[:, 0] = 1 + rng.permutation(len(x)) / len(x)
    w_q[0], w_k[0] = 0, 0
    w_q[0, ::K] = 100 * (-1.0) ** np.arange(w_q.shape[1] // K)
    w_k[0, ::K] = 100 * np.sqrt(K)
    return Call((x, w_q, w_k, *others))


def _large_scores(rng: Rng) -> Sequence[Call]:
    shapes = ((3, 2, 3), (5, 3, 2), (4, 2, 5), (7, 3, 4))
    return [with_large_scores(rng, K, *layer(rng, T, H, K)) for T, H, K in shapes]


def _that_do_not_divide(rng: Rng) -> Sequence[Call]:
    def call(T: int, D: int, H: int) -> Call:
        return Call((normal(rng, T, D), *(normal(rng, D, D) for _ in range(4)), H))

    return [call(3, 7, 2), call(2, 8, 3), call(5, 10, 4), call(4, 9, 2), call(3, 5, 10)]


MULTI_HEAD_ATTENTION = Exercise(
    chapter=6,
    signature="multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, mask=None) -> (..., T, D)",
    task="""
Let `n_heads` = H heads attend side by side, put what they bring back side by side, and mix it with
`w_o`.

- `x` is (..., T, D); the four matrices are (D, D) and are used as `x @ w`, without biases. Each of
  `w_q`, `w_k`, `w_v` makes the queries, keys or values of *all* heads: project once, then split.
  Head h owns the columns h·K up to (h + 1)·K, with K = D / H.
- In each head: scores, divided by √K, softmax over the keys, blend of the values.
- `mask` holds booleans, True = may attend, and broadcasts to (..., H, T, T): it may be (T, T) for
  all, (H, T, T) for each head, (B, 1, T, T) for each sentence, or (B, H, T, T). `None` allows every
  pair. A query that may attend to nothing gets zeros from that head.
- Scores may be as large as 10,000. Inputs are float64 or float32 and stay as they are.
- If H does not divide D, raise a `ValueError`.

You may call your `split_heads` and `merge_heads`. PyTorch's fused attention is refused.
""",
    reference=multi_head_attention,
    properties=(
        Property("heads attend apart, and W_O mixes what they bring", 3, _without_mask),
        Property("a mask says who may attend", 1, _with_mask),
        Property("a mask for each head, or for each sentence", 1, _masks_apart),
        Property("one head, heads of width 1, a single token", 1, _ends, edge=True),
        Property("a query that may see nothing gets zeros", 1, _nothing_to_see, edge=True),
        Property("large scores are no trouble", 1, _large_scores, edge=True),
        Property(
            "heads that do not divide the columns raise ValueError",
            1,
            _that_do_not_divide,
            edge=True,
        ),
    ),
    misconceptions=(
        Misconception(
            "scales by √D",
            "This is what dividing by √D gives. A score of a head sums K = D / H products, not D: "
            "its spread is √K.",
            _root_of_d,
            "the weights of your heads are too flat",
        ),
        Misconception(
            "does not scale",
            "This is what leaving out the division gives. Every head has scores of width K, and "
            "they spread by √K.",
            _unscaled,
            "the weights of your heads are too sharp",
        ),
        Misconception(
            "divides by K",
            "This is what dividing by K gives. The *standard deviation* of a score is √K.",
            _divided_by_k,
            "the weights of your heads are too flat, by √K",
        ),
        Misconception(
            "leaves out W_O",
            "The heads stand side by side, and that is where you stop. `w_o` is still to mix them: "
            "without it no later layer gets a sum of what several heads have found.",
            _without_output_matrix,
            "w_o makes no difference",
        ),
        Misconception(
            "ignores the mask",
            "Your result is the same with and without the mask.",
            _mask_ignored,
            "the mask makes no difference",
        ),
        Misconception(
            "inverts the mask",
            "Your tokens attend where they must not. Here True means *may attend*; it is "
            "nn.MultiheadAttention whose masks mean the opposite.",
            _mask_inverted,
            "True and False of the mask are exchanged",
        ),
        Misconception(
            "masks after the softmax",
            "This is what zeroing weights *after* the softmax gives: what is masked has already "
            "taken its share, and the rest no longer sums to 1.",
            _masked_after_softmax,
            "the weights left over do not sum to 1",
        ),
        Misconception(
            "takes the first head's mask for all",
            "A mask of shape (..., H, T, T) has a table for each head; you use the first one for "
            "all. Let it broadcast against the scores, which have that shape.",
            _first_mask_for_all_heads,
            "every head has the mask of the first",
        ),
        Misconception(
            "takes the first sentence's mask for all",
            "A mask of shape (B, ..., T, T) has a table for each sentence; you use the first one "
            "for all. Let it broadcast against the scores.",
            _first_mask_of_the_batch,
            "every sentence has the mask of the first",
        ),
        Misconception(
            "has a single head",
            "This is one head over all D columns. Its softmax is one distribution for each query; "
            "asked for are H of them.",
            _a_single_head,
            "n_heads makes no difference",
            also=(_never_split,),
        ),
        Misconception(
            "averages the weights over the heads",
            "You average the weights of all heads, and blend with the mean. That is one softmax "
            "again, a softer one. Each head blends its own columns with its own weights.",
            _averaged_weights,
            "all heads look at the same places",
            also=(_averaged_weights_and_zeros,),
        ),
        Misconception(
            "averages the heads",
            "You average what the heads bring back. They are put side by side, so that W_O can "
            "tell them apart.",
            _averaged_heads,
            "what the heads bring has become one",
        ),
        Misconception(
            "merges without a transpose",
            "The heads attend as they should, but then you reshape (H, T, K) straight to (T, D). "
            "That puts several tokens of one head into one row. Move the heads behind the tokens "
            "first.",
            _merged_without_transpose,
            "your tokens are mixed when the heads are merged",
        ),
        Misconception(
            "splits without a transpose",
            "You reshape (T, D) straight to (H, T, K). Then head 0 holds the first tokens whole, "
            "and a head attends among pieces of the same tokens. Cut each token, then move the "
            "axis.",
            _split_without_transpose,
            "your heads hold whole tokens instead of columns",
        ),
        Misconception(
            "reshapes both ways without a transpose",
            "You reshape (T, D) straight to (H, T, K), and back the same way. The shapes fit and "
            "the rows come back, but no head ever saw the whole sentence.",
            _reshaped_both_ways,
            "the heads attend among pieces of a few tokens",
        ),
        Misconception(
            "interleaves the heads",
            "Head h takes every H-th column. It owns the K columns that lie side by side.",
            _interleaved,
            "neighbouring columns are in different heads",
        ),
        Misconception(
            "projects the queries twice",
            "The queries go through `w_q` twice. Formulas that write Q W_Q for a head mean the "
            "*tokens* by Q. Project once; the split makes the heads.",
            _projected_twice,
            "your queries are projected twice",
        ),
        Misconception(
            "projects everything twice",
            "Queries, keys and values go through their matrices twice. Formulas that write Q W_Q "
            "for a head mean the *tokens* by Q. Project once; the split makes the heads.",
            _all_projected_twice,
            "everything is projected twice",
        ),
        Misconception(
            "blends the keys",
            "The weights are right, but they blend the keys. What is handed over is the value.",
            _blends_keys,
            "w_v makes no difference",
        ),
        Misconception(
            "transposes W_O",
            "`w_o` is the wrong way round. It is (in, out): used as it is, behind the heads.",
            _transposed_output_matrix,
            "the last matrix is the wrong way round",
        ),
        Misconception(
            "transposes the matrices",
            "All four matrices are the wrong way round. They are (in, out) and used as `x @ w`; it "
            "is nn.Linear that stores (out, in). Square matrices raise no error here.",
            _all_transposed,
            "the matrices are the wrong way round",
        ),
        Misconception(
            "NaN where nothing may be seen",
            "A row of −∞ only gives NaN: −∞ − (−∞) is not a number. A query that may attend to "
            "nothing blends nothing, and gets zeros.",
            _nan_rows,
            "a query that may see nothing gets NaN",
        ),
        Misconception(
            "a large number for −∞",
            "Where every key is forbidden, all scores are the same large negative number, and "
            "their softmax is even: the query attends to everything it was forbidden.",
            _minus_a_billion,
            "a query that may see nothing sees everything",
            also=(_minus_a_million,),
        ),
        Misconception(
            "a large number taken away",
            "Where every key is forbidden, all scores have sunk by the same large number, and a "
            "softmax does not notice that: the query attends as if there were no mask.",
            _a_billion_taken_away,
            "a query that may see nothing attends all the same",
        ),
        Misconception(
            "overflows",
            "e¹⁰⁰⁰⁰ is more than a float can hold. Subtract each row's largest score before the "
            "exponential; it cancels.",
            _overflowing,
            "large scores give NaN",
        ),
        Misconception(
            "drops the columns that are left over",
            "Where H does not divide D, you leave out columns. That is a mistake in the sizes of "
            "the model: say so with a ValueError.",
            _leftovers_dropped,
            "columns are lost without a word",
        ),
    ),
    hints=(
        "You have every part: the projections of chapter 03, the scaled and masked softmax of "
        "chapters 04 and 05, and the two functions above. In which order?",
        "Project `x` three times, split each result, then scores of shape (..., H, T, T), divided "
        "by the root of the *head's* width, masked before the softmax. Blend, merge, and `@ w_o`. "
        "`@` works on the last two axes, so the heads need no loop.",
        "`q, k, v = (split_heads(x @ w, n_heads) for w in (w_q, w_k, w_v))`; scores are "
        "`q @ np.swapaxes(k, -1, -2) / np.sqrt(K)`; −∞ where the mask is False, and a softmax that "
        "subtracts the maximum (0 where that is −∞) and leaves a row without weight at 0; at last "
        "`merge_heads(weights @ v) @ w_o`.",
    ),
    minutes=20,
    returns=("z",),
    forbids_fused=True,
)
