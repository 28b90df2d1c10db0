"""The parts of a block as modules: the functions before, with the weights that they learn.

A module here does nothing that a function does not do; it holds parameters, and hands them over.
Where PyTorch has a kernel that gives the same numbers sooner, the module uses that. Blocks are put
together from such parts: any attention, any feed-forward part, any norm.

What a forward pass needs beside the stream x travels by keyword through the block to its attention:
`positions` (T,) or (B, T), a boolean `mask` that broadcasts to (B, H, T, S), and a `cache` with
`append(k, v) -> (k, v)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attend.blocks import feed_forward, post_norm_block, pre_norm_block, rms_norm, swiglu
from attend.dot_product import scaled_dot_product_attention
from attend.heads import merge_heads, repeat_kv, split_heads
from attend.masks import causal_mask
from attend.positions import rope_angles, rotate

Kernel = Callable[[Tensor, Tensor, Tensor, "Tensor | None"], Tensor]


def weight(n_in: int, n_out: int) -> nn.Parameter:
    """A matrix (in, out) to start from: normal with standard deviation 0.02, as in GPT-2."""
    return nn.Parameter(0.02 * torch.randn(n_in, n_out))


class LayerNorm(nn.Module):
    """`layer_norm` with its gain and bias, by PyTorch's kernel."""

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


class RMSNorm(nn.Module):
    """`rms_norm` with its gain."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.gain, self.eps)


class FeedForward(nn.Module):
    """`feed_forward` with its two matrices and biases; `F.gelu` is our `gelu`."""

    def __init__(self, d_model: int, d_hidden: int, activation: Callable = F.gelu):
        super().__init__()
        self.w_1, self.b_1 = weight(d_model, d_hidden), nn.Parameter(torch.zeros(d_hidden))
        self.w_2, self.b_2 = weight(d_hidden, d_model), nn.Parameter(torch.zeros(d_model))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return feed_forward(x, self.w_1, self.b_1, self.w_2, self.b_2, self.activation)


class GatedFeedForward(nn.Module):
    """`swiglu` with its three matrices."""

    def __init__(self, d_model: int, d_hidden: int):
        super().__init__()
        self.w_gate, self.w_up = weight(d_model, d_hidden), weight(d_model, d_hidden)
        self.w_down = weight(d_hidden, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return swiglu(x, self.w_gate, self.w_up, self.w_down)


class Rotary(nn.Module):
    """RoPE with its cosines and sines looked up in a table.

    The table is float32 whatever the model's dtype. It is no buffer, because `model.bfloat16()`
    would round it.
    """

    def __init__(self, d_head: int, context: int, base: float = 10000.0):
        super().__init__()
        angles = rope_angles(torch.arange(context), d_head, base)
        self.cos, self.sin = angles.cos().float(), angles.sin().float()  # (context, K / 2)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Queries or keys (B, H, T, K), turned to their positions (T,) or (B, T)."""
        if self.cos.device != x.device:
            self.cos, self.sin = self.cos.to(x.device), self.sin.to(x.device)
        cos, sin = self.cos[positions], self.sin[positions]  # (T, K / 2) or (B, T, K / 2)
        if positions.ndim == 2:
            cos, sin = cos[:, None], sin[:, None]  # all heads of a sentence turn alike
        return rotate(x, cos, sin)


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of H query heads over G key/value heads, by the formula.

    Args:
        q: (B, H, T, K).
        k, v: (B, G, S, K), G a divisor of H.
        mask: booleans that broadcast to (B, H, T, S); None allows every pair.

    Returns:
        (B, H, T, K); zeros for queries that may attend to nothing.
    """
    n_rep = q.shape[-3] // k.shape[-3]
    return scaled_dot_product_attention(q, repeat_kv(k, n_rep), repeat_kv(v, n_rep), mask)[0]


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """`explicit_attention` by PyTorch's kernel, which keeps no T × S matrix: the same numbers."""
    H, G, T = q.shape[-3], k.shape[-3], q.shape[-2]
    if G == H:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    if T == 1 and (mask is None or mask.ndim == 2 or mask.shape[-3] == 1):
        # The query heads of a group ask the same keys: to the kernel they may be rows of one head,
        # and the keys, which are all there is to read when a model generates, are not copied.
        q = q.reshape(*q.shape[:-3], G, H // G, q.shape[-1])
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return z.reshape(*z.shape[:-3], H, 1, z.shape[-1])
    n_rep = H // G
    return F.scaled_dot_product_attention(
        q, repeat_kv(k, n_rep), repeat_kv(v, n_rep), attn_mask=mask
    )


class SelfAttention(nn.Module):
    """Multi-head or grouped-query self-attention with its weights.

    Args:
        d_model: D.
        n_heads: H.
        n_kv_heads: G, a divisor of H; None means H.
        bias: whether the four projections add a bias.
        pattern: which pairs may attend at all, as `pattern(T, S, like=x)` → booleans (T, S), with
            the queries the last T tokens (`causal_mask` is one); None means every pair.
        rotary: turns queries and keys to their positions; None leaves them.
        kernel: `fused_attention`, or another function of (q, k, v, mask).

    Raises:
        ValueError: H does not divide D, or G not H.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        *,
        bias: bool = False,
        pattern: Callable[..., Tensor] | None = None,
        rotary: Rotary | None = None,
        kernel: Kernel = fused_attention,
    ):
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError(
                f"n_heads = {n_heads} must divide d_model = {d_model}, and n_kv_heads = "
                f"{n_kv_heads} must divide n_heads"
            )
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_model // n_heads
        self.pattern, self.rotary, self.kernel = pattern, rotary, kernel
        kv_width = n_kv_heads * self.d_head
        for name, n_in, n_out in (
            ("q", d_model, d_model),
            ("k", d_model, kv_width),
            ("v", d_model, kv_width),
            ("o", d_model, d_model),
        ):
            self.register_parameter(f"w_{name}", weight(n_in, n_out))
            b = nn.Parameter(torch.zeros(n_out)) if bias else None
            self.register_parameter(f"b_{name}", b)

    def forward(
        self,
        x: Tensor,
        *,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache=None,
    ) -> Tensor:
        """(B, T, D) → (B, T, D); with a cache, x holds the new tokens only."""
        q = split_heads(_linear(x, self.w_q, self.b_q), self.n_heads)  # (B, H, T, K)
        k = split_heads(_linear(x, self.w_k, self.b_k), self.n_kv_heads)  # (B, G, T, K)
        v = split_heads(_linear(x, self.w_v, self.b_v), self.n_kv_heads)
        if self.rotary is not None:
            if positions is None:
                start = 0 if cache is None else len(cache)
                positions = torch.arange(start, start + x.shape[-2], device=x.device)
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        if cache is not None:
            k, v = cache.append(k, v)  # (B, G, S, K): all tokens so far
        heads = self.kernel(q, k, v, self._allowed(q, k, mask))
        return _linear(merge_heads(heads), self.w_o, self.b_o)

    def _allowed(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor | None:
        T, S = q.shape[-2], k.shape[-2]
        # A single query is the last token: nothing comes after it that it should not see.
        if self.pattern is None or (self.pattern is causal_mask and T == 1):
            return mask
        pattern = self.pattern(T, S, like=q)
        return pattern if mask is None else pattern & mask


def _linear(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    return x @ w if b is None else x @ w + b


class _Block(nn.Module):
    """Attention, feed-forward part and two norms; subclasses say in which order."""

    def __init__(self, attention: nn.Module, mlp: nn.Module, norm_1: nn.Module, norm_2: nn.Module):
        super().__init__()
        self.attention, self.mlp, self.norm_1, self.norm_2 = attention, mlp, norm_1, norm_2


class PreNormBlock(_Block):
    """`pre_norm_block` with its parts."""

    def forward(self, x: Tensor, **context) -> Tensor:
        attention = partial(self.attention, **context)
        return pre_norm_block(x, attention, self.mlp, self.norm_1, self.norm_2)


class PostNormBlock(_Block):
    """`post_norm_block` with its parts."""

    def forward(self, x: Tensor, **context) -> Tensor:
        attention = partial(self.attention, **context)
        return post_norm_block(x, attention, self.mlp, self.norm_1, self.norm_2)
