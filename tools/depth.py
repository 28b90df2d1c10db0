"""Train stacks of 2 to 64 blocks, pre-norm and post-norm: the table of chapter 07.

    python tools/depth.py
    python tools/depth.py --instrument

Every run takes the same number of steps on the same windows of Pride and Prejudice. What has been
run is kept in book/data/depth.json, and a run that is there is not repeated; --seconds stops after
that long. All of it takes about four minutes on one core. With --instrument the untrained stacks of
<attend-depth> are measured, and written into its script; that takes a quarter of a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attend.layers import FeedForward, LayerNorm, PostNormBlock, PreNormBlock, SelfAttention
from attend.masks import causal_mask
from attend.texts import pride_and_prejudice

BOOK = Path(__file__).parent.parent / "book"
TABLE = BOOK / "data" / "depth.json"
INSTRUMENT = BOOK / "_static" / "instruments" / "attend-depth.js"

DEPTHS = (2, 4, 8, 16, 32, 64)
RATES = (1e-3, 3e-3)
SEEDS = (0,)
#: Kind of block, and over how many steps the learning rate is warmed up.
VARIANTS = (("pre", 0), ("post", 0), ("post", 25), ("no residual", 0))
D, HEADS, CONTEXT, BATCH, STEPS = 32, 2, 32, 4, 80
HELD_OUT = 256  #: windows from the end of the novel, which no run trains on


class NoResidualBlock(PreNormBlock):
    """Norm, attention, norm, feed-forward, and nothing that goes round them."""

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm_2(self.attention(self.norm_1(x))))


class _PostNormWithoutResidual(PreNormBlock):
    def forward(self, x: Tensor) -> Tensor:
        return self.norm_2(self.mlp(self.norm_1(self.attention(x))))


class _NoNorm(PreNormBlock):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.mlp(x)


class _Neither(PreNormBlock):
    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.attention(x))


BLOCKS = {"pre": PreNormBlock, "post": PostNormBlock, "no residual": NoResidualBlock}
#: What the instrument shows: where the norms are, and whether there is a residual path.
SHOWN = {
    "pre": PreNormBlock,
    "post": PostNormBlock,
    "none": _NoNorm,
    "pre without": NoResidualBlock,
    "post without": _PostNormWithoutResidual,
    "none without": _Neither,
}


class Stack(nn.Module):
    """Characters in, scores of the next character out, `depth` blocks between them.

    All matrices start with variance 1 / (numbers that are added up), so that what goes in at size 1
    comes out at about size 1, whatever the width.
    """

    def __init__(self, kind: str, depth: int, vocab: int, seed: int, d_model: int = D):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.tokens = nn.Parameter(torch.randn(vocab, d_model, generator=generator))
        self.positions = nn.Parameter(torch.randn(CONTEXT, d_model, generator=generator))
        self.blocks = nn.ModuleList(
            (BLOCKS | SHOWN)[kind](
                SelfAttention(d_model, HEADS, pattern=causal_mask),
                FeedForward(d_model, 4 * d_model),
                LayerNorm(d_model),
                LayerNorm(d_model),
            )
            for _ in range(depth)
        )
        self.norm = LayerNorm(d_model)
        self.w_vocab = nn.Parameter(torch.randn(d_model, vocab, generator=generator))
        with torch.no_grad():
            for matrix in (p for p in self.blocks.parameters() if p.ndim == 2):
                matrix.normal_(std=len(matrix) ** -0.5, generator=generator)
            self.w_vocab /= d_model**0.5

    def stream(self, ids: Tensor) -> list[Tensor]:
        """The stream before the first block and after each: depth + 1 tensors (B, T, D)."""
        stream = [self.tokens[ids] + self.positions[: ids.shape[-1]]]
        for block in self.blocks:
            stream.append(block(stream[-1]))
        return stream

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.stream(ids)[-1]) @ self.w_vocab


def loss_of(model: Stack, windows: Tensor) -> Tensor:
    """Mean surprise at the next character, in nats."""
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def text_as_ids() -> tuple[Tensor, int]:
    """The novel, a number a character, and how many numbers there are."""
    text = pride_and_prejudice()
    alphabet = {c: i for i, c in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[c] for c in text]), len(alphabet)


def windows_of(ids: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """`n` windows of CONTEXT + 1 characters from anywhere: (n, CONTEXT + 1)."""
    starts = torch.randint(len(ids) - CONTEXT, (n, 1), generator=generator)
    return ids[starts + torch.arange(CONTEXT + 1)]


def trained(
    kind: str, warmup: int, depth: int, rate: float, seed: int, steps: int = STEPS
) -> dict[str, object]:
    """One run of Adam: its losses by tens of steps, and the one on held-out text at the end."""
    ids, vocab = text_as_ids()
    generator = torch.Generator().manual_seed(seed)
    held_out = windows_of(ids[-50_000:], HELD_OUT, torch.Generator().manual_seed(0))
    model = Stack(kind, depth, vocab, seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / (warmup + 1))
        loss = loss_of(model, windows_of(ids[:-50_000], BATCH, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        final = loss_of(model, held_out).item()
    tens = torch.tensor(losses).reshape(-1, 10).mean(-1)
    return {
        "kind": kind,
        "warmup": warmup,
        "depth": depth,
        "rate": rate,
        "seed": seed,
        "losses": [round(x, 4) for x in tens.tolist()],
        "held_out": round(final, 4),
    }


def profile(kind: str, depth: int, seeds: Sequence[int] = (0, 1, 2)) -> dict[str, list]:
    """Logarithms along an untrained stack: size and own share of the stream, gradient norms.

    As on the page of chapter 07: the stream of the first seed on 16 windows, and the mean over all
    seeds of the gradient on four of them.

    Returns:
        size, own (depth + 1 numbers each) and gradient (depth numbers); None where a number is not
        finite.
    """
    ids, vocab = text_as_ids()
    windows = windows_of(ids, 16, torch.Generator().manual_seed(1))
    models = [Stack(kind, depth, vocab, seed) for seed in seeds]
    with torch.no_grad():
        stream = torch.stack(models[0].stream(windows[:, :-1])).double()
    squares = stream.square().sum((1, 2, 3))
    own = (stream - stream.mean(-2, keepdim=True)).square().sum((1, 2, 3))
    found = {
        "size": (squares / stream[0].numel()).sqrt(),
        "own": own / squares,
        "gradient": torch.stack([_gradient_norms(model, windows[:4]) for model in models]).mean(0),
    }
    return {
        name: [round(x, 2) if math.isfinite(x) else None for x in values.log10().tolist()]
        for name, values in found.items()
    }


def _gradient_norms(model: Stack, windows: Tensor) -> Tensor:
    """The norm of the loss's gradient at each block, all its parameters together: (depth,)."""
    loss_of(model, windows).backward()
    squares = [
        sum(p.grad.double().square().sum() for p in block.parameters() if p.grad is not None)
        for block in model.blocks
    ]
    return torch.stack(squares).sqrt()


def write_instrument() -> None:
    """Put the profiles of all stacks into the instrument's script."""
    lines = []
    for kind in SHOWN:
        rows = (f"      {depth}: {_as_js(profile(kind, depth))}," for depth in DEPTHS)
        lines.append(f"    {json.dumps(kind)}: {{\n" + "\n".join(rows) + "\n    },")
    script = INSTRUMENT.read_text()
    start, rest = script.split("  // TABLE\n")
    end = rest.split("  // END OF TABLE\n")[1]
    table = "  const TABLE = {\n" + "\n".join(lines) + "\n  };\n"
    INSTRUMENT.write_text(f"{start}  // TABLE\n{table}  // END OF TABLE\n{end}")


def _as_js(values: dict[str, list]) -> str:
    return "{" + ", ".join(f"{name}: {json.dumps(logs)}" for name, logs in values.items()) + "}"


KEY = ("kind", "warmup", "depth", "rate", "seed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after that long")
    parser.add_argument("--instrument", action="store_true", help="measure, do not train")
    arguments = parser.parse_args()
    limit = time.perf_counter() + arguments.seconds
    torch.set_num_threads(1)  # a second one makes small matrices slower, not faster
    if arguments.instrument:
        write_instrument()
        return 0
    runs = json.loads(TABLE.read_text())["runs"] if TABLE.exists() else []
    done = {tuple(run[k] for k in KEY) for run in runs}
    for depth, seed, rate, (kind, warmup) in product(DEPTHS, SEEDS, RATES, VARIANTS):
        if (kind, warmup, depth, rate, seed) in done or (kind == "no residual" and depth > 16):
            continue
        if time.perf_counter() > limit:
            return 3
        runs.append(trained(kind, warmup, depth, rate, seed))
        print(*(runs[-1][k] for k in (*KEY, "held_out")), flush=True)
        settings = {"d_model": D, "context": CONTEXT, "batch": BATCH, "steps": STEPS}
        lines = ",\n".join(json.dumps(run) for run in runs)
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(f'{{"settings": {json.dumps(settings)},\n"runs": [\n{lines}\n]}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
