"""`split_heads` and `merge_heads`: the order of reshape and transpose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.heads import merge_heads, split_heads
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import normal, sizes

Rng = np.random.Generator
Array = np.ndarray


# split_heads ----------------------------------------------------------------------------------


def _whole_tokens(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    return x.reshape(*lead, n_heads, T, D // n_heads)


def _interleaved(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    return np.moveaxis(x.reshape(*lead, T, D // n_heads, n_heads), -1, -3)


def _heads_behind_tokens(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    return x.reshape(*lead, T, n_heads, D // n_heads)


def _columns_first(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    return np.swapaxes(x, -1, -2).reshape(*lead, n_heads, D // n_heads, T)


def _heads_in_front(x: Array, n_heads: int) -> Array:
    return np.stack(np.split(x, n_heads, axis=-1))


def _by_head_width(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    return np.swapaxes(x.reshape(*lead, T, D // n_heads, n_heads), -2, -3)


def _leftovers_dropped(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    K = D // n_heads
    return np.swapaxes(x[..., : n_heads * K].reshape(*lead, T, n_heads, K), -2, -3)


def _leftovers_filled(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    K = -(-D // n_heads)
    wide = np.zeros((*lead, T, n_heads * K), dtype=x.dtype)
    wide[..., :D] = x
    return np.swapaxes(wide.reshape(*lead, T, n_heads, K), -2, -3)


def _asserted(x: Array, n_heads: int) -> Array:
    *lead, T, D = x.shape
    assert D % n_heads == 0
    return np.swapaxes(x.reshape(*lead, T, n_heads, D // n_heads), -2, -3)


def _head_sizes(rng: Rng, n: int) -> list[tuple[int, int, int]]:
    """Tokens, heads and their width, all different, and so are the products that could be mixed."""
    pairs = [
        (3, 2, 4),
        (5, 3, 2),
        (7, 2, 3),
        (4, 5, 3),
        (2, 3, 5),
        (11, 4, 2),
        (3, 4, 5),
        (5, 2, 7),
    ]
    return [pairs[i] for i in rng.permutation(len(pairs))[:n]]


def _matrices(rng: Rng) -> Sequence[Call]:
    return calls(
        (normal(rng, 2, 6), 3), *((normal(rng, T, H * K), H) for T, H, K in _head_sizes(rng, 4))
    )


def _batches(rng: Rng) -> Sequence[Call]:
    B, C = sizes(rng, 2)
    made = [((B,), 0), ((C, B), 1), ((1,), 2), ((2, 1, 3), 3)]
    shapes = _head_sizes(rng, 4)
    return [
        *calls(
            *(
                (normal(rng, *lead, shapes[i][0], shapes[i][1] * shapes[i][2]), shapes[i][1])
                for lead, i in made
            )
        ),
        Call((normal(rng, B, 3, 8).astype(np.float32), 2)),
        Call((np.asfortranarray(normal(rng, C, 5, 6)), 3)),
    ]


def _that_do_not_divide(rng: Rng) -> Sequence[Call]:
    B = int(rng.choice([2, 3, 5]))
    return calls(
        (normal(rng, 3, 7), 2),
        (normal(rng, 2, 8), 3),
        (normal(rng, B, 2, 10), 4),
        (normal(rng, 5, 11), 3),
        (normal(rng, 2, 4), 8),
    )


SPLIT_HEADS = Exercise(
    chapter=6,
    signature="split_heads(x, n_heads) -> (..., H, T, K)",
    task="""
Deal the D columns of `x` out to `n_heads` = H heads of K = D / H columns each: head h gets the
columns h·K up to (h + 1)·K, of every token.

- `x` is (..., T, D), float64 or float32, with any leading axes and in any memory order.
- Return an array (..., H, T, K): the axis of the heads stands before the tokens, behind the leading
  axes. A view of `x` is fine; `x` itself stays as it is.
- If H does not divide D, raise a `ValueError`.
""",
    reference=split_heads,
    properties=(
        Property("head h gets its own columns of every token", 2, _matrices),
        Property("leading axes stay in front", 1, _batches),
        Property(
            "heads that do not divide the columns raise ValueError",
            1,
            _that_do_not_divide,
            edge=True,
        ),
    ),
    misconceptions=(
        Misconception(
            "reshapes without a transpose",
            "A reshape keeps the numbers in their order and only cuts that row of numbers anew. "
            "Straight to (H, T, K), head 0 gets the first tokens whole. Cut each *token* first, "
            "then move the axis of the heads.",
            _whole_tokens,
            "your heads hold whole tokens instead of columns",
        ),
        Misconception(
            "interleaves the heads",
            "Your heads take the columns in turn, as cards are dealt. Here head h gets K columns "
            "that lie side by side.",
            _interleaved,
            "neighbouring columns are in different heads",
        ),
        Misconception(
            "leaves the heads behind the tokens",
            "Each token is cut rightly, but the heads still stand behind the tokens. Attention "
            "works on the last two axes, which must be tokens and width.",
            _heads_behind_tokens,
            "the axes of tokens and heads are exchanged",
        ),
        Misconception(
            "returns columns for rows",
            "In each head your tokens are columns. A token is a row here, in every head too.",
            _columns_first,
            "the tokens of a head stand in columns",
        ),
        Misconception(
            "puts the heads before the batch",
            "With leading axes your heads come first of all. They stand right before the tokens, "
            "and whatever leads stays in front.",
            _heads_in_front,
            "the axis of the heads stands before the leading axes",
        ),
        Misconception(
            "takes n_heads for the width",
            "Your heads are n_heads wide. `n_heads` is how many there are; the width is D / H.",
            _by_head_width,
            "number and width of the heads are exchanged",
        ),
        Misconception(
            "drops the columns that are left over",
            "Where H does not divide D, your last columns belong to nobody. That is a mistake in "
            "the sizes of the model: say so with a ValueError.",
            _leftovers_dropped,
            "columns are lost without a word",
        ),
        Misconception(
            "fills up the columns",
            "Where H does not divide D, you add zeros. The heads that get them are narrower than "
            "the others. Say with a ValueError that the sizes do not fit.",
            _leftovers_filled,
            "the last head is filled up with zeros",
        ),
        Misconception(
            "asserts",
            "Sizes that do not fit are a ValueError here. An `assert` raises AssertionError, and "
            "is left out where Python runs with -O.",
            _asserted,
            "the error is of the wrong kind",
        ),
    ),
    hints=(
        "Which of the D numbers of a single token go to head 0? To head 1? Write down the shape "
        "(T, H, K) that says so.",
        "Two steps, and their order matters. First cut the last axis in two, so that each token "
        "holds H heads of K numbers. Then exchange the axes of tokens and heads.",
        "`x.reshape(*lead, T, n_heads, K)` and then `np.swapaxes(..., -2, -3)`. Ask `D % n_heads` "
        "before that.",
    ),
    minutes=10,
    returns=("heads",),
)


# merge_heads ----------------------------------------------------------------------------------


def _no_transpose_back(x: Array) -> Array:
    *lead, H, T, K = x.shape
    return x.reshape(*lead, T, H * K)


def _merged_in_turn(x: Array) -> Array:
    *lead, H, T, K = x.shape
    return np.moveaxis(x, -3, -1).reshape(*lead, T, K * H)


def _mean_of_heads(x: Array) -> Array:
    return x.mean(axis=-3)


def _sum_of_heads(x: Array) -> Array:
    return x.sum(axis=-3)


def _kept_apart(x: Array) -> Array:
    return np.swapaxes(x, -2, -3)


def _one_below_the_other(x: Array) -> Array:
    *lead, H, T, K = x.shape
    return x.reshape(*lead, H * T, K)


def _first_axis_taken(x: Array) -> Array:
    return np.concatenate(list(x), axis=-1)


def _backwards(x: Array) -> Array:
    *lead, H, T, K = x.shape
    return np.swapaxes(x[..., ::-1, :, :], -2, -3).reshape(*lead, T, H * K)


def _heads(rng: Rng) -> Sequence[Call]:
    return calls(
        (normal(rng, 2, 3, 2),), *((normal(rng, H, T, K),) for T, H, K in _head_sizes(rng, 4))
    )


def _batches_of_heads(rng: Rng) -> Sequence[Call]:
    B, C = sizes(rng, 2)
    leads = [(B,), (C, B), (2,), (2, 1, 3)]
    made = zip(leads, _head_sizes(rng, 4), strict=True)
    return [
        *calls(*((normal(rng, *lead, H, T, K),) for lead, (T, H, K) in made)),
        Call((normal(rng, B, 2, 3, 4).astype(np.float32),)),
        Call((np.swapaxes(normal(rng, 3, 5, 2, 7), 1, 2),)),
    ]


MERGE_HEADS = Exercise(
    chapter=6,
    signature="merge_heads(x) -> (..., T, D)",
    task="""
Put the heads side by side again: the inverse of `split_heads`.

- `x` is (..., H, T, K), float64 or float32, with any leading axes and in any memory order; it stays
  as it is.
- Return an array (..., T, D) with D = H·K, in which the columns h·K up to (h + 1)·K are those of
  head h.
""",
    reference=merge_heads,
    properties=(
        Property("each token has its heads side by side", 2, _heads),
        Property("leading axes stay in front", 1, _batches_of_heads),
    ),
    misconceptions=(
        Misconception(
            "no transpose back",
            "You reshape before the heads are back behind the tokens. What stands in one row then "
            "comes from one head and from several tokens. Exchange the axes first.",
            _no_transpose_back,
            "tokens are mixed with one another",
        ),
        Misconception(
            "interleaves the heads",
            "You take a number of each head in turn. The K columns of a head lie side by side.",
            _merged_in_turn,
            "the columns of the heads alternate",
        ),
        Misconception(
            "averages the heads",
            "You make one head of all. Heads are put side by side, so that W_O can weigh each of "
            "their columns by itself: nothing is averaged or added up here.",
            _mean_of_heads,
            "the heads have become one",
            also=(_sum_of_heads,),
        ),
        Misconception(
            "keeps the heads apart",
            "The axes are in the right order, (..., T, H, K). The last two are still to become "
            "one, of H·K columns.",
            _kept_apart,
            "the heads still have an axis of their own",
        ),
        Misconception(
            "puts the heads below one another",
            "You have H·T rows. The number of tokens does not change: each gets H·K columns.",
            _one_below_the_other,
            "there are more tokens than before",
        ),
        Misconception(
            "takes the first axis for the heads",
            "That is right without a batch. With leading axes the heads are the third axis from "
            "the end.",
            _first_axis_taken,
            "it goes wrong as soon as there is a batch",
        ),
        Misconception(
            "reverses the heads",
            "Your heads come in the wrong order: head 0 has the first columns.",
            _backwards,
            "the heads are in the wrong order",
        ),
    ),
    hints=(
        "Which axis must stand next to which, so that a reshape can make one of them?",
        "Undo the steps of `split_heads` in the opposite order: first the axes, then the shape.",
        "`np.swapaxes(x, -2, -3)` has shape (..., T, H, K); reshape that to (..., T, H·K).",
    ),
    minutes=6,
    returns=("merged",),
)
