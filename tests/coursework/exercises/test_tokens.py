"""Chapter 01: wrong answers that pass elsewhere, and what students read."""

from __future__ import annotations

import io
import unicodedata
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise

import numpy as np
import pytest

from coursework import check, evaluate
from coursework.exercises import get

from .right_answers.tokens import (
    count_with_get,
    decode_with_a_list,
    embed_by_index,
    encode_merge_by_merge,
    merge_with_while,
    train_plainly,
)

COUNT = "01.count_pairs"
MERGE = "01.merge_pair"
TRAIN = "01.train_bpe"
ENCODE = "01.encode"
DECODE = "01.decode"
EMBED = "01.embed"


# Wrong answers -------------------------------------------------------------------------------


def count_as_a_list(ids):
    return list(count_with_get(ids).items())


def count_with_zeros(ids):
    return {(a, b): count_with_get(ids).get((a, b), 0) for a in ids for b in ids}


def count_as_floats(ids):
    return {pair: float(n) for pair, n in count_with_get(ids).items()}


def count_with_text_for_keys(ids):
    return {f"{a} {b}": n for (a, b), n in count_with_get(ids).items()}


def count_that_eats_its_input(ids):
    counts = {}
    while len(ids) > 1:
        pair = (ids.pop(0), ids[0])
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def merge_as_an_array(ids, pair, new_id):
    return np.array(merge_with_while(ids, pair, new_id))


def merge_as_a_generator(ids, pair, new_id):
    yield from merge_with_while(ids, pair, new_id)


def merge_of_the_printed_row(ids, pair, new_id):
    """Replaces in the text of the row, where 1, 21 and 12, 1 look alike."""
    row = ",".join(map(str, ids)).replace(f"{pair[0]},{pair[1]}", str(new_id))
    return [int(i) for i in row.split(",") if i]


def merge_that_repeats(ids, pair, new_id):
    """Takes the new id for the first of the pair, and merges on."""
    merged = []
    for i in ids:
        if merged and i == pair[1] and merged[-1] in (pair[0], new_id):
            merged[-1] = new_id
        else:
            merged.append(i)
    return merged


def train_one_too_few(text, n_merges):
    return train_plainly(text, max(n_merges - 1, 0))


def train_that_wants_three(text, n_merges):
    ids, merges = list(text.encode()), []
    while len(merges) < n_merges:
        counts = count_with_get(ids)
        if max(counts.values(), default=0) < 3:
            break
        pair = min(counts, key=lambda p: (-counts[p], p))
        ids = merge_with_while(ids, pair, 256 + len(merges))
        merges.append(pair)
    return merges


def train_on_lower_case_without_spaces(text, n_merges):
    return train_plainly(text.replace(" ", ""), n_merges)


def train_in_lower_case(text, n_merges):
    return train_plainly(text.lower(), n_merges)


def train_between_the_outer_spaces(text, n_merges):
    return train_plainly(text.strip(), n_merges)


def train_to_bytes(text, n_merges):
    tokens = [bytes([i]) for i in range(256)]
    for a, b in train_plainly(text, n_merges):
        tokens.append(tokens[a] + tokens[b])
    return tokens[256:]


def train_in_latin_1(text, n_merges):
    return train_plainly(text.encode("latin-1", "replace").decode("latin-1"), n_merges)


def encode_to_pieces(text, merges):
    return [decode_with_a_list([i], merges) for i in encode_merge_by_merge(text, merges)]


def encode_normalised(text, merges):
    return encode_merge_by_merge(unicodedata.normalize("NFC", text), merges)


def encode_in_compatible_characters(text, merges):
    return encode_merge_by_merge(unicodedata.normalize("NFKD", text), merges)


def encode_without_control_characters(text, merges):
    return encode_merge_by_merge("".join(c for c in text if c.isprintable()), merges)


def encode_of_lines(text, merges):
    return encode_merge_by_merge("\n".join(text.splitlines()), merges)


def encode_within_words(text, merges):
    ids = []
    for i, word in enumerate(text.split(" ")):
        ids += [32] * (i > 0) + encode_merge_by_merge(word, merges)
    return ids


def encode_with_overlaps(text, merges):
    ids = list(text.encode())
    for rank, pair in enumerate(merges):
        starts = [p == pair for p in pairwise(ids)] + [False]
        ids = [
            256 + rank if starts[i] else ids[i]
            for i in range(len(ids))
            if starts[i] or i == 0 or not starts[i - 1]
        ]
    return ids


def decode_one_level(ids, merges):
    if not all(0 <= i < 256 + len(merges) for i in ids):
        raise IndexError
    data = [j for i in ids for j in (merges[i - 256] if i > 255 else (i,))]
    return bytes(j % 256 for j in data).decode("utf-8", "replace")


def decode_with_backslashes(ids, merges):
    tokens = decode_with_a_list(ids, merges)
    return tokens.encode("ascii", "backslashreplace").decode()


def decode_with_a_value_error(ids, merges):
    try:
        return decode_with_a_list(ids, merges)
    except IndexError as error:
        raise ValueError(str(error)) from None


def decode_without_newlines(ids, merges):
    return decode_with_a_list(ids, merges).replace("\r\n", "\n")


def decode_that_refuses_the_last_id(ids, merges):
    if any(i >= 255 + len(merges) for i in ids):
        raise IndexError
    return decode_with_a_list(ids, merges)


def embed_with_a_value_error(ids, table):
    try:
        return embed_by_index(ids, table)
    except IndexError as error:
        raise ValueError(str(error)) from None


def embed_as_lists(ids, table):
    return embed_by_index(ids, table).tolist()


def embed_for_arrays_only(ids, table):
    if ids.min() < 0 or ids.max() >= len(table):
        raise IndexError
    return table[ids]


def embed_of_zeros_for_unknown(ids, table):
    ids = np.asarray(ids, dtype=int)
    known = (ids >= 0) & (ids < len(table))
    return np.where(known[..., None], table[np.where(known, ids, 0)], 0).astype(table.dtype)


def embed_with_the_axes_exchanged(ids, table):
    return np.swapaxes(embed_by_index(ids, table), -1, -2)


def embed_in_half_precision(ids, table):
    return embed_by_index(ids, table).astype(np.float16).astype(table.dtype)


WRONG_ANSWERS = {
    COUNT: (
        count_as_a_list,
        count_with_zeros,
        count_as_floats,
        count_with_text_for_keys,
        count_that_eats_its_input,
    ),
    MERGE: (
        merge_as_an_array,
        merge_as_a_generator,
        merge_of_the_printed_row,
        merge_that_repeats,
    ),
    TRAIN: (
        train_one_too_few,
        train_that_wants_three,
        train_on_lower_case_without_spaces,
        train_in_lower_case,
        train_between_the_outer_spaces,
        train_to_bytes,
        train_in_latin_1,
    ),
    ENCODE: (
        encode_to_pieces,
        encode_normalised,
        encode_in_compatible_characters,
        encode_without_control_characters,
        encode_of_lines,
        encode_within_words,
        encode_with_overlaps,
    ),
    DECODE: (
        decode_one_level,
        decode_with_backslashes,
        decode_with_a_value_error,
        decode_without_newlines,
        decode_that_refuses_the_last_id,
    ),
    EMBED: (
        embed_with_a_value_error,
        embed_as_lists,
        embed_for_arrays_only,
        embed_of_zeros_for_unknown,
        embed_with_the_axes_exchanged,
        embed_in_half_precision,
    ),
}


@pytest.mark.parametrize(
    ("id", "answer"),
    [pytest.param(id, f, id=f.__name__) for id, fs in WRONG_ANSWERS.items() for f in fs],
)
def test_a_wrong_answer_fails_and_gets_no_name_that_is_not_its_own(id, answer):
    verdict = evaluate(id, answer, seed=5)
    assert not verdict.passed
    assert verdict.misconception is None


def test_a_mistake_is_named_however_it_is_spelt():
    def first_seen(text, n_merges):
        ids, merges = [*text.encode()], []
        for new_id in range(256, 256 + n_merges):
            best, most = None, 1
            for pair, n in count_with_get(ids).items():
                if n > most:  # strictly: the first one wins
                    best, most = pair, n
            if best is None:
                break
            ids = merge_with_while(ids, best, new_id)
            merges.append(best)
        return merges

    def longest_match(text, merges):
        tokens = {bytes([i]): i for i in range(256)}
        spelt = [bytes([i]) for i in range(256)]
        for a, b in merges:
            spelt.append(spelt[a] + spelt[b])
            tokens.setdefault(spelt[-1], len(spelt) - 1)
        data, ids, i = text.encode(), [], 0
        while i < len(data):
            j = next(j for j in range(len(data), i, -1) if data[i:j] in tokens)
            ids.append(tokens[data[i:j]])
            i = j
        return ids

    def wraps(ids, table):
        return np.take(table, np.array(ids, dtype=int), axis=0)

    assert evaluate(TRAIN, first_seen).misconception == "ties by first seen"
    assert evaluate(ENCODE, longest_match).misconception == "longest match"
    wrapped = evaluate(EMBED, wraps)
    assert not wrapped.passed
    assert wrapped.misconception == "negative id wraps"


def test_ids_that_are_whole_numbers_of_numpy_will_do():
    def train(text, n_merges):
        return [tuple(np.array(pair)) for pair in train_plainly(text, n_merges)]

    def encode(text, merges):
        return tuple(np.int32(i) for i in encode_merge_by_merge(text, merges))

    assert evaluate(TRAIN, train).passed
    assert evaluate(ENCODE, encode).passed


@pytest.mark.parametrize("id", WRONG_ANSWERS)
def test_visible_answers_learnt_by_heart_fail(id):
    """An answer that knows what is right on every visible input, and on no other."""
    exercise = get(id)
    known = []

    def remember(*args):
        known.append(args)
        raise RuntimeError

    with redirect_stdout(io.StringIO()):
        check(id, remember)

    right = {repr(args): _outcome(exercise.reference, args) for args in known}

    def recite(*args):
        outcome = right.get(repr(args))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    with redirect_stdout(io.StringIO()):
        assert check(id, recite) == exercise.max_points
    assert not evaluate(id, recite, seed=3).passed


def _outcome(function, args):
    try:
        return function(*args)
    except Exception as error:
        return error


# What a student reads ------------------------------------------------------------------------


def _printed(id, answer):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        points = check(id, answer)
    assert err.getvalue() == ""
    return points, out.getvalue()


def test_the_longest_match_is_explained_on_the_smallest_case():
    longest = next(m for m in get(ENCODE).misconceptions if m.name == "longest match")
    points, text = _printed(ENCODE, longest.function)
    lines = text.splitlines()
    assert points < 5
    assert lines[0].startswith("✗ encode: it takes the longest token at each place (")
    assert lines[1].startswith("  On text = ")
    assert "the list of ids is [" in lines[1]
    assert "; it should be [" in lines[1]
    assert lines[2].startswith("  You take the longest token that fits")
    assert lines[-1] == "  A hint: course check 01-tokens --hint encode"


def test_bytes_cost_a_point_of_their_own_and_the_rest_is_kept():
    characters = next(m for m in get(TRAIN).misconceptions if m.name.startswith("characters"))
    points, text = _printed(TRAIN, characters.function)
    assert points == 4
    assert "✗ bytes, and not characters" in text
    assert "✓ the most frequent pair, again and again" in text


def test_a_missing_error_says_which_one_was_due():
    def answer(ids, merges):
        tokens = [bytes([i]) for i in range(256)]
        for a, b in merges:
            tokens.append(tokens[a] + tokens[b])
        return b"".join(tokens[i] for i in ids).decode("utf-8", "replace")

    points, text = _printed(DECODE, answer)
    assert points == 5
    assert "it should raise IndexError" in text
