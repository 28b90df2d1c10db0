"""A language model, put together from parts (chapter 08).

    Transformer(embedding, blocks, norm, head)

is the whole of it: ids become vectors, blocks refine them, a last norm and a head turn each vector
into scores for the next token. What kind of model it is depends on the parts. `gpt`, `llama` and
`bert` choose them as three well-known families do.

Sources: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019); Touvron et
al., "LLaMA" (2023); Devlin et al., "BERT" (2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attend.embeddings import embed
from attend.layers import (
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    PostNormBlock,
    PreNormBlock,
    RMSNorm,
    Rotary,
    SelfAttention,
    weight,
)
from attend.masks import causal_mask


class TokenEmbedding(nn.Module):
    """A vector for each token; positions are left to the attention (RoPE)."""

    def __init__(self, vocab: int, d_model: int):
        super().__init__()
        self.tokens = weight(vocab, d_model)

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        return embed(ids, self.tokens)  # (B, T, D)


class PositionedEmbedding(nn.Module):
    """A vector for each token plus a learned one for its position; perhaps a norm of the sum."""

    def __init__(self, vocab: int, context: int, d_model: int, norm: nn.Module | None = None):
        super().__init__()
        self.tokens, self.positions = weight(vocab, d_model), weight(context, d_model)
        self.norm = nn.Identity() if norm is None else norm

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.norm(embed(ids, self.tokens) + embed(positions, self.positions))


class Head(nn.Module):
    """Scores for every token of the vocabulary, by a matrix of its own."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.w_vocab = weight(d_model, vocab)

    def forward(self, z: Tensor) -> Tensor:
        return z @ self.w_vocab  # (B, T, V)


class TiedHead(nn.Module):
    """Scores by the embedding's own table: a token scores high where z points its way."""

    def __init__(self, embedding: TokenEmbedding | PositionedEmbedding):
        super().__init__()
        # In a list, so that the table stays one parameter of one module, under one name.
        self._embedding = [embedding]

    def forward(self, z: Tensor) -> Tensor:
        return z @ self._embedding[0].tokens.T  # (B, T, V)


class Transformer(nn.Module):
    """Embedding, blocks, norm and head, one after the other.

    Args:
        embedding: (ids (B, T), positions) → (B, T, D).
        blocks: each (x, *, positions, mask, cache) → x of the same shape.
        norm: the last norm, (B, T, D) → same; `nn.Identity()` where the blocks end in one.
        head: (B, T, D) → what the model is for, usually logits (B, T, V).
        context: the most tokens that it can see at once; None means no limit of its own.
    """

    def __init__(
        self,
        embedding: nn.Module,
        blocks: Iterable[nn.Module],
        norm: nn.Module,
        head: nn.Module,
        *,
        context: int | None = None,
    ):
        super().__init__()
        self.embedding, self.blocks = embedding, nn.ModuleList(blocks)
        self.norm, self.head, self.context = norm, head, context

    def forward(
        self,
        ids: Tensor,
        caches: Sequence | None = None,
        *,
        mask: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Tensor:
        """Logits of the next token at every position.

        Args:
            ids: (B, T). With caches, the new tokens only.
            caches: one cache for each block, which the call extends; None keeps nothing.
            mask: booleans that broadcast to (B, H, T, S), beside what the blocks allow themselves.
            padding: (B,) how many tokens at the *start* of each row are padding, in a batch of
                prompts of unequal lengths. Positions are counted from the first real token.

        Returns:
            (B, T, V), whatever the head makes.

        Raises:
            ValueError: the tokens, with those in the caches, exceed the context, or the number of
                caches is not that of the blocks.
            IndexError: an id is not in the vocabulary.
        """
        if caches is not None and len(caches) != len(self.blocks):
            raise ValueError(f"{len(caches)} caches for {len(self.blocks)} blocks: one each")
        start = len(caches[0]) if caches else 0
        end = start + ids.shape[-1]
        if self.context is not None and end > self.context:
            raise ValueError(f"{end} tokens do not fit in a context of {self.context}")
        positions = torch.arange(start, end, device=ids.device)  # (T,)
        if padding is not None:
            real = torch.arange(end, device=ids.device) >= padding[:, None]  # (B, S)
            mask = real[:, None, None, :] if mask is None else mask & real[:, None, None, :]
            positions = (positions - padding[:, None]).clamp(min=0)  # (B, T)
        x = self.embedding(ids, positions)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, positions=positions, mask=mask, cache=cache)
        return self.head(self.norm(x))


#: What the settings of a config may be, by the type that is written there.
KINDS = {
    "int": (lambda x: type(x) is int and x > 0, "a whole number above 0"),
    "float": (lambda x: type(x) in (int, float) and 0 < x < math.inf, "a number above 0"),
    "bool": (lambda x: type(x) is bool, "True or False"),
    "Callable": (callable, "a function of a tensor"),
}


@dataclass(frozen=True)
class Config:
    """The sizes that every model has.

    Raises:
        ValueError: a size is not a whole number above 0, another setting is of the wrong kind, or
            heads do not divide.
    """

    vocab: int
    context: int
    d_model: int
    n_layers: int
    n_heads: int
    d_hidden: int

    def __post_init__(self):
        for field in fields(self):
            value, (fits, wanted) = getattr(self, field.name), KINDS[field.type]
            if not fits(value):
                raise ValueError(f"{field.name} is {value!r}: it must be {wanted}")
        if self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads = {self.n_heads} must divide d_model = {self.d_model}, so that every "
                "head gets as many columns"
            )


@dataclass(frozen=True)
class GPTConfig(Config):
    """A GPT: pre-norm, LayerNorm, learned positions, causal."""

    bias: bool = False  #: whether the projections of attention add one
    tied: bool = True  #: whether the embedding's table also makes the logits
    activation: Callable = F.gelu
    norm_eps: float = 1e-5


@dataclass(frozen=True)
class LlamaConfig(Config):
    """A Llama: pre-norm, RMSNorm, RoPE, grouped queries, SwiGLU, causal.

    Raises:
        ValueError: as for `Config`; the key/value heads do not divide the heads, or a head is of
            odd width, which cannot be rotated.
    """

    n_kv_heads: int
    tied: bool = True
    rope_base: float = 10000.0
    norm_eps: float = 1e-6

    def __post_init__(self):
        super().__post_init__()
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads = {self.n_kv_heads} must divide n_heads = {self.n_heads}, so that "
                "every key/value head serves as many query heads"
            )
        if self.d_model // self.n_heads % 2:
            raise ValueError(
                f"heads are {self.d_model // self.n_heads} wide: RoPE turns pairs of features, "
                "so d_model / n_heads must be even"
            )


@dataclass(frozen=True)
class BertConfig(Config):
    """A BERT: post-norm, LayerNorm, learned positions, every token sees every other."""

    activation: Callable = F.gelu
    norm_eps: float = 1e-12


def gpt(config: GPTConfig) -> Transformer:
    """A GPT with fresh weights, scaled so that the residual stream keeps its size (GPT-2)."""
    c = config
    blocks = [
        PreNormBlock(
            SelfAttention(c.d_model, c.n_heads, bias=c.bias, pattern=causal_mask),
            FeedForward(c.d_model, c.d_hidden, c.activation),
            LayerNorm(c.d_model, c.norm_eps),
            LayerNorm(c.d_model, c.norm_eps),
        )
        for _ in range(c.n_layers)
    ]
    with torch.no_grad():
        for block in blocks:  # 2·L numbers of like size are added up
            block.attention.w_o /= math.sqrt(2 * c.n_layers)
            block.mlp.w_2 /= math.sqrt(2 * c.n_layers)
    embedding = PositionedEmbedding(c.vocab, c.context, c.d_model)
    head = TiedHead(embedding) if c.tied else Head(c.d_model, c.vocab)
    return Transformer(embedding, blocks, LayerNorm(c.d_model, c.norm_eps), head, context=c.context)


def llama(config: LlamaConfig) -> Transformer:
    """A Llama with fresh weights; its layers share one table of rotations."""
    c = config
    rotary = Rotary(c.d_model // c.n_heads, c.context, c.rope_base)
    blocks = [
        PreNormBlock(
            SelfAttention(c.d_model, c.n_heads, c.n_kv_heads, pattern=causal_mask, rotary=rotary),
            GatedFeedForward(c.d_model, c.d_hidden),
            RMSNorm(c.d_model, c.norm_eps),
            RMSNorm(c.d_model, c.norm_eps),
        )
        for _ in range(c.n_layers)
    ]
    embedding = TokenEmbedding(c.vocab, c.d_model)
    head = TiedHead(embedding) if c.tied else Head(c.d_model, c.vocab)
    return Transformer(embedding, blocks, RMSNorm(c.d_model, c.norm_eps), head, context=c.context)


def bert(config: BertConfig) -> Transformer:
    """A BERT with fresh weights; it has no head and returns a vector for every token."""
    c = config
    blocks = [
        PostNormBlock(
            SelfAttention(c.d_model, c.n_heads, bias=True),
            FeedForward(c.d_model, c.d_hidden, c.activation),
            LayerNorm(c.d_model, c.norm_eps),
            LayerNorm(c.d_model, c.norm_eps),
        )
        for _ in range(c.n_layers)
    ]
    norm = LayerNorm(c.d_model, c.norm_eps)
    embedding = PositionedEmbedding(c.vocab, c.context, c.d_model, norm)
    return Transformer(embedding, blocks, nn.Identity(), nn.Identity(), context=c.context)


def count_parameters(model: Transformer) -> dict[str, int]:
    """Where the parameters are: numbers learned by each kind of part, and in total.

    Returns:
        embedding, attention, feed-forward, norms, head and total. A tied head counts 0: its numbers
        are the embedding's.
    """
    counts = dict.fromkeys(("embedding", "attention", "feed-forward", "norms", "head"), 0)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            part = "norms"
        elif ".attention." in name:
            part = "attention"
        elif ".mlp." in name:
            part = "feed-forward"
        else:
            part = name.split(".")[0]  # embedding or head
        counts[part] += parameter.numel()
    return {**counts, "total": sum(counts.values())}
