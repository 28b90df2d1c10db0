"""Byte-pair encoding: the plain version and the fast one agree, and every text comes back."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import attend

from .mistakes import mistakes, must_reject

#: Any text that UTF-8 can hold, few different characters so that pairs repeat.
texts = st.text() | st.text(alphabet="ab é🙂\r\n\x00", max_size=60)
rows = st.lists(st.integers(0, 3), max_size=30)
CORPUS = attend.pride_and_prejudice()[:20_000]
MERGES = attend.train_bpe(CORPUS, 300)


def check_count(count):
    assert count([]) == count([7]) == {}
    assert count([1, 1, 1]) == {(1, 1): 2}
    assert count([1, 2, 1, 2, 3]) == {(1, 2): 2, (2, 1): 1, (2, 3): 1}


def check_merge(merge):
    for ids, pair, expected in (
        ([1, 1, 1], (1, 1), [9, 1]),
        ([1, 1, 1, 1], (1, 1), [9, 9]),
        ([1, 2, 3, 1, 2], (1, 2), [9, 3, 9]),
        ([2, 1], (1, 2), [2, 1]),
        ([], (1, 2), []),
    ):
        kept = list(ids)
        assert merge(ids, pair, 9) == expected
        assert ids == kept, "the given row was changed"


def check_train(train):
    assert train("aaabdaaabac", 9) == [(97, 97), (97, 98), (256, 257)]
    # é is two bytes; (195, 169) occurs twice, no pair of characters does
    assert train("éaé", 5) == [(195, 169)]
    # (97, 98) and (99, 100) are equally frequent: the smaller pair wins, not the first seen
    assert train("cdxcdyabzab", 1) == [(97, 98)]
    assert train("abcd", 5) == [], "no pair occurs twice"
    assert train("ab ab", 0) == []
    # pairs reach across spaces
    assert (32, 97) in train("b a b a b a", 2)
    assert train(CORPUS[:3000], 60) == attend.train_bpe_plainly(CORPUS[:3000], 60)


def check_encode(encode):
    merges = [(97, 98), (98, 99), (256, 99)]
    assert encode("abc", merges) == [258]
    assert encode("bcab", merges) == [257, 256]
    # the longest match would be "bc" + "ccc"; the merge that was learnt first wins
    merges = [(97, 98), (98, 99), (257, 99)]
    assert encode("abcc", merges) == [256, 99, 99]
    assert encode("", merges) == []
    assert encode("é\r\n\x00", []) == [195, 169, 13, 10, 0]
    for text in (CORPUS[:500], "naïve 🙂 café\r\n"):
        ids = list(text.encode())
        for rank, pair in enumerate(MERGES):
            ids = attend.merge_pair(ids, pair, 256 + rank)
        assert encode(text, MERGES) == ids


def check_decode(decode):
    merges = [(97, 98), (256, 256)]
    assert decode([257, 99], merges) == "ababc"
    assert decode([], merges) == ""
    assert decode([195, 169], merges) == "é"
    assert decode([195, 40, 0xFF], merges) == "\ufffd(\ufffd"
    for outside in (-1, 258):
        try:
            decode([97, outside], merges)
        except IndexError:
            continue
        raise AssertionError(f"id {outside} stands for nothing")


def _count(pairs):
    def f(ids):
        counts = {}
        for pair in pairs(ids):
            counts[pair] = counts.get(pair, 0) + 1
        return counts

    return f


def _without_overlaps(ids):
    i, pairs = 0, []
    while i < len(ids) - 1:
        pairs.append((ids[i], ids[i + 1]))
        i += 2 if i + 2 < len(ids) and tuple(ids[i + 1 : i + 3]) == pairs[-1] else 1
    return pairs


def _merge_overlapping(ids, pair, new):
    return [
        new if tuple(ids[i : i + 2]) == pair else x
        for i, x in enumerate(ids)
        if i == 0 or tuple(ids[i - 1 : i + 1]) != pair or tuple(ids[i : i + 2]) == pair
    ]


def _merge_first(ids, pair, new):
    for i in range(len(ids) - 1):
        if tuple(ids[i : i + 2]) == pair:
            return [*ids[:i], new, *ids[i + 2 :]]
    return list(ids)


def _merge_in_place(ids, pair, new):
    ids[:] = attend.merge_pair(ids, pair, new)
    return ids


def _train(start=lambda text: list(text.encode()), key=lambda n, pair: (-n, pair), least=2):
    def f(text, n_merges):
        ids, merges = start(text), []
        while len(merges) < n_merges:
            counts = attend.count_pairs(ids)
            if max(counts.values(), default=0) < least:
                break
            pair = min(counts, key=lambda p: key(counts[p], p))
            ids = attend.merge_pair(ids, pair, 256 + len(merges))
            merges.append(pair)
        return merges

    return f


def _longest_match(text, merges):
    tokens, data, ids = attend.token_bytes(merges), text.encode(), []
    while data:
        best = max((t for t in tokens if data.startswith(t)), key=len)
        ids.append(tokens.index(best))
        data = data[len(best) :]
    return ids


def _strict(ids, merges):
    tokens = attend.token_bytes(merges)
    try:
        return b"".join(tokens[i] for i in ids).decode()
    except UnicodeDecodeError as error:
        raise AssertionError("invalid UTF-8 must become U+FFFD") from error


@mistakes(
    {
        check_count: {
            "last pair dropped": _count(lambda ids: pairwise(ids[:-1])),
            "order ignored": _count(lambda ids: (tuple(sorted(p)) for p in pairwise(ids))),
            "overlaps skipped": _count(_without_overlaps),
        },
        check_merge: {
            "overlapping": _merge_overlapping,
            "only the first": _merge_first,
            "input changed": _merge_in_place,
        },
        check_train: {
            "characters for bytes": _train(start=lambda text: [ord(c) for c in text]),
            "ties by first seen": _train(key=lambda n, pair: -n),
            "ties to the largest pair": _train(key=lambda n, pair: (-n, -pair[0], -pair[1])),
            "pairs that occur once": _train(least=1),
        },
        check_encode: {
            "longest match": _longest_match,
            "no merges": lambda text, merges: list(text.encode()),
            "characters for bytes": lambda text, merges: attend.apply_merges(
                [ord(c) for c in text], {p: (r, 256 + r) for r, p in enumerate(merges)}
            ),
        },
        check_decode: {
            "crash on invalid UTF-8": _strict,
            "invalid bytes dropped": lambda ids, merges: b"".join(
                attend.token_bytes(merges)[i] for i in ids
            ).decode(errors="ignore"),
            "negative ids wrap": lambda ids, merges: attend.decode(
                [i % (256 + len(merges)) for i in ids], merges
            ),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_count, attend.count_pairs),
        (check_merge, attend.merge_pair),
        (check_train, attend.train_bpe),
        (check_train, attend.train_bpe_plainly),
        (check_encode, attend.encode),
        (check_decode, attend.decode),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_the_parts_of_byte_pair_encoding(check, ours):
    check(ours)


@pytest.mark.slow
@given(texts, st.integers(0, 40))
def test_keeping_the_counts_gives_the_merges_of_counting_anew(text, n_merges):
    assert attend.train_bpe(text, n_merges) == attend.train_bpe_plainly(text, n_merges)


@given(st.text(alphabet="ab", max_size=200))
def test_runs_of_one_letter_whose_pairs_overlap_are_counted_right(text):
    assert attend.train_bpe(text, 30) == attend.train_bpe_plainly(text, 30)


@given(texts)
def test_every_text_comes_back(text):
    assert attend.decode(attend.encode(text, MERGES), MERGES) == text


@given(st.binary(max_size=40))
def test_any_bytes_can_be_decoded(data):
    assert attend.decode(list(data), []) == data.decode("utf-8", errors="replace")


@given(texts)
def test_merging_by_rank_is_applying_the_merges_one_after_the_other(text):
    ids = list(text.encode())
    for rank, pair in enumerate(MERGES[:80]):
        ids = attend.merge_pair(ids, pair, 256 + rank)
    assert attend.encode(text, MERGES[:80]) == ids


@given(rows, st.integers(1, 5))
def test_words_that_occur_often_count_as_often(row, times):
    word = bytes(row)
    apart = attend.train_on_words({word: times}, 10)
    # the same word again and again, with a byte between that occurs once
    text = b"".join(word + bytes([200 + i]) for i in range(times))
    ids, merges = list(text), []
    while len(merges) < 10:
        counts = attend.count_pairs(ids)
        counts = {p: n for p, n in counts.items() if not any(200 <= x < 256 for x in p)}
        if max(counts.values(), default=0) < 2:
            break
        pair = min(counts, key=lambda p: (-counts[p], p))
        ids = attend.merge_pair(ids, pair, 256 + len(merges))
        merges.append(pair)
    assert apart == merges


def test_surrogates_which_utf8_cannot_hold_are_refused():
    with pytest.raises(UnicodeEncodeError):
        attend.encode("\ud800", MERGES)


@pytest.mark.slow
def test_the_whole_novel_can_be_learnt_from():
    """Counting anew for each of a thousand merges would take minutes."""
    novel = attend.pride_and_prejudice()
    merges = attend.train_bpe(novel, 1000)
    assert len(merges) == 1000
    assert merges[:3] == attend.train_bpe_plainly(novel, 3)
    assert attend.decode(attend.encode(novel[:50_000], merges), merges) == novel[:50_000]
