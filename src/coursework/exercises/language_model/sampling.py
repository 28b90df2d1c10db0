"""`next_token_distribution`: temperature, top-k and top-p."""

from __future__ import annotations

import numpy as np
import torch

from attend.sampling import next_token_distribution
from coursework.exercise import Call, Exercise, Misconception, Property

Rng = np.random.Generator


def _logits(rng: Rng, *shape: int, scale: float = 1.5) -> torch.Tensor:
    return torch.from_numpy(scale * rng.standard_normal(shape))


def _cut(
    rng: Rng,
    *shape: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    scale: float = 1.5,
) -> Call:
    """A call with logits whose cumulative masses all stay well away from top_p."""
    kwargs = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = {name: value for name, value in kwargs.items() if value is not None}
    if given.get("temperature") == 1.0:
        del given["temperature"]
    while True:
        logits = _logits(rng, *shape, scale=scale)
        if top_p is None or top_p >= 1 or _is_clear(logits, temperature, top_k, top_p):
            return Call((logits,), given)


def _is_clear(logits: torch.Tensor, temperature: float, top_k: int | None, top_p: float) -> bool:
    p = torch.softmax(logits / temperature, -1).sort(-1, descending=True).values
    cut = p[..., :top_k] / p[..., :top_k].sum(-1, keepdim=True)
    masses = [q.cumsum(-1) for q in (p, cut)]
    return all(bool(((m - top_p).abs() > 1e-3).all()) for m in masses)


def _temperatures(rng: Rng) -> tuple[Call, ...]:
    return (
        _cut(rng, 4),
        _cut(rng, 4, temperature=0.5),
        _cut(rng, 5, temperature=2.0),
        _cut(rng, 7, temperature=0.7),
        _cut(rng, 11, temperature=1.3),
        _cut(rng, 3, temperature=float(rng.uniform(0.3, 0.9))),
    )


def _top_ks(rng: Rng) -> tuple[Call, ...]:
    return (
        _cut(rng, 4, top_k=2),
        _cut(rng, 5, top_k=3),
        _cut(rng, 5, top_k=1),
        _cut(rng, 7, temperature=0.6, top_k=4),
        _cut(rng, 11, temperature=1.5, top_k=6),
        _cut(rng, 13, top_k=int(rng.integers(2, 8))),
    )


def _top_ps(rng: Rng) -> tuple[Call, ...]:
    return (
        _cut(rng, 4, top_p=0.6),
        _cut(rng, 5, top_p=0.8),
        _cut(rng, 5, top_p=0.05),
        _cut(rng, 7, temperature=0.6, top_p=0.7),
        _cut(rng, 11, temperature=1.7, top_p=0.75),
        _cut(rng, 13, top_p=float(rng.uniform(0.4, 0.9)), scale=1.0),
        _cut(rng, 17, top_p=0.5, scale=0.5),
        _cut(rng, 17, top_p=0.95, scale=0.7),
    )


def _both(rng: Rng) -> tuple[Call, ...]:
    return (
        _cut(rng, 5, top_k=3, top_p=0.7, scale=1.0),
        _cut(rng, 7, top_k=4, top_p=0.8, scale=0.7),
        _cut(rng, 11, top_k=5, top_p=0.5, scale=0.5),
        _cut(rng, 11, temperature=1.5, top_k=6, top_p=0.6),
        _cut(rng, 13, temperature=0.5, top_k=8, top_p=0.9, scale=1.0),
        _cut(rng, 17, top_k=9, top_p=0.65, scale=0.4),
        _cut(rng, 7, top_k=5, top_p=0.3, scale=0.3),
    )


def _batches(rng: Rng) -> tuple[Call, ...]:
    return (
        _cut(rng, 2, 4, top_k=2),
        _cut(rng, 2, 5, top_p=0.7),
        _cut(rng, 3, 7, temperature=0.8),
        _cut(rng, 3, 7, top_k=4, top_p=0.75, scale=0.8),
        _cut(rng, 5, 2, 3, 11, temperature=1.4, top_k=6, top_p=0.8),
        _cut(rng, 2, 3, 5, top_p=0.6),
        _cut(rng, 4, 3, temperature=0.0),
        _cut(rng, 2, 1, 5, temperature=0.0),
    )


def _tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _edges(rng: Rng) -> tuple[Call, ...]:
    a, b = sorted(float(x) for x in rng.uniform(-1, 1, 2))
    return (
        Call((_tensor(1.0, 3.0, 3.0, 2.0),), {"temperature": 0.0}),
        Call((_tensor(b, a, b, b, a),), {"temperature": 0.0, "top_k": 3, "top_p": 0.5}),
        Call((_tensor(a, b, a, b),), {"temperature": 0.0}),
        Call((_tensor(b, b, a),), {"temperature": 0.0}),
        Call((_tensor(1.0, 2.0, 1.0, 1.0, 0.0),), {"top_k": 2}),
        Call((_tensor(a, b, b, a, a, b),), {"top_k": 4}),
        Call((_tensor(0.0, 0.0, 0.0, 0.0),), {"top_p": 0.6}),
        Call((_tensor(0.0, 0.0, 0.0, 0.0, 0.0),), {"top_k": 3}),
        _cut(rng, 5, top_k=5),
        _cut(rng, 5, top_k=12),
        _cut(rng, 2, 3, top_k=4),
        _cut(rng, 7, top_p=1.0),
        _cut(rng, 7, top_p=1.5),
        _cut(rng, 3, top_k=50, top_p=2.0, temperature=0.9),
        Call((1e4 * _logits(rng, 5),), {"temperature": 0.7}),
        Call((_logits(rng, 1),), {"top_k": 1, "top_p": 0.5}),
    )


def _float32(rng: Rng) -> tuple[Call, ...]:
    return tuple(
        Call((call.args[0].float(),), call.kwargs)
        for call in (
            _cut(rng, 5, temperature=0.7),
            _cut(rng, 2, 7, top_k=3),
            _cut(rng, 11, top_p=0.6),
            _cut(rng, 3, 4, temperature=0.0),
        )
    )


def _refused(rng: Rng) -> tuple[Call, ...]:
    logits, pair = _logits(rng, 5), _logits(rng, 2, 3)
    return (
        Call((logits,), {"temperature": -0.5}),
        Call((logits,), {"top_k": 0}),
        Call((pair,), {"top_k": -2}),
        Call((logits,), {"top_p": 0.0}),
        Call((pair,), {"top_p": -0.1}),
        Call((pair,), {"temperature": 0.0, "top_k": 0}),
        Call((logits,), {"temperature": 0.0, "top_p": 0.0}),
        Call((pair,), {"temperature": 0.0, "top_k": 2, "top_p": -0.5}),
        Call((logits,), {"temperature": 0.7, "top_k": 2, "top_p": -1.0}),
    )


def _probes(rng: Rng) -> tuple[Call, ...]:
    return (
        *(_cut(rng, 7, top_p=p, scale=s) for p in (0.3, 0.6, 0.9) for s in (0.3, 1.0)),
        *(_cut(rng, 9, temperature=t, top_k=4, top_p=0.7) for t in (0.5, 1.0, 2.0)),
        *(_cut(rng, 9, temperature=t, top_p=0.6, scale=0.8) for t in (0.5, 1.6, 2.5)),
        *(_cut(rng, 3, 9, top_k=5, top_p=p, scale=0.6) for p in (0.4, 0.6, 0.8)),
        Call((_tensor(2.0, 2.0, 1.0, 2.0, 0.0, 1.0),), {"top_k": 2}),
        Call((_tensor(2.0, 1.0, 1.0, 1.0, 0.0, 1.0),), {"top_k": 3}),
        Call((_tensor(0.0, 1.0, 1.0),), {"top_k": 1}),
    )


def _temperature_multiplied(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax(logits * temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _temperature_ignored(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax(logits, dim=-1) / temperature
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _temperature_after(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    x, order = logits.sort(dim=-1, descending=True, stable=True)
    p = torch.softmax(x, dim=-1) * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    kept = (p > 0) & (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = torch.softmax(x.masked_fill(~kept, -torch.inf) / temperature, dim=-1)
    return torch.zeros_like(p).scatter(-1, order, p)


def _drops_the_crossing_token(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    kept = p.cumsum(-1) <= (2.0 if top_p is None or top_p >= 1 else top_p)
    kept[..., 0] = True
    p = p * kept
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _drops_all_that_cross(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) <= (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _one_more_than_crosses(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    n = 2 + (p.cumsum(-1) < (2.0 if top_p is None or top_p >= 1 else top_p)).sum(-1, keepdim=True)
    p = p * (torch.arange(V) < n)
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _each_above_p(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    kept = p >= (0.0 if top_p is None or top_p >= 1 else 1 - top_p)
    kept[..., 0] = True
    p = p * kept
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _least_likely_first(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    if top_k is None and (top_p is None or top_p >= 1):
        return p
    p, order = p.sort(dim=-1, descending=False, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _left_in_order(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, _ = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    return p / p.sum(-1, keepdim=True)


def _ties_keep_too_many(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    x = logits
    if top_k is not None:
        threshold = x.topk(min(top_k, V), dim=-1).values[..., -1:]
        x = x.masked_fill(x < threshold, -torch.inf)
    p = torch.softmax((x - x.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _ties_to_the_highest(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    x = logits.flip(-1)
    if temperature == 0:
        best = (x == x.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(x).scatter(-1, best, 1).flip(-1)
    p = torch.softmax((x - x.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p).flip(-1)


def _cut_to_zero_logits(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    x, order = logits.sort(dim=-1, descending=True, stable=True)
    x = torch.where(torch.arange(V) < (V if top_k is None else top_k), x / temperature, 0.0)
    p = torch.softmax(x, dim=-1)
    kept = p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p)
    p = torch.softmax(torch.where(kept, x, 0.0), dim=-1)
    return torch.zeros_like(p).scatter(-1, order, p)


def _not_renormalised(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    q = p / p.sum(-1, keepdim=True)
    p = p * (q.cumsum(-1) - q < (2.0 if top_p is None or top_p >= 1 else top_p))
    return torch.zeros_like(p).scatter(-1, order, p)


def _mass_of_all_tokens(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _shortest_of_both(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _one_list_for_all(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    q, order = p.reshape(-1, V)[0].sort(descending=True, stable=True)
    q = q * (torch.arange(V) < (V if top_k is None else top_k))
    q = q / q.sum()
    q = q * (q.cumsum(0) - q < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p * torch.zeros_like(q).scatter(0, order, (q > 0).to(q.dtype))
    return p / p.sum(-1, keepdim=True)


def _single_rows_only(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    p = torch.zeros_like(logits)
    if temperature == 0:
        p[torch.argmax((logits == logits.max()).int())] = 1.0
        return p
    order = sorted(range(len(logits)), key=lambda i: -float(logits[i]))
    q = torch.softmax((logits - logits.max()) / temperature, dim=0)[order]
    q = q[:top_k] / q[:top_k].sum()
    n = 1 + int((q.cumsum(0) < (2.0 if top_p is None or top_p >= 1 else top_p)).sum())
    q = q[:n] / q[:n].sum()
    for i, share in zip(order, q, strict=False):
        p[i] = share
    return p


def _normalised_together(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    q = p / p.sum(-1, keepdim=True)
    p = p * (q.cumsum(-1) - q < (2.0 if top_p is None or top_p >= 1 else top_p))
    return torch.zeros_like(p).scatter(-1, order, p / p.sum())


def _nearly_zero(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V, temperature = logits.shape[-1], max(temperature, 1e-8)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _divides_by_zero(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    p = torch.softmax(logits / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _zero_means_one(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / (temperature or 1.0), dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _greedy_before_checks(logits, temperature=1.0, top_k=None, top_p=None):
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _checks_nothing(logits, temperature=1.0, top_k=None, top_p=None):
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _k_beyond_V(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    if top_k is not None and top_k > logits.shape[-1]:
        raise RuntimeError("selected index k out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    p, order = p.sort(dim=-1, descending=True, stable=True)
    p = p * (torch.arange(V) < (V if top_k is None else top_k))
    p = p / p.sum(-1, keepdim=True)
    p = p * (p.cumsum(-1) - p < (2.0 if top_p is None or top_p >= 1 else top_p))
    p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def _logits_come_back(logits, temperature=1.0, top_k=None, top_p=None):
    if temperature < 0 or (top_k is not None and top_k < 1) or (top_p is not None and top_p <= 0):
        raise ValueError("out of range")
    V = logits.shape[-1]
    if temperature == 0:
        best = (logits == logits.amax(-1, keepdim=True)).int().argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter(-1, best, 1)
    x, order = (logits / temperature).sort(dim=-1, descending=True, stable=True)
    x = x.masked_fill(torch.arange(V) >= (V if top_k is None else top_k), -torch.inf)
    p = torch.softmax(x, dim=-1)
    outside = p.cumsum(-1) - p >= (2.0 if top_p is None or top_p >= 1 else top_p)
    x = x.masked_fill(outside, -torch.inf)
    return torch.zeros_like(x).scatter(-1, order, x)


NEXT_TOKEN_DISTRIBUTION = Exercise(
    chapter=8,
    signature="next_token_distribution(logits, temperature=1.0, top_k=None, top_p=None)",
    task="""\
From the logits of the next token to the probabilities it is drawn with. Return a tensor of the
shape and dtype of `logits`, a float tensor `(..., V)`; each row along the last axis is a
distribution of its own and sums to 1. In this order:

1. **Temperature.** The logits are divided by `temperature`, and a softmax makes them probabilities.
2. **`top_k`.** Only the `top_k` most probable tokens stay, exactly that many; the others get
   exactly 0, and what stays is brought to sum 1 again. `top_k` of V or more keeps all, and so does
   None.
3. **`top_p`.** Of what is left now, only the shortest list of the most probable tokens stays whose
   mass reaches `top_p`. The token that crosses the mark belongs to it, so at least one stays. The
   others get 0, and what stays is brought to sum 1 again. `top_p` of 1 or more keeps all, and so
   does None.

- Of tokens with equal logits the one with the lower id counts as the more probable. `torch.topk`
  does not promise that, and `torch.sort` only with `stable=True`. A `top_p` that is graded never
  lies within 10⁻⁶ of a mass that some list has, unless tokens are tied.
- `temperature` 0 puts all of the probability on the largest logit.
- A negative temperature, a `top_k` below 1 and a `top_p` of 0 or below are a `ValueError`, at
  temperature 0 as well.
- Logits of ±10,000 must do no harm. Leave `logits` as it is. Whether gradients flow back does not
  matter here: nobody differentiates a choice.""",
    reference=next_token_distribution,
    properties=(
        Property("the temperature divides the logits", 1, _temperatures),
        Property("top_k keeps the k most probable tokens", 1, _top_ks),
        Property("top_p keeps the shortest list that reaches p", 2, _top_ps),
        Property("first top_k, then top_p of what is left", 1, _both),
        Property("any leading axes, each row on its own", 1, _batches),
        Property("ties, temperature 0, and nothing to cut", 1, _edges, edge=True),
        Property("float32 logits give float32 probabilities", 1, _float32, edge=True),
        Property("numbers out of range are refused", 1, _refused, edge=True),
    ),
    misconceptions=(
        Misconception(
            "multiplies by the temperature",
            "You multiply by the temperature, so that a hot text becomes a timid one. Divide: a "
            "temperature below 1 sharpens, one above 1 flattens.",
            _temperature_multiplied,
            symptom="a higher temperature makes your distribution sharper",
        ),
        Misconception(
            "divides the probabilities by the temperature",
            "You divide the probabilities, and bringing them to sum 1 again undoes it. It is the "
            "logits that are divided, before the softmax.",
            _temperature_ignored,
            symptom="the temperature makes no difference",
        ),
        Misconception(
            "cuts before the temperature",
            "You choose which tokens stay by the probabilities at temperature 1. The temperature "
            "comes first: it changes how much mass the first tokens hold, and so how many stay.",
            _temperature_after,
            symptom="the list does not depend on the temperature",
        ),
        Misconception(
            "drops the token that crosses",
            "You keep tokens while the mass stays below `top_p`, and drop the one that crosses it. "
            "What is left then holds *less* than p. The crossing token belongs to the list.",
            _drops_the_crossing_token,
            symptom="your list does not reach top_p",
        ),
        Misconception(
            "may keep no token at all",
            "You drop the token that crosses `top_p`. When the first token crosses it at once, "
            "nothing is left, and 0/0 is not a number. The crossing token belongs to the list.",
            _drops_all_that_cross,
            symptom="your list does not reach top_p, and may be empty",
        ),
        Misconception(
            "keeps one token too many",
            "Your list goes one token beyond the one that crosses `top_p`. It is the *shortest* "
            "list that reaches it.",
            _one_more_than_crosses,
            symptom="your list is longer than it must be",
        ),
        Misconception(
            "compares each probability with p",
            "You look at each token's own probability. What has to reach `top_p` is the sum over "
            "the most probable tokens: sort, then add up.",
            _each_above_p,
            symptom="your list does not depend on the mass before a token",
        ),
        Misconception(
            "keeps the least likely tokens",
            "Your sort is ascending: what stays is the tail. `descending=True`.",
            _least_likely_first,
            symptom="the tokens that stay are the least likely ones",
        ),
        Misconception(
            "leaves the tokens sorted",
            "The probabilities are right, but they come back sorted. Position v must hold the "
            "probability of token v: carry them back with `scatter`.",
            _left_in_order,
            symptom="the probabilities have lost their tokens",
        ),
        Misconception(
            "keeps all that tie with the k-th",
            "You keep every logit that is not below the k-th largest. Where some are equal, that "
            "is more than k. Exactly `top_k` stay, those of lower id first.",
            _ties_keep_too_many,
            symptom="where logits are equal, more than k tokens stay",
        ),
        Misconception(
            "gives ties to the highest id",
            "Of equal logits you take the higher id first. A sort in ascending order, read "
            "backwards, does that. The lower id comes first: `descending=True, stable=True`.",
            _ties_to_the_highest,
            symptom="of equal logits the last ones stay",
        ),
        Misconception(
            "sets the logits that go to 0",
            "You set the logits of the tokens that go to 0. A logit of 0 is an ordinary one, and "
            "the softmax gives it its share. What may not be drawn has the logit −∞, or the "
            "probability 0.",
            _cut_to_zero_logits,
            symptom="tokens that were cut still have a probability",
        ),
        Misconception(
            "does not bring the rest to sum 1",
            "What stays keeps the probability it had, and the rest is lost: the rows no longer sum "
            "to 1. Divide by the sum of what stays.",
            _not_renormalised,
            symptom="your rows sum to less than 1",
        ),
        Misconception(
            "counts the mass of tokens that are gone",
            "`top_p` adds up the mass that the tokens have among *all* tokens. Either it comes "
            "before `top_k`, or what `top_k` left was not brought to sum 1 in between: the list "
            "is too long. p is meant of what is left.",
            _mass_of_all_tokens,
            symptom="after top_k, top_p keeps too many tokens",
            also=(_shortest_of_both,),
        ),
        Misconception(
            "uses one list for all rows",
            "The tokens that stay in the first row are kept in every row. Each row has a list of "
            "its own: sort and add up along the last axis.",
            _one_list_for_all,
            symptom="right for one row, wrong for the others",
        ),
        Misconception(
            "takes a single row only",
            "It works for logits (V,) and not for a batch. Work along the last axis, `dim=-1`, and "
            "leave the axes before it alone.",
            _single_rows_only,
            symptom="it cannot take a batch",
        ),
        Misconception(
            "normalises all rows together",
            "All rows together sum to 1. Each row is a distribution: sum along the last axis and "
            "keep it (`keepdim=True`).",
            _normalised_together,
            symptom="your rows do not sum to 1",
        ),
        Misconception(
            "takes a tiny temperature for 0",
            "Dividing by a tiny number in place of 0 works until two logits are equal or nearly "
            "so: then they share. At temperature 0 one token has everything, of equal ones the "
            "first.",
            _nearly_zero,
            symptom="at temperature 0, equal logits share",
        ),
        Misconception(
            "divides by a temperature of 0",
            "At temperature 0 you divide by 0. What is meant is the limit: all of the probability "
            "on the largest logit. It needs a case of its own.",
            _divides_by_zero,
            symptom="temperature 0 makes NaN",
        ),
        Misconception(
            "takes temperature 0 for none",
            "At temperature 0 you leave the logits as they are, as `temperature or 1` does. It "
            "means the opposite: all of the probability on the largest logit.",
            _zero_means_one,
            symptom="temperature 0 is not greedy",
        ),
        Misconception(
            "is greedy before it checks",
            "At temperature 0 you return before you have looked at `top_k` and `top_p`. A `top_k` "
            "of 0 is refused at every temperature: check first.",
            _greedy_before_checks,
            symptom="at temperature 0 nothing is refused",
        ),
        Misconception(
            "refuses nothing",
            "A negative temperature prefers the least likely token, and with `top_k` 0 nothing is "
            "left. Such numbers are mistakes of the caller: raise a ValueError.",
            _checks_nothing,
            symptom="numbers out of range are taken",
        ),
        Misconception(
            "fails where k is larger than V",
            "`topk` cannot give more tokens than there are. A `top_k` of V or more keeps all: "
            "take the smaller of the two.",
            _k_beyond_V,
            symptom="a top_k beyond the vocabulary is an error",
        ),
        Misconception(
            "returns logits",
            "What comes back are logits, with −∞ for the tokens that are cut. Return "
            "probabilities: a last softmax does it.",
            _logits_come_back,
            symptom="your result is not a distribution",
        ),
    ),
    hints=(
        "Do one row by hand: probabilities 0.5, 0.3, 0.15, 0.05. Which tokens stay for top_k = 3? "
        "What are their probabilities then? Which of them stay for top_p = 0.6?",
        "Check the numbers; handle temperature 0; softmax of the logits divided by the "
        "temperature. Sort once, descending and stable: top_k is then a condition on the place, "
        "and top_p one on the mass *before* a token. Bring to sum 1 after each cut, and carry "
        "everything back to where it was.",
        "`p, order = p.sort(dim=-1, descending=True, stable=True)`; `p * (torch.arange(V) < "
        "top_k)`; `before = p.cumsum(-1) - p`, and a token stays where `before < top_p`; at the "
        "end `torch.zeros_like(p).scatter(-1, order, p)`. For temperature 0: of the places where "
        "the logit equals the row's maximum, the first.",
    ),
    minutes=25,
    returns=("the distribution",),
    keeps_dtype=True,
    probes=_probes,
)
