"""`course new-exercise`, `sync`, `release`: declarations, solutions, student notebooks.

What they do it with loads nbformat, which no other command should have to wait for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coursework import private
from coursework.chapters import by_slug
from coursework.classroom import Course, write_aside
from coursework.commands.arguments import Slugs, chosen, writable
from coursework.commands.console import err, out, say
from coursework.errors import CourseError


def register(app: typer.Typer) -> None:
    app.command()(new_exercise)
    app.command()(sync)
    app.command()(release)


def new_exercise(
    id: Annotated[
        str,
        typer.Argument(
            help="The chapter's number and the name of what is asked for: 04.row_mean. Numbers "
            "from 50 on are for exercises of your own.",
            metavar="ID",
        ),
    ],
    into: Annotated[
        Path | None,
        typer.Option(
            help="The folder of your own exercises, outside of the course. Default: the one that "
            "COURSE_EXERCISES names.",
            metavar="DIR",
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Of a chapter of your own that is not there yet.")
    ] = None,
) -> None:
    """Lay out a new exercise: a small one that works, to be made into yours.

    Writes the declaration, its line in the chapter, three right answers for the tests, and the
    cells of the solution notebook. Nothing is overwritten.
    """
    from coursework.new_exercise import lay_out

    before = private.folder()
    written = lay_out(id, into, title)
    for path in written:
        say(out, str(path))
    slug = written[-1].stem
    if private.folder() != before:
        say(out, f"So that it is found: export {private.VARIABLE}={private.folder()}")
    say(out, f"Now rewrite {written[0].name}, the answer in {written[-1].name} and the right ones.")
    say(out, f"Then: course sync --run {slug} && course release {slug}")


Check = Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if something would.")]


Run = Annotated[
    bool, typer.Option("--run", help="Run the notebooks as well, and store what their cells give.")
]


Seed = Annotated[
    int | None,
    typer.Option(
        help="Let this number choose the wrong function of each bug hunt. Kept until the next "
        "--seed; 0 is the published choice.",
        min=0,
    ),
]


def sync(slugs: Slugs = None, check: Check = False, run: Run = False, seed: Seed = None) -> None:
    """Write points, tasks, checks and hints from the declarations into the solution notebooks."""
    import nbformat

    from coursework.release import read_solution
    from coursework.sync import drift, executed
    from coursework.sync import sync as synced

    course = Course.find()
    off = 0
    for slug in chosen(course, slugs):
        path, chapter = course.master(slug), by_slug(slug)
        notebook = read_solution(course.root, slug)
        if check:
            sentences = drift(notebook, chapter, seed)
            off += len(sentences)
            for sentence in sentences:
                say(err, f"{slug}: {sentence}")
        else:
            notebook = synced(notebook, chapter, seed)
            if run:
                say(err, f"{slug}: running its cells")
                notebook = executed(notebook, path.parent)
            write_aside(path, nbformat.writes(notebook) + "\n")
            say(out, f"{slug}: in step with its declarations")
    if off:
        err.print(f"{off} differences: course sync, and a look at what it changed.")
        raise typer.Exit(1)


def release(
    slugs: Slugs = None,
    check: Check = False,
    to: Annotated[
        Path | None,
        typer.Option(
            help="Also make a folder of what students may have: notebooks, the package, a README."
        ),
    ] = None,
    with_checks: Annotated[
        bool,
        typer.Option(
            "--with-checks",
            help="With --to: give away the declarations of your own assignments as well, right "
            "answers included, so that their checks run on students' machines.",
        ),
    ] = False,
    gradescope: Annotated[
        Path | None,
        typer.Option(
            help="Also make the zip file of one assignment's autograder for Gradescope.",
            metavar="FILE.zip",
        ),
    ] = None,
) -> None:
    """Make the student notebooks from the solutions, with nbgrader.

    With --to, an assignment of your own is given to students only where you name it.
    """
    from coursework import gradescope as autograder
    from coursework import handout
    from coursework.release import release as make_release
    from coursework.release import stale

    course = Course.find()
    names = chosen(course, slugs)
    if check and (to or gradescope):
        raise CourseError("--check changes nothing: leave --to and --gradescope out")
    if with_checks and not (to and any(map(private.is_private, slugs or ()))):
        raise CourseError("--with-checks needs --to, and an assignment of your own by its name")
    if gradescope and len(names) != 1:
        raise CourseError("--gradescope makes the autograder of one assignment: name it")
    if gradescope:
        writable(gradescope)
    if check:
        sentences = stale(course.root, names, progress=True)
        for sentence in sentences:
            say(err, sentence)
        if sentences:
            raise typer.Exit(1)
        return
    changed = make_release(course.root, names)
    for home in private.homes(course.root):
        mine = [slug for slug in names if private.home(course.root, slug) == home]
        words = ", ".join(s for s in mine if s in changed) or "nothing had changed"
        if mine:
            say(out, f"Student notebooks in {home / 'notebooks'}: {words}.")
    if to:
        given = names if slugs else tuple(s for s in names if not private.is_private(s))
        if not given:
            raise CourseError("what is your own is given to students where you name it")
        with err.status("Building the package"):
            laid = handout.make(course, given, to, with_checks=with_checks)
        say(out, f"For students, in {to}: {', '.join(laid)}.")
    if gradescope:
        autograder.pack(course, names[0], gradescope, torch=by_slug(names[0]).needs_torch)
        say(out, f"For Gradescope: {gradescope}. Upload it as the assignment's autograder.")
