"""`train_bpe`: the pairs that are worth an id of their own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from attend.tokens import train_bpe
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.tokens.texts import letters, wide, words

Rng = np.random.Generator


def _plain_texts(rng: Rng) -> Sequence[Call]:
    return calls(
        ("aaabdaaabac", 3),
        ("banana bandana", 4),
        ("  Ab aB Ab aB  ", 3),
        (words(rng, 12), 6),
        (words(rng, 23), 11),
        (words(rng, 31, 7), 17),
        (letters(rng, 60, "ab "), 9),
    )


def _ties(rng: Rng) -> Sequence[Call]:
    def mirrored(n: int) -> str:
        """Each pair about as often as the others, the larger ones first."""
        alphabet = "".join(sorted(letters(rng, 3, "bcdefgh") + "xyz", reverse=True))
        return "".join(c + letters(rng, 1, "01") + c for c in alphabet) * n

    return calls(
        ("cdxcdyabzab", 1),
        ("zy-zy+xw=xw", 3),
        (mirrored(2), 7),
        (letters(rng, 40), 6),
        (letters(rng, 70, "dcba"), 13),
    )


def _wide_texts(rng: Rng) -> Sequence[Call]:
    return calls(
        ("éaébé", 2),
        ("日本語日本", 4),
        (wide(rng, 13), 5),
        (wide(rng, 23), 11),
        ("🙂 " + wide(rng, 31, 4) + "🙃", 9),
    )


def _stops(rng: Rng) -> Sequence[Call]:
    return calls(
        ("", 3),
        ("x", 2),
        ("abcdef", 5),
        ("abab", 9),
        (words(rng, 5), 90),
        (letters(rng, 17), 40),
        (words(rng, 7), 0),
        (letters(rng, 23) * 2, 60),
    )


def _characters(text, n_merges):
    ids = [ord(c) for c in text]
    merges = []
    while len(merges) < n_merges:
        counts = {}
        for pair in pairwise(ids):
            counts[pair] = counts.get(pair, 0) + 1
        if max(counts.values(), default=0) < 2:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        merged, i = [], 0
        while i < len(ids):
            if tuple(ids[i : i + 2]) == best:
                merged.append(256 + len(merges))
                i += 2
            else:
                merged.append(ids[i])
                i += 1
        ids = merged
        merges.append(best)
    return merges


def _count(ids):
    counts = {}
    for pair in pairwise(ids):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def _merge(ids, pair, new):
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def _train(text, n_merges, choose, at_least=2, first=256):
    """Byte-pair encoding with another choice of the pair, or of the first new id."""
    ids, merges = list(text.encode("utf-8")), []
    while len(merges) < n_merges:
        counts = _count(ids)
        if max(counts.values(), default=0) < at_least:
            break
        pair = choose(counts)
        ids = _merge(ids, pair, first + len(merges))
        merges.append(pair)
    return merges


def _smallest(counts):
    return min(counts, key=lambda pair: (-counts[pair], pair))


def _first_seen(text, n_merges):
    return _train(text, n_merges, lambda counts: max(counts, key=counts.get))


def _largest(text, n_merges):
    return _train(text, n_merges, lambda counts: max(counts, key=lambda p: (counts[p], p)))


def _once_only(text, n_merges):
    return _train(text, n_merges, _smallest, at_least=1)


def _from_257(text, n_merges):
    return _train(text, n_merges, _smallest, first=257)


def _after_the_largest_byte(text, n_merges):
    return _train(text, n_merges, _smallest, first=max(text.encode("utf-8"), default=0) + 1)


def _rarest(text, n_merges):
    def rarest(counts):
        return min(counts, key=lambda p: (counts[p] < 2, counts[p], p))

    return _train(text, n_merges, rarest)


def _counted_once(text, n_merges):
    counts = _count(text.encode("utf-8"))
    pairs = sorted(counts, key=lambda pair: (-counts[pair], pair))
    return [pair for pair in pairs if counts[pair] >= 2][:n_merges]


def _overlaps_skipped(text, n_merges):
    ids, merges = list(text.encode("utf-8")), []
    while len(merges) < n_merges:
        counts = {p: len(ids) - len(_merge(ids, p, -1)) for p in set(pairwise(ids))}
        if max(counts.values(), default=0) < 2:
            break
        pair = _smallest(counts)
        ids = _merge(ids, pair, 256 + len(merges))
        merges.append(pair)
    return merges


def _within_words(text, n_merges, leading=False):
    parts = text.split(" ")
    rows = [(" " * (leading and i > 0) + part).encode("utf-8") for i, part in enumerate(parts)]
    rows, merges = [list(row) for row in rows], []
    while len(merges) < n_merges:
        counts = {}
        for row in rows:
            for pair, count in _count(row).items():
                counts[pair] = counts.get(pair, 0) + count
        if max(counts.values(), default=0) < 2:
            break
        pair = _smallest(counts)
        rows = [_merge(row, pair, 256 + len(merges)) for row in rows]
        merges.append(pair)
    return merges


def _within_words_and_their_spaces(text, n_merges):
    return _within_words(text, n_merges, leading=True)


def _new_ids_returned(text, n_merges):
    return [256 + i for i in range(len(_train(text, n_merges, _smallest)))]


TRAIN_BPE = Exercise(
    chapter=1,
    signature="train_bpe(text, n_merges) -> list[tuple[int, int]]",
    task="""\
Learn the merges of byte-pair encoding.

- `text` is a `str`, perhaps an empty one; `n_merges` is a whole number from 0 on.
- Begin with the UTF-8 bytes of the *whole* text as ids, 0 to 255. The text is not split at spaces,
  nor anywhere else.
- Then, `n_merges` times: find the pair of neighbours that is most frequent, as `count_pairs`
  counts; of pairs that are equally frequent, take the smallest as Python compares tuples. Merge it
  everywhere, from left to right, into a new id: 256 for the first merge, 257 for the second, and so
  on. Count anew.
- Stop early when no pair occurs twice.
- Return the list of the merged pairs in the order in which they were merged. A pair may hold new
  ids.""",
    reference=train_bpe,
    properties=(
        Property("the most frequent pair, again and again", 2, _plain_texts),
        Property("of equally frequent pairs the smallest", 1, _ties),
        Property("bytes, and not characters", 1, _wide_texts),
        Property("it stops when no pair occurs twice, or after n_merges", 1, _stops),
    ),
    misconceptions=(
        Misconception(
            "characters instead of bytes",
            "You start from characters (`ord`, or the `str` itself). There are far more of them "
            "than 256, and those beyond would take the numbers of your merges. Start from "
            "`text.encode(...)`.",
            _characters,
            symptom="right for English, wrong for é and 🙂",
        ),
        Misconception(
            "ties by first seen",
            "Of equally frequent pairs you take the one that the text shows first, which is what "
            "`max` over a dictionary does. Asked for is the smallest pair.",
            _first_seen,
            symptom="ties go to the pair that is seen first",
        ),
        Misconception(
            "ties to the largest",
            "Of equally frequent pairs you take the *largest*: `max` over (count, pair) looks for "
            "the largest of both. Asked for is the largest count, and the smallest pair.",
            _largest,
            symptom="ties go to the largest pair",
        ),
        Misconception(
            "once-only pairs merged",
            "You go on when every pair occurs once only. Such a merge saves a single place in this "
            "text and says nothing about any other: stop before.",
            _once_only,
            symptom="it does not stop when no pair repeats",
        ),
        Misconception(
            "new ids from another number",
            "Your new ids do not begin at 256. Bytes are 0 … 255, whether they occur in this text "
            "or not; the first merge is 256.",
            _from_257,
            symptom="the new ids have other numbers",
            also=(_after_the_largest_byte,),
        ),
        Misconception(
            "rarest pair first",
            "You merge the rarest of the pairs that repeat. It is the most frequent one that "
            "shortens the text most.",
            _rarest,
            symptom="rare pairs are merged first",
        ),
        Misconception(
            "counted once",
            "You count once, at the beginning, and take the most frequent pairs of that count. A "
            "merge changes what stands beside it, and makes new pairs: count again after each.",
            _counted_once,
            symptom="no pair holds a new id",
        ),
        Misconception(
            "overlaps skipped",
            "You count only as many places as could be merged, so that [1, 1, 1] has one. "
            "`count_pairs` counts all: two.",
            _overlaps_skipped,
            symptom="runs of equal bytes are counted too low",
        ),
        Misconception(
            "split at spaces",
            "You split the text at spaces, and no pair reaches across them. Many tokenizers do "
            "that; here the whole text is one row.",
            _within_words,
            symptom="no pair reaches across a space",
            also=(_within_words_and_their_spaces,),
        ),
        Misconception(
            "new ids returned",
            "You return the new ids. They are always 256, 257, …; what has been learned is which "
            "pair each of them stands for.",
            _new_ids_returned,
            symptom="it returns numbers, not pairs",
        ),
    ),
    hints=(
        "You have both parts already: `count_pairs` says which pair is most frequent, `merge_pair` "
        "makes the row shorter. What must happen between two merges?",
        "Turn the text into a list of bytes. In a loop: count, stop if the largest count is below "
        "2, choose the pair, merge it into 256 plus the number of merges so far, note it down.",
        "`min(counts, key=lambda pair: (-counts[pair], pair))` is the most frequent pair, and of "
        "several the smallest. `max(counts.values(), default=0)` is 0 where there is no pair.",
    ),
    minutes=15,
    returns=("the list of merges",),
)
