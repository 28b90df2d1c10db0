"""Grading over a Dask cluster gives what grading here gives, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import Client, LocalCluster

from coursework import batch, cluster
from coursework.classroom import Course
from coursework.judge import sandbox
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow
HandIn = Callable[..., Path]
SLOW = {**RIGHT, "row_entropy": f"import time; time.sleep(1)\n{RIGHT['row_entropy']}"}


@pytest.fixture(scope="module")
def dask_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A scheduler and two workers, each a process of its own."""
    folder = tmp_path_factory.mktemp("dask")
    # A task whose worker is lost is given up at once, so that we see what we make of it.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            local_directory=str(folder),
            silence_logs=50,
        ) as workers,
    ):
        yield workers


@pytest.fixture
def address(dask_cluster: LocalCluster) -> str:
    with Client(dask_cluster) as client:
        client.wait_for_workers(2, timeout=60)  # those that an earlier test has killed are back
    return dask_cluster.scheduler_address


def jobs_of(course: Course, isolation: str | None = None) -> list[batch.Job]:
    return batch.jobs_of(course, [SLUG], [], isolation)


def graded(course: Course, address: str, **options: Any) -> dict[str, batch.Outcome]:
    return {o.student: o for o in cluster.run(jobs_of(course), address, **options)}


def essence(outcome: batch.Outcome) -> dict[str, Any]:
    """A result without what may differ between two runs."""
    return {**outcome.attempt.result.to_json(), "seconds": 0}


def busy_worker(address: str) -> psutil.Process:
    """A worker's process that is grading: it has children."""
    with Client(address) as client:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            busy = {worker for worker, keys in client.processing().items() if keys}
            pids = client.run(os.getpid, workers=list(busy)) if busy else {}
            for pid in pids.values():
                process = psutil.Process(pid)
                if process.children():
                    return process
            time.sleep(0.05)
    raise AssertionError("no worker was grading")


def test_a_cluster_gives_what_this_machine_gives(
    hand_in: HandIn, course: Course, address: str
) -> None:
    hand_in("ada", open_question="Because.", **RIGHT)
    hand_in("bob", **{**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K})
    hand_in("crash", **{**RIGHT, "row_entropy": "def row_entropy(w):\n    import os; os._exit(0)"})
    hand_in("page", b"<html>")
    hand_in("renamed", name="mine (1).ipynb", **RIGHT)
    (course.classroom / "submitted" / "nothing" / SLUG).mkdir(parents=True)
    there = graded(course, address)
    here = {job.student: batch.grade_job(job) for job in jobs_of(course)}
    assert {s: essence(o) for s, o in there.items()} == {s: essence(o) for s, o in here.items()}
    assert there["renamed"].attempt.notebook == "mine (1).ipynb"
    assert there["nothing"].attempt.result.status == "unreadable"
    assert there["ada"].attempt.result.isolation == sandbox.choose_level()


def test_what_is_unchanged_is_not_sent_again_unless_forced(
    hand_in: HandIn, course: Course, address: str
) -> None:
    hand_in("ada", **RIGHT)
    graded(course, address)
    hand_in("bob", **RIGHT)
    assert {s for s, o in graded(course, address).items() if o.graded_now} == {"bob"}
    assert all(o.graded_now for o in graded(course, address, force=True).values())


def test_submissions_are_sent_a_few_at_a_time(
    hand_in: HandIn, course: Course, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "AT_A_TIME", 2)
    for number in range(3):
        hand_in(f"bad-{number}", b"")  # read here: nothing comes back for which another is sent
        (course.classroom / "submitted" / f"none-{number}" / SLUG).mkdir(parents=True)
        hand_in(f"right-{number}", **RIGHT)
    outcomes = graded(course, address)
    assert len(outcomes) == 9
    assert sum(o.attempt.result.status == "graded" for o in outcomes.values()) == 3


def test_a_worker_killed_in_the_middle_loses_nothing_and_doubles_nothing(
    hand_in: HandIn, course: Course, address: str
) -> None:
    for number in range(6):
        hand_in(f"student-{number}", **SLOW)
    outcomes = {}
    running = cluster.run(jobs_of(course), address)
    first = next(running)
    outcomes[first.student] = first
    victim = busy_worker(address)
    children = victim.children(recursive=True)
    victim.send_signal(signal.SIGKILL)
    for outcome in running:
        assert outcome.student not in outcomes
        outcomes[outcome.student] = outcome
    assert len(outcomes) == 6
    assert {o.attempt.result.status for o in outcomes.values()} == {"graded"}
    assert len({o.attempt.result.points for o in outcomes.values()}) == 1
    files = sorted(p.name for p in (course.classroom / "attempts" / SLUG).glob("*/*"))
    assert files == ["0001.json"] * 6
    if sandbox.choose_level() == "strict":
        _, left = psutil.wait_procs(children, timeout=30)
        # In a container whose first process reaps nobody, the dead stay listed as zombies.
        alive = [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
        assert not alive, "the student's processes die with the worker that started them"


def test_a_submission_whose_workers_are_always_lost_is_an_error_and_is_tried_again(
    hand_in: HandIn, course: Course, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "LOST_AT_MOST", 0)
    hand_in("ada", **SLOW)
    (job,) = jobs_of(course)
    sheets = cluster._papers([job])
    with Client(address) as client:
        running = cluster._map(client, _and_then(sheets, lambda: busy_worker(address).kill()))
        (outcome,) = running
    result = outcome.attempt.result
    assert result.status == "error" and "lost every worker" in result.reason
    monkeypatch.undo()
    assert graded(course, address)["ada"].attempt.result.status == "graded"


def _and_then(items: Iterator[Any], do: Callable[[], None]) -> Iterator[Any]:
    """The items; when another one is asked for, something is done first."""
    yield from items
    do()


def test_workers_with_other_code_are_refused_with_a_sentence(
    hand_in: HandIn, course: Course, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)
    monkeypatch.setattr(batch, "checks_sha256", lambda: "another")
    with pytest.raises(cluster.ClusterError, match="its code is not the code on your machine"):
        graded(course, address)
    assert not (course.classroom / "attempts").exists()


def test_workers_with_another_numpy_are_refused_with_a_sentence(
    hand_in: HandIn, course: Course, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)
    mine = cluster.versions() | {"numpy": "1.0"}
    monkeypatch.setattr(cluster, "versions", lambda: mine)
    with pytest.raises(cluster.ClusterError, match=r"it has numpy .*, and your machine has 1\.0"):
        graded(course, address)


def test_workers_that_lack_the_isolation_that_is_wanted_are_refused(
    hand_in: HandIn, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in("ada", **RIGHT)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=":0", env={"PATH": "/nowhere"}
        ) as bare,
        pytest.raises(cluster.ClusterError, match="bubblewrap is not installed"),
    ):
        list(cluster.run(jobs_of(course, "strict"), bare.scheduler_address))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_no_scheduler_is_said_to_be_none(
    hand_in: HandIn, course: Course, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_CONNECT", 1.0)
    hand_in("ada", **RIGHT)
    with pytest.raises(cluster.ClusterError, match=f"no Dask scheduler at {address}"):
        graded(course, address)


def test_a_scheduler_that_goes_away_ends_the_run_and_keeps_what_was_finished(
    hand_in: HandIn, course: Course
) -> None:
    for number in range(4):
        hand_in(f"student-{number}", **SLOW)
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as brief:
        running = cluster.run(jobs_of(course), brief.scheduler_address)
        first = next(running)
        brief.close()
        with pytest.raises(cluster.ClusterError, match="The same command goes on"):
            list(running)
    latest = course.latest(SLUG, first.student)
    assert latest == first.attempt
