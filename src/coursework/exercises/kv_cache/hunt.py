"""The bug hunt of chapter 09: attention in chunks that is right for some ways to cut a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attend.dot_product import scaled_dot_product_attention
from attend.masks import causal_mask
from attend.positions import apply_rope, rope_angles
from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercise import Exercise, Misconception
from coursework.tensors import is_tensor

LEAST, MOST = 6, 24  #: tokens


def attend_in_chunks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, chunks: list[int]
) -> torch.Tensor:
    """Causal attention with RoPE over the whole text: the same for all chunks."""
    return _whole(q, k, v)[0]


def _whole(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    angles = rope_angles(torch.arange(len(q)), q.shape[-1])
    return scaled_dot_product_attention(
        apply_rope(q, angles), apply_rope(k, angles), v, causal_mask(len(q), like=q)
    )


def _mask_of_the_prompt(q, k, v, chunks):
    K = q.shape[1]
    frequencies = 10000.0 ** (-2 * torch.arange(K // 2, dtype=q.dtype) / K)

    def rotated(x, positions):
        angles = positions[:, None] * frequencies
        a, b = x[:, : K // 2], x[:, K // 2 :]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=1
        )

    keys, values, blends = k[:0], v[:0], []
    for T in chunks:
        n = len(keys)
        new = slice(n, n + T)
        positions = torch.arange(n, n + T)
        keys = torch.cat([keys, rotated(k[new], positions)])
        values = torch.cat([values, v[new]])
        scores = rotated(q[new], positions) @ keys.T / K**0.5
        if T > 1:
            mask = torch.ones(T, n + T, dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, -torch.inf)
        blends.append(torch.softmax(scores, dim=1) @ values)
    return torch.cat(blends)


def _mask_while_empty(q, k, v, chunks):
    K = q.shape[1]
    frequencies = 10000.0 ** (-2 * torch.arange(K // 2, dtype=q.dtype) / K)

    def rotated(x, positions):
        angles = positions[:, None] * frequencies
        a, b = x[:, : K // 2], x[:, K // 2 :]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=1
        )

    keys, values, blends = k[:0], v[:0], []
    for T in chunks:
        n = len(keys)
        new = slice(n, n + T)
        positions = torch.arange(n, n + T)
        keys = torch.cat([keys, rotated(k[new], positions)])
        values = torch.cat([values, v[new]])
        scores = rotated(q[new], positions) @ keys.T / K**0.5
        if n == 0:
            mask = torch.ones(T, T, dtype=torch.bool).tril()
            scores = scores.masked_fill(~mask, -torch.inf)
        blends.append(torch.softmax(scores, dim=1) @ values)
    return torch.cat(blends)


def _previous_chunk(q, k, v, chunks):
    K = q.shape[1]
    frequencies = 10000.0 ** (-2 * torch.arange(K // 2, dtype=q.dtype) / K)

    def rotated(x, positions):
        angles = positions[:, None] * frequencies
        a, b = x[:, : K // 2], x[:, K // 2 :]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=1
        )

    old_k, old_v, start, blends = k[:0], v[:0], 0, []
    for T in chunks:
        new = slice(start, start + T)
        positions = torch.arange(start, start + T)
        new_k, new_v = rotated(k[new], positions), v[new]
        keys, values = torch.cat([old_k, new_k]), torch.cat([old_v, new_v])
        scores = rotated(q[new], positions) @ keys.T / K**0.5
        mask = torch.ones(T, len(keys), dtype=torch.bool).tril(len(keys) - T)
        scores = scores.masked_fill(~mask, -torch.inf)
        blends.append(torch.softmax(scores, dim=1) @ values)
        old_k, old_v, start = new_k, new_v, start + T
    return torch.cat(blends)


def _number_times_length(q, k, v, chunks):
    K = q.shape[1]
    frequencies = 10000.0 ** (-2 * torch.arange(K // 2, dtype=q.dtype) / K)

    def rotated(x, positions):
        angles = positions[:, None] * frequencies
        a, b = x[:, : K // 2], x[:, K // 2 :]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=1
        )

    keys, values, blends = k[:0], v[:0], []
    for i, T in enumerate(chunks):
        n = len(keys)
        new = slice(n, n + T)
        positions = torch.arange(i * T, i * T + T)
        keys = torch.cat([keys, rotated(k[new], positions)])
        values = torch.cat([values, v[new]])
        scores = rotated(q[new], positions) @ keys.T / K**0.5
        mask = torch.ones(T, n + T, dtype=torch.bool).tril(n)
        scores = scores.masked_fill(~mask, -torch.inf)
        blends.append(torch.softmax(scores, dim=1) @ values)
    return torch.cat(blends)


def _number_of_the_chunk(q, k, v, chunks):
    K = q.shape[1]
    frequencies = 10000.0 ** (-2 * torch.arange(K // 2, dtype=q.dtype) / K)

    def rotated(x, positions):
        angles = positions[:, None] * frequencies
        a, b = x[:, : K // 2], x[:, K // 2 :]
        return torch.cat(
            [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=1
        )

    keys, values, blends = k[:0], v[:0], []
    for i, T in enumerate(chunks):
        n = len(keys)
        new = slice(n, n + T)
        positions = torch.arange(i, i + T)
        keys = torch.cat([keys, rotated(k[new], positions)])
        values = torch.cat([values, v[new]])
        scores = rotated(q[new], positions) @ keys.T / K**0.5
        mask = torch.ones(T, n + T, dtype=torch.bool).tril(n)
        scores = scores.masked_fill(~mask, -torch.inf)
        blends.append(torch.softmax(scores, dim=1) @ values)
    return torch.cat(blends)


_MASK = "The mask of a chunk lies as if its tokens were the first of the text."
_NO_MASK = "Once there is something in the cache, new tokens see those of their chunk that follow."
_FORGETS = "The cache holds the chunk before, and not those before that."
_EQUAL = "The place of a chunk is reckoned as if all chunks before were as long as it is."
_BY_CALL = "The positions go on by one with each chunk, and not with each token."
_TWICE = "Keys that are in the cache are rotated a second time."
_ITSELF = "A new token does not see itself."
_SCALE = "The scores are divided by the width of a head, not by its root."

#: What is hunted is no exercise of its own: it is `attend_with_cache` for one head, whole texts
#: and any chunks, so that inputs are plain tensors.
TARGET = Exercise(
    chapter=9,
    signature="attend_in_chunks(q, k, v, chunks) -> (T, d_v)",
    task="",
    reference=attend_in_chunks,
    properties=(),
    misconceptions=tuple(
        Misconception(name, sentence, function)
        for name, sentence, function in (
            ("lines the mask up at the start", _MASK, _mask_of_the_prompt),
            ("masks the first chunk only", _NO_MASK, _mask_while_empty),
            ("keeps the chunk before only", _FORGETS, _previous_chunk),
            ("takes all chunks for equally long", _EQUAL, _number_times_length),
            ("counts positions by chunks", _BY_CALL, _number_of_the_chunk),
        )
    ),
    hints=("", "", ""),
    minutes=0,
    returns=("the result",),
    keeps_dtype=True,
)


def _fit(q: Any, k: Any, v: Any, chunks: Any) -> bool:
    return (
        all(is_tensor(x) and x.ndim == 2 and x.dtype == torch.float64 for x in (q, k, v))
        and q.shape == k.shape
        and len(v) == len(q)
        and LEAST <= len(q) <= MOST
        and q.shape[1] % 2 == 0
        and q.shape[1] >= 2
        and v.shape[1] >= 2
        and all(bool((x.abs() <= 100).all()) for x in (q, k, v))
    )


def _rows_differ(q: Any, k: Any, v: Any, chunks: Any) -> bool:
    return all(
        bool((x[i] - x[j]).abs().max() >= 0.1) for x in (q, k, v) for i in range(len(x))
        for j in range(i)
    )  # fmt: skip


def _are_spread(q: Any, k: Any, v: Any, chunks: Any) -> bool:
    weights = _whole(q, k, v)[1]
    rows = [weights[t, : t + 1] for t in range(2, len(q))]
    return all(bool(row.min() >= 0.001 and row.max() <= 0.9) for row in rows) and all(
        bool(row.max() >= 1.5 * row.min()) for row in rows
    )


def _are_chunks(q: Any, k: Any, v: Any, chunks: Any) -> bool:
    return (
        type(chunks) in (list, tuple)
        and all(type(n) is int and n >= 1 for n in chunks)
        and sum(chunks) == len(q)
        and len(chunks) >= 2
        and max(chunks) >= 2
    )


def _tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Six tokens with small random queries and keys, so that all weights are ordinary."""
    rng = np.random.default_rng(9)
    q, k, v = (torch.from_numpy(rng.standard_normal((6, width))) for width in (4, 4, 3))
    return 0.8 * q, 0.8 * k, v


_QKV = _tensors()

BUG_HUNT = BugHunt(
    target=TARGET,
    bugs=(
        Bug(
            "lines the mask up at the start",
            mistake=_MASK,
            others=(_NO_MASK, _ITSELF, _EQUAL, _TWICE),
            hides=(*_QKV, [4, 1, 1]),
            shows=(*_QKV, [3, 3]),
        ),
        Bug(
            "masks the first chunk only",
            mistake=_NO_MASK,
            others=(_MASK, _ITSELF, _BY_CALL, _SCALE),
            hides=(*_QKV, [4, 1, 1]),
            shows=(*_QKV, [3, 3]),
        ),
        Bug(
            "keeps the chunk before only",
            mistake=_FORGETS,
            others=(_MASK, _EQUAL, _TWICE, _ITSELF),
            hides=(*_QKV, [2, 4]),
            shows=(*_QKV, [2, 2, 2]),
        ),
        Bug(
            "takes all chunks for equally long",
            mistake=_EQUAL,
            others=(_BY_CALL, _TWICE, _MASK, _SCALE),
            hides=(*_QKV, [2, 2, 2]),
            shows=(*_QKV, [2, 4]),
        ),
        Bug(
            "counts positions by chunks",
            mistake=_BY_CALL,
            others=(_EQUAL, _TWICE, _FORGETS, _NO_MASK),
            hides=(*_QKV, [1, 1, 4]),
            shows=(*_QKV, [2, 2, 2]),
        ),
    ),
    conditions=(
        Condition(
            "`q`, `k` and `v` are float64 tensors, `q` and `k` `(T, K)` with an even K, `v` "
            f"`(T, d_v)` with d_v from 2 on, {LEAST} to {MOST} tokens, and no entry beyond ±100",
            _fit,
        ),
        Condition(
            "no two rows of `q` are alike, nor two of `k`, nor two of `v`: somewhere they differ "
            "by 0.1 or more",
            _rows_differ,
        ),
        Condition(
            "`chunks` is a list of whole numbers from 1 on that sum to T: at least two, and one of "
            "them above 1",
            _are_chunks,
        ),
        Condition(
            "from the third token on, every weight that the right function gives to a token and "
            "to those before it lies between 0.001 and 0.9, and the largest of them is at least "
            "1.5 times the smallest",
            _are_spread,
        ),
    ),
    hints=(
        "Walk through the suspect with two chunks of two tokens: which positions, which keys and "
        "which mask does each chunk get?",
        "The right function does not care how the text is cut. So keep the tensors and change "
        "`chunks` only: single tokens at the end, equal lengths, two chunks, single tokens at the "
        "start.",
        "`rng = np.random.default_rng(0)`; `q, k, v = (torch.from_numpy(rng.standard_normal("
        "(6, w))) for w in (4, 4, 3))`, the tensors of the cell before the suspect, keep to the "
        "rules. Compare `suspect(q, k, v, chunks)` with `suspect(q, k, v, [6])`, which is one "
        "chunk and right, for each way to cut 6.",
    ),
    minutes=15,
)
