"""`sinusoidal_positions`: a table of sines and cosines."""

from __future__ import annotations

import numpy as np

from attend.positions import (
    sinusoidal_positions,
)
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.positions.tables import near_table


def _tables(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (3, 4), (4, 6), (7, 10), (13, 6), (29, 22), (int(rng.integers(30, 60)), 14), (11, 2)
    )


def _other_bases(rng: np.random.Generator) -> tuple[Call, ...]:
    base = float(rng.uniform(2, 500))
    return (
        Call((3, 4), {"base": 100.0}),
        Call((5, 6), {"base": base}),
        Call((7, 10), {"base": 500000.0}),
        Call((2, 14), {"base": base + 1}),
    )


def _corner_tables(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls((1, 2), (1, 4), (1, 10), (2, 2), (1009, 6))


def _largest_row(call: Call) -> float:
    return float(call.args[0])


def _halves(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def _half_exponent(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(d_model // 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def _double_exponent(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (2 * np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def _every_column_its_own(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(d_model) / d_model)
    return np.where(np.arange(d_model) % 2 == 0, np.sin(angles), np.cos(angles))


def _cosine_first(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(n, d_model)


def _from_one(n, d_model, base=10000.0):
    angles = np.arange(1, n + 1)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def _multiplied(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] * base ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def _base_fixed(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / 10000.0 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def _up_to_the_base(n, d_model, base=10000.0):
    i = np.arange(d_model // 2)
    angles = np.arange(n)[:, None] / base ** (i / max(d_model // 2 - 1, 1))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


def _sines_only(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    return np.repeat(np.sin(angles), 2, axis=-1)


def _transposed_table(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model).T


def _roles_exchanged(n, d_model, base=10000.0):
    i = np.arange(0, d_model, 2)
    angles = i / base ** (np.arange(n)[:, None] / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


SINUSOIDAL_POSITIONS = Exercise(
    chapter=2,
    signature="sinusoidal_positions(n, d_model, base=10000.0) -> (n, d_model)",
    task="""\
The table of *Attention Is All You Need*: one row for each of the positions 0 … `n` − 1, and in it
pairs of a sine and a cosine of one angle, the pairs side by side:

$$
PE[p, 2i] = \\sin\\bigl(p / \\text{base}^{2i / d_\\text{model}}\\bigr) \\qquad
PE[p, 2i + 1] = \\cos\\bigl(p / \\text{base}^{2i / d_\\text{model}}\\bigr) \\qquad
i = 0, 1, \\dots, d_\\text{model}/2 - 1
$$

- `n` is 1 or more, `d_model` is even, 2 or more, and `base` a float above 1, handed over by its
  name.
- Return a NumPy array of floats, of any width: a table computed in float32 is near enough.""",
    reference=sinusoidal_positions,
    properties=(
        Property(
            "sines and cosines of the right angles, in the right columns",
            2,
            _tables,
            compare=near_table(sinusoidal_positions, _largest_row),
        ),
        Property(
            "any base", 1, _other_bases, compare=near_table(sinusoidal_positions, _largest_row)
        ),
        Property(
            "a single position, a single pair, far positions",
            1,
            _corner_tables,
            edge=True,
            compare=near_table(sinusoidal_positions, _largest_row),
        ),
    ),
    misconceptions=(
        Misconception(
            "puts the halves side by side",
            "Your columns are all sines, then all cosines. The numbers are right; here each cosine "
            "stands beside its sine, in columns 2i and 2i + 1. Programs with either order exist; a "
            "model trained with one cannot read the other.",
            _halves,
            symptom="the columns stand in another order",
        ),
        Misconception(
            "halves the exponent",
            "You use i / d_model in the exponent; it is 2i / d_model, so that the exponents go "
            "from 0 nearly to 1.",
            _half_exponent,
            symptom="the last pairs turn too fast",
        ),
        Misconception(
            "doubles the exponent",
            "You use 4i / d_model in the exponent: the number of the column, 2i, doubled once "
            "more. It is 2i / d_model.",
            _double_exponent,
            symptom="the last pairs turn too slowly",
        ),
        Misconception(
            "gives every column an angle of its own",
            "Your cosine columns use an exponent of (2i + 1) / d_model. Sine and cosine of a pair "
            "must share their angle: only then does a shift turn the pair.",
            _every_column_its_own,
            symptom="sine and cosine of a pair do not belong together",
        ),
        Misconception(
            "exchanges sine and cosine",
            "Your even columns are the cosines. Column 2i is the sine, column 2i + 1 the cosine.",
            _cosine_first,
            symptom="position 0 begins with a 1",
        ),
        Misconception(
            "counts from 1",
            "Your first row is that of position 1. Positions are counted from 0, where each pair "
            "is (0, 1).",
            _from_one,
            symptom="every row is that of the next position",
        ),
        Misconception(
            "multiplies by the power",
            "You multiply positions by base^(2i/d_model), so that later pairs turn ever faster. "
            "Divide: the first pair is the fastest.",
            _multiplied,
            symptom="the last pairs turn thousands of times a step",
        ),
        Misconception(
            "ignores the base",
            "You have 10000 in the code where the argument `base` belongs.",
            _base_fixed,
            symptom="right for base 10000 only",
        ),
        Misconception(
            "goes up to the base itself",
            "You divide the exponents by d_model/2 − 1, so that the last is 1, as some libraries "
            "do. The paper's go from 0 to 1 − 2/d_model: divide by d_model/2.",
            _up_to_the_base,
            symptom="the last pair turns too slowly",
        ),
        Misconception(
            "has sines only",
            "Your pairs hold the sine twice. A sine alone does not tell 1 from π − 1: it takes the "
            "cosine to say where on the circle the angle is.",
            _sines_only,
            symptom="there are no cosines",
        ),
        Misconception(
            "is transposed",
            "Your rows are features. Each *row* belongs to a position, (n, d_model), so that the "
            "table can be added to X.",
            _transposed_table,
            symptom="rows and columns are exchanged",
        ),
        Misconception(
            "exchanges position and pair",
            "You divide the number of the column by a power that depends on the position. It is "
            "the other way round: the position is divided, and the power depends on the pair.",
            _roles_exchanged,
            symptom="p and i have changed places",
        ),
    ),
    hints=(
        "Write down the row of position 1 for d_model = 4 by hand: which two angles are there, and "
        "where does each go?",
        "Make the angles first, an array of shape (n, d_model / 2): positions as a column, divided "
        "by base to the powers 0, 2/d_model, 4/d_model, … as a row. Then fill the even columns "
        "with sines and the odd ones with cosines.",
        "`angles = np.arange(n)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)`; then "
        "`table[:, 0::2]` and `table[:, 1::2]`.",
    ),
    minutes=10,
    returns=("the table",),
)
