"""Warm parents: processes of the judge that were forked share one, and none depends on another."""

from __future__ import annotations

import io
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from coursework.exercise import Call
from coursework.judge import processes, sandbox
from coursework.judge.session import Session

CHAPTER = 4


@pytest.fixture
def parent() -> Iterator[processes.WarmParent]:
    sandbox.choose_level("strict")  # says why, where strict cannot be had
    processes.get_ready("strict", CHAPTER)
    own = processes._parents.pop((os.getpid(), CHAPTER, False))
    own.close()  # of another test
    processes.get_ready("strict", CHAPTER)
    yield processes._parents[os.getpid(), CHAPTER, False]


def in_forks(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What a function gives in two processes that are forked from this one."""
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        return [f.result() for f in [pool.submit(function, *arguments) for _ in range(2)]]


def doubled(number: int) -> tuple[int, Any]:
    """The warm parent that answers in this process, and what its worker makes of a number."""
    with Session("strict", CHAPTER) as session:
        session.start()
        session.run_cell("double", "def double(x):\n    return 2 * x")
        reply = session.call("double", Call((number,)))
    return processes._parent(CHAPTER, False)._pid, reply.value


def test_forked_processes_share_the_warm_parent_of_the_first(
    parent: processes.WarmParent,
) -> None:
    assert in_forks(doubled, 21) == [(parent._pid, 42)] * 2
    assert parent.alive, "they have left, and it is still there"
    assert doubled(4) == (parent._pid, 8)


def test_where_it_has_died_each_process_starts_its_own(parent: processes.WarmParent) -> None:
    os.killpg(parent._pid, signal.SIGKILL)
    processes._started[parent._pid][1].wait()
    assert not parent.alive
    for pid, value in in_forks(doubled, 21):
        assert pid != parent._pid and value == 42


def test_one_that_died_before_it_listened_is_not_alive() -> None:
    ours, theirs = socket.socketpair()
    line = processes.WarmParent(ours, os.getpid(), io.BytesIO())
    assert line.alive
    ours.sendall(b"join")
    theirs.close()
    assert not line.alive
    ours.close()


def test_a_process_that_leaves_ends_its_own_workers_and_no_other(
    parent: processes.WarmParent,
) -> None:
    with Session("strict", CHAPTER) as session:
        session.start()
        session.run_cell("keep", "kept = 5\ndef keep():\n    return kept")
        in_forks(doubled, 1)
        assert session.call("keep", Call(())).value == 5
