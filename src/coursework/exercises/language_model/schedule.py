"""`warmup_cosine`: how large a step to take, and when."""

from __future__ import annotations

import math

import numpy as np

from attend.training import warmup_cosine
from coursework.exercise import Call, Exercise, Misconception, Property

Rng = np.random.Generator


def _rates(rng: Rng) -> tuple[float, float]:
    peak = float(10 ** rng.uniform(-3, -1))
    return peak, peak * float(rng.uniform(0.05, 0.4))


def _warming(rng: Rng) -> tuple[Call, ...]:
    return tuple(
        Call((step, warmup, total, *_rates(rng)))
        for step, warmup, total in (
            (0, 4, 11),
            (1, 4, 11),
            (3, 4, 11),
            (0, 100, 700),
            (57, 100, 700),
            (99, 100, 700),
            (int(rng.integers(1, 30)), 31, 97),
            (0, 1, 3),
        )
    )


def _cooling(rng: Rng) -> tuple[Call, ...]:
    return tuple(
        Call((step, warmup, total, *_rates(rng)))
        for step, warmup, total in (
            (4, 4, 11),
            (5, 4, 11),
            (9, 4, 11),
            (10, 4, 11),
            (100, 100, 700),
            (250, 100, 700),
            (699, 100, 700),
            (int(rng.integers(40, 90)), 31, 97),
            (int(rng.integers(40, 90)), 31, 97),
        )
    )


def _over(rng: Rng) -> tuple[Call, ...]:
    return tuple(
        Call((step, warmup, total, *_rates(rng)))
        for step, warmup, total in (
            (11, 4, 11),
            (12, 4, 11),
            (18, 4, 11),
            (700, 100, 700),
            (1300, 100, 700),
            (5000, 100, 700),
        )
    )


def _edges(rng: Rng) -> tuple[Call, ...]:
    return (
        *(Call((step, 0, 7, *_rates(rng))) for step in (0, 3, 7)),  # no warm-up
        *(Call((step, 5, 5, *_rates(rng))) for step in (0, 4, 5, 9)),  # nothing but warm-up
        *(
            Call((step, 9, 5, *_rates(rng))) for step in (3, 5, 6, 7, 8, 9, 12)
        ),  # ends while it warms up
        *(Call((step, 0, 0, *_rates(rng))) for step in (0, 2)),
        *(Call((step, 3, 11, 0.01, 0.01)) for step in (1, 5, 13)),  # nothing to fall
        *(Call((step, 3, 11, 0.01, 0.0)) for step in (2, 6, 11)),
    )


def _probes(rng: Rng) -> tuple[Call, ...]:
    return tuple(
        Call((step, warmup, total, *_rates(rng)))
        for warmup, total in ((4, 11), (7, 29), (100, 700))
        for step in (0, warmup - 1, warmup, warmup + 2, total - 2, total, total + 3, 2 * total)
    )


def _starts_at_zero(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * step / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _starts_at_floor(step, warmup, total, peak, floor):
    if step < warmup:
        return floor + (peak - floor) * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _overshoots(step, warmup, total, peak, floor):
    if step < warmup or step == warmup > 0:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _rises_again(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if total <= warmup:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _zero_at_the_end(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return 0.0
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _divides_by_zero(step, warmup, total, peak, floor):
    done = (step - warmup) / (total - warmup)
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _end_before_warmup(step, warmup, total, peak, floor):
    if step >= total:
        return floor
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _from_step_0(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * step / total))


def _until_total_after_warmup(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / total
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def _floor_added(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + peak / 2 * (1 + math.cos(math.pi * done))


def _to_zero(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return peak / 2 * (1 + math.cos(math.pi * done))


def _cut_at_the_floor(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return max(floor, peak / 2 * (1 + math.cos(math.pi * done)))


def _straight(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return peak + (floor - peak) * done


def _whole_turn(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(2 * math.pi * done))


def _quarter_turn(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) * math.cos(math.pi / 2 * done)


def _upside_down(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 - math.cos(math.pi * done))


def _degrees(step, warmup, total, peak, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(180 * done))


def _no_warmup(step, warmup, total, peak, floor):
    if step >= total and step >= warmup:
        return floor
    if step < warmup:
        return peak
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


WARMUP_COSINE = Exercise(
    chapter=8,
    signature="warmup_cosine(step, warmup, total, peak, floor) -> float",
    task="""\
The learning rate of a training step: up along a straight line, then down along half a turn of a
cosine.

- `step` counts from 0. While `step` < `warmup` the rate is `peak` · (`step` + 1) / `warmup`, so
  that the first step is not wasted and step `warmup` − 1 has the rate `peak`.
- After that, from step `total` on, it is `floor`, for ever.
- Between the two it is `floor` + (`peak` − `floor`)/2 · (1 + cos(π · done)), where *done* grows
  from 0 at step `warmup` to 1 at step `total`, in a straight line.
- The first rule that fits decides: a warm-up that is not over when `total` comes goes on. `step`,
  `warmup` and `total` are whole numbers, 0 or above; `warmup` may be 0, or `total`, or more. No
  input is an error. 0 ≤ `floor` ≤ `peak`.
- Return a Python float.""",
    reference=warmup_cosine,
    properties=(
        Property("it warms up along a straight line that does not start at 0", 1, _warming),
        Property("it falls along half a turn of a cosine", 2, _cooling),
        Property("from step total on it stays at the floor", 1, _over),
        Property("no warm-up, nothing but warm-up, nothing to fall", 1, _edges, edge=True),
    ),
    misconceptions=(
        Misconception(
            "begins with a rate of 0",
            "Your first step has the rate 0 and changes nothing: a batch is computed for no "
            "purpose. Count the steps from 1 here: (step + 1) / warmup.",
            _starts_at_zero,
            symptom="step 0 has the rate 0",
        ),
        Misconception(
            "warms up from the floor",
            "Your warm-up rises from `floor` to `peak`. The floor is where the rate ends; the "
            "warm-up rises from nothing.",
            _starts_at_floor,
            symptom="your warm-up begins too high",
        ),
        Misconception(
            "goes beyond the peak",
            "Step `warmup` still belongs to your straight line, which then rises above `peak`: "
            "the highest rate of all comes where the model can least take it. The warm-up ends "
            "*before* step `warmup`.",
            _overshoots,
            symptom="step warmup has a rate above the peak",
        ),
        Misconception(
            "rises again after the end",
            "A cosine does not stop at half a turn: after `total` your rate climbs back to the "
            "peak. Somebody who trains on a little longer loses what was learned. From `total` on "
            "it is `floor`.",
            _rises_again,
            symptom="after the end the rate rises again",
        ),
        Misconception(
            "falls to 0 at the end",
            "From step `total` on you return 0. Asked for is `floor`, where the cosine has "
            "arrived.",
            _zero_at_the_end,
            symptom="after the end the rate is 0",
        ),
        Misconception(
            "divides by zero",
            "For warmup = total the cosine has no steps at all, and you divide by their number. "
            "Decide first which rule holds, then compute.",
            _divides_by_zero,
            symptom="it fails when there is nothing but warm-up",
        ),
        Misconception(
            "ends before the warm-up is over",
            "You look at `total` first. The order of the rules is that of the text: while "
            "`step` < `warmup` it is the warm-up, whatever `total` says.",
            _end_before_warmup,
            symptom="a warm-up that lasts beyond total is cut off",
        ),
        Misconception(
            "starts the cosine at step 0",
            "Your cosine has been running since step 0, so that the rate jumps down when the "
            "warm-up ends. Count from `warmup`: done = 0 there.",
            _from_step_0,
            symptom="the rate jumps where the warm-up ends",
        ),
        Misconception(
            "spreads the cosine over total steps",
            "Your cosine begins at `warmup` and takes `total` steps, so that it is not at the "
            "floor when `total` comes. It has total − warmup steps.",
            _until_total_after_warmup,
            symptom="the rate jumps down at the end",
        ),
        Misconception(
            "adds the floor to the whole",
            "You add `floor` to a cosine of height `peak`: it starts at peak + floor. The height "
            "of the cosine is peak − floor.",
            _floor_added,
            symptom="after the warm-up the rate is above the peak",
        ),
        Misconception(
            "lets the cosine fall to 0",
            "Your cosine falls from `peak` to 0 and jumps up to `floor` at the end. It should end "
            "at the floor: height peak − floor, on top of `floor`.",
            _to_zero,
            symptom="the rate falls below the floor",
        ),
        Misconception(
            "cuts the cosine off at the floor",
            "You take the larger of `floor` and a cosine that falls to 0. It has the right ends "
            "and falls too fast between them. Shrink the cosine to the height peak − floor.",
            _cut_at_the_floor,
            symptom="the rate reaches the floor before the end",
        ),
        Misconception(
            "falls along a straight line",
            "Your rate falls in a straight line. The cosine stays near the peak for longer, falls "
            "fastest in the middle and lands softly.",
            _straight,
            symptom="the way down is straight",
        ),
        Misconception(
            "takes a whole turn",
            "2π is a whole turn: your rate is at the floor halfway and back at the peak at the "
            "end. Half a turn, π, leads down and stays there.",
            _whole_turn,
            symptom="the rate is back at the peak before the end",
        ),
        Misconception(
            "takes a quarter of a turn",
            "You use a quarter of a turn. It falls fastest at the end, where one wants small "
            "steps. Asked for is half a turn, (1 + cos(π · done)) / 2.",
            _quarter_turn,
            symptom="the rate stays high for too long",
        ),
        Misconception(
            "rises where it should fall",
            "1 − cos rises from 0 to 2. The way down is 1 + cos.",
            _upside_down,
            symptom="after the warm-up the rate rises",
        ),
        Misconception(
            "counts the angle in degrees",
            "`math.cos` wants radians: half a turn is π, not 180.",
            _degrees,
            symptom="the rate jumps up and down",
        ),
        Misconception(
            "does not warm up",
            "You begin with the peak. In its first steps a model has gradients that point "
            "anywhere, and an optimiser that has seen none: the rate should rise to the peak.",
            _no_warmup,
            symptom="the first step has the full rate",
        ),
    ),
    hints=(
        "Draw it: three pieces. Where does each begin, and what is the rate at its two ends?",
        "Ask in this order: is it warm-up? is it over? Only then compute how much of the way down "
        "is done, a number from 0 to 1, and put it into half a turn of a cosine whose top is "
        "`peak` and whose bottom is `floor`.",
        "`done = (step - warmup) / (total - warmup)` is safe once the first two cases have "
        "returned. (1 + math.cos(math.pi * done)) / 2 falls from 1 to 0: it mixes `peak` into "
        "`floor`.",
    ),
    minutes=8,
    returns=("the rate",),
    probes=_probes,
)
