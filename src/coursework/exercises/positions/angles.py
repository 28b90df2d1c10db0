"""`rope_angles`: by how much each pair of features is turned."""

from __future__ import annotations

import numpy as np

from attend.positions import (
    rope_angles,
)
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.positions.tables import near_table


def _from_the_start(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (np.arange(3), 4),
        (np.arange(5), 6),
        (np.arange(7), 22),
        (np.arange(11), 10),
        (np.arange(13), 14),
    )


def _anywhere(rng: np.random.Generator) -> tuple[Call, ...]:
    start = int(rng.integers(9, 40))
    return calls(
        (np.array([7, 8, 9]), 4),
        (np.arange(start, start + 5), 6),
        (rng.permutation(11) + start, 14),
        (np.array([0.5, 1.25, -3.75]), 10),
        (rng.uniform(-20, 20, 7), 6),
        (rng.uniform(0, 50, 5), 22),
        (np.array([start, start, 3, -2]), 10),
    )


def _bases_of_angles(rng: np.random.Generator) -> tuple[Call, ...]:
    base = float(rng.uniform(2, 500))
    return (
        Call((np.arange(3), 4), {"base": 100.0}),
        Call((np.arange(5), 6), {"base": base}),
        Call((np.arange(7), 10), {"base": 500000.0}),
        Call((np.arange(2, 13), 14), {"base": base + 1}),
    )


def _corners_of_angles(rng: np.random.Generator) -> tuple[Call, ...]:
    return calls(
        (np.array([0]), 2),
        (np.array([3, 1]), 2),
        (np.array([5]), 6),
        (np.array([100_000, 131_071, 7]), 6),
        (np.array([1e4, 1e5]), 10),
    )


def _largest_position(call: Call) -> float:
    return float(np.max(np.abs(call.args[0])))


def _exponent_doubled(positions, d_head, base=10000.0):
    return positions[:, None] / base ** (2 * np.arange(0, d_head, 2) / d_head)


def _exponent_halved(positions, d_head, base=10000.0):
    return positions[:, None] / base ** (np.arange(d_head // 2) / d_head)


def _always_ten_thousand(positions, d_head, base=10000.0):
    return positions[:, None] / 10000.0 ** (np.arange(0, d_head, 2) / d_head)


def _in_degrees(positions, d_head, base=10000.0):
    return np.degrees(positions[:, None] / base ** (np.arange(0, d_head, 2) / d_head))


def _counts_by_itself(positions, d_head, base=10000.0):
    p = np.arange(len(positions))
    return p[:, None] / base ** (np.arange(0, d_head, 2) / d_head)


def _one_further(positions, d_head, base=10000.0):
    return (positions[:, None] + 1) / base ** (np.arange(0, d_head, 2) / d_head)


def _reduced(positions, d_head, base=10000.0):
    return positions[:, None] / base ** (np.arange(0, d_head, 2) / d_head) % (2 * np.pi)


def _twice_as_wide(positions, d_head, base=10000.0):
    angles = positions[:, None] / base ** (np.arange(0, d_head, 2) / d_head)
    return np.concatenate([angles, angles], axis=-1)


def _faster_and_faster(positions, d_head, base=10000.0):
    return positions[:, None] * base ** (np.arange(0, d_head, 2) / d_head)


def _squared(positions, d_head, base=10000.0):
    return positions[:, None] ** 2 / base ** (np.arange(0, d_head, 2) / d_head)


def _whole_positions(positions, d_head, base=10000.0):
    return positions.astype(int)[:, None] / base ** (np.arange(0, d_head, 2) / d_head)


def _to_the_base_itself(positions, d_head, base=10000.0):
    i = np.arange(d_head // 2)
    return positions[:, None] / base ** (i / max(d_head // 2 - 1, 1))


def _angles_transposed(positions, d_head, base=10000.0):
    return positions / base ** (np.arange(0, d_head, 2) / d_head)[:, None]


ROPE_ANGLES = Exercise(
    chapter=2,
    signature="rope_angles(positions, d_head, base=10000.0) -> (T, d_head // 2)",
    task="""\
By how much RoPE turns each pair of features at each position, in radians:

$$
\\text{angle}[t, i] = \\frac{p_t}{\\text{base}^{2i / d_\\text{head}}} \\qquad
i = 0, 1, \\dots, d_\\text{head}/2 - 1
$$

- `positions` is an array of T numbers $p_t$, integers or floats. They need not start at 0 (a model
  that generates goes on where it stopped), nor be whole, nor be in order; they may be negative, or
  in the hundred thousands.
- `d_head` is even, 2 or more; `base` is a float above 1, handed over by its name.
- Return a NumPy array of floats of shape (T, `d_head` / 2), one column for each *pair*. Do not take
  away full turns: what comes back is the angle itself, not its sine or cosine.
- An angle may be off by 1e-7 times the largest position, so float32 will do.""",
    reference=rope_angles,
    properties=(
        Property(
            "positions 0, 1, 2, …: the first pair turns by 1, the others ever slower",
            2,
            _from_the_start,
            compare=near_table(rope_angles, _largest_position),
        ),
        Property(
            "positions that start anywhere, stand in any order, lie between whole numbers",
            1,
            _anywhere,
            compare=near_table(rope_angles, _largest_position),
        ),
        Property(
            "any base", 1, _bases_of_angles, compare=near_table(rope_angles, _largest_position)
        ),
        Property(
            "a single position, a single pair, far positions",
            1,
            _corners_of_angles,
            edge=True,
            compare=near_table(rope_angles, _largest_position),
        ),
    ),
    misconceptions=(
        Misconception(
            "doubles the exponent",
            "Your exponents are 4i / d_head. If you count `np.arange(0, d_head, 2)`, the 2 is in "
            "it already.",
            _exponent_doubled,
            symptom="all pairs but the first turn too slowly",
        ),
        Misconception(
            "halves the exponent",
            "Your exponents are i / d_head; they should be 2i / d_head, and go from 0 nearly to 1.",
            _exponent_halved,
            symptom="all pairs but the first turn too fast",
        ),
        Misconception(
            "ignores the base",
            "You have 10000 in the code where the argument `base` belongs. Models that read long "
            "texts use a larger one.",
            _always_ten_thousand,
            symptom="right for base 10000 only",
        ),
        Misconception(
            "gives degrees",
            "These are degrees. NumPy's sine and cosine take radians, and so does everything here: "
            "the first pair turns by 1 radian a position.",
            _in_degrees,
            symptom="your angles are 57.3 times too large",
        ),
        Misconception(
            "counts positions by itself",
            "You count 0, 1, 2, … in place of the positions that are handed in. With a cache the "
            "next token is not at position 0.",
            _counts_by_itself,
            symptom="the angles do not depend on the positions",
        ),
        Misconception(
            "is one position further",
            "Your angles are those of the next position. Position 0 is turned by 0.",
            _one_further,
            symptom="position 0 is turned",
        ),
        Misconception(
            "takes away full turns",
            "You reduce the angles to one turn. Sine and cosine would not notice, but whoever "
            "scales or subtracts angles would: return the angle as it is.",
            _reduced,
            symptom="large angles begin again at 0",
        ),
        Misconception(
            "gives an angle for every feature",
            "You repeat the angles to d_head columns. There is one for each pair: d_head / 2.",
            _twice_as_wide,
            symptom="there are twice as many columns as pairs",
        ),
        Misconception(
            "multiplies by the power",
            "You multiply positions by base^(2i/d_head). Divide: the first pair is the fastest.",
            _faster_and_faster,
            symptom="the last pairs turn thousands of times a step",
        ),
        Misconception(
            "squares the positions",
            "Your angles grow with the square of the position. Then the angle between two tokens "
            "depends on where they stand, not on their distance alone: keep it in proportion.",
            _squared,
            symptom="your angles grow faster than the positions",
        ),
        Misconception(
            "cuts positions to whole numbers",
            "You turn positions into integers. They need not be whole: position interpolation "
            "divides them all by a constant.",
            _whole_positions,
            symptom="0.5 is taken for 0",
        ),
        Misconception(
            "goes up to the base itself",
            "You divide the exponents by d_head/2 − 1, so that the last is 1. They go from 0 to "
            "1 − 2/d_head: divide by d_head/2.",
            _to_the_base_itself,
            symptom="the last pairs turn too slowly",
        ),
        Misconception(
            "is transposed",
            "Your rows are pairs. Each *row* belongs to a position: (T, d_head / 2).",
            _angles_transposed,
            symptom="rows and columns are exchanged",
        ),
    ),
    hints=(
        "For d_head = 4 and base 10000 there are two pairs. By how much does each turn from one "
        "position to the next?",
        "The speeds are base to the powers 0, −2/d_head, −4/d_head, …: one for each pair, "
        "d_head / 2 of them. The angles are every position times every speed.",
        "`speeds = base ** (-np.arange(0, d_head, 2) / d_head)`; then let positions as a column "
        "meet speeds as a row.",
    ),
    minutes=10,
    returns=("the angles",),
)
