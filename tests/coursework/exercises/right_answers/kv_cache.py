"""Right answers to the exercises of chapter 09."""

from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# KVCache -------------------------------------------------------------------------------------


class CacheInBuffers:
    def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
        self.k = torch.zeros(batch, n_kv_heads, max_tokens, d_head, dtype=dtype)
        self.v = torch.zeros_like(self.k)
        self.n = 0

    def __len__(self):
        return self.n

    def reset(self):
        self.n = 0

    def append(self, k, v):
        B, G, capacity, K = self.k.shape
        for x in (k, v):
            if x.shape != (B, G, x.shape[2], K) or x.dtype != self.k.dtype:
                raise ValueError(f"{tuple(x.shape)} {x.dtype} does not fit {tuple(self.k.shape)}")
        end = self.n + k.shape[2]
        if end > capacity:
            raise ValueError(f"{end} tokens are more than {capacity}")
        self.k[:, :, self.n : end] = k
        self.v[:, :, self.n : end] = v
        self.n = end
        return self.k[:, :, :end], self.v[:, :, :end]


class CacheOfParts(list):
    """A list of (k, v), one for each call."""

    def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
        super().__init__()
        self.fits = (batch, n_kv_heads, d_head, dtype)
        self.empty = torch.empty(batch, n_kv_heads, 0, d_head, dtype=dtype)
        self.capacity = max_tokens

    def __len__(self):
        return sum(k.shape[2] for k, _ in self)

    def reset(self):
        del self[:]

    def append(self, k, v):
        for x in k, v:
            if (*x.shape[:2], x.shape[-1], x.dtype) != self.fits:
                raise ValueError("does not fit")
        if len(self) + k.shape[2] > self.capacity:
            raise ValueError("full")
        super().append((k.clone(), v.clone()))
        keys = torch.cat([self.empty, *(k for k, _ in self)], dim=2)
        return [keys, torch.cat([self.empty, *(v for _, v in self)], dim=-2)]


class CacheInOneTensor(nn.Module):
    """Keys and values side by side in one growing tensor, in a module."""

    def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
        super().__init__()
        self.max_tokens = max_tokens
        self.register_buffer("kv", torch.empty(2, batch, n_kv_heads, 0, d_head, dtype=dtype))

    def __len__(self):
        return self.kv.size(3)

    def reset(self):
        self.kv = self.kv[:, :, :, :0]

    def append(self, k, v):
        _, B, G, n, K = self.kv.shape
        misfits = [
            x.dtype is not self.kv.dtype or tuple(x.shape) != (B, G, x.size(2), K) for x in (k, v)
        ]
        if any(misfits) or n + k.size(2) > self.max_tokens:
            raise ValueError
        self.kv = torch.cat([self.kv, torch.stack([k, v])], dim=3)
        return self.kv.unbind()


class CacheTokenByToken:
    def __init__(self, batch, n_kv_heads, max_tokens, d_head, dtype=torch.float32):
        self.shape, self.max, self.dtype = (batch, n_kv_heads, d_head), max_tokens, dtype
        self.tokens = deque()

    def __len__(self):
        return len(self.tokens)

    def reset(self):
        self.tokens.clear()

    def append(self, k, v):
        class Misfit(ValueError):
            """A kind of ValueError."""

        for x in (k, v):
            if x.ndim != 4 or (x.shape[0], x.shape[1], x.shape[3]) != self.shape:
                raise Misfit("shape")
            if x.dtype != self.dtype:
                raise Misfit("dtype")
        if len(self.tokens) + k.shape[2] > self.max:
            raise Misfit("full")
        for t in range(k.shape[2]):
            self.tokens.append((k[:, :, t].clone(), v[:, :, t].clone()))
        if not self.tokens:
            return k.clone(), v.clone()
        return tuple(torch.stack(part, dim=2) for part in zip(*self.tokens, strict=True))


# attend_with_cache ---------------------------------------------------------------------------


def rotate_half_split(x, positions, base):
    K = x.shape[-1]
    inverse = base ** (-torch.arange(0, K, 2, dtype=torch.float64) / K)
    angles = torch.outer(positions.double(), inverse)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def step_by_the_formula(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    G = n_kv_heads or n_heads
    T, start = x_new.shape[1], len(cache)
    q = (x_new @ weights["w_q"]).unflatten(-1, (n_heads, -1)).transpose(1, 2)
    k = (x_new @ weights["w_k"]).unflatten(-1, (G, -1)).transpose(1, 2)
    v = (x_new @ weights["w_v"]).unflatten(-1, (G, -1)).transpose(1, 2)
    positions = torch.arange(start, start + T)
    k, v = cache.append(rotate_half_split(k, positions, base), v)
    k, v = (x.repeat_interleave(n_heads // G, dim=1) for x in (k, v))
    scores = rotate_half_split(q, positions, base) @ k.mT / q.shape[-1] ** 0.5
    S = k.shape[2]
    mask = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    z = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
    return z.transpose(1, 2).flatten(2) @ weights["w_o"]


def step_with_fused_attention(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    if n_kv_heads is None:
        n_kv_heads = n_heads
    B, T, _ = x_new.shape
    q = (x_new @ weights["w_q"]).view(B, T, n_heads, -1).transpose(1, 2)
    k = (x_new @ weights["w_k"]).view(B, T, n_kv_heads, -1).transpose(1, 2)
    v = (x_new @ weights["w_v"]).view(B, T, n_kv_heads, -1).transpose(1, 2)
    at = len(cache) + torch.arange(T)
    q, k = rotate_half_split(q, at, base), rotate_half_split(k, at, base)
    k, v = cache.append(k, v)
    mask = torch.arange(k.shape[2]) <= at[:, None]
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return z.transpose(1, 2).reshape(B, T, -1) @ weights["w_o"]


def step_by_einsum(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    """Groups as an axis of their own, rotations as complex numbers."""
    G = n_heads if n_kv_heads is None else n_kv_heads
    n, (T, D) = len(cache), x_new.shape[1:]
    K = weights["w_q"].shape[1] // n_heads

    def turned(x):
        z = torch.complex(x[..., : K // 2].contiguous(), x[..., K // 2 :].contiguous())
        pairs = torch.arange(K // 2, dtype=torch.float64)
        angles = torch.arange(n, n + T, dtype=torch.float64)[:, None] * base ** (-2 * pairs / K)
        z = z * torch.polar(torch.ones_like(angles), angles).to(z.dtype)
        return torch.cat([z.real, z.imag], dim=-1)

    q = torch.einsum("btd,dghk->bghtk", x_new, weights["w_q"].reshape(D, G, n_heads // G, K))
    k = torch.einsum("btd,dgk->bgtk", x_new, weights["w_k"].reshape(D, G, K))
    v = torch.einsum("btd,dgk->bgtk", x_new, weights["w_v"].reshape(D, G, K))
    k, v = cache.append(turned(k), v)
    scores = torch.einsum("bghtk,bgsk->bghts", turned(q), k) / np.sqrt(K)
    future = torch.arange(n + T) > torch.arange(n, n + T)[:, None]
    scores[..., future] = -torch.inf
    z = torch.einsum("bghts,bgsk->btghk", torch.softmax(scores, dim=-1), v)
    return z.flatten(2) @ weights["w_o"]


def step_token_by_token(x_new, weights, cache, n_heads, n_kv_heads=None, base=10000.0):
    """Each new token is stored and answered before the next: no mask is needed."""
    G = n_kv_heads or n_heads
    rows = []
    for x in x_new.unbind(1):
        position = torch.tensor([len(cache)])
        q = (x @ weights["w_q"]).unflatten(-1, (n_heads, 1, -1))  # (B, H, 1, K)
        k = (x @ weights["w_k"]).unflatten(-1, (G, 1, -1))
        v = (x @ weights["w_v"]).unflatten(-1, (G, 1, -1))
        keys, values = cache.append(rotate_half_split(k, position, base), v)
        q = rotate_half_split(q, position, base)
        heads = []
        for h in range(n_heads):
            g = h // (n_heads // G)
            weight = torch.softmax(q[:, h] @ keys[:, g].mT / q.shape[-1] ** 0.5, dim=-1)
            heads.append((weight @ values[:, g])[:, 0])
        rows.append(torch.cat(heads, dim=-1) @ weights["w_o"])
    return torch.stack(rows, dim=1)


# generate_cached -----------------------------------------------------------------------------


def generate_with_a_feed(model, ids, n_new):
    caches, feed = model.new_caches(ids.shape[0]), ids
    parts = [ids]
    with torch.no_grad():
        for _ in range(n_new):
            feed = model(feed, caches)[:, -1].argmax(-1, keepdim=True)
            parts.append(feed)
    return torch.cat(parts, dim=1)


def generate_prefill_first(model, ids, n_new):
    if n_new == 0:
        return ids.clone()
    caches = model.new_caches(len(ids))
    text = ids.clone()
    logits = model(text, caches=caches)
    while True:
        token = logits[:, -1, :].max(dim=-1).indices[:, None]
        text = torch.hstack([text, token])
        if text.shape[1] == ids.shape[1] + n_new:
            return text
        logits = model(token, caches=caches)


def generate_into_a_table(model, ids, n_new):
    B, T = ids.shape
    text = torch.empty(B, T + n_new, dtype=ids.dtype)
    text[:, :T] = ids
    caches, start = None, 0
    for end in range(T, T + n_new):
        caches = model.new_caches(B) if caches is None else caches
        logits = model(text[:, start:end], caches)
        text[:, end] = torch.argmax(logits[:, -1], dim=-1)
        start = end
    return text


def generate_by_recursion(model, ids, n_new):
    def more(feed, caches, left):
        if not left:
            return []
        token = model(feed, caches)[:, -1].topk(1).indices
        return [token, *more(token, caches, left - 1)]

    return torch.cat([ids, *more(ids, model.new_caches(ids.size(0)), n_new)], dim=-1)


# kv_cache_bytes and decode_flops -------------------------------------------------------------


def bytes_as_a_product(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value * batch


def bytes_layer_by_layer(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    a_token = 2 * sum(d_head for _ in range(n_kv_heads))
    return bytes_per_value * batch * n_tokens * sum(a_token for _ in range(n_layers))


def bytes_by_numpy(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    sizes = [2, n_layers, batch, n_kv_heads, n_tokens, d_head, bytes_per_value]
    return int(np.prod(np.array(sizes, dtype=object)))


def flops_in_one_line(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    L, D, F, H, G, V, n = n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens
    P = 2 * D**2 + 2 * D * G * (D // H) + 3 * D * F
    return L * (2 * P + 4 * D * n) * (1 if cached else n) + 2 * D * V


def flops_product_by_product(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    def product(rows, inner, columns):
        return rows * columns * 2 * inner

    K, rows, total = d_model // n_heads, 1 if cached else n_tokens, 0
    for _ in range(n_layers):
        for width in (n_heads * K, n_kv_heads * K, n_kv_heads * K, d_hidden, d_hidden):
            total += product(rows, d_model, width)
        total += product(rows, n_heads * K, d_model) + product(rows, d_hidden, d_model)
        for _ in range(n_heads):
            total += product(rows, K, n_tokens) + product(rows, n_tokens, K)
    return total + product(1, d_model, vocab)


def flops_from_ratios(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    shared = n_heads // n_kv_heads
    square = d_model * d_model
    weights = 2 * square + 2 * square // shared + 3 * d_model * d_hidden
    queries = n_tokens ** (not cached)
    a_query = 2 * (weights + 2 * d_model * n_tokens)
    return 2 * d_model * vocab + n_layers * queries * a_query


RIGHT_ANSWERS = {
    "09.KVCache": [CacheInBuffers, CacheOfParts, CacheInOneTensor, CacheTokenByToken],
    "09.attend_with_cache": [
        step_by_the_formula,
        step_with_fused_attention,
        step_by_einsum,
        step_token_by_token,
    ],
    "09.generate_cached": [
        generate_with_a_feed,
        generate_prefill_first,
        generate_into_a_table,
        generate_by_recursion,
    ],
    "09.kv_cache_bytes": [bytes_as_a_product, bytes_layer_by_layer, bytes_by_numpy],
    "09.decode_flops": [flops_in_one_line, flops_product_by_product, flops_from_ratios],
}
