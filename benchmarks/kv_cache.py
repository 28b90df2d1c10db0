"""What chapter 09 says about a published model: speed with a cache, and positions off by one.

    python benchmarks/kv_cache.py

Writes book/data/09-kv-cache.json. What is compared is measured in turns, as CPU time of one thread,
and the best turn counts: other work on the machine can only slow a turn down. SmolLM2 must have
been fetched (`course fetch-models smollm2-135m`); its weights are those of the published Q4_1 file,
computed with in float32.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.progress import track

import attend

RESULTS = Path(__file__).parents[1] / "book" / "data" / "09-kv-cache.json"
LENGTHS = (64, 128, 256, 512, 1024)
BATCHES = (1, 2, 4, 8, 16)
READ, SCORED = 64, 320  #: tokens that are read first, and tokens whose loss is measured then


def in_turns(contenders: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """CPU seconds of the best turn of each contender."""
    best = dict.fromkeys(contenders, math.inf)
    for _ in range(turns):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def lengths(model: attend.Transformer, novel: torch.Tensor, turns: int = 5) -> list[dict]:
    """One more token after n − 1 others, with the cache and without it."""
    rows = []
    for n in track(LENGTHS, description="lengths"):
        caches = attend.new_caches(model, 1, n + turns)
        model(novel[:, : n - 1], caches)
        step, text = novel[:, n - 1 : n], novel[:, :n]
        seconds = in_turns(
            {"with": lambda: model(step, caches), "without": lambda: model(text)},  # noqa: B023
            turns,
        )
        rows.append({"tokens": n, **_rounded(seconds)})
    return rows


def batches(model: attend.Transformer, novel: torch.Tensor, turns: int = 6) -> list[dict]:
    """One more token for each of B texts of 256 tokens, and reading every weight once."""
    rows = []
    for batch in track(BATCHES, description="batches"):
        caches = attend.new_caches(model, batch, 256 + turns)
        for part in novel[:, :256].expand(batch, -1).split(64, dim=1):
            model(part, caches)
        step = novel[:, 256:257].expand(batch, -1)
        seconds = in_turns(
            {
                "step": lambda: model(step, caches),  # noqa: B023
                "read": lambda: [parameter.sum() for parameter in model.parameters()],
            },
            turns,
        )
        rows.append({"batch": batch, **_rounded(seconds)})
    return rows


def logits_at(
    model: attend.Transformer, ids: torch.Tensor, positions: torch.Tensor, caches: list
) -> torch.Tensor:
    """`model(ids, caches)` with positions of one's own."""
    x = model.embedding(ids, positions)
    for block, cache in zip(model.blocks, caches, strict=True):
        x = block(x, positions=positions, mask=None, cache=cache)
    return model.head(model.norm(x))


def positions(model: attend.Transformer, novel: torch.Tensor) -> list[dict]:
    """Loss and logits of 320 tokens after 64, with the new tokens' positions wrong."""
    ids = novel[:, : READ + SCORED + 1]
    new, targets = ids[:, READ:-1], ids[0, READ + 1 :]
    true = torch.arange(READ, READ + SCORED)
    wrong = {
        "right": true,
        "one too early": true - 1,
        "one too late": true + 1,
        "ten too late": true + 10,
        "begun again at 0": true - READ,
        "0 for every token": 0 * true,
    }
    rows, right = [], None
    for name, given in track(wrong.items(), description="positions"):
        caches = attend.new_caches(model, 1, READ + SCORED)
        model(ids[:, :READ], caches)
        logits = logits_at(model, new, given, caches)[0]
        right = logits if right is None else right
        off = (logits - right).abs()
        rows.append(
            {
                "positions": name,
                "loss": F.cross_entropy(logits, targets).item(),
                "furthest logit": off.max().item(),
                "other first choice": int((logits.argmax(-1) != right.argmax(-1)).sum()),
                "by token": [round(x, 3) for x in off.amax(-1).tolist()],
            }
        )
    caches = attend.new_caches(model, 1, READ + SCORED)
    model(ids[:, :READ], caches)
    steps = torch.cat([model(new[:, t : t + 1], caches) for t in range(SCORED)], dim=1)[0]
    off = (steps - right).abs().max().item()
    rows.append({"positions": "right, token by token", "furthest logit": off})
    return rows


def _rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in seconds.items()}


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = attend.load("smollm2-135m")
    novel = torch.tensor([tokenizer.encode(attend.pride_and_prejudice()[:9000])])
    results = {
        "made by": "python benchmarks/kv_cache.py",
        "lengths": lengths(model, novel),
        "batches": batches(model, novel),
        "positions": positions(model, novel),
        "weights, bytes": sum(p.nbytes for p in model.parameters()),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results) + "\n", "utf-8")


if __name__ == "__main__":
    main()
