"""`generate`: a text, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attend.sampling import generate, next_token_distribution
from coursework.compare import Difference
from coursework.exercise import Call, Event, Exercise, Misconception, Property, Seed, Stub

Rng = np.random.Generator


class _Model:
    """A causal model of random numbers, whose opinion depends on all it is shown and on where."""

    def __init__(self, seed: int, vocab: int, limit: int | None, training: bool) -> None:
        rng = np.random.default_rng(seed)
        self.tokens = torch.from_numpy(rng.standard_normal((vocab, vocab)))
        self.places = torch.from_numpy(rng.standard_normal((64, vocab)))
        self.limit, self.training = limit, training

    def __call__(self, ids: Tensor) -> Tensor:
        T = ids.shape[1]
        if self.limit is not None and self.limit < T:
            raise ValueError(f"{T} tokens do not fit in a context of {self.limit}")
        seen = torch.cumsum(self.tokens[ids], dim=1)  # (B, T, V)
        return seen / torch.arange(1, T + 1)[:, None] ** 0.5 + self.places[:T]

    def train(self, mode: bool = True) -> None:
        self.training = bool(mode)

    def eval(self) -> None:
        self.training = False


def _call(
    rng: Rng,
    B: int,
    T: int,
    n_new: int,
    *,
    vocab: int = 7,
    context: int | None = None,
    limited: bool = False,
    training: bool = False,
    **how: Any,
) -> Call:
    seed = int(rng.integers(10**6))
    limit = context if limited else None
    model = Stub(
        lambda: _Model(seed, vocab, limit, training),
        "a small model",
        methods=("__call__", "train", "eval"),
        attributes=("training",),
        counted=("__call__", "train", "eval"),
    )
    ids = torch.from_numpy(rng.integers(vocab, size=(B, T)))
    kwargs = {"temperature": 0.0, **how}
    if context is not None:
        kwargs["context"] = context
    return Call((model, ids, n_new), kwargs)


def _greedy(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 2),
        _call(rng, 1, 1, 5, vocab=5),
        _call(rng, 2, 4, 3),
        _call(rng, 3, 5, 7, vocab=11),
        _call(rng, 5, 2, 9, vocab=13),
        _call(rng, 2, 7, 1),
        _call(rng, 2, 3, 6, top_k=3, top_p=0.5),
    )


def _long(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 4, context=2),
        _call(rng, 2, 5, 3, context=4),
        _call(rng, 1, 2, 9, vocab=11, context=5),
        _call(rng, 3, 7, 5, context=3),
        _call(rng, 2, 4, 6, context=1),
        _call(rng, 2, 3, 4, context=50),
        _call(rng, 2, 9, 4, context=5, limited=True),
        _call(rng, 1, 2, 8, vocab=5, context=4, limited=True),
    )


def _modes(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 2, training=True),
        _call(rng, 2, 4, 3),
        _call(rng, 2, 3, 5, training=True, context=4),
        _call(rng, 3, 2, 4, vocab=5),
    )


def _nothing_new(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 0),
        _call(rng, 2, 5, 0, vocab=5),
        _call(rng, 3, 4, 0, context=2),
        _call(rng, 2, 1, 0),
    )


def _drawn(rng: Rng) -> tuple[Call, ...]:
    one, other = (Seed(int(rng.integers(2**31)), of_torch=True) for _ in range(2))
    first = _call(rng, 500, 2, 2, temperature=0.5, generator=one)
    hows: tuple[dict[str, Any], ...] = (
        {"temperature": 1.0},
        {"temperature": 1.5, "top_k": 3},
        {"temperature": 0.8, "top_p": 0.7},
        {"temperature": 2.0, "top_k": 4, "top_p": 0.8},
    )
    return (
        first,
        first,
        Call(first.args, {**first.kwargs, "generator": other}),
        *(_call(rng, 600, 1, 2, vocab=5, generator=one, **how) for how in hows),
    )


def _is_drawn(call: Call, text: Any) -> str | Difference | None:
    """Whether the tokens of all rows together come as often as their probabilities say."""
    model, ids, n_new = call.args
    B, T = ids.shape
    if not isinstance(text, Tensor) or text.shape != (B, T + n_new) or text.dtype != torch.int64:
        return "what it returns is not int64 of the shape (B, T + n_new)"
    if not torch.equal(text[:, :T], ids):
        return "the text does not begin with the prompt"
    opinion, drawn = model.make(), ("temperature", "top_k", "top_p")
    how = {name: value for name, value in call.kwargs.items() if name in drawn}
    for end in range(T, T + n_new):
        p = next_token_distribution(opinion(text[:, :end])[:, -1], **how)
        if text[:, end].min() < 0 or text[:, end].max() >= p.shape[1]:
            return "there is an id that is no token's"
        came = torch.nn.functional.one_hot(text[:, end], p.shape[1])
        if torch.any(came[p == 0]):
            return "it draws a token that top_k or top_p has ruled out"
        # Six standard deviations, and some draws: chance does not go that far in a billion checks.
        chance = 6 * (p * (1 - p)).sum(0).sqrt() + 14
        far = (came.sum(0) - p.sum(0)).abs() - chance
        if torch.any(far > 0):
            v = int(far.argmax())
            return Difference(
                "value",
                "tokens do not come as often as their probabilities say",
                f"token {v} came {int(came[:, v].sum())} times in {B} draws; about "
                f"{float(p[:, v].sum()):.0f} are right.",
            )
    return None


def _obeys_the_generator(made: Sequence[Call], texts: Sequence[Any]) -> str | None:
    first, again, other, *_ = texts
    if not torch.equal(first, again):
        return "two generators of the same seed give two texts"
    if torch.equal(first, other):
        return "another generator gives the same text"
    return None


def _probes(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 2, 5, 6, vocab=11),
        _call(rng, 3, 4, 5, vocab=13, training=True),
        _call(rng, 2, 6, 7, vocab=11, context=3),
        _call(rng, 3, 9, 4, vocab=13, context=6),
        _call(rng, 2, 2, 9, vocab=11, context=4, training=True),
    )


def _fed(events: tuple[Event, ...]) -> list[Tensor]:
    return [e.args[0] for e in events if e.method == "__call__" and e.args]


def _is_shown_the_end(call: Call, events: tuple[Event, ...]) -> str | None:
    """Whether each call was shown the last tokens of the text so far."""
    _, ids, n_new = call.args
    context = call.kwargs.get("context")
    fed = _fed(events)
    if len(fed) != n_new:
        return "the model is not asked once for each new token"
    for i, shown in enumerate(fed):
        if not isinstance(shown, Tensor) or shown.ndim != 2 or len(shown) != len(ids):
            return "the model is not shown a batch of texts (B, T)"
        length = ids.shape[1] + i
        expected = length if context is None else min(length, context)
        if shown.shape[1] > expected:
            return "the model is shown more than the last context tokens"
        if shown.shape[1] < expected:
            return "the model is shown less than it could see"
    return None


def _leaves_modes_alone(call: Call, events: tuple[Event, ...]) -> str | None:
    if any(e.gradients for e in events if e.method == "__call__"):
        return "the model is called with gradients on"
    training = before = call.args[0].make().training
    for e in events:
        if e.method == "eval":
            training = False
        elif e.method == "train":
            training = bool([*e.args, *e.kwargs.values(), True][0])
    if training != before:
        return "the model is not in the mode that it was in"
    return None


def _not_cropped(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids)[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _cropped_at_the_wrong_end(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids[:, :context])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _text_cropped(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        ids = ids if context is None else ids[:, -context:]
        with torch.no_grad():
            logits = model(ids)[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _first_position(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, 0]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _second_to_last(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -2:][:, 0]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _end_of_the_prompt(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    T = ids.shape[1] if context is None else min(ids.shape[1], context)
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, T - 1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _mean_of_positions(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:]).mean(1)
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _gradients_on(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _prompt_lost(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    prompt = ids.shape[1]
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids[:, prompt:]


def _only_the_new_token(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    shown = ids if context is None else ids[:, -context:]
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(shown)[:, -1]
        shown = logits.argmax(-1, keepdim=True)
        ids = torch.cat([ids, shown], dim=1)
    return ids


def _only_the_prompt(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    prompt = ids if context is None else ids[:, -context:]
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(prompt)[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _up_to_n_new(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    while ids.shape[1] < n_new:
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _one_too_few(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new - 1):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _one_too_many(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new + 1):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _in_front(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([logits.argmax(-1, keepdim=True), ids], dim=1)
    return ids


def _one_token_for_all_rows(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        new = logits[0].argmax().expand(len(ids), 1)
        ids = torch.cat([ids, new], dim=1)
    return ids


def _left_in_evaluation(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    model.eval()
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _left_in_training(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    model.eval()
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    model.train()
    return ids


def _least_likely(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmin(-1, keepdim=True)], dim=1)
    return ids


def _as_floats(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    said = torch.zeros(ids.shape[0], ids.shape[1] + n_new)
    said[:, : ids.shape[1]] = ids
    for t in range(ids.shape[1], said.shape[1]):
        shown = said[:, :t].long()
        with torch.no_grad():
            logits = model(shown if context is None else shown[:, -context:])[:, -1]
        said[:, t] = logits.argmax(-1)
    return said


def _never_draws(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids


def _draws_from_the_logits(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        new = logits.argmax(-1, keepdim=True)
        if temperature > 0:
            new = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        ids = torch.cat([ids, new], dim=1)
    return ids


def _cuts_nothing_off(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        new = logits.argmax(-1, keepdim=True)
        if temperature > 0:
            p = (logits / temperature).softmax(-1)
            new = torch.multinomial(p, 1, generator=generator)
        ids = torch.cat([ids, new], dim=1)
    return ids


GENERATE = Exercise(
    chapter=8,
    signature=(
        "generate(model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, "
        "generator=None) -> (B, T + n_new)"
    ),
    task="""\
Let a model speak: ask it for the next token, put the token at the end of the text, ask again.

- `model`, called as `model(ids)`, maps int64 ids (B, T) to logits (B, T, V), float. What you are
  handed here has its call, `train(mode)`, `eval()` and `training`, and nothing else. `ids` are
  prompts (B, T), T > 0, all of one length.
- Ask it once for each of the `n_new` tokens. Show it the text so far, or, where `context` is a
  number, the last `context` tokens of it. The logits at the **last** position are its opinion on
  the next token.
- The next token of each row is drawn from `next_token_distribution` of these logits, with
  `temperature`, `top_k` and `top_p`; `generator` is a `torch.Generator` that the draw comes from.
  Any way of drawing will do, if each row is drawn on its own and the same seed gives the same
  text. At `temperature` 0 it is the most likely token, and nothing is drawn. PyTorch's global
  random state stays as it is.
- Return int64 (B, T + n_new): the prompt, unchanged, and the new tokens behind it. For `n_new` = 0
  that is a tensor equal to `ids`.
- The model is called with gradients off. Afterwards everything is as it was: the caller's gradient
  mode, and whether the model is in training. Leave `ids` as it is.""",
    reference=generate,
    properties=(
        Property("it appends the most likely token, again and again", 2, _greedy),
        Property(
            "the model sees the last context tokens, one call a token",
            1,
            _long,
            watch=_is_shown_the_end,
        ),
        Property(
            "gradients are off, and the modes stay as they were",
            1,
            _modes,
            watch=_leaves_modes_alone,
        ),
        Property(
            "above temperature 0 the generator draws from the distribution",
            2,
            _drawn,
            edge=True,
            compare=_is_drawn,
            together=_obeys_the_generator,
        ),
        Property("nothing new is the prompt", 1, _nothing_new, edge=True),
    ),
    misconceptions=(
        Misconception(
            "does not crop",
            "You show the model the whole text, whatever `context` says. A model with learned "
            "positions has none beyond its context: it fails there, or was never trained for it.",
            _not_cropped,
            symptom="the model is shown more than the last context tokens",
        ),
        Misconception(
            "shows the beginning",
            "You show the model the *first* `context` tokens. Once the text is longer, it sees the "
            "same tokens for ever and repeats itself. Show it the last ones.",
            _cropped_at_the_wrong_end,
            symptom="a long text never moves on",
        ),
        Misconception(
            "crops the text itself",
            "You shorten the text to `context` tokens, and with it what you return. Shorten what "
            "the model is *shown*; the text keeps its beginning.",
            _text_cropped,
            symptom="the beginning of a long text is gone",
        ),
        Misconception(
            "takes the first position",
            "You take the logits at position 0. A causal model knows nothing there but the first "
            "token: the opinion on what comes next stands at the last position.",
            _first_position,
            symptom="the new tokens do not depend on the whole text",
        ),
        Misconception(
            "takes the last position but one",
            "The logits at the last position but one are an opinion on the last token, which "
            "you have already. Take the last position.",
            _second_to_last,
            symptom="the new tokens ignore the last one",
        ),
        Misconception(
            "stays at the end of the prompt",
            "You take the logits at the end of the prompt every time. The end moves: it is "
            "position −1 of what the model was just shown.",
            _end_of_the_prompt,
            symptom="the same token comes again and again",
        ),
        Misconception(
            "averages over the positions",
            "You average the logits over all positions. Each of them is about another token, and "
            "only the last is about the one that comes.",
            _mean_of_positions,
            symptom="your logits are a mixture of all positions",
        ),
        Misconception(
            "records gradients",
            "The tokens are right, but PyTorch keeps everything for a backward pass that never "
            "comes: memory grows with every token. Ask within `torch.no_grad()`.",
            _gradients_on,
            symptom="the model is called with gradients on",
        ),
        Misconception(
            "loses the prompt",
            "You return the new tokens only. The prompt comes first, then they: (B, T + n_new).",
            _prompt_lost,
            symptom="the prompt is missing from the result",
        ),
        Misconception(
            "shows only the new token",
            "After the first step you show the model nothing but the token it just said. It has no "
            "memory of its own (that is chapter 09): it must read the text again each time.",
            _only_the_new_token,
            symptom="the model is shown less than it could see",
        ),
        Misconception(
            "shows only the prompt",
            "You ask about the prompt again and again. Each new token belongs to the text that the "
            "model is shown next.",
            _only_the_prompt,
            symptom="the same token comes again and again",
        ),
        Misconception(
            "takes n_new for the length of the whole",
            "You stop when the text has `n_new` tokens. `n_new` counts the tokens to add, whatever "
            "the length of the prompt.",
            _up_to_n_new,
            symptom="a long prompt gets fewer new tokens",
        ),
        Misconception(
            "stops one early",
            "There is one token too few: `range(n_new)` runs n_new times.",
            _one_too_few,
            symptom="the last token is missing",
        ),
        Misconception(
            "goes on for one more",
            "There is one token too many: `range(n_new)` runs n_new times.",
            _one_too_many,
            symptom="there is one token too many",
        ),
        Misconception(
            "puts new tokens in front",
            "The new token goes to the *end* of the text: `torch.cat([ids, new], dim=1)`.",
            _in_front,
            symptom="the text grows at its beginning",
        ),
        Misconception(
            "gives all rows the token of the first",
            "Every row gets the token of the first. Each row of the batch is a text of its own: "
            "take the largest along the last axis.",
            _one_token_for_all_rows,
            symptom="all rows of a batch say the same",
        ),
        Misconception(
            "leaves the model in evaluation",
            "You call `model.eval()`, and there it stays. Somebody who speaks in the middle of "
            "training then goes on training without dropout. Remember `model.training`, and put "
            "it back.",
            _left_in_evaluation,
            symptom="the model is not in the mode that it was in",
        ),
        Misconception(
            "leaves the model in training",
            "You call `model.train()` at the end, also for a model that was in evaluation. Put "
            "back what was there: `model.train(was_training)`.",
            _left_in_training,
            symptom="the model is not in the mode that it was in",
        ),
        Misconception(
            "takes the least likely token",
            "This is the token with the *smallest* logit. At temperature 0 the largest is taken.",
            _least_likely,
            symptom="the least likely token is chosen",
        ),
        Misconception(
            "returns floats",
            "The numbers are right, but they are floats, because they were put into "
            "`torch.zeros(...)`. Ids are int64.",
            _as_floats,
            symptom="your ids are not whole numbers",
        ),
        Misconception(
            "never draws",
            "You take the most likely token at every temperature. That is right at 0 only: above "
            "it, draw with `torch.multinomial(p, 1, generator=generator)`, from the p of your "
            "`next_token_distribution`.",
            _never_draws,
            symptom="the text is the same whatever the temperature",
        ),
        Misconception(
            "draws from the bare logits",
            "You draw from the softmax of the logits. `temperature`, `top_k` and `top_p` have to "
            "go into `next_token_distribution` first.",
            _draws_from_the_logits,
            symptom="temperature, top_k and top_p change nothing",
        ),
        Misconception(
            "cuts nothing off",
            "You divide by the temperature and draw from all tokens. `top_k` and `top_p` have to "
            "go into `next_token_distribution` as well.",
            _cuts_nothing_off,
            symptom="top_k and top_p change nothing",
        ),
    ),
    hints=(
        "Write the loop for a model that you play yourself, on paper: what does it see in the "
        "first round, what in the second? Where in its answer do you look?",
        "A loop of n_new rounds: crop a *copy* of the text to the last `context` tokens; call the "
        "model within `torch.no_grad()`; take the last position, (B, V); choose a token for each "
        "row; concatenate it along axis 1. If you change the model's mode, put it back.",
        "`shown = ids if context is None else ids[:, -context:]`, `logits = model(shown)[:, -1]`; "
        "at temperature 0 `logits.argmax(-1, keepdim=True)`, otherwise `torch.multinomial(p, 1, "
        "generator=generator)`; `ids = torch.cat([ids, new], dim=1)`.",
    ),
    minutes=15,
    returns=("the text",),
    probes=_probes,
)
