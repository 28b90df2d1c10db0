"""Where commands print: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

out = Console()
err = Console(stderr=True)


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is: no markup read into it, no line broken in it."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def progress() -> Progress:
    """A progress bar that leaves nothing behind."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
    )


def counted(number: int, thing: str) -> str:
    """`1 student`, `2 students`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def listed(things: Iterable[str]) -> str:
    """Names in a sentence, told apart by semicolons where one of them has a comma in it."""
    names = list(things)
    return ("; " if any("," in name for name in names) else ", ").join(names)
