"""The `course` command: `course --help` lists what it can do.

Exit codes: 0 all is well, 1 something needs a look, 2 the command cannot run (one sentence says
why, and nothing was changed), 130 it was interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from coursework.errors import CourseError


def main() -> None:
    """Run a command; what a person can mend is said in a sentence, all else is a traceback."""
    # nbgrader starts alembic by name: it must be found although this environment is not active.
    programs, path = str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)
    if programs not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([programs, path])
    try:
        # Loading takes a second, in which one can be interrupted as well.
        from coursework.commands.program import app

        app()
    except CourseError as error:
        _cannot(str(error))
    except ModuleNotFoundError as error:
        _cannot(f"{error.name} is not installed; instructors need the extras: README, Instructors")
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _cannot(f"the system refuses: {os.strerror(error.errno or 0)}{where}")
    except KeyboardInterrupt:
        print("\nInterrupted: nothing had begun.", file=sys.stderr)
        sys.exit(130)


def _cannot(sentence: str) -> None:
    from coursework.commands.console import err, say

    end = "" if sentence.endswith((".", "?")) else "."
    say(err, f"course: {sentence}{end}")
    sys.exit(2)
