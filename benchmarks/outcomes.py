"""What becomes of every kind of submission: `course grade` beside `nbgrader autograde`.

    python benchmarks/outcomes.py

Each case of tests/coursework/judge/cases.py is handed in alone, as 04-scaling, and graded by both
with the same checks. Counted is whether the score is the one that the work has earned. Both run
behind walls here, with limits on memory, processes and time, because some cases would harm the
machine. The result is written to book/data/outcomes.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from coursework import batch, gradebook  # noqa: E402
from coursework.chapters import by_slug  # noqa: E402
from coursework.classroom import Course  # noqa: E402
from coursework.judge.sandbox import installations  # noqa: E402
from coursework.sync import skeleton  # noqa: E402
from tests.coursework.judge.cases import (  # noqa: E402
    BAD,
    DAMAGED,
    FULL,
    ODD,
    POINTS,
    UNREADABLE,
    Case,
    Folder,
    changed,
)
from tests.coursework.submissions import SLUG, notebook_maker  # noqa: E402

STUDENT = "student"
SECONDS = 180  #: after which `nbgrader autograde` of one submission is ended
SOMEBODY = 61_999  #: a user of its own, where we are root, so that a limit on processes holds
LESS = FULL - POINTS["row_entropy"]

#: A family's name, its cases, and the score that is right: None is no score at all.
FAMILIES: dict[str, tuple[dict[str, Case], float | None]] = {
    "as it should be": ({"a right notebook": changed(lambda notebook: None)}, FULL),
    "damaged, but the work is there": (DAMAGED, FULL),
    "odd, but right": (ODD, FULL),
    "one exercise runs badly": (BAD, LESS),
    "unreadable": ({name: case for name, (case, _) in UNREADABLE.items()}, None),
}


@dataclass(frozen=True)
class Outcome:
    """What one case came to."""

    score: float | None
    ended: bool  #: by itself, within the time


def make_course(folder: Path) -> Course:
    """A course whose only assignment is chapter 04."""
    shutil.copyfile(ROOT / "nbgrader_config.py", folder / "nbgrader_config.py")
    course = Course(folder)
    course.master(SLUG).parent.mkdir(parents=True)
    nbformat.write(skeleton(by_slug(SLUG)), course.master(SLUG))
    path = course.classroom / "submitted" / STUDENT / SLUG
    path.mkdir(parents=True)
    return course


def by_us(course: Course) -> Outcome:
    (job,) = batch.jobs_of(course, [SLUG], [], None)
    result = batch.grade_job(job).attempt.result
    return Outcome(None if result.status == "unreadable" else result.points, True)


def by_nbgrader(course: Course) -> Outcome:
    """The score in the gradebook after nbgrader's two commands."""
    confined(course.root, "nbgrader", "generate_assignment", SLUG)
    ended = confined(course.root, "nbgrader", "autograde", SLUG, "--student", STUDENT)
    with gradebook.open_gradebook(course) as book:
        submissions = [s for s in book.assignment_submissions(SLUG) if s.student_id == STUDENT]
        notebooks = [n for s in submissions for n in s.notebooks if n.grades]
        scores = [g.auto_score for n in notebooks for g in n.grades if g.auto_score is not None]
        return Outcome(float(sum(scores)) if scores else None, ended)


def confined(folder: Path, *command: str) -> bool:
    """Run a command that can write to its folder alone; whether it ended by itself."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    walls = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent"]
    walls += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    walls += ["--size", str(2**28), "--tmpfs", "/tmp"]
    places = {str(ROOT), *installations()}
    ways = [list(reversed(Path(place).parents[:-1])) for place in places if closed(place)]
    for first in {way[0] for way in ways}:  # closed to all but root: made anew, and open
        walls += ["--perms", "0755", "--tmpfs", str(first)]
    for path in (path for way in ways for path in way[1:]):
        walls += ["--perms", "0755", "--dir", str(path)]
    walls += [part for place in places for part in ("--ro-bind", place, place)]
    walls += ["--bind", str(folder), str(folder), "--chdir", str(folder)]
    walls += ["--setenv", "HOME", str(folder), "--setenv", "OMP_NUM_THREADS", "1"]
    limits = ["prlimit", f"--data={4 * 2**30}", "--nproc=300", f"--fsize={2**29}"]
    somebody = ["setpriv", f"--reuid={SOMEBODY}", f"--regid={SOMEBODY}", "--clear-groups"]
    everything = [*walls, *(somebody if os.geteuid() == 0 else ()), *limits, *command]
    try:
        subprocess.run(everything, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def closed(place: str) -> bool:
    """Whether a folder on the way to this one is closed to all but its owner."""
    return any(not parent.stat().st_mode & 0o001 for parent in Path(place).parents)


def outcome_of(case: Case, how: str) -> Outcome:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="course-outcomes-") as folder:
        Path(folder).chmod(0o755)
        course = make_course(Path(folder))
        place = course.classroom / "submitted" / STUDENT / SLUG
        case(Folder(place, notebook_maker(course.master(SLUG))))
        return by_us(course) if how == "ours" else by_nbgrader(course)


def told(outcome: Outcome, right: float | None) -> str:
    """How an outcome stands to the score that is right."""
    if not outcome.ended:
        return "no end"
    if outcome.score == right:
        return "right"
    if outcome.score is None:
        return "no score"
    return "too high" if right is None or outcome.score > right else "too low"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases whose name holds this; writes nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    wanted = parser.parse_args(arguments)
    todo = [
        (family, name, case, right)
        for family, (cases, right) in FAMILIES.items()
        for name, case in cases.items()
        if wanted.only in name
    ]
    started = time.monotonic()
    ours = [told(outcome_of(case, "ours"), right) for _, _, case, right in todo]

    def stock(item: tuple[str, str, Case, float | None]) -> str:
        _, name, case, right = item
        outcome = outcome_of(case, "nbgrader")
        word = told(outcome, right)
        print(f"{time.monotonic() - started:5.0f} s  {name}: {word} ({outcome.score})", flush=True)
        return word

    with ThreadPoolExecutor(wanted.jobs) as pool:
        theirs = list(pool.map(stock, todo))
    rows = [
        {"family": family, "case": name, "ours": mine, "nbgrader": other}
        for (family, name, _, _), mine, other in zip(todo, ours, theirs, strict=True)
    ]
    result = {"nbgrader": version("nbgrader"), "seconds": SECONDS, "cases": rows}
    if wanted.only:
        print(json.dumps(result, indent=1))
        return
    path = ROOT / "book" / "data" / "outcomes.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
