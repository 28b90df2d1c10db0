"""Weights that others trained, brought into our names and layouts (chapter 12).

A checkpoint is a dictionary of tensors. To use it, one needs to know what each is called, whether
it is stored (in, out) or (out, in), and in which order RoPE's features stand. A mistake there often
still speaks, only worse. So every tensor must be used once and only once, every parameter must be
given, and every shape must be the one that the model expects.

Read here: Hugging Face folders of Llama, GPT-2 and BERT (`config.json` and `model.safetensors`),
and GGUF files of Llama.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attend.blocks import gelu_tanh
from attend.model import (
    BertConfig,
    Config,
    GPTConfig,
    LlamaConfig,
    TiedHead,
    Transformer,
    bert,
    gpt,
    llama,
)
from attend.positions import rope_permutation

BUILDERS = {LlamaConfig: llama, GPTConfig: gpt, BertConfig: bert}


class Once(Mapping):
    """Tensors of which each may be taken once, so that in the end none is left over or used twice.

    Args:
        tensors: by name.
        source: where they are from, for messages.
    """

    def __init__(self, tensors: Mapping[str, Tensor], source: str):
        self._tensors, self._source = dict(tensors), source
        self._taken: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        if name in self._taken:
            raise KeyError(f"{name} of {self._source} is used twice")
        if name not in self._tensors:
            raise KeyError(f"{self._source} has no {name}")
        self._taken.add(name)
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def ignore(self, *names: str) -> None:
        """Says that a model of ours has no place for these, where they are there."""
        self._taken |= set(names) & set(self._tensors)

    def unused(self) -> list[str]:
        """What nobody took."""
        return [name for name in self._tensors if name not in self._taken]


def build(config: Config, weights: Mapping[str, Tensor], source: str) -> Transformer:
    """The model of a config with these weights in place of fresh ones.

    Args:
        config: of a family that `BUILDERS` knows.
        weights: by our names, one for each parameter, in our layout.
        source: where they are from, for messages.

    Raises:
        ValueError: a parameter is missing, a tensor has no place, or a shape is wrong; no model is
            made then.
    """
    model = BUILDERS[type(config)](config)
    parameters = dict(model.named_parameters())
    missing = sorted(parameters.keys() - weights.keys())
    if missing:
        raise ValueError(f"{source} gives no {missing[0]} ({len(missing)} of {len(parameters)})")
    surplus = sorted(weights.keys() - parameters.keys())
    if surplus:
        raise ValueError(f"{source} has {surplus[0]}, for which the model has no place")
    for name, parameter in parameters.items():
        if weights[name].shape != parameter.shape:
            raise ValueError(
                f"{name} of {source} has shape {tuple(weights[name].shape)}, but the model needs "
                f"{tuple(parameter.shape)}"
            )
    for name, parameter in parameters.items():
        parameter.data = weights[name].to(parameter.dtype).contiguous()
    if isinstance(model.head, TiedHead):
        # The head reads the whole table for every token, transposed. Kept column by column it is
        # read in the order of memory: half the time. (A lookup needs only a row of it.)
        table = model.embedding.tokens
        table.data = table.data.T.contiguous().T
    return model


# Hugging Face


def load_folder(folder: str | os.PathLike) -> Transformer:
    """The model in a Hugging Face folder: a Llama, a GPT-2 or a BERT, in float32.

    Args:
        folder: holds `config.json` and `model.safetensors`.

    Raises:
        FileNotFoundError: one of the two is missing.
        ValueError: a file is damaged, the model is of another family or uses something that ours
            does not have, or its weights do not fit.
    """
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}")
    theirs = read_settings(folder / "config.json")
    family = theirs.get("model_type")
    if family not in FAMILIES:
        raise ValueError(f"{folder} holds a {family!r}: only {', '.join(FAMILIES)} can be read")
    config_of, weights_of = FAMILIES[family]
    try:
        config = config_of(theirs)
    except KeyError as error:
        raise ValueError(f"{folder / 'config.json'} says nothing of {error.args[0]}") from error
    except TypeError as error:  # a text where a number should be
        raise ValueError(f"{folder / 'config.json'} has a wrong setting: {error}") from error
    given = Once(read_safetensors(folder / "model.safetensors"), str(folder))
    try:
        weights = weights_of(given, config)
    except KeyError as error:
        raise ValueError(error.args[0]) from error
    if given.unused():
        raise ValueError(f"{folder} has {given.unused()[0]}, for which the model has no place")
    return build(config, weights, str(folder))


def read_settings(path: str | os.PathLike) -> dict:
    """The settings in a JSON file.

    Raises:
        ValueError: there are none in it.
    """
    try:
        settings = json.loads(Path(path).read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path} is damaged: it holds a {type(settings).__name__}, no settings")
    return settings


def read_safetensors(path: str | os.PathLike) -> dict[str, Tensor]:
    """The tensors of a file.

    Raises:
        ValueError: the file is no whole safetensors file.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _refuse_unless(theirs: Mapping, wanted: Mapping[str, tuple]) -> None:
    """Raises ValueError if a setting of theirs is one that our models do not have."""
    for name, allowed in wanted.items():
        if theirs.get(name, allowed[0]) not in allowed:
            raise ValueError(
                f"{name} = {theirs[name]!r} is not supported: only {', '.join(map(repr, allowed))}"
            )


def _llama_config(theirs: Mapping) -> LlamaConfig:
    rope = theirs.get("rope_parameters") or {}  # since version 5 of transformers
    _refuse_unless(theirs, {"hidden_act": ("silu",), "attention_bias": (False,)})
    _refuse_unless(theirs, {"rope_scaling": (None,), "mlp_bias": (False,)})
    _refuse_unless(rope, {"rope_type": ("default",)})
    heads, width = theirs["num_attention_heads"], theirs["hidden_size"]
    _refuse_unless(theirs, {"head_dim": (width // heads, None)})
    return LlamaConfig(
        vocab=theirs["vocab_size"],
        context=theirs["max_position_embeddings"],
        d_model=width,
        n_layers=theirs["num_hidden_layers"],
        n_heads=heads,
        d_hidden=theirs["intermediate_size"],
        n_kv_heads=theirs.get("num_key_value_heads") or heads,
        tied=theirs.get("tie_word_embeddings", False),
        rope_base=rope.get("rope_theta") or theirs.get("rope_theta", 10000.0),
        norm_eps=theirs["rms_norm_eps"],
    )


def _llama_weights(given: Mapping[str, Tensor], config: LlamaConfig) -> dict[str, Tensor]:
    """Hugging Face's Llama has our half layout of RoPE, and matrices (out, in)."""
    ours = {
        "embedding.tokens": given["model.embed_tokens.weight"],
        "norm.gain": given["model.norm.weight"],
    }
    if not config.tied:
        ours["head.w_vocab"] = given["lm_head.weight"].T
    for i in range(config.n_layers):
        there, here = f"model.layers.{i}.", f"blocks.{i}."
        ours[f"{here}norm_1.gain"] = given[f"{there}input_layernorm.weight"]
        ours[f"{here}norm_2.gain"] = given[f"{there}post_attention_layernorm.weight"]
        for name in "qkvo":
            ours[f"{here}attention.w_{name}"] = given[f"{there}self_attn.{name}_proj.weight"].T
        for name in ("gate", "up", "down"):
            ours[f"{here}mlp.w_{name}"] = given[f"{there}mlp.{name}_proj.weight"].T
    return ours


def _gpt2_config(theirs: Mapping) -> GPTConfig:
    _refuse_unless(theirs, {"activation_function": ("gelu_new", "gelu")})
    _refuse_unless(theirs, {"scale_attn_weights": (True,), "add_cross_attention": (False,)})
    _refuse_unless(theirs, {"scale_attn_by_inverse_layer_idx": (False,)})
    exact = theirs.get("activation_function", "gelu_new") == "gelu"
    return GPTConfig(
        vocab=theirs["vocab_size"],
        context=theirs["n_positions"],
        d_model=theirs["n_embd"],
        n_layers=theirs["n_layer"],
        n_heads=theirs["n_head"],
        d_hidden=theirs.get("n_inner") or 4 * theirs["n_embd"],
        bias=True,
        activation=F.gelu if exact else gelu_tanh,
        norm_eps=theirs["layer_norm_epsilon"],
    )


def _gpt2_weights(given: Once, config: GPTConfig) -> dict[str, Tensor]:
    """GPT-2's matrices are (in, out) as ours, with queries, keys and values in one."""
    start = "transformer." if "transformer.wte.weight" in set(given) else ""
    ours = {
        "embedding.tokens": given[f"{start}wte.weight"],
        "embedding.positions": given[f"{start}wpe.weight"],
        "norm.gain": given[f"{start}ln_f.weight"],
        "norm.bias": given[f"{start}ln_f.bias"],
    }
    for i in range(config.n_layers):
        there, here = f"{start}h.{i}.", f"blocks.{i}."
        given.ignore(f"{there}attn.bias", f"{there}attn.masked_bias")  # masks, in older files
        for n in (1, 2):
            ours[f"{here}norm_{n}.gain"] = given[f"{there}ln_{n}.weight"]
            ours[f"{here}norm_{n}.bias"] = given[f"{there}ln_{n}.bias"]
        matrices = given[f"{there}attn.c_attn.weight"].chunk(3, dim=-1)
        biases = given[f"{there}attn.c_attn.bias"].chunk(3, dim=-1)
        for name, w, b in zip("qkv", matrices, biases, strict=True):
            ours[f"{here}attention.w_{name}"], ours[f"{here}attention.b_{name}"] = w, b
        for name, ours_name in (("attn.c_proj", "attention.{}_o"), ("mlp.c_fc", "mlp.{}_1")):
            ours[here + ours_name.format("w")] = given[f"{there}{name}.weight"]
            ours[here + ours_name.format("b")] = given[f"{there}{name}.bias"]
        ours[f"{here}mlp.w_2"] = given[f"{there}mlp.c_proj.weight"]
        ours[f"{here}mlp.b_2"] = given[f"{there}mlp.c_proj.bias"]
    return ours


def _bert_config(theirs: Mapping) -> BertConfig:
    _refuse_unless(theirs, {"hidden_act": ("gelu",), "position_embedding_type": ("absolute",)})
    return BertConfig(
        vocab=theirs["vocab_size"],
        context=theirs["max_position_embeddings"],
        d_model=theirs["hidden_size"],
        n_layers=theirs["num_hidden_layers"],
        n_heads=theirs["num_attention_heads"],
        d_hidden=theirs["intermediate_size"],
        norm_eps=theirs["layer_norm_eps"],
    )


def _bert_weights(given: Once, config: BertConfig) -> dict[str, Tensor]:
    """BERT's matrices are (out, in)."""
    start = "bert." if "bert.embeddings.word_embeddings.weight" in set(given) else ""
    # Texts here have one segment, whose vector is the same at every position: it joins theirs.
    segment = given[f"{start}embeddings.token_type_embeddings.weight"][0]
    ours = {
        "embedding.tokens": given[f"{start}embeddings.word_embeddings.weight"],
        "embedding.positions": given[f"{start}embeddings.position_embeddings.weight"] + segment,
        "embedding.norm.gain": given[f"{start}embeddings.LayerNorm.weight"],
        "embedding.norm.bias": given[f"{start}embeddings.LayerNorm.bias"],
    }
    # Another task's last layer, and a table of 0, 1, 2, …
    given.ignore(f"{start}pooler.dense.weight", f"{start}pooler.dense.bias")
    given.ignore(f"{start}embeddings.position_ids")
    names = {
        "attention.self.query": ("attention.w_q", "attention.b_q"),
        "attention.self.key": ("attention.w_k", "attention.b_k"),
        "attention.self.value": ("attention.w_v", "attention.b_v"),
        "attention.output.dense": ("attention.w_o", "attention.b_o"),
        "intermediate.dense": ("mlp.w_1", "mlp.b_1"),
        "output.dense": ("mlp.w_2", "mlp.b_2"),
        "attention.output.LayerNorm": ("norm_1.gain", "norm_1.bias"),
        "output.LayerNorm": ("norm_2.gain", "norm_2.bias"),
    }
    for i in range(config.n_layers):
        for name, (w, b) in names.items():
            there = f"{start}encoder.layer.{i}.{name}"
            weight = given[f"{there}.weight"]
            ours[f"blocks.{i}.{w}"] = weight.T if weight.ndim == 2 else weight  # a gain
            ours[f"blocks.{i}.{b}"] = given[f"{there}.bias"]
    return ours


FAMILIES = {
    "llama": (_llama_config, _llama_weights),
    "gpt2": (_gpt2_config, _gpt2_weights),
    "bert": (_bert_config, _bert_weights),
}


# GGUF


def unpermute_rope(w: Tensor, n_heads: int) -> Tensor:
    """A matrix whose heads are rotated interleaved, for rotating them half-split.

    Args:
        w: (n_heads · K, D_in), as published: (out, in), pairs of rows 2i and 2i + 1 in each head.
        n_heads: how many heads the rows belong to; for keys, the key/value heads.

    Returns:
        the same rows, those of each head in the order 0, 2, 4, …, 1, 3, 5, …

    Raises:
        ValueError: the rows do not divide into heads of even width.
    """
    rows, d_in = w.shape
    if rows % n_heads:
        raise ValueError(f"{rows} rows do not divide into {n_heads} heads")
    d_head = rows // n_heads
    return w.reshape(n_heads, d_head, d_in)[:, rope_permutation(d_head)].reshape(rows, d_in)


def load_block(
    weights: Mapping[str, Tensor], i: int, n_heads: int, n_kv_heads: int
) -> dict[str, Tensor]:
    """The weights of one block of a Llama, out of the names and layouts of GGUF.

    Args:
        weights: float tensors by name, blk.{i}.attn_q.weight and so on, matrices (out, in).
        i: which block.
        n_heads: H.
        n_kv_heads: G.

    Returns:
        gain_1, w_q, w_k, w_v, w_o, gain_2, w_gate, w_up, w_down; matrices (in, out), queries and
        keys in the half layout of RoPE.

    Raises:
        KeyError: a name is missing.
    """

    def published(name: str) -> Tensor:
        return weights[f"blk.{i}.{name}.weight"]

    return {
        "gain_1": published("attn_norm"),
        "w_q": unpermute_rope(published("attn_q"), n_heads).T,
        "w_k": unpermute_rope(published("attn_k"), n_kv_heads).T,
        "w_v": published("attn_v").T,
        "w_o": published("attn_output").T,
        "gain_2": published("ffn_norm"),
        "w_gate": published("ffn_gate").T,
        "w_up": published("ffn_up").T,
        "w_down": published("ffn_down").T,
    }


#: Where the names of `load_block` are in a model of ours.
PLACES = {
    "gain_1": "norm_1.gain",
    "gain_2": "norm_2.gain",
    **{name: f"attention.{name}" for name in ("w_q", "w_k", "w_v", "w_o")},
    **{name: f"mlp.{name}" for name in ("w_gate", "w_up", "w_down")},
}


#: Where the names of `load_block` come from in a GGUF file.
GGUF_NAMES = {
    "gain_1": "attn_norm",
    "w_q": "attn_q",
    "w_k": "attn_k",
    "w_v": "attn_v",
    "w_o": "attn_output",
    "gain_2": "ffn_norm",
    "w_gate": "ffn_gate",
    "w_up": "ffn_up",
    "w_down": "ffn_down",
}


def published_block(model: Transformer, i: int) -> dict[str, Tensor]:
    """Block `i` of a `llama` by the names and in the layouts of GGUF: what `load_block` is given.

    Args:
        model: with attention that turns queries and keys in the half layout.
        i: which block.

    Returns:
        blk.{i}.attn_q.weight and so on: matrices (out, in), rows of queries and keys interleaved.
    """
    block = model.blocks[i]
    ours = {name: block.get_parameter(place).detach() for name, place in PLACES.items()}
    attention = block.attention
    there = {name: w.T if w.ndim == 2 else w for name, w in ours.items()}
    for name, n_heads in (("w_q", attention.n_heads), ("w_k", attention.n_kv_heads)):
        rows, d_in = there[name].shape
        heads = there[name].reshape(n_heads, 2, rows // n_heads // 2, d_in)
        there[name] = heads.transpose(1, 2).reshape(rows, d_in)  # neighbours make a pair again
    return {f"blk.{i}.{GGUF_NAMES[name]}.weight": w for name, w in there.items()}


def gguf_weights(tensors: Mapping[str, Tensor], config: LlamaConfig, source: str) -> dict:
    """All weights of a GGUF file of a Llama, by our names and in our layouts.

    Args:
        tensors: float tensors by their names in the file.
        config: of the model.
        source: the file, for messages.

    Raises:
        ValueError: a tensor is missing or has no place.
    """
    given = Once(tensors, source)
    try:
        ours = {
            "embedding.tokens": given["token_embd.weight"],
            "norm.gain": given["output_norm.weight"],
        }
        if not config.tied:
            ours["head.w_vocab"] = given["output.weight"].T
        for i in range(config.n_layers):
            block = load_block(given, i, config.n_heads, config.n_kv_heads)
            ours |= {f"blocks.{i}.{PLACES[name]}": tensor for name, tensor in block.items()}
    except KeyError as error:
        raise ValueError(error.args[0]) from error
    if given.unused():
        raise ValueError(f"{source} has {given.unused()[0]}, for which the model has no place")
    return ours


def read_gguf(path: str | os.PathLike) -> tuple[dict, dict[str, Tensor]]:
    """What a GGUF file holds: its settings, and its tensors as float32.

    Raises:
        ValueError: the file is no whole GGUF file.
    """
    import gguf

    try:
        reader = gguf.GGUFReader(path)
        tensors = {
            tensor.name: torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
            for tensor in reader.tensors
        }
    except (ValueError, IndexError, OSError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    settings = {name: field.contents() for name, field in reader.fields.items()}
    return settings, tensors


def gguf_config(settings: Mapping, tied: bool) -> LlamaConfig:
    """The config in the settings of a GGUF file of a Llama.

    Raises:
        ValueError: it is a model of another family.
    """
    if settings["general.architecture"] != "llama":
        raise ValueError(f"a {settings['general.architecture']!r} cannot be read, only a 'llama'")
    return LlamaConfig(
        vocab=settings["llama.vocab_size"],
        context=settings["llama.context_length"],
        d_model=settings["llama.embedding_length"],
        n_layers=settings["llama.block_count"],
        n_heads=settings["llama.attention.head_count"],
        d_hidden=settings["llama.feed_forward_length"],
        n_kv_heads=settings["llama.attention.head_count_kv"],
        tied=tied,
        rope_base=settings["llama.rope.freq_base"],
        norm_eps=settings["llama.attention.layer_norm_rms_epsilon"],
    )


def model_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters of a model by name, detached: what a file keeps of it."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}
