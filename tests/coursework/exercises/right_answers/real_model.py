"""Right answers to the exercises of chapter 12."""

import math
import re
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

# swiglu --------------------------------------------------------------------------------------


def swiglu_with_silu(x, w_gate, w_up, w_down):
    return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


def swiglu_by_einsum(x, w_gate, w_up, w_down):
    gate = torch.einsum("...d,df->...f", x, w_gate)
    up = torch.einsum("...d,df->...f", x, w_up)
    return torch.einsum("...f,fd->...d", gate * torch.sigmoid(gate) * up, w_down)


def swiglu_by_the_formula(x, w_gate, w_up, w_down):
    a = torch.matmul(x, w_gate)
    return torch.matmul(a / (1 + torch.exp(-a.clamp(min=-80))) * torch.matmul(x, w_up), w_down)


def swiglu_with_linear(x, w_gate, w_up, w_down):
    gate, up = F.linear(x, torch.cat([w_gate, w_up], dim=1).T).chunk(2, dim=-1)
    return F.linear(nn.SiLU()(gate).mul(up), w_down.T)


def swiglu_by_tanh(x, w_gate, w_up, w_down):
    gate = x @ w_gate
    return (gate * (0.5 + 0.5 * torch.tanh(gate / 2)) * (x @ w_up)) @ w_down


# unpermute_rope ------------------------------------------------------------------------------


def unpermute_by_slices(w, n_heads):
    heads = w.reshape(n_heads, -1, w.shape[1])
    return torch.cat([heads[:, 0::2], heads[:, 1::2]], dim=1).reshape(w.shape)


def unpermute_by_transposing_pairs(w, n_heads):
    pairs = w.view(n_heads, w.shape[0] // n_heads // 2, 2, w.shape[1])
    return pairs.swapaxes(1, 2).reshape_as(w)


def unpermute_row_by_row(w, n_heads):
    K = len(w) // n_heads
    result = torch.empty_like(w)
    for h in range(n_heads):
        for i in range(K // 2):
            result[h * K + i] = w[h * K + 2 * i]
            result[h * K + K // 2 + i] = w[h * K + 2 * i + 1]
    return result


def unpermute_by_index(w, n_heads):
    K = w.size(0) // n_heads
    order = [h * K + i for h in range(n_heads) for i in [*range(0, K, 2), *range(1, K, 2)]]
    return w[order]


def unpermute_by_a_matrix(w, n_heads):
    K = w.shape[0] // n_heads
    p = torch.eye(K, dtype=w.dtype)[torch.arange(K).reshape(-1, 2).T.reshape(-1)]
    return torch.block_diag(*[p] * n_heads) @ w


# load_block ----------------------------------------------------------------------------------

_NAMES = {
    "attn_norm": "gain_1",
    "attn_q": "w_q",
    "attn_k": "w_k",
    "attn_v": "w_v",
    "attn_output": "w_o",
    "ffn_norm": "gain_2",
    "ffn_gate": "w_gate",
    "ffn_up": "w_up",
    "ffn_down": "w_down",
}


def load_line_by_line(weights, i, n_heads, n_kv_heads):
    def there(name):
        return weights[f"blk.{i}.{name}.weight"]

    return {
        "gain_1": there("attn_norm"),
        "w_q": unpermute_by_slices(there("attn_q"), n_heads).T,
        "w_k": unpermute_by_slices(there("attn_k"), n_kv_heads).T,
        "w_v": there("attn_v").T,
        "w_o": there("attn_output").T,
        "gain_2": there("ffn_norm"),
        "w_gate": there("ffn_gate").T,
        "w_up": there("ffn_up").T,
        "w_down": there("ffn_down").T,
    }


def load_in_a_loop(weights, i, n_heads, n_kv_heads):
    block = OrderedDict()
    for published, ours in _NAMES.items():
        full = f"blk.{i}.{published}.weight"
        if full not in weights:
            raise KeyError(full)
        w = weights[full].clone()
        if ours == "w_q":
            w = unpermute_by_index(w, n_heads)
        if ours == "w_k":
            w = unpermute_by_index(w, n_kv_heads)
        block[ours] = w.t().contiguous() if w.dim() == 2 else w
    return block


def load_by_pattern(weights, i, n_heads, n_kv_heads):
    found = {}
    for full, w in weights.items():
        match = re.fullmatch(rf"blk\.{i}\.(\w+)\.weight", full)
        if match and match[1] in _NAMES:
            found[_NAMES[match[1]]] = w.mT if w.ndim > 1 else w
    missing = set(_NAMES.values()) - set(found)
    if missing:
        raise KeyError(f"block {i} has no {', '.join(sorted(missing))}")
    for name, n in {"w_q": n_heads, "w_k": n_kv_heads}.items():
        columns = found[name].unflatten(1, (n, -1, 2))  # (in, heads, pairs, 2)
        found[name] = columns.transpose(2, 3).flatten(1)
    return found


# DecoderBlock --------------------------------------------------------------------------------


class BlockByHand(nn.Module):
    """Softmax of masked scores, heads by reshape and transpose."""

    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__()
        D, K = d_model, d_model // n_heads
        self.H, self.G, self.K, self.base, self.eps = n_heads, n_kv_heads, K, base, eps
        self.gain_1 = nn.Parameter(torch.ones(D))
        self.w_q = nn.Parameter(torch.randn(D, D) / D**0.5)
        self.w_k = nn.Parameter(torch.randn(D, n_kv_heads * K) / D**0.5)
        self.w_v = nn.Parameter(torch.randn(D, n_kv_heads * K) / D**0.5)
        self.w_o = nn.Parameter(torch.randn(D, D) / D**0.5)
        self.gain_2 = nn.Parameter(torch.ones(D))
        self.w_gate = nn.Parameter(torch.randn(D, d_hidden) / D**0.5)
        self.w_up = nn.Parameter(torch.randn(D, d_hidden) / D**0.5)
        self.w_down = nn.Parameter(torch.randn(d_hidden, D) / D**0.5)

    def norm(self, x, gain):
        return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + self.eps) * gain

    def rope(self, x, start):
        i = torch.arange(self.K // 2, dtype=torch.float64)
        p = torch.arange(start, start + x.shape[2], dtype=torch.float64)
        angles = p[:, None] / self.base ** (2 * i / self.K)
        cos, sin = torch.cos(angles).to(x.dtype), torch.sin(angles).to(x.dtype)
        a, b = x[..., : self.K // 2], x[..., self.K // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x, cache=None):
        B, T, D = x.shape
        a = self.norm(x, self.gain_1)
        q = (a @ self.w_q).reshape(B, T, self.H, self.K).transpose(1, 2)
        k = (a @ self.w_k).reshape(B, T, self.G, self.K).transpose(1, 2)
        v = (a @ self.w_v).reshape(B, T, self.G, self.K).transpose(1, 2)
        start = 0 if cache is None else len(cache)
        q, k = self.rope(q, start), self.rope(k, start)
        if cache is not None:
            k, v = cache.append(k, v)
        k = k.repeat_interleave(self.H // self.G, dim=1)
        v = v.repeat_interleave(self.H // self.G, dim=1)
        scores = q @ k.transpose(-1, -2) / self.K**0.5
        mask = torch.ones(T, k.shape[2], dtype=torch.bool).tril(k.shape[2] - T)
        z = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1) @ v
        x = x + z.transpose(1, 2).reshape(B, T, D) @ self.w_o
        a = self.norm(x, self.gain_2)
        return x + (F.silu(a @ self.w_gate) * (a @ self.w_up)) @ self.w_down


class BlockWithFusedAttention(nn.Module):
    """PyTorch's kernel, complex rotations, parameters by a loop."""

    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__()
        kv = d_model * n_kv_heads // n_heads
        shapes = dict(
            w_q=(d_model, d_model), w_k=(d_model, kv), w_v=(d_model, kv), w_o=(d_model, d_model),
            w_gate=(d_model, d_hidden), w_up=(d_model, d_hidden), w_down=(d_hidden, d_model),
            gain_1=(d_model,), gain_2=(d_model,),
        )  # fmt: skip
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.zeros(*shape)))
        self.sizes = n_heads, n_kv_heads, base, eps

    def forward(self, x, cache=None):
        n_heads, n_kv_heads, base, eps = self.sizes
        a = F.rms_norm(x, x.shape[-1:], self.gain_1, eps)
        q, k, v = (
            (a @ w).unflatten(-1, (n, -1)).movedim(-2, 1)
            for w, n in ((self.w_q, n_heads), (self.w_k, n_kv_heads), (self.w_v, n_kv_heads))
        )
        old = len(cache) if cache is not None else 0
        T, K = x.shape[1], q.shape[-1]
        turns = torch.arange(old, old + T)[:, None] * base ** (-torch.arange(0, K, 2) / K).double()
        turns = torch.polar(torch.ones_like(turns), turns)

        def turned(y):
            z = torch.complex(*y.double().chunk(2, dim=-1)) * turns
            return torch.cat([z.real, z.imag], dim=-1).to(y.dtype)

        k, q = turned(k), turned(q)
        if cache is not None:
            k, v = cache.append(k=k, v=v)
        mask = torch.arange(k.shape[2]) <= torch.arange(old, old + T)[:, None]
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        x = x + z.movedim(1, -2).flatten(-2) @ self.w_o
        a = F.rms_norm(x, x.shape[-1:], self.gain_2, eps)
        return torch.addmm(
            x.flatten(0, 1),
            (F.silu(a @ self.w_gate) * (a @ self.w_up)).flatten(0, 1),
            self.w_down,
        ).reshape(x.shape)


class BlockByEinsum(nn.Module):
    """Groups of query heads as an axis of their own, an additive mask, `append` in either case."""

    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__()
        self.H, self.G, self.base, self.eps = n_heads, n_kv_heads, base, eps
        K = d_model // n_heads
        empty = torch.empty
        self.gain_1, self.gain_2 = (nn.Parameter(empty(d_model)) for _ in range(2))
        self.w_q, self.w_o = (nn.Parameter(empty(d_model, n_heads * K)) for _ in range(2))
        self.w_k, self.w_v = (nn.Parameter(empty(d_model, n_kv_heads * K)) for _ in range(2))
        self.w_gate, self.w_up = (nn.Parameter(empty(d_model, d_hidden)) for _ in range(2))
        self.w_down = nn.Parameter(empty(d_hidden, d_model))

    def heads(self, x, w, n):
        return torch.einsum("btd,dgk->bgtk", x, w.reshape(x.shape[-1], n, -1))

    def rotate(self, x, positions):
        half = x.shape[-1] // 2
        speed = torch.exp(-math.log(self.base) * torch.arange(half).double() / half)
        angles = torch.outer(positions.double(), speed).repeat(1, 2)
        swapped = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
        return x * angles.cos().to(x.dtype) + swapped * angles.sin().to(x.dtype)

    def forward(self, x, cache=None):
        B, T, D = x.shape
        a = x * (x.pow(2).mean(-1, keepdim=True) + self.eps).pow(-0.5) * self.gain_1
        before = len(cache) if cache is not None else 0
        at = before + torch.arange(T)
        q = self.rotate(self.heads(a, self.w_q, self.H), at)
        k, v = self.rotate(self.heads(a, self.w_k, self.G), at), self.heads(a, self.w_v, self.G)
        if cache is not None:
            k, v = cache.append(k, v)
        q = q.reshape(B, self.G, self.H // self.G, T, -1)
        scores = torch.einsum("bgrtk,bgsk->bgrts", q, k) * q.shape[-1] ** -0.5
        future = torch.full((T, before + T), -math.inf, dtype=x.dtype).triu(before + 1)
        weights = (scores + future).softmax(dim=-1)
        z = torch.einsum("bgrts,bgsk->btgrk", weights, v).reshape(B, T, D)
        x = x + z @ self.w_o
        a = x * (x.pow(2).mean(-1, keepdim=True) + self.eps).pow(-0.5) * self.gain_2
        gate = a @ self.w_gate
        return x + gate.mul(gate.sigmoid()).mul(a @ self.w_up) @ self.w_down


# greedy --------------------------------------------------------------------------------------


def greedy_in_a_list(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    start, end = len(ids), getattr(tokenizer, "eos_id", None)
    for _ in range(n):
        token = int(model(torch.tensor([ids]))[0, -1].argmax())
        if token == end:
            break
        ids.append(token)
    return tokenizer.decode(ids[start:])


def greedy_with_tensors(model, tokenizer, prompt, n):
    ids = torch.tensor(tokenizer.encode(prompt), dtype=torch.int64)[None]
    new = ids.new_empty((1, 0))
    with torch.no_grad():
        while new.shape[1] < n:
            token = model(torch.cat([ids, new], dim=1))[:, -1].topk(1).indices
            if hasattr(tokenizer, "eos_id") and token.item() == tokenizer.eos_id:
                break
            new = torch.cat([new, token], dim=1)
    return tokenizer.decode(new[0].tolist())


def greedy_recursively(model, tokenizer, prompt, n):
    def more(ids, left):
        if left == 0:
            return []
        logits = model(torch.LongTensor([ids]))[0, len(ids) - 1].tolist()
        token = max(range(len(logits)), key=logits.__getitem__)
        if token == getattr(tokenizer, "eos_id", -1):
            return []
        return [token, *more([*ids, token], left - 1)]

    return tokenizer.decode(more(list(tokenizer.encode(prompt)), n))


def greedy_to_the_end_and_cut(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    T = len(ids)
    for _ in range(n):
        probabilities = torch.softmax(model(torch.as_tensor(ids).unsqueeze(0)).squeeze(0)[-1], 0)
        ids = [*ids, torch.argmax(probabilities).item()]
    new = ids[T:]
    if hasattr(tokenizer, "eos_id") and tokenizer.eos_id in new:
        new = new[: new.index(tokenizer.eos_id)]
    return tokenizer.decode(new)


RIGHT_ANSWERS = {
    "12.swiglu": (
        swiglu_with_silu,
        swiglu_by_einsum,
        swiglu_by_the_formula,
        swiglu_with_linear,
        swiglu_by_tanh,
    ),
    "12.unpermute_rope": (
        unpermute_by_slices,
        unpermute_by_transposing_pairs,
        unpermute_row_by_row,
        unpermute_by_index,
        unpermute_by_a_matrix,
    ),
    "12.load_block": (load_line_by_line, load_in_a_loop, load_by_pattern),
    "12.DecoderBlock": (BlockByHand, BlockWithFusedAttention, BlockByEinsum),
    "12.greedy": (
        greedy_in_a_list,
        greedy_with_tensors,
        greedy_recursively,
        greedy_to_the_end_and_cut,
    ),
}
