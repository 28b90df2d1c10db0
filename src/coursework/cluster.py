"""Grading on more than one machine: submissions over a Dask cluster that is there already.

A task is a pure function of bytes: the solution notebook and the submission travel with it, and its
result travels back. Nothing is shared but the code, which must be the same here and there. Student
code runs where it always runs, in sandboxed children, so that it takes no Dask worker down. Only
the caller writes: a task that is run twice because a worker was lost counts once.
"""

from __future__ import annotations

import gzip
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from coursework import batch
from coursework.classroom import Course, checks_sha256
from coursework.errors import CourseError
from coursework.judge import sandbox
from coursework.judge.grading import Result, grade, versions
from coursework.judge.submission import MAX_BYTES, Unreadable, find_notebook

AT_A_TIME = 512  #: submissions that have left this machine and are not back
LOST_AT_MOST = 3  #: times that one submission is sent again after Dask has given it up
_CONNECT = 30.0  #: seconds


class ClusterError(CourseError):
    """The cluster cannot grade; the message says why. What was finished is kept."""


@dataclass(frozen=True)
class Paper:
    """A submission and all that its result depends on."""

    slug: str
    master: bytes  #: the solution notebook, compressed
    submission: bytes  #: compressed
    repairs: tuple[str, ...]
    seed: int
    isolation: str | None
    checks: str  #: hash of the code that is to grade it
    versions: dict[str, str]  #: and what that code runs on


#: A job, the name of its file, and what is sent or, where there is nothing to send, the result.
Sheet = tuple[batch.Job, str, Paper | Result]


def run(jobs: Sequence[batch.Job], address: str, *, force: bool = False) -> Iterator[batch.Outcome]:
    """Grade on a cluster, and yield each outcome when it is there and its attempt on disk.

    Args:
        jobs: what to grade.
        address: of the scheduler, such as "tcp://10.0.0.1:8786".
        force: grade what is unchanged as well.

    Raises:
        ClusterError: there is no such cluster, it is gone, or its workers have other code than this
            machine or lack the isolation that is wanted.
    """
    done, todo = batch.divide(jobs, force)
    yield from done
    if todo:
        with _connected(address) as client:
            yield from _map(client, _papers(todo))


def _map(client: Any, papers: Iterator[Sheet]) -> Iterator[batch.Outcome]:
    """Send papers, keep what comes back, and send more: never all of them at once."""
    from distributed import as_completed

    out: dict[Any, tuple[batch.Job, str, Paper]] = {}
    lost: Counter[batch.Job] = Counter()
    back = as_completed(loop=client.loop)

    def send(job: batch.Job, name: str, paper: Paper) -> None:
        future = client.submit(mark, paper, pure=False)
        out[future.key] = (job, name, paper)
        back.add(future)

    def fill() -> Iterator[batch.Outcome]:
        while len(out) < AT_A_TIME and (sheet := next(papers, None)):
            job, name, paper = sheet
            if isinstance(paper, Result):
                yield batch.keep(job, name, paper)
            else:
                send(job, name, paper)

    yield from fill()
    for future in back:
        job, name, paper = out.pop(future.key)
        result = _result(future)
        if result is None and lost[job] < LOST_AT_MOST:
            lost[job] += 1
            send(job, name, paper)
            continue
        why = "the cluster lost every worker that tried. The workers' logs say more"
        yield batch.keep(job, name, result or batch.failed(job.slug, job.seed, why))
        yield from fill()


def _result(future: Any) -> Result | None:
    """What a task gave; None if Dask has given it up because its workers were lost.

    Raises:
        ClusterError: there is a reason for which no worker can grade.
    """
    from distributed import KilledWorker

    if future.status in ("cancelled", "lost"):
        raise ClusterError("the connection to the cluster was lost. The same command goes on")
    error = future.exception()
    if error is None:
        return Result.from_json(future.result())
    if isinstance(error, KilledWorker):
        return None
    if isinstance(error, CourseError):
        raise ClusterError(f"a worker of the cluster refuses: {error}") from error
    raise ClusterError(
        f"a worker of the cluster cannot grade ({type(error).__name__}: {error}). Is the course "
        "installed there, in the version that is here?"
    ) from error


def _connected(address: str) -> Any:
    from distributed import Client

    try:
        return Client(address, timeout=_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(f"there is no Dask scheduler at {address} ({error})") from error


def _papers(jobs: Sequence[batch.Job]) -> Iterator[Sheet]:
    masters = {
        job.slug: gzip.compress(Course(job.root).master(job.slug).read_bytes(), mtime=0)
        for job in jobs
    }
    for job in jobs:
        name = ""
        try:
            path, repairs = find_notebook(job.folder, job.slug)
            name = path.name
            paper = Paper(
                job.slug,
                masters[job.slug],
                gzip.compress(_read(path), mtime=0),
                tuple(repairs),
                job.seed,
                job.isolation,
                job.checks,
                versions(),
            )
        except Unreadable as error:
            yield job, name, batch.unreadable(job.slug, job.seed, error)
        else:
            yield job, name, paper


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unreadable(f"the file has more than {MAX_BYTES // 2**20} MB")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"the file cannot be read: {error.strerror}") from error


# On a worker ----------------------------------------------------------------------------------

#: One thread of a Dask worker grades, whichever thread a task runs in: the sandbox's warm parent is
#: told to die with the thread that started it, and serves one submission at a time.
_grader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grader")


def mark(paper: Paper) -> dict[str, Any]:
    """Grade one submission, on a worker; the result is plain data.

    Raises:
        ClusterError: the code here is not the code that shall grade.
        sandbox.NoSandbox: strict isolation is wanted and not to be had here.
    """
    if paper.checks != _checks_here():
        raise ClusterError(
            "its code is not the code on your machine. Install the same version of the course "
            "there, and start the workers anew"
        )
    for what, wanted in paper.versions.items():
        here = versions().get(what)
        if here != wanted:
            raise ClusterError(f"it has {what} {here}, and your machine has {wanted}")
    sandbox.choose_level(paper.isolation)
    return _grader.submit(_grade, paper).result().to_json()


_checks_here = cache(checks_sha256)


def _grade(paper: Paper) -> Result:
    with tempfile.TemporaryDirectory(prefix="course-paper-") as folder:
        master, submission = (
            Path(folder) / part / f"{paper.slug}.ipynb" for part in ("master", "submission")
        )
        for path, data in ((master, paper.master), (submission, paper.submission)):
            path.parent.mkdir()
            path.write_bytes(gzip.decompress(data))
        try:
            return grade(
                master,
                submission,
                seed=paper.seed,
                isolation=paper.isolation,
                repairs=paper.repairs,
            )
        except Exception as error:  # one submission never stops another: it says what is wrong
            return batch.failed(paper.slug, paper.seed, f"{type(error).__name__}: {error}")
