"""Make the tables behind the gallery of heads: what the heads of two published models do.

Run once, with both models on this machine (`course fetch-models`); it takes about three minutes:

    python tools/head_gallery.py

It writes book/_static/instruments/attend-head-gallery.data.js, one assignment of one JSON object:

    weights   of every head of both models on four short texts, in 255ths, so that a row of bytes
              sums to 255. Of a causal model only the keys up to the query are kept.
    census    for every head, layer by layer, how far it does one thing (the functions below)
    grouping  the loss of SmolLM2 with its key/value heads repeated in place, and tiled

The weights of SmolLM2 are those of the Instruct version in the quantisation Q4_1.
"""

from __future__ import annotations

import base64
import json
import random
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import attend

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "book" / "_static" / "instruments" / "attend-head-gallery.data.js"
SENTENCES = ROOT / "tools" / "verb_object.txt"

TEXTS = {
    "tired": "The animal did not cross the street because it was too tired.",
    "wide": "The animal did not cross the street because it was too wide.",
    "nurse": "The nurse gave the child a glass of cold water and closed the heavy door.",
    # The space in front makes the first word the same token as when it comes again.
    "twice": 2 * " lamp green seven horse under music bright tax river glass",
}
WINDOWS, WINDOW = 8, 96  # of the novel, for what heads do on ordinary text
DRAWS, PERIOD = 4, 50  # of random tokens, each sequence twice
RARE = 80  # sentences of the novel in which one token is rarest


@dataclass
class Reader:
    """A published model, with what is needed to point at words in its text."""

    key: str
    name: str
    published: str
    causal: bool

    def __post_init__(self):
        self.model, self.tokenizer = attend.load(self.published)
        attention = self.model.blocks[0].attention
        self.layers, self.heads = len(self.model.blocks), attention.n_heads

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)

    def names(self, ids: list[int]) -> list[str]:
        """Tokens as they are shown."""
        if self.causal:
            return [self.tokenizer.decode([i]).strip() for i in ids]
        return self.tokenizer.names(ids)

    def inner(self, ids: list[int]) -> slice:
        """The tokens that stand for text: a reader of BERT's kind has marks around them."""
        return slice(0, len(ids)) if self.causal else slice(1, len(ids) - 1)

    def spans(self, text: str, ids: list[int]) -> list[tuple[int, int]]:
        """Where in the text each token stands; (0, 0) for a mark that stands nowhere."""
        if self.causal:
            ends = [len(self.tokenizer.decode(ids[: n + 1])) for n in range(len(ids))]
            return list(zip([0, *ends[:-1]], ends, strict=True))
        spans, at = [], 0
        for name in self.names(ids):
            if name in ("[CLS]", "[SEP]"):
                spans.append((0, 0))
                continue
            piece = name.removeprefix("##")
            start = text.lower().index(piece, at)
            at = start + len(piece)
            spans.append((start, at))
        return spans

    def weights(self, ids: list[list[int]]) -> np.ndarray:
        """Attention of every head: (L, B, H, T, T)."""
        with torch.no_grad(), attend.captured_weights(self.model) as collected:
            self.model(torch.tensor(ids))
        return torch.stack(collected).numpy()


# Weights in bytes -----------------------------------------------------------------------------


def in_255ths(weights: np.ndarray) -> np.ndarray:
    """Rows that sum to 1 as bytes that sum to 255, none further than 1/255 from its weight."""
    exact = 255 * weights.astype(np.float64) / weights.sum(-1, keepdims=True, dtype=np.float64)
    whole = np.floor(exact)
    missing = np.rint(255 - whole.sum(-1, keepdims=True)).astype(int)
    rank = np.argsort(np.argsort(whole - exact, axis=-1, kind="stable"), axis=-1, kind="stable")
    return (whole + (rank < missing)).astype(np.uint8)


def packed(weights: np.ndarray, causal: bool) -> str:
    """(L, H, T, T) as base64, row after row; of a causal model the lower triangles only."""
    amounts = in_255ths(weights)
    if causal:
        queries, keys = np.tril_indices(weights.shape[-1])
        amounts = amounts[..., queries, keys]
    return base64.b64encode(np.ascontiguousarray(amounts).tobytes()).decode()


def gallery_of(reader: Reader) -> dict:
    tables = {}
    for key, text in TEXTS.items():
        ids = reader.encode(text)
        weights = reader.weights([ids])[:, 0]
        tables[key] = {"tokens": reader.names(ids), "bytes": packed(weights, reader.causal)}
    return tables


# What heads do, one number a head: (L, H) --------------------------------------------------------


def diagonal(weights: np.ndarray, distance: int, first: int = 0) -> np.ndarray:
    """Mean weight from t to t - distance over t = first … T - 1, and over the batch."""
    picked = np.diagonal(weights, -distance, -2, -1)  # from t = distance on, or from 0
    skip = first - max(distance, 0)
    return picked[..., max(skip, 0) :].mean(-1).mean(1)


def on_the_novel(reader: Reader, novel: list[int]) -> dict:
    """Where the weight goes on ordinary text: neighbours, itself, the first and the last token."""
    ids = reader.encode("")  # the marks alone, if there are any
    around = (ids[:1], ids[1:]) if ids else ([], [])
    starts = np.linspace(len(novel) // 20, len(novel) - 2 * WINDOW, WINDOWS).astype(int)
    batch = [[*around[0], *novel[s : s + WINDOW], *around[1]] for s in starts]
    weights = reader.weights(batch)
    scores = {
        "previous": diagonal(weights, 1, first=1),
        "first": weights[..., 1:, 0].mean((1, 3)),
        "itself": diagonal(weights, 0, first=1),
    }
    if not reader.causal:
        scores["next"] = diagonal(weights, -1)
        scores["last"] = weights[..., :-1, -1].mean((1, 3))
    return scores


def on_repetitions(reader: Reader) -> dict:
    """On random tokens that come twice: the token after the last occurrence, and itself."""
    rng = np.random.default_rng(0)
    lowest = 100 if reader.causal else 1996  # below are signs and names of commands
    scores = []
    for _ in range(DRAWS):
        once = rng.integers(lowest, len(reader.tokenizer), PERIOD).tolist()
        marks = reader.encode("")
        ids = [*marks[:1], *once, *once, *marks[1:]]
        weights = reader.weights([ids])[..., reader.inner(ids), reader.inner(ids)]
        scores.append([diagonal(weights, PERIOD - 1, PERIOD), diagonal(weights, PERIOD, PERIOD)])
    induction, duplicate = np.mean(scores, axis=0)
    return {"induction": induction, "duplicate": duplicate}


def words_of(text: str) -> list[tuple[int, int]]:
    return [m.span() for m in re.finditer(r"[A-Za-z']+", text)]


def marked(line: str) -> tuple[str, int, int]:
    """A sentence without its marks, and which words are the verb and its object."""
    text = re.sub(r"[\[\]()]", "", line)
    verb = len(words_of(line[: line.index("[")]))
    object_ = len(words_of(line[: line.index("(")]))
    return text, verb, object_


def between_words(reader: Reader, text: str) -> np.ndarray:
    """Weights from word to word (L, H, W, W): the mean over a query's tokens, the sum over a key's.

    Nothing can be read off the first token of a causal model, on which weight is parked: it is left
    out, as the marks of the other model are.
    """
    ids = reader.encode(text)
    spans = reader.spans(text, ids)
    member = np.array([[s < b and a < e for s, e in spans] for a, b in words_of(text)], float)
    weights = reader.weights([ids])[:, 0]
    if reader.causal:
        weights = weights.copy()
        weights[..., 0] = 0
    return (member / member.sum(1, keepdims=True)) @ weights @ member.T


def verb_object_outcomes(reader: Reader) -> dict[str, np.ndarray]:
    """For every sentence and head, whether words look at verb or object most: (sentences, L, H).

    "others to verb" is what the first number must be seen beside: in how many of the other words
    behind the verb the head looks at the verb. A head that always looks for the verb has nothing
    to do with objects.
    """
    outcomes = {"object to verb": [], "others to verb": []}
    if not reader.causal:
        outcomes["verb to object"] = []
    for line in SENTENCES.read_text("utf-8").splitlines():
        text, verb, object_ = marked(line)
        weights = between_words(reader, text)
        words = np.arange(weights.shape[-1])
        weights[..., words, words] = -1  # itself
        most = weights.argmax(-1)  # (L, H, W)
        others = words[(words > verb) & (words != object_)]
        outcomes["object to verb"].append(most[..., object_] == verb)
        outcomes["others to verb"].append((most[..., others] == verb).mean(-1))
        if not reader.causal:
            outcomes["verb to object"].append(most[..., verb] == object_)
    return {name: np.array(found) for name, found in outcomes.items()}


def offsets(start: int, end: int) -> dict[str, list[int]]:
    """For each fixed number of words, in which sentences the one is that far from the other."""
    apart = [m[end] - m[start] for m in map(marked, SENTENCES.read_text("utf-8").splitlines())]
    return {str(n): [int(a == n) for a in apart] for n in sorted(set(apart))}


def on_rare_tokens(reader: Reader, novel: list[int], text: str) -> tuple[np.ndarray, float]:
    """In how much of a sentence a head looks most at its rarest token: (sentences, L, H).

    Rare is what occurs least often in the novel. Sentences in which two tokens are equally rare are
    passed over, and so are the marks and the first token of a causal model.

    Returns:
        the shares, and the share that a head has who looks at a token by chance.
    """
    counts = Counter(novel)
    sentences = re.findall(r"[A-Z][^.!?\"_]{40,140}\.", text.replace("\n", " "))
    random.Random(0).shuffle(sentences)
    shares, chance = [], []
    for sentence in sentences:
        ids = reader.encode(re.sub(r"\s+", " ", sentence))
        inner = np.arange(len(ids))[reader.inner(ids)]
        inner = inner[1:] if reader.causal else inner
        order = sorted(inner, key=lambda t: counts[ids[t]])
        rarest = order[0]
        queries = inner[inner > rarest] if reader.causal else inner[inner != rarest]
        if counts[ids[order[1]]] == counts[ids[rarest]] or len(queries) < 4:
            continue
        weights = reader.weights([ids])[:, 0][:, :, queries][..., inner]
        shares.append((inner[weights.argmax(-1)] == rarest).mean(-1))
        seen = [(inner <= q).sum() if reader.causal else len(inner) for q in queries]
        chance.append(np.mean(1 / np.array(seen)))
        if len(shares) == RARE:
            break
    return np.array(shares), float(np.mean(chance))


def halves(outcomes: np.ndarray) -> dict:
    """Means over the sentences at even places and at odd places, head by head."""
    return {"even": flat(outcomes[::2].mean(0)), "odd": flat(outcomes[1::2].mean(0))}


def census_of(reader: Reader) -> dict:
    text = attend.pride_and_prejudice()
    ids = reader.encode(text)
    novel = ids[reader.inner(ids)]
    say(f"{reader.name}: the novel has {len(novel)} tokens")
    census = {
        name: flat(score)
        for name, score in {**on_the_novel(reader, novel), **on_repetitions(reader)}.items()
    }
    for name, found in verb_object_outcomes(reader).items():
        census[name] = halves(found)
    say(f"{reader.name}: verbs and objects are done")
    rare, chance = on_rare_tokens(reader, novel, text)
    census["rare"] = {**halves(rare), "chance": round(chance, 4), "sentences": len(rare)}
    return census


def flat(scores: np.ndarray) -> list[float]:
    return [round(float(x), 4) for x in scores.ravel()]


# Grouped queries ----------------------------------------------------------------------------------


def grouping(reader: Reader, novel: str) -> dict:
    """The loss on the novel's beginning, with key/value heads repeated in place and tiled."""
    start = novel.index("It is a truth")
    ids = torch.tensor([reader.encode(novel[start : start + 4000])[:384]])
    H, G = reader.heads, reader.model.blocks[0].attention.n_kv_heads

    def loss() -> float:
        with torch.no_grad():
            return round(float(attend.next_token_loss(reader.model(ids), ids)), 4)

    right = loss()
    # Tiled, query head p is served by key/value head p % G. The same happens to the right code
    # when query heads have changed their places: head h goes where p // (H / G) = h % G.
    order = sorted(range(H), key=lambda h: (h % G, h // G))
    kept = []
    for block in reader.model.blocks:
        layer = block.attention
        columns = torch.arange(H * layer.d_head).reshape(H, -1)[order].ravel()
        kept.append((layer.w_q.data, layer.w_o.data))
        layer.w_q.data, layer.w_o.data = layer.w_q.data[:, columns], layer.w_o.data[columns]
    tiled = loss()
    for block, (w_q, w_o) in zip(reader.model.blocks, kept, strict=True):
        block.attention.w_q.data, block.attention.w_o.data = w_q, w_o
    return {"tokens": ids.shape[1], "in place": right, "tiled": tiled}


# The file -----------------------------------------------------------------------------------------


def read_tables(path: Path = TABLES) -> dict:
    """The tables as they are kept."""
    return json.loads(path.read_text("utf-8").partition("attend.gallery =")[2].rstrip("; \n"))


def write_tables(tables: dict, path: Path = TABLES) -> None:
    parts = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(part, ensure_ascii=False, separators=(',', ':'))}"
        for name, part in tables.items()
    )
    head = "/* Made by tools/head_gallery.py, which says what is in it. */\nattend.gallery ="
    path.write_text(f"{head} {{\n{parts}\n}};\n", "utf-8")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    torch.set_num_threads(1)
    readers = [
        Reader("smollm2", "SmolLM2-135M", "smollm2-135m", causal=True),
        Reader("minilm", "MiniLM-L6", "minilm-l6", causal=False),
    ]
    sentences = SENTENCES.read_text("utf-8").splitlines()
    tables = {
        "models": {
            r.key: {"name": r.name, "causal": r.causal, "layers": r.layers, "heads": r.heads}
            for r in readers
        },
        "texts": TEXTS,
        "sentences": {
            "count": len(sentences),
            "offsets": {"object to verb": offsets(2, 1), "verb to object": offsets(1, 2)},
        },
        "grouping": grouping(readers[0], attend.pride_and_prejudice()),
        "census": {r.key: census_of(r) for r in readers},
        "weights": {r.key: gallery_of(r) for r in readers},
    }
    write_tables(tables)
    say(f"{TABLES.relative_to(ROOT)}: {TABLES.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
