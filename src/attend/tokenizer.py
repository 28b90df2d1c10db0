"""A tokenizer as published models have one: BPE within words, and special tokens (chapter 01).

Plain BPE may merge across words: "dog." and "dog," would become tokens. So the text is first cut
into pieces by a pattern, and merges stay within a piece. Special tokens such as `<|endoftext|>` are
ids that no text makes, unless it is said that it may.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attend.tokens import apply_merges, join_tokens, token_bytes, train_on_words

#: GPT-2's pieces: a contraction, a word or number or signs with the space before them, or space.
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
#: Each digit alone, so that 1234 is no token of its own. Stands before GPT-2's in SmolLM2.
DIGIT_PATTERN = r"\p{N}"


class Tokenizer:
    """Byte-level BPE within the pieces that patterns cut.

    Args:
        tokens: the bytes of each id. The bytes of a special token are its name.
        merges: the two halves of each merge, by their bytes, in order of training.
        patterns: each cuts every piece of the one before into what it matches and what lies
            between.
        special: the ids of special tokens by name.
        eos: name of the special token that ends a text, if there is one.

    Raises:
        ValueError: a merge makes bytes that are no token, or `eos` is not special.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        merges: Iterable[tuple[bytes, bytes]],
        patterns: Sequence[str] = (GPT2_PATTERN,),
        special: Mapping[str, int] | None = None,
        eos: str | None = None,
    ):
        self.tokens, self.special = list(tokens), dict(special or {})
        if eos is not None and eos not in self.special:
            raise ValueError(f"eos is {eos!r}: it must be one of the special tokens")
        self.eos_id = None if eos is None else self.special[eos]
        commands = set(self.special.values())
        ids = {token: i for i, token in enumerate(self.tokens) if i not in commands}
        #: The id of each single byte; None where a published vocabulary has no token for it.
        self._bytes = [ids.get(bytes([byte])) for byte in range(256)]
        self._ranks: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (a, b) in enumerate(merges):
            if a + b not in ids:
                raise ValueError(f"merge {rank} makes {a + b!r}, which is no token")
            self._ranks.setdefault((ids[a], ids[b]), (rank, ids[a + b]))
        self._patterns = [_compile(pattern) for pattern in patterns]
        # The longest name first: where two begin alike, the longer one is meant.
        names = sorted(self.special, key=len, reverse=True)
        self._special_pattern = _compile("|".join(map(_escape, names))) if names else None
        self._known: dict[str, list[int]] = {}  # pieces that have been encoded: words repeat

    @classmethod
    def train(
        cls,
        text: str,
        n_merges: int,
        patterns: Sequence[str] = (GPT2_PATTERN,),
        special: Sequence[str] = (),
    ) -> Tokenizer:
        """A tokenizer that learns its merges from a text.

        Args:
            text: what to learn from.
            n_merges: how many merges to learn at most.
            patterns: where the text is cut.
            special: names of special tokens, whose ids come last; the first one ends a text.

        Returns:
            a tokenizer of 256 + merges + special tokens, in which every text survives the round
            trip.
        """
        compiled = [_compile(pattern) for pattern in patterns]
        words = Counter(piece.encode("utf-8") for piece in cut(text, compiled))
        pairs = train_on_words(words, n_merges)
        tokens = token_bytes(pairs)
        merges = [(tokens[a], tokens[b]) for a, b in pairs]
        ids = {name: len(tokens) + i for i, name in enumerate(special)}
        tokens += [name.encode("utf-8") for name in special]
        return cls(tokens, merges, patterns, ids, eos=special[0] if special else None)

    def __len__(self) -> int:
        """Number of ids, the vocabulary that a model needs."""
        return len(self.tokens)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids of a text.

        Args:
            text: any text that UTF-8 can hold.
            special: whether the name of a special token in the text means the token. Leave it off
                for text that somebody else wrote.

        Returns:
            the ids. A byte without a token, which some published vocabularies have, is left out.
        """
        ids: list[int] = []
        if not special or self._special_pattern is None:
            for piece in cut(text, self._patterns):
                ids += self._encode_piece(piece)
            return ids
        start = 0
        for found in self._special_pattern.finditer(text):
            ids += self.encode(text[start : found.start()])
            ids.append(self.special[found.group()])
            start = found.end()
        return ids + self.encode(text[start:])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are not valid UTF-8 become U+FFFD.

        Raises:
            IndexError: an id is negative or beyond the vocabulary.
        """
        return join_tokens(ids, self.tokens)

    def _encode_piece(self, piece: str) -> list[int]:
        if piece not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            ids = [self._bytes[byte] for byte in piece.encode("utf-8")]
            self._known[piece] = apply_merges([i for i in ids if i is not None], self._ranks)
        return self._known[piece]


def cut(text: str, patterns: Sequence) -> Iterator[str]:
    """The pieces of a text: what each compiled pattern matches, and what lies between."""
    if not patterns:
        if text:
            yield text
        return
    start = 0
    for found in patterns[0].finditer(text):
        yield from cut(text[start : found.start()], patterns[1:])
        yield from cut(found.group(), patterns[1:])
        start = found.end()
    yield from cut(text[start:], patterns[1:])


def symbol_bytes() -> dict[str, int]:
    """The byte that each printable character stands for in published vocabularies of this kind.

    Their files are text, so bytes that cannot be printed are written as characters from U+0100 on:
    the space is Ġ, the newline Ċ.

    Returns:
        256 characters with their bytes.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + i): byte for i, byte in enumerate(others)
    }


def _regex():
    try:
        import regex
    except ImportError as error:
        raise ImportError(
            "cutting a text into words needs the classes of Unicode, which `re` does not know: "
            "pip install regex"
        ) from error
    return regex


def _compile(pattern: str):
    return _regex().compile(pattern)


def _escape(name: str) -> str:
    return _regex().escape(name)


class Characters:
    """The simplest tokenizer: each character of a text is a token.

    Args:
        text: its different characters, in the order of their codes, are the vocabulary.
    """

    def __init__(self, text: str):
        self.tokens = sorted(set(text))
        self._ids = {character: i for i, character in enumerate(self.tokens)}

    def __len__(self) -> int:
        """Number of ids."""
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The ids of a text.

        Raises:
            ValueError: a character is not in the vocabulary.
        """
        for character in text:
            if character not in self._ids:
                raise ValueError(f"the vocabulary has no {character!r}")
        return [self._ids[character] for character in text]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids.

        Raises:
            IndexError: an id is negative or beyond the vocabulary.
        """
        ids = list(ids)
        for i in ids:
            if not 0 <= i < len(self.tokens):
                raise IndexError(f"id {i} is outside 0 … {len(self.tokens) - 1}")
        return "".join(self.tokens[i] for i in ids)
