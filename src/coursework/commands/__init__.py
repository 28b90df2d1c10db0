"""The `course` command: `course --help` lists what it can do.

Exit codes: 0 all is well, 1 something needs a look, 2 the command cannot run (one sentence says
why, and nothing was changed).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from coursework.commands import authoring, book, classes, doctor, feedback, grading, models, student
from coursework.commands.console import err, say
from coursework.errors import CourseError

app = typer.Typer(
    name="course",
    help="Work with the course on attention: check your answers, grade a class, build the book.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which sets paragraphs anew at any width
    add_completion=False,
)
for part in (student, classes, grading, feedback, authoring, book, models, doctor):
    part.register(app)


def main() -> None:
    """Run a command; what a person can mend is said in a sentence, all else is a traceback."""
    # nbgrader starts alembic by name: it must be found although this environment is not active.
    programs, path = str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)
    if programs not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, path])
    try:
        app()
    except CourseError as error:
        _cannot(str(error))
    except ModuleNotFoundError as error:
        _cannot(f"{error.name} is not installed; instructors need the extras: README, Instructors")
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _cannot(f"the system refuses: {os.strerror(error.errno or 0)}{where}")
    except KeyboardInterrupt:
        err.print("\nStopped. What was finished is kept; the same command goes on from there.")
        sys.exit(2)


def _cannot(sentence: str) -> None:
    end = "" if sentence.endswith((".", "?")) else "."
    say(err, f"course: {sentence}{end}")
    sys.exit(2)
