"""The walk through a term is followed, command by command, as the page prints it."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from coursework.judge.submission import read_cells
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "book" / "instructors" / "term.md").read_text("utf-8")
#: What has been done before the test begins: the clone, and its environment.
DONE = ("git clone", "make course", ". .venv/bin/activate")


def commands(section: str) -> list[str]:
    """The shell commands of a section, in order."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert blocks, f"the page has no commands under {section!r}"
    lines = [line for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith(DONE)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course as it is cloned, without what only its authors need."""
    folder = tmp_path_factory.mktemp("term") / "attention"
    names = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "nbgrader_config.py")
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in ("src", "solutions", "notebooks"):
        litter = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")
        shutil.copytree(ROOT / name, folder / name, ignore=litter)
    roster = re.search(r"^```text\n(student_id,.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert roster, "the page shows no roster"
    (folder / "class.csv").write_text(roster[1])
    times = re.search(r"^```text\n(lms_id,time.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert times, "the page shows no times"
    (folder / "times.csv").write_text(times[1])
    with zipfile.ZipFile(folder / "submissions.zip", "w") as archive:
        archive.writestr("lovelaceada_101_7_04-scaling.ipynb", _notebook(folder, RIGHT))
        wrong = {**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K}
        archive.writestr("noetheremmy_LATE_102_8_04-scaling.ipynb", _notebook(folder, wrong))
    (folder / "canvas.csv").write_text(
        "Student,ID,SIS Login ID,Section,04-scaling (9)\n    Points Possible,,,,30\n"
        '"Lovelace, Ada",101,ada,A,\n"Noether, Emmy",102,emmy,A,\n'
        '"Kovalevskaya, Sofya",103,sofya,A,\n'
    )
    (folder / "moodle.csv").write_text(
        "Identifier,Full name,Email address,Grade,Grade can be changed\n"
        "Participant 101,Ada Lovelace,ada@example.org,,Yes\n"
        "Participant 102,Emmy Noether,emmy@example.org,,Yes\n"
        "Participant 103,Sofya Kovalevskaya,sofya@example.org,,Yes\n"
    )
    return folder


def _notebook(folder: Path, answers: dict[str, str]) -> str:
    """The released notebook with these answers."""
    notebook = json.loads((folder / "notebooks" / SLUG / f"{SLUG}.ipynb").read_text("utf-8"))
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if cell["metadata"].get("coursework", {}).get("role") == "answer" and name in answers:
            cell["source"] = answers[name]
    return json.dumps(notebook)


def run(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "src"),
        "COLUMNS": "200",
        **more,
    }
    ran = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_a_term_goes_as_the_page_says(folder: Path) -> None:
    for command in commands("Before the term"):
        run(command, folder)
    assert (folder.parent / "for-students" / SLUG / f"{SLUG}.ipynb").is_file()
    said = {command: run(command, folder).stdout for command in commands("Every week")}
    grading = next(out for command, out in said.items() if command.startswith("course grade "))
    assert "your weights are too flat" in grading
    first, with_times = (out for command, out in said.items() if command.startswith("course coll"))
    assert "Late, says the platform: emmy." in first
    assert "Nothing to grade came from: sofya." in first
    assert "04-scaling is due 2027-03-01 18:00 UTC" in first and "nobody will be counted" in first
    assert "Unchanged: ada, emmy." in with_times and "counted late" not in with_times
    people = {r["student_id"]: r for r in rows(folder / "grades.csv")}
    times = [people[who]["timestamp"] for who in ("ada", "emmy")]
    assert times == ["2027-03-01 17:20:00", "2027-03-01 19:45:00"]
    assert float(people["ada"]["score"]) > float(people["emmy"]["score"])
    sofya = people["sofya"]
    assert (sofya["score"], sofya["status"], sofya["last_name"]) == ("", "missing", "Kovalevskaya")
    canvas = {r["ID"]: r["04-scaling (9)"] for r in rows(folder / "for-canvas.csv")}
    moodle = {r["Identifier"]: r["Grade"] for r in rows(folder / "for-moodle.csv")}
    assert canvas["101"] == moodle["Participant 101"] == f"{float(people['ada']['score']):g}"
    assert canvas["103"] == moodle["Participant 103"] == ""
    assert "divides by d_k" in (folder / "classroom" / "report.html").read_text("utf-8")
    assert (folder / "classroom" / "feedback" / "ada" / f"{SLUG}.html").is_file()


def test_gradescopes_file_is_made(folder: Path) -> None:
    for command in commands("On Gradescope"):
        run(command, folder)
    assert zipfile.is_zipfile(folder / "autograder.zip")


def test_nbgraders_exchange_carries_notebooks_to_and_fro(folder: Path, tmp_path: Path) -> None:
    exchange, home = tmp_path / "exchange", tmp_path / "home"
    for path in (exchange, home):
        path.mkdir()
    exchange.chmod(0o777)
    settings = folder / "nbgrader_config.py"
    settings.write_text(settings.read_text() + f"\nc.Exchange.root = {str(exchange)!r}\n")
    student = tmp_path / "student"
    student.mkdir()
    (student / "nbgrader_config.py").write_text(
        "c = get_config()\nc.CourseDirectory.course_id = 'attention'\n"
        f"c.Exchange.root = {str(exchange)!r}\n"
    )
    for command in commands("On a JupyterHub, with nbgrader's exchange"):
        where = student if "fetch" in command else folder
        run(command, where, PYTHONPATH=str(folder / "src"), HOME=str(home))
    times = list((folder / "classroom" / "submitted").glob(f"*/{SLUG}/timestamp.txt"))
    assert times, "nothing was collected"
    assert read_cells(times[0].with_name(f"{SLUG}.ipynb"))[0]
    (fetched,) = (student / SLUG / "feedback").glob(f"*/{SLUG}.html")
    (ours,) = (folder / "classroom" / "feedback").glob(f"{times[0].parts[-3]}/{SLUG}.html")
    assert fetched.read_text("utf-8") == ours.read_text("utf-8")
