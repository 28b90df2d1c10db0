"""The block: what turns attention into a layer that stacks a hundred deep (chapter 07).

Attention moves information between tokens, the feed-forward part works on each token alone, and
both only *add* to the residual stream that runs through the whole stack. A norm keeps their inputs
at one size. It may stand before each part (pre-norm, as in GPT-2 and Llama) or after each sum
(post-norm, as in the original paper and in BERT).

From here on the course computes in PyTorch. Weights are (in, out) and used as `x @ w`.

Sources: Ba et al., "Layer Normalization" (2016); Zhang and Sennrich, "Root Mean Square Layer
Normalization" (2019); Hendrycks and Gimpel, "GELUs" (2016); Shazeer, "GLU Variants Improve
Transformer" (2020); Xiong et al., "On Layer Normalization in the Transformer Architecture" (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from attend.heads import attention_parameters

Part = Callable[[Tensor], Tensor]  #: maps (..., T, D) to (..., T, D)


def _wide(x: Tensor) -> Tensor:
    """`x` in float32 or wider: the squares of a float16 stream overflow."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Each token brought to mean 0 and variance 1, then stretched and shifted.

    Args:
        x: (..., D).
        gain, bias: (D,).
        eps: added to the variance, inside the root, so that a constant token divides by no zero.

    Returns:
        shape and dtype of `x`. The variance is the biased one: divided by D, not by D - 1.

    Source: Ba et al. (2016), equation 4.
    """
    wide = _wide(x)
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps)).to(x.dtype) * gain + bias


def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-6) -> Tensor:
    """Each token brought to root mean square 1, then stretched. The mean stays where it is.

    Args:
        x: (..., D).
        gain: (D,).
        eps: added to the mean square, inside the root.

    Returns:
        shape and dtype of `x`.

    Source: Zhang and Sennrich (2019), equation 4.
    """
    wide = _wide(x)
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * gain


def gelu(x: Tensor) -> Tensor:
    """x · Φ(x): each number times the probability that a standard normal one is smaller."""
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    """The approximation of `gelu` that GPT-2 was trained with; up to 5e-4 away from it."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def feed_forward(
    x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, activation: Part = gelu
) -> Tensor:
    """Two matrices with a bend between them, for each token alone.

    Args:
        x: (..., D).
        w_1, b_1: (D, F) and (F,), usually F = 4·D.
        w_2, b_2: (F, D) and (D,).
        activation: the bend, applied to each number.

    Returns:
        (..., D).

    Source: Vaswani et al. (2017), equation 2, with GELU for ReLU.
    """
    return activation(x @ w_1 + b_1) @ w_2 + b_2


def swiglu(x: Tensor, w_gate: Tensor, w_up: Tensor, w_down: Tensor) -> Tensor:
    """A feed-forward part whose hidden numbers are let through by a gate, without biases.

    Args:
        x: (..., D).
        w_gate, w_up: (D, F).
        w_down: (F, D).

    Returns:
        (..., D): (silu(x w_gate) ∘ x w_up) w_down, where silu(a) = a · sigmoid(a).

    Source: Shazeer (2020), equation 6.
    """
    return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


def pre_norm_block(x: Tensor, attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> Tensor:
    """Both parts read a normed copy and add to the stream, which itself is never normed.

    Args:
        x: (..., T, D).
        attention, mlp, norm_1, norm_2: each maps (..., T, D) to the same shape and is called once.

    Returns:
        (..., T, D).
    """
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))


def post_norm_block(x: Tensor, attention: Part, mlp: Part, norm_1: Part, norm_2: Part) -> Tensor:
    """Both parts add to the stream, and each sum is normed before it goes on.

    Args:
        x: (..., T, D).
        attention, mlp, norm_1, norm_2: each maps (..., T, D) to the same shape and is called once.

    Returns:
        (..., T, D).
    """
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def block_parameters(
    d_model: int,
    d_hidden: int,
    n_heads: int = 1,
    n_kv_heads: int | None = None,
    gated: bool = False,
    norm: str = "layer",
) -> int:
    """Numbers that one block learns: attention without biases, feed-forward part, two norms.

    Args:
        d_model: D.
        d_hidden: F.
        n_heads: H, a divisor of D.
        n_kv_heads: G, a divisor of H; None means H.
        gated: SwiGLU, three matrices without biases, instead of two with them.
        norm: "layer" (gain and bias) or "rms" (gain).

    Returns:
        2·D² + 2·D·G·(D/H), plus 2·D·F + F + D or 3·D·F, plus 4·D or 2·D.

    Raises:
        ValueError: a division leaves a remainder, or the norm is unknown.
    """
    if norm not in ("layer", "rms"):
        raise ValueError(f"norm is {norm!r}: it must be 'layer' or 'rms'")
    hidden = 3 * d_model * d_hidden if gated else 2 * d_model * d_hidden + d_hidden + d_model
    norms = 4 * d_model if norm == "layer" else 2 * d_model
    return attention_parameters(d_model, n_heads, n_kv_heads) + hidden + norms
