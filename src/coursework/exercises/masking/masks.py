"""Who may look at whom: the causal mask, the padding mask, and both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.masks import causal_mask, padded_causal_mask, padding_mask
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import sizes, unequal

Rng = np.random.Generator
Array = np.ndarray


# causal_mask ----------------------------------------------------------------------------------


def _diagonal_excluded(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.tril(np.ones((T, S), dtype=bool), k=S - T - 1)


def _sees_the_future(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.triu(np.ones((T, S), dtype=bool), k=S - T)


def _inverted(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.triu(np.ones((T, S), dtype=bool), k=S - T + 1)


def _starts_together(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.tril(np.ones((T, S), dtype=bool))


def _never_empty(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.tril(np.ones((T, S), dtype=bool), k=max(S - T, 0))


def _sees_one_ahead(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.tril(np.ones((T, S), dtype=bool), k=S - T + 1)


def _sees_itself_only(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.eye(T, S, k=S - T, dtype=bool)


def _square_always(T: int, S: int | None = None) -> Array:
    return np.tril(np.ones((T, T), dtype=bool))


def _ones_and_zeros(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.tril(np.ones((T, S), dtype=int), k=S - T)


def _additive(T: int, S: int | None = None) -> Array:
    S = T if S is None else S
    return np.where(np.tril(np.ones((T, S), dtype=bool), k=S - T), 0.0, -np.inf)


def _square_sizes(rng: Rng) -> Sequence[Call]:
    return [Call((3,)), *(Call((int(T),)) for T in rng.permutation([1, 2, 5, 7, 11])[:4])]


def _more_keys(rng: Rng) -> Sequence[Call]:
    return [Call((2,), {"S": 5}), *(Call((T,), {"S": S}) for T, S in unequal(rng, 4))]


def _fewer_keys(rng: Rng) -> Sequence[Call]:
    return [Call((4,), {"S": 2}), *(Call((S,), {"S": T}) for T, S in unequal(rng, 4))]


CAUSAL_MASK = Exercise(
    chapter=5,
    signature="causal_mask(T, S=None) -> bool (T, S)",
    task="""
Return the mask that keeps `T` queries from looking ahead: an array of booleans of shape (T, S), in
which entry [i, j] is True if query i **may** attend to key j.

- The `S` keys are the tokens of a text, and the queries are the **last** T of them. So the last
  query sees all S keys, the one before it sees all but the last key, and so on.
- A token sees itself.
- Without S there are as many keys as queries.
- Where S < T, the first T − S queries come before every key: their rows hold only False.

Graded with T ≥ 1 and S ≥ 1.
""",
    reference=causal_mask,
    properties=(
        Property("as many keys as queries: each token sees itself and the past", 2, _square_sizes),
        Property("more keys than queries: the queries are the last T tokens", 2, _more_keys),
        Property("fewer keys than queries: the first rows are empty", 1, _fewer_keys, edge=True),
    ),
    misconceptions=(
        Misconception(
            "diagonal excluded",
            "Each of your rows stops one key too early. A token may attend to itself: only what "
            "comes after it is the future. As it is, the first token may attend to nothing.",
            _diagonal_excluded,
            "no token sees itself",
        ),
        Misconception(
            "upper triangle",
            "This is the other triangle: your tokens see themselves and the future, and never the "
            "past. Row i belongs to query i, and keys further right come later in the text.",
            _sees_the_future,
            "your tokens look ahead",
        ),
        Misconception(
            "inverted",
            "This mask is True where a key is forbidden. In this course, as in PyTorch's fused "
            "attention, True means *may attend*; in nn.MultiheadAttention it means the opposite.",
            _inverted,
            "True and False are exchanged",
        ),
        Misconception(
            "lined up at the start",
            "Your queries are the first T tokens; they should be the last T. When a model "
            "generates with a cache, its one query must see all S keys.",
            _starts_together,
            "queries and keys are lined up at the wrong end",
        ),
        Misconception(
            "no empty rows",
            "With fewer keys than queries, your first queries see keys that come after them. The "
            "queries are the last T tokens here too, even if the first of them precede all keys.",
            _never_empty,
            "rows that should be empty are not",
        ),
        Misconception(
            "sees one token ahead",
            "Each of your rows goes one key too far. The next token is exactly what a language "
            "model has to guess, so this leak of one is as bad as a leak of all.",
            _sees_one_ahead,
            "each token sees the next one",
        ),
        Misconception(
            "sees itself only",
            "Only the diagonal is allowed here. Causal means no *later* keys; all earlier ones are "
            "allowed too.",
            _sees_itself_only,
            "the past is hidden",
        ),
        Misconception(
            "S ignored",
            "Your mask is T × T whatever S is. There is one column for each key, and S says how "
            "many keys there are.",
            _square_always,
            "S is not used",
        ),
        Misconception(
            "integers",
            "The ones and zeros are in the right places, but a mask is boolean here. Used as an "
            "index, or with ~, integers do something else than booleans do, without a word.",
            _ones_and_zeros,
            "your mask holds integers",
        ),
        Misconception(
            "additive form",
            "This is the form that is added to scores, 0 where allowed and −∞ where not. It can be "
            "made from the boolean one, which is asked for here.",
            _additive,
            "your mask holds floats",
        ),
    ),
    hints=(
        "Write down the 3 × 3 mask by hand. Which entries of row 1 are True? Now let two more "
        "tokens stand before these three: what is the 3 × 5 mask?",
        "Give each query and each key its position in the text. Keys have positions 0 … S − 1. "
        "The T queries are the last tokens: which position does query 0 have? A key is allowed if "
        "it does not come after the query.",
        "Make two ranges: the positions of the keys, as a row, and those of the queries, as a "
        "column (an offset plus 0 … T − 1). Comparing a column with a row gives a whole table at "
        "once. The offset is negative where S < T, and that is right.",
    ),
    minutes=10,
    returns=("mask",),
)


# padding_mask ---------------------------------------------------------------------------------


def _checked(lengths: Array, S: int) -> Array:
    if np.any(lengths < 0) or np.any(lengths > S):
        raise ValueError("a length is not within 0 … S")
    return lengths


def _one_too_many(lengths: Array, S: int) -> Array:
    return np.arange(S) <= _checked(lengths, S)[:, None]


def _one_too_few(lengths: Array, S: int) -> Array:
    return np.arange(S) < _checked(lengths, S)[:, None] - 1


def _true_is_padding(lengths: Array, S: int) -> Array:
    return np.arange(S) >= _checked(lengths, S)[:, None]


def _padded_in_front(lengths: Array, S: int) -> Array:
    return np.arange(S) >= S - _checked(lengths, S)[:, None]


def _padding_integers(lengths: Array, S: int) -> Array:
    return (np.arange(S) < _checked(lengths, S)[:, None]).astype(int)


def _all_lengths_taken(lengths: Array, S: int) -> Array:
    return np.arange(S) < lengths[:, None]


def _negative_taken(lengths: Array, S: int) -> Array:
    if np.any(lengths > S):
        raise ValueError("a length is above S")
    return np.arange(S) < lengths[:, None]


def _full_refused(lengths: Array, S: int) -> Array:
    if np.any(lengths < 0) or np.any(lengths >= S):
        raise ValueError("a length is not within 0 … S - 1")
    return np.arange(S) < lengths[:, None]


def _empty_refused(lengths: Array, S: int) -> Array:
    if np.any(lengths < 1) or np.any(lengths > S):
        raise ValueError("a length is not within 1 … S")
    return np.arange(S) < lengths[:, None]


def _one_column_each(lengths: Array, S: int) -> Array:
    return np.arange(S)[:, None] < _checked(lengths, S)


def _some_lengths(rng: Rng, B: int, S: int) -> Array:
    """Lengths 1 … S - 1, among which are two that differ."""
    lengths = rng.integers(1, S, B)
    lengths[:2] = rng.permutation(np.arange(1, S))[:2]
    return lengths


def _usual_lengths(rng: Rng) -> Sequence[Call]:
    shapes = [(2, 5), (3, 7), sizes(rng, 2), (5, 11), (2, 3)]
    return calls(
        (np.array([2, 3]), 4), *((_some_lengths(rng, B, max(S, 3)), max(S, 3)) for B, S in shapes)
    )


def _limits_of_lengths(rng: Rng) -> Sequence[Call]:
    S = int(rng.choice([5, 7]))
    inside = int(rng.integers(1, S))
    return calls(
        (np.array([0, inside]), S),
        (np.array([0, 1, 0]), S + 1),
        (np.array([inside, 0]), S + 2),
        (np.array([inside, S]), S),
        (np.array([S, S, 1]), S),
        (np.array([S + 1, 2]), S + 1),
        (np.array([inside, S + 1]), S),
        (np.array([S + 3, 1, 2]), S),
        (np.array([1, S + 1, 2]), S),
        (np.array([2, 1, S + 2, inside]), S),
        (np.array([2 * S]), S),
        (np.array([-1, inside]), S),
        (np.array([inside, 1, -1]), S),
        (np.array([inside, 2, -1, 1]), S),
        (np.array([-S]), S),
    )


PADDING_MASK = Exercise(
    chapter=5,
    signature="padding_mask(lengths, S) -> bool (B, S)",
    task="""
B sentences have been filled up with padding, each at its end, so that all have `S` tokens. Return
an array of booleans (B, S) that is True at real tokens and False at padding.

- `lengths` is an array of B integers: sentence b has `lengths[b]` real tokens, and they come first.
- A length may be 0 (all padding) or S (no padding). Anything below 0 or above S is a `ValueError`.
""",
    reference=padding_mask,
    properties=(
        Property("real tokens are True, padding is False", 2, _usual_lengths),
        Property(
            "lengths 0 and S are valid, others outside raise ValueError",
            2,
            _limits_of_lengths,
            edge=True,
        ),
    ),
    misconceptions=(
        Misconception(
            "one too many",
            "Each sentence keeps one padding token. A sentence of length 3 has tokens 0, 1 and 2.",
            _one_too_many,
            "one padding token counts as real",
        ),
        Misconception(
            "one too few",
            "Each sentence loses its last token. A sentence of length 3 has tokens 0, 1 and 2.",
            _one_too_few,
            "the last real token is missing",
        ),
        Misconception(
            "inverted",
            "True marks your padding. Here True means *may attend*; it is nn.MultiheadAttention "
            "whose padding mask is True at padding.",
            _true_is_padding,
            "True and False are exchanged",
        ),
        Misconception(
            "padding in front",
            "Your real tokens come last. Here the padding stands at the end, so real tokens come "
            "first.",
            _padded_in_front,
            "the padding is at the wrong end",
        ),
        Misconception(
            "integers",
            "The ones and zeros are in the right places, but a mask is boolean here.",
            _padding_integers,
            "your mask holds integers",
        ),
        Misconception(
            "sentences as columns",
            "Your mask is (S, B). Each sentence is a row, each position a column.",
            _one_column_each,
            "rows and columns are exchanged",
        ),
        Misconception(
            "no error",
            "A length above S, or below 0, is a mistake somewhere else in the program. Comparing "
            "hides it: all True, or all False. Say so with a ValueError.",
            _all_lengths_taken,
            "it accepts lengths that cannot be",
        ),
        Misconception(
            "negative lengths accepted",
            "You refuse lengths above S, but not those below 0.",
            _negative_taken,
            "it accepts lengths below 0",
        ),
        Misconception(
            "S refused",
            "A sentence without padding has length S. It is valid: usually the longest of the "
            "batch is one.",
            _full_refused,
            "it refuses a sentence without padding",
        ),
        Misconception(
            "0 refused",
            "A sentence may be empty: its row is all False.",
            _empty_refused,
            "it refuses an empty sentence",
        ),
    ),
    hints=(
        "Number the positions of a sentence 0 … S − 1. Which of them hold real tokens if its "
        "length is 3?",
        "Look at the lengths first, and raise if one is impossible. Then compare each position "
        "with each length: a row of positions against a column of lengths gives the whole table.",
        "`np.any(...)` of two conditions decides whether to raise. The table is one comparison, of "
        "`np.arange(S)` with the lengths seen as a column, `lengths[:, None]`. Is it < or ≤? Try a "
        "length of 0.",
    ),
    minutes=10,
    returns=("mask",),
)


# padded_causal_mask ---------------------------------------------------------------------------


def _real(lengths: Array, T: int) -> Array:
    return np.arange(T) < lengths[:, None]  # (B, T)


def _or_instead_of_and(lengths: Array, T: int) -> Array:
    return np.tri(T, dtype=bool) | _real(lengths, T)[:, None, None, :]


def _padding_queries_emptied(lengths: Array, T: int) -> Array:
    real = _real(lengths, T)
    return np.tri(T, dtype=bool) & real[:, None, None, :] & real[:, None, :, None]


def _no_axis_for_heads(lengths: Array, T: int) -> Array:
    return np.tri(T, dtype=bool) & _real(lengths, T)[:, None, :]


def _causal_only(lengths: Array, T: int) -> Array:
    return np.tile(np.tri(T, dtype=bool), (len(lengths), 1, 1, 1))


def _padding_only(lengths: Array, T: int) -> Array:
    return np.broadcast_to(_real(lengths, T)[:, None, None, :], (len(lengths), 1, T, T)).copy()


def _both_inverted(lengths: Array, T: int) -> Array:
    return ~(np.tri(T, dtype=bool) & _real(lengths, T)[:, None, None, :])


def _one_padding_token(lengths: Array, T: int) -> Array:
    return np.tri(T, dtype=bool) & (np.arange(T) <= lengths[:, None])[:, None, None, :]


def _without_itself(lengths: Array, T: int) -> Array:
    return np.tri(T, k=-1, dtype=bool) & _real(lengths, T)[:, None, None, :]


def _product_of_numbers(lengths: Array, T: int) -> Array:
    return np.tri(T, dtype=int) * _real(lengths, T)[:, None, None, :]


def _padded_batches(rng: Rng) -> Sequence[Call]:
    B, T = sizes(rng, 2)
    shapes = [(2, 5), (3, 7), (5, 3), (B, max(T, 3))]
    return calls((np.array([2, 3]), 4), *((_some_lengths(rng, B, T), T) for B, T in shapes))


def _full_and_empty(rng: Rng) -> Sequence[Call]:
    T = int(rng.choice([5, 7]))
    return calls(
        (np.array([0, 3]), 3),
        (np.array([T, 0, 2]), T),
        (np.array([0]), T),
        (np.array([T, T]), T),
        (np.array([1]), 1),
    )


PADDED_CAUSAL_MASK = Exercise(
    chapter=5,
    signature="padded_causal_mask(lengths, T) -> bool (B, 1, T, T)",
    task="""
Return the mask of a batch of B sentences that are both padded and read causally: booleans of shape
(B, 1, T, T), in which entry [b, 0, i, j] is True if query i of sentence b may attend to key j, that
is, if j ≤ i **and** j is one of the `lengths[b]` real tokens. Each sentence has `T` tokens with its
padding.

- The axis of 1 stands for the heads, which share the mask; it broadcasts to (B, H, T, T).
- Only keys are judged. Rows of queries that are padding themselves follow the same rule and are not
  emptied: nobody reads their results.
- `lengths` is an array of B integers, 0 … T; other lengths do not occur here.
""",
    reference=padded_causal_mask,
    properties=(
        Property("a key is allowed if it is past and real", 2, _padded_batches),
        Property("sentences that are empty or full", 1, _full_and_empty, edge=True),
    ),
    misconceptions=(
        Misconception(
            "or instead of and",
            "You allow a key if it is past *or* real: padding in the past and real tokens in the "
            "future both get through. Both conditions must hold.",
            _or_instead_of_and,
            "keys that one of the two masks forbids are allowed",
        ),
        Misconception(
            "padding queries emptied",
            "You empty the rows of queries that are padding. Only keys are judged, and they lie "
            "along the last axis. What a padding query gets is never read.",
            _padding_queries_emptied,
            "rows of padding queries are empty",
        ),
        Misconception(
            "no axis for the heads",
            "The numbers are right, but (B, T, T) does not broadcast to (B, H, T, T): the batch "
            "would meet the heads. An axis of 1 is to stand between them.",
            _no_axis_for_heads,
            "the axis of the heads is missing",
        ),
        Misconception(
            "causal only",
            "Padding is not masked: every sentence has the same mask, whatever its length.",
            _causal_only,
            "padding may be attended to",
        ),
        Misconception(
            "padding only",
            "The future is not masked: the first query already sees every real token.",
            _padding_only,
            "the future may be attended to",
        ),
        Misconception(
            "inverted",
            "This mask is True where a key is forbidden. Here True means *may attend*.",
            _both_inverted,
            "True and False are exchanged",
        ),
        Misconception(
            "one padding token",
            "Each sentence keeps one padding token. A sentence of length 3 has tokens 0, 1 and 2.",
            _one_padding_token,
            "one padding token may be attended to",
        ),
        Misconception(
            "diagonal excluded",
            "No token sees itself: j ≤ i allows it.",
            _without_itself,
            "no token sees itself",
        ),
        Misconception(
            "integers",
            "The ones and zeros are in the right places, but a product of numbers is a number; a "
            "mask is boolean here.",
            _product_of_numbers,
            "your mask holds integers",
        ),
    ),
    hints=(
        "You have both masks already. What shape has each, and which axes of (B, 1, T, T) does it "
        "speak about?",
        "The causal mask speaks of queries and keys, (T, T): it fits as it is. The padding mask "
        "speaks of sentences and keys, (B, T): give it an axis of 1 for the heads and one for the "
        "queries. Then let both hold.",
        "Index the padding mask with `[:, None, None, :]` and combine it with the causal one by "
        "the operator for *and* of arrays.",
    ),
    minutes=10,
    returns=("mask",),
)
