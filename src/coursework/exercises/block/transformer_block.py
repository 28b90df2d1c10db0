"""`TransformerBlock`: the block as a module that learns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attend.blocks import feed_forward, layer_norm, pre_norm_block
from attend.dot_product import scaled_dot_product_attention
from attend.heads import merge_heads, split_heads
from coursework.exercise import Call, Exercise, Inspect, Load, Misconception, New, Property, Use
from coursework.exercises.block.tensors import gains, mixed_mask, normal

Rng = np.random.Generator


# The reference ---------------------------------------------------------------------------------


class _Reference(nn.Module):
    """The block out of parts of `attend`."""

    def __init__(self, d_model, n_heads, d_hidden=None):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model = {d_model} cannot be shared out to {n_heads} heads")
        self.n_heads = n_heads
        for name, shape in shapes(d_model, d_hidden).items():
            start = torch.ones if name.startswith("gain") else torch.zeros
            start = torch.randn if len(shape) == 2 else start
            self.register_parameter(name, nn.Parameter(start(shape) / shape[0] ** (len(shape) - 1)))

    def attention(self, x, mask):
        q, k, v = (split_heads(x @ w, self.n_heads) for w in (self.w_q, self.w_k, self.w_v))
        z, _ = scaled_dot_product_attention(q, k, v, mask)
        return merge_heads(z) @ self.w_o

    def forward(self, x, mask=None):
        return pre_norm_block(
            x,
            lambda y: self.attention(y, mask),
            lambda y: feed_forward(y, self.w_1, self.b_1, self.w_2, self.b_2),
            lambda y: layer_norm(y, self.gain_1, self.bias_1),
            lambda y: layer_norm(y, self.gain_2, self.bias_2),
        )


def shapes(d_model: int, d_hidden: int | None = None) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the block's parameters."""
    D, F = d_model, 4 * d_model if d_hidden is None else d_hidden
    vectors = {name: (D,) for name in ("gain_1", "bias_1", "gain_2", "bias_2")}
    square = {name: (D, D) for name in ("w_q", "w_k", "w_v", "w_o")}
    return {**vectors, **square, "w_1": (D, F), "b_1": (F,), "w_2": (F, D), "b_2": (D,)}


# Calls -----------------------------------------------------------------------------------------


def _state(
    rng: Rng, d_model: int, d_hidden: int | None = None, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    """Parameters as after some training: gains that are not 1, biases that are not 0."""
    state = {}
    for name, shape in shapes(d_model, d_hidden).items():
        if name.startswith("gain"):
            state[name] = gains(rng, *shape, dtype)
        elif len(shape) == 1:
            state[name] = normal(rng, *shape, size=0.5, dtype=dtype)
        else:
            # Scores of queries and keys are made to differ: even weights would hide their faults.
            size = (1.6 if name in ("w_q", "w_k") else 1.0) / math.sqrt(shape[0])
            state[name] = normal(rng, *shape, size=size, dtype=dtype)
    return state


def _call(
    rng: Rng,
    B: int,
    T: int,
    D: int,
    H: int,
    F: int | None = None,
    *,
    mask: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    **how: Any,
) -> Call:
    """A block with some state, applied twice to the same tokens; if differentiated, in training."""
    x = 1 + 2 * normal(rng, B, T, D, dtype=dtype)
    kwargs = {} if mask is None else {"mask": mask}
    use = Use("__call__", (x,), kwargs, **how)
    args = (D, H) if F is None else (D, H, F)
    mode = (Use("train"),) if use.gradient else ()
    return Call(args, steps=(Load(_state(rng, D, F, dtype)), *mode, use, use))


def _causal(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril()


def _states(rng: Rng) -> tuple[Call, ...]:
    sizes = ((6, 2), (8, 4), (10, 5, 7), (3, 1, 5), (4, 2, 2))
    return tuple(Call(args, steps=(Inspect(),)) for args in sizes)


def _without_mask(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 4, 2),
        _call(rng, 2, 5, 6, 3, 7),
        _call(rng, 3, 4, 10, 2, 5),
        _call(rng, 2, 7, 6, 2, 11),
        _call(rng, 5, 3, 8, 4),
    )


def _masked(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 4, 2, mask=_causal(3)),
        _call(rng, 2, 5, 6, 3, 7, mask=_causal(5)),
        _call(rng, 2, 4, 6, 2, 5, mask=mixed_mask(rng, 4, 4)),
        _call(rng, 3, 5, 8, 2, 11, mask=mixed_mask(rng, 3, 1, 5, 5)),
        _call(rng, 2, 3, 10, 5, 7, mask=mixed_mask(rng, 2, 5, 3, 3)),
        _call(rng, 3, 4, 6, 3, 8, mask=mixed_mask(rng, 3, 1, 1, 4)),
    )


def _edges(rng: Rng) -> tuple[Call, ...]:
    empty = []
    for B, T, D, H, hidden in ((1, 3, 4, 2, 5), (2, 5, 6, 3, 7), (3, 4, 8, 2, 6)):
        mask = mixed_mask(rng, T, T)
        mask[1] = False
        empty.append(_call(rng, B, T, D, H, hidden, mask=mask))
    loud = _call(rng, 2, 4, 6, 2, 5)
    for name in ("w_q", "w_k"):
        loud.steps[0].state[name] *= 60.0
    return (
        *empty,
        loud,
        _call(rng, 2, 3, 4, 2, dtype=torch.float32),
        _call(rng, 3, 5, 6, 3, 7, dtype=torch.float32, mask=_causal(5)),
        _call(rng, 2, 1, 6, 2),
    )


def _refusals(rng: Rng) -> tuple[Call, ...]:
    sizes = ((10, 3), (7, 2), (6, 4, 5), (5, 10), (6, 3), (5, 1, 2))
    return tuple(Call(args, steps=()) for args in sizes)


def _pairs(rng: Rng) -> tuple[Call, ...]:
    """Two blocks with other weights, used by turns."""
    found = []
    for B, T, D, H, hidden in ((2, 3, 4, 2, 5), (1, 5, 6, 3, 7), (3, 4, 6, 2, 9)):
        x = 1 + 2 * normal(rng, B, T, D)
        mask = mixed_mask(rng, T, T)
        steps = (
            Load(_state(rng, D, hidden)),
            New((D, H, hidden)),
            Load(_state(rng, D, hidden), on=1),
            Use("__call__", (x,)),
            Use("__call__", (x,), on=1),
            Use("__call__", (x,), {"mask": mask}),
            Use("__call__", (x,)),
        )
        found.append(Call((D, H, hidden), steps=steps))
    return tuple(found)


def _gradients(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 4, 2, gradient=True),
        _call(rng, 2, 4, 6, 3, 5, gradient=True),
        _call(rng, 2, 3, 6, 2, 7, mask=_causal(3), gradient=True),
        _call(rng, 3, 2, 4, 4, mask=mixed_mask(rng, 3, 1, 2, 2), gradient=True),
    )


# What learners write ---------------------------------------------------------------------------


class _Right(nn.Module):
    """A block without mistakes, from which those below differ in one place each."""

    eps = 1e-5

    def __init__(self, d_model, n_heads, d_hidden=None):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("n_heads must divide d_model")
        self.make(d_model, n_heads, d_hidden or 4 * d_model)

    def make(self, D, H, hidden):
        self.n_heads = H
        self.gain_1, self.bias_1 = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))
        self.gain_2, self.bias_2 = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))
        self.w_q, self.w_k = self.matrix(D, D), self.matrix(D, D)
        self.w_v, self.w_o = self.matrix(D, D), self.matrix(D, D)
        self.w_1, self.b_1 = self.matrix(D, hidden), nn.Parameter(torch.zeros(hidden))
        self.w_2, self.b_2 = self.matrix(hidden, D), nn.Parameter(torch.zeros(D))

    def matrix(self, n_in, n_out):
        return nn.Parameter(torch.full((n_in, n_out), 0.02))

    def norm_1(self, x):
        return F.layer_norm(x, x.shape[-1:], self.gain_1, self.bias_1, self.eps)

    def norm_2(self, x):
        return F.layer_norm(x, x.shape[-1:], self.gain_2, self.bias_2, self.eps)

    def split(self, x):
        B, T, D = x.shape
        return x.reshape(B, T, self.n_heads, D // self.n_heads).transpose(1, 2)

    def join(self, z):
        B, H, T, K = z.shape
        return z.transpose(1, 2).reshape(B, T, H * K)

    def scale(self, q):
        return q.shape[-1] ** -0.5

    def weigh(self, scores, mask):
        if mask is None:
            return torch.softmax(scores, dim=-1)
        weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
        return weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)

    def attention(self, x, mask):
        q, k, v = self.split(x @ self.w_q), self.split(x @ self.w_k), self.split(x @ self.w_v)
        weights = self.weigh(q @ k.mT * self.scale(q), mask)
        return self.join(weights @ v) @ self.w_o

    def bend(self, x):
        return F.gelu(x)

    def mlp(self, x):
        return self.bend(x @ self.w_1 + self.b_1) @ self.w_2 + self.b_2

    def forward(self, x, mask=None):
        x = x + self.attention(self.norm_1(x), mask)
        return x + self.mlp(self.norm_2(x))


class _PostNorm(_Right):
    def forward(self, x, mask=None):
        x = self.norm_1(x + self.attention(x, mask))
        return self.norm_2(x + self.mlp(x))


class _Parallel(_Right):
    def forward(self, x, mask=None):
        return x + self.attention(self.norm_1(x), mask) + self.mlp(self.norm_2(x))


class _NoResidual(_Right):
    def forward(self, x, mask=None):
        return self.mlp(self.norm_2(self.attention(self.norm_1(x), mask)))


class _OneNormTwice(_Right):
    def forward(self, x, mask=None):
        x = x + self.attention(self.norm_1(x), mask)
        return x + self.mlp(self.norm_1(x))


class _Inverted(_Right):
    def weigh(self, scores, mask):
        return super().weigh(scores, None if mask is None else ~mask)


class _NoMask(_Right):
    def weigh(self, scores, mask):
        return torch.softmax(scores, dim=-1)


class _BooleansAdded(_Right):
    def weigh(self, scores, mask):
        return torch.softmax(scores if mask is None else scores + mask, dim=-1)


class _MaskedAfterSoftmax(_Right):
    def weigh(self, scores, mask):
        weights = torch.softmax(scores, dim=-1)
        return weights if mask is None else weights * mask


class _NaNRows(_Right):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return torch.softmax(scores, dim=-1)


class _FiniteStandIn(_Right):
    def weigh(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        return torch.softmax(scores, dim=-1)


class _AlwaysCausal(_Right):
    def weigh(self, scores, mask):
        if mask is None:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        return super().weigh(scores, mask)


class _KeepsTheMask(_Right):
    kept = None

    def weigh(self, scores, mask):
        if mask is not None:
            self.kept = mask
        return super().weigh(scores, self.kept)


class _NotScaled(_Right):
    def scale(self, q):
        return 1.0


class _ScaledByTheWholeWidth(_Right):
    def scale(self, q):
        return (q.shape[-1] * self.n_heads) ** -0.5


class _NoTranspose(_Right):
    def split(self, x):
        B, T, D = x.shape
        return x.reshape(B, self.n_heads, T, D // self.n_heads)

    def join(self, z):
        B, H, T, K = z.shape
        return z.reshape(B, T, H * K)


class _TransposesAtTheEndOnly(_NoTranspose):
    def join(self, z):
        return _Right.join(self, z)


class _DealsOutColumns(_Right):
    def split(self, x):
        B, T, D = x.shape
        return x.reshape(B, T, D // self.n_heads, self.n_heads).permute(0, 3, 1, 2)

    def join(self, z):
        B, H, T, K = z.shape
        return z.permute(0, 2, 3, 1).reshape(B, T, H * K)


class _OneHead(_Right):
    def split(self, x):
        return x[:, None]


class _NoOutputMatrix(_Right):
    def attention(self, x, mask):
        q, k, v = self.split(x @ self.w_q), self.split(x @ self.w_k), self.split(x @ self.w_v)
        return self.join(self.weigh(q @ k.mT * self.scale(q), mask) @ v)


class _OutIn(_Right):
    def attention(self, x, mask):
        q, k, v = (self.split(F.linear(x, w)) for w in (self.w_q, self.w_k, self.w_v))
        weights = self.weigh(q @ k.mT * self.scale(q), mask)
        return F.linear(self.join(weights @ v), self.w_o)


class _ReLU(_Right):
    def bend(self, x):
        return torch.relu(x)


class _TanhGELU(_Right):
    def bend(self, x):
        return F.gelu(x, approximate="tanh")


class _SmallEps(_Right):
    eps = 1e-6


class _RMS(_Right):
    def norm_1(self, x):
        return F.rms_norm(x, x.shape[-1:], self.gain_1, self.eps) + self.bias_1

    def norm_2(self, x):
        return F.rms_norm(x, x.shape[-1:], self.gain_2, self.eps) + self.bias_2


class _NoRefusal(_Right):
    def __init__(self, d_model, n_heads, d_hidden=None):
        nn.Module.__init__(self)
        self.make(d_model, n_heads, d_hidden or 4 * d_model)


class _Asserts(_Right):
    def __init__(self, d_model, n_heads, d_hidden=None):
        assert d_model % n_heads == 0
        super().__init__(d_model, n_heads, d_hidden)


class _SharedGains(_Right):
    def make(self, D, H, hidden):
        super().make(D, H, hidden)
        self.gain_2, self.bias_2 = self.gain_1, self.bias_1


class _SharedProjections(_Right):
    def make(self, D, H, hidden):
        super().make(D, H, hidden)
        self.w_k = self.w_v = self.w_q


class _SharedByAll(_Right):
    made: dict = {}

    def matrix(self, n_in, n_out):
        many = sum(len(made) for made in self.made.values())
        made = self.made.setdefault((n_in, n_out), [])
        place = self.__dict__.setdefault("places", {})
        nth = place.get((n_in, n_out), 0)
        place[n_in, n_out] = nth + 1
        if nth == len(made):
            made.append(nn.Parameter(torch.full((n_in, n_out), 0.02 + many / 1000)))
        return made[nth]


class _Unregistered(_Right):
    def matrix(self, n_in, n_out):
        return torch.full((n_in, n_out), 0.02, requires_grad=True)


class _Buffers(_Right):
    def matrix(self, n_in, n_out):
        return nn.Buffer(torch.full((n_in, n_out), 0.02))


class _AttentionBiases(_Right):
    def make(self, D, H, hidden):
        super().make(D, H, hidden)
        for name in ("b_q", "b_k", "b_v", "b_o"):
            self.register_parameter(name, nn.Parameter(torch.zeros(D)))


class _DropsOut(_Right):
    def mlp(self, x):
        return F.dropout(super().mlp(x), 0.1)


def _differs_from_itself(call: Call, value: Any) -> bool:
    """Whether a block gave two answers to one question, or was asked no question twice."""
    asked = [i for i, step in enumerate(call.steps) if isinstance(step, Use)]
    if len(asked) < 2 or call.steps[asked[0]] is not call.steps[asked[1]]:
        return True
    (_, first, *_), (_, second, *_) = (value[i] for i in asked[:2])
    if not (type(first) is Tensor and type(second) is Tensor):
        return False
    # Two small results may drop out the same by chance: they say nothing.
    return first.numel() < 60 or not torch.equal(first, second)


TRANSFORMER_BLOCK = Exercise(
    chapter=7,
    signature="class TransformerBlock(d_model, n_heads, d_hidden=None)",
    task="""\
Everything so far, in one module: a **pre-norm** block with LayerNorm (eps = 1e-5), multi-head
attention without biases, and a feed-forward part with the exact GELU.

`TransformerBlock(d_model, n_heads, d_hidden=None)` is an `nn.Module`; `block(x, mask=None)` maps
`(B, T, D)` to `(B, T, D)`.

- `d_hidden` is F, the width inside the feed-forward part; None means 4 · `d_model`. If `n_heads`
  does not divide `d_model`, the constructor raises a ValueError.
- The parameters are flat `nn.Parameter`s of the module, and the state dict has exactly these names
  and shapes: `gain_1`, `bias_1`, `gain_2`, `bias_2` are `(D,)`; `w_q`, `w_k`, `w_v`, `w_o` are
  `(D, D)`; `w_1` is `(D, F)`, `b_1` is `(F,)`, `w_2` is `(F, D)`, `b_2` is `(D,)`. Matrices are
  (in, out): `x @ w`. What they start from is up to you; no two parameters, and no two blocks, share
  memory.
- Head h owns columns h·K … (h+1)·K of the three projections, K = D / H; scores are divided by √K.
- `mask` is boolean and broadcasts to `(B, H, T, T)`; True means *may attend*. None allows every
  pair. A query that may attend to nothing gets zeros from the attention, not NaN.
- No dropout, in training neither: the same x gives the same result, whatever the block was asked
  before.
- The result has the dtype of `x` and the parameters, float64 or float32, and can be differentiated
  with respect to `x` and to every parameter. Leave `x` as it is.
- Weights are loaded with `load_state_dict(strict=True)`, and the outputs are compared. Your block
  may use your functions from above, any function of PyTorch, and its fused attention too.""",
    reference=_Reference,
    properties=(
        Property("the state dict has exactly the names and shapes of the task", 1, _states),
        Property("without a mask it gives what the formula gives", 2, _without_mask),
        Property("a mask says who may attend, for each sentence and head", 2, _masked),
        Property("empty rows, large scores and float32 do no harm", 1, _edges, edge=True),
        # At the edge, because an answer of which the outputs are random has none to show here.
        Property("heads that do not divide the width are refused", 1, _refusals, edge=True),
        Property("two blocks, and two calls of one, leave each other alone", 1, _pairs),
        Property("gradients reach x and every parameter", 1, _gradients),
    ),
    misconceptions=(
        Misconception(
            "post-norm",
            "This is a post-norm block: the stream itself is normed. Norm the copy that a part "
            "reads, and add what it returns to the stream as it was.",
            _PostNorm,
            symptom="every result is normed",
        ),
        Misconception(
            "both parts read x",
            "The feed-forward part reads x as it came in (a parallel block). It should read what "
            "the attention has added to.",
            _Parallel,
            symptom="the feed-forward part does not see what attention wrote",
        ),
        Misconception(
            "has no residual",
            "Nothing goes past the two parts. Add what each returns to what was there before it.",
            _NoResidual,
            symptom="x is not in the result",
        ),
        Misconception(
            "norm 1 twice",
            "Before the feed-forward part you use gain_1 and bias_1 again. It has a norm of its "
            "own.",
            _OneNormTwice,
            symptom="gain_2 and bias_2 change nothing",
        ),
        Misconception(
            "inverts the mask",
            "Your mask says who may *not* attend, as that of nn.MultiheadAttention does. Here True "
            "means may attend.",
            _Inverted,
            symptom="the tokens see just those that they may not see",
        ),
        Misconception(
            "ignores the mask",
            "The mask changes nothing. Give it to the attention: masked scores become −∞ before "
            "the softmax.",
            _NoMask,
            symptom="every token sees all others",
        ),
        Misconception(
            "adds the booleans",
            "You add the boolean mask to the scores, so that True counts as 1. What is forbidden "
            "must become −∞.",
            _BooleansAdded,
            symptom="masked keys still have weight",
        ),
        Misconception(
            "masks after the softmax",
            "You set weights to zero after the softmax, and the row no longer sums to 1. Mask the "
            "scores.",
            _MaskedAfterSoftmax,
            symptom="what attention adds is too small where something is masked",
        ),
        Misconception(
            "NaN for empty rows",
            "A query that may attend to nothing becomes 0/0. Its weights must be zeros.",
            _NaNRows,
            symptom="right, until a query may attend to nothing",
        ),
        Misconception(
            "-1e9 for minus infinity",
            "With −1e9 in place of −∞ a query that may attend to nothing attends to everything "
            "alike. Its weights must be zeros.",
            _FiniteStandIn,
            symptom="right, until a query may attend to nothing",
        ),
        Misconception(
            "always causal",
            "Without a mask your tokens see no later ones. None allows every pair: whether a model "
            "is causal is decided by whoever calls the block.",
            _AlwaysCausal,
            symptom="without a mask, tokens do not see what follows",
        ),
        Misconception(
            "keeps the mask of an earlier call",
            "The mask of one call still acts in the next. A block remembers nothing: do not store "
            "the mask on self.",
            _KeepsTheMask,
            symptom="what it gives depends on what it was asked before",
        ),
        Misconception(
            "does not scale",
            "The division by √K is missing (chapter 04).",
            _NotScaled,
            symptom="the weights of attention are too sharp",
        ),
        Misconception(
            "scales by the whole width",
            "You divide by √D. A head is K = D / H wide, and its scores spread by √K.",
            _ScaledByTheWholeWidth,
            symptom="the weights of attention are too flat",
        ),
        Misconception(
            "splits heads without a transpose",
            "You reshape (B, T, D) straight to (B, H, T, K), which mixes tokens with heads. Make "
            "it (B, T, H, K) first, then exchange the middle axes; and back again at the end.",
            _NoTranspose,
            symptom="tokens and heads are mixed up",
            also=(_TransposesAtTheEndOnly,),
        ),
        Misconception(
            "deals the columns out to the heads in turn",
            "Your heads take every H-th column of the projections. Head h owns K neighbouring "
            "ones: split the last axis into (H, K), heads first.",
            _DealsOutColumns,
            symptom="the heads own other columns",
        ),
        Misconception(
            "one head only",
            "Your attention has a single head, as wide as the model.",
            _OneHead,
            symptom="the number of heads changes nothing",
        ),
        Misconception(
            "forgets W_O",
            "w_o is not used: what the heads return is mixed by it before it is added.",
            _NoOutputMatrix,
            symptom="w_o changes nothing",
        ),
        Misconception(
            "uses matrices as (out, in)",
            "You use the matrices of attention as nn.Linear does, (out, in). Here they are (in, "
            "out): `x @ w`. As they are square, no shape complains.",
            _OutIn,
            symptom="the projections are transposed",
        ),
        Misconception(
            "ReLU for GELU",
            "The bend of your feed-forward part is ReLU. The exact GELU is asked for.",
            _ReLU,
            symptom="the feed-forward part has corners",
        ),
        Misconception(
            "the approximation of GELU",
            "The bend of your feed-forward part is the approximation of GELU by tanh. The exact "
            "GELU is asked for.",
            _TanhGELU,
            symptom="right to about three digits, and no further",
        ),
        Misconception(
            "eps = 1e-6",
            "Your eps is 1e-6. LayerNorm's here is 1e-5.",
            _SmallEps,
            symptom="right to about five digits, and no further",
        ),
        Misconception(
            "RMSNorm for LayerNorm",
            "Your norms do not subtract the mean. LayerNorm is asked for.",
            _RMS,
            symptom="the mean of a token gets through to the parts",
        ),
        Misconception(
            "lets any number of heads pass",
            "d_model = 10 with 3 heads is accepted. Nobody could use such a block: raise a "
            "ValueError in the constructor, where the mistake is made.",
            _NoRefusal,
            symptom="sizes that cannot work are not refused",
            also=(_Asserts,),
        ),
        Misconception(
            "shares one tensor between two parameters",
            "Two names of yours stand for one tensor. They learn the same, and loading the one "
            "overwrites the other.",
            _SharedGains,
            symptom="two parameters are one",
            also=(_SharedProjections,),
        ),
        Misconception(
            "shares its matrices with every other block",
            "All your blocks have the same matrices. Make parameters in `__init__`, for each "
            "block anew; neither in the body of the class nor in a default argument.",
            _SharedByAll,
            symptom="two blocks are one",
        ),
        Misconception(
            "does not register its matrices",
            "Your matrices are plain tensors: they are not in the state dict, no optimiser finds "
            "them, and `.to(device)` leaves them behind. Wrap them in `nn.Parameter`.",
            _Unregistered,
            symptom="parameters are missing from the state dict",
        ),
        Misconception(
            "registers its matrices as buffers",
            "Your matrices are buffers: they are in the state dict, but they do not learn. Wrap "
            "them in `nn.Parameter`.",
            _Buffers,
            symptom="matrices that do not learn",
        ),
        Misconception(
            "has biases in the attention",
            "There are biases in your attention. Here it has none.",
            _AttentionBiases,
            symptom="there are more parameters than there should be",
        ),
        Misconception(
            "drops out in eval() too",
            "Two calls with the same x differ. F.dropout drops out even in eval(), unless it is "
            "told `training=self.training`; and here no dropout is asked for.",
            _DropsOut,
            symptom="the same x gives something else each time",
            recognises=_differs_from_itself,
        ),
    ),
    hints=(
        "You have every part: layer_norm, feed_forward, pre_norm_block here, and the attention of "
        "chapter 06. What is new is only where the weights live.",
        "In `__init__`: check the heads, then one nn.Parameter for each of the twelve names. In "
        "`forward`: four small functions of one tensor that use them, handed to your "
        "pre_norm_block. The attention projects, splits into (B, H, T, K), weighs with the mask, "
        "joins, and multiplies by w_o.",
        "`pre_norm_block(x, lambda y: self.attention(y, mask), lambda y: feed_forward(y, self.w_1, "
        "…), lambda y: layer_norm(y, self.gain_1, self.bias_1), lambda y: …)`. For empty rows: "
        "`weights.masked_fill(~mask.any(-1, keepdim=True), 0)` after the softmax.",
    ),
    minutes=20,
    returns=("the outcomes",),
    keeps_dtype=True,
)
