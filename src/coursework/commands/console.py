"""Where commands print: results on stdout, progress and complaints on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

out = Console()
err = Console(stderr=True)


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is: no markup read into it, no line broken in it."""
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)


EVERY = 2.0  #: seconds between two lines about progress where there is no terminal


class Steps(Progress):
    """A bar that leaves nothing behind; where there is no terminal, a line now and then."""

    told = 0.0

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        task, now = self.tasks[task_id], time.monotonic()
        if not self.console.is_terminal and not task.finished and now - self.told > EVERY:
            self.told = now
            say(self.console, f"{task.description}: {task.completed:g} of {task.total:g}")


def progress() -> Steps:
    """How far a command is, on stderr."""
    return Steps(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,  # which would leave an empty line there
    )


def counted(number: int, thing: str) -> str:
    """`1 student`, `2 students`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def listed(things: Iterable[str]) -> str:
    """Names in a sentence, told apart by semicolons where one of them has a comma in it."""
    names = list(things)
    return ("; " if any("," in name for name in names) else ", ").join(names)
