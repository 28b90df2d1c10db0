"""A command that is interrupted says in a sentence what is kept, and leaves no process behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coursework import feedback, memory
from coursework.classroom import Attempt, Course
from coursework.judge.grading import Result
from tests.coursework.commands.conftest import Ran
from tests.coursework.submissions import RIGHT, SLUG

COURSE = "from coursework.commands import main; main()"


def interrupted(*arguments: Any, **more: Any) -> Any:
    raise KeyboardInterrupt


def test_an_interrupt_is_a_sentence_and_code_130(
    run: Callable[..., Ran], course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Result(SLUG, "unreadable", "The file is a web page.")
    course.save(Attempt("ada", "2026-01-02T03:04:05+00:00", "", "", result))
    monkeypatch.setattr(feedback, "write", interrupted)
    ran = run(course.root, "feedback")
    assert ran.code == 130 and ran.out == ""
    assert ran.err.strip() == (
        "Interrupted: what was finished is kept, and the same command goes on."
    )


def test_an_interrupt_while_commands_are_loaded_is_no_traceback(
    run: Callable[..., Ran], course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = SimpleNamespace(app=interrupted)
    monkeypatch.setitem(sys.modules, "coursework.commands.program", loading)
    ran = run(course.root, "grade")
    assert (ran.code, ran.err.strip()) == (130, "Interrupted: nothing had begun.")


def attempts(course: Course) -> int:
    return len(list((course.classroom / "attempts").glob("*/*/[0-9]*.json")))


def family(pid: int) -> set[int]:
    """A process, and all that it and they have started."""
    found, waiting = set(), [pid]
    while waiting:
        found.add(waiting[-1])
        waiting += memory.children_of(waiting.pop())
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks Linux for processes")
@pytest.mark.parametrize("finished", [0, 2], ids=["while workers get ready", "while it grades"])
def test_grading_that_is_interrupted_says_what_is_kept_and_ends_all_its_processes(
    course: Course, hand_in: Callable[..., Path], finished: int
) -> None:
    for number in range(30):
        hand_in(f"student-{number}", **RIGHT)
    command = [sys.executable, "-c", COURSE, "grade", "--jobs", "2"]
    process = subprocess.Popen(
        command, cwd=course.root, start_new_session=True, stdout=-1, stderr=-1, text=True
    )
    until = time.monotonic() + 120
    gradebook = course.classroom / "gradebook.db"  # opened once there are processes that grade
    while attempts(course) < finished or not gradebook.exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    started = family(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    told = r"(?:Grading: \d+ of 30\n)*"  # how far it was, before
    sentence = re.fullmatch(rf"{told}\s*Interrupted: (\d+) graded and kept; the same .*\.\s*", err)
    assert sentence, err
    assert finished <= int(sentence[1]) == attempts(course) < 30
    while [pid for pid in started if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until  # a parent of workers ends when it has loaded NumPy
        time.sleep(0.01)
