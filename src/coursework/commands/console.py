"""Where commands print: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

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
