"""`generate_cached`: the prompt once, then a token a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from attend.cache import generate_cached, new_caches
from attend.model import LlamaConfig, Transformer, llama
from coursework.exercise import Call, Event, Exercise, Misconception, Property, Stub

VOCAB = 31


class _Speaker:
    """A language model as the exercise hands it over: a Llama whose caches have a capacity."""

    def __init__(self, model: Transformer, capacity: int):
        self.model, self.capacity = model, capacity

    def __call__(self, ids: torch.Tensor, caches: Any = None) -> torch.Tensor:
        return self.model(ids, caches)

    def new_caches(self, batch: int) -> list[Stub]:
        caches = new_caches(self.model, batch, self.capacity)
        methods = ("append", "__len__", "reset")
        return [Stub(lambda cache=cache: cache, "a cache", methods) for cache in caches]


def _model(rng: np.random.Generator, context: int) -> Transformer:
    """A small Llama whose random weights are large enough to say different things."""
    with torch.random.fork_rng(devices=[]):
        model = llama(
            LlamaConfig(
                vocab=VOCAB,
                context=context,
                d_model=12,
                n_layers=2,
                n_heads=3,
                n_kv_heads=1,
                d_hidden=17,
            )
        ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.from_numpy(rng.standard_normal(parameter.shape)))
    return model.requires_grad_(False)


def _call(
    rng: np.random.Generator, B: int, T: int, n_new: int, capacity: int | None = None
) -> Call:
    """A prompt (B, T) and a model with room enough for careless answers, or with just that much."""
    room = 4 * (T + n_new) ** 2 + 8 if capacity is None else capacity
    model = _model(rng, max(room, 1))
    speaker = Stub(
        lambda: _Speaker(model, room),
        "a small model",
        ("__call__", "new_caches"),
        counted=("__call__", "new_caches"),
    )
    return Call((speaker, torch.from_numpy(rng.integers(0, VOCAB, (B, T))), n_new))


def _some_texts(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3, 2),
        _call(rng, 1, 5, 7),
        _call(rng, 1, 2, 5),
        _call(rng, 1, 7, 3),
        _call(rng, 1, 1, 4),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (_call(rng, 2, 3, 4), _call(rng, 3, 5, 2), _call(rng, 5, 2, 3))


def _all_texts(rng: np.random.Generator) -> tuple[Call, ...]:
    return (*_some_texts(rng), *_batches(rng))


def _nothing_new(rng: np.random.Generator) -> tuple[Call, ...]:
    return (_call(rng, 1, 3, 0), _call(rng, 2, 5, 0), _call(rng, 3, 1, 0))


def _to_the_last_place(rng: np.random.Generator) -> tuple[Call, ...]:
    """Just room enough, and one place too few: for the prompt, and on the way."""
    return (
        _call(rng, 1, 3, 4, capacity=6),
        _call(rng, 2, 5, 2, capacity=6),
        _call(rng, 1, 4, 1, capacity=4),
        _call(rng, 1, 3, 4, capacity=5),
        _call(rng, 2, 5, 2, capacity=5),
        _call(rng, 1, 4, 1, capacity=3),
    )


def _generate_cached(model: Any, ids: torch.Tensor, n_new: int) -> torch.Tensor:
    return generate_cached(model, ids, n_new, caches=model.new_caches(ids.shape[0]))


def _no_matter(call: Call, value: Any) -> None:
    return None


def _asked(events: tuple[Event, ...]) -> list[tuple[int, bool]]:
    """For each call of the model how many tokens it was fed, and whether with caches."""
    return [
        (
            _tokens(_ids_of(e)),
            (e.args[1] if len(e.args) > 1 else e.kwargs.get("caches")) is not None,
        )
        for e in events
        if e.method == "__call__"
    ]


def _ids_of(event: Event) -> Any:
    return event.args[0] if event.args else event.kwargs.get("ids")


def _texts(event: Event) -> int:
    """How many texts the model was fed in a call; -1: that was no batch."""
    shape = getattr(_ids_of(event), "shape", ())
    return shape[0] if len(shape) == 2 else -1


def _tokens(ids: Any) -> int:
    shape = getattr(ids, "shape", ())
    return shape[1] if len(shape) == 2 else -1


def _prompt_once(call: Call, events: tuple[Event, ...]) -> str | None:
    _, ids, n_new = call.args
    asked = _asked(events)
    tokens = [n for n, _ in asked]
    if not asked:
        return "the model is never called"
    if any(_texts(e) != ids.shape[0] for e in events if e.method == "__call__"):
        return "the texts of the batch do not go through the model together"
    if tokens[0] != ids.shape[1]:
        return "the first call is not given the whole prompt"
    if any(n != 1 for n in tokens[1:]):
        return "later calls are given more than the one new token"
    if len(tokens) > n_new:
        return "the model is called more often than there are new tokens"
    if len(tokens) < n_new:
        return "the model is called less often than there are new tokens"
    if not all(with_caches for _, with_caches in asked):
        return "the model is called without its caches"
    return None


def _no_call(call: Call, events: tuple[Event, ...]) -> str | None:
    return "the model is called although nothing is asked for" if _asked(events) else None


def _no_cache(model, ids, n_new):
    for _ in range(n_new):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids.clone()


def _fresh_caches_for_all(model, ids, n_new):
    for _ in range(n_new):
        logits = model(ids, model.new_caches(ids.shape[0]))
        ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids.clone()


def _whole_text_into_one_cache(model, ids, n_new):
    caches = model.new_caches(ids.shape[0])
    for _ in range(n_new):
        ids = torch.cat([ids, model(ids, caches)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids.clone()


def _no_prefill(model, ids, n_new):
    caches = model.new_caches(ids.shape[0])
    for _ in range(n_new):
        ids = torch.cat([ids, model(ids[:, -1:], caches)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids.clone()


def _one_call_too_many(model, ids, n_new):
    caches = model.new_caches(ids.shape[0])
    logits = model(ids, caches)
    for _ in range(n_new):
        new = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], dim=1)
        logits = model(new, caches)
    return ids.clone()


def _new_tokens_only(model, ids, n_new):
    return _step_by_step(model, ids, n_new)[:, ids.shape[1] :].clone()


def _step_by_step(model, ids, n_new):
    """The right loop, for the wrong ones that differ before it or after it."""
    if n_new == 0:
        return ids.clone()
    caches, feed = model.new_caches(ids.shape[0]), ids
    for _ in range(n_new):
        feed = model(feed, caches)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def _prompt_token_by_token(model, ids, n_new):
    if n_new == 0:
        return ids.clone()
    caches = model.new_caches(ids.shape[0])
    for t in range(ids.shape[1]):
        logits = model(ids[:, t : t + 1], caches)
    for left in reversed(range(n_new)):
        new = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], dim=1)
        if left:
            logits = model(new, caches)
    return ids


def _prompt_in_two(model, ids, n_new):
    if n_new == 0:
        return ids.clone()
    caches = model.new_caches(ids.shape[0])
    model(ids[:, :-1], caches)
    feed = ids[:, -1:]
    for _ in range(n_new):
        feed = model(feed, caches)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def _first_position(model, ids, n_new):
    if n_new == 0:
        return ids.clone()
    caches, feed = model.new_caches(ids.shape[0]), ids
    for _ in range(n_new):
        feed = model(feed, caches)[:, 0].argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def _decodes_without_caches(model, ids, n_new):
    if n_new == 0:
        return ids.clone()
    logits = model(ids, model.new_caches(ids.shape[0]))
    for left in reversed(range(n_new)):
        new = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], dim=1)
        if left:
            logits = model(new)
    return ids


def _fresh_caches_each_step(model, ids, n_new):
    feed = ids
    for _ in range(n_new):
        feed = model(feed, model.new_caches(ids.shape[0]))[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids.clone()


def _caches_for_one(model, ids, n_new):
    if n_new == 0:
        return ids.clone()
    caches, feed = model.new_caches(1), ids
    for _ in range(n_new):
        feed = model(feed, caches)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def _one_token_too_many(model, ids, n_new):
    caches, feed = model.new_caches(ids.shape[0]), ids
    for _ in range(n_new + 1):
        feed = model(feed, caches)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def _prefill_for_nothing(model, ids, n_new):
    caches = model.new_caches(ids.shape[0])
    logits = model(ids, caches)
    for left in reversed(range(n_new)):
        new = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, new], dim=1)
        if left:
            logits = model(new, caches)
    return ids.clone()


def _last_token_twice(model, ids, n_new):
    if n_new == 0:
        return ids.clone()
    caches = model.new_caches(ids.shape[0])
    model(ids, caches)
    feed = ids[:, -1:]
    for _ in range(n_new):
        feed = model(feed, caches)[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids


GENERATE_CACHED = Exercise(
    chapter=9,
    signature="generate_cached(model, ids, n_new) -> (B, T + n_new)",
    task="""\
Greedy generation in which every token goes through the model once. The text is the one that
`generate` of chapter 08 writes at temperature 0: after each text the most likely token.

- `model` is called as `model(ids, caches=None)` and maps token ids `(B, T)` to logits `(B, T, V)`.
  With caches it takes the **new** tokens only, and puts their keys and values into the caches
  itself.
- `model.new_caches(batch)` gives a list of empty caches, one for each layer. Hand the list on as it
  is. The model has nothing else for you.
- `ids` are prompts `(B, T)`, int64, T ≥ 1. Return int64 `(B, T + n_new)`: the prompts, unchanged,
  and `n_new` tokens more.
- **Calls are written down.** Exactly one prefill with the whole prompt, then `n_new` − 1 calls with
  one token for each text, all with the same caches. For `n_new` = 0 there is no call at all, and
  ids equal to the prompt come back.
- The caches have a capacity. If T + `n_new` − 1 tokens fit, all goes well: the last token is never
  fed. If they do not, the model raises a `ValueError`, and so must you: just let it through.
- Leave `ids` as they are.""",
    reference=_generate_cached,
    properties=(
        Property("the text of greedy generation", 2, _some_texts),
        Property("several texts at once", 1, _batches),
        Property(
            "the prompt in one call, then one token a call",
            2,
            _all_texts,
            compare=_no_matter,
            watch=_prompt_once,
        ),
        Property("n_new = 0: the prompt, and no call", 1, _nothing_new, edge=True, watch=_no_call),
        Property(
            "the caches are filled to the last place, and ValueError comes only then",
            1,
            _to_the_last_place,
            edge=True,
        ),
    ),
    misconceptions=(
        Misconception(
            "does not use the cache",
            "The text is right, but in every step all of it goes through the model again. Keep the "
            "caches from call to call and feed the new token only.",
            _no_cache,
            symptom="every step reads the whole text again",
            also=(_fresh_caches_for_all,),
        ),
        Misconception(
            "feeds the whole text into the same caches",
            "You hand over the caches and the whole text. The model takes what it is given for new "
            "tokens, so the prompt is in the cache twice, then three times. Feed what is new.",
            _whole_text_into_one_cache,
            symptom="the tokens before are stored again in each step",
        ),
        Misconception(
            "starts on an empty cache",
            "Only the last token of the prompt is fed, and the cache knows nothing of the others. "
            "The first call is the prefill: the whole prompt.",
            _no_prefill,
            symptom="the model never sees the prompt's beginning",
        ),
        Misconception(
            "makes one call too many",
            "After the last token you call the model once more, and nobody asks for what it says. "
            "That costs a step, and a place in the cache. n_new tokens take n_new calls.",
            _one_call_too_many,
            symptom="the last token is fed to the model",
        ),
        Misconception(
            "returns the new tokens only",
            "The prompt is missing from what you return: it comes first, unchanged.",
            _new_tokens_only,
            symptom="the prompt is lost",
        ),
        Misconception(
            "reads the prompt token by token",
            "The text is right, but the prompt takes as many calls as it has tokens. In one call "
            "all of them go through together, and each weight is fetched once for all.",
            _prompt_token_by_token,
            symptom="the prompt is fed in single tokens",
        ),
        Misconception(
            "splits the prompt",
            "You feed the prompt without its last token, and that one afterwards. One call does: "
            "the logits after the last token are in it already.",
            _prompt_in_two,
            symptom="the prompt takes two calls",
        ),
        Misconception(
            "feeds the last token of the prompt twice",
            "After the prefill you feed the prompt's last token once more. It is in the cache "
            "already; its logits came with the prefill. Use them.",
            _last_token_twice,
            symptom="the model reads the end of the prompt twice",
        ),
        Misconception(
            "looks at the first position",
            "logits[:, 0] says what follows the *first* token that was fed. What follows the text "
            "is said at its last position, logits[:, -1].",
            _first_position,
            symptom="the first new token does not follow the prompt",
        ),
        Misconception(
            "decodes without the caches",
            "The prompt goes into the caches, but the later calls do not get them. To the model "
            "the new token is then a whole text. Hand the caches over in every call.",
            _decodes_without_caches,
            symptom="after the first new token the prompt is forgotten",
        ),
        Misconception(
            "makes new caches in each step",
            "Each step starts with empty caches, so that the model sees the newest token only. "
            "Make them once, before the loop.",
            _fresh_caches_each_step,
            symptom="each step forgets the ones before",
        ),
        Misconception(
            "makes caches for one text",
            "The caches are made for a batch of 1, whatever comes. Their batch is ids.shape[0].",
            _caches_for_one,
            symptom="it works for one text only",
        ),
        Misconception(
            "says one token too many",
            "You add n_new + 1 tokens: the one that the prefill gives is the first of them.",
            _one_token_too_many,
            symptom="the text is one token too long",
        ),
        Misconception(
            "reads the prompt for nothing",
            "With n_new = 0 nothing is asked, and you read the prompt all the same. Call the model "
            "when a token is wanted, not before.",
            _prefill_for_nothing,
            symptom="n_new = 0 calls the model",
        ),
    ),
    hints=(
        "What is fed changes from step to step, and nothing else does: first the prompt, then the "
        "token that was just chosen.",
        "Make the caches once. Repeat n_new times: call the model with what is to be fed and the "
        "caches, take the most likely token at the last position, put it at the end of the text, "
        "and feed it next time. With n_new = 0 the loop does nothing by itself; make the caches "
        "where that does no harm.",
        "`feed = ids`, and in the loop `feed = model(feed, caches)[:, -1].argmax(-1, "
        "keepdim=True)`, then `ids = torch.cat([ids, feed], dim=1)`.",
    ),
    minutes=15,
    returns=("the text",),
)
