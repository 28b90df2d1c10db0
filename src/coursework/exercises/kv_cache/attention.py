"""`attend_with_cache`: attention of new tokens, over themselves and what is in the cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from attend.cache import KVCache, attend_with_cache
from attend.heads import split_heads
from attend.positions import apply_rope, rope_angles
from coursework.exercise import Call, Event, Exercise, Misconception, Property, Stub
from coursework.tensors import is_tensor

METHODS = ("append", "__len__", "reset")


def _normal(rng: np.random.Generator, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def _call(
    rng: np.random.Generator,
    n: int,
    T: int,
    *,
    B: int,
    H: int,
    G: int | None,
    K: int,
    D: int,
    base: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Call:
    """T new tokens after n that are in the cache; G = None leaves n_kv_heads to its default."""
    heads = H if G is None else G
    sizes = {"w_q": (D, H * K), "w_k": (D, heads * K), "w_v": (D, heads * K), "w_o": (H * K, D)}
    weights = {
        name: 2 * _normal(rng, *size, dtype=dtype) / math.sqrt(size[0])
        for name, size in sizes.items()
    }
    old_k, old_v = (_normal(rng, B, heads, n, K, dtype=dtype) for _ in range(2))

    def make() -> KVCache:
        cache = KVCache(B, heads, n + T + 2, K, dtype=dtype)
        cache.append(old_k, old_v)
        return cache

    cache = Stub(make, f"a cache with {n} tokens", METHODS, counted=("append",))
    x_new = _normal(rng, B, T, D, dtype=dtype)
    kwargs: dict[str, Any] = {} if G is None else {"n_kv_heads": G}
    if base is not None:
        kwargs["base"] = base
    return Call((x_new, weights, cache, H), kwargs)


def _prompts(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _call(rng, 0, 3, B=1, H=2, G=None, K=4, D=5),
        _call(rng, 0, 5, B=2, H=6, G=2, K=4, D=7),
        _call(rng, 0, 4, B=3, H=4, G=2, K=6, D=5),
        _call(rng, 0, 1, B=2, H=3, G=None, K=2, D=11),
    )


def _single_tokens(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 1, B=1, H=2, G=None, K=4, D=5),
        _call(rng, 5, 1, B=2, H=6, G=2, K=4, D=7),
        _call(rng, 7, 1, B=3, H=4, G=2, K=6, D=5),
        _call(rng, 2, 1, B=2, H=6, G=3, K=8, D=11),
    )


def _chunks(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 2, B=1, H=2, G=None, K=4, D=5),
        _call(rng, 2, 5, B=2, H=6, G=2, K=4, D=7),
        _call(rng, 7, 4, B=3, H=4, G=2, K=6, D=5),
        _call(rng, 4, 3, B=2, H=6, G=3, K=8, D=11),
        _call(rng, 1, 6, B=1, H=6, G=1, K=4, D=3),
    )


def _other_bases(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 2, B=1, H=2, G=1, K=4, D=5, base=50.0),
        _call(rng, 5, 1, B=2, H=4, G=2, K=6, D=7, base=500.0),
        _call(rng, 0, 4, B=2, H=6, G=3, K=8, D=5, base=7.0),
        _call(rng, 4, 3, B=1, H=3, G=None, K=4, D=11, base=100.0),
    )


def _float32(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 2, B=1, H=2, G=None, K=4, D=5, dtype=torch.float32),
        _call(rng, 5, 1, B=2, H=6, G=2, K=4, D=7, dtype=torch.float32),
        _call(rng, 0, 4, B=3, H=4, G=2, K=6, D=5, dtype=torch.float32),
    )


def _all_kinds(rng: np.random.Generator) -> tuple[Call, ...]:
    return (*_prompts(rng)[:2], *_single_tokens(rng)[:2], *_chunks(rng)[:3])


def _no_matter(call: Call, value: Any) -> None:
    return None


def _stored(call: Call, events: tuple[Event, ...]) -> str | None:
    """What is wrong with what was appended, all calls of append taken together."""
    x_new, weights, stub, n_heads = call.args
    given = [(*e.args, *e.kwargs.values()) for e in events]
    if not given:
        return "nothing is stored in the cache"
    if any(len(pair) != 2 or not all(map(is_tensor, pair)) for pair in given):
        return "what is stored in the cache is not a pair of tensors"
    n_kv_heads = call.kwargs.get("n_kv_heads", n_heads)
    k, v = (split_heads(x_new @ weights[name], n_kv_heads) for name in ("w_k", "w_v"))
    try:
        stored_k, stored_v = (torch.cat(parts, dim=2) for parts in zip(*given, strict=True))
    except (RuntimeError, IndexError):
        return "what is stored in the cache does not fit together"
    start, T = len(stub.make()), x_new.shape[1]
    angles = rope_angles(torch.arange(start, start + T), k.shape[-1], call.kwargs.get("base", 1e4))
    close = {"rtol": 1e-5, "atol": 1e-5} if x_new.dtype == torch.float32 else {}
    if stored_k.shape != k.shape or stored_v.shape != v.shape:
        return "what is stored is not one key and one value for each new token and key/value head"
    if not torch.allclose(stored_v, v, **close):
        return "the stored values are not those of the new tokens"
    if torch.allclose(stored_k, k, **close) and start + T > 1:
        return "the keys are stored before they are rotated"
    if not torch.allclose(stored_k, apply_rope(k, angles), **close):
        return "the stored keys are not rotated to their positions in the text"
    return None


def _rotated(x, positions, base, interleaved=False):
    K = x.shape[-1]
    pairs = torch.arange(K // 2, dtype=torch.float64)
    angles = positions.double()[:, None] * base ** (-2 * pairs / K)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    if interleaved:
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    a, b = x[..., : K // 2], x[..., K // 2 :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def _weighed(scores):
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _aligned_at_the_end(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def _aligned_at_the_start(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril()


def _start_unless_single(T, S):
    return _aligned_at_the_start(T, S) if T > 1 else torch.ones(T, S, dtype=torch.bool)


def _own_shut_out(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T - 1)


def _everything(T, S):
    return torch.ones(T, S, dtype=torch.bool)


def _only_while_empty(T, S):
    return _aligned_at_the_end(T, S) if T == S else _everything(T, S)


def _wrong(
    mask=_aligned_at_the_end,
    start=lambda n, T: n,
    q_start=None,
    scale=lambda K, D, S: math.sqrt(K),
    turn_q=True,
    turn_k=True,
    turn_v=False,
    turn_again=False,
    turn_late=False,
    interleaved=False,
    tiled=False,
    ignore_base=False,
    forget_cache=False,
    merge=True,
    project=True,
):
    """A wrong version: everything right but what an argument changes."""

    def step(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
        G = n_heads if n_kv_heads is None else n_kv_heads
        base = 10000.0 if ignore_base else base
        B, T, D = x_new.shape
        n = len(cache)
        q = (x_new @ weights["w_q"]).unflatten(-1, (n_heads, -1)).transpose(1, 2)
        k = (x_new @ weights["w_k"]).unflatten(-1, (G, -1)).transpose(1, 2)
        v = (x_new @ weights["w_v"]).unflatten(-1, (G, -1)).transpose(1, 2)
        at = start(n, T) + torch.arange(T)
        q_at = at if q_start is None else q_start(n, T) + torch.arange(T)
        q = _rotated(q, q_at, base, interleaved) if turn_q else q
        k = _rotated(k, at, base, interleaved) if turn_k and not turn_late else k
        v = _rotated(v, at, base, interleaved) if turn_v else v
        new_k, new_v = k, v
        k, v = cache.append(k, v)
        if turn_again or turn_late:
            k = _rotated(k, torch.arange(k.shape[2]), base)
        if forget_cache:
            k, v = new_k, new_v
        S, rep = k.shape[2], n_heads // G
        if tiled:
            k, v = k.repeat(1, rep, 1, 1), v.repeat(1, rep, 1, 1)
        else:
            k, v = k.repeat_interleave(rep, dim=1), v.repeat_interleave(rep, dim=1)
        scores = q @ k.transpose(-1, -2) / scale(q.shape[-1], D, S)
        z = _weighed(scores.masked_fill(~mask(T, S), -torch.inf)) @ v
        z = z.transpose(1, 2).flatten(2) if merge else z.reshape(B, T, -1)
        return z @ weights["w_o"] if project else z

    return step


ATTEND_WITH_CACHE = Exercise(
    chapter=9,
    signature=(
        "attend_with_cache(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0)"
        " -> (B, T_new, D)"
    ),
    task="""\
Causal self-attention with RoPE for the **new** tokens only, over themselves and all tokens that
came before, whose keys and values are in the cache. What you return is what attention over the
whole text gives for these tokens.

- `x_new` is `(B, T_new, D)`: one token, or many.
- `weights` is a dict of tensors: `w_q` `(D, H·K)`, `w_k` and `w_v` `(D, G·K)`, `w_o` `(H·K, D)`,
  each used as `x @ w`. H is `n_heads`, and G is `n_kv_heads`, a divisor of H; None means H. H·K
  need not be D. Head h owns the columns h·K … (h + 1)·K; query head h uses key/value head
  h // (H/G).
- `cache` has what `KVCache` above has: `append(k, v)`, `len(cache)` and `reset()`, and nothing
  else. You are handed one, with tokens in it or without, and it has room. Put the new tokens' keys
  and values in with `append`.
- The first new token has the position `len(cache)` *before* they are put in. Queries and keys are
  rotated to their positions, half-split (pair (i, i + K/2)), by the angles
  p / `base`^(2i/K). Keys are stored rotated; those in the cache are.
- The new tokens are the last `T_new` of the text: `causal_mask(T_new, len after)`. Scores are
  divided by √K.
- The result has the dtype of `x_new`, float64 or float32. Leave `x_new` and `weights` as they
  are.""",
    reference=attend_with_cache,
    properties=(
        Property("a prompt, on an empty cache", 1, _prompts),
        Property("one new token after others", 2, _single_tokens),
        Property("a chunk of new tokens after others", 2, _chunks),
        Property(
            "the cache gets each new key rotated to its place, and each new value",
            1,
            _all_kinds,
            compare=_no_matter,
            watch=_stored,
        ),
        Property("another base", 1, _other_bases),
        Property("float32", 1, _float32, edge=True),
    ),
    misconceptions=(
        Misconception(
            "leaves out the token itself",
            "Your new tokens see what came before them and not themselves. A token may attend to "
            "itself: its key and value belong to those that it looks at.",
            _wrong(mask=_own_shut_out),
            symptom="a new token does not see itself",
        ),
        Misconception(
            "lines the mask up at the start",
            "With tokens in the cache, the mask is T_new by len, and its triangle belongs at the "
            "end: the new tokens are the last ones. Yours takes them for the first ones of the "
            "text (as `is_causal=True` does).",
            _wrong(mask=_start_unless_single),
            symptom="right for a prompt, wrong for a chunk on a warm cache",
            also=(_wrong(mask=_aligned_at_the_start),),
        ),
        Misconception(
            "lets a chunk see its own future",
            "Within a chunk a token must not see those that follow it. A single new token needs no "
            "mask, several do, also when there is something in the cache.",
            _wrong(mask=_only_while_empty),
            symptom="new tokens see the tokens after them",
            also=(_wrong(mask=_everything),),
        ),
        Misconception(
            "begins again at position 0",
            "The positions of your new tokens start at 0 in each call. They go on where the cache "
            "stopped: the first one has the position len(cache).",
            _wrong(start=lambda n, T: 0),
            symptom="right on an empty cache, wrong on a warm one",
        ),
        Misconception(
            "is one position too early",
            "Your first new token gets the position of the last one in the cache. If n tokens are "
            "there, they stand at 0 … n − 1, and the next one at n.",
            _wrong(start=lambda n, T: max(n - 1, 0)),
            symptom="on a warm cache all is nearly right",
        ),
        Misconception(
            "is one position too late",
            "Your new tokens stand one place too far on. If n tokens are in the cache, they stand "
            "at 0 … n − 1, and the next one at n.",
            _wrong(start=lambda n, T: n + 1),
            symptom="the distances to the tokens in the cache are off by one",
        ),
        Misconception(
            "counts after it has stored",
            "You ask for len(cache) after append, when the new tokens count already. Your queries "
            "then stand T_new places too far on. Ask first, then append.",
            _wrong(q_start=lambda n, T: n + T),
            symptom="queries and keys of the same token have different positions",
        ),
        Misconception(
            "rotates the stored keys again",
            "What comes back from append is rotated already, and you rotate all of it once more. A "
            "key at position 7 is rotated once, by 7 steps, when it is new.",
            _wrong(turn_again=True),
            symptom="the older a key is, the further it is turned",
        ),
        Misconception(
            "stores keys that are not rotated",
            "You store the bare keys and rotate all of them after append. The keys that are in the "
            "cache already are rotated: they are turned twice.",
            _wrong(turn_late=True),
            symptom="right on an empty cache, but keys are stored unrotated",
        ),
        Misconception(
            "does not rotate",
            "Neither queries nor keys are rotated, so that no token knows where it stands. Rotate "
            "both to their positions before the scores.",
            _wrong(turn_q=False, turn_k=False),
            symptom="positions make no difference",
        ),
        Misconception(
            "rotates the queries only",
            "The new keys are stored as they are. Queries and keys are both rotated, each by its "
            "own position, so that their product depends on the distance.",
            _wrong(turn_k=False),
            symptom="new keys are not rotated",
        ),
        Misconception(
            "rotates the keys only",
            "The queries are used as they are. Queries and keys are both rotated, each by its own "
            "position, so that their product depends on the distance.",
            _wrong(turn_q=False),
            symptom="queries are not rotated",
        ),
        Misconception(
            "rotates the values as well",
            "RoPE turns queries and keys, since their product is to depend on the distance. Values "
            "are blended, and stay as they are.",
            _wrong(turn_v=True),
            symptom="the values are turned",
        ),
        Misconception(
            "rotates neighbouring features",
            "You turn the pairs (2i, 2i + 1). Here the layout is half-split: feature i goes with "
            "i + K/2. The keys in the cache are turned so, and yours must fit them.",
            _wrong(interleaved=True),
            symptom="new tokens are rotated in another layout than the stored ones",
        ),
        Misconception(
            "ignores the base",
            "The angles are always those of base 10000. Use the argument.",
            _wrong(ignore_base=True),
            symptom="right for base 10000 only",
        ),
        Misconception(
            "tiles the key/value heads",
            "You repeat the heads as 0 1 0 1. Query heads 0 and 1 share key/value head 0, then "
            "come those of head 1: 0 0 1 1.",
            _wrong(tiled=True),
            symptom="query heads look at the keys of another group",
        ),
        Misconception(
            "forgets the cache",
            "The new tokens attend to each other only. What came before is in what append returns.",
            _wrong(forget_cache=True),
            symptom="the earlier tokens make no difference",
        ),
        Misconception(
            "does not scale",
            "The scores are not divided by √K: the weights are too sharp.",
            _wrong(scale=lambda K, D, S: 1.0),
            symptom="the weights are too sharp",
        ),
        Misconception(
            "scales by the width of the model",
            "You divide by √D, the width of a token's vector. A score is a sum over the width of a "
            "head: divide by √K.",
            _wrong(scale=lambda K, D, S: math.sqrt(D)),
            symptom="the scale depends on d_model",
        ),
        Misconception(
            "merges the heads without a transpose",
            "(B, H, T, K) is reshaped to (B, T, H·K) as it lies in memory, which mixes tokens and "
            "heads. Bring the heads behind the tokens first.",
            _wrong(merge=False),
            symptom="tokens and heads are mixed up",
        ),
        Misconception(
            "leaves out w_o",
            "The heads stand side by side, and the last product is missing: @ w_o.",
            _wrong(project=False),
            symptom="the result is H·K wide",
        ),
    ),
    hints=(
        "It is the attention of chapters 05 and 06 with three changes: where positions start, what "
        "is looked at, and where the triangle of the mask lies.",
        "Take start = len(cache). Project and split into heads; rotate q and k by the angles of "
        "the positions start … start + T_new − 1; hand k and v to cache.append, which returns all "
        "of them. Repeat key/value heads for their query heads, mask with the triangle lined up at "
        "the end, softmax, blend, merge, @ w_o.",
        "`k, v = cache.append(k, v)`, then `S = k.shape[2]` and `mask = torch.ones(T, S, "
        "dtype=torch.bool).tril(S - T)`. `repeat_interleave(H // G, dim=1)` repeats heads in "
        "place. `x.unflatten(-1, (H, K)).transpose(1, 2)` splits heads; `transpose(1, "
        "2).flatten(2)` merges them.",
    ),
    minutes=25,
    keeps_dtype=True,
)
