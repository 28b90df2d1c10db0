"""`load_block`: nine tensors out of a file's names and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from attend.checkpoints import load_block
from coursework.compare import Difference, compare
from coursework.exercise import Call, Exercise, Misconception, Property

NAMES = ("gain_1", "w_q", "w_k", "w_v", "w_o", "gain_2", "w_gate", "w_up", "w_down")
PUBLISHED = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


def published(
    rng: np.random.Generator,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_hidden: int,
    blocks: tuple[int, ...] = (0,),
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Random tensors of some blocks, as a GGUF file has them."""
    D, kv = n_heads * d_head, n_kv_heads * d_head
    shapes = ((D,), (D, D), (kv, D), (kv, D), (D, D), (D,), (d_hidden, D), (d_hidden, D))
    return {
        f"blk.{i}.{name}.weight": torch.from_numpy(rng.standard_normal(shape)).to(dtype)
        for i in blocks
        for name, shape in zip(PUBLISHED, (*shapes, (D, d_hidden)), strict=True)
    }


def _one_block(rng: np.random.Generator) -> tuple[Call, ...]:
    sizes = ((2, 1, 4, 3), (3, 1, 6, 5), (4, 2, 4, 7), (2, 1, 8, 5))
    return tuple(Call((published(rng, H, G, K, F), 0, H, G)) for H, G, K, F in sizes)


def _several_blocks(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        Call((published(rng, 2, 1, 4, 5, blocks=(0, 1, 2)), 1, 2, 1)),
        Call((published(rng, 2, 1, 8, 3, blocks=(0, 1, 11)), 11, 2, 1)),
        Call((published(rng, 2, 1, 4, 3, blocks=(1, 2, 11, 21)), 1, 2, 1)),
        Call((published(rng, 3, 1, 6, 5, blocks=(2, 12, 20, 22)), 2, 3, 1)),
        Call((published(rng, 2, 2, 4, 7, blocks=(3, 13, 30)), 3, 2, 2)),
        Call((published(rng, 4, 2, 4, 3, blocks=(10, 1, 0)), 1, 4, 2)),
        Call((published(rng, 4, 2, 4, 3, blocks=(3,), dtype=torch.float32), 3, 4, 2)),
        Call((published(rng, 2, 2, 6, 5, blocks=(0, 2)), 2, 2, 2)),
    )


def _something_missing(rng: np.random.Generator) -> tuple[Call, ...]:
    def without(name: str, i: int, H: int, G: int, K: int, F: int) -> Call:
        weights = published(rng, H, G, K, F, blocks=(0, 1))
        del weights[f"blk.{i}.{name}.weight"]
        return Call((weights, i, H, G))

    return (
        without("attn_norm", 0, 2, 1, 4, 5),
        without("attn_k", 1, 3, 1, 4, 3),
        without("ffn_down", 0, 2, 2, 4, 3),
        without("attn_output", 1, 3, 1, 4, 5),
        Call((published(rng, 2, 1, 4, 3), 1, 2, 1)),
    )


def _is_right(call: Call, value: Any) -> str | Difference | None:
    """Which of the nine is wrong, the first in the order of the task."""
    if type(value) is not dict:
        return "what comes back is not a dict"
    missing = [name for name in NAMES if name not in value]
    if missing:
        return f"the dict has no {missing[0]}"
    if len(value) > len(NAMES):
        return "the dict has more than the nine names"
    right = load_block(*call.args)
    for by in ("shape", "value"):  # shapes of all before any value: they are easier to see
        for name in NAMES:
            difference = compare(call, right[name], value[name], names=(name,), keeps_dtype=True)
            if difference and (by == "value" or difference.kind != "value"):
                return difference
    return None


def _rows(w, n_heads):
    """Rows of each head, even ones first."""
    rows, d_in = w.shape
    return w.reshape(n_heads, rows // n_heads // 2, 2, d_in).transpose(1, 2).reshape(rows, d_in)


def _own(weights, i, n_heads, n_kv_heads):
    """The right answer, from which the wrong ones below differ in one place."""
    w = {
        name: weights[f"blk.{i}.{there}.weight"]
        for name, there in zip(NAMES, PUBLISHED, strict=True)
    }
    w["w_q"], w["w_k"] = _rows(w["w_q"], n_heads), _rows(w["w_k"], n_kv_heads)
    return {name: x.T if x.ndim == 2 else x for name, x in w.items()}


def _squares_left(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_q": w["w_q"].T, "w_o": w["w_o"].T}


def _output_left(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_o": w["w_o"].T}


def _query_left(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_q": w["w_q"].T}


def _nothing_transposed(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return {name: x.T if x.ndim == 2 else x for name, x in w.items()}


def _k_and_v_exchanged(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    k, v = (weights[f"blk.{i}.attn_{name}.weight"] for name in "kv")
    return w | {"w_k": _rows(v, n_kv_heads).T, "w_v": k.T}


def _k_and_v_swapped_at_the_end(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_k": w["w_v"], "w_v": w["w_k"]}


def _v_too(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_v": _rows(w["w_v"].T, n_kv_heads).T}


def _k_with_n_heads(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_k": _rows(weights[f"blk.{i}.attn_k.weight"], n_heads).T}


def _q_with_kv_heads(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_q": _rows(weights[f"blk.{i}.attn_q.weight"], n_kv_heads).T}


def _interleaved(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    q, k = (weights[f"blk.{i}.attn_{name}.weight"] for name in "qk")
    return w | {"w_q": q.T, "w_k": k.T}


def _after_transposing(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    q, k = (weights[f"blk.{i}.attn_{name}.weight"] for name in "qk")
    return w | {"w_q": _rows(q.T, n_heads), "w_k": _rows(k.T, n_kv_heads)}


def _q_only(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_k": weights[f"blk.{i}.attn_k.weight"].T}


def _k_only(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_q": weights[f"blk.{i}.attn_q.weight"].T}


def _o_too(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_o": _rows(w["w_o"], n_heads)}


def _gate_and_up_exchanged(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"w_gate": w["w_up"], "w_up": w["w_gate"]}


def _norms_exchanged(weights, i, n_heads, n_kv_heads):
    w = _own(weights, i, n_heads, n_kv_heads)
    return w | {"gain_1": w["gain_2"], "gain_2": w["gain_1"]}


def _always_the_first(weights, i, n_heads, n_kv_heads):
    return _own(weights, 0, n_heads, n_kv_heads)


def _by_the_beginning(weights, i, n_heads, n_kv_heads):
    own = {name: x for name, x in weights.items() if name.startswith(f"blk.{i}")}
    found = {name.split(".")[2]: x for name, x in own.items()}
    w = {name: found[there] for name, there in zip(NAMES, PUBLISHED, strict=True)}
    w["w_q"], w["w_k"] = _rows(w["w_q"], n_heads), _rows(w["w_k"], n_kv_heads)
    return {name: x.T if x.ndim == 2 else x for name, x in w.items()}


def _left_out(weights, i, n_heads, n_kv_heads):
    there = {name: f"blk.{i}.{there}.weight" for name, there in zip(NAMES, PUBLISHED, strict=True)}
    w = {name: weights[full] for name, full in there.items() if full in weights}
    for name, n in (("w_q", n_heads), ("w_k", n_kv_heads)):
        if name in w:
            w[name] = _rows(w[name], n)
    return {name: x.T if x.ndim == 2 else x for name, x in w.items()}


def _asked_with_get(weights, i, n_heads, n_kv_heads):
    w = {
        name: weights.get(f"blk.{i}.{there}.weight")
        for name, there in zip(NAMES, PUBLISHED, strict=True)
    }
    w["w_q"], w["w_k"] = _rows(w["w_q"], n_heads), _rows(w["w_k"], n_kv_heads)
    return {name: x.T if x.dim() == 2 else x for name, x in w.items()}


LOAD_BLOCK = Exercise(
    chapter=12,
    signature="load_block(weights, i, n_heads, n_kv_heads) -> dict",
    task="""\
Take the tensors of block `i` out of a published file and bring them into the names and layouts of
this course.

- `weights` is a dict of float tensors by their GGUF names. Block `i` has nine:

| in the file, after `blk.{i}.` and before `.weight` | shape there | comes back as | shape |
|---|---|---|---|
| `attn_norm` | (D,) | `gain_1` | (D,) |
| `attn_q` | (D, D) | `w_q` | (D, D) |
| `attn_k` | (G·K, D) | `w_k` | (D, G·K) |
| `attn_v` | (G·K, D) | `w_v` | (D, G·K) |
| `attn_output` | (D, D) | `w_o` | (D, D) |
| `ffn_norm` | (D,) | `gain_2` | (D,) |
| `ffn_gate` | (F, D) | `w_gate` | (D, F) |
| `ffn_up` | (F, D) | `w_up` | (D, F) |
| `ffn_down` | (D, F) | `w_down` | (F, D) |

- There every matrix is `(out, in)`; return it `(in, out)`, to be used as `x @ w`.
- The rows of `attn_q` and `attn_k` are in interleaved order, those of `n_heads` and of `n_kv_heads`
  heads. Bring them into the half-split order. Values are not turned, and `attn_v` is not permuted.
- `weights` may hold other blocks and other tensors as well. Leave it and its tensors as they are. A
  result may share memory with them.
- A tensor of block `i` that is missing is a `KeyError`. (Name the tensor in its message: whoever
  loads a file with 272 tensors will thank you. The words are not graded.)
- Return a dict with exactly the nine names, tensors of the dtype that came in.

You may call your own `unpermute_rope`.""",
    reference=load_block,
    properties=(
        Property("the nine tensors of a block", 3, _one_block, compare=_is_right),
        Property("any block of several", 1, _several_blocks, compare=_is_right),
        Property("a missing tensor is a KeyError", 1, _something_missing, edge=True),
    ),
    misconceptions=(
        Misconception(
            "leaves a square matrix as it is",
            "A square matrix is still (out, in) as published. It fits without being transposed, "
            "and it is another matrix: transpose all seven.",
            _squares_left,
            symptom="a square matrix is not transposed",
            also=(_output_left, _query_left),
        ),
        Misconception(
            "transposes nothing",
            "The matrices are (out, in), as in the file. Here they are used as x @ w, so they must "
            "be (in, out).",
            _nothing_transposed,
            symptom="the matrices are still (out, in)",
        ),
        Misconception(
            "exchanges keys and values",
            "What comes back as w_k is made from attn_v, and the other way round. Both have the "
            "same shape, so that only the numbers tell.",
            _k_and_v_exchanged,
            symptom="keys and values have changed places",
            also=(_k_and_v_swapped_at_the_end,),
        ),
        Misconception(
            "un-permutes the values too",
            "You reorder the rows of attn_v. RoPE turns queries and keys only; values keep their "
            "order, and so does what attn_output expects of them.",
            _v_too,
            symptom="w_v has its columns in another order",
        ),
        Misconception(
            "un-permutes the keys with n_heads",
            "You split the rows of attn_k into n_heads heads. There are only n_kv_heads of them, "
            "so each is wider than that.",
            _k_with_n_heads,
            symptom="w_k is split into too many heads",
        ),
        Misconception(
            "un-permutes the queries with n_kv_heads",
            "You split the rows of attn_q into n_kv_heads heads. Queries have n_heads of them.",
            _q_with_kv_heads,
            symptom="w_q is split into too few heads",
        ),
        Misconception(
            "leaves queries and keys interleaved",
            "w_q and w_k are transposed, and their columns are in the order of the file. "
            "Un-permute the rows first: such a model still speaks, far worse.",
            _interleaved,
            symptom="w_q and w_k are in the order of the file",
        ),
        Misconception(
            "un-permutes one of the two",
            "Only one of w_q and w_k is brought into the order of halves. A score is a dot product "
            "of both: un-permute the rows of attn_q and those of attn_k.",
            _q_only,
            symptom="w_q and w_k are in different orders",
            also=(_k_only,),
        ),
        Misconception(
            "un-permutes after transposing",
            "You transpose first and un-permute then. The rows of a transposed matrix are inputs; "
            "the heads are in its columns by then.",
            _after_transposing,
            symptom="the inputs are reordered in place of the outputs",
        ),
        Misconception(
            "un-permutes the output matrix too",
            "You reorder attn_output as well. It reads the heads' blended values, which were never "
            "turned nor permuted.",
            _o_too,
            symptom="w_o reads its inputs in another order",
        ),
        Misconception(
            "exchanges gate and up",
            "w_gate is made from ffn_up, and the other way round. Both have the same shape, so "
            "that only the numbers tell.",
            _gate_and_up_exchanged,
            symptom="gate and up have changed places",
        ),
        Misconception(
            "exchanges the two norms",
            "gain_1 belongs before attention, attn_norm, and gain_2 before the feed-forward part.",
            _norms_exchanged,
            symptom="the two gains have changed places",
        ),
        Misconception(
            "takes block 0 for every block",
            "You read block 0, whatever i is. The number is part of the names.",
            _always_the_first,
            symptom="right for block 0 only",
        ),
        Misconception(
            "finds a block by the beginning of its names",
            "You take every name that begins with blk.1, say, and blk.11 begins like that as well. "
            "The number ends at the dot after it: ask for the whole name.",
            _by_the_beginning,
            symptom="tensors of another block are taken",
        ),
        Misconception(
            "leaves out what is missing",
            "A tensor that is not there is left out. A model with a hole in it must not be "
            "built: let the KeyError of the dict through.",
            _left_out,
            symptom="a missing tensor goes unnoticed",
        ),
        Misconception(
            "asks with get",
            "`get` gives None for a name that is not there, and the error comes later, as another "
            "one. Ask with square brackets, and the KeyError names the tensor.",
            _asked_with_get,
            symptom="a missing tensor is not a KeyError",
        ),
    ),
    hints=(
        "Two things are done to the matrices: all of them are transposed, two of them are "
        "something else before. Which two, and with how many heads each?",
        "Write a small function that takes a published name, puts the number of the block around "
        "it and looks it up. Then fill the dict line by line, `unpermute_rope` before the "
        "transposition.",
        '`weights[f"blk.{i}.{name}.weight"]` raises the KeyError by itself. For keys: '
        "`unpermute_rope(…, n_kv_heads).T`; for `attn_v` only `.T`; the gains as they are.",
    ),
    minutes=12,
    returns=("the dict",),
    keeps_dtype=True,
)
