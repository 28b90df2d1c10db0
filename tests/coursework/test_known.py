"""What is remembered of inputs: found out once, and no large input is kept alive by it."""

import gc
import weakref

import numpy as np

from coursework.exercise import Call
from coursework.known import SMALL, inputs, is_small, outcome


def test_the_same_seed_gives_the_same_inputs():
    def calls(rng):
        return [Call((rng.standard_normal(3),))]

    assert inputs(calls, 1, 2) is inputs(calls, 1, 2)
    assert not np.array_equal(inputs(calls, 1, 2)[0].args[0], inputs(calls, 1, 3)[0].args[0])


def test_a_function_of_ours_runs_once_on_a_small_input():
    asked = []

    def double(x):
        asked.append(x)
        return 2 * x

    call = Call((np.ones(3),))
    assert outcome(double, call) is outcome(double, call)
    assert len(asked) == 1


def test_a_large_input_is_gone_when_nobody_needs_it():
    call = Call((np.zeros(SMALL),))
    assert not is_small(call)
    outcome(np.sum, call)
    gone = weakref.ref(call)
    del call
    gc.collect()
    assert gone() is None
