"""`course grade` and `course grades`: a class, from submissions to a table."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from coursework import batch, platforms, private, spreadsheet
from coursework import grades as table_of_grades
from coursework.classroom import Course, write_aside
from coursework.commands.arguments import Slugs, chosen, writable
from coursework.commands.console import counted, err, listed, out, progress, say
from coursework.errors import CourseError
from coursework.judge.grading import Result
from coursework.judge.sandbox import choose_level, why_not_strict
from coursework.roster import Person, Roster

if TYPE_CHECKING:  # nbgrader, which it needs, is an extra, and slow to load
    from coursework.gradebook import Reread

FORMATS = ("csv", "canvas", "moodle", "gradescope")


def register(app: typer.Typer) -> None:
    app.command()(grade)
    app.command()(grades)


def grade(
    slugs: Slugs = None,
    student: Annotated[
        list[str] | None, typer.Option(help="Only this student. May be given again.")
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Submissions at a time. 0: one for each core.", min=0)
    ] = 0,
    force: Annotated[bool, typer.Option(help="Grade what is unchanged as well.")] = False,
    isolation: Annotated[
        str | None, typer.Option(help="strict or process. Default: the best that there is.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Grade on a Dask cluster: its scheduler's address, such as tcp://10.0.0.1:8786.",
            metavar="ADDRESS",
        ),
    ] = None,
) -> None:
    """Grade what lies in classroom/submitted/STUDENT/SLUG/.

    What has been graded and is unchanged is not graded again. Exit code 1 means that some
    submission needs a look: it could not be read, or grading it failed.
    """
    course = Course.find()
    names = chosen(course, slugs)
    if cluster and jobs:
        raise CourseError("--jobs is for this machine; on a cluster there are as many as workers")
    # On a cluster every worker takes the best that there is on its machine.
    level = isolation if cluster else _level(isolation)
    _name_what_is_not_read(course, names[0])
    everything = batch.jobs_of(course, names, student or [], level)
    if not everything:
        whose = f" of {', '.join(student)}" if student else ""
        raise CourseError(
            f"there is nothing to grade{whose}: "
            f"{course.classroom / 'submitted'}/STUDENT/SLUG/SLUG.ipynb is where it is looked for"
        )
    if cluster:
        from coursework import cluster as machines

        grading = nullcontext(machines.run(everything, cluster, force=force))
    else:
        grading = batch.started(everything, workers=jobs or os.cpu_count() or 1, force=force)
    before = _attempts(course, everything)
    try:
        with grading as coming:  # workers get ready while the gradebook does
            outcomes, rereads = _graded(course, everything, coming)
    except KeyboardInterrupt as interrupt:
        new = _attempts(course, everything) - before
        raise KeyboardInterrupt(
            f"{new} graded and kept; the same command goes on from there"
        ) from interrupt
    _print(outcomes)
    for reread in rereads:
        what = f"{reread.student}, {reread.slug}, {reread.grade_id.replace('_', ' ')}"
        until = "its points stand until somebody reads it again in formgrader"
        say(out, f"Changed after it was graded by hand: {what}: {until}.")
    if any(o.attempt.result.status in ("unreadable", "error") for o in outcomes):
        raise typer.Exit(1)


def _attempts(course: Course, jobs: list[batch.Job]) -> int:
    return sum(len(course.attempts(job.slug, job.student)) for job in jobs)


def _name_what_is_not_read(course: Course, slug: str) -> None:
    """Say what lies in `submitted` and is not graded, and why: each assignment once."""
    submitted, unknown = course.classroom / "submitted", course.unknown_slugs()
    foreign: Counter[str] = Counter()
    for path in course.misplaced():
        _, *folders, _ = path.relative_to(submitted).parts
        if folders and folders[0] in unknown:
            foreign[folders[0]] += 1
        else:
            where = f"It belongs into a folder STUDENT/SLUG, such as ada/{slug}"
            say(err, f"Not read: {path}. {where}.")
    for name, number in foreign.items():
        notebooks = "1 notebook" if number == 1 else f"{number} notebooks"
        say(err, f"Not read: {notebooks} for {name}; {private.unknown(name)}.")


def _level(isolation: str | None) -> str:
    try:
        level = choose_level(isolation)
    except ValueError as error:
        raise CourseError(str(error)) from error
    if level == "process":
        say(err, f"Isolation: process only. {why_not_strict() or 'As you asked'}.")
    return level


def _graded(
    course: Course, jobs: list[batch.Job], coming: Iterator[batch.Outcome]
) -> tuple[list[batch.Outcome], list[Reread]]:
    from coursework import gradebook

    with progress() as bar:
        slugs = sorted({j.slug for j in jobs})
        task = bar.add_task("Preparing the gradebook", total=len(slugs))
        for slug in slugs:
            gradebook.prepare(course, slug)
            bar.advance(task)
        task = bar.add_task("Grading", total=len(jobs))
        outcomes = []
        for outcome in coming:
            outcomes.append(outcome)
            bar.advance(task)
        task = bar.add_task("Writing the gradebook", total=1)
        rereads = gradebook.record(course, [o.attempt for o in outcomes])
        bar.advance(task)
    return sorted(outcomes, key=lambda o: (o.slug, o.student)), rereads


def _print(outcomes: list[batch.Outcome]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("assignment", "student", "score", "status", "why"):
        table.add_column(name, justify="right" if name == "score" else "left", overflow="fold")
    for o in outcomes:
        r = o.attempt.result
        score = f"{r.points:g} / {r.max_points:g}" if r.exercises else "–"
        table.add_row(o.slug, Text(o.student), score, r.status, Text(_why(o)))
    out.print(table)
    new = sum(o.graded_now for o in outcomes)
    levels = sorted({o.attempt.result.isolation for o in outcomes} - {""})
    isolation = f" Isolation: {' or '.join(levels)}." if levels else ""
    say(out, f"{new} graded now, {len(outcomes) - new} unchanged.{isolation}")
    for o in outcomes:
        if o.score_changed and o.before:
            before, now = _points(o.before.result), _points(o.attempt.result)
            say(out, f"Changed: {o.student}, {o.slug}: {before} before, {now} now.")


def _points(result: Result) -> str:
    return f"{result.points:g}" if result.exercises else f"– ({result.status})"


def _why(outcome: batch.Outcome) -> str:
    result = outcome.attempt.result
    repaired = f"Repaired: {'; '.join(result.repairs)}." if result.repairs else ""
    return " ".join(part for part in (result.reason, repaired) if part)


def grades(
    slugs: Slugs = None,
    format: Annotated[str, typer.Option(help="csv, canvas, moodle or gradescope.")] = "csv",
    into: Annotated[
        Path | None,
        typer.Option(
            help="The platform's own export, to be filled in (canvas: the gradebook's; moodle: the "
            "grading worksheet).",
            metavar="EXPORT",
        ),
    ] = None,
    to: Annotated[Path | None, typer.Option(help="File to write. Default: print.")] = None,
) -> None:
    """Write everybody's grades: nbgrader's columns with status and reason, or a platform's file.

    For canvas and moodle, name one assignment and hand over the platform's own export. Exit code 1
    means that a row, a student or the assignment had no counterpart, or another number of points;
    all others are filled in.
    """
    if format not in FORMATS:
        raise CourseError(f"format {format!r} is not known; there are {', '.join(FORMATS)}")
    course = Course.find()
    names = chosen(course, slugs)
    if to is not None:
        writable(to)
    export = _export(format, names, into) if format in ("canvas", "moodle") else ""
    rows = table_of_grades.rows(course, names) if course.classroom.is_dir() else []
    if all(row["status"] == "missing" for row in rows):
        raise CourseError("nothing has been graded: course grade comes first")
    for slug in () if slugs else course.unknown_slugs():
        say(err, f"Not in the table: {slug}; {private.unknown(slug)}.")
    if format == "csv":
        filled = platforms.Filled(table_of_grades.to_csv(rows))
    elif format == "gradescope":
        filled = platforms.gradescope(rows)
    else:
        # Without a roster people are called what the platform calls them.
        people = (Person(r["student_id"], lms_id=r["student_id"], email=r["email"]) for r in rows)
        fill = platforms.canvas if format == "canvas" else platforms.moodle
        filled = fill(export, names[0], rows, Roster.of(course) or Roster(people))
    if to is None:
        sys.stdout.buffer.write(filled.text.encode())
    else:
        write_aside(to, filled.text)
        say(err, f"Written to {to}.")
    _say_what_to_know(rows, filled)
    if filled.strangers or filled.left_over or filled.doubts:
        raise typer.Exit(1)


def _say_what_to_know(rows: list[dict[str, Any]], filled: platforms.Filled) -> None:
    for sentence in filled.doubts:
        say(err, sentence)
    for words, things in (
        ("Rows of nobody who is graded here", filled.strangers),
        ("Graded here, and without a row", filled.left_over),
    ):
        if things:
            say(err, f"{words}: {listed(things)}.")
    waiting = sum(row["status"] == "needs manual" for row in rows)
    if waiting:
        scores = f"{counted(waiting, 'score')} {'is' if waiting == 1 else 'are'} provisional"
        say(err, f"{scores}: open answers wait to be graded by hand, in formgrader.")


def _export(format: str, slugs: tuple[str, ...], into: Path | None) -> str:
    if into is None or len(slugs) != 1:
        raise CourseError(f"--format {format} needs one assignment and --into EXPORT")
    return spreadsheet.read_text(into, "the export")
