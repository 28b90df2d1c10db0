"""Right answers to the exercises of chapter 08, in styles that learners use."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

# next_token_loss ------------------------------------------------------------------------------


def loss_by_cross_entropy(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    return F.cross_entropy(logits[..., :-1, :].flatten(0, -2), ids[..., 1:].flatten())


def loss_by_gather(logits, ids):
    if ids.size(-1) <= 1:
        raise ValueError("a text needs two tokens")
    log_p = logits[..., :-1, :].log_softmax(-1)
    return -log_p.gather(-1, ids[..., 1:].unsqueeze(-1)).mean()


def loss_by_logsumexp(logits, ids):
    T = ids.shape[-1]
    if T < 2:
        raise ValueError(T)
    logits, targets = logits[..., : T - 1, :], ids[..., 1:]
    right = (logits * F.one_hot(targets, logits.shape[-1])).sum(-1)
    return (torch.logsumexp(logits, -1) - right).mean()


def loss_by_loops(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("too short")
    T, V = logits.shape[-2:]
    surprises = []
    for rows, text in zip(logits.reshape(-1, T, V), ids.reshape(-1, T), strict=True):
        for t in range(T - 1):
            x = rows[t] - rows[t].max().detach()
            surprises.append(torch.log(torch.exp(x).sum()) - x[text[t + 1]])
    return torch.stack(surprises).mean()


def loss_by_permuting(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("too short")
    logits, targets = logits[..., :-1, :], ids[..., 1:]
    logits = logits.reshape(-1, *logits.shape[-2:]).transpose(1, 2)  # (N, V, T - 1)
    return F.cross_entropy(logits, targets.reshape(len(logits), -1))


# warmup_cosine --------------------------------------------------------------------------------


def schedule_as_written(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def schedule_by_clamping(step, warmup, total, peak, floor):
    if step < warmup:
        return (step + 1) / warmup * peak
    done = min(1.0, (step - warmup) / max(1, total - warmup)) if step < total else 1.0
    share = (1 + math.cos(math.pi * done)) / 2
    return peak * share + floor * (1 - share)


def schedule_by_squares(step, warmup, total, peak, floor):
    if warmup > step:
        return peak / warmup * (step + 1)
    if total <= step:
        return float(floor)
    return floor + (peak - floor) * math.cos(math.pi / 2 * (step - warmup) / (total - warmup)) ** 2


# next_token_distribution ----------------------------------------------------------------------


def _check(temperature, top_k, top_p):
    if temperature < 0:
        raise ValueError("temperature")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k")
    if top_p is not None and top_p <= 0:
        raise ValueError("top_p")


def distribution_by_sorting(logits, temperature=1.0, top_k=None, top_p=None):
    _check(temperature, top_k, top_p)
    V = logits.shape[-1]
    if temperature == 0:
        return F.one_hot((logits == logits.amax(-1, True)).int().argmax(-1), V).to(logits.dtype)
    x, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    x = (x - x[..., :1]) / temperature
    if top_k is not None:
        x = x.masked_fill(torch.arange(V) >= top_k, -torch.inf)
    if top_p is not None and top_p < 1:
        p = x.softmax(-1)
        x = x.masked_fill(p.cumsum(-1) - p >= top_p, -torch.inf)
    return torch.empty_like(logits).scatter(-1, order, x.softmax(-1))


def distribution_row_by_row(logits, temperature=1.0, top_k=None, top_p=None):
    _check(temperature, top_k, top_p)
    V = logits.shape[-1]
    rows = []
    for row in logits.reshape(-1, V):
        ranked = sorted(range(V), key=lambda i: (-row[i].item(), i))
        p = torch.zeros_like(row)
        if temperature == 0:
            p[ranked[0]] = 1
        else:
            whole = torch.softmax((row - row.max()) / temperature, 0)
            kept = ranked[: top_k or V]
            shares = whole[kept] / whole[kept].sum()
            if top_p is not None and top_p < 1:
                n = next((n for n in range(1, V + 1) if shares[:n].sum() >= top_p), len(kept))
                kept, shares = kept[:n], shares[:n]
            p[kept] = shares / shares.sum()
        rows.append(p)
    return torch.stack(rows).reshape(logits.shape)


def distribution_by_filters(logits, temperature=1.0, top_k=None, top_p=None):
    """Two filters on the logits, each with a rank of its own."""
    _check(temperature, top_k, top_p)
    if temperature == 0:
        top_k, top_p, temperature = 1, None, 1.0
    rank = torch.argsort(
        torch.argsort(logits, dim=-1, descending=True, stable=True), dim=-1, stable=True
    )
    x = (logits - logits.max(-1, keepdim=True).values) / temperature
    if top_k is not None and top_k < x.shape[-1]:
        x = torch.where(rank < top_k, x, torch.full_like(x, -torch.inf))
    if top_p is not None and top_p < 1:
        p = torch.softmax(x, -1)
        # The mass of all tokens of a lower rank, pair by pair.
        before = (p[..., None, :] * (rank[..., None, :] < rank[..., :, None])).sum(-1)
        x = torch.where(before < top_p, x, torch.full_like(x, -torch.inf))
    return torch.softmax(x, -1)


# generate -------------------------------------------------------------------------------------


def generate_by_concatenating(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        if temperature == 0:
            new = logits.argmax(-1, keepdim=True)
        else:
            p = distribution_by_sorting(logits, temperature, top_k, top_p)
            new = torch.multinomial(p, 1, generator=generator)
        ids = torch.cat([ids, new], dim=1)
    return ids.clone()


@torch.no_grad()
def generate_by_gumbel_noise(model, ids, n_new, *, context=None, generator=None, **how):
    """Draws by the largest of noisy logarithms, without `torch.multinomial`."""
    for _ in range(n_new):
        p = distribution_by_sorting(model(ids[:, -(context or 0) :])[:, -1], **how)
        noise = 0.0
        if how.get("temperature", 1.0) > 0:
            noise = -torch.empty_like(p).exponential_(generator=generator).log()
        ids = torch.cat([ids, (p.log() + noise).argmax(-1, keepdim=True)], dim=-1)
    return ids.clone()


@torch.no_grad()
def generate_into_one_tensor(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    was_training = model.training
    model.eval()
    B, T = ids.shape
    text = ids.new_zeros(B, T + n_new)
    text[:, :T] = ids
    for t in range(T, T + n_new):
        first = 0 if context is None else max(0, t - context)
        logits = model(text[:, first:t])[:, -1, :]
        if temperature == 0:
            text[:, t] = torch.argmax(logits, dim=-1)
        else:
            p = distribution_by_filters(logits, temperature, top_k, top_p)
            text[:, t] = torch.multinomial(p, 1, generator=generator)[:, 0]
    model.train(was_training)
    return text


def generate_by_recursion(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    if n_new == 0:
        return ids
    with torch.inference_mode():
        shown = ids[:, -(context or ids.shape[1]) :]
        p = distribution_row_by_row(model(shown)[:, -1], temperature, top_k, top_p)
    if temperature == 0:
        new = p.max(dim=-1).indices[:, None]
    else:
        new = torch.multinomial(p, 1, generator=generator)
    how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "generator": generator}
    longer = torch.cat((ids, new.clone()), 1)
    return generate_by_recursion(model, longer, n_new - 1, context=context, **how)


# LanguageModel --------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, d_model, n_heads, d_hidden):
        super().__init__()
        self.n_heads = n_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.register_parameter(name, nn.Parameter(0.02 * torch.randn(d_model, d_model)))
        self.w_1 = nn.Parameter(0.02 * torch.randn(d_model, d_hidden))
        self.b_1 = nn.Parameter(torch.zeros(d_hidden))
        self.w_2 = nn.Parameter(0.02 * torch.randn(d_hidden, d_model))
        self.b_2 = nn.Parameter(torch.zeros(d_model))
        self.gain_1, self.gain_2 = (nn.Parameter(torch.ones(d_model)) for _ in range(2))
        self.bias_1, self.bias_2 = (nn.Parameter(torch.zeros(d_model)) for _ in range(2))

    def forward(self, x):
        B, T, D = x.shape
        y = F.layer_norm(x, (D,), self.gain_1, self.bias_1)
        q, k, v = (
            (y @ w).reshape(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + z.transpose(1, 2).reshape(B, T, D) @ self.w_o
        y = F.layer_norm(x, (D,), self.gain_2, self.bias_2)
        return x + F.gelu(y @ self.w_1 + self.b_1) @ self.w_2 + self.b_2


class ModelWithFusedAttention(nn.Module):
    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__()
        self.tokens = nn.Parameter(0.02 * torch.randn(vocab, d_model))
        self.positions = nn.Parameter(0.02 * torch.randn(context, d_model))
        self.blocks = nn.ModuleList(
            Block(d_model, n_heads, d_hidden or 4 * d_model) for _ in range(n_layers)
        )
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        if not tied:
            self.w_vocab = nn.Parameter(0.02 * torch.randn(d_model, vocab))

    def forward(self, ids):
        if ids.shape[1] > len(self.positions):
            raise ValueError("too long")
        x = F.embedding(ids, self.tokens) + self.positions[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        z = F.layer_norm(x, self.gain.shape, self.gain, self.bias)
        return z @ (self.w_vocab if hasattr(self, "w_vocab") else self.tokens.T)


class ModelWithEinsum(nn.Module):
    """Blocks are mere holders of parameters; the model does all the work."""

    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__()
        hidden = d_model * 4 if d_hidden is None else d_hidden
        self.n_heads = n_heads
        self.register_parameter("tokens", nn.Parameter(torch.randn(vocab, d_model)))
        self.register_parameter("positions", nn.Parameter(torch.randn(context, d_model)))
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.register_parameter(
            "w_vocab", None if tied else nn.Parameter(torch.randn(d_model, vocab))
        )
        self.blocks = nn.ModuleList(nn.Module() for _ in range(n_layers))
        sizes = {"w_1": (d_model, hidden), "b_1": (hidden,), "w_2": (hidden, d_model)}
        for block in self.blocks:
            for name in ("gain_1", "bias_1", "gain_2", "bias_2", "b_2"):
                setattr(block, name, nn.Parameter(torch.ones(d_model)))
            for name in ("w_q", "w_k", "w_v", "w_o"):
                setattr(block, name, nn.Parameter(torch.randn(d_model, d_model)))
            for name, size in sizes.items():
                setattr(block, name, nn.Parameter(torch.randn(size)))

    @staticmethod
    def _norm(x, gain, bias):
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5) * gain + bias

    def forward(self, ids):
        B, T = ids.shape
        if self.positions.shape[0] < T:
            raise ValueError(f"{T} tokens")
        x = self.tokens[ids] + self.positions[torch.arange(T)]
        future = torch.ones(T, T).triu(1).bool()
        for block in self.blocks:
            y = self._norm(x, block.gain_1, block.bias_1)
            q, k, v = (
                (y @ w).view(B, T, self.n_heads, -1) for w in (block.w_q, block.w_k, block.w_v)
            )
            scores = torch.einsum("bthk,bshk->bhts", q, k) / math.sqrt(q.shape[-1])
            weights = scores.masked_fill(future, float("-inf")).softmax(-1)
            z = torch.einsum("bhts,bshk->bthk", weights, v)
            x = x + z.reshape(B, T, -1) @ block.w_o
            y = self._norm(x, block.gain_2, block.bias_2) @ block.w_1 + block.b_1
            x = x + y * (1 + torch.erf(y / math.sqrt(2))) / 2 @ block.w_2 + block.b_2
        z = self._norm(x, self.gain, self.bias)
        return torch.einsum("btd,vd->btv", z, self.tokens if self.w_vocab is None else self._T)

    @property
    def _T(self):
        return self.w_vocab.T


class ModelHeadByHead(nn.Module):
    """One text and one head at a time; the state has its names by hand."""

    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__()
        self.context, self.n_heads, self.tied = context, n_heads, tied
        self.tokens = nn.Parameter(torch.empty(vocab, d_model).normal_(std=0.02))
        self.positions = nn.Parameter(torch.empty(context, d_model).normal_(std=0.02))
        if d_hidden is None:
            d_hidden = 4 * d_model
        self.blocks = nn.ModuleList([Block(d_model, n_heads, d_hidden) for _ in range(n_layers)])
        self.gain, self.bias = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        if not tied:
            self.w_vocab = nn.Parameter(torch.empty(d_model, vocab).normal_(std=0.02))

    def forward(self, ids):
        if ids.shape[-1] > self.context:
            raise ValueError("beyond the context")
        return torch.stack([self._one(text) for text in ids])

    def _one(self, text):
        T, D = len(text), self.tokens.shape[1]
        x = self.tokens[text] + self.positions[:T]
        allowed = torch.arange(T)[:, None] >= torch.arange(T)
        for block in self.blocks:
            y = F.layer_norm(x, (D,), block.gain_1, block.bias_1)
            heads = []
            for columns in torch.arange(D).chunk(self.n_heads):
                q, k, v = (y @ w[:, columns] for w in (block.w_q, block.w_k, block.w_v))
                scores = torch.where(allowed, q @ k.T * len(columns) ** -0.5, -torch.inf)
                heads.append(scores.softmax(1) @ v)
            x = x + torch.cat(heads, 1) @ block.w_o
            y = F.layer_norm(x, (D,), block.gain_2, block.bias_2)
            x = x + F.gelu(y @ block.w_1 + block.b_1) @ block.w_2 + block.b_2
        z = F.layer_norm(x, (D,), self.gain, self.bias)
        return F.linear(z, self.tokens) if self.tied else z @ self.w_vocab


RIGHT_ANSWERS = {
    "08.LanguageModel": (ModelWithFusedAttention, ModelWithEinsum, ModelHeadByHead),
    "08.next_token_loss": (
        loss_by_cross_entropy,
        loss_by_gather,
        loss_by_logsumexp,
        loss_by_loops,
        loss_by_permuting,
    ),
    "08.warmup_cosine": (schedule_as_written, schedule_by_clamping, schedule_by_squares),
    "08.next_token_distribution": (
        distribution_by_sorting,
        distribution_row_by_row,
        distribution_by_filters,
    ),
    "08.generate": (
        generate_by_concatenating,
        generate_by_gumbel_noise,
        generate_into_one_tensor,
        generate_by_recursion,
    ),
}
