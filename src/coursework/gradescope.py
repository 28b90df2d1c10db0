"""Grading on Gradescope: what is uploaded there, and what runs there.

`pack` makes the zip file of an assignment's autograder. On Gradescope `setup.sh` installs the
course from it, and `run_autograder` calls `main`, which grades `/autograder/submission` and writes
`/autograder/results/results.json`: one test for each property, in the check's own words.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coursework import private
from coursework.classroom import Course, write_aside
from coursework.errors import CourseError
from coursework.judge.grading import Graded, Result, grade
from coursework.judge.submission import Unreadable, find_notebook

#: What the package is built from; solutions other than the assignment's stay here.
PACKAGE = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src")
EXTRAS = "judge"

SETUP = """#!/usr/bin/env bash
# Runs once, when Gradescope builds the autograder's image.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
for version in 3.13 3.12 3.11; do
  if apt-get install -qy "python$version" "python$version-venv"; then break; fi
done
apt-get install -qy bubblewrap || echo "without bubblewrap: isolation by processes only"
"python$version" -m venv /autograder/environment
cd /autograder/source
/autograder/environment/bin/pip install -q "./course[{extras}]"{torch}
"""
TORCH = "\n/autograder/environment/bin/pip install -q torch --index-url " + (
    "https://download.pytorch.org/whl/cpu"
)
RUN = """#!/usr/bin/env bash
# Runs for each submission.
PATH="/autograder/environment/bin:$PATH"{variable}
exec /autograder/environment/bin/python -m coursework.gradescope {slug} /autograder
"""
OWN = f"\nexport {private.VARIABLE}=/autograder/source/exercises"  #: for private assignments


def pack(course: Course, slug: str, to: Path, *, torch: bool) -> None:
    """Make the zip file of an assignment's autograder.

    Args:
        course: where the solutions are.
        slug: the assignment.
        to: the file.
        torch: whether answers need PyTorch.

    Raises:
        CourseError: the course's folder does not hold what the package is built from.
    """
    missing = [name for name in PACKAGE if not (course.root / name).exists()]
    if missing:
        raise CourseError(f"{course.root} lacks {missing[0]}: the package is built from it")
    to.parent.mkdir(parents=True, exist_ok=True)
    aside = to.with_name(f".{to.name}.new")
    try:
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
            _executable(archive, "setup.sh", SETUP.format(extras=EXTRAS, torch=TORCH * torch))
            own = private.folder() if private.is_private(slug) else None
            run = RUN.format(slug=slug, variable=OWN if own else "")
            _executable(archive, "run_autograder", run)
            for path in private.files() if own else ():
                archive.write(path, Path("exercises") / path.relative_to(own))  # type: ignore[arg-type]
            archive.write(course.master(slug), f"solutions/{slug}/{slug}.ipynb")
            for path in _package(course.root):
                archive.write(path, Path("course") / path.relative_to(course.root))
        aside.replace(to)
    finally:
        aside.unlink(missing_ok=True)


def _package(root: Path) -> Iterator[Path]:
    for name in PACKAGE:
        path = root / name
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            litter = any(p == "__pycache__" or p.endswith(".egg-info") for p in file.parts)
            if file.is_file() and not litter:
                yield file


def _executable(archive: zipfile.ZipFile, name: str, text: str) -> None:
    entry = zipfile.ZipInfo(name, date_time=(2000, 1, 1, 0, 0, 0))
    entry.external_attr = 0o755 << 16
    archive.writestr(entry, text)


# On Gradescope --------------------------------------------------------------------------------


def results(result: Result) -> dict[str, Any]:
    """A result as Gradescope reads it."""
    if not result.exercises:
        words = f"What you handed in could not be read: {result.reason}"
        return {"score": 0.0, "output": words, "visibility": "visible", "tests": []}
    repaired = [f"Repaired: {note}." for note in result.repairs]
    by_hand = [
        f"{q.grade_id.replace('_', ' ')}: {q.max_points:g} points, given by a person."
        for q in result.manual
    ]
    return {
        "score": result.points,
        "execution_time": round(result.seconds),
        "output": "\n".join([*repaired, *by_hand, f"Isolation: {result.isolation}."]),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [test for exercise in result.exercises for test in _tests(exercise)],
    }


def _tests(exercise: Graded) -> Iterator[dict[str, Any]]:
    """One test for each property; what the check says stands at the first that does not hold."""
    told = False
    for name, points, most in exercise.properties:
        holds = points == most
        test: dict[str, Any] = {
            "name": f"{exercise.exercise}: {name}",
            "score": points,
            "max_score": most,
            "status": "passed" if holds else "failed",
            "visibility": "visible",
        }
        if not holds and not told:
            test["output"] = exercise.feedback
            told = True
        yield test


def main(slug: str, root: Path) -> None:
    """Grade what lies in `root/submission`, and write `root/results/results.json`."""
    master = root / "source" / "solutions" / slug / f"{slug}.ipynb"
    try:
        path, notes = find_notebook(root / "submission", slug)
        result = grade(master, path, repairs=notes)
    except Unreadable as error:
        result = Result(slug, "unreadable", f"{error}.")
    text = json.dumps(results(result), indent=1, ensure_ascii=False)
    write_aside(root / "results" / "results.json", f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
