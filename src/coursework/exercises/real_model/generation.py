"""`greedy`: a prompt, a model and a tokenizer become text."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from attend.pretrained import greedy
from coursework.exercise import Call, Callback, Exercise, Misconception, Property, Stub

LETTERS = "abcdefghijklm .é€"  #: what a text is made of; é and € are several bytes


class Speller:
    """A tokenizer of bytes: `é` is two tokens and `€` three. Perhaps one more id ends a text."""

    def __init__(self, end: int | None = None):
        self.bytes = sorted(set(LETTERS.encode()))
        self.end = end
        if end is not None:
            self.bytes.insert(end, -1)
            self.eos_id = end

    def __len__(self) -> int:
        return len(self.bytes)

    def encode(self, text: str) -> list[int]:
        return [self.bytes.index(b) for b in text.encode()]

    def decode(self, ids: list[int]) -> str:
        # The end of a text is written out where somebody decodes it.
        parts = [b"<end>" if self.bytes[i] == -1 else bytes([self.bytes[i]]) for i in ids]
        return b"".join(parts).decode("utf-8", errors="replace")


class Reciter:
    """A model that goes on with the text that it knows, if what it has read agrees with it.

    Logits for the token after position t depend on all tokens up to t: where they are not what the
    model knows, something else comes out. It wants (1, T) int64.
    """

    def __init__(self, known: list[int], vocab: int, seed: int):
        self.known, self.vocab = known, vocab
        self.table = np.random.default_rng(seed).standard_normal((97, vocab))

    def __call__(self, ids: Tensor) -> Tensor:
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2:
            raise TypeError("a model wants a tensor (1, T) of int64")
        if ids.shape[0] != 1 or ids.shape[1] == 0:
            raise ValueError(f"a model wants (1, T) ids with T > 0, not {tuple(ids.shape)}")
        row, read, rows = ids[0].tolist(), 0, []
        for token in row:
            read = (31 * read + token + 7) % 9973  # of all tokens so far
            rows.append(read % len(self.table))
        logits = self.table[rows]
        for t in range(min(len(row), len(self.known) - 1)):
            if row[t] != self.known[t]:
                break
            logits[t, self.known[t + 1]] = logits[t].max() + 0.5
        return torch.from_numpy(logits)[None].float()


def conversation(
    rng: np.random.Generator, prompt: str, text: str, n: int, end: int | None = None
) -> Call:
    """A model that goes on after the prompt with the text, the end of which is `|`."""
    tokenizer = Speller(end)
    known = tokenizer.encode(prompt)
    for part in text:
        known += [end] if part == "|" else tokenizer.encode(part)
    model = Reciter(known, len(tokenizer), int(rng.integers(1 << 30)))
    attributes = () if end is None else ("eos_id",)
    return Call(
        (
            Callback(model, "a model"),
            Stub(
                lambda: tokenizer,
                "a tokenizer",
                methods=("encode", "decode"),
                attributes=attributes,
            ),
            prompt,
            n,
        )
    )


def _plain(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        conversation(rng, "abc", "defgh", 3),
        conversation(rng, "be", "ad a cab", 5),
        conversation(rng, "a feed", ". i am a deaf mica", 11),
        conversation(rng, "ca", "fé. ", 5),
        conversation(rng, "m", "i", 1),
    )


def _with_an_end(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        conversation(rng, "abc", "de|fgh", 7, end=5),
        conversation(rng, "a", "bc|a", 4, end=0),
        conversation(rng, "he", " had|a|", 6, end=3),
        conversation(rng, "dab", "ble|d", 3, end=7),
        conversation(rng, "ab", "|abc", 5, end=2),
        conversation(rng, "fa", "de|d", 5, end=0),
        conversation(rng, "mil", "k.|m", 6, end=0),
    )


def _bytes(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        conversation(rng, "caf", "é. ", 3),
        conversation(rng, "€", "€a", 4),
        conversation(rng, "é", "a€é|a", 9, end=4),
        conversation(rng, " a", "  b. ", 5),
        conversation(rng, "i ", "am ", 3),
        conversation(rng, "a€", "b €", 4),
    )


def _no_tokens(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        conversation(rng, "abc", "def", 0),
        conversation(rng, "a", "bcde", 0, end=3),
        conversation(rng, "éa", "bc", 0),
    )


def _new_ids(model, tokenizer, prompt, n, most=None):
    ids = tokenizer.encode(prompt)
    new = []
    end = tokenizer.eos_id if hasattr(tokenizer, "eos_id") else None
    for _ in range(n):
        logits = model(torch.tensor([ids + new]))
        token = int(logits[0, -1].argmax())
        if token == end:
            break
        new.append(token)
    return new


def _prompt_too(model, tokenizer, prompt, n):
    return prompt + tokenizer.decode(_new_ids(model, tokenizer, prompt, n))


def _one_more(model, tokenizer, prompt, n):
    return tokenizer.decode(_new_ids(model, tokenizer, prompt, n + 1))


def _one_less(model, tokenizer, prompt, n):
    return tokenizer.decode(_new_ids(model, tokenizer, prompt, max(n - 1, 0)))


def _prompt_counted(model, tokenizer, prompt, n):
    return tokenizer.decode(
        _new_ids(model, tokenizer, prompt, max(n - len(tokenizer.encode(prompt)), 0))
    )


def _sampled(model, tokenizer, prompt, n):
    generator = torch.Generator().manual_seed(0)
    ids = tokenizer.encode(prompt)
    new = []
    end = tokenizer.eos_id if hasattr(tokenizer, "eos_id") else None
    for _ in range(n):
        p = torch.softmax(model(torch.tensor([ids + new]))[0, -1], dim=-1)
        token = int(torch.multinomial(p, 1, generator=generator))
        if token == end:
            break
        new.append(token)
    return tokenizer.decode(new)


def _end_kept(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    new = []
    end = tokenizer.eos_id if hasattr(tokenizer, "eos_id") else None
    for _ in range(n):
        new.append(int(model(torch.tensor([ids + new]))[0, -1].argmax()))
        if new[-1] == end:
            break
    return tokenizer.decode(new)


def _end_unnoticed(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    for _ in range(n):
        ids = [*ids, int(model(torch.tensor([ids]))[0, -1].argmax())]
    return tokenizer.decode(ids[len(tokenizer.encode(prompt)) :])


def _end_skipped(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    new = []
    end = tokenizer.eos_id if hasattr(tokenizer, "eos_id") else None
    for _ in range(n):
        new.append(int(model(torch.tensor([ids + new]))[0, -1].argmax()))
    return tokenizer.decode([token for token in new if token != end])


def _end_0_unnoticed(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    new = []
    end = getattr(tokenizer, "eos_id", None) or None
    for _ in range(n):
        token = int(model(torch.tensor([ids + new]))[0, -1].argmax())
        if token == end:
            break
        new.append(token)
    return tokenizer.decode(new)


def _token_by_token(model, tokenizer, prompt, n):
    return "".join(tokenizer.decode([i]) for i in _new_ids(model, tokenizer, prompt, n))


def _stripped(model, tokenizer, prompt, n):
    return tokenizer.decode(_new_ids(model, tokenizer, prompt, n)).strip()


def _last_token_only(model, tokenizer, prompt, n):
    token = tokenizer.encode(prompt)[-1]
    new = []
    end = tokenizer.eos_id if hasattr(tokenizer, "eos_id") else None
    for _ in range(n):
        token = int(model(torch.tensor([[token]]))[0, -1].argmax())
        if token == end:
            break
        new.append(token)
    return tokenizer.decode(new)


def _first_position(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    new = []
    end = tokenizer.eos_id if hasattr(tokenizer, "eos_id") else None
    for _ in range(n):
        token = int(model(torch.tensor([ids + new]))[0, 0].argmax())
        if token == end:
            break
        new.append(token)
    return tokenizer.decode(new)


def _prompt_does_not_grow(model, tokenizer, prompt, n):
    ids = torch.tensor([tokenizer.encode(prompt)])
    new = []
    end = tokenizer.eos_id if hasattr(tokenizer, "eos_id") else None
    for _ in range(n):
        token = int(model(ids)[0, -1].argmax())
        if token == end:
            break
        new.append(token)
    return tokenizer.decode(new)


def _all_positions_at_once(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    return tokenizer.decode(model(torch.tensor([ids]))[0].argmax(-1)[-n:].tolist()) if n else ""


def _ids(model, tokenizer, prompt, n):
    return _new_ids(model, tokenizer, prompt, n)


GREEDY = Exercise(
    chapter=12,
    signature="greedy(model, tokenizer, prompt, n) -> str",
    task="""\
Let a model go on with a prompt. At each step it reads the whole text so far, and the likeliest
token is put at its end.

- `model` is called: `model(ids)` takes a tensor `(1, T)` of int64, T > 0, and gives logits
  `(1, T, V)`.
- `tokenizer` has two methods: `tokenizer.encode(text)` gives a list of ids, and
  `tokenizer.decode(ids)` takes one and gives text.
- `prompt` is a string of at least one token. It is taken as it is: no template, nothing added.
- `n` is how many tokens are added: exactly `n`, unless the tokenizer has an attribute `eos_id` and
  this token comes. It ends the text and is left out. Some tokenizers have no `eos_id`, and any id
  may be one, 0 too. An end *in the prompt* does not occur.
- Return the **new** text only, a string. `n = 0` gives the empty one.
- A character may be several tokens, so decode the new ids together. Text may begin or end with
  spaces; leave them. No two logits are equal.

The model here is a small one that knows a text by heart. Whether you use a cache is another
question: this one has none.""",
    reference=greedy,
    properties=(
        Property("n likeliest tokens, one after the other, without the prompt", 2, _plain),
        Property("the end of text ends it, and is left out", 1, _with_an_end),
        Property("characters of several tokens, and spaces", 1, _bytes, edge=True),
        Property("no tokens, no text", 1, _no_tokens, edge=True),
    ),
    misconceptions=(
        Misconception(
            "returns the prompt as well",
            "The prompt is in what you return. Asked for is what the model adds.",
            _prompt_too,
            symptom="the text begins with the prompt",
        ),
        Misconception(
            "stops one late",
            "There is one token too many. Count what is added: n tokens are n questions to the "
            "model.",
            _one_more,
            symptom="there is a token too many",
        ),
        Misconception(
            "stops one early",
            "There is one token too few. The answer to the last question belongs to the text as "
            "well.",
            _one_less,
            symptom="there is a token too few",
        ),
        Misconception(
            "counts the prompt",
            "Your text ends when prompt and new tokens together are n. Only the new ones count.",
            _prompt_counted,
            symptom="the text is shorter the longer the prompt is",
        ),
        Misconception(
            "samples",
            "You draw the next token. Greedy means that the largest logit wins each time.",
            _sampled,
            symptom="it is not the likeliest token that is taken",
        ),
        Misconception(
            "keeps the end",
            "The token that ends the text is decoded with the rest. It is a sign to stop, not "
            "text.",
            _end_kept,
            symptom="the end of text is written out",
        ),
        Misconception(
            "does not notice the end",
            "The model has ended its text, and you ask on. If the tokenizer has an `eos_id`, "
            "compare each new token with it.",
            _end_unnoticed,
            symptom="the text goes on after its end",
        ),
        Misconception(
            "leaves the end out and goes on",
            "You leave the end out of the text, and go on asking after it. It ends the text.",
            _end_skipped,
            symptom="the text goes on after its end",
        ),
        Misconception(
            "takes an end of id 0 for none",
            "0 counts as false in Python, so that an `eos_id` of 0 is taken for none. Ask "
            "whether it is None.",
            _end_0_unnoticed,
            symptom="an end with the id 0 goes unnoticed",
        ),
        Misconception(
            "decodes token by token",
            "You decode each token alone. A character may be spread over several tokens, and a "
            "part of it is no character: decode the new ids together.",
            _token_by_token,
            symptom="some characters fall apart",
        ),
        Misconception(
            "strips the text",
            "You take spaces off the ends of the text. A space is a token like others, and here it "
            "often begins a word.",
            _stripped,
            symptom="spaces at the ends are lost",
        ),
        Misconception(
            "feeds the last token only",
            "You show the model one token. Without a cache it knows nothing of the others: feed "
            "the whole text.",
            _last_token_only,
            symptom="the model does not see the text",
        ),
        Misconception(
            "reads the first position",
            "You read the logits of the first position, which are for the second token. What "
            "follows the text is at the last one.",
            _first_position,
            symptom="the wrong position is read",
        ),
        Misconception(
            "feeds the prompt each time",
            "You ask the same question n times. Put each new token at the end before you ask "
            "again.",
            _prompt_does_not_grow,
            symptom="the same token comes again and again",
        ),
        Misconception(
            "reads n positions at once",
            "You take the best tokens at the last n positions of one call. These are guesses for "
            "tokens that are in the prompt already; only the last is new.",
            _all_positions_at_once,
            symptom="the prompt comes back, a token late",
        ),
        Misconception(
            "returns ids",
            "These are the ids of the new tokens. The tokenizer makes text of them.",
            _ids,
            symptom="ids came back, not text",
        ),
    ),
    hints=(
        "What does the model need to see for the second new token? What do you do with the "
        "logits of the earlier positions?",
        "Keep a list of all ids and remember how long the prompt was. n times: the list as a "
        "tensor `(1, T)`, the logits of the last position, the largest one; stop if it is the "
        "end; append. Decode what came after the prompt.",
        '`end = getattr(tokenizer, "eos_id", None)`, `token = int(model(torch.tensor([ids]))[0, '
        "-1].argmax())`, and at the end `tokenizer.decode(ids[start:])`.",
    ),
    minutes=12,
    returns=("the text",),
)
