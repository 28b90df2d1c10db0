"""Every way in which `attend` computes attention, brought to one form: (q, k, v, mask) → z.

The conformance suite (test_conformance.py) runs all its checks over `VARIANTS`, and makes sure that
they catch each of `WRONG`. A new variant is one line here.

Tensors are (B, H, T, K), (B, G, S, K), (B, G, S, d_v); a mask is boolean and broadcasts to
(B, H, T, S), or is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from array_api_compat import array_namespace

import attend

Attention = Callable[..., torch.Tensor]


def sdpa(q, k, v, mask):
    """The oracle: PyTorch's own attention, in float64."""
    q, k, v = (x.detach().double() for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


@dataclass(frozen=True)
class Variant:
    """An attention function and what it can be asked."""

    name: str
    call: Attention
    library: str = "torch"  #: or "numpy"
    mask: str = "any"  #: or the one mask that it always applies: "causal", "window", "none"
    has_logits: bool = True  #: it weighs by a softmax
    differentiable: bool = True
    self_attention: bool = False  #: queries, keys and values come from the same tokens (T = S)
    grouped: bool = False  #: fewer key/value heads than query heads
    oracle: Attention = sdpa

    def __call__(self, q, k, v, mask=None):
        if self.library == "torch":
            return self.call(q, k, v, mask)
        arrays = [None if x is None else x.detach().numpy() for x in (q, k, v, mask)]
        return torch.from_numpy(np.asarray(self.call(*arrays)))

    def __str__(self):
        return f"{self.name} ({self.library})"


def both(name: str, call: Attention, **facts) -> list[Variant]:
    """The same function, handed NumPy arrays and PyTorch tensors."""
    return [Variant(name, call, library, **facts) for library in ("numpy", "torch")]


def _grouped(q, k, v, mask):
    """Grouped heads by hand: the key/value heads repeated, then attention."""
    n_rep = q.shape[-3] // k.shape[-3]
    k, v = attend.repeat_kv(k, n_rep), attend.repeat_kv(v, n_rep)
    return attend.scaled_dot_product_attention(q, k, v, mask)[0]


def _multi_head(q, k, v, mask):
    """q, k and v side by side make x; the projections pick them out, W_O changes nothing."""
    xp = array_namespace(q)
    H, D = q.shape[-3], q.shape[-3] * q.shape[-1]
    x = xp.concat([attend.merge_heads(part) for part in (q, k, v)], axis=-1)
    eye = xp.eye(3 * D, dtype=q.dtype)
    pick = [eye[:, i * D : (i + 1) * D] for i in range(3)]
    return attend.split_heads(attend.multi_head_attention(x, *pick, eye[:D, :D], H, mask), H)


def pieces(T: int, chunks: tuple[int, ...]) -> list[slice]:
    """A text of T tokens cut into chunks of these sizes, of which the last repeats."""
    sizes, cuts = list(chunks), [0]
    while cuts[-1] < T or len(cuts) == 1:
        cuts.append(min(cuts[-1] + (sizes.pop(0) if len(sizes) > 1 else sizes[0]), T))
    return [slice(a, b) for a, b in pairwise(cuts)]


def through_cache(*chunks: int) -> Attention:
    """Attention of a text that comes in chunks of these sizes (the last one repeats)."""

    def call(q, k, v, mask):
        cache = attend.KVCache(k.shape[0], k.shape[1], k.shape[2], k.shape[3], dtype=k.dtype)
        parts = []
        for now in pieces(q.shape[-2], chunks):
            keys, values = cache.append(k[:, :, now], v[:, :, now])
            allowed = attend.causal_mask(now.stop - now.start, now.stop, like=q)
            parts.append(attend.explicit_attention(q[:, :, now], keys, values, allowed))
        return torch.cat(parts, dim=-2)

    return call


FROM_TOKENS = dict(mask="causal", self_attention=True, grouped=True, differentiable=False)


def window(q, k, v, mask):
    return attend.sliding_window_attention(q, k, v, 4)


def through_ring(*chunks: int) -> Attention:
    """A sliding window of 4 over a cache that keeps 4 tokens."""

    def call(q, k, v, mask):
        cache = attend.WindowCache(k.shape[0], k.shape[1], 4, k.shape[3], dtype=k.dtype)
        parts = []
        for now in pieces(q.shape[-2], chunks):
            keys, values = cache.append(k[:, :, now], v[:, :, now])
            T = now.stop - now.start
            allowed = attend.sliding_window_mask(T, 4, keys.shape[2], like=q)
            parts.append(attend.explicit_attention(q[:, :, now], keys, values, allowed))
        return torch.cat(parts, dim=-2)

    return call


def linear_in_loops(q, k, v, mask):
    """Linear attention by its definition: weights φ(q) · φ(k), normalised."""
    phi_q, phi_k = (F.elu(x.detach().double()) + 1 for x in (q, k))
    w = torch.einsum("...tk,...sk->...ts", phi_q, phi_k)
    w = w if mask is None else w * mask
    total = w.sum(-1, keepdim=True)
    return w @ v.detach().double() / torch.where(total == 0, 1, total)


LINEAR = dict(oracle=linear_in_loops, has_logits=False)
FROM_RING = dict(mask="window", self_attention=True, grouped=True, differentiable=False)

VARIANTS = [
    *both("explicit", lambda q, k, v, m: attend.scaled_dot_product_attention(q, k, v, m)[0]),
    *both("grouped", lambda q, k, v, m: _grouped(q, k, v, m), grouped=True),
    *both("multi-head", lambda q, k, v, m: _multi_head(q, k, v, m), self_attention=True),
    Variant("explicit kernel", attend.explicit_attention, grouped=True),
    Variant("fused kernel", attend.fused_attention),
    Variant("fused kernel, grouped", attend.fused_attention, grouped=True),
    Variant("cache, token by token", through_cache(1), **FROM_TOKENS),
    Variant("cache, chunks of 4", through_cache(4), **FROM_TOKENS),
    Variant("cache, 3, then 1, then all", through_cache(3, 1, 99), **FROM_TOKENS),
    *both("tiled", lambda q, k, v, m: attend.flash_attention(q, k, v, 3), mask="none"),
    *both(
        "tiled, causal", lambda q, k, v, m: attend.flash_attention(q, k, v, 4, True), mask="causal"
    ),
    *both("window", window, mask="window"),
    Variant("ring, token by token", through_ring(1), **FROM_RING),
    Variant("ring, chunks of 3", through_ring(3), **FROM_RING),
    Variant("ring, 1, then 6, then 2s", through_ring(1, 6, 2), **FROM_RING),
    *both("linear", lambda q, k, v, m: attend.linear_attention(q, k, v), mask="none", **LINEAR),
    *both(
        "linear, causal",
        lambda q, k, v, m: attend.linear_attention(q, k, v, True),
        mask="causal",
        **LINEAR,
    ),
    *both(
        "linear, recurrent",
        lambda q, k, v, m: attend.linear_attention_recurrent(q, k, v, chunk=3)[0],
        mask="causal",
        self_attention=True,
        **LINEAR,
    ),
    *both("causal", lambda q, k, v, m: attend.causal_attention(q, k, v)[0], mask="causal"),
]


# Known wrong versions: what learners write, and what graders elsewhere accept. Each is right but
# for one thing, and stands beside the check that must see it.


def _softmax(s):
    """Softmax of masked scores (-inf), zeros in rows without a score, gradients finite."""
    return attend.masked_softmax(s, s > -math.inf)


def wrong(scale=lambda q: 1 / math.sqrt(q.shape[-1]), weights=_softmax):
    """Attention with one step exchanged."""

    def call(q, k, v, mask):
        s = q @ k.mT * scale(q)
        return weights(s if mask is None else s.masked_fill(~mask, -math.inf)) @ v

    return call


def with_mask(mask_of):
    """Attention that makes another mask of the one it is given."""
    return lambda q, k, v, m: wrong()(q, k, v, mask_of(m, q.shape[-2], k.shape[-2]))


def _masked_after(q, k, v, mask):
    w = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
    return (w if mask is None else w * mask) @ v


def _multiplied_scores(q, k, v, mask):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.softmax(s if mask is None else s * mask, -1) @ v


def _finite_stand_in(q, k, v, mask):
    s = q @ k.mT / math.sqrt(q.shape[-1])
    low = max(-1e9, torch.finfo(s.dtype).min)
    return torch.softmax(s if mask is None else s.masked_fill(~mask, low), -1) @ v


def _empty_rows_nan(q, k, v, mask):
    return wrong(weights=lambda s: torch.softmax(s, -1))(q, k, v, mask)


def _empty_rows_nan_in_gradient_only(q, k, v, mask):
    return torch.where(_empty_rows_nan(q, k, v, mask).isnan(), 0, _empty_rows_nan(q, k, v, mask))


def _unstable(s):
    e = torch.exp(s)
    total = e.sum(-1, keepdim=True)
    return e / torch.where(total == 0, 1, total)


def _columns_normalised(s):
    return _softmax(s.mT).mT


def _in_place(q, k, v, mask):
    with torch.no_grad():
        q *= 2
    return wrong(scale=lambda q: 0.5 / math.sqrt(q.shape[-1]))(q, k, v, mask)


def _always_float32(q, k, v, mask):
    return wrong()(q.float(), k.float(), v.float(), mask).to(q.dtype)


def _one_width(*, q=lambda q, k, v: q, k=lambda q, k, v: k, v=lambda q, k, v: v):
    """Attention whose queries, keys or values are others than they should be."""
    return lambda Q, K, V, m: wrong()(q(Q, K, V), k(Q, K, V), v(Q, K, V), m)


WRONG = {
    Variant("no scale", wrong(scale=lambda q: 1)): "equals_the_oracle",
    Variant("divided by d_k", wrong(scale=lambda q: 1 / q.shape[-1])): "equals_the_oracle",
    Variant("divided by √T", wrong(scale=lambda q: q.shape[-2] ** -0.5)): "equals_the_oracle",
    Variant("multiplied by √d_k", wrong(scale=lambda q: q.shape[-1] ** 0.5)): "equals_the_oracle",
    Variant("negated scores", wrong(scale=lambda q: -(q.shape[-1] ** -0.5))): "equals_the_oracle",
    Variant("uniform weights", wrong(weights=lambda s: _softmax(0 * s))): "equals_the_oracle",
    Variant("columns normalised", wrong(weights=_columns_normalised)): "equals_the_oracle",
    Variant("all zeros", wrong(weights=torch.zeros_like)): "equals_the_oracle",
    Variant(
        "keys blended", _one_width(v=lambda q, k, v: k), self_attention=True
    ): "equals_the_oracle",
    Variant(
        "keys scored with keys", _one_width(q=lambda q, k, v: k), self_attention=True
    ): "equals_the_oracle",
    Variant("rows of a batch mix", _one_width(k=lambda q, k, v: k - k.mean(0))): (
        "a_batch_is_its_rows"
    ),
    Variant("no maximum subtracted", wrong(weights=_unstable)): "stays_finite_at_logits_of_1e4",
    Variant("masked after the softmax", _masked_after): "equals_the_oracle",
    Variant("scores times mask", _multiplied_scores): "masked_keys_may_hold_anything",
    Variant("a large negative number for -inf", _finite_stand_in): (
        "rows_that_see_nothing_are_zero"
    ),
    Variant("inverted mask", with_mask(lambda m, T, S: None if m is None else ~m)): (
        "the_past_ignores_the_future"
    ),
    Variant("mask ignored", with_mask(lambda m, T, S: None)): "masked_keys_may_hold_anything",
    Variant("NaN in empty rows", _empty_rows_nan): "rows_that_see_nothing_are_zero",
    Variant("NaN in the gradients of empty rows", _empty_rows_nan_in_gradient_only): (
        "gradients_are_finite"
    ),
    Variant(
        "causal mask lined up at the start",
        with_mask(lambda m, T, S: torch.ones(T, S, dtype=torch.bool).tril()),
        mask="causal",
    ): "equals_the_oracle",
    Variant(
        "sees one token of the future",
        with_mask(lambda m, T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T + 1)),
        mask="causal",
    ): "the_past_ignores_the_future",
    Variant(
        "does not see itself",
        with_mask(lambda m, T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T - 1)),
        mask="causal",
    ): "equals_the_oracle",
    Variant("changes its input", _in_place): "inputs_are_unchanged",
    Variant("computes in float32 whatever the input", _always_float32): "equals_the_oracle",
}
