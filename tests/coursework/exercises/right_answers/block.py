"""Right answers to the exercises of chapter 07."""

import math
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

# layer_norm ----------------------------------------------------------------------------------


def layer_norm_by_hand(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + eps) * gain + bias


def layer_norm_of_pytorch(x, gain, bias, eps=1e-5):
    return F.layer_norm(x, (x.shape[-1],), gain, bias, eps)


def layer_norm_by_two_means(x, gain, bias, eps=1e-5):
    centred = x - x.mean(dim=-1)[..., None]
    variance = centred.pow(2).mean(dim=-1)[..., None]
    return gain * (centred * (variance + eps).rsqrt()) + bias


def layer_norm_by_var_mean(x, gain, bias, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) / (variance + eps).sqrt(), gain)


def layer_norm_by_einsum(x, gain, bias, eps=1e-5):
    D = len(gain)
    centred = x - torch.einsum("...d->...", x).unsqueeze(-1) / D
    squares = torch.einsum("...d,...d->...", centred, centred).unsqueeze(-1) / D
    return torch.einsum("...d,d->...d", centred / torch.sqrt(squares + eps), gain) + bias


def layer_norm_token_by_token(x, gain, bias, eps=1e-5):
    flat = [
        (t - t.sum() / len(t)) / (((t - t.sum() / len(t)) ** 2).sum() / len(t) + eps) ** 0.5
        for t in x.reshape(-1, x.shape[-1])
    ]
    return torch.stack(flat).reshape(x.shape) * gain + bias


# rms_norm ------------------------------------------------------------------------------------


def rms_norm_by_rsqrt(x, gain, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain


def rms_norm_of_pytorch(x, gain, eps=1e-6):
    return F.rms_norm(x, (x.shape[-1],), gain, eps)


def rms_norm_by_length(x, gain, eps=1e-6):
    D = x.shape[-1]
    return gain * x * math.sqrt(D) / torch.sqrt((x * x).sum(-1, keepdim=True) + D * eps)


def rms_norm_by_einsum(x, gain, eps=1e-6):
    size = (torch.einsum("...d,...d->...", x, x) / x.size(-1) + eps) ** 0.5
    return torch.einsum("...d,...,d->...d", x, 1 / size, gain)


# gelu ----------------------------------------------------------------------------------------


def gelu_by_erf(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def gelu_of_pytorch(x):
    return F.gelu(x)


def gelu_by_erfc(x):
    return x * torch.special.erfc(-x * 2**-0.5) / 2


def gelu_by_ndtr(x):
    return torch.special.ndtr(x) * x


def gelu_of_a_distribution(x):
    return x * torch.distributions.Normal(0.0, 1.0, validate_args=False).cdf(x)


# feed_forward --------------------------------------------------------------------------------


def feed_forward_by_matmul(x, w_1, b_1, w_2, b_2):
    return F.gelu(x @ w_1 + b_1) @ w_2 + b_2


def feed_forward_by_einsum(x, w_1, b_1, w_2, b_2):
    hidden = gelu_by_erf(torch.einsum("...d,df->...f", x, w_1) + b_1)
    return torch.einsum("...f,fd->...d", hidden, w_2) + b_2


def feed_forward_by_linear(x, w_1, b_1, w_2, b_2):
    return F.linear(F.gelu(F.linear(x, w_1.T, b_1)), w_2.T, b_2)


def feed_forward_memory_by_memory(x, w_1, b_1, w_2, b_2):
    """Each hidden number is a memory: how well its column fits, times what its row says."""
    result = b_2.expand(x.shape)
    for key, shift, value in zip(w_1.T, b_1, w_2, strict=True):
        result = result + gelu_by_erf((x * key).sum(-1, keepdim=True) + shift) * value
    return result


# pre_norm_block and post_norm_block ----------------------------------------------------------


def pre_norm_in_two_lines(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_1(x))
    return x + mlp(norm_2(x))


def pre_norm_step_by_step(x, attention, mlp, norm_1, norm_2):
    normed = norm_1(x)
    attended = attention(normed)
    stream = torch.add(x, attended)
    normed = norm_2(stream)
    written = mlp(normed)
    return torch.add(written, stream)


def pre_norm_in_a_loop(x, attention, mlp, norm_1, norm_2):
    for part, norm in ((attention, norm_1), (mlp, norm_2)):
        x = part(norm(x)) + x
    return x


def pre_norm_with_a_copy(x, attention, mlp, norm_1, norm_2):
    stream = x.clone()
    return x + (first := attention(norm_1(stream))) + mlp(norm_2(stream + first))


def post_norm_in_two_lines(x, attention, mlp, norm_1, norm_2):
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x))


def post_norm_in_one_line(x, attention, mlp, norm_1, norm_2):
    return norm_2((y := norm_1(x + attention(x))) + mlp(y))


def post_norm_in_a_loop(x, attention, mlp, norm_1, norm_2):
    for part, norm in ((attention, norm_1), (mlp, norm_2)):
        x = norm(torch.stack([part(x), x]).sum(0))
    return x


def post_norm_step_by_step(x, attention, mlp, norm_1, norm_2):
    attended = attention(x)
    first = norm_1(attended + x)
    written = mlp(first)
    return norm_2(first.add(written))


# TransformerBlock ----------------------------------------------------------------------------


class BlockByHand(nn.Module):
    def __init__(self, d_model, n_heads, d_hidden=None):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"{n_heads} heads do not divide {d_model}")
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.gain_1 = nn.Parameter(torch.ones(d_model))
        self.bias_1 = nn.Parameter(torch.zeros(d_model))
        self.gain_2 = nn.Parameter(torch.ones(d_model))
        self.bias_2 = nn.Parameter(torch.zeros(d_model))
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Parameter(0.02 * torch.ones(d_model, d_model)))
        self.w_1 = nn.Parameter(0.02 * torch.ones(d_model, d_hidden))
        self.b_1 = nn.Parameter(torch.zeros(d_hidden))
        self.w_2 = nn.Parameter(0.02 * torch.ones(d_hidden, d_model))
        self.b_2 = nn.Parameter(torch.zeros(d_model))

    def attention(self, x, mask):
        B, T, D = x.shape

        def split(y):
            return y.view(B, T, self.n_heads, self.d_head).transpose(1, 2)

        q, k, v = split(x @ self.w_q), split(x @ self.w_k), split(x @ self.w_v)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.d_head)
        if mask is None:
            weights = scores.softmax(-1)
        else:
            weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
            weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0)
        return (weights @ v).transpose(1, 2).reshape(B, T, D) @ self.w_o

    def forward(self, x, mask=None):
        x = x + self.attention(layer_norm_by_hand(x, self.gain_1, self.bias_1), mask)
        y = layer_norm_by_hand(x, self.gain_2, self.bias_2)
        return x + feed_forward_by_matmul(y, self.w_1, self.b_1, self.w_2, self.b_2)


class FusedBlock(nn.Module):
    """With PyTorch's kernels wherever there is one."""

    def __init__(self, d_model, n_heads, d_hidden=None):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("heads")
        F_ = d_hidden or 4 * d_model
        sizes = {"w_1": (d_model, F_), "b_1": (F_,), "w_2": (F_, d_model), "b_2": (d_model,)}
        sizes |= dict.fromkeys(("w_o", "w_v", "w_k", "w_q"), (d_model, d_model))
        sizes |= dict.fromkeys(("bias_2", "gain_2", "bias_1", "gain_1"), (d_model,))
        for name, shape in sizes.items():  # in an order of its own
            self.register_parameter(name, nn.Parameter(torch.full(shape, 0.1)))
        self.h = n_heads

    def forward(self, x, mask=None):
        D = (x.size(-1),)
        y = F.layer_norm(x, D, self.gain_1, self.bias_1)
        q, k, v = (
            (y @ w).unflatten(-1, (self.h, -1)).transpose(-2, -3)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + z.transpose(-2, -3).flatten(-2) @ self.w_o
        y = F.layer_norm(x, D, self.gain_2, self.bias_2)
        return x + F.gelu(y @ self.w_1 + self.b_1) @ self.w_2 + self.b_2


class BlockHeadByHead(nn.Module):
    """With einsum, a loop over the heads, and exponentials by hand."""

    def __init__(self, d_model, n_heads, d_hidden=None):
        if d_model % n_heads > 0:
            raise ValueError("n_heads must divide d_model")
        nn.Module.__init__(self)
        self.n_heads = n_heads
        hidden = d_model * 4 if d_hidden is None else d_hidden
        for i, start in ((1, torch.ones), (2, torch.ones)):
            setattr(self, f"gain_{i}", nn.Parameter(start(d_model)))
            setattr(self, f"bias_{i}", nn.Parameter(torch.zeros(d_model)))
        self.w_q, self.w_k, self.w_v, self.w_o = (
            nn.Parameter(torch.eye(d_model)) for _ in range(4)
        )
        self.w_1, self.b_1 = (
            nn.Parameter(torch.zeros(d_model, hidden)),
            nn.Parameter(torch.zeros(hidden)),
        )
        self.w_2, self.b_2 = (
            nn.Parameter(torch.zeros(hidden, d_model)),
            nn.Parameter(torch.zeros(d_model)),
        )

    def forward(self, x, mask=None):
        B, T, D = x.shape
        H, K = self.n_heads, D // self.n_heads
        allowed = torch.ones(B, H, T, T, dtype=torch.bool)
        if mask is not None:
            allowed = allowed & mask
        y = layer_norm_by_two_means(x, self.gain_1, self.bias_1)
        heads = []
        for h in range(H):
            columns = slice(h * K, (h + 1) * K)
            q, k, v = (y @ w[:, columns] for w in (self.w_q, self.w_k, self.w_v))
            scores = torch.einsum("btk,bsk->bts", q, k) * K**-0.5
            e = torch.where(allowed[:, h], scores, -torch.inf)
            top = e.detach().amax(-1, keepdim=True)
            e = torch.exp(e - torch.where(top.isinf(), 0.0, top))
            heads.append(e @ v / e.sum(-1, keepdim=True).clamp(min=1e-30))
        x = x + torch.cat(heads, dim=-1) @ self.w_o
        z = layer_norm_by_two_means(x, self.gain_2, self.bias_2)
        return x + feed_forward_by_einsum(z, self.w_1, self.b_1, self.w_2, self.b_2)


class BlockOfABlock(nn.Module):
    """Its parameters live in a ParameterDict's place: flat, made from a table of shapes."""

    def __init__(self, d_model, n_heads, d_hidden=None):
        super().__init__()
        if n_heads * (d_model // n_heads) != d_model:
            raise ValueError("heads")
        D, hidden = d_model, 4 * d_model if d_hidden is None else d_hidden
        table = OrderedDict(gain_1=[D], bias_1=[D], w_q=[D, D], w_k=[D, D], w_v=[D, D])
        table.update(w_o=[D, D], gain_2=[D], bias_2=[D], w_1=[D, hidden], b_1=[hidden])
        table.update(w_2=[hidden, D], b_2=[D])
        generator = torch.Generator().manual_seed(0)
        for name, shape in table.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape, generator=generator)))
        self.heads = n_heads

    def forward(self, x, mask=None):
        def attend(y):
            q, k, v = torch.stack([y @ self.w_q, y @ self.w_k, y @ self.w_v]).reshape(
                3, *y.shape[:-1], self.heads, -1
            )
            scores = torch.einsum("bthk,bshk->bhts", q, k) / q.shape[-1] ** 0.5
            if mask is not None:
                scores = torch.where(mask, scores, torch.full_like(scores, -torch.inf))
            weights = torch.where(scores.isinf().all(-1, keepdim=True), 0.0, scores).softmax(-1)
            if mask is not None:
                weights = weights * mask
            return torch.einsum("bhts,bshk->bthk", weights, v).flatten(2) @ self.w_o

        def think(y):
            return gelu_by_erfc(y @ self.w_1 + self.b_1) @ self.w_2 + self.b_2

        return pre_norm_in_a_loop(
            x,
            attend,
            think,
            lambda y: layer_norm_of_pytorch(y, self.gain_1, self.bias_1),
            lambda y: layer_norm_by_var_mean(y, self.gain_2, self.bias_2),
        )


# block_parameters ----------------------------------------------------------------------------


def parameters_by_formula(d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm="layer"):
    groups = n_heads if n_kv_heads is None else n_kv_heads
    attention = 2 * d_model**2 + 2 * d_model * groups * (d_model // n_heads)
    hidden = 3 * d_model * d_hidden if gated else 2 * d_model * d_hidden + d_hidden + d_model
    return attention + hidden + (4 if norm == "layer" else 2) * d_model


def parameters_by_shapes(d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm="layer"):
    d_head = d_model // n_heads
    kv = (n_kv_heads or n_heads) * d_head
    shapes = [(d_model, d_model), (d_model, kv), (d_model, kv), (d_model, d_model)]
    shapes += [(d_model, d_hidden), (d_hidden, d_model)]
    shapes += [(d_model, d_hidden)] if gated else [(d_hidden,), (d_model,)]
    shapes += [(d_model,)] * (2 if norm == "rms" else 4)
    return sum(math.prod(shape) for shape in shapes)


def parameters_by_counting(
    d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm="layer"
):
    """By making the parts and counting what they hold, without memory for it."""
    with torch.device("meta"):
        kv = (n_kv_heads or n_heads) * (d_model // n_heads)
        parts = [nn.Linear(d_model, n, bias=False) for n in (d_model, kv, kv, d_model)]
        parts += [nn.Linear(d_model, d_hidden, bias=not gated)]
        parts += [nn.Linear(d_hidden, d_model, bias=not gated)]
        parts += [nn.Linear(d_model, d_hidden, bias=False)] if gated else []
        kind = nn.LayerNorm if norm == "layer" else nn.RMSNorm
        parts += [kind(d_model), kind(d_model)]
    return sum(p.numel() for part in parts for p in part.parameters())


RIGHT_ANSWERS = {
    "07.layer_norm": [
        layer_norm_by_hand,
        layer_norm_of_pytorch,
        layer_norm_by_two_means,
        layer_norm_by_var_mean,
        layer_norm_by_einsum,
        layer_norm_token_by_token,
    ],
    "07.rms_norm": [rms_norm_by_rsqrt, rms_norm_of_pytorch, rms_norm_by_length, rms_norm_by_einsum],
    "07.gelu": [gelu_by_erf, gelu_of_pytorch, gelu_by_erfc, gelu_by_ndtr, gelu_of_a_distribution],
    "07.feed_forward": [
        feed_forward_by_matmul,
        feed_forward_by_einsum,
        feed_forward_by_linear,
        feed_forward_memory_by_memory,
    ],
    "07.pre_norm_block": [
        pre_norm_in_two_lines,
        pre_norm_step_by_step,
        pre_norm_in_a_loop,
        pre_norm_with_a_copy,
    ],
    "07.post_norm_block": [
        post_norm_in_two_lines,
        post_norm_in_one_line,
        post_norm_in_a_loop,
        post_norm_step_by_step,
    ],
    "07.TransformerBlock": [BlockByHand, FusedBlock, BlockHeadByHead, BlockOfABlock],
    "07.block_parameters": [parameters_by_formula, parameters_by_shapes, parameters_by_counting],
}
