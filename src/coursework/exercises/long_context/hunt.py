"""The bug hunt of chapter 10: attention in blocks that is nearly right."""

from __future__ import annotations

from typing import Any

import numpy as np

from attend.dot_product import scaled_dot_product_attention
from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.conditions import are_ordinary
from coursework.exercises.long_context.flash import FLASH_ATTENTION


def _of_attention(condition: Condition) -> Condition:
    """A condition on queries, keys and values, whatever the blocks are."""
    return Condition(condition.sentence, lambda q, k, v, *rest: condition.holds(q, k, v))


def _are_blocks(q: Any, k: Any, v: Any, block_size: Any, causal: Any) -> bool:
    return type(block_size) is int and 2 <= block_size < len(k)


def _is_causal_or_not(q: Any, k: Any, v: Any, block_size: Any, causal: Any) -> bool:
    return type(causal) is bool and len(q) <= len(k)


_Q = np.array([[1.0, 0.5], [0.5, 1.0], [0.8, 0.2]])
#: The first block has the larger scores for each of the queries, or the last one has.
_FALLING = np.array([[2.0, 1.5], [1.0, 0.5], [-1.0, 0.5], [0.5, -1.5], [-0.5, -1.0]])
_RISING = _FALLING[::-1].copy()
_V = np.array([[1.0, 2.0], [3.0, 1.0], [5.0, 7.0], [2.0, 4.0], [0.0, 3.0]])
#: Two blocks with the same scores: the keys differ in a direction that no query looks at.
_Q3 = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.8, 0.2, 0.0]])
_TWICE = np.array([[2.0, 1.5, 0.0], [-1.0, 0.5, 0.0], [-1.0, 0.5, 1.0], [2.0, 1.5, 1.0]])
_V4 = _V[:4]
_Q5 = np.vstack([_Q, [[0.3, 0.9], [1.2, 0.1]]])

_OLD_PART = "What earlier blocks have added up is not rescaled when a larger maximum comes."
_SUM = "When a larger maximum comes, the running output is rescaled and the running sum is not."
_REST = "Keys beyond the last full block are left out."
_START = "The causal mask takes the queries for the first tokens of the text, not for the last."
_BLOCK = "The causal mask takes a key's place in its block for its place in the text."
_MEAN = "The blocks are averaged, whatever their scores are."
_SCALE = "The scores are divided by d_k, not by its root."

BUG_HUNT = BugHunt(
    target=FLASH_ATTENTION,
    bugs=(
        Bug(
            "does not rescale the old part",
            mistake=_OLD_PART,
            others=(_SUM, _REST, _MEAN, _START),
            hides=(_Q, _FALLING, _V, 2, False),
            shows=(_Q, _RISING, _V, 2, False),
        ),
        Bug(
            "rescales the output only",
            mistake=_SUM,
            others=(_OLD_PART, _BLOCK, _MEAN, _SCALE),
            hides=(_Q, _FALLING, _V, 2, False),
            shows=(_Q, _RISING, _V, 2, False),
        ),
        Bug(
            "drops the last, shorter block",
            mistake=_REST,
            others=(_OLD_PART, _SUM, _START, _SCALE),
            hides=(_Q, _RISING[:4], _V4, 2, False),
            shows=(_Q, _RISING, _V, 2, False),
        ),
        Bug(
            "lines the mask up at the start",
            mistake=_START,
            others=(_BLOCK, _REST, _SUM, _MEAN),
            hides=(_Q5, _RISING, _V, 2, True),
            shows=(_Q, _RISING, _V, 2, True),
        ),
        Bug(
            "counts keys within the block",
            mistake=_BLOCK,
            others=(_START, _REST, _OLD_PART, _SCALE),
            hides=(_Q, _RISING, _V, 2, False),
            shows=(_Q5, _RISING, _V, 2, True),
        ),
        Bug(
            "averages the blocks",
            mistake=_MEAN,
            others=(_OLD_PART, _SUM, _BLOCK, _SCALE),
            hides=(_Q3, _TWICE, _V4, 2, False),
            shows=(_Q, _RISING, _V, 2, False),
        ),
    ),
    conditions=(
        *map(_of_attention, are_ordinary(scaled_dot_product_attention, queries=2, keys=4)),
        Condition(
            "`causal` is True or False (the weights above are those without it), and there are at "
            "least as many keys as queries",
            _is_causal_or_not,
        ),
        Condition("there are at least two blocks, and in a full one two keys", _are_blocks),
    ),
    hints=(
        "Follow the running maximum, sum and output through two blocks by hand. Where does the "
        "suspect do something that your own function does not?",
        "Ask when the difference has no effect: for which sizes, or for which order of the scores "
        "from block to block, do both functions compute the same numbers? Choose such inputs for "
        "`hides`.",
        "Start from `rng = np.random.default_rng(0)`, small random matrices and blocks of 2, and "
        "call both functions. Then change *one* thing (the number of keys or queries, the order of "
        "the keys, `causal`) until they agree. Almost any other input will do for `shows`.",
    ),
    minutes=20,
)
