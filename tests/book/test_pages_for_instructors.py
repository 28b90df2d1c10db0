"""What the pages for instructors tell them to type is there, and does what is said."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import typer.main

from coursework import check, private
from coursework.chapters import PRIVATE
from coursework.commands.program import app
from coursework.judge import sandbox
from coursework.judge.grading import STATUSES
from tests.book.cells import BOOK
from tests.book.conftest import ROOT

TERM = BOOK / "instructors" / "term.md"
GRADING = BOOK / "instructors" / "grading.md"
THREATS = BOOK / "instructors" / "threat-model.md"
OWN = BOOK / "instructors" / "own-exercises.md"
SECURITY = ROOT / "SECURITY.md"
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def code_in(text: str) -> list[str]:
    """What stands in backticks, and the lines for a shell."""
    shell = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    return [*re.findall(r"(?<!`)`([^`]+)`(?!`)", text), *shell.splitlines()]


@pytest.mark.parametrize("page", [GRADING, OWN, THREATS, SECURITY], ids=lambda page: page.name)
def test_every_command_and_option_that_is_named_exists(page):
    lines = [c.partition("#")[0].split() for c in code_in(page.read_text("utf-8"))]
    calls = [words for words in lines if words[:1] == ["course"] and len(words) > 1]
    assert calls
    for _, name, *words in calls:
        assert name in COMMANDS, name
        options = {o for p in COMMANDS[name].params for o in p.opts}
        assert {w for w in words if w.startswith("--")} <= options, words


def test_options_that_stand_alone_belong_to_grading():
    named = {c.split()[0] for c in code_in(GRADING.read_text("utf-8")) if c.startswith("--")}
    assert named == {"--force", "--isolation", "--jobs", "--student"}
    assert named <= {o for p in COMMANDS["grade"].params for o in p.opts}


def test_every_status_is_explained_and_no_other():
    table = re.findall(r"^\| `([a-z ]+)` \|", GRADING.read_text("utf-8"), re.MULTILINE)
    assert tuple(table) == STATUSES


def test_every_level_of_isolation_is_explained_and_every_threat_has_one():
    levels = re.findall(r"^`(\w+)`\n: ", GRADING.read_text("utf-8"), re.MULTILINE)
    assert tuple(levels) == sandbox.LEVELS
    table = THREATS.read_text("utf-8").partition("## By which means")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| .* \| (\w+) \|$", table, re.MULTILINE)[1:]
    assert len(rows) > 10 and set(rows) == {"strict", "both"}


def test_what_a_page_says_of_private_exercises_is_so(capsys):
    page = OWN.read_text("utf-8")
    check("50.token_mean", None)
    assert f"`{capsys.readouterr().out.strip()}`" in page
    assert f"from {PRIVATE[0]} to\n{PRIVATE[-1]} are yours" in page
    assert f"export {private.VARIABLE}=" in page


@pytest.mark.parametrize("page", [TERM, GRADING], ids=lambda page: page.name)
def test_files_of_an_instructors_own_are_not_seen_by_git(page):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    words = {word for code in code_in(page.read_text("utf-8")) for word in code.split()}
    named = sorted(w for w in words if re.fullmatch(r"[\w-]+\.(csv|zip)", w))
    assert named
    asked = ["git", "check-ignore", "--no-index", *named]
    ignored = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert ignored.stdout.split() == named
