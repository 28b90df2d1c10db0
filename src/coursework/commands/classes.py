"""`course collect`: from a learning platform's download to the folders of the class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coursework.classroom import Course
from coursework.collect import collect as bring
from coursework.commands.arguments import chosen
from coursework.commands.console import err, out, say
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
    if roster:
        people.keep(course)
    with err.status(f"Collecting from {source.name}"):
        collected = bring(course, name, source, people)
    say(out, f"{len(collected.laid)} students with new work in classroom/submitted.")
    for words, things in (
        ("Unchanged", collected.unchanged),
        ("Late, says the platform", collected.late),
        ("Nothing came from", collected.missing),
        ("Of nobody known, or no notebook (kept in classroom/unmatched)", collected.unmatched),
    ):
        if things:
            say(out, f"{words}: {', '.join(things)}.")
    if collected.earlier:
        say(out, f"{collected.earlier} earlier attempts are kept in classroom/earlier.")
    if collected.unmatched:
        raise typer.Exit(1)
