"""Make the small model that runs in the page of chapter 08: train it, round it, write it down.

    python tools/live_model.py train     # about 15 minutes on one core, into _build/live-model.pt
    python tools/live_model.py export    # seconds, into book/_static/live-model/

Training can be interrupted: the same command goes on from the last evaluation, and `export` takes
what is there. The weights in the repository were taken after 2,750 steps. What training printed is
kept in book/_static/live-model/training.log, and the model card beside it says what the model is.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import attend
from attend.checkpoints import build
from attend.layers import explicit_attention
from attend.reading import ablated, captured_weights
from attend.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parent.parent
CHECKPOINT = ROOT / "_build" / "live-model.pt"
FOLDER = ROOT / "book" / "_static" / "live-model"
EXAMPLE = ROOT / "book" / "_static" / "instruments" / "attend-live-model.example.js"
TABLE = ROOT / "book" / "data" / "live-model.json"  # what a page may say about the model
N_PARTS = 8  # of the weights, so that a page can show how far it is

N_MERGES = 512
HELD_OUT = 0.05  # the last twentieth of the novel is never trained on
CONFIG = attend.GPTConfig(
    vocab=256 + N_MERGES, context=128, d_model=160, n_layers=4, n_heads=4, d_hidden=640
)
RECIPE = attend.Recipe(
    steps=3000,
    batch=8,
    context=CONFIG.context,
    peak=3e-3,
    floor=1e-4,
    warmup=150,
    weight_decay=0.3,
    evaluate_every=250,
    seed=0,
)


def novel() -> str:
    """The text to learn from: a paragraph is one line, and the marks of italics are gone."""
    text = attend.pride_and_prejudice().replace("_", "")
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", text)  # the end of a printed line means nothing
    return re.sub(r"\n+", "\n", text)


def learned_and_held_out(text: str) -> tuple[str, str]:
    """The text in two: what is trained on, and what the model is judged by."""
    border = text.index("\n", int(len(text) * (1 - HELD_OUT))) + 1
    return text[:border], text[border:]


def train() -> None:
    torch.manual_seed(RECIPE.seed)
    torch.set_num_threads(1)
    learned, held_out = learned_and_held_out(novel())
    tokenizer = Tokenizer.train(learned, N_MERGES)
    ids, held_out_ids = (torch.tensor(tokenizer.encode(part)) for part in (learned, held_out))
    model = attend.gpt(CONFIG)
    CHECKPOINT.parent.mkdir(exist_ok=True)
    prompt = torch.tensor([tokenizer.encode("It is a truth")])
    start = time.process_time()

    def watch(step: int, model: torch.nn.Module) -> None:
        said = attend.generate(
            model,
            prompt,
            40,
            context=CONFIG.context,
            temperature=0.8,
            generator=torch.Generator().manual_seed(0),
        )
        print(
            f"step {step}: loss on held-out text {losses(model)} nats per token, "
            f"{time.process_time() - start:.0f} s of one core\n    "
            + tokenizer.decode(said[0].tolist()).replace("\n", " / "),
            flush=True,
        )

    def losses(model: torch.nn.Module) -> str:
        return f"{attend.evaluate(model, held_out_ids, CONFIG.context):.3f}"

    print(f"{attend.count_parameters(model)}\n{RECIPE}")
    print(f"{len(ids)} tokens to learn from, {len(held_out_ids)} held out", flush=True)
    attend.train(
        model, ids, held_out_ids, RECIPE, checkpoint=CHECKPOINT, watch=watch, progress=False
    )


# Writing the model down


def is_transposed(name: str) -> bool:
    """Whether the file has a matrix (out, in): one row makes one output, and has its own scale."""
    return ".w_" in name


def to_8_bits(rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers -127 … 127 and one scale for each row, whose products are nearest to `rows`."""
    rows = rows.detach().numpy()
    scales = np.abs(rows).max(axis=1) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(rows / scales[:, None]).astype("i1"), scales.astype("<f4")


def packed(model: torch.nn.Module) -> tuple[bytes, list[dict]]:
    """The weights as bytes, and what follows what."""
    data, tensors = b"", []
    for name, parameter in model.named_parameters():
        rows = parameter.T if is_transposed(name) else parameter
        tensors.append({"name": name, "shape": list(rows.shape)})
        if rows.ndim == 1:
            data += rows.detach().numpy().astype("<f4").tobytes()
        else:
            whole, scales = to_8_bits(rows)
            data += scales.tobytes() + whole.tobytes()
    return data, tensors


def unpacked(data: bytes, tensors: list[dict]) -> dict[str, Tensor]:
    """The weights out of the bytes of `packed`, by the names of `attend`."""
    at, weights = 0, {}

    def take(kind: str, n: int) -> np.ndarray:
        nonlocal at
        taken = np.frombuffer(data, kind, n, at)
        at += taken.nbytes
        return taken

    for tensor in tensors:
        name, shape = tensor["name"], tensor["shape"]
        if len(shape) == 1:
            weights[name] = torch.tensor(take("<f4", shape[0]))
            continue
        scales = take("<f4", shape[0])
        rows = torch.tensor(take("i1", math.prod(shape)).reshape(shape) * scales[:, None])
        weights[name] = rows.T if is_transposed(name) else rows
    return weights


def script(name: str, content: dict) -> str:
    """A classic script that puts `content` into the page as `attend.<name>`."""
    made_by = "/* Written by tools/live_model.py. */\n"
    assignment = f"globalThis.attend = Object.assign(globalThis.attend ?? {{}}, {{ {name}:\n"
    return f"{made_by}{assignment}{json.dumps(content, ensure_ascii=False)}\n}});\n"


def content_of(path: Path) -> dict:
    """What `script` put into a file."""
    return json.loads(path.read_text("utf-8").split("\n", 2)[2].rsplit("\n", 2)[0])


def write(model: torch.nn.Module, tokenizer: Tokenizer) -> None:
    """The model as scripts: `model.js` says what it is, `weights-1.js` and so on hold the rest."""
    data, tensors = packed(model)
    ids = {token: i for i, token in enumerate(tokenizer.tokens)}
    merges = [[ids[a], ids[b]] for a, b in pairs_of(tokenizer)]
    size = math.ceil(len(data) / N_PARTS / 3) * 3  # base64 turns three bytes into four signs
    config = {
        "vocab": CONFIG.vocab,
        "context": CONFIG.context,
        "dModel": CONFIG.d_model,
        "nLayers": CONFIG.n_layers,
        "nHeads": CONFIG.n_heads,
        "dHidden": CONFIG.d_hidden,
    }
    content = {"config": config, "merges": merges, "tensors": tensors, "parts": [None] * N_PARTS}
    (FOLDER / "model.js").write_text(script("liveModel", content), "utf-8")
    for i in range(N_PARTS):
        text = base64.b64encode(data[i * size : (i + 1) * size]).decode()
        lines = "\n".join(text[at : at + 100] for at in range(0, len(text), 100))
        (FOLDER / f"weights-{i + 1}.js").write_text(
            f"globalThis.attend.liveModel.parts[{i}] = `\n{lines}\n`;\n", "ascii"
        )


def pairs_of(tokenizer: Tokenizer) -> list[tuple[bytes, bytes]]:
    """The merges of a tokenizer, in order of training, each by the bytes of its halves."""
    ranks = sorted(tokenizer._ranks.items(), key=lambda item: item[1])
    return [(tokenizer.tokens[a], tokenizer.tokens[b]) for (a, b), _ in ranks]


def read() -> tuple[torch.nn.Module, Tokenizer]:
    """The model of the page in `attend`: the numbers of the files, computed with in float32."""
    content = content_of(FOLDER / "model.js")
    parts = [(FOLDER / f"weights-{i + 1}.js").read_text("ascii") for i in range(N_PARTS)]
    data = b"".join(base64.b64decode(part.split("`")[1]) for part in parts)
    model = build(CONFIG, unpacked(data, content["tensors"]), str(FOLDER))
    tokens = [bytes([i]) for i in range(256)]
    for a, b in content["merges"]:
        tokens.append(tokens[a] + tokens[b])
    return model, Tokenizer(tokens, [(tokens[a], tokens[b]) for a, b in content["merges"]])


# The example that the page shows before it has the weights

EXAMPLE_TEXT = "Elizabeth looked at her sister, and her sister looked at"
SAMPLE_TOKENS = 96
NEW_TOKENS = 60
TEMPERATURE = 0.7
DICE = 1
SWITCHES = {
    "as trained": {},
    "no causal mask": {"causal": False},
    "no division by √d_k": {"scaled": False},
    "no positions": {"positions": False},
}


@contextmanager
def switched(
    model: torch.nn.Module,
    causal: bool = True,
    scaled: bool = True,
    positions: bool = True,
    removed: tuple[tuple[int, int], ...] = (),
) -> Iterator[torch.nn.Module]:
    """The model with parts of it switched off while the block runs."""
    layers = [block.attention for block in model.blocks]
    root = math.sqrt(layers[0].d_head)
    before = [(layer.pattern, layer.kernel) for layer in layers]
    table = model.embedding.positions.data
    try:
        for layer in layers:
            if not causal:
                layer.pattern = None
            if not scaled:
                layer.kernel = lambda q, k, v, mask: explicit_attention(q * root, k, v, mask)
        if not positions:
            model.embedding.positions.data = torch.zeros_like(table)
        with ExitStack() as stack:
            if removed:
                stack.enter_context(ablated(model, removed))
            yield model
    finally:
        model.embedding.positions.data = table
        for layer, (pattern, kernel) in zip(layers, before, strict=True):
            layer.pattern, layer.kernel = pattern, kernel


@torch.inference_mode()
def typical_passage(model: torch.nn.Module, tokenizer: Tokenizer) -> str:
    """Of all paragraphs that were held out, the beginning whose loss is nearest to their mean."""
    _, held_out = learned_and_held_out(novel())
    mean = attend.evaluate(model, torch.tensor(tokenizer.encode(held_out)), CONFIG.context)
    found = []
    for paragraph in held_out.split("\n"):
        ids = tokenizer.encode(paragraph)[:SAMPLE_TOKENS]
        text = tokenizer.decode(ids)
        if len(ids) == SAMPLE_TOKENS and tokenizer.encode(text) == ids:
            found.append((abs(loss_of(model, ids) - mean), text))
    return min(found)[1]


def loss_of(model: torch.nn.Module, ids: list[int]) -> float:
    batch = torch.tensor([ids])
    return attend.next_token_loss(model(batch), batch).item()


def looks_behind_the_earlier(weights: np.ndarray, ids: list[int]) -> list[int]:
    """The layer and head that look most from the last token to what followed it the time before."""
    last = len(ids) - 1
    after = max(i for i in range(last) if ids[i] == ids[last]) + 1
    best = np.argmax(weights[:, :, last, after])
    return [int(i) for i in np.unravel_index(best, weights.shape[:2])]


@torch.inference_mode()
def record(model: torch.nn.Module, tokenizer: Tokenizer, sample: str) -> dict:
    """What the page shows before anybody has asked for the weights, but for generated texts."""
    ids = tokenizer.encode(EXAMPLE_TEXT)
    with captured_weights(model) as captured:
        logits = model(torch.tensor([ids]))[0].numpy()
    weights = torch.stack([layer[0] for layer in captured]).numpy()  # (L, H, T, T)
    low, high = float(logits.min()), float(logits.max())
    shown = {*ids, *np.argsort(-logits, axis=-1)[:, :12].flatten().tolist()}
    losses = {}
    for name, switches in SWITCHES.items():
        with switched(model, **switches):
            losses[name] = {
                "text": loss_of(model, ids),
                "sample": loss_of(model, tokenizer.encode(sample)),
            }
    return {
        "text": EXAMPLE_TEXT,
        "sample": sample,
        "ids": ids,
        "names": {str(i): tokenizer.decode([i]) for i in sorted(shown)},
        "head": looks_behind_the_earlier(weights, ids),
        "shape": list(weights.shape),
        "weights": in_base64(weights, 0, 1, "u1"),
        "low": low,
        "high": high,
        "logits": in_base64(logits, low, high, "<u2"),
        "losses": losses,
    }


def in_base64(x: np.ndarray, low: float, high: float, kind: str) -> str:
    """Numbers between `low` and `high`, as whole numbers from 0 to the largest of their kind."""
    whole = np.rint((x - low) / (high - low) * np.iinfo(kind).max)
    return base64.b64encode(whole.astype(kind).tobytes()).decode()


def texts(model: torch.nn.Module, tokenizer: Tokenizer) -> list[dict]:
    """What the model says after the example, whole and with each part switched off."""
    ids = torch.tensor([tokenizer.encode(EXAMPLE_TEXT)])
    runs = []
    for name, switches in SWITCHES.items():
        with switched(model, **switches):
            generator = torch.Generator().manual_seed(DICE)
            said = attend.generate(
                model, ids, NEW_TOKENS, temperature=TEMPERATURE, generator=generator
            )
        new = said[0, ids.shape[1] :].tolist()
        runs.append({"name": name, "temperature": TEMPERATURE, "text": tokenizer.decode(new)})
    return runs


def export() -> None:
    learned, held_out = learned_and_held_out(novel())
    tokenizer = Tokenizer.train(learned, N_MERGES)
    model = attend.gpt(CONFIG)
    state = torch.load(CHECKPOINT, weights_only=True)
    model.load_state_dict(state["model"])
    FOLDER.mkdir(exist_ok=True)
    write(model, tokenizer)
    rounded, tokenizer = read()
    sample = typical_passage(rounded, tokenizer)
    example = record(rounded, tokenizer, sample) | {"runs": texts(rounded, tokenizer)}
    EXAMPLE.write_text(script("liveExample", example), "utf-8")
    losses = {}
    for name, part in (("learned", learned[: len(held_out)]), ("held out", held_out)):
        ids = torch.tensor(tokenizer.encode(part))
        losses[name] = {
            "32 bits": attend.evaluate(model, ids, CONFIG.context),
            "8 bits": attend.evaluate(rounded, ids, CONFIG.context),
        }
    table = {
        "made by": "python tools/live_model.py export",
        "parameters": attend.count_parameters(model),
        "steps": len(state["losses"]),
        "bytes of weights": sum(file.stat().st_size for file in FOLDER.glob("weights-*.js")),
        "nats per token": losses,
        "losses": example["losses"],
        "text": example["text"],
        "passage": example["sample"],
        "runs": example["runs"],
    }
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(TABLE.read_text("utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("train", "export"))
    {"train": train, "export": export}[parser.parse_args().what]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
