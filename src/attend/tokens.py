"""Tokens: byte-pair encoding, from the first pair to the text again (chapter 01).

A text is a row of bytes. Training looks for the pair of neighbours that occurs most often, gives it
a number of its own, and repeats. Encoding a new text applies the same merges in the same order;
decoding replaces each number by its bytes. Nothing is ever unknown, since every text is bytes.

Ids 0 … 255 are the bytes; merge number r makes id 256 + r.

Sources: Gage, "A New Algorithm for Data Compression" (1994); Sennrich et al., "Neural Machine
Translation of Rare Words with Subword Units" (2016).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

Pair = tuple[int, int]


def count_pairs(ids: Sequence[int]) -> dict[Pair, int]:
    """How often each two ids stand next to each other; [1, 1, 1] has the pair (1, 1) twice.

    Args:
        ids: any row of ids, of length n.

    Returns:
        the number of places, n - 1 in all, for each pair that occurs.
    """
    return dict(Counter(pairwise(ids)))


def merge_pair(ids: Sequence[int], pair: Pair, new_id: int) -> list[int]:
    """The row with each `pair` replaced by `new_id`, from left to right: [1, 1, 1] → [new, 1].

    Args:
        ids: a row of ids; it is not changed.
        pair: two ids.
        new_id: an id that is not yet in use.

    Returns:
        a new row.
    """
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def train_bpe_plainly(text: str, n_merges: int) -> list[Pair]:
    """The merges of `train_bpe` as one would explain them, counting everything anew each time."""
    ids, merges = list(text.encode("utf-8")), []
    while len(merges) < n_merges:
        counts = count_pairs(ids)
        if max(counts.values(), default=0) < 2:
            break
        pair = min(counts, key=lambda pair: (-counts[pair], pair))
        ids = merge_pair(ids, pair, 256 + len(merges))
        merges.append(pair)
    return merges


def train_bpe(text: str, n_merges: int) -> list[Pair]:
    """The pairs that are worth a number of their own, most frequent first.

    Args:
        text: what to learn from; its UTF-8 bytes are one row, which is not split at spaces.
        n_merges: how many merges to learn at most. Learning stops early when no pair occurs twice.

    Returns:
        the pairs in the order in which they were merged; pair r became id 256 + r. Of pairs that
        are equally frequent the smallest comes first.
    """
    return train_on_words({text.encode("utf-8"): 1}, n_merges)


def train_on_words(words: Mapping[bytes, int], n_merges: int) -> list[Pair]:
    """`train_bpe` on many rows at once; no pair reaches across the border of two rows.

    A merge changes the counts of the pairs beside it and of no others. So the counts are kept, with
    the places where each pair stands, and a merge visits its own places only.

    Args:
        words: how often each row of bytes occurs.
        n_merges: how many merges to learn at most.

    Returns:
        the pairs in the order in which they were merged.
    """
    ids: list[int] = []  # all rows, one after the other
    times: list[int] = []  # how often the row of this place occurs
    for word, count in words.items():
        ids += [*word, -1]  # -1 ends a row, and later marks places that a merge has swallowed
        times += [count] * (len(word) + 1)
    before = list(range(-1, len(ids) - 1))  # neighbours, which move closer as places are swallowed
    after = list(range(1, len(ids) + 1))

    counts: defaultdict[Pair, int] = defaultdict(int)
    places: defaultdict[Pair, list[int]] = defaultdict(list)
    for i in range(len(ids) - 1):
        if ids[i] >= 0 and ids[i + 1] >= 0:
            counts[ids[i], ids[i + 1]] += times[i]
            places[ids[i], ids[i + 1]].append(i)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapify(heap)

    merges: list[Pair] = []
    while heap and len(merges) < n_merges:
        count, pair = heappop(heap)
        if -count != counts[pair]:  # it has lost places since it was put on the heap
            heappush(heap, (-counts[pair], pair))
            continue
        if -count < 2:
            break
        new, (a, b) = 256 + len(merges), pair
        merges.append(pair)
        fresh = set()
        for i in places.pop(pair):
            j = after[i]
            if ids[i] != a or ids[j] != b:  # merged since: by another pair, or by an overlap
                continue
            left, right, n = before[i], after[j], times[i]
            counts[pair] -= n
            if left >= 0 and ids[left] >= 0:
                counts[ids[left], a] -= n
                counts[ids[left], new] += n
                places[ids[left], new].append(left)
                fresh.add((ids[left], new))
            if ids[right] >= 0:
                counts[b, ids[right]] -= n
                counts[new, ids[right]] += n
                places[new, ids[right]].append(i)
                fresh.add((new, ids[right]))
            ids[i], ids[j] = new, -1
            after[i], before[right] = right, i
        for pair in fresh:
            heappush(heap, (-counts[pair], pair))
    return merges


def apply_merges(ids: Iterable[int], ranks: Mapping[Pair, tuple[int, int]]) -> list[int]:
    """The row after all merges, the earliest first; in time n log n for a row of n.

    Args:
        ids: a row of ids.
        ranks: for each pair that merges, its rank (lower goes first) and the id that it becomes.

    Returns:
        a new row, in which no two neighbours are a pair of `ranks`.
    """
    ids = list(ids)
    before, after = list(range(-1, len(ids) - 1)), list(range(1, len(ids) + 1))

    def rank_at(i: int) -> tuple[int, int] | None:
        return ranks.get((ids[i], ids[after[i]])) if i >= 0 and after[i] < len(ids) else None

    heap = [(rank, i) for i in range(len(ids)) if (rank := rank_at(i))]
    heapify(heap)
    while heap:
        rank, i = heappop(heap)
        if ids[i] < 0 or rank_at(i) != rank:  # swallowed, or another pair by now
            continue
        j = after[i]
        ids[i], ids[j] = rank[1], -1
        after[i] = after[j]
        if after[j] < len(ids):
            before[after[j]] = i
        for place in (before[i], i):
            if rank := rank_at(place):
                heappush(heap, (rank, place))
    return [i for i in ids if i >= 0]


def encode(text: str, merges: Sequence[Pair]) -> list[int]:
    """The ids of a text: its bytes, with the merges applied in the order of their training.

    Args:
        text: any text that UTF-8 can hold.
        merges: as returned by `train_bpe`.

    Returns:
        the ids. Taking the longest token that fits at each place would give others.
    """
    ranks = {pair: (rank, 256 + rank) for rank, pair in enumerate(merges)}
    return apply_merges(text.encode("utf-8"), ranks)


def token_bytes(merges: Sequence[Pair]) -> list[bytes]:
    """The bytes that each id stands for: 256 single ones, then one row for each merge."""
    tokens = [bytes([i]) for i in range(256)]
    for a, b in merges:
        tokens.append(tokens[a] + tokens[b])
    return tokens


def decode(ids: Iterable[int], merges: Sequence[Pair]) -> str:
    """The text that the ids stand for.

    Args:
        ids: any ids; they need not come from `encode`.
        merges: as returned by `train_bpe`.

    Returns:
        the text. Bytes that are not valid UTF-8 become U+FFFD.

    Raises:
        IndexError: an id is negative or beyond the last merge.
    """
    tokens = token_bytes(merges)
    return join_tokens(ids, tokens)


def join_tokens(ids: Iterable[int], tokens: Sequence[bytes]) -> str:
    """The text of ids whose bytes are given. Raises IndexError for an id without bytes."""
    parts = []
    for i in ids:
        if not 0 <= i < len(tokens):
            raise IndexError(f"id {i} is outside 0 … {len(tokens) - 1}")
        parts.append(tokens[i])
    return b"".join(parts).decode("utf-8", errors="replace")
