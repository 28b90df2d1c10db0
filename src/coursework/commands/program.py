"""All commands, and what becomes of one that is interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from coursework.commands import authoring, book, classes, doctor, feedback, grading, models, student
from coursework.commands.console import err, say


class Commands(TyperGroup):
    """Ends a command that is interrupted with a sentence, for which Typer has none."""

    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with _interrupt_told():
            return super().make_context(*arguments, **more)

    def invoke(self, ctx: Any) -> Any:
        with _interrupt_told():
            return super().invoke(ctx)


@contextmanager
def _interrupt_told() -> Iterator[None]:
    """Say what an interrupt leaves behind, which a command may know best."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        kept = "what was finished is kept, and the same command goes on"
        say(err, f"\nInterrupted: {interrupt.args[0] if interrupt.args else kept}.")
        raise typer.Exit(130) from interrupt


app = typer.Typer(
    name="course",
    cls=Commands,
    help="Work with the course on attention: check your answers, grade a class, build the book.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which sets paragraphs anew at any width
    add_completion=False,
)
for part in (student, classes, grading, feedback, authoring, book, models, doctor):
    part.register(app)
