"""`encode`: the merges of another text, applied to this one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np

from attend.tokens import encode, train_bpe
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.tokens.texts import letters, wide, words

Rng = np.random.Generator

#: For texts that these merges were not learned from.
_LEARNED_FROM = (
    "it is a truth universally acknowledged that a single man in possession of a good fortune must "
    "be in want of a wife however little known the feelings or views of such a man may be on his "
    "first entering a neighbourhood this truth is so well fixed in the minds of the surrounding "
    "families that he is considered as the rightful property of some one or other of their "
    "daughters"
)
_SENTENCES = (
    "the other man is in want of this",
    "a single truth of his daughters, in his mind",
    "there is that neighbourhood of the minds",
    "this is the first of the feelings that he had then",
)


@cache
def _english(n: int) -> tuple[tuple[int, int], ...]:
    return tuple(train_bpe(_LEARNED_FROM, n))


def _texts(rng: Rng) -> Sequence[Call]:
    a, b = words(rng, 30), letters(rng, 80, "abc ")
    sentence = _SENTENCES[rng.integers(len(_SENTENCES))]
    return calls(
        ("banana", train_bpe("banana bandana", 4)),
        (sentence, list(_english(20))),
        (" It is THE truth ", list(_english(20))),
        (f"  {sentence.title()}. ", list(_english(30))),
        (f" {sentence.upper()} of the man\n", list(_english(40))),
        (_SENTENCES[3], list(_english(60))),
        (words(rng, 5) + a[:40], train_bpe(a, 12)),
        (letters(rng, 37, "abc "), train_bpe(b, 9)),
        (letters(rng, 61, "cba "), train_bpe(b, 21)),
    )


def _pairs_of(*tokens: str) -> list[tuple[int, int]]:
    """Merges that make these tokens in this order; each is two earlier ones or characters."""
    known = {chr(i): i for i in range(128)}
    merges = []
    for token in tokens:
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        left, right = next(cut for cut in cuts if cut[0] in known and cut[1] in known)
        merges.append((known[left], known[right]))
        known[token] = 255 + len(merges)
    return merges


def _conflicts(rng: Rng) -> Sequence[Call]:
    """Texts in which the longest token, or the leftmost one, is not what comes out."""
    one = _pairs_of("bc", "ab", "abc", "abcd", "cd")
    two = _pairs_of("ab", "bc", "cd", "bcd", "bcda", "da")
    runs = _pairs_of("aa", "aaa", "ba", "aab", "aaaa")
    return calls(
        ("abcd", one),
        ("abcda", two),
        ("aaaba", runs),
        (letters(rng, 13, "abcd"), one),
        ("cab" + letters(rng, 23, "abcd"), two),
        (letters(rng, 29, "aab"), runs),
        ("abcdabcbcdabcab" + letters(rng, 11, "abcd"), one),
    )


def _wide_texts(rng: Rng) -> Sequence[Call]:
    text = wide(rng, 40, 4)
    return calls(
        ("éa", train_bpe("éaébé", 2)),
        ("日本語 日本", train_bpe("日本語日本", 4)),
        (text[:17], train_bpe(text, 12)),
        (wide(rng, 23, 9), train_bpe("ééàà🙂🙃🙂🙃日本日本", 9)),
        ("naïve 🙂 café", list(_english(30))),
        ("cafe\u0301 ﬁne", list(_english(30))),  # no text is normalised
    )


def _any_text(rng: Rng) -> Sequence[Call]:
    merges = list(_english(15))
    return calls(
        ("", merges),
        ("t", merges),
        ("a\r\nthe\tb\x00\x1b", merges),
        ("is the", []),
        ("🙂\u200dé", []),
        (letters(rng, 9), merges),
    )


def _merge(ids, pair, new, most=None):
    merged, i, done = [], 0, 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair and done != most:
            merged.append(new)
            i += 2
            done += 1
        else:
            merged.append(ids[i])
            i += 1
    return merged


def _longest_match(text, merges):
    tokens = [bytes([i]) for i in range(256)]
    for a, b in merges:
        tokens.append(tokens[a] + tokens[b])
    data, ids = text.encode("utf-8"), []
    while data:
        best = max(
            (i for i in range(len(tokens)) if data.startswith(tokens[i])),
            key=lambda i: (len(tokens[i]), -i),
        )
        ids.append(best)
        data = data[len(tokens[best]) :]
    return ids


def _leftmost(text, merges):
    ids = list(text.encode("utf-8"))
    i = 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) in merges:
            ids[i : i + 2] = [256 + merges.index((ids[i], ids[i + 1]))]
            i = 0
        else:
            i += 1
    return ids


def _first_place_only(text, merges):
    ids = list(text.encode("utf-8"))
    for rank, (a, b) in enumerate(merges):
        for i in range(len(ids) - 1):
            if (ids[i], ids[i + 1]) == (a, b):
                ids[i : i + 2] = [256 + rank]
                break
    return ids


def _most_frequent(text, merges):
    ids = list(text.encode("utf-8"))
    while True:
        counts = {}
        for i in range(len(ids) - 1):
            pair = (ids[i], ids[i + 1])
            if pair in merges:
                counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            return ids
        best = min(counts, key=lambda pair: (-counts[pair], merges.index(pair)))
        merged, i = [], 0
        while i < len(ids):
            if tuple(ids[i : i + 2]) == best:
                merged.append(256 + merges.index(best))
                i += 2
            else:
                merged.append(ids[i])
                i += 1
        ids = merged


def _characters(text, merges):
    ids = [ord(c) for c in text]
    for rank, pair in enumerate(merges):
        merged, i = [], 0
        while i < len(ids):
            if tuple(ids[i : i + 2]) == tuple(pair):
                merged.append(256 + rank)
                i += 2
            else:
                merged.append(ids[i])
                i += 1
        ids = merged
    return ids


def _latest_first(text, merges):
    ids = list(text.encode("utf-8"))
    while True:
        there = set(pairwise(ids))
        ranks = [rank for rank, pair in enumerate(merges) if pair in there]
        if not ranks:
            return ids
        ids = _merge(ids, merges[ranks[-1]], 256 + ranks[-1])


def _backwards_once(text, merges):
    ids = list(text.encode("utf-8"))
    for rank in reversed(range(len(merges))):
        ids = _merge(ids, merges[rank], 256 + rank)
    return ids


def _one_scan(text, merges):
    data, ids, i = text.encode("utf-8"), [], 0
    while i < len(data):
        pair = tuple(data[i : i + 2])
        if pair in merges:
            ids.append(256 + merges.index(pair))
            i += 2
        else:
            ids.append(data[i])
            i += 1
    return ids


def _ranks_for_ids(text, merges):
    ids = list(text.encode("utf-8"))
    for rank, pair in enumerate(merges):
        ids = _merge(ids, pair, rank)
    return ids


def _from_257(text, merges):
    ids = list(text.encode("utf-8"))
    for rank, pair in enumerate(merges):
        ids = _merge(ids, pair, 257 + rank)
    return ids


def _bytes_only(text, merges):
    return list(text.encode("utf-8"))


def _lower_case(text, merges):
    return _by_rank(text.lower(), merges)


def _stripped(text, merges):
    return _by_rank(text.strip(), merges)


def _lower_case_and_stripped(text, merges):
    return _by_rank(text.lower().strip(), merges)


def _by_rank(text, merges):
    ids = list(text.encode("utf-8"))
    for rank, pair in enumerate(merges):
        ids = _merge(ids, pair, 256 + rank)
    return ids


def _trained_anew(text, merges):
    ids, learned = list(text.encode("utf-8")), 0
    while learned < len(merges):
        counts = {}
        for pair in pairwise(ids):
            counts[pair] = counts.get(pair, 0) + 1
        if max(counts.values(), default=0) < 2:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        ids = _merge(ids, best, 256 + learned)
        learned += 1
    return ids


ENCODE = Exercise(
    chapter=1,
    signature="encode(text, merges) -> list[int]",
    task="""\
Turn a text into ids with merges that were learned before, perhaps from another text.

- `text` is a `str`: any text that UTF-8 can hold, control characters, emoji and the empty text
  among them.
- `merges` is a list of pairs as `train_bpe` returns it, perhaps an empty one. Pair number r,
  counted from 0, becomes the id 256 + r.
- Begin with the UTF-8 bytes. Apply the merges in the order of their training: the first pair
  wherever it stands, from left to right, then the second, and so on.
- Return a list of whole numbers.""",
    reference=encode,
    properties=(
        Property("the merges, in the order of their training", 2, _texts),
        Property("also where a longer token, or one further left, would fit", 1, _conflicts),
        Property("bytes, and not characters", 1, _wide_texts),
        Property("empty texts, control characters, no merges at all", 1, _any_text, edge=True),
    ),
    misconceptions=(
        Misconception(
            "longest match",
            "You take the longest token that fits, from left to right. The merges were learned in "
            "an order, and an early one may use up a byte that a longer token would need. Apply "
            "them in that order.",
            _longest_match,
            symptom="it takes the longest token at each place",
        ),
        Misconception(
            "leftmost merge first",
            "You merge whatever stands furthest left. In *abc*, if (b, c) was learned before "
            "(a, b), it goes first: a, bc.",
            _leftmost,
            symptom="merges are applied in the order of the text",
        ),
        Misconception(
            "first place only",
            "You apply each merge once, at its first place. It is made wherever the pair stands.",
            _first_place_only,
            symptom="later places of a pair are not merged",
        ),
        Misconception(
            "most frequent first",
            "You merge the pair that is most frequent in *this* text. The order was settled in "
            "training, so that a word has the same tokens whatever stands around it.",
            _most_frequent,
            symptom="the order of the merges depends on the text",
        ),
        Misconception(
            "characters instead of bytes",
            "You start from characters. Merges are pairs of *bytes*: é is two of them, 🙂 four.",
            _characters,
            symptom="right for English, wrong for é and 🙂",
        ),
        Misconception(
            "latest merge first",
            "You begin with the merges that were learned last. They are made of earlier ones, "
            "which must be there first.",
            _latest_first,
            symptom="the merges are applied from the wrong end",
            also=(_backwards_once,),
        ),
        Misconception(
            "bytes merged once",
            "You look at each pair of bytes once. What a merge makes can be merged again: pairs "
            "may hold ids from 256 on.",
            _one_scan,
            symptom="no token is longer than two bytes",
        ),
        Misconception(
            "ranks for ids",
            "Your merged ids begin at 0, where the bytes have theirs. Pair number r is 256 + r.",
            _ranks_for_ids,
            symptom="merged ids are below 256",
        ),
        Misconception(
            "ids from 257",
            "Your merged ids are one too large: the first pair is number 0, and its id 256.",
            _from_257,
            symptom="merged ids are one too large",
        ),
        Misconception(
            "no merges",
            "These are the bytes. The merges are still to be applied.",
            _bytes_only,
            symptom="no pair is merged",
        ),
        Misconception(
            "tidies the text",
            "You change the text before you encode it: capital letters or spaces at its ends are "
            "gone. They are bytes like others, and decoding could not bring them back.",
            _lower_case,
            symptom="the ids are those of a tidied text",
            also=(_stripped, _lower_case_and_stripped),
        ),
        Misconception(
            "trained anew",
            "You learn merges from this text instead of applying those that are handed to you. "
            "Then an id means something else in every text.",
            _trained_anew,
            symptom="the ids come from this text's own merges",
        ),
    ),
    hints=(
        "`merge_pair` does one merge. In which order did training make them, and which id did each "
        "get?",
        "Start from the bytes as a list. Go through `merges` from the first to the last, and merge "
        "each pair into 256 plus its place in the list.",
        "`for rank, pair in enumerate(merges): ids = merge_pair(ids, pair, 256 + rank)`, with "
        '`list(text.encode("utf-8"))` before it.',
    ),
    minutes=10,
    returns=("the list of ids",),
)
