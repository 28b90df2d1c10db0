"""Runs `course` as a user would, in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coursework.commands import main


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`run(folder, "grade", "04-scaling")`: exit code and words of the command."""
    monkeypatch.setenv("COLUMNS", "200")

    def course(folder: Path, *arguments: str) -> Ran:
        monkeypatch.chdir(folder)
        monkeypatch.setattr("sys.argv", ["course", *arguments])
        code: Any = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        out, err = capfd.readouterr()
        return Ran(int(code), out, err)

    return course


def snapshot(folder: Path) -> dict[str, str]:
    """Every file under a folder with its hash: equal snapshots mean that nothing was changed."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.rglob("*")
        if p.is_file()
    }
