"""`course feedback` and `course report`: a page for each student, and one about the class."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from coursework.classroom import Course, write_aside
from coursework.commands.arguments import Slugs, chosen
from coursework.commands.console import err, out, say
from coursework.errors import CourseError


def register(app: typer.Typer) -> None:
    app.command()(feedback)
    app.command()(report)


def feedback(
    slugs: Slugs = None,
    student: Annotated[
        list[str] | None, typer.Option(help="Only this student. May be given again.")
    ] = None,
) -> None:
    """Write classroom/feedback/STUDENT/SLUG.html: what passed, what did not, and why.

    The pages show what checks said and what you wrote in formgrader, never a graded input or a
    right answer. Each is one file that asks for nothing else, and is made anew each time.
    Assignments of which nothing has been graded are left out.
    """
    from coursework import feedback as pages

    course = Course.find()
    names = chosen(course, slugs)
    graded = tuple(slug for slug in names if course.all_latest(slug))
    if not graded or (slugs and graded != names):
        missing = " or ".join(slug for slug in names if slug not in graded)
        of = f" of {missing}" if slugs else ""
        raise CourseError(f"nothing{of} has been graded: course grade comes first")
    with err.status("Writing feedback"):
        written = list(pages.write(course, graded, student or []))
    pages_in = f"{len(written)} page{'s' * (len(written) > 1)} in"
    say(out, f"{pages_in} {course.classroom / 'feedback'}.")


def report(
    slugs: Slugs = None,
    to: Annotated[Path | None, typer.Option(help="Default: classroom/report.html.")] = None,
) -> None:
    """Write a page about the class: scores, misconceptions, unnamed wrong answers, what is broken.

    One file, for you alone: it holds names and code.
    """
    from coursework import report as pages

    course = Course.find()
    names = chosen(course, slugs)
    if not any(course.all_latest(slug) for slug in names):
        raise CourseError("nothing has been graded: course grade comes first")
    path = to or course.classroom / "report.html"
    with err.status("Writing the report"):
        write_aside(path, pages.page(course, names, datetime.now()))
    say(out, f"Written to {path}.")
