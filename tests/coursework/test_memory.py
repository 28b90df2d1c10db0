"""What a call needs at its peak is known, whoever allocates it, and a fork cannot hide it."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import torch

from coursework.answer import LocalAnswer, run_here, takes_too_much
from coursework.evaluate import evaluate_exercise
from coursework.exercise import Call, Exercise, Property
from coursework.memory import (
    MIB,
    children_of,
    give_back_free_memory,
    keep_exact_accounts,
    peak_of,
    sizes_of,
    used_by_fork,
)
from coursework.withhold import Withholding

N = 2 * MIB  #: numbers of 8 bytes


def one_array() -> float:
    return float(np.ones(N).sum())


def one_tensor() -> float:
    return float(torch.ones(N, dtype=torch.float64).sum())


def pieces_kept_until_the_end() -> int:
    pieces = [np.ones(N // 16) for _ in range(16)]
    return len(pieces)


def tensors_kept_until_the_end() -> int:
    pieces = [torch.ones(N // 16, dtype=torch.float64) for _ in range(16)]
    return len(pieces)


def pieces_freed_one_by_one() -> float:
    return sum(float(np.ones(N // 16).sum()) for _ in range(16))


def tensors_freed_one_by_one() -> float:
    return sum(float(torch.ones(N // 16, dtype=torch.float64).sum()) for _ in range(16))


LARGE = (one_array, one_tensor, pieces_kept_until_the_end, tensors_kept_until_the_end)
SMALL = (pieces_freed_one_by_one, tensors_freed_one_by_one)


@pytest.mark.parametrize("function", LARGE)
def test_the_peak_counts_all_that_is_there_at_once(function: Callable[[], float]) -> None:
    for _ in range(2):  # memory that was freed before is counted again
        assert 15 * MIB <= peak_of(function)[1] < 20 * MIB  # the system counts roughly


@pytest.mark.parametrize("function", SMALL)
def test_the_peak_counts_nothing_that_was_freed_in_time(function: Callable[[], float]) -> None:
    function()
    assert MIB / 2 <= peak_of(function)[1] < 4 * MIB


def test_a_call_with_a_limit_is_measured_and_one_without_is_not() -> None:
    def answer(n: int) -> float:
        return float(np.ones(n).sum())

    assert run_here(answer, Call((N,))).memory is None
    for ask in (
        lambda call: run_here(answer, call),
        LocalAnswer(answer, Withholding(set())).ask,
    ):
        small, large = Call((N // 16,), memory=8 * MIB), Call((N,), memory=8 * MIB)
        assert not takes_too_much(small, ask(small))
        assert takes_too_much(large, ask(large))


TOTAL = Exercise(
    chapter=4,
    signature="total(x)",
    task="",
    reference=lambda x: float(x.sum()),
    properties=(Property("", 1, lambda rng: [Call((rng.random(3),), memory=8 * MIB)]),),
    misconceptions=(),
    hints=("", "", ""),
    minutes=1,
)


def needing_memory(times: int) -> Callable[[np.ndarray], float]:
    """An answer that needs too much of it in its first calls."""
    turn = iter(range(10))
    return lambda x: float((np.ones(N)[: x.size] * x).sum() if next(turn) < times else x.sum())


def test_what_is_needed_the_first_time_only_costs_nothing() -> None:
    assert evaluate_exercise(TOTAL, needing_memory(1), (0,)).passed
    assert not evaluate_exercise(TOTAL, needing_memory(2), (0,)).passed


def test_neither_a_kept_result_nor_a_made_up_one_passes_the_second_time() -> None:
    kept: dict[bytes, float] = {}

    def keeps(x: np.ndarray) -> float:
        if x.tobytes() not in kept:
            kept[x.tobytes()] = needing_memory(1)(x)
        return kept[x.tobytes()]

    first = iter((needing_memory(1),))
    for answer in (keeps, lambda x: next(first, lambda x: 1.0)(x)):
        assert not evaluate_exercise(TOTAL, answer, (0,)).passed


def test_an_error_in_a_measured_call_is_reported_as_ever() -> None:
    def answer() -> None:
        raise KeyError("no")

    reply = run_here(answer, Call((), memory=MIB))
    assert reply.raised is not None
    assert reply.raised.kind == "KeyError"


# Seen from another process -------------------------------------------------------------------


def _used(work: Callable[[], object]) -> int:
    """What a fork of this process needs for `work`, as this process sees it."""
    give_back_free_memory()
    before = sizes_of(os.getpid())
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        keep_exact_accounts()
        work()
        os.write(ready[1], b"!")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    assert child in children_of(os.getpid())
    after = sizes_of(child)
    os.write(done[1], b"!")
    os.waitpid(child, 0)
    for end in (*ready, *done):
        os.close(end)
    assert before and after
    return used_by_fork(before, after)


@pytest.mark.parametrize("function", LARGE)
@pytest.mark.slow
def test_a_fork_is_charged_with_what_it_allocates(function: Callable[[], float]) -> None:
    assert 15 * MIB <= _used(function) < 22 * MIB


@pytest.mark.parametrize("function", SMALL)
@pytest.mark.slow
def test_a_fork_is_not_charged_with_what_it_freed_in_time(function: Callable[[], float]) -> None:
    assert _used(function) < 4 * MIB


@pytest.mark.slow
def test_a_buffer_from_before_the_fork_is_charged_when_it_is_written_to() -> None:
    buffers = [np.ones(N)]

    def fill() -> None:
        buffers[0][:] = 2

    def fill_and_free() -> None:
        fill()
        buffers.clear()

    assert _used(lambda: float(buffers[0][:100].sum())) < MIB
    assert _used(fill) >= 11 * MIB
    assert _used(fill_and_free) >= 11 * MIB


def test_of_a_process_that_is_not_there_nothing_is_known() -> None:
    assert sizes_of(2**22 + 1) is None
    assert children_of(2**22 + 1) == []
