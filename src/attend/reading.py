"""Reading heads: what trained attention really does (chapter 11).

Scores say how far a head does one thing: look at the token before, at the first token, or at what
followed the last time this token was here (induction). A score describes; what a head is *for* is
shown by taking it away and measuring what is lost.

"weights" are attention weights (..., H, T, S = T), rows over the tokens that are looked at.

Sources: Olsson et al., "In-context Learning and Induction Heads" (2022); Xiao et al., "Efficient
Streaming Language Models with Attention Sinks" (2023); Jain and Wallace, "Attention is not
Explanation" (2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attend.dot_product import scaled_dot_product_attention
from attend.heads import repeat_kv
from attend.layers import LayerNorm, Rotary, SelfAttention
from attend.masks import causal_mask
from attend.model import Head, TokenEmbedding, Transformer
from attend.training import adamw


def _looks_back(weights: Tensor, distance: int, first: int) -> Tensor:
    """Mean over t = first … T - 1 of the weight from t to t - distance: the mean of a diagonal."""
    T = weights.shape[-2]
    if first >= T:
        raise ValueError(f"{T} tokens: this score needs more than {first}")
    return weights[..., first:, :].diagonal(first - distance, dim1=-2, dim2=-1).mean(-1)


def previous_token_score(weights: Tensor) -> Tensor:
    """How much each head looks at the token before: the mean over t ≥ 1 of w[t, t - 1].

    Args:
        weights: (..., H, T, T).

    Returns:
        (..., H), 0 … 1.

    Raises:
        ValueError: fewer than two tokens.
    """
    return _looks_back(weights, 1, first=1)


def sink_score(weights: Tensor) -> Tensor:
    """How much each head looks at the first token: the mean over t ≥ 1 of w[t, 0].

    Row 0 of a causal model can look nowhere else and does not count.

    Args:
        weights: (..., H, T, T).

    Returns:
        (..., H), 0 … 1.

    Raises:
        ValueError: fewer than two tokens.
    """
    if weights.shape[-2] < 2:
        raise ValueError(f"{weights.shape[-2]} tokens: this score needs more than 1")
    return weights[..., 1:, 0].mean(-1)


def induction_score(weights: Tensor, period: int) -> Tensor:
    """How much each head, on a text that repeats, looks at what came next the last time.

    Args:
        weights: (..., H, T, T) on a text whose token t is that of t - period.
        period: P, length of what repeats.

    Returns:
        (..., H): the mean over t ≥ P of w[t, t - P + 1].

    Raises:
        ValueError: the text does not begin to repeat.
    """
    return _looks_back(weights, period - 1, first=period)


def duplicate_token_score(weights: Tensor, period: int) -> Tensor:
    """How much each head, on a text that repeats, looks at the same token the last time.

    Args:
        weights: (..., H, T, T) on a text whose token t is that of t - period.
        period: P, length of what repeats.

    Returns:
        (..., H): the mean over t ≥ P of w[t, t - P].

    Raises:
        ValueError: the text does not begin to repeat.
    """
    return _looks_back(weights, period, first=period)


def antecedent_preference(weights: Tensor, at: int, candidates: Sequence[int]) -> Tensor:
    """Of the attention that goes to any of the candidates, the share of each.

    Args:
        weights: (..., H, T, T).
        at: the token that looks, *it* for example.
        candidates: n tokens that it may refer to.

    Returns:
        (..., H, n): w[at, c] / Σ w[at, c]; zeros where no candidate gets any.
    """
    chosen = weights[..., at, list(candidates)]  # (..., H, n)
    total = chosen.sum(-1, keepdim=True)
    return chosen / torch.where(total == 0, 1, total)


def ablate_head(heads: Tensor, index: int) -> Tensor:
    """What the heads hand on, with one of them silenced.

    Args:
        heads: (..., H, T, K), before they are merged.
        index: which, 0 … H - 1.

    Returns:
        a new tensor, zero in that head.

    Raises:
        IndexError: there is no such head.
    """
    H = heads.shape[-3]
    if not 0 <= index < H:
        raise IndexError(f"head {index} is outside 0 … {H - 1}")
    keep = torch.arange(H, device=heads.device) != index
    # Chosen, not multiplied: 0 times an infinite number would be NaN.
    return torch.where(keep[:, None, None], heads, 0)


@contextmanager
def _kernels_wrapped(model: Transformer, wrap: Callable) -> Iterator[None]:
    """While this lasts, the kernel of layer i is `wrap(i, kernel)`."""
    layers = [block.attention for block in model.blocks]
    kernels = [layer.kernel for layer in layers]
    try:
        for i, layer in enumerate(layers):
            layer.kernel = wrap(i, layer.kernel)
        yield
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel


@contextmanager
def captured_weights(model: Transformer) -> Iterator[list[Tensor]]:
    """Collects the attention weights of every layer while the model runs.

        with captured_weights(model) as weights:
            model(ids)
        weights[layer]  # (B, H, T, S)

    The weights are computed beside the model, whose results stay what they were to the last bit.
    Every call of the model adds its layers to the list.
    """
    collected: list[Tensor] = []

    def wrap(layer, kernel):
        def with_record(q, k, v, mask):
            n_rep = q.shape[-3] // k.shape[-3]
            k_all, v_all = repeat_kv(k, n_rep), repeat_kv(v, n_rep)
            with torch.no_grad():
                collected.append(scaled_dot_product_attention(q, k_all, v_all, mask)[1])
            return kernel(q, k, v, mask)

        return with_record

    with _kernels_wrapped(model, wrap):
        yield collected


@contextmanager
def ablated(model: Transformer, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """The model without some heads, while this lasts.

    Args:
        model: any `Transformer` of this package.
        heads: (layer, head) of each head that is silenced.

    Raises:
        IndexError: there is no such layer or head.
    """
    silenced: dict[int, set[int]] = {}
    for layer, head in heads:
        if not 0 <= layer < len(model.blocks):
            raise IndexError(f"layer {layer} is outside 0 … {len(model.blocks) - 1}")
        H = model.blocks[layer].attention.n_heads
        if not 0 <= head < H:
            raise IndexError(f"head {head} is outside 0 … {H - 1}")
        silenced.setdefault(layer, set()).add(head)

    def wrap(layer, kernel):
        def without(q, k, v, mask):
            z = kernel(q, k, v, mask)
            for head in silenced.get(layer, ()):
                z = ablate_head(z, head)
            return z

        return without

    with _kernels_wrapped(model, wrap):
        yield


# A model small enough to watch induction appear.


class AttentionOnlyBlock(nn.Module):
    """x + attention(norm(x)): a block without its feed-forward part."""

    def __init__(self, attention: nn.Module, norm: nn.Module):
        super().__init__()
        self.attention, self.norm = attention, norm

    def forward(self, x: Tensor, **context) -> Tensor:
        return x + self.attention(self.norm(x), **context)


def attention_only(
    vocab: int, d_model: int, n_layers: int, n_heads: int, context: int
) -> Transformer:
    """A causal model of attention alone, with RoPE: the least that can learn induction.

    Args:
        vocab: V.
        d_model: D.
        n_layers: L; two are needed, for a head must read what another has written.
        n_heads: H.
        context: the most tokens of a text.
    """
    rotary = Rotary(d_model // n_heads, context)
    blocks = [
        AttentionOnlyBlock(
            SelfAttention(d_model, n_heads, pattern=causal_mask, rotary=rotary),
            LayerNorm(d_model),
        )
        for _ in range(n_layers)
    ]
    embedding, head = TokenEmbedding(vocab, d_model), Head(d_model, vocab)
    model = Transformer(embedding, blocks, LayerNorm(d_model), head, context=context)
    # GPT-2's 0.02 is too quiet for so narrow a model: tokens would start out nearly alike.
    nn.init.normal_(embedding.tokens, std=1.0)
    for block in blocks:
        for name in ("w_q", "w_k", "w_v", "w_o"):
            nn.init.normal_(getattr(block.attention, name), std=d_model**-0.5)
    return model


def repeated_sequences(
    batch: int, T: int, vocab: int, periods: tuple[int, int], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Random texts that repeat: nothing but the repetition can be predicted.

    Args:
        batch: B.
        T: tokens of each text.
        vocab: V, from which each period is drawn.
        periods: smallest and largest period; each text draws its own.
        generator: where everything is drawn from.

    Returns:
        ids (B, T), and the period of each text (B,).
    """
    low, high = periods
    period = torch.randint(low, high + 1, (batch,), generator=generator)
    once = torch.randint(0, vocab, (batch, high), generator=generator)
    place = torch.arange(T) % period[:, None]  # (B, T)
    return once.gather(1, place), period


class Look(NamedTuple):
    """What a model that is being trained does on texts of two copies."""

    step: int
    accuracy: float  #: on the second copy
    induction: float  #: largest induction score of a head
    previous: float  #: largest previous-token score of a head in the first layer


def learn_induction(
    n_layers: int = 2,
    steps: int = 300,
    *,
    vocab: int = 32,
    d_model: int = 64,
    n_heads: int = 4,
    T: int = 48,
    periods: tuple[int, int] = (8, 24),
    batch: int = 64,
    rate: float = 3e-3,
    seed: int = 0,
    every: int = 10,
) -> tuple[Transformer, list[Look]]:
    """Trains `attention_only` on texts that repeat, and watches for the moment of induction.

    Args:
        n_layers, vocab, d_model, n_heads: of the model.
        steps, batch, rate: of the training.
        T, periods: of the texts.
        seed: of everything random; the global random state is left as it was.
        every: steps between two looks.

    Returns:
        the model, and the looks in the order of the steps.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = attention_only(vocab, d_model, n_layers, n_heads, T)
    optimizer = adamw(model, weight_decay=0.0)
    for group in optimizer.param_groups:
        group["lr"] = rate
    # Looked at on texts of two copies, in which only one earlier place shows what comes next.
    copy, other = T // 2, torch.Generator().manual_seed(seed + 1)
    test, _ = repeated_sequences(batch, T, vocab, (copy, copy), other)
    looks = []
    for step in range(1, steps + 1):
        ids, period = repeated_sequences(batch, T, vocab, periods, generator)
        known = torch.arange(1, T) >= period[:, None]  # the next token has been seen a period ago
        logits = model(ids)[:, :-1]
        loss = nn.functional.cross_entropy(logits[known], ids[:, 1:][known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0 or step == steps:
            with torch.no_grad(), captured_weights(model) as weights:
                guess = model(test)[:, copy:-1].argmax(-1)
            scores = torch.stack([induction_score(w, copy).mean(0).max() for w in weights])
            previous = previous_token_score(weights[0]).mean(0).max()
            accuracy = (guess == test[:, copy + 1 :]).float().mean()
            looks.append(Look(step, float(accuracy), float(scores.max()), float(previous)))
    return model, looks
