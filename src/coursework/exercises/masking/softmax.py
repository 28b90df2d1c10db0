"""The softmax over the keys that a mask allows, and the chapter's bug hunt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attend.dot_product import masked_softmax
from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import mixed_mask, normal, ordered, sizes

Rng = np.random.Generator
Array = np.ndarray


# masked_softmax -------------------------------------------------------------------------------


def _scores_times_mask(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = scores * mask
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _weights_times_mask(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return weights * mask


def _divided_once_more(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    weights = _weights_times_mask(scores, mask)
    return weights / weights.sum(axis=-1, keepdims=True)


def _minus_a_billion(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(mask, scores, -1e9)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _a_billion_less(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = scores + np.where(mask, 0.0, -1e9)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _lower_still(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(mask, scores, -1e30)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _finite_but_for_empty_rows(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return _minus_a_billion(scores, mask) * mask.any(axis=-1, keepdims=True)


def _uniform_empty_rows(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(
        mask, scores, np.finfo(scores.dtype).min if scores.dtype.kind == "f" else -1e308
    )
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _nan_rows(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _opposite(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(mask, -np.inf, scores)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _largest_of_all(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True)) * mask
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _log_of_the_mask(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = scores + np.log(mask + 1e-9)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _overflowing(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    e = np.exp(np.where(mask, scores, -np.inf))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _overflowing_and_nan(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    e = np.exp(np.where(mask, scores, -np.inf))
    return e / e.sum(axis=-1, keepdims=True)


def _columns(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-2, keepdims=True))
    return e / e.sum(axis=-2, keepdims=True)


def _in_place(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores[~mask] = -np.inf
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _not_broadcast(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    e = np.zeros_like(scores)
    e[mask] = np.exp(scores - np.where(mask, scores, -np.inf).max(axis=-1, keepdims=True))[mask]
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _always_float64(scores: np.ndarray, mask: np.ndarray) -> np.ndarray:
    scores = np.where(mask, scores.astype(np.float64), -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def _plain_masks(rng: Rng) -> Sequence[Call]:
    shapes = [sizes(rng, 2), sizes(rng, 2), ordered(rng, 3, up_to=7), sizes(rng, 3)]
    return calls(
        (normal(rng, 2, 3), np.array([[True, False, True], [True, True, False]])),
        *((normal(rng, *shape), mixed_mask(rng, *shape)) for shape in shapes),
    )


def _broadcast_masks(rng: Rng) -> Sequence[Call]:
    b, t, s = ordered(rng, 3, up_to=5)
    B, H, T, S = sizes(rng, 4, up_to=7)
    return calls(
        (normal(rng, b, t, s), mixed_mask(rng, t, s)),
        (normal(rng, B, H, T, S), mixed_mask(rng, B, 1, T, S)),
        (normal(rng, B, H, T, S), mixed_mask(rng, T, S)),
        (normal(rng, B, H, T, S), mixed_mask(rng, B, 1, 1, S)),
    )


def _empty_rows(rng: Rng) -> Sequence[Call]:
    def some_empty(*shape: int) -> tuple[Array, Array]:
        mask = mixed_mask(rng, *shape)
        mask[..., rng.integers(shape[-2]), :] = False
        return normal(rng, *shape), mask

    T, S = sizes(rng, 2)
    B, H, t, s = sizes(rng, 4, up_to=7)
    return calls(
        some_empty(2, 3),
        some_empty(T, S),
        some_empty(B, t, s),
        (normal(rng, B, H, t, s), some_empty(B, 1, t, s)[1]),
        (normal(rng, t, s), np.zeros((t, s), dtype=bool)),
    )


def _extreme_scores(rng: Rng) -> Sequence[Call]:
    def huge(T: int, S: int) -> tuple[Array, Array]:
        # The allowed keys of a row are near each other, about 1e4 above or below the others.
        mask = mixed_mask(rng, T, S)
        side = rng.permutation(np.resize([-1e4, 1e4], T))[:, None]
        return normal(rng, T, S) + np.where(mask, side, -side), mask

    def deep(T: int, S: int, level: float = 3e9) -> tuple[Array, Array]:
        # One allowed key a row, far below -1e9, among forbidden ones that are far above 1e9.
        mask = np.zeros((T, S), dtype=bool)
        np.put_along_axis(mask, rng.integers(S, size=(T, 1)), True, axis=-1)
        return np.where(mask, -level, level) + normal(rng, T, S), mask

    def far_apart(T: int, S: int) -> tuple[Array, Array]:
        # The allowed keys of a row are far from each other: only the largest may be subtracted.
        return 2e3 * rng.permuted(np.tile(np.arange(S), (T, 1)), axis=-1), mixed_mask(rng, T, S)

    return calls(
        far_apart(3, 4),
        far_apart(5, 3),
        huge(2, 3),
        huge(*sizes(rng, 2)),
        huge(*sizes(rng, 2)),
        huge(*sizes(rng, 2)),
        deep(2, 3),
        deep(*sizes(rng, 2)),
        deep(*sizes(rng, 2)),
        deep(*sizes(rng, 2)),
        *(deep(T, S, level) for level in (1e40, 1e300) for T, S in [(2, 3), sizes(rng, 2), (5, 7)]),
    )


def _forbidden_are_zero(made: Sequence[Call], values: Sequence[Any]) -> str | None:
    for call, value in zip(made, values, strict=True):
        mask = np.broadcast_to(call.args[1], value.shape)
        if np.any(value[~mask] != 0):
            return "a forbidden key keeps a tiny weight; it must get exactly 0"
    return None


def _other_dtypes(rng: Rng) -> Sequence[Call]:
    T, S = sizes(rng, 2)
    B, t, s = sizes(rng, 3)
    single = [(normal(rng, *shape), shape) for shape in [(2, 3), (T, S), (S, T), (B, t, s)]]
    whole = [(rng.integers(-3, 4, shape), shape) for shape in [(3, 5), (t, s)]]
    return calls(
        *((x.astype(np.float32), mixed_mask(rng, *shape)) for x, shape in single),
        *((x, mixed_mask(rng, *shape)) for x, shape in whole),
    )


_FINITE = (
    "−∞ is the only score that leaves nothing after exp, whatever the other scores are: any finite "
    "one is compared with them."
)

MASKED_SOFTMAX = Exercise(
    chapter=5,
    signature="masked_softmax(scores, mask) -> (..., T, S)",
    task="""
Return the softmax of each row of `scores`, taken over the keys that `mask` allows.

- `scores` has shape (..., T, S), `mask` is boolean and True means *may attend*. The mask broadcasts
  to the scores: (T, S) serves every batch and head, (B, 1, T, S) every head of (B, H, T, S).
- Forbidden keys get **exactly** 0, and the allowed ones of a row sum to 1.
- A row that may attend to nothing is all zeros: no NaN, and no equal shares.
- Scores may be of any size that a float64 holds: the allowed ones of a row may lie below −10³⁰, and
  forbidden ones far above them.
- float32 in, float32 out; float64 in, float64 out; whole numbers give float64.
- The inputs stay as they were.
""",
    reference=masked_softmax,
    properties=(
        Property("the allowed keys of a row share its weight", 2, _plain_masks),
        Property("a mask with fewer axes, or axes of 1, is broadcast", 2, _broadcast_masks),
        Property("a row that may attend to nothing is all zeros", 2, _empty_rows, edge=True),
        Property(
            "forbidden keys get exactly 0 whatever the scores",
            2,
            _extreme_scores,
            edge=True,
            together=_forbidden_are_zero,
        ),
        Property("float32 stays float32, whole numbers become floats", 1, _other_dtypes, edge=True),
    ),
    misconceptions=(
        Misconception(
            "scores multiplied by the mask",
            "This is what multiplying the *scores* by the mask gives: forbidden scores become 0, "
            "and exp(0) is 1, a weight like any other. A score that is to count for nothing must "
            "be −∞.",
            _scores_times_mask,
            "forbidden keys still get weight",
        ),
        Misconception(
            "masked after the softmax",
            "This is what masking *after* the softmax gives: the forbidden keys have already taken "
            "their share of the sum, so what is left adds up to less than 1. Mask the scores.",
            _weights_times_mask,
            "your rows do not sum to 1",
        ),
        Misconception(
            "masked after the softmax, and divided once more",
            "Rows that are masked *after* the softmax and divided by their sums are right as long "
            "as something is left of them. Where a forbidden score is far above the allowed ones, "
            "their weights are 0 already when the mask comes, and 0 / 0 is NaN, as it is in an "
            "empty row. Mask the scores.",
            _divided_once_more,
            "rows that have lost all of their weight are NaN",
        ),
        Misconception(
            "a finite number in place of −∞",
            f"This is what a low but finite number in the forbidden places gives. {_FINITE} Where "
            "all allowed scores of a row are lower still, the weight goes to the forbidden keys.",
            _minus_a_billion,
            "forbidden keys get weight where all scores are low",
            also=(_lower_still, _finite_but_for_empty_rows),
        ),
        Misconception(
            "−1e9 added",
            f"This is what adding −1e9 to forbidden scores gives. {_FINITE} Where a row is empty "
            "they are all lowered by the same amount, and softmax does not see it.",
            _a_billion_less,
            "forbidden keys get weight where all scores are low",
        ),
        Misconception(
            "empty rows are uniform",
            "In a row that may attend to nothing, your keys share the weight equally, though all "
            "of them are forbidden. (The lowest float in place of −∞ does the same.) Such a row "
            "must be zeros.",
            _uniform_empty_rows,
            "empty rows are not zero",
        ),
        Misconception(
            "NaN on empty rows",
            "−∞ is right, but a row that holds nothing else has −∞ as its largest score, and "
            "−∞ − (−∞) is NaN. Decide what to subtract, and what to divide by, in such a row.",
            _nan_rows,
            "empty rows are NaN",
        ),
        Misconception(
            "inverted mask",
            "Your weights go where the mask is False. Here True means *may attend*.",
            _opposite,
            "the mask is read the wrong way round",
        ),
        Misconception(
            "largest score of all keys",
            "You subtract the largest score of *all* keys. If a forbidden one is far above the "
            "allowed ones, each allowed exp is rounded to 0. The largest among the allowed keys is "
            "the one to subtract.",
            _largest_of_all,
            "weights vanish beside large forbidden scores",
        ),
        Misconception(
            "log(mask + ε)",
            "The logarithm of a small ε is only about −21: a forbidden key keeps an ε-th of the "
            "weight that its score calls for, and all of it where its score is larger by more than "
            "that. The logarithm of 0 is what you want, and it is −∞.",
            _log_of_the_mask,
            "forbidden keys keep some weight",
        ),
        Misconception(
            "overflow",
            "exp(710) is already too large for a float64. A softmax does not change when the same "
            "number is subtracted from a whole row: subtract the largest allowed score first.",
            _overflowing,
            "large scores overflow",
        ),
        Misconception(
            "overflow, and NaN on empty rows",
            "Two things divide badly here: exp(710) is already too large for a float64, and an "
            "empty row sums to 0. Subtract the largest allowed score first, and look after the "
            "rows that have none.",
            _overflowing_and_nan,
            "empty rows and large scores are NaN",
        ),
        Misconception(
            "columns normalised",
            "Your columns sum to 1. Each query distributes its weight over the keys, and queries "
            "are rows.",
            _columns,
            "your rows do not sum to 1",
        ),
        Misconception(
            "scores changed in place",
            "Your function writes −∞ into the scores it was handed; whoever called it, perhaps to "
            "plot the scores afterwards, finds them changed. Make a new array.",
            _in_place,
            "it changes its input scores",
        ),
        Misconception(
            "mask not broadcast",
            "Used as an index, a mask must have exactly the shape of the scores. Combining the two "
            "element by element broadcasts; indexing does not.",
            _not_broadcast,
            "it fails for a mask that has fewer axes than the scores",
        ),
        Misconception(
            "float64 always",
            "The numbers are right, but float32 goes in and float64 comes out: twice the memory, "
            "at every layer of a model. Find the step that widens them.",
            _always_float64,
            "float32 does not stay float32",
        ),
    ),
    hints=(
        "What must a score be, so that exp makes exactly 0 of it? And what happens to a row in "
        "which every score is that?",
        "Three steps. Put that score in the forbidden places of a *new* array. Subtract each row's "
        "largest score, except where there is none. Divide by each row's sum, except where it is "
        "0. Two of the three need a second look at rows that allow nothing.",
        "Let `np.where` choose twice: between the score and −∞, by the mask; and between the row's "
        "largest score and 0, by whether it is finite. After exp, the sum of an empty row is 0: "
        "divide by 1 there. A Python number in `np.where` does not widen float32; an array of "
        "float64 does.",
    ),
    minutes=20,
    returns=("weights",),
    keeps_dtype=True,
)


# The bug hunt ---------------------------------------------------------------------------------


_ZERO_SCORE = "Forbidden scores become 0, and exp(0) is a weight like any other."
_LATE = "The mask comes after the softmax, so that a row no longer sums to 1."
_FINITE_SCORE = "Forbidden scores become a number that is very low, but not −∞."
_SHARED_LARGEST = "The largest score of a row is sought among forbidden keys too."
_WRONG_WAY = "The mask is read the wrong way round: True counts as forbidden."
_SENTENCES = (_ZERO_SCORE, _LATE, _FINITE_SCORE, _SHARED_LARGEST, _WRONG_WAY)

_MASK = np.array([[True, True, False], [False, True, True]])
_SCORES = np.array([[1.0, 2.0, 3.0], [3.0, 0.5, 1.5]])


def _hunted(
    misconception: str, mistake: str, hides: tuple[Array, Array], shows: tuple[Array, Array]
) -> Bug:
    a, b, c, d = (s for s in _SENTENCES if s != mistake)
    return Bug(misconception, mistake, (a, b, c, d), hides, shows)


def _is_table_of_floats(scores: Any, mask: Any) -> bool:
    return (
        type(scores) is np.ndarray
        and scores.dtype == np.float64
        and scores.ndim == 2
        and scores.shape[0] >= 2
        and bool(np.isfinite(scores).all())
    )


def _is_mask_of(scores: Any, mask: Any) -> bool:
    return type(mask) is np.ndarray and mask.dtype == bool and mask.shape == scores.shape


def _rows_are_mixed(scores: Any, mask: Any) -> bool:
    return bool((mask.sum(axis=-1) >= 2).all() and (~mask).any(axis=-1).all())


def _allowed_are_close(scores: Any, mask: Any) -> bool:
    """Two allowed scores of each row are near its largest, and not all of them are equal."""
    allowed = np.sort(np.where(mask, scores, -np.inf), axis=-1)
    gaps = allowed[:, -1] - allowed[:, -2]
    return bool(((gaps >= 0.5) & (gaps <= 3)).all())


BUG_HUNT = BugHunt(
    target=MASKED_SOFTMAX,
    bugs=(
        _hunted(
            "scores multiplied by the mask",
            _ZERO_SCORE,
            hides=(np.where(_MASK, 100.0, 0.0) + _SCORES, _MASK),
            shows=(_SCORES, _MASK),
        ),
        _hunted(
            "masked after the softmax",
            _LATE,
            hides=(np.where(_MASK, 0.0, -100.0) + _SCORES, _MASK),
            shows=(_SCORES, _MASK),
        ),
        _hunted(
            "a finite number in place of −∞",
            _FINITE_SCORE,
            hides=(_SCORES, _MASK),
            shows=(_SCORES - 2e9, _MASK),
        ),
        _hunted(
            "largest score of all keys",
            _SHARED_LARGEST,
            hides=(_SCORES, _MASK),
            shows=(np.where(_MASK, 0.0, 1000.0) + _SCORES, _MASK),
        ),
    ),
    conditions=(
        Condition(
            "`scores` is a float64 array (T, S) of finite numbers with at least 2 rows",
            _is_table_of_floats,
        ),
        Condition("`mask` is a boolean array of the same shape", _is_mask_of),
        Condition("each row allows at least two keys and forbids at least one", _rows_are_mixed),
        Condition(
            "in each row, the two largest allowed scores are between 0.5 and 3 apart",
            _allowed_are_close,
        ),
    ),
    hints=(
        "Run `suspect` on small random scores and on your own `masked_softmax`. Do they agree? If "
        "so you have the first input, and if not the second.",
        "Follow one forbidden score through the function, line by line. What is it after each "
        "step? How large or small would it, or the others, have to be for that not to matter, or "
        "to matter?",
        "Keep one mask and move whole groups of scores: all allowed ones up or down by 100 or by "
        "10⁹, or all forbidden ones. `scores + np.where(mask, a, b)` moves the groups apart, and "
        "keeps the distances within each.",
    ),
    minutes=15,
)
