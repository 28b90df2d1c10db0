"""`apply_rope`: turning queries and keys."""

from __future__ import annotations

import numpy as np

from attend.positions import (
    apply_rope,
)
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, numbers


def _to_turn(
    rng: np.random.Generator, *shape: int, dtype: type = np.float64, turns: float = 1.0
) -> Call:
    """x of this shape (..., T, K), and angles (T, K / 2) of about so many radians either way."""
    *_, T, K = shape
    return Call((numbers(rng, shape, dtype), turns * rng.uniform(-3, 3, (T, K // 2))))


def _single_heads(rng: np.random.Generator) -> tuple[Call, ...]:
    shapes = ((3, 4), (2, 6), (5, 4), (7, 10), (11, 6), (3, 14), (13, 22))
    return tuple(_to_turn(rng, *shape) for shape in shapes)


def _many_heads(rng: np.random.Generator) -> tuple[Call, ...]:
    shapes = ((2, 3, 4), (3, 5, 6), (5, 2, 7, 10), (2, 3, 5, 7, 4))
    return tuple(_to_turn(rng, *shape) for shape in shapes)


def _other_numbers(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _to_turn(rng, 1, 2),
        _to_turn(rng, 3, 2),
        _to_turn(rng, 1, 6),
        *(_to_turn(rng, *shape, dtype=np.int64) for shape in ((3, 4), (5, 6), (7, 10))),
        _to_turn(rng, 5, 6, dtype=np.float32),
        in_columns(_to_turn(rng, 7, 4)),
        _to_turn(rng, 5, 6, turns=1e4),
    )


def _unturned(x, angles):
    return x * np.ones_like(x)


def _neighbours(x, angles):
    a, b = x[..., 0::2], x[..., 1::2]
    turned = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
    return np.stack(turned, axis=-1).reshape(x.shape)


def _other_way_round(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * c + b * s, b * c - a * s], axis=-1)


def _no_minus(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * c + b * s, a * s + b * c], axis=-1)


def _cosine_only(x, angles):
    return x * np.concatenate([np.cos(angles), np.cos(angles)], axis=-1)


def _overwritten(x, angles):
    y = np.array(x, dtype=float)
    half = y.shape[-1] // 2
    c, s = np.cos(angles), np.sin(angles)
    y[..., :half] = y[..., :half] * c - y[..., half:] * s
    y[..., half:] = y[..., :half] * s + y[..., half:] * c
    return y


def _pairs_together(x, angles):
    a, b = np.split(x, 2, axis=-1)
    turned = a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)
    return np.stack(turned, axis=-1).reshape(x.shape)


def _halves_exchanged(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * s + b * c, a * c - b * s], axis=-1)


def _outermost(x, angles):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., : half - 1 : -1]
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * c - b * s, (a * s + b * c)[..., ::-1]], axis=-1)


def _one_row(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles[0]), np.sin(angles[0])
    return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)


def _last_first(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles[:, ::-1]), np.sin(angles[:, ::-1])
    return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)


def _one_column(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles[:, :1]), np.sin(angles[:, :1])
    return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)


def _as_degrees(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(np.radians(angles)), np.sin(np.radians(angles))
    return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)


def _added(x, angles):
    return x + np.concatenate([np.cos(angles), np.sin(angles)], axis=-1)


def _unit_length(x, angles):
    a, b = np.split(x, 2, axis=-1)
    c, s = np.cos(angles), np.sin(angles)
    y = np.concatenate([a * c - b * s, a * s + b * c], axis=-1)
    return y / np.sqrt(np.sum(x.astype(float) ** 2, axis=-1, keepdims=True))


def _cut_to_integers(x, angles):
    y = np.empty_like(x)
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    y[..., :half] = a * np.cos(angles) - b * np.sin(angles)
    y[..., half:] = a * np.sin(angles) + b * np.cos(angles)
    return y


APPLY_ROPE = Exercise(
    chapter=2,
    signature="apply_rope(x, angles) -> (..., T, K)",
    task="""\
Turn queries or keys: `x` is `(..., T, K)`, `angles` is `(T, K / 2)`. Feature $i$ and feature
$i + K/2$ are a pair, a vector in the plane, and `angles[t, i]` says by how much the pair of token t
is turned, counter-clockwise:

$$
x'_i = x_i \\cos\\theta - x_{i + K/2} \\sin\\theta \\qquad
x'_{i + K/2} = x_i \\sin\\theta + x_{i + K/2} \\cos\\theta
$$

- This is the *half-split* layout: the first half of the features holds the first members of all
  pairs. K is even. There may be no leading axes, or several (batch, heads); the same angles serve
  for all of them.
- The shape stays as it is, and so does the length of each row.
- Floats come back, of any width, whatever comes in: `x` is float64, float32 or integers, in any
  memory order. The angles are float64, in radians, of any size. Leave both arrays as they are.""",
    reference=apply_rope,
    properties=(
        Property("each pair (i, i + K/2) is turned by its own angle", 3, _single_heads),
        Property("the same angles for all leading axes", 1, _many_heads),
        Property(
            "one token, one pair, float32, integers, many turns", 1, _other_numbers, edge=True
        ),
    ),
    misconceptions=(
        Misconception(
            "does not turn",
            "Nothing is turned: x comes back as it was, and the order of the tokens stays unknown.",
            _unturned,
            symptom="the angles make no difference",
        ),
        Misconception(
            "pairs neighbours",
            "You pair features 2i and 2i + 1. That is the interleaved layout, a RoPE of its own. "
            "Here feature i belongs to feature i + K/2.",
            _neighbours,
            symptom="other features are paired",
        ),
        Misconception(
            "turns the other way round",
            "You turn clockwise: the sine has the other sign. Distances would still show, but "
            "keys that were turned by other programs would not fit.",
            _other_way_round,
            symptom="the sign of the sine is the wrong one",
        ),
        Misconception(
            "forgets the minus sign",
            "Both of your lines add. Without a minus in one of them this is no rotation: lengths "
            "change, and scores depend on more than the distance.",
            _no_minus,
            symptom="your rows change their length",
        ),
        Misconception(
            "uses the cosine only",
            "You multiply by the cosine and leave it at that. A turn mixes the two members of a "
            "pair: the sine terms are missing.",
            _cosine_only,
            symptom="your rows become shorter",
        ),
        Misconception(
            "overwrites the first half too early",
            "Your second line uses the first half when it has been turned already. Keep the old "
            "halves until both new ones are there.",
            _overwritten,
            symptom="the first half is right, the second is not",
        ),
        Misconception(
            "returns the pairs side by side",
            "The pairs are the right ones and rightly turned, but you put them back side by side. "
            "First members belong in the first half, at their old places.",
            _pairs_together,
            symptom="the turned features stand in the wrong places",
        ),
        Misconception(
            "exchanges the halves",
            "You put the second half first. Each turned feature goes to its old place.",
            _halves_exchanged,
            symptom="the turned halves have changed places",
        ),
        Misconception(
            "pairs the outermost",
            "You pair the first feature with the last, the second with the last but one. Feature i "
            "belongs to feature i + K/2: both halves are read forwards.",
            _outermost,
            symptom="other features are paired",
        ),
        Misconception(
            "uses the first position's angles for all",
            "You turn every token by the angles of the first. Row t of the angles is for token t: "
            "turned alike, tokens keep no trace of their order.",
            _one_row,
            symptom="all tokens are turned alike",
        ),
        Misconception(
            "uses the angles from last to first",
            "You give the first pair the last column of the angles. Column i is for pair i.",
            _last_first,
            symptom="fast and slow pairs have changed places",
        ),
        Misconception(
            "uses one angle for all pairs",
            "You turn all pairs by the first column of the angles. Each pair has a column of its "
            "own: fast pairs tell near tokens apart, slow ones far ones.",
            _one_column,
            symptom="all pairs are turned alike",
        ),
        Misconception(
            "takes the angles for degrees",
            "You convert from degrees. The angles are radians already.",
            _as_degrees,
            symptom="you turn much too little",
        ),
        Misconception(
            "adds instead of turning",
            "You add cosines and sines to x. RoPE adds nothing: it multiplies each pair by a "
            "rotation.",
            _added,
            symptom="something is added to x",
        ),
        Misconception(
            "brings rows to length 1",
            "You divide each row by its length. A rotation changes no length, so there is nothing "
            "to repair.",
            _unit_length,
            symptom="your rows change their length",
        ),
        Misconception(
            "cuts to the integers of the input",
            "You store the result in the dtype of x, which cuts it to integers where x holds "
            "integers. What is turned are floats: do not fill an array made with `empty_like(x)`.",
            _cut_to_integers,
            symptom="integer inputs give integers",
        ),
    ),
    hints=(
        "Turn one pair first: K = 2, one token, (1, 0) by a quarter turn. Where does it point? And "
        "with K = 4, which features make the first pair?",
        "Cut x along its last axis into two halves a and b, each (..., T, K / 2): as wide as the "
        "angles, so sines and cosines fit without any repeating. Compute both new halves from the "
        "old ones, then put them side by side.",
        "`a, b = x[..., :half], x[..., half:]`, `c, s = np.cos(angles), np.sin(angles)`; the new "
        "first half is `a * c - b * s`. At the end, `np.concatenate([..., ...], axis=-1)`.",
    ),
    minutes=15,
    returns=("the result",),
)
