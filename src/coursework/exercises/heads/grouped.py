"""`repeat_kv` and `grouped_query_attention`: several query heads share keys and values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.heads import grouped_query_attention, repeat_kv
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.heads.attention import _merge, _softmax, _split, with_large_scores
from coursework.exercises.inputs import mixed_mask, normal, sizes

Rng = np.random.Generator
Array = np.ndarray


# repeat_kv ------------------------------------------------------------------------------------


def _tiled(x: Array, n_rep: int) -> Array:
    return np.concatenate([x] * n_rep, axis=-3)


def _tokens_repeated(x: Array, n_rep: int) -> Array:
    return np.repeat(x, n_rep, axis=-2)


def _columns_repeated(x: Array, n_rep: int) -> Array:
    return np.repeat(x, n_rep, axis=-1)


def _first_axis_repeated(x: Array, n_rep: int) -> Array:
    return np.repeat(x, n_rep, axis=0)


def _axis_of_its_own(x: Array, n_rep: int) -> Array:
    return np.repeat(x[..., None, :, :], n_rep, axis=-3)


def _flat(x: Array, n_rep: int) -> Array:
    return np.repeat(x, n_rep)


def _one_more(x: Array, n_rep: int) -> Array:
    return np.repeat(x, n_rep + 1, axis=-3)


def _values_scaled(x: Array, n_rep: int) -> Array:
    return np.repeat(x, n_rep, axis=-3) / n_rep


def _shapes(rng: Rng, n: int) -> list[tuple[int, int, int, int]]:
    """Key/value heads, tokens, width, repetitions: all different."""
    known = [(2, 5, 4, 3), (3, 4, 5, 2), (4, 3, 2, 5), (5, 7, 3, 2), (3, 2, 7, 4), (2, 7, 5, 4)]
    return [known[i] for i in rng.permutation(len(known))[:n]]


def _plain_heads(rng: Rng) -> Sequence[Call]:
    return calls((normal(rng, 2, 1, 2), 3), *((normal(rng, *s[:3]), s[3]) for s in _shapes(rng, 4)))


def _batches(rng: Rng) -> Sequence[Call]:
    B, C = sizes(rng, 2)
    leads = [(B,), (C, B), (2,), (1, 3)]
    made = zip(leads, _shapes(rng, 4), strict=True)
    return [
        *calls(*((normal(rng, *lead, *s[:3]), s[3]) for lead, s in made)),
        Call((normal(rng, B, 2, 3, 4).astype(np.float32), 3)),
    ]


def _ends(rng: Rng) -> Sequence[Call]:
    return calls(
        (normal(rng, 3, 2, 4), 1),
        (normal(rng, 1, 3, 2), 5),
        (normal(rng, 2, 1, 5, 3), 4),
        (normal(rng, 2, 3, 5, 2), 1),
    )


REPEAT_KV = Exercise(
    chapter=6,
    signature="repeat_kv(x, n_rep) -> (..., G·n_rep, S, K)",
    task="""
Several query heads share one head of keys and values. Give each of them a copy: repeat every head
of `x` `n_rep` times **in place**, so that with n_rep = 2 the heads 0, 1, 2 become 0, 0, 1, 1, 2, 2.

- `x` is (..., G, S, K), float64 or float32, with any leading axes; it stays as it is.
- `n_rep` is a whole number from 1 on.
- Return an array (..., G·n_rep, S, K).
""",
    reference=repeat_kv,
    properties=(
        Property("each head is repeated in place", 2, _plain_heads),
        Property("leading axes stay in front", 1, _batches),
        Property("a single head, a single copy", 1, _ends, edge=True),
    ),
    misconceptions=(
        Misconception(
            "tiles the heads",
            "You repeat the whole row of heads: 0, 1, 2, 0, 1, 2. Query head 1 would then get "
            "key/value head 1, and it belongs to head 0. Repeat each head in place. In PyTorch "
            "`repeat` tiles; `repeat_interleave` is what is meant here.",
            _tiled,
            "the heads are repeated as a row, not one by one",
        ),
        Misconception(
            "repeats the tokens",
            "You repeat along the tokens. There are as many tokens as before; it is the heads, the "
            "third axis from the end, that are needed more often.",
            _tokens_repeated,
            "there are more tokens than before",
        ),
        Misconception(
            "repeats the columns",
            "You repeat along the width. The heads are the third axis from the end.",
            _columns_repeated,
            "the heads are wider than before",
        ),
        Misconception(
            "repeats the first axis",
            "That is right without a batch. With leading axes the heads are not the first axis: "
            "count from the end.",
            _first_axis_repeated,
            "it goes wrong as soon as there is a batch",
        ),
        Misconception(
            "leaves the copies on an axis of their own",
            "Your copies have an axis of their own. Query heads are numbered through, so G and "
            "n_rep are to become one axis.",
            _axis_of_its_own,
            "there is an axis too many",
        ),
        Misconception(
            "flattens",
            "np.repeat without an axis makes one long row of numbers. Say which axis.",
            _flat,
            "all axes are gone",
        ),
        Misconception(
            "one copy too many",
            "n_rep counts all copies, the original among them.",
            _one_more,
            "there is one copy too many",
        ),
        Misconception(
            "divides among the copies",
            "You divide by the number of copies. Each query head gets the keys and values whole.",
            _values_scaled,
            "the copies are smaller than the original",
        ),
    ),
    hints=(
        "For G = 2 and n_rep = 3: which key/value head belongs to query heads 0, 1 and 2? Which to "
        "3, 4 and 5?",
        "One function of NumPy repeats the entries along an axis in place. The axis of the heads "
        "is the third from the end.",
        "`np.repeat(x, n_rep, axis=...)`, with a negative axis.",
    ),
    minutes=5,
    returns=("repeated",),
)


# grouped_query_attention ----------------------------------------------------------------------


def _heads_of(
    x: Array,
    w_q: Array,
    keys: Array,
    values: Array,
    H: int,
    mask: Array | None,
    divisor: float | None = None,
) -> Array:
    """Heads (..., H, T, K) of queries with keys and values that stand ready for each of them."""
    q = _split(x @ w_q, H)
    scale = np.sqrt(q.shape[-1]) if divisor is None else divisor
    return _softmax(q @ np.swapaxes(keys, -1, -2) / scale, mask) @ values


def _shared(x: Array, w: Array, H: int, G: int, of: list[int] | None = None) -> Array:
    """Key/value heads, for each query head the one it is served by; right by default."""
    order = [h // (H // G) for h in range(H)] if of is None else of
    return _split(x @ w, G)[..., order, :, :]


def _tiled_groups(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    order = [h % n_kv_heads for h in range(n_heads)]
    k, v = (_shared(x, w, n_heads, n_kv_heads, order) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask)) @ w_o


def _values_of_the_wrong_group(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    order = [h % n_kv_heads for h in range(n_heads)]
    k = _shared(x, w_k, n_heads, n_kv_heads)
    v = _shared(x, w_v, n_heads, n_kv_heads, order)
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask)) @ w_o


def _values_of_the_first_group(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k = _shared(x, w_k, n_heads, n_kv_heads)
    v = _shared(x, w_v, n_heads, n_kv_heads, [0] * n_heads)
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask)) @ w_o


def _keys_of_the_wrong_group(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    order = [h % n_kv_heads for h in range(n_heads)]
    k = _shared(x, w_k, n_heads, n_kv_heads, order)
    v = _shared(x, w_v, n_heads, n_kv_heads)
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask)) @ w_o


def _first_group_only(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k, v = (_shared(x, w, n_heads, n_kv_heads, [0] * n_heads) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask)) @ w_o


def _root_of_d(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k, v = (_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask, np.sqrt(x.shape[-1]))) @ w_o


def _root_of_gk(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k, v = (_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask, np.sqrt(w_k.shape[1]))) @ w_o


def _unscaled(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k, v = (_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask, 1.0)) @ w_o


def _without_output_matrix(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k, v = (_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask))


def _mask_ignored(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k, v = (_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, None)) @ w_o


def _merged_without_transpose(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k, v = (_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    return _heads_of(x, w_q, k, v, n_heads, mask).reshape(x.shape) @ w_o


def _pooled_queries(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    n_rep = n_heads // n_kv_heads
    q = _split(x @ w_q, n_heads)
    *lead, _, T, K = q.shape
    mean = q.reshape(*lead, n_kv_heads, n_rep, T, K).mean(axis=-3)
    q = np.repeat(mean, n_rep, axis=-3)
    k, v = (_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    weights = _softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(K), mask)
    return _merge(weights @ v) @ w_o


def _keys_blended(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    k = _shared(x, w_k, n_heads, n_kv_heads)
    return _merge(_heads_of(x, w_q, k, k, n_heads, mask)) @ w_o


def _groups_stretched(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    order = [h * n_kv_heads // n_heads for h in range(n_heads)]
    k, v = (_shared(x, w, n_heads, n_kv_heads, order) for w in (w_k, w_v))
    return _merge(_heads_of(x, w_q, k, v, n_heads, mask)) @ w_o


def _nan_rows(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    q, k, v = _split(x @ w_q, n_heads), *(_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return _merge(e / e.sum(axis=-1, keepdims=True) @ v) @ w_o


def _minus_a_billion(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    q, k, v = _split(x @ w_q, n_heads), *(_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    return _merge(_softmax(scores, None) @ v) @ w_o


def _overflowing(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    q, k, v = _split(x @ w_q, n_heads), *(_shared(x, w, n_heads, n_kv_heads) for w in (w_k, w_v))
    e = np.exp(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    if mask is not None:
        e = np.where(mask, e, 0.0)
    total = e.sum(axis=-1, keepdims=True)
    return _merge(e / np.where(total == 0, 1, total) @ v) @ w_o


def grouped_layer(
    rng: Rng, T: int, H: int, G: int, K: int, *lead: int, dtype: type = np.float64
) -> tuple:
    """Tokens and matrices whose scores, divided by √K, spread by about 1."""
    D = H * K
    shapes = ((D, D), (D, G * K), (D, G * K), (D, D))
    matrices = (normal(rng, *shape) / np.sqrt(D) for shape in shapes)
    return (*(a.astype(dtype) for a in (normal(rng, *lead, T, D), *matrices)), H, G)


def _group_sizes(rng: Rng, n: int) -> list[tuple[int, int, int, int]]:
    """Tokens, query heads, key/value heads, width: 1 < G < H, and G is not H / G."""
    known = [(5, 6, 2, 3), (3, 6, 3, 4), (7, 8, 2, 3), (5, 8, 4, 2), (2, 10, 5, 3), (3, 10, 2, 4)]
    return [known[i] for i in rng.permutation(len(known))[:n]]


def _groups(rng: Rng) -> Sequence[Call]:
    B, C = sizes(rng, 2, up_to=5)
    return [
        Call(grouped_layer(rng, 3, 6, 2, 2)),
        *(Call(grouped_layer(rng, *size)) for size in _group_sizes(rng, 4)),
        Call(grouped_layer(rng, 4, 6, 3, 2, B)),
        Call(grouped_layer(rng, 3, 6, 2, 4, C, B)),
        Call(grouped_layer(rng, 4, 8, 2, 3, B, dtype=np.float32)),
    ]


def _one_or_all(rng: Rng) -> Sequence[Call]:
    return [
        Call(grouped_layer(rng, T, H, G, K))
        for T, H, G, K in ((3, 4, 1, 2), (5, 3, 1, 4), (4, 3, 3, 2), (3, 5, 5, 4), (2, 6, 1, 3))
    ]


def _masked(rng: Rng) -> Sequence[Call]:
    B = int(rng.choice([2, 3, 5]))
    return [
        Call(grouped_layer(rng, 3, 6, 2, 2), {"mask": np.tri(3, dtype=bool)}),
        *(
            Call(grouped_layer(rng, *size), {"mask": mixed_mask(rng, size[0], size[0])})
            for size in _group_sizes(rng, 2)
        ),
        Call(grouped_layer(rng, 4, 6, 3, 2), {"mask": mixed_mask(rng, 6, 4, 4)}),
        Call(grouped_layer(rng, 4, 6, 2, 3, B), {"mask": mixed_mask(rng, B, 1, 4, 4)}),
    ]


def _nothing_to_see(rng: Rng) -> Sequence[Call]:
    made = []
    for T, H, G, K in [(3, 6, 2, 2), *_group_sizes(rng, 3)]:
        mask = mixed_mask(rng, T, T)
        mask[int(rng.integers(T))] = False
        made.append(Call(grouped_layer(rng, T, H, G, K), {"mask": mask}))
    return made


def _large_scores(rng: Rng) -> Sequence[Call]:
    return [
        with_large_scores(rng, K, *grouped_layer(rng, T, H, G, K))
        for T, H, G, K in ((3, 4, 2, 3), (5, 6, 2, 2), (4, 6, 3, 5), (7, 2, 1, 4))
    ]


def _uneven_groups(rng: Rng) -> Sequence[Call]:
    sizes = ((3, 5, 2, 3), (4, 7, 3, 2), (2, 8, 3, 4), (5, 3, 2, 4), (3, 6, 4, 2))
    return [Call(grouped_layer(rng, *size)) for size in sizes]


GROUPED_QUERY_ATTENTION = Exercise(
    chapter=6,
    signature=(
        "grouped_query_attention(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None) "
        "-> (..., T, D)"
    ),
    task="""
Multi-head attention with fewer heads of keys and values than of queries: `n_kv_heads` = G of them
serve `n_heads` = H query heads, each a group of H / G neighbours.

- `x` is (..., T, D), `w_q` and `w_o` are (D, D), `w_k` and `w_v` are (D, G·K), with K = D / H, all
  used as `x @ w`, without biases. H divides D.
- Query head h uses key/value head h // (H / G). Head g of keys and of values owns the columns g·K
  up to (g + 1)·K.
- The rest is as in `multi_head_attention`: scores divided by √K, a `mask` that broadcasts to
  (..., H, T, T) with True = may attend, zeros for a query that may see nothing, `w_o` at the end.
  G = H is multi-head attention, G = 1 is multi-query attention.
- Scores may be as large as 10,000. Inputs are float64 or float32 and stay as they are.
- If G does not divide H, raise a `ValueError`.

You may call your earlier answers. PyTorch's fused attention is refused.
""",
    reference=grouped_query_attention,
    properties=(
        Property("neighbouring query heads share keys and values", 3, _groups),
        Property("one key/value head, and as many as query heads", 1, _one_or_all),
        Property("a mask says who may attend", 1, _masked),
        Property("a query that may see nothing gets zeros", 1, _nothing_to_see, edge=True),
        Property("large scores are no trouble", 1, _large_scores, edge=True),
        Property("groups that are not even raise ValueError", 1, _uneven_groups, edge=True),
    ),
    misconceptions=(
        Misconception(
            "tiles the groups",
            "Your query heads take the key/value heads in turn, h % G. Neighbours share one: h // "
            "(H / G). With G = 1 or G = H nobody sees the difference; a model that was trained the "
            "one way speaks nonsense the other way.",
            _tiled_groups,
            "query heads are served by the wrong key/value head",
        ),
        Misconception(
            "values of the wrong group",
            "The weights are right, but they blend the values of another group. Keys and values of "
            "a query head have the same number.",
            _values_of_the_wrong_group,
            "the values come from the wrong group",
        ),
        Misconception(
            "values of the first group",
            "The weights are right, but every head blends the values of the first group.",
            _values_of_the_first_group,
            "all heads blend the same values",
        ),
        Misconception(
            "keys of the wrong group",
            "The values are those of the right group, but the keys are not. Keys and values of a "
            "query head have the same number.",
            _keys_of_the_wrong_group,
            "the keys come from the wrong group",
        ),
        Misconception(
            "uses the first group only",
            "All query heads are served by key/value head 0. That is what broadcasting does with "
            "one head; here there are G.",
            _first_group_only,
            "only one key/value head is used",
        ),
        Misconception(
            "scales by √D",
            "This is what dividing by √D gives. A score sums K products: divide by √K.",
            _root_of_d,
            "the weights of your heads are too flat",
        ),
        Misconception(
            "scales by √(G·K)",
            "You divide by the root of all columns that the keys have. A score is a product of one "
            "query with one key of width K.",
            _root_of_gk,
            "the scale depends on the number of groups",
        ),
        Misconception(
            "does not scale",
            "This is what leaving out the division gives: scores of width K spread by √K.",
            _unscaled,
            "the weights of your heads are too sharp",
        ),
        Misconception(
            "leaves out W_O",
            "The heads stand side by side; `w_o` is still to mix them.",
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
            "merges without a transpose",
            "You reshape (H, T, K) straight to (T, D), which puts several tokens of one head into "
            "one row. Move the heads behind the tokens first.",
            _merged_without_transpose,
            "your tokens are mixed when the heads are merged",
        ),
        Misconception(
            "averages the queries of a group",
            "You make one query of those of a group. They share keys and values, but each asks for "
            "itself: there are still H softmaxes.",
            _pooled_queries,
            "the heads of a group all look at the same places",
        ),
        Misconception(
            "blends the keys",
            "The weights are right, but they blend the keys. What is handed over is the value.",
            _keys_blended,
            "w_v makes no difference",
        ),
        Misconception(
            "takes uneven groups",
            "Where G does not divide H, you serve some key/value heads to more query heads than "
            "others. That is a mistake in the sizes of the model: say so with a ValueError.",
            _groups_stretched,
            "groups of different sizes pass without a word",
        ),
        Misconception(
            "NaN where nothing may be seen",
            "A row of −∞ only gives NaN. A query that may attend to nothing gets zeros.",
            _nan_rows,
            "a query that may see nothing gets NaN",
        ),
        Misconception(
            "a large number for −∞",
            "Where every key is forbidden, all scores are the same large negative number, and "
            "their softmax is even: the query attends to everything it was forbidden.",
            _minus_a_billion,
            "a query that may see nothing sees everything",
        ),
        Misconception(
            "overflows",
            "e¹⁰⁰⁰⁰ is more than a float can hold. Subtract each row's largest score before the "
            "exponential; it cancels.",
            _overflowing,
            "large scores give NaN",
        ),
    ),
    hints=(
        "What has changed since `multi_head_attention`? Only that keys and values have G heads "
        "where H are needed.",
        "Split the queries into H heads, keys and values into G. Repeat the latter H / G times in "
        "place. From there on it is the same as before. Ask first whether G divides H.",
        "`k = repeat_kv(split_heads(x @ w_k, n_kv_heads), n_heads // n_kv_heads)`, and `v` in the "
        "same way.",
    ),
    minutes=12,
    returns=("z",),
    forbids_fused=True,
)
