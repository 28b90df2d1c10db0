"""Read the heads of two published models, once, into the table that chapter 11 shows.

    course fetch-models
    python tools/read_heads.py

Writes book/data/11-reading-heads.json; about a quarter of an hour on one core. Every random choice
is seeded, so that a second run writes the same numbers, up to the rounding of another processor.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor

import attend

TABLE = Path(__file__).resolve().parent.parent / "book" / "data" / "11-reading-heads.json"

#: Written down before any head was looked at: (first noun, second noun, sentence, what the question
#: repeats, the ending that means the first noun, the ending that means the second one).
PAIRS = (
    ("animal", "street", "The animal did not cross the street because it was too {}.",
     "too {}", "tired", "wide"),
    ("trophy", "box", "The trophy did not fit into the box because it was too {}.",
     "too {}", "large", "small"),
    ("truck", "bus", "The truck overtook the bus because it was going so {}.",
     "going so {}", "fast", "slow"),
    ("bottle", "cup", "Water ran from the bottle into the cup until it was {}.",
     "{}", "empty", "full"),
    ("boat", "bridge", "The boat could not pass under the bridge because it was too {}.",
     "too {}", "tall", "low"),
    ("table", "door", "The table did not go through the door because it was too {}.",
     "too {}", "wide", "narrow"),
    ("picture", "hole", "The picture did not cover the hole because it was too {}.",
     "too {}", "small", "large"),
    ("car", "trailer", "The car could not pull the trailer because it was too {}.",
     "too {}", "weak", "heavy"),
)  # fmt: skip
REPEATED = " lamp river seven cloud paper lamp river seven cloud paper"
COPY = 50  #: random tokens, shown twice
NOVEL = 256  #: tokens of ordinary text that are read
ABLATED_NOVEL = 128  #: and those on which each head is taken away
SIZES = (1, 2, 4, 8, 16)  #: of the groups of heads that are taken away
DRAWS = 10  #: random groups of each size

Heads = Sequence[tuple[int, int]]
Measure = Callable[[Tensor], Tensor]  #: what the last block hands on (B, T, D) → (B,)


def rounded(values: Tensor, digits: int = 4) -> list:
    """To so many decimals."""
    return torch.round(values.double(), decimals=digits).tolist()


def faint(values: Tensor) -> list:
    """To four digits each, however small: what is left of two tiny weights is their quotient."""
    if values.dim():
        return [faint(v) for v in values]
    return float(f"{values.item():.4g}")


def all_heads(model: attend.Transformer) -> list[tuple[int, int]]:
    H = model.blocks[0].attention.n_heads
    return [(layer, head) for layer in range(len(model.blocks)) for head in range(H)]


def weights_of(model: attend.Transformer, ids: Sequence[int]) -> Tensor:
    """Attention weights of one text: (layers, H, T, T)."""
    with torch.no_grad(), attend.captured_weights(model) as weights:
        model(torch.tensor([ids]))
    return torch.cat(weights)


@contextmanager
def ablated_by_row(model: attend.Transformer, without: Sequence[Heads]) -> Iterator[None]:
    """Row b of a batch runs without the heads `without[b]`: many ablations in one call."""
    layers = [block.attention for block in model.blocks]
    keep = torch.ones(len(layers), len(without), layers[0].n_heads, 1, 1, dtype=torch.bool)
    for row, heads in enumerate(without):
        for layer, head in heads:
            keep[layer, row, head] = False
    kernels = [layer.kernel for layer in layers]

    def silenced(kernel: Callable, keep: Tensor) -> Callable:
        return lambda *args: torch.where(keep, kernel(*args), 0)

    try:
        for i, layer in enumerate(layers):
            layer.kernel = silenced(kernels[i], keep[i])
        yield
    finally:
        for layer, kernel in zip(layers, kernels, strict=True):
            layer.kernel = kernel


def after_blocks(model: attend.Transformer, ids: Sequence[int], rows: int) -> Tensor:
    """What the last block hands on, for so many rows of the same text: (rows, T, D)."""
    positions = torch.arange(len(ids))
    z = model.embedding(torch.tensor([ids] * rows), positions)
    for block in model.blocks:
        z = block(z, positions=positions, mask=None, cache=None)
    return z


def without_groups(
    model: attend.Transformer, ids: Sequence[int], groups: Sequence[Heads], measure: Measure
) -> Tensor:
    """`measure` of one text without each group of heads: (groups,)."""
    size = max(1, 400 // len(ids))
    results = []
    with torch.inference_mode():
        for start in range(0, len(groups), size):
            batch = groups[start : start + size]
            with ablated_by_row(model, batch):
                results.append(measure(after_blocks(model, ids, len(batch))))
    return torch.cat(results)


def without_each(
    model: attend.Transformer, ids: Sequence[int], measure: Measure, what: str
) -> Tensor:
    """`measure` of one text without each head in turn: (layers, H)."""
    H, positions = model.blocks[0].attention.n_heads, torch.arange(len(ids))
    results = []
    with torch.inference_mode():
        x = model.embedding(torch.tensor([ids]), positions)
        # The layers below a head do not notice that it is gone, so they are run once.
        for layer in track(range(len(model.blocks)), description=what, transient=True):
            z = x.expand(H, -1, -1)
            with ablated_by_row(model, [[(layer, head)] for head in range(H)]):
                for block in model.blocks[layer:]:
                    z = block(z, positions=positions, mask=None, cache=None)
                results.append(measure(z))
            x = model.blocks[layer](x, positions=positions, mask=None, cache=None)
    return torch.stack(results)


def loss_from(model: attend.Transformer, ids: Sequence[int], start: int) -> Measure:
    """Mean loss of the tokens from `start` on, for each row of a batch."""
    targets = torch.tensor(ids[start:])

    def measure(z: Tensor) -> Tensor:
        log_p = model.head(model.norm(z[:, start - 1 : -1])).log_softmax(-1)  # (B, n, V)
        return -log_p.gather(-1, targets.expand(len(z), -1)[..., None])[..., 0].mean(-1)

    return measure


# SmolLM2: causal


def scores_of_smollm2(model: attend.Transformer, novel: list[int], copies: list[list[int]]) -> dict:
    """What each head does on ordinary text and on random tokens shown twice: (30, 9) each."""
    weights = weights_of(model, novel)
    twice = [weights_of(model, ids) for ids in copies]
    return {
        "previous": rounded(attend.previous_token_score(weights)),
        "sink": rounded(attend.sink_score(weights)),
        "induction": rounded(sum(attend.induction_score(w, COPY) for w in twice) / len(twice)),
        "duplicate": rounded(
            sum(attend.duplicate_token_score(w, COPY) for w in twice) / len(twice)
        ),
        "first_value": rounded(first_values(model, novel)),
    }


def first_values(model: attend.Transformer, ids: list[int]) -> Tensor:
    """Length of the first token's value over the mean length of the others: (layers, H)."""
    lengths = []
    layers = [block.attention for block in model.blocks]
    kernels = [layer.kernel for layer in layers]

    def recording(kernel: Callable) -> Callable:
        def with_record(q, k, v, mask):
            norms = attend.repeat_kv(v, q.shape[-3] // v.shape[-3])[0].norm(dim=-1)  # (H, T)
            lengths.append(norms[:, 0] / norms[:, 1:].mean(-1))
            return kernel(q, k, v, mask)

        return with_record

    for layer, kernel in zip(layers, kernels, strict=True):
        layer.kernel = recording(kernel)
    with torch.no_grad():
        model(torch.tensor([ids]))
    for layer, kernel in zip(layers, kernels, strict=True):
        layer.kernel = kernel
    return torch.stack(lengths)


def pairs_of_smollm2(model: attend.Transformer, tokenizer) -> list[dict]:
    """The row at *it* of every head, and whom the model names when it is asked."""
    rows = []
    for first, second, sentence, question, *endings in PAIRS:
        sentences = [tokenizer.encode(sentence.format(end)) for end in endings]
        names = [tokenizer.decode([i]) for i in sentences[0]]
        at, one, other = (names.index(f" {word}") for word in ("it", first, second))
        weights = torch.stack([weights_of(model, ids) for ids in sentences])  # (2, L, H, T, T)
        end = next(t for t, (a, b) in enumerate(zip(*sentences, strict=True)) if a != b)
        answers = [tokenizer.encode(f" {word}")[0] for word in (first, second)]

        def log_odds(z: Tensor, answers: list[int] = answers) -> Tensor:
            logits = model.head(model.norm(z[:, -1]))
            return logits[:, answers] @ torch.tensor([1.0, -1.0])

        asked = [
            tokenizer.encode(f"{sentence.format(e)} What was {question.format(e)}? The")
            for e in endings
        ]
        odds = [round(without_groups(model, ids, [()], log_odds).item(), 3) for ids in asked]
        rows.append(
            {
                "tokens": names,
                "endings": endings,
                "at": at,
                "candidates": [one, other],
                "last": end,
                # One row stands for both endings: the difference says whether it may.
                "at_it": faint(weights[0, :, :, at, [one, other]]),
                "rows_differ_by": (weights[0] - weights[1]).abs()[:, :, :end].max().item(),
                "at_last": [faint(w[:, :, end, [one, other]]) for w in weights],
                "log_odds": odds,
                # Of the first ending alone: it takes a minute.
                "log_odds_without": rounded(without_each(model, asked[0], log_odds, first), 3),
            }
        )
    return rows


def ablations_of_smollm2(
    model: attend.Transformer, novel: list[int], copy: list[int], induction: Tensor
) -> dict:
    """Losses on the copy and on ordinary text without each head, and without groups of heads."""
    heads = all_heads(model)
    novel = novel[:ABLATED_NOVEL]
    texts = {"copy": (copy, COPY + 1), "novel": (novel, 1)}
    ranked = [heads[i] for i in induction.flatten().argsort(descending=True)]
    rng = torch.Generator().manual_seed(0)
    layers = {layer for layer, _ in ranked[: SIZES[-1]]}
    others = [h for h in heads if h[0] in layers and h not in ranked[: SIZES[-1]]]
    groups = {n: [ranked[:n]] + [_draw(others, n, rng) for _ in range(DRAWS)] for n in SIZES}
    table: dict = {"ranked": ranked[: SIZES[-1]], "sizes": list(SIZES)}
    for name, (ids, start) in texts.items():
        measure = loss_from(model, ids, start)
        grouped = [without_groups(model, ids, groups[n], measure) for n in SIZES]
        table[name] = {
            "loss": round(without_groups(model, ids, [()], measure).item(), 4),
            "without_one": rounded(without_each(model, ids, measure, name)),
            "without_top": [round(g[0].item(), 4) for g in grouped],
            "without_random": [rounded(g[1:]) for g in grouped],
        }
    return table


def _draw(heads: Heads, n: int, rng: torch.Generator) -> list[tuple[int, int]]:
    return [heads[i] for i in torch.randperm(len(heads), generator=rng)[:n]]


def smollm2() -> dict:
    model, tokenizer = attend.load("smollm2-135m")
    text = attend.pride_and_prejudice()
    novel = tokenizer.encode(text[text.index("It is a truth") :][:4000])[:NOVEL]
    rng = torch.Generator().manual_seed(0)
    copies = [2 * torch.randint(100, 49_000, (COPY,), generator=rng).tolist() for _ in range(4)]
    scores = scores_of_smollm2(model, novel, copies)
    repeated = tokenizer.encode(REPEATED)
    shown = {"previous": (16, 0), "sink": (18, 8), "induction": (18, 6)}
    maps = {role: rounded(weights_of(model, repeated)[at], 3) for role, at in shown.items()}
    sentence = tokenizer.encode(PAIRS[0][2].format(PAIRS[0][4]))
    at = sentence.index(tokenizer.encode(" it")[0])
    return {
        "scores": scores,
        "maps": {"tokens": [tokenizer.decode([i]) for i in repeated], "heads": shown, **maps},
        "at_it": rounded(weights_of(model, sentence)[:, :, at, : at + 1], 3),
        "ablation": ablations_of_smollm2(
            model, novel, copies[0], torch.tensor(scores["induction"])
        ),
        "pairs": pairs_of_smollm2(model, tokenizer),
    }


# MiniLM: bidirectional


def vector_of(z: Tensor) -> Tensor:
    """The sentence's vector: the mean of its tokens' vectors, of length 1. (B, T, D) → (B, D)."""
    return torch.nn.functional.normalize(z.mean(1), dim=-1)


def pairs_of_minilm(model: attend.Transformer, tokenizer) -> list[dict]:
    """Both candidates' weights at *it*, and the statement that a sentence is nearer to."""
    rows = []
    for first, second, sentence, question, *endings in PAIRS:
        weights, margins, without = [], [], []
        for ending in endings:
            ids = tokenizer.encode(sentence.format(ending))
            names = tokenizer.names(ids)
            at, one, other = (names.index(word) for word in ("it", first, second))
            weights.append(faint(weights_of(model, ids)[:, :, at, [one, other]]))
            statements = [
                tokenizer.encode(f"The {noun} was {question.format(ending)}.")
                for noun in (first, second)
            ]

            def margin(z: Tensor, statements: list = statements) -> Tensor:
                """How much nearer it is to the one about the first noun, read by the same heads."""
                mine = vector_of(z)
                one, other = (vector_of(after_blocks(model, s, len(mine))) for s in statements)
                return (mine * (one - other)).sum(-1)

            margins.append(round(without_groups(model, ids, [()], margin).item(), 4))
            without.append(rounded(without_each(model, ids, margin, f"{first}, {ending}")))
        rows.append(
            {
                "tokens": names,
                "endings": endings,
                "at": at,
                "candidates": [one, other],
                "at_it": weights,
                "margin": margins,
                "margin_without": without,
            }
        )
    return rows


def minilm() -> dict:
    model, tokenizer = attend.load("minilm-l6")
    sentence, endings = PAIRS[0][2], PAIRS[0][4:]
    maps = {}
    for ending in endings:
        ids = tokenizer.encode(sentence.format(ending))
        weights = weights_of(model, ids)
        maps[ending] = {
            "tokens": tokenizer.names(ids),
            "at_it": rounded(weights[:, :, ids.index(tokenizer.encode("it")[1])], 3),
        }
    text = attend.pride_and_prejudice()
    ids = tokenizer.encode(text[text.index("It is a truth") :][:600])
    weights = weights_of(model, ids)
    return {
        "scores": {
            "previous": rounded(attend.previous_token_score(weights)),
            "next": rounded(weights.diagonal(1, dim1=-2, dim2=-1).mean(-1)),
            "first": rounded(attend.sink_score(weights)),
            "last": rounded(weights[..., :-1, -1].mean(-1)),
        },
        "maps": maps,
        "pairs": pairs_of_minilm(model, tokenizer),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=TABLE, help="where the table is written")
    to = parser.parse_args().to
    if not all(map(attend.is_fetched, ("smollm2-135m", "minilm-l6"))):
        print("The models are not on this machine: run `course fetch-models`.", file=sys.stderr)
        return 2
    table = {"command": "python tools/read_heads.py", "minilm": minilm(), "smollm2": smollm2()}
    to.write_text(json.dumps(table, separators=(",", ":"), ensure_ascii=False) + "\n", "utf-8")
    print(f"{to}: {to.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
