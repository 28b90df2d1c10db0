"""`course collect`: from a learning platform's download to the folders of the class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coursework import times as handed_in
from coursework.classroom import Course
from coursework.collect import Collected
from coursework.collect import collect as bring
from coursework.commands.arguments import chosen
from coursework.commands.console import counted, err, listed, out, say
from coursework.errors import CourseError
from coursework.roster import Roster


def register(app: typer.Typer) -> None:
    app.command()(collect)


def collect(
    slug: Annotated[str, typer.Argument(help="The assignment, such as 04-scaling.")],
    source: Annotated[Path, typer.Argument(help="A zip file or a folder: the download.")],
    roster: Annotated[
        Path | None,
        typer.Option(
            help="A CSV of the class: student_id, last_name, first_name, email, lms_id. Kept for "
            "the next time. Without one, people are called what the platform calls them."
        ),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            help="A CSV of when each student handed in, from the platform's own report: "
            "student_id or lms_id, and time as 2027-03-01T18:00Z (UTC where no zone is named). "
            "Due dates need it for Canvas and Moodle, whose downloads do not say."
        ),
    ] = None,
) -> None:
    """Bring what was handed in on a learning platform to where it is graded.

    Knows the downloads of Canvas, Moodle and Gradescope, nbgrader's exchange, and plain folders
    (STUDENT/FILE.ipynb, or SLUG-STUDENT.ipynb). The newest work of each student counts, what was
    there before is kept in classroom/earlier, and files of nobody known in classroom/unmatched.
    Exit code 1 means that something could not be matched.
    """
    course = Course.find()
    (name,) = chosen(course, [slug])
    people = Roster.read(roster) if roster else Roster.of(course)
    given, strangers = handed_in.read(times, people) if times else ({}, [])
    with err.status(f"Collecting from {source.name}"):
        collected = bring(course, name, source, people, given)
    if people and roster:
        people.keep(course)
    say(out, f"{counted(len(collected.laid), 'student')} with new work in classroom/submitted.")
    for words, things in (
        ("Unchanged", collected.unchanged),
        ("Late, says the platform", collected.late),
        ("Newer work was there already and stays", collected.older),
        ("Nothing to grade came from", collected.missing),
        ("Of another chapter (kept in classroom/unmatched)", collected.misfiled),
        ("Of nobody known, or no notebook (kept in classroom/unmatched)", collected.unmatched),
        ("Times of nobody known", strangers),
    ):
        if things:
            say(out, f"{words}: {listed(things)}.")
    if collected.earlier:
        attempts = counted(collected.earlier, "earlier attempt")
        say(out, f"{attempts} put into classroom/earlier.")
    if collected.timeless:
        _say_who_cannot_be_late(course, name, collected)
    if collected.unmatched or collected.misfiled or strangers:
        raise typer.Exit(1)


def _say_who_cannot_be_late(course: Course, slug: str, collected: Collected) -> None:
    """A due date asks for times, and without one nobody is late: that must not go unsaid."""
    from coursework.late import due_date

    try:
        due = due_date(course, slug)
    except CourseError as error:
        say(err, f"Whether {slug} has a due date cannot be seen: {error}.")
        return
    if due is None:
        return
    if collected.timed:
        whose, what = listed(collected.timeless), "they will not be counted late"
    else:
        whose, what = "anybody", "nobody will be counted late"
    say(
        out,
        f"{slug} is due {due:%Y-%m-%d %H:%M} UTC, and the time of handing in is not known of "
        f"{whose}: {what}. --times FILE.csv gives the times.",
    )
