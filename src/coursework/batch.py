"""Grading a class: every submission once, side by side, none able to stop another."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from coursework.chapters import by_slug
from coursework.classroom import Attempt, Course, checks_sha256
from coursework.errors import CourseError
from coursework.judge import processes, sandbox
from coursework.judge.grading import Master, Result, grade
from coursework.judge.submission import Unreadable, find_notebook, sha256
from coursework.plain import readable


@dataclass(frozen=True)
class Job:
    """One submission to be graded."""

    root: Path
    slug: str
    student: str
    folder: Path
    seed: int
    isolation: str | None
    checks: str


@dataclass(frozen=True)
class Outcome:
    """One submission that was graded, or that needed no grading."""

    student: str
    slug: str
    attempt: Attempt
    before: Attempt | None  #: the attempt that counted until now
    graded_now: bool

    @property
    def score_changed(self) -> bool:
        if self.before is None:
            return False
        before, now = self.before.result, self.attempt.result
        return (before.points, bool(before.exercises)) != (now.points, bool(now.exercises))


def jobs_of(
    course: Course, slugs: Sequence[str], students: Sequence[str], isolation: str | None
) -> list[Job]:
    """Everything that was handed in for these assignments by these students (none: by all)."""
    checks = checks_sha256()
    return [
        Job(course.root, slug, student, folder, course.seed, isolation, checks)
        for slug in slugs
        for student, folder in course.submissions(slug).items()
        if not students or student in students
    ]


def run(jobs: Sequence[Job], *, workers: int, force: bool = False) -> Iterator[Outcome]:
    """Grade, and yield each outcome when it is there. What is unchanged is not graded again.

    An attempt is on disk before its outcome is seen here: an interrupted run loses nothing.
    """
    with started(jobs, workers=workers, force=force) as outcomes:
        yield from outcomes


@contextmanager
def started(
    jobs: Sequence[Job], *, workers: int, force: bool = False
) -> Iterator[Iterator[Outcome]]:
    """`run`, for which processes get ready from now on. Nothing is graded until it is asked for."""
    done, todo = divide(jobs, force)
    if not todo:
        yield iter(done)
        return
    for slug in {job.slug for job in todo}:
        processes.site(by_slug(slug).number)  # made here, and shared by the processes of the pool
    _get_ready(todo[0])
    with _pool(min(workers, len(todo))) as pool:
        yield chain(done, _as_they_come(pool, todo))


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that grade. An interrupt is for this process alone, and it ends them."""
    pool = ProcessPoolExecutor(max_workers=workers, initializer=_leave_interrupts_to_the_parent)
    try:
        yield pool
    except KeyboardInterrupt:
        for process in list((pool._processes or {}).values()):  # Python 3.14: terminate_workers()
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    """In a process that grades: Ctrl-C reaches it too, and would be a traceback for each.

    It ends by an exception, so that the worker with a student's code is ended before.
    """
    signal.signal(signal.SIGINT, lambda *_: None)  # a handler: SIG_IGN would pass on to workers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def _get_ready(job: Job) -> None:
    """Start what will be needed: loading PyTorch takes longer than grading a submission.

    What fails here will fail again, and be told of, where a submission is graded.
    """
    with suppress(CourseError, OSError, Unreadable, ValueError):
        asked = Master.read(Course(job.root).master(job.slug))
        level = sandbox.choose_level(job.isolation)
        processes.get_ready(level, asked.chapter.number, torch=asked.needs_torch)


def _as_they_come(pool: ProcessPoolExecutor, todo: Sequence[Job]) -> Iterator[Outcome]:
    futures: dict[Future[Outcome], Job] = {}
    lost: list[Job] = []
    for job in todo:
        try:
            futures[pool.submit(grade_job, job)] = job
        except BrokenProcessPool:
            lost.append(job)
    for future in as_completed(futures):
        try:
            yield future.result()
        except BrokenProcessPool:
            lost.append(futures[future])
    for job in lost:
        yield _grade_alone(job)


def _grade_alone(job: Job) -> Outcome:
    """Grade what was on its way when a process of the judge died: it may be the reason."""
    with _pool(1) as pool:
        try:
            return pool.submit(grade_job, job).result()
        except BrokenProcessPool:
            return keep(job, "", failed(job.slug, job.seed, "the process that graded it died"))


def divide(jobs: Sequence[Job], force: bool = False) -> tuple[list[Outcome], list[Job]]:
    """What need not be graded again, and what has still to be graded."""
    done: list[Outcome] = []
    todo: list[Job] = []
    for job in jobs:
        unchanged = None if force else _unchanged(job)
        if unchanged:
            done.append(Outcome(job.student, job.slug, unchanged, unchanged, graded_now=False))
        else:
            todo.append(job)
    return done, todo


def _unchanged(job: Job) -> Attempt | None:
    latest = Course(job.root).latest(job.slug, job.student)
    if latest is None:
        return None
    try:
        path, _ = find_notebook(job.folder, job.slug)
        submission = sha256(path)
    except Unreadable as error:
        same = unreadable(job.slug, job.seed, error).reason == latest.result.reason
        return latest if same else None
    except OSError:
        return None
    master = sha256(Course(job.root).master(job.slug))
    return latest if latest.is_of(submission, master, job.checks) else None


def grade_job(job: Job) -> Outcome:
    """Grade one submission and keep the attempt."""
    course = Course(job.root)
    name = ""
    try:
        path, repairs = find_notebook(job.folder, job.slug)
        name = path.name
        result = grade(
            course.master(job.slug), path, seed=job.seed, isolation=job.isolation, repairs=repairs
        )
    except Unreadable as error:
        result = unreadable(job.slug, job.seed, error)
    except Exception as error:  # one submission never stops another: it says what is wrong
        result = failed(job.slug, job.seed, f"{type(error).__name__}: {error}")
    return keep(job, name, result)


def unreadable(slug: str, seed: int, error: Unreadable) -> Result:
    """The result of a submission with no notebook in it."""
    return Result(slug, "unreadable", readable(f"{error}."), seed=seed)


def failed(slug: str, seed: int, why: str) -> Result:
    """The result where grading failed, and not the student. The next run tries again."""
    reason = readable(f"grading failed on our side: {why}")
    return Result(slug, "error", reason, seed=seed)


def keep(job: Job, notebook: str, result: Result) -> Outcome:
    """Write the attempt that is the truth from here on.

    Args:
        job: what was graded.
        notebook: the name of the submission's file; empty where there was none.
        result: what came of it.
    """
    course = Course(job.root)
    before = course.latest(job.slug, job.student)
    time = datetime.now(UTC).isoformat(timespec="seconds")
    attempt = Attempt(job.student, time, job.checks, readable(notebook), result)
    course.save(attempt)
    return Outcome(job.student, job.slug, attempt, before, graded_now=True)
