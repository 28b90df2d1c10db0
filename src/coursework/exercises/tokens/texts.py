"""Random rows of ids and random texts for the exercises of this chapter."""

from __future__ import annotations

import numpy as np

Rng = np.random.Generator

_SYLLABLES = ("an", "ban", "na", "se", "the", "re", "in", "ing", "er", "o", "tt", "ss")
#: Characters of two, three and four bytes; neighbours that share their first bytes among them.
_WIDE = "éèàüñßäö語言日本—…🙂🙃😀🚀"


def row(rng: Rng, n: int, different: int = 4) -> list[int]:
    """`n` ids, few of them different, so that pairs repeat."""
    names = rng.permutation(300)[:different]
    return [int(names[i]) for i in rng.integers(0, different, n)]


def words(rng: Rng, n: int, different: int = 5) -> str:
    """`n` words of syllables, few of them different, with spaces between them."""
    vocabulary = [
        "".join(_SYLLABLES[i] for i in rng.integers(0, len(_SYLLABLES), rng.integers(1, 4)))
        for _ in range(different)
    ]
    return " ".join(vocabulary[i] for i in rng.integers(0, different, n))


def letters(rng: Rng, n: int, alphabet: str = "abcd") -> str:
    """`n` letters of an alphabet."""
    return "".join(alphabet[i] for i in rng.integers(0, len(alphabet), n))


def wide(rng: Rng, n: int, different: int = 3) -> str:
    """`n` characters of which most take two to four bytes in UTF-8, few of them different."""
    alphabet = "".join(_WIDE[i] for i in rng.permutation(len(_WIDE))[:different]) + "a"
    return letters(rng, n, alphabet)
