"""Speed and memory of the transformer in `attend`, measured in one run.

    python benchmarks/transformer.py
    python benchmarks/transformer.py --only attention training --quick

What is compared is measured in turns, and the best turn counts: other work on the machine can only
slow a turn down. Results go to benchmarks/transformer.json. The published model must have been
fetched (`course fetch-models`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import attend
from coursework import memory

RESULTS = Path(__file__).with_name("transformer.json")


def in_turns(contenders: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Seconds of the best turn of each contender."""
    best = dict.fromkeys(contenders, math.inf)
    for _ in range(turns):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


# SmolLM2 against transformers, and against the memory


def as_transformers(model: attend.Transformer) -> nn.Module:
    """The same weights in transformers' Llama."""
    first = model.blocks[0]
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=49152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=len(model.blocks),
            num_attention_heads=first.attention.n_heads,
            num_key_value_heads=first.attention.n_kv_heads,
            max_position_embeddings=8192,
            rms_norm_eps=first.norm_1.eps,
            rope_theta=100000.0,
            tie_word_embeddings=True,
        )
    ).eval()
    weights = {
        "model.embed_tokens.weight": model.embedding.tokens,
        "model.norm.weight": model.norm.gain,
    }
    for i, block in enumerate(model.blocks):
        there = f"model.layers.{i}."
        weights[f"{there}input_layernorm.weight"] = block.norm_1.gain
        weights[f"{there}post_attention_layernorm.weight"] = block.norm_2.gain
        for name in "qkvo":
            w = getattr(block.attention, f"w_{name}")
            weights[f"{there}self_attn.{name}_proj.weight"] = w.T
        for name in ("gate", "up", "down"):
            weights[f"{there}mlp.{name}_proj.weight"] = getattr(block.mlp, f"w_{name}").T
    theirs.load_state_dict(weights, strict=False)
    theirs.tie_weights()
    return theirs


@torch.inference_mode()
def smollm2(quick: bool) -> dict:
    """Prefill and decode, one thread and two, beside the time that reading the weights takes."""
    model, tokenizer = attend.load("smollm2-135m")
    theirs = as_transformers(model)
    prompt, steps, turns = (32, 4, 2) if quick else (256, 24, 5)
    ids = torch.tensor([tokenizer.encode(attend.pride_and_prejudice()[:4000])[:prompt]])
    off = (theirs(ids).logits - model(ids)).abs().max().item()
    assert off < 1e-3, f"the two models differ by {off}"

    def decode_ours():
        for step in range(steps):
            model(ids[:, step : step + 1], ours_caches)

    def decode_theirs():
        for step in range(steps):
            theirs(ids[:, step : step + 1], past_key_values=their_cache, use_cache=True)

    def read_weights():
        for _ in range(steps):
            for parameter in model.parameters():
                parameter.sum()

    # What the matrices of a step cost with nothing around them, in the layout that they have.
    matrices = [p for p in model.parameters() if p.ndim == 2 and p.shape[0] != 49152]
    vectors = {n: torch.randn(1, n) for n in {p.shape[0] for p in matrices}}
    last = torch.randn(1, model.embedding.tokens.shape[1])

    def multiply():
        for _ in range(steps):
            for matrix in matrices:
                vectors[matrix.shape[0]] @ matrix
            last @ model.embedding.tokens.T

    rows = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        prefill = in_turns(
            {
                "ours": lambda: model(ids, attend.new_caches(model, 1, prompt)),
                "theirs": lambda: theirs(ids, use_cache=True),
            },
            turns,
        )
        ours_caches = attend.new_caches(model, 1, prompt + turns * steps)
        model(ids, ours_caches)
        their_cache = theirs(ids, use_cache=True).past_key_values
        decode = in_turns(
            {
                "ours": decode_ours,
                "theirs": decode_theirs,
                "limit": read_weights,
                "products": multiply,
            },
            turns,
        )
        rows[f"{threads} thread{'s' * (threads > 1)}"] = {
            "prefill tokens/s": prompt / prefill["ours"],
            "prefill, × transformers": prefill["theirs"] / prefill["ours"],
            "decode tokens/s": steps / decode["ours"],
            "decode, × transformers": decode["theirs"] / decode["ours"],
            "decode, share of the memory limit": decode["limit"] / decode["ours"],
            "decode, share that its matrix products take": decode["products"] / decode["ours"],
        }
    torch.set_num_threads(1)
    return rows


@torch.inference_mode()
def cache(quick: bool) -> dict:
    """One more token of SmolLM2 with the cache and without it."""
    model, tokenizer = attend.load("smollm2-135m")
    novel = torch.tensor([tokenizer.encode(attend.pride_and_prejudice()[:9000])])
    rows = {}
    for n in (64, 128) if quick else (64, 128, 256, 512):
        caches = attend.new_caches(model, 1, n + 16)
        model(novel[:, : n - 1], caches)
        step = novel[:, n - 1 : n]
        best = in_turns(
            {"with": lambda: model(step, caches), "without": lambda: model(novel[:, :n])},  # noqa: B023
            2 if quick else 5,
        )
        rows[f"{n} tokens"] = {
            "with, ms": 1000 * best["with"],
            "without, ms": 1000 * best["without"],
            "× faster": best["without"] / best["with"],
            "cache, MB": attend.kv_cache_bytes(30, 3, 64, n, bytes_per_value=4) / 1e6,
        }
    return rows


# Attention over long texts


def peak_of(way: Callable[..., object], *arrays: torch.Tensor) -> int:
    """Bytes that a call needs at its peak, measured in a child process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        way(*(a[..., :256, :] for a in arrays))  # what is needed the first time only
        _, peak = memory.peak_of(lambda: way(*arrays))
        os.write(write, str(peak).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        peak = int(answer.read())
    os.waitpid(child, 0)
    return peak


def attention(quick: bool) -> dict:
    """Causal attention of one head, 64 wide, five ways."""
    torch.set_num_threads(1)
    rows = {}
    ways: dict[str, Callable[..., object]] = {
        "explicit": attend.causal_attention,
        "fused": partial(F.scaled_dot_product_attention, is_causal=True),
        "tiled, 256": partial(attend.flash_attention, block_size=256, causal=True),
        "window, 256": partial(attend.sliding_window_attention, window=256),
        "linear": partial(attend.linear_attention_recurrent, chunk=128),
    }
    for T in (256, 1024) if quick else (256, 1024, 4096, 8192, 16384):
        arrays = [torch.randn(1, 1, T, 64) for _ in range(3)]
        with torch.inference_mode():
            calls = {name: partial(way, *arrays) for name, way in ways.items()}
            seconds = in_turns(calls, 2 if quick or T > 8000 else 4)
            rows[f"{T} tokens"] = {
                **{f"{name}, ms": 1000 * s for name, s in seconds.items()},
                **{f"{name}, MB": peak_of(way, *arrays) / 1e6 for name, way in ways.items()},
            }
    return rows


# Training


class PlainEncoder(nn.Module):
    """The model of chapter 08 made of PyTorch's own layers."""

    def __init__(self, c: attend.GPTConfig):
        super().__init__()
        self.tokens, self.positions = (
            nn.Embedding(c.vocab, c.d_model),
            nn.Embedding(c.context, c.d_model),
        )
        layer = nn.TransformerEncoderLayer(
            c.d_model, c.n_heads, c.d_hidden, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, c.n_layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(c.d_model)

    def forward(self, ids):
        T = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(T)
        x = self.tokens(ids) + self.positions(torch.arange(T))
        return self.norm(self.layers(x, mask=mask, is_causal=True)) @ self.tokens.weight.T


def training(quick: bool) -> dict:
    """Training steps of the 0.8 M model, batch 12 of 64 tokens, one thread."""
    torch.set_num_threads(1)
    config = attend.GPTConfig(
        vocab=75, context=64, d_model=128, n_layers=4, n_heads=4, d_hidden=512
    )
    models = {"ours": attend.gpt(config), "nn.TransformerEncoder": PlainEncoder(config)}
    text = attend.pride_and_prejudice()
    ids = torch.tensor(attend.Characters(text).encode(text))
    windows = attend.sample_windows(ids, 64, 12, torch.Generator().manual_seed(0))
    steps = 5 if quick else 30

    def steps_of(model):
        optimizer = attend.adamw(model, 0.1)

        def run():
            for _ in range(steps):
                loss = F.cross_entropy(
                    model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten()
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

        return run

    best = in_turns({name: steps_of(model) for name, model in models.items()}, 2 if quick else 5)
    tokens = steps * 12 * 64
    return {
        "one thread": {
            "tokens/s": tokens / best["ours"],
            "× nn.TransformerEncoder": best["nn.TransformerEncoder"] / best["ours"],
        }
    }


BENCHMARKS = {f.__name__: f for f in (smollm2, cache, attention, training)}


def show(name: str, rows: dict[str, dict[str, float]], console: Console) -> None:
    """One benchmark as a table, a line for each figure."""
    table = Table("", *rows, title=f"{name}: {BENCHMARKS[name].__doc__}")
    for figure in next(iter(rows.values())):
        table.add_row(figure, *(f"{row[figure]:,.3g}" for row in rows.values()))
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    given = parser.parse_args()
    results, console = {}, Console()
    for name in track(given.only, console=console, description="measuring"):
        results[name] = BENCHMARKS[name](given.quick)
        show(name, results[name], console)
    if not given.quick:
        kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        machine = {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "transformers": transformers.__version__,
        }
        RESULTS.write_text(
            json.dumps({**kept, **results, "machine": machine}, indent=1) + "\n", "utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
