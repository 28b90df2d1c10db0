"""What is known beforehand: the inputs of a check, and what our own functions give on them.

A whole class is judged with the same two seeds, and each wrong answer is held beside every
misconception. So inputs are made once, and the reference and the misconceptions run on each once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from coursework import tensors
from coursework.answer import Reply, run_here, takes_too_much
from coursework.exercise import Call
from coursework.steps import arguments_of

SMALL = 100_000  #: bytes of an input; what comes of larger ones is found out again, and not kept


@lru_cache(maxsize=250)
def inputs(calls: Callable[[np.random.Generator], Sequence[Call]], *seed: int) -> tuple[Call, ...]:
    """The calls that a declaration makes with this seed: the same objects each time."""
    return tuple(calls(np.random.default_rng(seed)))


def outcome(function: Callable[..., Any], call: Call) -> Reply:
    """What a function of ours gives on an input."""
    return _kept(function, call) if is_small(call) else _found(function, call)


def is_small(call: Call) -> bool:
    """Whether an input may be kept alive by what is remembered of it."""
    arrays = (a for a in arguments_of(call) if tensors.is_array(a))
    return sum(tensors.numbers(a).nbytes for a in arrays) <= SMALL


def _found(function: Callable[..., Any], call: Call) -> Reply:
    with np.errstate(all="ignore"):
        reply = run_here(function, call)
        if takes_too_much(call, reply):  # perhaps the first time only
            reply = run_here(function, call)
        return reply


_kept = lru_cache(maxsize=5000)(_found)
