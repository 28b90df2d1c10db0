"""Right answers to the exercises of chapter 01."""

import re
from collections import Counter, defaultdict
from functools import reduce
from itertools import pairwise

import numpy as np
import torch

# count_pairs ---------------------------------------------------------------------------------


def count_with_a_counter(ids):
    return Counter(pairwise(ids))


def count_with_get(ids):
    counts = {}
    for i in range(len(ids) - 1):
        pair = (ids[i], ids[i + 1])
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def count_with_a_defaultdict(ids):
    counts = defaultdict(int)
    for pair in pairwise(ids):
        counts[pair] += 1
    return counts


def count_with_numpy(ids):
    if len(ids) < 2:
        return {}
    pairs = np.stack([ids[:-1], ids[1:]], axis=1)
    different, counts = np.unique(pairs, axis=0, return_counts=True)
    return {tuple(pair): n for pair, n in zip(different, counts, strict=True)}


# merge_pair ----------------------------------------------------------------------------------


def merge_with_while(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def merge_with_a_stack(ids, pair, new_id):
    merged = []
    for i in ids:
        if merged and (merged[-1], i) == pair:
            merged[-1] = new_id
        else:
            merged.append(i)
    return merged


def merge_a_copy_in_place(ids, pair, new_id):
    ids = ids.copy()
    i = 0
    while i < len(ids) - 1:
        if tuple(ids[i : i + 2]) == pair:
            ids[i : i + 2] = [new_id]
        i += 1
    return ids


def merge_by_recursion(ids, pair, new_id):
    if len(ids) < 2:
        return ids
    if (ids[0], ids[1]) == pair:
        return [new_id, *merge_by_recursion(ids[2:], pair, new_id)]
    return [ids[0], *merge_by_recursion(ids[1:], pair, new_id)]


def merge_with_a_regular_expression(ids, pair, new_id):
    """Each id as a character of its own."""
    old = "".join(map(chr, pair))
    text = re.sub(re.escape(old), chr(new_id), "".join(map(chr, ids)), flags=re.DOTALL)
    return [ord(c) for c in text]


def merge_with_numpy_numbers(ids, pair, new_id):
    return [np.int64(i) for i in merge_with_while(ids, pair, new_id)]


# train_bpe -----------------------------------------------------------------------------------


def train_plainly(text, n_merges):
    ids, merges = list(text.encode("utf-8")), []
    for new_id in range(256, 256 + n_merges):
        counts = count_with_a_counter(ids)
        if not counts or max(counts.values()) < 2:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        ids = merge_with_while(ids, best, new_id)
        merges.append(best)
    return merges


def train_with_sorted(text, n_merges):
    ids, merges = list(text.encode()), []
    while len(merges) < n_merges:
        ranked = sorted((-n, pair) for pair, n in count_with_get(ids).items() if n > 1)
        if not ranked:
            return merges
        pair = ranked[0][1]
        ids = merge_with_a_stack(ids, pair, 256 + len(merges))
        merges.append(pair)
    return merges


def train_with_max_of_negatives(text, n_merges):
    ids, merges = [*bytes(text, "utf-8")], []
    while n_merges > len(merges):
        counts = Counter(pairwise(ids))
        best = max(counts, key=lambda p: (counts[p], -p[0], -p[1]), default=None)
        if best is None or counts[best] == 1:
            break
        merges.append(best)
        ids = merge_with_while(ids, best, 255 + len(merges))
    return merges


def train_with_lists_for_pairs(text, n_merges):
    return [list(pair) for pair in train_plainly(text, n_merges)]


def train_with_characters_for_ids(text, n_merges):
    """The row as a `str` whose characters stand for ids, so that `replace` does the merging."""
    row, merges = text.encode("utf-8").decode("latin-1"), []
    while len(merges) < n_merges:
        counts = Counter(map("".join, pairwise(row)))
        if not counts or max(counts.values()) < 2:
            break
        most = max(counts.values())
        best = min(pair for pair, n in counts.items() if n == most)
        row = row.replace(best, chr(256 + len(merges)))
        merges.append((ord(best[0]), ord(best[1])))
    return merges


# encode --------------------------------------------------------------------------------------


def encode_merge_by_merge(text, merges):
    ids = list(text.encode("utf-8"))
    for rank, pair in enumerate(merges):
        ids = merge_with_while(ids, pair, 256 + rank)
    return ids


def encode_lowest_rank_first(text, merges):
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    ids = list(text.encode("utf-8"))
    while len(ids) > 1:
        best = min(pairwise(ids), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        ids = merge_with_a_stack(ids, best, 256 + ranks[best])
    return ids


def encode_place_by_place(text, merges):
    """One place at a time: the earliest merge, and of its places the first."""
    ids = list(text.encode("utf-8"))
    while True:
        places = [(merges.index(pair), i) for i, pair in enumerate(pairwise(ids)) if pair in merges]
        if not places:
            return ids
        rank, i = min(places)
        ids[i : i + 2] = [256 + rank]


def encode_with_reduce(text, merges):
    def step(ids, numbered):
        return merge_a_copy_in_place(ids, numbered[1], numbered[0])

    return reduce(step, enumerate(merges, start=256), [*text.encode()])


def encode_with_replace(text, merges):
    row = text.encode("utf-8").decode("latin-1")
    for rank, (a, b) in enumerate(merges):
        row = row.replace(chr(a) + chr(b), chr(256 + rank))
    return list(map(ord, row))


# decode --------------------------------------------------------------------------------------


def decode_with_a_list(ids, merges):
    tokens = [bytes([i]) for i in range(256)]
    for a, b in merges:
        tokens.append(tokens[a] + tokens[b])
    if not all(0 <= i < len(tokens) for i in ids):
        raise IndexError("unknown id")
    return b"".join(tokens[i] for i in ids).decode("utf-8", errors="replace")


def decode_by_recursion(ids, merges):
    def spell(i):
        if i < 0:
            raise IndexError(i)
        if i < 256:
            return [i]
        a, b = merges[i - 256]
        return spell(a) + spell(b)

    return bytes(byte for i in ids for byte in spell(i)).decode(errors="replace")


def decode_with_a_stack(ids, merges):
    data, stack = bytearray(), ids[::-1]
    while stack:
        i = stack.pop()
        if i not in range(256 + len(merges)):
            raise IndexError(f"no token {i}")
        if i < 256:
            data.append(i)
        else:
            a, b = merges[i - 256]
            stack += [b, a]
    return str(data, "utf-8", "replace")


class UnknownToken(IndexError):
    """A student's own kind of IndexError."""


def decode_with_a_dictionary(ids, merges):
    tokens = {i: bytes([i]) for i in range(256)}
    for i, (a, b) in enumerate(merges, start=256):
        tokens[i] = tokens[a] + tokens[b]
    try:
        return b"".join(map(tokens.__getitem__, ids)).decode("utf-8", "replace")
    except KeyError as error:
        raise UnknownToken(str(error)) from None


def decode_by_undoing_the_merges(ids, merges):
    if ids and not (min(ids) >= 0 and max(ids) < 256 + len(merges)):
        raise IndexError
    for i in reversed(range(len(merges))):
        ids = [part for old in ids for part in (merges[i] if old == 256 + i else (old,))]
    return bytes(ids).decode("utf-8", errors="replace")


# embed ---------------------------------------------------------------------------------------


def embed_by_index(ids, table):
    ids = np.asarray(ids, dtype=np.int64)
    if np.any(ids < 0) or np.any(ids >= table.shape[0]):
        raise IndexError("id outside the table")
    return table[ids]


def embed_with_take(ids, table):
    ids = np.array(ids, dtype=int)
    if ids.size and ids.min() < 0:
        raise IndexError(ids.min())
    return np.take(table, ids, axis=0)


def embed_in_loops(ids, table):
    ids = np.array(ids, dtype=int)
    result = np.empty((*ids.shape, table.shape[1]), dtype=table.dtype)
    for place in np.ndindex(ids.shape):
        if ids[place] < 0:
            raise IndexError("negative")
        result[place] = table[ids[place]]
    return result


def embed_as_a_product(ids, table):
    ids = np.asarray(ids, dtype=np.int64)
    rows = ids[..., None] == np.arange(len(table))
    if not rows.any(axis=-1).all():
        raise IndexError("no such row")
    return rows.astype(table.dtype) @ table


def embed_by_recursion(ids, table):
    if np.ndim(ids) == 0:
        if ids < 0:
            raise IndexError(ids)
        return table[ids]
    shape = (*np.shape(ids), table.shape[1])
    return np.array([embed_by_recursion(i, table) for i in ids], dtype=table.dtype).reshape(shape)


def embed_with_torch_inside(ids, table):
    ids = torch.as_tensor(np.array(ids, dtype=np.int64))
    return torch.nn.functional.embedding(ids, torch.from_numpy(table.copy())).numpy()


RIGHT_ANSWERS = {
    "01.count_pairs": [
        count_with_a_counter,
        count_with_get,
        count_with_a_defaultdict,
        count_with_numpy,
    ],
    "01.merge_pair": [
        merge_with_while,
        merge_with_a_stack,
        merge_a_copy_in_place,
        merge_by_recursion,
        merge_with_a_regular_expression,
        merge_with_numpy_numbers,
    ],
    "01.train_bpe": [
        train_plainly,
        train_with_sorted,
        train_with_max_of_negatives,
        train_with_lists_for_pairs,
        train_with_characters_for_ids,
    ],
    "01.encode": [
        encode_merge_by_merge,
        encode_lowest_rank_first,
        encode_place_by_place,
        encode_with_reduce,
        encode_with_replace,
    ],
    "01.decode": [
        decode_with_a_list,
        decode_by_recursion,
        decode_with_a_stack,
        decode_with_a_dictionary,
        decode_by_undoing_the_merges,
    ],
    "01.embed": [
        embed_by_index,
        embed_with_take,
        embed_in_loops,
        embed_as_a_product,
        embed_by_recursion,
        embed_with_torch_inside,
    ],
}
