"""`DecoderBlock`: one block of a Llama, with and without a cache."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attend.blocks import rms_norm, swiglu
from attend.cache import KVCache
from attend.dot_product import scaled_dot_product_attention
from attend.heads import merge_heads, repeat_kv, split_heads
from attend.masks import causal_mask
from attend.positions import apply_rope, rope_angles
from coursework.exercise import (
    Call,
    Event,
    Exercise,
    Inspect,
    Load,
    Misconception,
    Property,
    Step,
    Stub,
    Use,
)


def _shapes(d_model: int, n_heads: int, n_kv_heads: int, d_hidden: int) -> dict[str, tuple]:
    D, kv = d_model, d_model // n_heads * n_kv_heads
    return {
        "gain_1": (D,),
        "w_q": (D, D),
        "w_k": (D, kv),
        "w_v": (D, kv),
        "w_o": (D, D),
        "gain_2": (D,),
        "w_gate": (D, d_hidden),
        "w_up": (D, d_hidden),
        "w_down": (d_hidden, D),
    }


class _Reference(nn.Module):
    """The block out of parts of `attend`."""

    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.base, self.eps = n_heads, n_kv_heads, base, eps
        for name, shape in _shapes(d_model, n_heads, n_kv_heads, d_hidden).items():
            self.register_parameter(name, nn.Parameter(torch.ones(shape)))

    def forward(self, x, cache=None):
        a = rms_norm(x, self.gain_1, self.eps)
        q = split_heads(a @ self.w_q, self.n_heads)
        k, v = (split_heads(a @ w, self.n_kv_heads) for w in (self.w_k, self.w_v))
        start = 0 if cache is None else len(cache)
        positions = torch.arange(start, start + x.shape[-2])
        angles = rope_angles(positions, q.shape[-1], self.base)
        q, k = apply_rope(q, angles), apply_rope(k, angles)
        if cache is not None:
            k, v = cache.append(k, v)
        n_rep = self.n_heads // self.n_kv_heads
        mask = causal_mask(q.shape[-2], k.shape[-2], like=x)
        z, _ = scaled_dot_product_attention(q, repeat_kv(k, n_rep), repeat_kv(v, n_rep), mask)
        x = x + merge_heads(z) @ self.w_o
        a = rms_norm(x, self.gain_2, self.eps)
        return x + swiglu(a, self.w_gate, self.w_up, self.w_down)


# Inputs --------------------------------------------------------------------------------------
#
# In float32, whose tolerance lets angles of RoPE pass that were computed in float32, as they may
# be. Where a token stands at position 0, no angle matters, and float64 can be asked for.


def state(
    rng: np.random.Generator, sizes: tuple[int, int, int, int], dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    """Random weights with which every part matters: uneven gains, attention that prefers."""

    def random(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 1:
            return rng.uniform(0.5, 1.5, shape)
        scale = 1.7 if name in ("w_q", "w_k") else 1.0
        return scale * rng.standard_normal(shape) / math.sqrt(shape[0])

    return {
        name: torch.from_numpy(random(name, shape)).to(dtype)
        for name, shape in _shapes(*sizes).items()
    }


def _tokens(rng: np.random.Generator, B: int, T: int, D: int, dtype=torch.float32) -> Tensor:
    return torch.from_numpy(rng.standard_normal((B, T, D))).to(dtype)


#: d_model, n_heads, n_kv_heads, d_hidden
SIZES = ((24, 4, 2, 7), (36, 6, 3, 11), (30, 3, 1, 13), (48, 6, 2, 5))


def _made(
    rng: np.random.Generator,
    sizes: tuple[int, int, int, int],
    *steps: Step,
    dtype: torch.dtype = torch.float32,
    **settings: float,
) -> Call:
    return Call(sizes, settings, steps=(Load(state(rng, sizes, dtype)), *steps))


def _states(rng: np.random.Generator) -> tuple[Call, ...]:
    return tuple(Call(sizes, steps=(Inspect(),)) for sizes in (*SIZES[:3], (6, 1, 1, 5)))


def _without_a_cache(rng: np.random.Generator) -> tuple[Call, ...]:
    batches = ((1, 3), (2, 5), (3, 7), (2, 11))
    return tuple(
        _made(rng, sizes, Use("__call__", (_tokens(rng, B, T, sizes[0]),)))
        for sizes, (B, T) in zip(SIZES, batches, strict=True)
    )


def _other_settings(rng: np.random.Generator) -> tuple[Call, ...]:
    def once(sizes, B, T, dtype=torch.float32, size=1.0, **settings):
        x = size * _tokens(rng, B, T, sizes[0], dtype)
        return _made(rng, sizes, Use("__call__", (x,)), dtype=dtype, **settings)

    return (
        once(SIZES[0], 1, 5, base=500.0),
        once(SIZES[1], 2, 7, base=100.0, eps=0.3),
        once(SIZES[2], 3, 2, eps=0.1),
        once(SIZES[3], 2, 5, base=50.0, eps=1e-2, size=0.1),
        once((20, 5, 5, 3), 2, 1, torch.float64),
    )


def _cache(sizes: tuple[int, int, int, int], batch: int, n: int, dtype=torch.float32) -> Stub:
    d_model, n_heads, n_kv_heads, _ = sizes
    return Stub(
        lambda: KVCache(batch, n_kv_heads, n, d_model // n_heads, dtype),
        "a cache",
        methods=("append", "__len__", "reset"),
        counted=("append",),
    )


def _in_chunks(rng, sizes, B, chunks, **settings) -> Call:
    cache = _cache(sizes, B, sum(chunks))
    steps = [Use("__call__", (_tokens(rng, B, T, sizes[0]), cache)) for T in chunks]
    return _made(rng, sizes, *steps, **settings)


def _with_a_cache(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _in_chunks(rng, SIZES[0], 1, (2, 3)),
        _in_chunks(rng, SIZES[1], 2, (3, 1, 1, 2)),
        _in_chunks(rng, SIZES[2], 3, (1, 4, 2)),
        _in_chunks(rng, SIZES[3], 1, (5, 3, 4), base=200.0),
    )


def _one_append(call: Call, events: tuple[Event, ...]) -> str | None:
    """What is wrong with what was appended: once a call, the new tokens, G heads."""
    steps = [step for step in call.steps or () if isinstance(step, Use)]
    if len(events) != len(steps):
        return "the cache is not extended exactly once a call"
    d_model, n_heads, n_kv_heads, _ = call.args
    before = 0
    for step, event in zip(steps, events, strict=True):
        x = step.args[0]
        wanted = (x.shape[0], n_kv_heads, x.shape[1], d_model // n_heads)
        for given in (*event.args, *event.kwargs.values()):
            if tuple(given.shape) != wanted:
                return "what is appended is not the new tokens' keys and values, G heads of each"
        after = before + x.shape[1]
        keys = event.args[0] if event.args else event.kwargs["k"]
        if after > 1 and _is_not_turned(call, x, keys):
            return "keys are put into the cache before they are turned"
        before = after
    return None


def _is_not_turned(call: Call, x: Tensor, keys: Tensor) -> bool:
    """Whether these are the keys of the tokens `x` as they come out of the projection."""
    weights = next(step.state for step in call.steps or () if isinstance(step, Load))
    a = rms_norm(x, weights["gain_1"], call.kwargs.get("eps", 1e-6))
    plain = split_heads(a @ weights["w_k"], call.args[2])
    return torch.allclose(torch.as_tensor(keys).to(plain.dtype), plain, rtol=1e-3, atol=1e-3)


def _to_be_differentiated(rng: np.random.Generator) -> tuple[Call, ...]:
    def use(B: int, T: int, d_model: int) -> Use:
        return Use("__call__", (_tokens(rng, B, T, d_model),), gradient=True)

    return tuple(
        _made(rng, sizes, Use("train"), use(B, T, sizes[0]))
        for sizes, (B, T) in zip(SIZES[:3], ((1, 3), (2, 2), (1, 5)), strict=True)
    )


# Wrong answers -------------------------------------------------------------------------------


class _Own(nn.Module):
    """A right block in PyTorch alone. The wrong ones below change one of its methods."""

    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.base, self.eps = n_heads, n_kv_heads, base, eps
        for name, shape in _shapes(d_model, n_heads, n_kv_heads, d_hidden).items():
            self.register_parameter(name, nn.Parameter(torch.ones(shape)))

    def norm(self, x, gain):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * gain

    def split(self, x, n):
        return x.unflatten(-1, (n, -1)).transpose(-3, -2)

    def merge(self, z):
        return z.transpose(-3, -2).flatten(-2)

    def start(self, cache):
        return 0 if cache is None else len(cache)

    def turn(self, x, start):
        K = x.shape[-1]
        speed = self.base ** (-torch.arange(0, K, 2, dtype=torch.float64) / K)
        angles = (start + torch.arange(x.shape[-2], dtype=torch.float64))[:, None] * speed
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return self.pairs(x, cos, sin)

    def pairs(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def turned(self, q, k, v, start):
        return self.turn(q, start), self.turn(k, start), v

    def stored(self, k, v, cache):
        return (k, v) if cache is None else cache.append(k, v)

    def share(self, x):
        return x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=-3)

    def mask(self, T, S):
        return torch.arange(S) <= torch.arange(S - T, S)[:, None]

    def scores(self, q, k):
        return q @ k.mT / math.sqrt(q.shape[-1])

    def attention(self, a, cache):
        q = self.split(a @ self.w_q, self.n_heads)
        k = self.split(a @ self.w_k, self.n_kv_heads)
        v = self.split(a @ self.w_v, self.n_kv_heads)
        q, k, v = self.turned(q, k, v, self.start(cache))
        k, v = self.stored(k, v, cache)
        k, v = self.share(k), self.share(v)
        allowed = self.mask(q.shape[-2], k.shape[-2])
        weights = self.scores(q, k).masked_fill(~allowed, -math.inf).softmax(-1)
        return self.merge(weights @ v) @ self.w_o

    def mlp(self, a):
        return (F.silu(a @ self.w_gate) * (a @ self.w_up)) @ self.w_down

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm(x, self.gain_1), cache)
        return x + self.mlp(self.norm(x, self.gain_2))


class _RopeOnValues(_Own):
    def turned(self, q, k, v, start):
        return self.turn(q, start), self.turn(k, start), self.turn(v, start)


class _GateAndUpExchanged(_Own):
    def mlp(self, a):
        return ((a @ self.w_gate) * F.silu(a @ self.w_up)) @ self.w_down


class _Gelu(_Own):
    def mlp(self, a):
        return (F.gelu(a @ self.w_gate) * (a @ self.w_up)) @ self.w_down


class _PositionsRestart(_Own):
    def start(self, cache):
        return 0


class _OpenWithinAChunk(_Own):
    def mask(self, T, S):
        return super().mask(T, S) if T == S else torch.ones(T, S, dtype=torch.bool)


class _OpenWithACache(_Own):
    def attention(self, a, cache):
        self.cached = cache is not None
        return super().attention(a, cache)

    def mask(self, T, S):
        return torch.ones(T, S, dtype=torch.bool) if self.cached else super().mask(T, S)


class _NoMask(_Own):
    def mask(self, T, S):
        return torch.ones(T, S, dtype=torch.bool)


class _LinedUpAtTheStart(_Own):
    def mask(self, T, S):
        return torch.arange(S) <= torch.arange(T)[:, None]


class _CacheIgnored(_Own):
    def stored(self, k, v, cache):
        if cache is not None:
            cache.append(k, v)
        return k, v


class _EmptyCacheIsNone(_Own):
    def stored(self, k, v, cache):
        return cache.append(k, v) if cache is not None and len(cache) else (k, v)


class _AllHeadsStored(_Own):
    def stored(self, k, v, cache):
        k, v = super().share(k), super().share(v)
        return (k, v) if cache is None else cache.append(k, v)

    def share(self, x):
        return x


class _TurnedAgain(_Own):
    def stored(self, k, v, cache):
        k, v = super().stored(k, v, cache)
        return (k, v) if cache is None else (self.turn(k, 0), v)


class _NoRope(_Own):
    def turned(self, q, k, v, start):
        return q, k, v


class _Interleaved(_Own):
    def pairs(self, x, cos, sin):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


class _BaseIgnored(_Own):
    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__(d_model, n_heads, n_kv_heads, d_hidden, eps=eps)


class _EpsIgnored(_Own):
    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__(d_model, n_heads, n_kv_heads, d_hidden, base=base)


class _EpsOutside(_Own):
    def norm(self, x, gain):
        return x / (x.square().mean(-1, keepdim=True).sqrt() + self.eps) * gain


class _NoScale(_Own):
    def scores(self, q, k):
        return q @ k.mT


class _RootOfTheModel(_Own):
    def scores(self, q, k):
        return q @ k.mT / math.sqrt(len(self.gain_1))


class _Tiled(_Own):
    def share(self, x):
        return x.repeat(1, self.n_heads // self.n_kv_heads, 1, 1)


class _MeanSubtracted(_Own):
    def norm(self, x, gain):
        return super().norm(x - x.mean(-1, keepdim=True), gain)


class _PostNorm(_Own):
    def forward(self, x, cache=None):
        x = self.norm(x + self.attention(x, cache), self.gain_1)
        return self.norm(x + self.mlp(x), self.gain_2)


class _OneNorm(_Own):
    def forward(self, x, cache=None):
        x = x + self.attention(self.norm(x, self.gain_1), cache)
        return x + self.mlp(self.norm(x, self.gain_1))


class _NormInTheStream(_Own):
    def forward(self, x, cache=None):
        x = self.norm(x, self.gain_1)
        x = x + self.attention(x, cache)
        x = self.norm(x, self.gain_2)
        return x + self.mlp(x)


class _NoResidual(_Own):
    def forward(self, x, cache=None):
        x = self.attention(self.norm(x, self.gain_1), cache)
        return self.mlp(self.norm(x, self.gain_2))


class _SideBySide(_Own):
    def forward(self, x, cache=None):
        a = self.attention(self.norm(x, self.gain_1), cache)
        return x + a + self.mlp(self.norm(x, self.gain_2))


class _HeadsNotMovedBack(_Own):
    def merge(self, z):
        return z.reshape(z.shape[0], z.shape[2], -1)


DECODER_BLOCK = Exercise(
    chapter=12,
    signature=(
        "class DecoderBlock(d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6)"
    ),
    task="""\
One block of a Llama, as an `nn.Module`: everything of this course in thirty lines.
`DecoderBlock(d_model, n_heads, n_kv_heads, d_hidden, base, eps)` has a method
`forward(x, cache=None)`:

$$Y = X + \\operatorname{attention}(\\operatorname{rms}(X)), \\qquad
\\text{out} = Y + \\operatorname{swiglu}(\\operatorname{rms}(Y)).$$

- `d_model` is D, `d_hidden` the hidden width of the feed-forward part.
- `x` is `(B, T, D)`, float32 or float64 as the parameters are, and so is what comes back. Compute
  in that dtype; only the angles of RoPE may be in float32 for either.
- The attention is causal, with `n_heads` query heads of width `K = d_model / n_heads` that share
  `n_kv_heads` key/value heads: query head `h` uses number `h // (n_heads / n_kv_heads)`. Scores are
  divided by √K. Queries and keys are turned by half-split RoPE with this `base`.
- Both norms are RMSNorms with this `eps`:
  $x / \\sqrt{\\operatorname{mean}(x^2) + \\text{eps}}$ times a gain.
- Parameters are flat, `nn.Parameter`s with the names that `load_block` gives: `gain_1`, `gain_2`
  `(D,)`; `w_q`, `w_o` `(D, D)`; `w_k`, `w_v` `(D, n_kv_heads * K)`; `w_gate`, `w_up` `(D,
  d_hidden)`; `w_down` `(d_hidden, D)`. Nothing else is in the state dict. What they start with is
  up to you: they are filled by `load_state_dict`.
- Without a cache positions start at 0. With one, `x` holds the *new* tokens only, one or many.
  `len(cache)` is how many came before, `cache.append(k, v)` takes the new tokens' keys, **already
  turned**, and values, each `(B, n_kv_heads, T, K)`, and returns those of all tokens, oldest
  first. Call it once in each `forward`. A new token sees all tokens before it and itself.
- An empty cache is a cache. The output is what the block would give for these tokens if it saw the
  whole text at once.
- The sizes always divide, and K is even. Without a cache the result is differentiable with respect
  to `x` and all parameters. There is no dropout, in training neither. You may call your own
  `swiglu`.""",
    reference=_Reference,
    properties=(
        Property("nine parameters, by name and shape", 1, _states),
        Property("without a cache it is a Llama's block", 3, _without_a_cache),
        Property("base and eps count, and the dtype is kept", 1, _other_settings),
        Property("with a cache, in chunks, it gives the same", 3, _with_a_cache, watch=_one_append),
        Property("it can be differentiated", 1, _to_be_differentiated),
    ),
    misconceptions=(
        Misconception(
            "turns the values too",
            "You turn the values by RoPE as well. Positions belong into the comparison, that is "
            "into queries and keys; what is handed over stays as it is.",
            _RopeOnValues,
            symptom="the values are turned",
        ),
        Misconception(
            "exchanges gate and up",
            "SiLU is taken of what `w_up` gives. The gate is made by `w_gate`.",
            _GateAndUpExchanged,
            symptom="gate and up have changed places",
        ),
        Misconception(
            "opens the gate with GELU",
            "The gate goes through GELU here. A Llama has SiLU, which looks almost the same.",
            _Gelu,
            symptom="your numbers are near, but not right",
        ),
        Misconception(
            "lets positions restart",
            "Without a cache all is right; with one, each chunk begins at position 0 again. The "
            "first new token has the position `len(cache)`, asked before it is extended.",
            _PositionsRestart,
            symptom="positions start again with each chunk",
        ),
        Misconception(
            "lets a chunk see its own future",
            "With a cache the tokens of a chunk see each other in both directions. A single new "
            "token needs no mask; several do.",
            _OpenWithinAChunk,
            symptom="within a chunk the future is seen",
            also=(_OpenWithACache,),
        ),
        Misconception(
            "has no causal mask",
            "Every token sees every other, later ones too. A decoder is causal.",
            _NoMask,
            symptom="the future is seen",
        ),
        Misconception(
            "lines the mask up at the start",
            "With a cache there are more keys than queries, and the queries are the *last* tokens. "
            "Your mask treats them as the first.",
            _LinedUpAtTheStart,
            symptom="new tokens do not see the text before them",
        ),
        Misconception(
            "ignores what the cache holds",
            "You go on with the new keys and values alone. `append` returns those of all tokens. "
            "If you ask `if cache:`, an empty one counts as false and is never filled: ask "
            "`is None`.",
            _CacheIgnored,
            symptom="new tokens see only each other",
            also=(_EmptyCacheIsNone,),
        ),
        Misconception(
            "stores a copy for every query head",
            "You repeat keys and values before they are stored. The cache holds `n_kv_heads` of "
            "them; that is what makes it small. Repeat what comes back.",
            _AllHeadsStored,
            symptom="the cache is handed too many heads",
        ),
        Misconception(
            "turns stored keys again",
            "Keys that come out of the cache are turned already, and you turn them once more. Each "
            "is turned once, before it is stored.",
            _TurnedAgain,
            symptom="keys are turned twice",
        ),
        Misconception(
            "has no positions",
            "Queries and keys are not turned: the block does not know what came first.",
            _NoRope,
            symptom="RoPE is missing",
        ),
        Misconception(
            "turns neighbours",
            "You pair features 2i and 2i + 1, the interleaved layout. Here features i and i + K/2 "
            "make a pair; `load_block` brought the weights into that order.",
            _Interleaved,
            symptom="RoPE turns the wrong pairs",
        ),
        Misconception(
            "ignores the base",
            "The base of RoPE is always 10,000 in your block. It is an argument: the published "
            "model has another one.",
            _BaseIgnored,
            symptom="base makes no difference",
        ),
        Misconception(
            "ignores eps",
            "eps is always the same in your norms. It is an argument of the block.",
            _EpsIgnored,
            symptom="eps makes no difference",
        ),
        Misconception(
            "adds eps outside the root",
            "You add eps to the root. It belongs inside, to the mean square.",
            _EpsOutside,
            symptom="eps stands in the wrong place",
        ),
        Misconception(
            "does not scale",
            "The scores are not divided by √K.",
            _NoScale,
            symptom="your weights are too sharp",
        ),
        Misconception(
            "divides by √d_model",
            "You divide by the root of the model's width. A head is K wide, and a score is a sum "
            "of K products.",
            _RootOfTheModel,
            symptom="your weights are too flat",
        ),
        Misconception(
            "tiles the key/value heads",
            "You lay the key/value heads in turns: 0, 1, 0, 1, … Query heads that share one are "
            "neighbours: 0, 0, 1, 1, … (`repeat_interleave`, not `repeat`).",
            _Tiled,
            symptom="query heads use the wrong key/value heads",
        ),
        Misconception(
            "subtracts the mean",
            "This is a LayerNorm without bias. RMSNorm leaves the mean where it is.",
            _MeanSubtracted,
            symptom="the norm does more than it should",
        ),
        Misconception(
            "norms after the sums",
            "Your norms stand after the sums, as in the first transformer. Here each branch "
            "reads a normed copy and the stream itself is never normed.",
            _PostNorm,
            symptom="the norms stand in the wrong place",
        ),
        Misconception(
            "uses one gain twice",
            "Both norms use gain_1. The second has a gain of its own.",
            _OneNorm,
            symptom="gain_2 makes no difference",
        ),
        Misconception(
            "norms the stream",
            "You put the normed tokens into the stream. Norm a copy for the branch; what is "
            "added to is the stream as it was.",
            _NormInTheStream,
            symptom="the stream is normed",
        ),
        Misconception(
            "forgets the residuals",
            "The branches replace the stream. They are added to it.",
            _NoResidual,
            symptom="there is no way around the branches",
        ),
        Misconception(
            "runs both branches side by side",
            "Both branches read the same stream, as in some other models. In a Llama the second "
            "one reads what the first has added.",
            _SideBySide,
            symptom="the second branch does not see the first",
        ),
        Misconception(
            "merges heads without moving them back",
            "The axis of heads stands before that of tokens when you reshape. Move it back first: "
            "otherwise a row holds one head's numbers of several tokens.",
            _HeadsNotMovedBack,
            symptom="heads and tokens are mixed up",
        ),
    ),
    hints=(
        "Write it without a cache first, and run the check: three of its properties need none. "
        "What changes with one? Where positions begin, which keys there are, and the shape of "
        "the mask.",
        "norm, project, split into heads, turn queries and keys from position `len(cache)` on, "
        "append, repeat what comes back for the query heads, mask (T, S) with the queries at the "
        "end, softmax, blend, merge, w_o, add. Then norm, swiglu, add.",
        "`start = 0 if cache is None else len(cache)`; `mask = torch.ones(T, S, "
        "dtype=torch.bool).tril(S - T)`; keys and values repeated by `repeat_interleave(n_heads // "
        "n_kv_heads, dim=1)`; heads merged by `transpose(1, 2).reshape(B, T, -1)`.",
    ),
    minutes=30,
    keeps_dtype=True,
)
