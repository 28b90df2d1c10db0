"""The tokenizers of published models, against the `tokenizers` library."""

from __future__ import annotations

import argparse
import inspect
import random
import tokenize
import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers

import attend
from attend.tokenizer import DIGIT_PATTERN, GPT2_PATTERN, symbol_bytes

NOVEL = attend.pride_and_prejudice()
SOURCE = inspect.getsource(argparse) + inspect.getsource(tokenize)
PATTERNS = {"GPT-2": (GPT2_PATTERN,), "SmolLM2": (DIGIT_PATTERN, GPT2_PATTERN)}


def random_texts(n: int, characters=lambda code: True) -> list[str]:
    """Texts of all planes of Unicode, the lower ones more often."""
    rng, drawn = random.Random(0), []
    while len(drawn) < n:
        text = ""
        for _ in range(rng.randint(0, 40)):
            code = rng.randint(0, rng.choice((0x7F, 0x7F, 0x2FFF, 0xFFFF, 0x10FFFF)))
            if not 0xD800 <= code < 0xE000 and characters(code):
                text += chr(code)
        drawn.append(text)
    return drawn


def library_version(ours: attend.Tokenizer, patterns) -> tokenizers.Tokenizer:
    """The same vocabulary and merges in the library, which writes bytes as printable characters."""
    symbols = {byte: symbol for symbol, byte in symbol_bytes().items()}
    names = ["".join(symbols[byte] for byte in token) for token in ours.tokens]
    ranked = sorted(ours._ranks.items(), key=lambda item: item[1])
    merges = [(names[a], names[b]) for (a, b), _ in ranked]
    theirs = tokenizers.Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if DIGIT_PATTERN in patterns:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    theirs.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return theirs


@pytest.fixture(scope="module", params=PATTERNS.values(), ids=PATTERNS.keys())
def both(request):
    ours = attend.Tokenizer.train(NOVEL, 2000, request.param)
    return ours, library_version(ours, request.param)


@pytest.mark.parametrize("text", [NOVEL[:300_000], SOURCE], ids=["English", "Python"])
@pytest.mark.slow
def test_long_texts_get_the_ids_of_the_library(both, text):
    ours, theirs = both
    ids = ours.encode(text)
    assert ids == theirs.encode(text).ids
    assert ours.decode(ids) == text


@pytest.mark.slow
def test_random_unicode_gets_the_ids_of_the_library(both):
    ours, theirs = both
    for text in random_texts(4000):
        assert ours.encode(text) == theirs.encode(text).ids, repr(text)


def test_training_finds_the_merges_of_the_library():
    theirs = tokenizers.Tokenizer(models.BPE())
    theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256 + 200, initial_alphabet=alphabet, min_frequency=2)
    theirs.train_from_iterator([NOVEL], trainer)
    ours = attend.Tokenizer.train(NOVEL, 200)
    symbols = symbol_bytes()
    learnt = {bytes(symbols[c] for c in token) for token in theirs.get_vocab()}
    # Ties may be broken otherwise, so the last few may differ.
    assert len(learnt & set(ours.tokens)) >= 256 + 195


@given(st.text())
def test_every_text_comes_back(text):
    tokenizer = small()
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, special=True)) == text


SMALL = []


def small() -> attend.Tokenizer:
    if not SMALL:
        SMALL.append(attend.Tokenizer.train(NOVEL[:9000], 100, special=["<|end|>", "<|end|>s"]))
    return SMALL[0]


def test_merges_stay_within_words():
    tokenizer = attend.Tokenizer.train("ab. ab. ab. ab.", 9)
    assert b"ab" in tokenizer.tokens and b" ab" in tokenizer.tokens
    assert not any(b"b." in token for token in tokenizer.tokens)


def test_each_digit_stands_alone():
    tokenizer = attend.Tokenizer.train("1234 1234 1234", 9, PATTERNS["SmolLM2"])
    assert tokenizer.encode("1234") == [ord(c) for c in "1234"]


def test_special_tokens_are_commands_only_when_they_are_meant():
    tokenizer = small()
    end = tokenizer.special["<|end|>"]
    assert tokenizer.eos_id == end and len(tokenizer) == 256 + 100 + 2
    assert end not in tokenizer.encode("a<|end|>b")
    assert tokenizer.encode("a<|end|>b", special=True) == [97, end, 98]
    assert tokenizer.encode("<|end|>s", special=True) == [tokenizer.special["<|end|>s"]]
    assert tokenizer.decode([97, end, 98]) == "a<|end|>b"


def test_decoding_refuses_ids_that_stand_for_nothing():
    for outside in (-1, len(small())):
        with pytest.raises(IndexError, match=f"id {outside}"):
            small().decode([outside])


def test_a_byte_without_a_token_is_left_out_as_in_the_library():
    """SmolLM2 has no token for 21 of the bytes."""
    tokens = [bytes([i]) for i in range(256) if i != 4]
    ours = attend.Tokenizer(tokens, [(b"a", b"b")][:0])
    theirs = library_version(ours, PATTERNS["GPT-2"])
    assert ours.encode("a\x04b") == theirs.encode("a\x04b").ids
    assert ours.decode(ours.encode("a\x04b")) == "ab"


def test_a_vocabulary_that_does_not_hold_together_is_refused():
    with pytest.raises(ValueError, match="merge 0 makes b'ab'"):
        attend.Tokenizer([b"a", b"b"], [(b"a", b"b")])
    with pytest.raises(ValueError, match="eos is"):
        attend.Tokenizer([b"a"], [], eos="<|end|>")


# Characters


def test_characters_come_back_and_unknown_ones_are_refused():
    tokenizer = attend.Characters(NOVEL)
    assert len(tokenizer) == 75
    assert tokenizer.decode(tokenizer.encode(NOVEL[:500])) == NOVEL[:500]
    assert tokenizer.tokens == sorted(tokenizer.tokens)
    with pytest.raises(ValueError, match="no '🙂'"):
        tokenizer.encode("a🙂")
    for outside in (-1, 75):
        with pytest.raises(IndexError, match=f"id {outside}"):
            tokenizer.decode([outside])


# WordPiece

VOCABULARY = [
    *(
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "it",
        "is",
        "a",
        "truth",
        "un",
        "##iver",
        "##sal",
        "##ly",
    ),
    *(",", ".", "'", "-", "$", "+", "cafe", "##s", "中", "文", "i", "##i", "σ", "##σ"),
    *(chr(c) for c in range(ord("b"), ord("z") + 1) if chr(c) != "i"),
    *("##" + chr(c) for c in range(ord("a"), ord("z") + 1) if chr(c) not in "is"),
]


@pytest.fixture(scope="module")
def wordpieces():
    ids = {token: i for i, token in enumerate(VOCABULARY)}
    theirs = tokenizers.Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer()
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return attend.WordPiece(VOCABULARY), theirs


def agrees(wordpieces, text):
    ours, theirs = wordpieces
    assert ours.encode(text)[1:-1] == theirs.encode(text).ids, repr(text)


@pytest.mark.parametrize("text", [NOVEL[:300_000], SOURCE], ids=["English", "Python"])
@pytest.mark.slow
def test_long_texts_get_the_wordpieces_of_the_library(wordpieces, text):
    agrees(wordpieces, text)


def test_random_unicode_gets_the_wordpieces_of_the_library(wordpieces):
    """Of the characters whose class has not changed since Unicode 3.2: the library's table of
    punctuation and accents is older than Python's."""
    old = unicodedata.ucd_3_2_0

    def settled(code):
        return old.category(chr(code)) == unicodedata.category(chr(code))

    for text in random_texts(4000, settled):
        agrees(wordpieces, text)


@settings(max_examples=300)
@given(st.text(alphabet="aAbé ñÀ中文.,'$+-\t\n\u00a0\u200b\x00İΣßZ", max_size=30))
def test_accents_case_signs_and_spaces_are_handled_as_in_the_library(wordpieces, text):
    agrees(wordpieces, text)


def test_a_word_is_cut_greedily_between_cls_and_sep():
    tokenizer = attend.WordPiece(VOCABULARY)
    ids = tokenizer.encode("Universally, cafés!")
    names = ["[CLS]", "un", "##iver", "##sal", "##ly", ",", "cafe", "##s", "[UNK]", "[SEP]"]
    assert tokenizer.names(ids) == names
    assert tokenizer.encode("a" * 101) == [2, 1, 3], "a word of more than 100 letters is unknown"


def test_a_vocabulary_without_its_marks_is_refused():
    with pytest.raises(ValueError, match=r"no \[SEP\]"):
        attend.WordPiece([token for token in VOCABULARY if token != "[SEP]"])
