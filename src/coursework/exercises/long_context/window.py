"""The mask of a sliding window: a token sees the last few, itself among them."""

from __future__ import annotations

import numpy as np

from attend.long_context import sliding_window_mask
from coursework.exercise import Call, Exercise, Misconception, Property, calls


def _windows(rng: np.random.Generator) -> tuple[Call, ...]:
    last = int(rng.integers(8, 13))
    return calls((5, 3), (7, 2), (6, 4), (11, 5), (last, 6), (2 * last, 3))


def _narrow_and_wide(rng: np.random.Generator) -> tuple[Call, ...]:
    T = int(rng.integers(4, 9))
    return calls((3, 1), (T, 1), (4, 4), (T, T + 7), (5, 6), (1, 1), (1, 3), (0, 2))


def _no_window(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls((5, 0), (3, -1), (4, -4), (int(rng.integers(5, 9)), 0))


def _one_too_many(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j <= i) & (j >= i - window)


def _one_too_few(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j <= i) & (j > i - window + 1)


def _itself_left_out(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j < i) & (j >= i - window)


def _both_sides(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return np.abs(i - j) < window


def _centred(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return np.abs(i - j) <= window // 2


def _future(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j >= i) & (j < i + window)


def _causal_only(T, window):
    if window < 1:
        raise ValueError
    return np.tril(np.ones((T, T), dtype=bool))


def _far_past(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return j <= i - window


def _forbidden(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j > i) | (j <= i - window)


def _chunks(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j <= i) & (j // window == i // window)


def _as_floats(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return ((j <= i) & (j > i - window)).astype(float)


def _as_integers(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return ((j <= i) & (j > i - window)).astype(int)


def _additive(T, window):
    if window < 1:
        raise ValueError
    i, j = np.arange(T)[:, None], np.arange(T)
    return np.where((j <= i) & (j > i - window), 0.0, -np.inf)


def _accepts_anything(T, window):
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j <= i) & (j > i - window)


def _refuses_wide_windows(T, window):
    if not 1 <= window <= T:
        raise ValueError("the window must lie between 1 and T")
    i, j = np.arange(T)[:, None], np.arange(T)
    return (j <= i) & (j > i - window)


SLIDING_WINDOW_MASK = Exercise(
    chapter=10,
    signature="sliding_window_mask(T, window) -> bool (T, T)",
    task="""\
Let each token see the last `window` tokens up to and including itself, and nothing else.

- `T` is a whole number from 0 on, `window` a whole number. Return a NumPy array of booleans,
  `(T, T)`: entry `[i, j]` is `True` if token `i` **may attend** to token `j`.
- The window counts the token itself: `window = 1` is the identity matrix, and `window = T` or more
  is the causal mask. Nobody sees the future.
- A `window` below 1 is a `ValueError`.""",
    reference=sliding_window_mask,
    properties=(
        Property("each token sees the last `window` tokens", 2, _windows),
        Property(
            "windows of 1, of T and more, and hardly any token", 1, _narrow_and_wide, edge=True
        ),
        Property("a window below 1 is a ValueError", 1, _no_window, edge=True),
    ),
    misconceptions=(
        Misconception(
            "sees one token too many",
            "Token i sees window tokens *before* itself, and itself: that is one too many. The "
            "window counts the token itself: the first key it sees is i − window + 1.",
            _one_too_many,
            symptom="your window is one token too wide",
        ),
        Misconception(
            "sees one token too few",
            "Token i sees window − 1 tokens, itself among them. The first key of the window is "
            "i − window + 1, and it belongs to it.",
            _one_too_few,
            symptom="your window is one token too narrow",
        ),
        Misconception(
            "leaves out the token itself",
            "The window ends before token i. It counts the token itself, and the first token has "
            "nothing else to look at.",
            _itself_left_out,
            symptom="no token sees itself",
        ),
        Misconception(
            "looks both ways",
            "Your window reaches as far forward as it reaches back. That is an encoder's; here "
            "nobody sees the future.",
            _both_sides,
            symptom="tokens see the future",
            also=(_centred,),
        ),
        Misconception(
            "looks forward",
            "Rows are queries and columns are keys: yours are the other way round, so that each "
            "token sees itself and the *next* ones.",
            _future,
            symptom="tokens see the future, and not the past",
        ),
        Misconception(
            "ignores the window",
            "This is the causal mask. Each token sees the whole past; let it forget what is "
            "`window` or more tokens behind.",
            _causal_only,
            symptom="every token sees the whole past",
        ),
        Misconception(
            "keeps what it should forget",
            "You keep the keys that lie `window` or more behind, and shut the near ones out. It is "
            "the near ones that a window shows.",
            _far_past,
            symptom="tokens see the far past only",
        ),
        Misconception(
            "marks what is forbidden",
            "True means *may attend*. Yours is True where a token must not look.",
            _forbidden,
            symptom="your mask is the opposite of what is asked",
        ),
        Misconception(
            "cuts the text into chunks",
            "You cut the text into pieces of `window` tokens; the first token of each piece sees "
            "nothing before it. The window slides: it ends at each token.",
            _chunks,
            symptom="how far a token sees depends on where it stands",
        ),
        Misconception(
            "returns numbers",
            "The ones are in the right places, but they are numbers. `~mask`, `where=mask` and "
            "indexing need booleans.",
            _as_integers,
            symptom="your mask holds numbers",
            also=(_as_floats,),
        ),
        Misconception(
            "returns the additive form",
            "0 and −∞ are what is *added* to the scores. Asked for is the boolean mask that this "
            "form is made from.",
            _additive,
            symptom="your mask holds 0 and −∞",
        ),
        Misconception(
            "accepts a window below 1",
            "With a window below 1 no token sees anything, not even itself. Raise a ValueError.",
            _accepts_anything,
            symptom="it accepts a window below 1",
        ),
        Misconception(
            "refuses a window above T",
            "A window wider than the text is no mistake: the text is still short. It gives the "
            "causal mask.",
            _refuses_wide_windows,
            symptom="it refuses a window wider than the text",
        ),
    ),
    hints=(
        "Which tokens does token 6 see if the window is 3? Write down the first and the last.",
        "Let `i` be a column of positions and `j` a row of them. Two conditions must hold: `j` is "
        "not after `i`, and `j` is fewer than `window` steps before `i`.",
        "`i = np.arange(T)[:, None]` and `j = np.arange(T)` broadcast to `(T, T)`: `(j <= i) & "
        "(i - j < ...)`. Raise the ValueError first.",
    ),
    minutes=10,
    returns=("the mask",),
)
