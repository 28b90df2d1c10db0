"""`LanguageModel`: embeddings, blocks, a last norm, and logits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attend.blocks import feed_forward, layer_norm, pre_norm_block
from attend.embeddings import embed
from attend.heads import multi_head_attention
from attend.masks import causal_mask
from coursework.exercise import Call, Exercise, Inspect, Load, Misconception, New, Property, Use

Rng = np.random.Generator

BLOCK = ("gain_1", "bias_1", "gain_2", "bias_2", "w_q", "w_k", "w_v", "w_o")


# The right one --------------------------------------------------------------------------------


class _Block(nn.Module):
    """The block of chapter 07, causal here."""

    def __init__(self, d_model: int, n_heads: int, d_hidden: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        shapes = dict.fromkeys(BLOCK[:4], (d_model,)) | dict.fromkeys(BLOCK[4:], (d_model,) * 2)
        shapes |= {"w_1": (d_model, d_hidden), "b_1": (d_hidden,)}
        shapes |= {"w_2": (d_hidden, d_model), "b_2": (d_model,)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, x: Tensor) -> Tensor:
        mask = causal_mask(x.shape[-2], like=x)
        return pre_norm_block(
            x,
            lambda y: multi_head_attention(
                y, self.w_q, self.w_k, self.w_v, self.w_o, self.n_heads, mask
            ),
            lambda y: feed_forward(y, self.w_1, self.b_1, self.w_2, self.b_2),
            lambda y: layer_norm(y, self.gain_1, self.bias_1),
            lambda y: layer_norm(y, self.gain_2, self.bias_2),
        )


class _LanguageModel(nn.Module):
    """The reference."""

    def __init__(
        self,
        vocab: int,
        context: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        d_hidden: int | None = None,
        tied: bool = True,
    ) -> None:
        super().__init__()
        d_hidden = 4 * d_model if d_hidden is None else d_hidden
        self.tokens = nn.Parameter(torch.zeros(vocab, d_model))
        self.positions = nn.Parameter(torch.zeros(context, d_model))
        self.blocks = nn.ModuleList(_Block(d_model, n_heads, d_hidden) for _ in range(n_layers))
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.w_vocab = None if tied else nn.Parameter(torch.zeros(d_model, vocab))

    def forward(self, ids: Tensor) -> Tensor:
        T = ids.shape[-1]
        if len(self.positions) < T:
            raise ValueError(f"{T} tokens do not fit in a context of {len(self.positions)}")
        x = embed(ids, self.tokens) + self.positions[:T]
        for block in self.blocks:
            x = block(x)
        z = layer_norm(x, self.gain, self.bias)
        return z @ (self.tokens.T if self.w_vocab is None else self.w_vocab)


# Inputs ---------------------------------------------------------------------------------------


def _state(
    rng: Rng,
    vocab: int,
    context: int,
    D: int,
    n_layers: int,
    F: int,
    tied: bool,
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.from_numpy(scale * rng.standard_normal(shape)).to(dtype)

    state = {"tokens": normal(vocab, D), "positions": normal(context, D)}
    for i in range(n_layers):
        for name in ("gain_1", "bias_1", "gain_2", "bias_2", "b_2"):
            state[f"blocks.{i}.{name}"] = normal(D, scale=0.5) + name.startswith("gain")
        for name in ("w_q", "w_k", "w_v", "w_o"):
            state[f"blocks.{i}.{name}"] = normal(D, D, scale=1.5 / D**0.5)
        state[f"blocks.{i}.w_1"] = normal(D, F, scale=1 / D**0.5)
        state[f"blocks.{i}.b_1"] = normal(F, scale=0.5)
        state[f"blocks.{i}.w_2"] = normal(F, D, scale=1 / F**0.5)
    state |= {"gain": normal(D, scale=0.5) + 1, "bias": normal(D, scale=0.5)}
    return state if tied else state | {"w_vocab": normal(D, vocab)}


def _model(
    rng: Rng,
    *,
    vocab: int = 7,
    context: int = 5,
    D: int = 6,
    n_layers: int = 2,
    n_heads: int = 2,
    F: int | None = None,
    tied: bool = True,
    dtype: torch.dtype = torch.float64,
    shapes: tuple[tuple[int, int], ...] = ((1, 3),),
    gradient: bool = False,
    look: bool = False,
    load: bool = True,
    twice: bool = False,
    too_long: int = 0,
) -> Call:
    """A model made, given a state, and called with ids of some shapes."""

    def ids(B: int, T: int) -> tuple[Tensor]:
        return (torch.from_numpy(rng.integers(vocab, size=(B, T))),)

    args: tuple[Any, ...] = (vocab, context, D, n_layers, n_heads)
    kwargs: dict[str, Any] = {}
    if F is not None:
        kwargs["d_hidden"] = F
    if not tied or rng.random() < 0.5:
        kwargs["tied"] = tied

    def state() -> dict[str, Tensor]:
        return _state(rng, vocab, context, D, n_layers, F or 4 * D, tied, dtype)

    def steps() -> Iterator[Any]:
        if look:
            yield Inspect()
        if load:
            yield Load(state())
        if gradient:
            yield Use("train")
        if too_long:
            yield Use("__call__", ids(2, context + too_long))
        for shape in shapes:
            yield Use("__call__", ids(*shape), gradient=gradient)
        if twice:
            again = ids(*shapes[-1])
            yield Use("__call__", again)
            yield New(args, kwargs)
            yield Load(state(), on=1)
            yield Use("__call__", again)

    return Call(args, kwargs, steps=tuple(steps()))


def _names(rng: Rng) -> tuple[Call, ...]:
    look = {"look": True, "load": False, "shapes": ()}
    return (
        _model(rng, **look),
        _model(rng, vocab=11, context=3, D=4, n_layers=1, F=7, tied=False, **look),
        _model(rng, vocab=5, context=8, D=6, n_layers=3, n_heads=3, F=5, **look),
        _model(rng, vocab=3, context=7, D=10, n_heads=5, tied=False, **look),
    )


def _untied(rng: Rng) -> tuple[Call, ...]:
    return (
        _model(rng, n_layers=1, tied=False, shapes=((1, 1), (1, 3), (2, 5))),
        _model(rng, vocab=11, context=7, D=4, F=7, tied=False, shapes=((3, 4), (1, 7))),
        _model(rng, vocab=5, context=8, n_layers=3, n_heads=3, tied=False, shapes=((2, 6),)),
        _model(rng, vocab=13, context=11, D=10, n_heads=5, F=3, tied=False, shapes=((5, 3),)),
    )


def _tied(rng: Rng) -> tuple[Call, ...]:
    return (
        _model(rng, n_layers=1, shapes=((1, 2), (2, 4))),
        _model(rng, vocab=11, context=7, D=4, F=7, shapes=((3, 4), (1, 7))),
        _model(rng, vocab=5, context=8, n_layers=3, n_heads=3, shapes=((2, 6),)),
        _model(rng, vocab=13, context=11, D=10, n_heads=5, F=3, shapes=((5, 3),)),
    )


def _for_gradients(rng: Rng) -> tuple[Call, ...]:
    return (
        _model(rng, n_layers=1, shapes=((1, 3),), gradient=True),
        _model(rng, vocab=5, context=4, D=4, tied=False, shapes=((2, 4),), gradient=True),
        _model(rng, vocab=11, context=7, D=6, n_heads=3, F=5, shapes=((3, 2),), gradient=True),
    )


def _edges(rng: Rng) -> tuple[Call, ...]:
    return (
        _model(rng, shapes=((2, 5),), dtype=torch.float32),
        _model(rng, vocab=11, D=4, tied=False, shapes=((1, 3),), dtype=torch.float32),
        _model(rng, vocab=5, context=7, shapes=((2, 3),), twice=True),
        _model(rng, context=3, n_layers=1, tied=False, shapes=((3, 3),), twice=True),
    )


def _too_long(rng: Rng) -> tuple[Call, ...]:
    return (
        _model(rng, context=3, too_long=1, shapes=((2, 3),)),
        _model(rng, context=5, D=4, tied=False, too_long=3, shapes=((1, 5),)),
        _model(rng, context=1, n_layers=1, too_long=1, shapes=((2, 1),)),
        _model(rng, vocab=5, context=4, too_long=9, shapes=((1, 2),)),
    )


def _probes(rng: Rng) -> tuple[Call, ...]:
    return (
        _model(rng, n_layers=1, shapes=((2, 3),)),
        _model(rng, n_layers=1, tied=False, shapes=((1, 4),)),
        _model(rng, vocab=11, context=9, n_layers=2, n_heads=3, shapes=((2, 5),)),
        _model(rng, vocab=11, context=9, n_layers=2, n_heads=3, tied=False, shapes=((1, 6),)),
        _model(rng, vocab=5, context=4, D=4, n_layers=3, tied=False, shapes=((3, 4),)),
        _model(rng, vocab=5, context=4, D=4, n_layers=3, shapes=((3, 4),)),
    )


# What learners write. Each stands on its own feet: what they share is written out once. -----------


class _WrittenBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_hidden):
        super().__init__()
        self.n_heads = n_heads
        for name in ("gain_1", "bias_1", "gain_2", "bias_2", "b_2"):
            setattr(self, name, nn.Parameter(torch.zeros(d_model)))
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Parameter(torch.zeros(d_model, d_model)))
        self.w_1 = nn.Parameter(torch.zeros(d_model, d_hidden))
        self.b_1 = nn.Parameter(torch.zeros(d_hidden))
        self.w_2 = nn.Parameter(torch.zeros(d_hidden, d_model))

    def forward(self, x, mask):
        D = x.shape[-1]
        x = x + self.attention(nn.functional.layer_norm(x, (D,), self.gain_1, self.bias_1), mask)
        y = nn.functional.layer_norm(x, (D,), self.gain_2, self.bias_2)
        return x + nn.functional.gelu(y @ self.w_1 + self.b_1) @ self.w_2 + self.b_2

    def attention(self, y, mask):
        B, T, D = y.shape
        q, k, v = (
            (y @ w).view(B, T, self.n_heads, -1).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        scores = q @ k.mT / (D // self.n_heads) ** 0.5
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
        return (weights @ v).transpose(1, 2).reshape(B, T, D) @ self.w_o


class _Written(nn.Module):
    """All of it, without a mistake; subclasses make one each."""

    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__()
        self.context, self.tied = context, tied
        self.tokens = nn.Parameter(torch.zeros(vocab, d_model))
        self.positions = nn.Parameter(torch.zeros(context, d_model))
        self.blocks = self.stack(n_layers, d_model, n_heads, d_hidden or 4 * d_model)
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        if not tied:
            self.w_vocab = nn.Parameter(torch.zeros(d_model, vocab))

    def stack(self, n_layers, d_model, n_heads, d_hidden):
        return nn.ModuleList(_WrittenBlock(d_model, n_heads, d_hidden) for _ in range(n_layers))

    def begin(self, ids):
        return self.tokens[ids] + self.positions[: ids.shape[1]]

    def mask(self, T):
        return torch.ones(T, T, dtype=torch.bool).tril()

    def through(self, x, mask):
        for block in self.blocks:
            x = block(x, mask)
        return x

    def norm(self, x):
        return nn.functional.layer_norm(x, (x.shape[-1],), self.gain, self.bias)

    def head(self, z):
        return z @ (self.tokens.T if self.tied else self.w_vocab)

    def forward(self, ids):
        if ids.shape[1] > self.context:
            raise ValueError("too long")
        x = self.through(self.begin(ids), self.mask(ids.shape[1]))
        return self.head(self.norm(x))


class _NoFinalNorm(_Written):
    def norm(self, x):
        return x


class _NormFirst(_Written):
    def begin(self, ids):
        x = self.tokens[ids] + self.positions[: ids.shape[1]]
        return nn.functional.layer_norm(x, (x.shape[-1],), self.gain, self.bias)

    def norm(self, x):
        return x


class _NormWithoutItsGain(_Written):
    def norm(self, x):
        return nn.functional.layer_norm(x, (x.shape[-1],))


class _TiedCopy(_Written):
    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__(vocab, context, d_model, n_layers, n_heads, d_hidden, tied)
        self.copy = self.tokens.detach().clone().T

    def head(self, z):
        return z @ (self.copy.to(z.dtype) if self.tied else self.w_vocab)


class _TwoTables(_Written):
    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__(vocab, context, d_model, n_layers, n_heads, d_hidden, False)
        if tied:
            self.w_vocab = nn.Parameter(self.tokens.detach().clone().T)


class _OneTableTwoNames(_Written):
    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__(vocab, context, d_model, n_layers, n_heads, d_hidden, tied)
        if tied:
            self.w_vocab = self.tokens

    def head(self, z):
        return z @ (self.w_vocab.T if self.tied else self.w_vocab)


class _AlwaysTied(_Written):
    def head(self, z):
        return z @ self.tokens.T


class _NoMask(_Written):
    def mask(self, T):
        return torch.ones(T, T, dtype=torch.bool)


class _MaskInverted(_Written):
    def mask(self, T):
        return torch.ones(T, T, dtype=torch.bool).triu()


class _NoPositions(_Written):
    def begin(self, ids):
        return self.tokens[ids]


class _PositionsFromTheEnd(_Written):
    def begin(self, ids):
        return self.tokens[ids] + self.positions[-ids.shape[1] :]


class _OnePosition(_Written):
    def begin(self, ids):
        return self.tokens[ids] + self.positions[ids.shape[1] - 1]


class _PositionsMultiplied(_Written):
    def begin(self, ids):
        return self.tokens[ids] * self.positions[: ids.shape[1]]


class _TokensScaled(_Written):
    def begin(self, ids):
        d_model = self.tokens.shape[1]
        return self.tokens[ids] * d_model**0.5 + self.positions[: ids.shape[1]]


class _PositionsInEveryBlock(_Written):
    def through(self, x, mask):
        for i, block in enumerate(self.blocks):
            x = block(x + (self.positions[: x.shape[1]] if i else 0), mask)
        return x


class _OneBlock(_Written):
    def stack(self, n_layers, d_model, n_heads, d_hidden):
        block = _WrittenBlock(d_model, n_heads, d_hidden)
        return nn.ModuleList([block] * n_layers)


class _OnlyOneLayer(_Written):
    def through(self, x, mask):
        return self.blocks[0](x, mask)


class _EachFromTheStart(_Written):
    def through(self, x, mask):
        z = x
        for block in self.blocks:
            z = block(x, mask)
        return z


class _InAList(_Written):
    def stack(self, n_layers, d_model, n_heads, d_hidden):
        return [_WrittenBlock(d_model, n_heads, d_hidden) for _ in range(n_layers)]


class _Probabilities(_Written):
    def head(self, z):
        return torch.softmax(z @ (self.tokens.T if self.tied else self.w_vocab), dim=-1)


class _LastPosition(_Written):
    def forward(self, ids):
        if ids.shape[1] > self.context:
            raise ValueError("too long")
        x = self.through(self.begin(ids), self.mask(ids.shape[1]))
        return self.head(self.norm(x[:, -1]))


class _CutsLongTexts(_Written):
    def forward(self, ids):
        ids = ids[:, -self.context :]
        x = self.through(self.begin(ids), self.mask(ids.shape[1]))
        return self.head(self.norm(x))


class _WrapsPositions(_Written):
    def begin(self, ids):
        return self.tokens[ids] + self.positions[torch.arange(ids.shape[1]) % self.context]

    def forward(self, ids):
        x = self.through(self.begin(ids), self.mask(ids.shape[1]))
        return self.head(self.norm(x))


class _IndexError(_Written):
    def begin(self, ids):
        return self.tokens[ids] + self.positions[torch.arange(ids.shape[1])]

    def forward(self, ids):
        x = self.through(self.begin(ids), self.mask(ids.shape[1]))
        return self.head(self.norm(x))


LANGUAGE_MODEL = Exercise(
    chapter=8,
    signature=(
        "class LanguageModel(vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True)"
    ),
    task="""\
The whole model: token and position embeddings, `n_layers` blocks, a last LayerNorm, and logits.
Write an `nn.Module`.

- `forward(ids)` maps int64 ids (B, T) to logits (B, T, V), one row for the next token at each
  position. There is no softmax at the end. For T > `context` it raises a `ValueError`.
- A token's vector is its row of `tokens` plus the row of `positions` of its place, 0 … T − 1.
- The blocks are those of chapter 07: pre-norm, LayerNorm with eps 1e-5, multi-head attention scaled
  by 1/√K, exact GELU, no dropout. All are **causal**. The notebook has the block for you;
  `d_hidden` None means 4 · `d_model`. `n_heads` divides `d_model`.
- After the last block comes one more LayerNorm (eps 1e-5) with `gain` and `bias`.
- If `tied`, the logits are z @ tokens.T, by the *same* parameter that embeds. If not, they are
  z @ w_vocab, by a parameter of their own.
- The state dict has exactly these names: `tokens` (V, D), `positions` (context, D), for each block
  i `blocks.{i}.` and the names of chapter 07 (`gain_1`, `bias_1`, `gain_2`, `bias_2`: (D,); `w_q`,
  `w_k`, `w_v`, `w_o`: (D, D); `w_1` (D, F), `b_1` (F,), `w_2` (F, D), `b_2` (D,)), `gain`, `bias`
  (D,), and `w_vocab` (D, V) only if not `tied`. V is `vocab`, D `d_model`, F `d_hidden`. All are
  parameters that are trained, and no two share their memory.
- How you initialise is up to you: the check loads a state, in float64 or float32, and calls the
  model in that precision. Gradients must reach all parameters.""",
    reference=_LanguageModel,
    properties=(
        Property("its state has the names and shapes asked for", 1, _names),
        Property("the logits, with a matrix of their own", 3, _untied),
        Property("the logits, tied to the embedding", 1, _tied),
        Property("it can be differentiated", 1, _for_gradients),
        Property("float32, two calls and two models", 1, _edges, edge=True),
        Property("a text beyond the context is refused", 1, _too_long, edge=True),
    ),
    misconceptions=(
        Misconception(
            "no final norm",
            "The stream goes into the head as the last block left it. In a pre-norm stack nobody "
            "has normed it: it has grown with every block. One more LayerNorm, with `gain` and "
            "`bias`, stands before the head.",
            _NoFinalNorm,
            symptom="your logits are of another size",
        ),
        Misconception(
            "norms before the blocks",
            "You norm the embeddings, and not what comes out of the last block. `gain` and `bias` "
            "belong to the norm before the head.",
            _NormFirst,
            symptom="the norm stands at the wrong end",
        ),
        Misconception(
            "leaves the last norm without its gain",
            "The last norm brings each token to mean 0 and variance 1, and stops there: `gain` and "
            "`bias` are never used.",
            _NormWithoutItsGain,
            symptom="gain and bias make no difference",
        ),
        Misconception(
            "ties by a copy",
            "The head uses a *copy* of the table, made when the model was built. It does not "
            "follow when the table learns, or is loaded. Use `self.tokens` itself, in `forward`.",
            _TiedCopy,
            symptom="the head does not know the table that was loaded",
        ),
        Misconception(
            "has two tables though they are tied",
            "There is a `w_vocab` beside `tokens`, equal at the start and trained apart. Tied "
            "means that there is *one* parameter: no `w_vocab`, and `self.tokens.T` in `forward`.",
            _TwoTables,
            symptom="a tied model has a second table",
        ),
        Misconception(
            "gives one table two names",
            "`w_vocab` and `tokens` are one parameter under two names, so that the state holds it "
            "twice. If tied, there is no `w_vocab`: use `self.tokens.T` in `forward`.",
            _OneTableTwoNames,
            symptom="a tied model has the table twice in its state",
        ),
        Misconception(
            "is always tied",
            "`w_vocab` is there, and the logits do not use it: they come from `tokens` even if the "
            "model is not tied.",
            _AlwaysTied,
            symptom="w_vocab makes no difference",
        ),
        Misconception(
            "no causal mask",
            "Every token sees those after it. Such a model reads the answer off its input: in "
            "training its loss falls towards 0, and it cannot write a word.",
            _NoMask,
            symptom="the logits at a position depend on later tokens",
        ),
        Misconception(
            "inverts the mask",
            "Every token sees itself and those *after* it. True means *may attend*: the lower "
            "triangle.",
            _MaskInverted,
            symptom="the logits at a position do not depend on earlier tokens",
        ),
        Misconception(
            "positions missing",
            "The position embeddings are never added. Attention itself does not know the order: to "
            "the last token, what came before it is a bag of words.",
            _NoPositions,
            symptom="positions make no difference",
        ),
        Misconception(
            "counts positions from the end",
            "You take the *last* T rows of `positions`. They fit only where T = context; a token "
            "must have the same place whatever comes after it. Take the first T.",
            _PositionsFromTheEnd,
            symptom="a short text gets the wrong positions",
        ),
        Misconception(
            "gives all tokens one position",
            "You take a single row of `positions` for the whole text, and it is broadcast. Each "
            "place has its own: a slice of T rows.",
            _OnePosition,
            symptom="all tokens are at the same place",
        ),
        Misconception(
            "multiplies by the positions",
            "Token and position vectors are *added*.",
            _PositionsMultiplied,
            symptom="a token's vector is scaled by its position",
        ),
        Misconception(
            "scales the token vectors",
            "You multiply the tokens' vectors by √d_model, as the first transformer did. Asked for "
            "is the plain sum: with learned positions there is nothing to balance.",
            _TokensScaled,
            symptom="the tokens' vectors are too long",
        ),
        Misconception(
            "adds the positions in every block",
            "The positions are added before each block. Once, at the start, is enough: the "
            "stream carries them on.",
            _PositionsInEveryBlock,
            symptom="positions count once for each block",
        ),
        Misconception(
            "repeats one block",
            "`[block] * n` holds the same block n times, with one set of parameters. Make a new "
            "one for each layer.",
            _OneBlock,
            symptom="all layers are one and the same",
        ),
        Misconception(
            "uses the first block only",
            "The stream passes through the first block and goes straight to the norm. It passes "
            "through all of them, one after the other.",
            _OnlyOneLayer,
            symptom="later layers make no difference",
        ),
        Misconception(
            "feeds every block the embeddings",
            "Each block reads the embeddings, and only the last one's output is used. A block "
            "reads what the one before it has written: x = block(x).",
            _EachFromTheStart,
            symptom="earlier layers make no difference",
        ),
        Misconception(
            "keeps the blocks in a plain list",
            "A plain list hides the blocks from PyTorch: their parameters are in no state dict and "
            "no optimiser. Use `nn.ModuleList`.",
            _InAList,
            symptom="the blocks are missing from the state",
        ),
        Misconception(
            "returns probabilities",
            "There is a softmax at the end. The loss takes one itself; the second would leave it "
            "hardly anything to learn from. Return logits.",
            _Probabilities,
            symptom="your rows sum to 1",
        ),
        Misconception(
            "returns the last position only",
            "You return the logits of the last position. Training needs a row at *every* position: "
            "(B, T, V).",
            _LastPosition,
            symptom="there are logits for one position only",
        ),
        Misconception(
            "cuts long texts",
            "A text beyond the context is shortened without a word, and the caller gets fewer rows "
            "than tokens. Raise a ValueError; whoever generates does the cropping.",
            _CutsLongTexts,
            symptom="a text beyond the context is taken",
        ),
        Misconception(
            "begins the positions again",
            "Beyond the context you begin again with position 0, so that two tokens have the same "
            "place. The model was never trained for that: raise a ValueError.",
            _WrapsPositions,
            symptom="a text beyond the context is taken",
        ),
        Misconception(
            "lets the table say no",
            "A text that is too long fails where the positions are looked up, with an IndexError "
            "that tells the caller nothing. Look at T first, and raise a ValueError.",
            _IndexError,
            symptom="a text beyond the context raises the wrong error",
        ),
    ),
    hints=(
        "Write the path of one batch with its shapes: (B, T), (B, T, D), again and again (B, T, "
        "D), (B, T, V). What is learned at each arrow? These are your parameters.",
        "In `__init__`: two tables, an `nn.ModuleList` of blocks, gain and bias, and a matrix "
        "only if not tied. In `forward`: look at T; add rows of the two tables; make the causal "
        "mask once; run through the blocks; norm; multiply.",
        "`x = self.tokens[ids] + self.positions[:T]`; `for block in self.blocks: x = block(x, "
        "mask)`; `z = F.layer_norm(x, self.gain.shape, self.gain, self.bias)`; the head is "
        "`self.tokens.T` or `self.w_vocab`. A parameter that is not there: "
        '`self.register_parameter("w_vocab", None)`, or simply do not set it.',
    ),
    minutes=25,
    returns=("the logits",),
    probes=_probes,
)
