"""WordPiece: the tokenizer of BERT, which an encoder in chapters 06 and 11 reads with (chapter 01).

The text is brought to lower case without accents and cut at spaces and punctuation. A word that is
no token is cut greedily: the longest token that begins it, then the longest that goes on (its name
begins with ##). A word that cannot be cut so is unknown as a whole, and lost.

Sources: Wu et al., "Google's Neural Machine Translation System" (2016); Devlin et al., "BERT"
(2018).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence

#: Blocks of Chinese characters, each of which is a word.
CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
LONGEST_WORD = 100  #: characters; a longer word is unknown


class WordPiece:
    """Lower-case WordPiece between [CLS] and [SEP].

    Args:
        tokens: the name of each id; those that go on within a word begin with ##.

    Raises:
        ValueError: [UNK], [CLS], [SEP] or [PAD] is missing.
    """

    def __init__(self, tokens: Sequence[str]):
        self.tokens = list(tokens)
        self._ids = {token: i for i, token in enumerate(self.tokens)}
        for name in ("[UNK]", "[CLS]", "[SEP]", "[PAD]"):
            if name not in self._ids:
                raise ValueError(f"the vocabulary has no {name}")
        self.pad_id = self._ids["[PAD]"]

    def __len__(self) -> int:
        """Number of ids."""
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The ids of a text, with [CLS] before and [SEP] after it."""
        ids = [self._ids["[CLS]"]]
        for word in words(text):
            ids += self._encode_word(word)
        return [*ids, self._ids["[SEP]"]]

    def names(self, ids: Iterable[int]) -> list[str]:
        """The names of ids, to label a picture with."""
        return [self.tokens[i] for i in ids]

    def _encode_word(self, word: str) -> list[int]:
        unknown = [self._ids["[UNK]"]]
        if len(word) > LONGEST_WORD:
            return unknown
        ids, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = word[start:end] if start == 0 else "##" + word[start:end]
                if piece in self._ids:
                    break
            else:
                return unknown
            ids.append(self._ids[piece])
            start = end
        return ids


def words(text: str) -> Iterator[str]:
    """The words and signs of a text, in lower case and without accents."""
    word = ""
    for character in _lower(_clean(text)):
        if character.isspace() or _is_punctuation(character):
            if word:
                yield word
            word = ""
            if not character.isspace():
                yield character
        else:
            word += character
    if word:
        yield word


def _clean(text: str) -> Iterator[str]:
    """The characters that can be seen; every kind of space is a space, Chinese ones stand apart."""
    for character in text:
        code = ord(character)
        if character in "\t\n\r" or (
            character.isspace() and unicodedata.category(character) != "Cc"
        ):
            yield " "
        elif code == 0xFFFD or unicodedata.category(character) in ("Cc", "Cf", "Co"):
            continue
        elif any(first <= code <= last for first, last in CHINESE):
            yield from (" ", character, " ")
        else:
            yield character


def _lower(characters: Iterable[str]) -> Iterator[str]:
    """Accents are characters of their own once decomposed, and are dropped."""
    for character in unicodedata.normalize("NFD", "".join(characters)):
        if unicodedata.category(character) != "Mn":
            yield from character.lower()


def _is_punctuation(character: str) -> bool:
    """Unicode's punctuation, and the signs of ASCII, $ and + among them."""
    ascii_sign = character.isascii() and not character.isalnum() and character.isprintable()
    return ascii_sign or unicodedata.category(character)[0] == "P"
