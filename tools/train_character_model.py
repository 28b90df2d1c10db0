"""Train the character model of chapter 08 and write what the page shows of it.

    python tools/train_character_model.py              # both parts, about 15 minutes of one core
    python tools/train_character_model.py long         # the long run, its samples, the n-grams
    python tools/train_character_model.py short        # the short runs: mistakes, schedules, tying

writes book/data/character-model.json and book/data/character-short-runs.json.

All text is Pride and Prejudice. The first nine tenths are trained on; the 20,000 characters after
them judge every model, the n-grams too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from attend.model import GPTConfig, TokenEmbedding, Transformer, count_parameters, gpt
from attend.sampling import generate
from attend.texts import pride_and_prejudice
from attend.training import Recipe, adamw, evaluate, sample_windows, train, warmup_cosine

DATA = Path(__file__).parents[1] / "book" / "data"
JUDGED = 20_000  #: characters of the held-out tenth that every model is judged by

TEXT = pride_and_prejudice()
CHARACTERS = sorted(set(TEXT))
ID_OF = {character: i for i, character in enumerate(CHARACTERS)}
IDS = torch.tensor([ID_OF[character] for character in TEXT])
LEARN = IDS[: len(IDS) * 9 // 10]
HELD_OUT = IDS[len(LEARN) :]
JUDGE = HELD_OUT[: JUDGED + 1]

LONG = Recipe(steps=5000, batch=12, context=64, evaluate_every=100)
STOP = 3900  #: of the 5,000 steps of the schedule: some ten minutes of a core
STAGES = (100, 200, 500, 3900)  #: steps after which the model is asked to speak
SHORT = Recipe(steps=500, batch=12, context=64, evaluate_every=500)
TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def config(d_model: int, n_layers: int, *, tied: bool = True) -> GPTConfig:
    return GPTConfig(
        vocab=len(CHARACTERS),
        context=LONG.context,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=4,
        d_hidden=4 * d_model,
        tied=tied,
    )


def text_of(ids: Tensor) -> str:
    return "".join(CHARACTERS[i] for i in ids.tolist())


def ids_of(text: str) -> Tensor:
    return torch.tensor([ID_OF[character] for character in text])


def speak(model, n_new: int, prompt: str = "\n", seed: int = 0, **how) -> str:
    """What a model says after a prompt, without the prompt."""
    how = {"temperature": 0.8, **how}
    said = generate(
        model,
        ids_of(prompt)[None],
        n_new,
        context=LONG.context,
        generator=torch.Generator().manual_seed(seed),
        **how,
    )
    return text_of(said[0, len(prompt) :])


# n-grams -------------------------------------------------------------------------------------


class NGrams:
    """Counting models of order 1 … `longest`, each smoothed by the next shorter one.

    P_n(c | h) = (count(h c) + β · P_{n-1}(c | h without its first)) / (count(h) + β), and P_0 is
    even.
    """

    def __init__(self, text: str, longest: int, beta: float):
        self.longest, self.beta = longest, beta
        self.counts: list[dict[str, Counter]] = []
        for n in range(longest):  # n characters before
            follow: dict[str, Counter] = defaultdict(Counter)
            for i in range(n, len(text)):
                follow[text[i - n : i]][text[i]] += 1
            self.counts.append(follow)
        self.totals = [{h: sum(c.values()) for h, c in level.items()} for level in self.counts]

    def probabilities(self, before: str, character: str) -> list[float]:
        """Of one character, by the orders 1 … longest."""
        p, found = 1 / len(CHARACTERS), []
        for n in range(self.longest):
            h = before[len(before) - n :]
            count = self.counts[n].get(h, {}).get(character, 0)
            p = (count + self.beta * p) / (self.totals[n].get(h, 0) + self.beta)
            found.append(p)
        return found

    def losses(self, text: str, before: str) -> list[float]:
        """Nats per character of a text, by the orders 1 … longest."""
        whole = before[-self.longest :] + text
        start = len(whole) - len(text)
        p = np.array(
            [
                self.probabilities(whole[max(0, i - self.longest) : i], whole[i])
                for i in range(start, len(whole))
            ]
        )
        return (-np.log(p)).mean(0).tolist()

    def speak(self, n: int, length: int, seed: int = 0) -> str:
        rng, said = np.random.default_rng(seed), "\n"
        for _ in range(length):
            p = np.array([self.probabilities(said[-self.longest :], c)[n - 1] for c in CHARACTERS])
            said += CHARACTERS[rng.choice(len(CHARACTERS), p=p / p.sum())]
        return said[1:]


def n_grams() -> dict:
    """Losses of n-grams on the judging text; β is chosen on the end of the learning text."""
    learn, judge = text_of(LEARN), text_of(JUDGE)
    start = len(learn) - JUDGED
    tried = {
        beta: NGrams(learn[:start], 7, beta).losses(learn[start:], learn[:start])
        for beta in (1.0, 3.0, 10.0)
    }
    beta = min(tried, key=lambda b: min(tried[b]))
    model = NGrams(learn, 7, beta)
    return {
        "beta": beta,
        "losses": model.losses(judge[1:], learn + judge[0]),
        "samples": {n: model.speak(n, 160) for n in (1, 2, 3, 4, 5)},
    }


# The long run --------------------------------------------------------------------------------


class Enough(Exception):
    """Raised to end the run where it has been long enough."""


def long_run(checkpoint: Path) -> dict:
    torch.manual_seed(LONG.seed)
    model = gpt(config(128, 4))
    samples = {0: speak(model, 160)}
    start_loss = evaluate(model, JUDGE, LONG.context)

    def watch(step: int, model) -> None:
        if step in STAGES:
            samples[step] = speak(model, 160)
        if step >= STOP:
            raise Enough

    before = time.process_time()
    with contextlib.suppress(Enough):
        train(model, LEARN, JUDGE, LONG, checkpoint=checkpoint, watch=watch)
    seconds = time.process_time() - before
    state = torch.load(checkpoint, weights_only=True)
    return described(model, state, samples, start_loss, seconds)


def described(model, state: dict, samples: dict, start_loss: float, seconds: float) -> dict:
    """All that the page shows of the run, from its last checkpoint."""
    return {
        "recipe": asdict(LONG),
        "steps": STOP,
        "config": {"d_model": 128, "n_layers": 4, "n_heads": 4, "d_hidden": 512},
        "parameters": count_parameters(model),
        "characters": CHARACTERS,
        "learned_from": len(LEARN),
        "judged_by": JUDGED,
        "cpu_seconds": round(seconds),
        "losses": means_of(state["losses"], 20),
        "losses_every": 20,
        "evaluations": [(0, start_loss), *state["evaluations"]],
        "held_out_tenth": evaluate(model, HELD_OUT, LONG.context),
        "samples": samples,
        "by_position": loss_by_position(model),
        "surprise": surprise(model),
        "next": {prompt: next_logits(model, prompt) for prompt in PROMPTS},
        "nucleus": nucleus_sizes(model),
        "quality": quality(model),
        "n_grams": n_grams(),
    }


PROMPTS = (
    "in possession of a good fort",
    "It was then that she saw Mr. ",
    "She was not at all surprised, and ",
)


def means_of(values: list[float], n: int) -> list[float]:
    return [float(np.mean(values[i : i + n])) for i in range(0, len(values), n)]


@torch.no_grad()
def loss_by_position(model) -> list[float]:
    """Mean loss at each place of the window, over the whole held-out tenth."""
    context = LONG.context
    n = (len(HELD_OUT) - 1) // context
    windows = HELD_OUT.as_strided((n, context + 1), (context, 1))
    rows = []
    for part in windows.split(64):
        logits = model(part[:, :-1]).flatten(0, 1)
        losses = F.cross_entropy(logits, part[:, 1:].reshape(-1), reduction="none")
        rows.append(losses.view(-1, context))
    return torch.cat(rows).mean(0).tolist()


@torch.no_grad()
def surprise(model, length: int = 72) -> dict:
    """For a held-out passage: how surprising each character was, with 63 characters before it."""
    text = text_of(HELD_OUT)
    at = text.index("\n\n", 2000) + 2
    rows = torch.stack([HELD_OUT[i - 63 : i] for i in range(at, at + length)])
    log_p = model(rows)[:, -1].log_softmax(-1)
    true = HELD_OUT[at : at + length]
    return {
        "text": text[at : at + length],
        "surprise": (-log_p.gather(1, true[:, None])[:, 0]).tolist(),
        "entropy": (-(log_p.exp() * log_p).sum(-1)).tolist(),
    }


@torch.no_grad()
def next_logits(model, prompt: str) -> list[float]:
    return model(ids_of(prompt)[None])[0, -1].tolist()


@torch.no_grad()
def nucleus_sizes(model, p: float = 0.9) -> dict:
    """How many characters the shortest list of mass p holds, over held-out places."""
    windows = JUDGE[: 64 * 100].view(100, 64)
    probabilities = model(windows)[:, 31::4].reshape(-1, len(CHARACTERS)).softmax(-1)
    ordered = probabilities.sort(-1, descending=True).values
    sizes = 1 + (ordered.cumsum(-1) < p).sum(-1)
    return {"p": p, "sizes": np.bincount(sizes.numpy()).tolist()}


WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")


def quality(model, rows: int = 8, length: int = 120) -> list[dict]:
    """What texts are like that are drawn in different ways, beside the novel itself."""
    hows = [{"temperature": t} for t in TEMPERATURES]
    hows += [{"temperature": 1.0, "top_k": k} for k in (5,)]
    hows += [{"temperature": 1.0, "top_p": p} for p in (0.5, 0.9)]
    hows += [{"temperature": 1.5, "top_p": 0.9}]
    starts = torch.arange(rows) * (len(HELD_OUT) // (rows + 1))
    prompts = HELD_OUT[starts[:, None] + torch.arange(LONG.context)]
    found = []
    for how in hows:
        said = generate(
            model,
            prompts,
            length,
            context=LONG.context,
            generator=torch.Generator().manual_seed(1),
            **how,
        )[:, LONG.context :]
        found.append({**how, **measured([text_of(row) for row in said])})
    novel = HELD_OUT[starts[:, None] + LONG.context + torch.arange(length)]
    found.append({"novel": True, **measured([text_of(row) for row in novel])})
    return found


def measured(texts: list[str]) -> dict:
    """Shares of words that the learning text has, of pieces said before, of pieces copied."""
    learn = text_of(LEARN)
    known_words = set(WORD.findall(learn))
    words = [w for text in texts for w in WORD.findall(text)[1:-1]]  # the ends may be cut
    repeated, copied = [], []
    for text in texts:
        pieces = [text[i : i + 12] for i in range(len(text) - 12)]
        repeated += [piece in pieces[:i] for i, piece in enumerate(pieces)]
        copied += [text[i : i + 24] in learn for i in range(0, len(text) - 24, 8)]
    return {
        "known_words": float(np.mean([w in known_words for w in words])),
        "repeated": float(np.mean(repeated)),
        "copied": float(np.mean(copied)),
        "text": texts[-1][:160],
    }


# Short runs: what goes wrong, schedules, tying -----------------------------------------------


class NoPositions(TokenEmbedding):
    """A vector for each token and none for its place."""


def small(*, tied: bool = True, masked: bool = True, positions: bool = True) -> Transformer:
    """2 layers, 64 wide: a model that is trained in a quarter of a minute."""
    torch.manual_seed(1)
    model = gpt(config(64, 2, tied=tied))
    if not masked:
        for block in model.blocks:
            block.attention.pattern = None
    if not positions:
        embedding = NoPositions(len(CHARACTERS), 64)
        embedding.tokens = model.embedding.tokens
        model.embedding = embedding
        model.head._embedding = [embedding]
    return model


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.reshape(-1))


def right(logits: Tensor, window: Tensor) -> Tensor:
    return cross_entropy(logits, window[:, 1:])


def unshifted(logits: Tensor, window: Tensor) -> Tensor:
    return cross_entropy(logits, window[:, :-1])


def softmax_twice(logits: Tensor, window: Tensor) -> Tensor:
    return cross_entropy(logits.softmax(-1), window[:, 1:])


def short_run(
    model: Transformer, loss=right, recipe: Recipe = SHORT, *, schedule=warmup_cosine
) -> dict:
    """Trains as `attend.training.train` does, with a loss and a schedule that may be wrong."""
    optimizer = adamw(model, recipe.weight_decay)
    generator = torch.Generator().manual_seed(recipe.seed)
    losses = []
    for step in range(recipe.steps):
        window = sample_windows(LEARN, recipe.context, recipe.batch, generator)
        for group in optimizer.param_groups:
            group["lr"] = schedule(step, recipe.warmup, recipe.steps, recipe.peak, recipe.floor)
        value = loss(model(window[:, :-1]), window)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        losses.append(value.item())
    return {
        "losses": means_of(losses, 10),
        "honest": honest_loss(model),
        "sample": speak(model, 160, "It is a truth "),
        "greedy": speak(model, 80, "It is a truth ", temperature=0),
    }


@torch.no_grad()
def honest_loss(model) -> float:
    """Nats at characters that are nowhere in the input: the last place of each window only."""
    at = torch.arange(LONG.context, JUDGED, 7)
    windows = JUDGE[at[:, None] - LONG.context + torch.arange(LONG.context)]
    total = 0.0
    for rows, targets in zip(windows.split(256), JUDGE[at].split(256), strict=True):
        total += F.cross_entropy(model(rows)[:, -1], targets, reduction="sum").item()
    return total / len(at)


def constant(step, warmup, total, peak, floor):
    return peak


def short_runs() -> dict:
    mistakes = {
        "right": short_run(small()),
        "no shift": short_run(small(), unshifted),
        "softmax twice": short_run(small(), softmax_twice),
        # It takes a while until attention finds the answer in the input.
        "no mask": short_run(small(masked=False), right, replace(SHORT, steps=1500)),
        "no positions": short_run(small(positions=False)),
        "not tied": short_run(small(tied=False)),
    }
    schedules = []
    for peak in (1e-3, 4e-3, 1.6e-2):
        for name, warmup, schedule in (
            ("warm-up and cosine", 100, warmup_cosine),
            ("cosine only", 0, warmup_cosine),
            ("constant", 0, constant),
        ):
            recipe = replace(SHORT, peak=peak, floor=peak / 10, warmup=warmup)
            run = short_run(small(), right, recipe, schedule=schedule)
            kept = {key: run[key] for key in ("losses", "honest")}
            schedules.append({"peak": peak, "schedule": name, **kept})
    return {
        "recipe": asdict(SHORT),
        "parameters": {
            "tied": count_parameters(small()),
            "not tied": count_parameters(small(tied=False)),
        },
        "mistakes": mistakes,
        "schedules": schedules,
    }


def rounded(value, digits: int = 4):
    if isinstance(value, float):
        return round(value, digits)
    if isinstance(value, dict):
        return {str(key): rounded(v, digits) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v, digits) for v in value]
    return value


def write(name: str, value: dict) -> None:
    DATA.mkdir(exist_ok=True)
    path = DATA / name
    path.write_text(json.dumps(rounded(value), ensure_ascii=False, indent=0) + "\n", "utf-8")
    print(f"{path}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=("long", "short", "both"), default="both")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.part != "short":
        with tempfile.TemporaryDirectory() as folder:
            write("character-model.json", long_run(Path(folder) / "checkpoint.pt"))
    if arguments.part != "long":
        write("character-short-runs.json", short_runs())


if __name__ == "__main__":
    main()
