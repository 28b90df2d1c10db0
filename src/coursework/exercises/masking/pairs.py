"""What a language model is trained on: each token, and the one that comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attend.masks import next_token_pairs
from coursework.exercise import Call, Exercise, Misconception, Property, calls

Rng = np.random.Generator
Array = np.ndarray


def _windows(ids: Array, width: int) -> Array:
    return np.lib.stride_tricks.sliding_window_view(ids, width)


def _pairs_without_shift(ids: Array, context: int) -> Any:
    inputs = _windows(ids, context + 1)[:, :-1]
    return inputs, inputs


def _pairs_shifted_by_two(ids: Array, context: int) -> Any:
    windows = _windows(ids, context + 2)
    return windows[:, :-2], windows[:, 2:]


def _last_window_lost(ids: Array, context: int) -> Any:
    windows = _windows(ids, context + 1)[:-1]
    return windows[:, :-1], windows[:, 1:]


def _target_in_input(ids: Array, context: int) -> Any:
    windows = _windows(ids, context + 1)
    return windows, windows[:, 1:]


def _exchanged(ids: Array, context: int) -> Any:
    windows = _windows(ids, context + 1)
    return windows[:, 1:], windows[:, :-1]


def _side_by_side(ids: Array, context: int) -> Any:
    windows = _windows(ids, context + 1)[::context]
    return windows[:, :-1], windows[:, 1:]


def _one_target_each(ids: Array, context: int) -> Any:
    windows = _windows(ids, context + 1)
    return windows[:, :-1], windows[:, -1]


def _wraps_around(ids: Array, context: int) -> Any:
    if len(ids) <= context:
        raise ValueError("too few tokens")
    return _windows(ids, context), _windows(np.roll(ids, -1), context)


def _short_text_gives_nothing(ids: Array, context: int) -> Any:
    n = max(len(ids) - context, 0)
    rows = [ids[i : i + context + 1] for i in range(n)]
    windows = np.array(rows, dtype=ids.dtype).reshape(n, context + 1)
    return windows[:, :-1], windows[:, 1:]


def _shortest_refused(ids: Array, context: int) -> Any:
    if len(ids) <= context + 1:
        raise ValueError("too few tokens")
    windows = _windows(ids, context + 1)
    return windows[:, :-1], windows[:, 1:]


def _floats(ids: Array, context: int) -> Any:
    windows = _windows(ids, context + 1).astype(float)
    return windows[:, :-1], windows[:, 1:]


def _text(rng: Rng, n: int) -> Array:
    """`n` ids, no two equal, so that each shows where it came from."""
    return rng.permutation(50_000)[:n]


def _texts(rng: Rng) -> Sequence[Call]:
    context = int(rng.integers(3, 6))
    return calls(
        (np.array([10, 11, 12, 13, 14]), 2),
        (_text(rng, 7), 3),
        (_text(rng, 11), 2),
        (_text(rng, 17), context),
        (_text(rng, 23), 5),
        (rng.integers(0, 4, 29), 7),
    )


def _short_texts(rng: Rng) -> Sequence[Call]:
    return calls(
        *((_text(rng, n), n - 1) for n in (4, 2, 6, int(rng.integers(7, 12)))),
        *((_text(rng, n), n) for n in (3, 1, int(rng.integers(4, 9)))),
        (_text(rng, 3), 5),
        (_text(rng, 0), 1),
    )


NEXT_TOKEN_PAIRS = Exercise(
    chapter=5,
    signature="next_token_pairs(ids, context) -> (inputs, targets)",
    task="""
Cut a text into what a language model is trained on: windows of `context` tokens, and for each of
their positions the token that comes next.

- `ids` is an array of n integers, `context` is at least 1. Both results are arrays of integers of
  shape (n − context, context).
- Windows start one token apart: row i of `inputs` begins at token i of the text. No window is left
  out, and `targets[i, t]` is the token after `inputs[i, t]`.
- A text of `context` tokens or fewer has no window with a next token: that is a `ValueError`.
""",
    reference=next_token_pairs,
    properties=(
        Property("each target is the token after its input, in every window", 2, _texts),
        Property(
            "one window from context + 1 tokens, ValueError from fewer",
            2,
            _short_texts,
            edge=True,
        ),
    ),
    misconceptions=(
        Misconception(
            "no shift",
            "Your targets are your inputs. A model that may look at its own position, as a causal "
            "one may, learns to copy.",
            _pairs_without_shift,
            "targets equal inputs",
        ),
        Misconception(
            "shift by two",
            "Your targets skip a token: they are the one after the next.",
            _pairs_shifted_by_two,
            "targets are one token too far",
        ),
        Misconception(
            "last window lost",
            "The last window is missing. n tokens have n − context windows that are followed by a "
            "token.",
            _last_window_lost,
            "one window is missing",
        ),
        Misconception(
            "target within the input",
            "Your inputs are one token too wide: the last one is the answer to the one before it, "
            "and has no target of its own.",
            _target_in_input,
            "the last target is among the inputs",
        ),
        Misconception(
            "inputs and targets exchanged",
            "Your targets come before their inputs: this model would learn to guess the past.",
            _exchanged,
            "inputs and targets are exchanged",
        ),
        Misconception(
            "windows side by side",
            "Your windows start `context` tokens apart. Here they overlap: each starts one token "
            "after the one before it.",
            _side_by_side,
            "most windows are missing",
        ),
        Misconception(
            "one target a window",
            "You keep a single target for each window. A causal model is trained at every position "
            "at once, so there are as many targets as inputs.",
            _one_target_each,
            "there is one target for each window instead of each position",
        ),
        Misconception(
            "text wraps around",
            "Your last target is the first token of the text. What follows the last token is not "
            "known: there is one window less.",
            _wraps_around,
            "the end of the text is followed by its beginning",
        ),
        Misconception(
            "no error",
            "A text that is too short gives you empty arrays, and a training loop over them would "
            "do nothing without a word. Raise a ValueError.",
            _short_text_gives_nothing,
            "it accepts a text that is too short",
        ),
        Misconception(
            "shortest text refused",
            "context + 1 tokens are enough for one window: `context` inputs, and as many targets "
            "one token further on.",
            _shortest_refused,
            "it refuses a text that has just one window",
        ),
        Misconception(
            "floats",
            "The numbers are right, but they are floats. Ids are used as indices, and those are "
            "integers.",
            _floats,
            "ids are no longer integers",
        ),
    ),
    hints=(
        "Take five tokens and a context of two, and write all windows and targets on paper. How "
        "many rows are there? What has a row of targets to do with a row of inputs?",
        "Raise first if there are too few tokens. A window together with its targets is a stretch "
        "of context + 1 tokens; there are n − context such stretches. The inputs are all of it but "
        "the last token, the targets all but the first.",
        "Put the stretches `ids[i : i + context + 1]` for i in `range(len(ids) - context)` under "
        "each other with `np.stack`, and take two slices of the columns.",
    ),
    minutes=10,
    returns=("inputs", "targets"),
)
