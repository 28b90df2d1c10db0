"""Weights of others: tiny models of `transformers`, drawn at random, give the same numbers here."""

from __future__ import annotations

import json

import gguf
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import attend
from attend.checkpoints import PLACES, Once, gguf_config, gguf_weights, read_gguf

from .mistakes import mistakes, must_reject
from .test_model import ids_of

pytestmark = pytest.mark.slow  # transformers takes long to load its models' code
D, H, G, F, L, V, T = 24, 6, 3, 40, 3, 29, 16
LLAMA = dict(
    vocab_size=V,
    hidden_size=D,
    intermediate_size=F,
    num_hidden_layers=L,
    num_attention_heads=H,
    num_key_value_heads=G,
    max_position_embeddings=T,
    rms_norm_eps=1e-5,
    rope_theta=500.0,
    tie_word_embeddings=True,
)
GPT2 = dict(vocab_size=V, n_positions=T, n_embd=D, n_layer=L, n_head=H, n_inner=F)
BERT = dict(
    vocab_size=V,
    hidden_size=D,
    intermediate_size=F,
    num_hidden_layers=L,
    num_attention_heads=H,
    max_position_embeddings=T,
)


def randomised(model):
    """Every parameter away from 0 and 1, so that none can be forgotten unnoticed."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=rng))
    return model.eval()


ORACLES = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
    "llama with its own head": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**{**LLAMA, "tie_word_embeddings": False})
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "gpt2 with exact gelu": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**GPT2, activation_function="gelu")
    ),
    "gpt2 without a head": lambda: transformers.GPT2Model(transformers.GPT2Config(**GPT2)),
    "bert": lambda: transformers.BertModel(transformers.BertConfig(**BERT)),
    "bert of a language model": lambda: transformers.BertModel(
        transformers.BertConfig(**BERT), add_pooling_layer=False
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder for each oracle, as `save_pretrained` writes it, and the oracle."""
    made = {}
    for name, make in ORACLES.items():
        torch.manual_seed(0)
        oracle, folder = randomised(make()), tmp_path_factory.mktemp("model")
        oracle.save_pretrained(folder)
        made[name] = oracle, folder
    return made


def theirs(oracle, ids, **more):
    with torch.no_grad():
        out = oracle(ids, **more)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


@pytest.mark.parametrize("name", ORACLES)
def test_the_same_weights_give_the_same_numbers(folders, name):
    oracle, folder = folders[name]
    ids, model = ids_of(2, 11), attend.load_folder(folder)
    expected = theirs(oracle, ids)
    if name == "gpt2 without a head":
        expected = expected @ model.embedding.tokens.T
    torch.testing.assert_close(model(ids), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_same_text_is_generated_with_and_without_caches(folders, name):
    oracle, folder = folders[name]
    model, ids = attend.load_folder(folder), ids_of(2, 5)
    expected = oracle.generate(
        ids, max_new_tokens=10, do_sample=False, pad_token_id=0, eos_token_id=None
    )
    assert torch.equal(attend.generate_cached(model, ids, 10), expected)
    assert torch.equal(attend.generate(model, ids, 10, temperature=0), expected)


def test_padding_is_ignored_as_in_the_oracles(folders):
    oracle, folder = folders["bert"]
    model, ids = attend.load_folder(folder), ids_of(2, 11)
    mask = attend.padding_mask([7, 11], 11, like=ids)
    expected = theirs(oracle, ids, attention_mask=mask.long())
    got = model(ids, mask=mask[:, None, None, :])
    torch.testing.assert_close(got[0, :7], expected[0, :7], rtol=0, atol=1e-5)
    torch.testing.assert_close(got[1], expected[1], rtol=0, atol=1e-5)

    oracle, folder = folders["llama"]
    model, padding = attend.load_folder(folder), torch.tensor([4, 0])
    real = torch.arange(11) >= padding[:, None]
    positions = (torch.arange(11) - padding[:, None]).clamp(min=0)
    expected = theirs(oracle, ids, attention_mask=real.long(), position_ids=positions)
    got = model(ids, padding=padding)
    torch.testing.assert_close(got[0, 4:], expected[0, 4:], rtol=0, atol=1e-5)
    torch.testing.assert_close(got[1], expected[1], rtol=0, atol=1e-5)


def test_every_weight_of_the_oracle_has_its_place(folders):
    """Changing any one of them changes the result."""
    _, folder = folders["llama"]
    ids, model = ids_of(1, 7), attend.load_folder(folder)
    before = model(ids)
    for name, parameter in model.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.mul_(1.5)
            assert (model(ids) - before).abs().max() > 1e-5, name
            parameter.copy_(kept)


def test_the_order_in_memory_changes_no_number(folders):
    """The table of a tied head is kept column by column, which makes generating faster."""
    _, folder = folders["llama"]
    model, ids = attend.load_folder(folder), ids_of(2, 7)
    before = model(ids)
    assert model.embedding.tokens.T.is_contiguous()
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()
    torch.testing.assert_close(model(ids), before, rtol=0, atol=1e-6)


def changed(folder, tmp_path, weights=lambda w: None, config=lambda c: None):
    """A copy of a folder with its weights or its config changed in place."""
    tensors, settings = (
        load_file(folder / "model.safetensors"),
        json.loads((folder / "config.json").read_text()),
    )
    weights(tensors)
    config(settings)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (
            "llama",
            lambda w: w.pop("model.layers.1.mlp.up_proj.weight"),
            "has no model.layers.1",
        ),
        ("gpt2", lambda w: w.pop("transformer.h.2.ln_1.bias"), "has no transformer.h.2.ln_1.bias"),
        ("bert", lambda w: w.update(extra=torch.zeros(1)), "has extra, for which"),
        (
            "llama",
            lambda w: w.update({"model.norm.weight": torch.zeros(D + 1)}),
            r"norm.gain of .* has shape \(25,\), but the model needs \(24,\)",
        ),
        (
            "llama",
            lambda w: w.update({"model.layers.9.mlp.up_proj.weight": torch.zeros(1)}),
            "has model.layers.9.mlp.up_proj.weight, for which",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named(folders, tmp_path, name, change, words):
    with pytest.raises(ValueError, match=words):
        attend.load_folder(changed(folders[name][1], tmp_path, weights=change))


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("llama", {"model_type": "mamba"}, "holds a 'mamba': only llama, gpt2, bert"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported"),
        ("llama", {"attention_bias": True}, "attention_bias = True"),
        ("llama", {"head_dim": 8}, "head_dim = 8"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, "rope_type = 'yarn'"),
        ("gpt2", {"scale_attn_weights": False}, "scale_attn_weights = False"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ("llama", {"num_attention_heads": 5}, "n_heads = 5 must divide"),
    ],
)
def test_a_model_that_ours_is_not_is_refused(folders, tmp_path, name, setting, words):
    folder = changed(folders[name][1], tmp_path, config=lambda c: c.update(setting))
    if "num_attention_heads" in setting:  # the head width would be refused first
        folder = changed(folder, tmp_path, config=lambda c: c.update(head_dim=None))
    with pytest.raises(ValueError, match=words):
        attend.load_folder(folder)


def test_missing_and_damaged_files_are_named(folders, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        attend.load_folder(tmp_path)
    folder = changed(folders["llama"][1], tmp_path)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        attend.load_folder(folder)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", r"config\.json is damaged"),
        ("[]", r"config\.json is damaged: it holds a list"),
        ('{"model_type": "llama"}', r"config\.json says nothing of num_attention_heads"),
        (None, r"config\.json has a wrong setting"),
    ],
)
def test_settings_that_cannot_be_read_are_named_with_their_file(folders, tmp_path, content, words):
    folder = changed(folders["llama"][1], tmp_path, config=lambda c: c.update(hidden_size="64"))
    if content is not None:
        (folder / "config.json").write_text(content, "utf-8")
    with pytest.raises(ValueError, match=words):
        attend.load_folder(folder)


def test_a_tensor_is_taken_once():
    given = Once({"a": torch.zeros(1), "b": torch.zeros(1)}, "a file")
    assert given["a"].shape == (1,) and given.unused() == ["b"] and len(given) == 2
    with pytest.raises(KeyError, match="a of a file is used twice"):
        given["a"]
    with pytest.raises(KeyError, match="a file has no c"):
        given["c"]
    given.ignore("b", "c")
    assert given.unused() == []


# RoPE's layouts, and GGUF


def interleaved_rows(w: torch.Tensor, n_heads: int) -> torch.Tensor:
    """Half-split rows in the order in which GGUF keeps them, head by head, in loops."""
    d_head = w.shape[0] // n_heads
    rows = []
    for h in range(n_heads):
        for i in range(d_head // 2):
            rows += [w[h * d_head + i], w[h * d_head + i + d_head // 2]]
    return torch.stack(rows)


def check_unpermute(unpermute):
    w = torch.randn(18, 5, generator=torch.Generator().manual_seed(0))
    for n_heads in (3, 1):
        assert torch.equal(unpermute(interleaved_rows(w, n_heads), n_heads), w)


def published_block(i: int = 4) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    shapes = {
        "attn_norm": (D,),
        "attn_q": (D, D),
        "attn_k": (D // 2, D),
        "attn_v": (D // 2, D),
        "attn_output": (D, D),
        "ffn_norm": (D,),
        "ffn_gate": (F, D),
        "ffn_up": (F, D),
        "ffn_down": (D, F),
    }
    return {f"blk.{i}.{n}.weight": torch.randn(s, generator=rng) for n, s in shapes.items()}


def check_load_block(load):
    published = published_block()
    ours = load(published, 4, H, G)
    for name, key in (
        ("gain_1", "attn_norm"),
        ("gain_2", "ffn_norm"),
        ("w_v", "attn_v"),
        ("w_o", "attn_output"),
        ("w_gate", "ffn_gate"),
        ("w_up", "ffn_up"),
        ("w_down", "ffn_down"),
    ):
        w = published[f"blk.4.{key}.weight"]
        assert torch.equal(ours[name], w.T if w.ndim == 2 else w), name
    for name, key, heads in (("w_q", "attn_q", H), ("w_k", "attn_k", G)):
        back = interleaved_rows(ours[name].T, heads)
        assert torch.equal(back, published[f"blk.4.{key}.weight"]), name
    assert len(ours) == 9
    del published["blk.4.ffn_up.weight"]
    try:
        load(published, 4, H, G)
    except KeyError as error:
        assert "blk.4.ffn_up.weight" in str(error)
        return
    raise AssertionError("a missing name must be a KeyError")


def _load(**changes):
    def f(weights, i, n_heads, n_kv_heads):
        ours = attend.load_block(weights, i, n_heads, n_kv_heads)
        return {**ours, **{name: change(ours) for name, change in changes.items()}}

    return f


@mistakes(
    {
        check_unpermute: {
            "left as it is": lambda w, n: w,
            "the inverse": interleaved_rows,
            "across heads": lambda w, n: attend.unpermute_rope(w, 1),
        },
        check_load_block: {
            "square matrix not transposed": _load(w_o=lambda ours: ours["w_o"].T),
            "k and v exchanged": _load(w_k=lambda o: o["w_v"], w_v=lambda o: o["w_k"]),
            "v un-permuted": _load(w_v=lambda o: attend.unpermute_rope(o["w_v"].T, G).T),
            "k with n_heads": lambda w, i, h, g: attend.load_block(w, i, h, h),
            "gate and up exchanged": _load(w_gate=lambda o: o["w_up"], w_up=lambda o: o["w_gate"]),
            "q as it is": _load(w_q=lambda o: interleaved_rows(o["w_q"].T, H).T),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


def test_layouts_are_undone():
    check_unpermute(attend.unpermute_rope)
    check_load_block(attend.load_block)
    with pytest.raises(ValueError, match="18 rows do not divide into 4"):
        attend.unpermute_rope(torch.zeros(18, 5), 4)


def test_a_block_as_it_is_published_is_loaded_again():
    config = attend.LlamaConfig(V, T, D, L, H, F, n_kv_heads=G)
    model = randomised(attend.llama(config))
    weights = {}
    for i in range(L):
        weights |= attend.published_block(model, i)
    assert len(weights) == 9 * L and weights["blk.1.attn_k.weight"].shape == (G * D // H, D)
    assert weights["blk.0.ffn_down.weight"].shape == (D, F)
    block = attend.load_block(weights, 1, H, G)
    for name, place in PLACES.items():
        assert torch.equal(block[name], model.blocks[1].get_parameter(place)), name
    assert not torch.equal(weights["blk.1.attn_q.weight"], block["w_q"].T)


def write_gguf(path, oracle, settings=None, leave_out=()):
    """A Llama of `transformers` as a GGUF file: other names, and q and k in the other layout."""
    writer = gguf.GGUFWriter(path, (settings or {}).get("architecture", "llama"))
    writer.add_vocab_size(V)
    writer.add_context_length(T)
    writer.add_embedding_length(D)
    writer.add_block_count(L)
    writer.add_head_count(H)
    writer.add_head_count_kv(G)
    writer.add_feed_forward_length(F)
    writer.add_rope_freq_base(500.0)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in (settings or {}).get("more", {}).items():
        getattr(writer, key)(value)
    names = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    weights = {n: w.detach() for n, w in oracle.named_parameters()}
    tensors = {
        "token_embd.weight": weights["model.embed_tokens.weight"],
        "output_norm.weight": weights["model.norm.weight"],
    }
    for i in range(L):
        there = f"model.layers.{i}."
        for name, new in names.items():
            tensors[f"blk.{i}.{new}.weight"] = weights[f"{there}{name}.weight"]
        for name, heads in (("q", H), ("k", G)):
            w = weights[f"{there}self_attn.{name}_proj.weight"]
            tensors[f"blk.{i}.attn_{name}.weight"] = interleaved_rows(w, heads)
    for name, tensor in tensors.items():
        if name not in leave_out:
            writer.add_tensor(name, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_gives_the_same_numbers(folders, tmp_path):
    oracle, _ = folders["llama"]
    write_gguf(tmp_path / "model.gguf", oracle)
    settings, tensors = read_gguf(tmp_path / "model.gguf")
    config = gguf_config(settings, tied=True)
    model = attend.llama(config)
    model.load_state_dict(gguf_weights(tensors, config, "model.gguf"))
    ids = ids_of(2, 11)
    torch.testing.assert_close(model(ids), theirs(oracle, ids), rtol=0, atol=1e-5)


def test_a_gguf_file_that_does_not_fit_is_refused(folders, tmp_path):
    oracle, _ = folders["llama"]
    path = tmp_path / "model.gguf"
    write_gguf(path, oracle, leave_out=["blk.1.attn_k.weight"])
    settings, tensors = read_gguf(path)
    config = gguf_config(settings, tied=True)
    with pytest.raises(ValueError, match=r"has no blk\.1\.attn_k\.weight"):
        gguf_weights(tensors, config, "model.gguf")
    write_gguf(path, oracle)
    _, tensors = read_gguf(path)
    with pytest.raises(ValueError, match="has extra, for which"):
        gguf_weights({**tensors, "extra": torch.zeros(1)}, config, "model.gguf")
    with pytest.raises(ValueError, match="only a 'llama'"):
        gguf_config({"general.architecture": "mamba"}, tied=True)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match="damaged"):
        read_gguf(path)
    path.write_bytes(b"no such format")
    with pytest.raises(ValueError, match="damaged"):
        read_gguf(path)
