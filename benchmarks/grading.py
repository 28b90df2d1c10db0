"""How fast a class is graded: `course grade` beside nbgrader's own command, in one run.

    python benchmarks/grading.py [--students 40] [--crowd 300] [--jobs 2]

Both grade the same submissions of chapter 04 with `import torch` in its set-up, all of them honest,
and every score of every cell is compared. The gradebook is ready for both. Ours alone then grades a
larger class, during which the memory of the workers is looked at. The result is written to
benchmarks/grading.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from coursework import gradebook, memory
from coursework.classroom import Course
from coursework.markers import MARKERS

ROOT = Path(__file__).resolve().parents[1]
SLUG = "04-scaling"
RUNS = 3  #: of ours, of which the median counts


def make_course(folder: Path, students: int) -> Course:
    """A course of one assignment, and honest submissions: right, half done, untouched in turn."""
    shutil.copyfile(ROOT / "nbgrader_config.py", folder / "nbgrader_config.py")
    course = Course(folder)
    master = nbformat.read(ROOT / "solutions" / SLUG / f"{SLUG}.ipynb", as_version=4)
    next(c for c in master.cells if _role(c) == "setup").source += "\nimport torch"
    for cell in master.cells:
        cell.pop("outputs", None) if cell.cell_type != "code" else cell.update(outputs=[])
    course.master(SLUG).parent.mkdir(parents=True)
    nbformat.write(master, course.master(SLUG))
    run(folder, "nbgrader", "generate_assignment", SLUG)
    blank = nbformat.read(folder / "notebooks" / SLUG / f"{SLUG}.ipynb", as_version=4)
    answers = {_key(c): _answer(c) for c in master.cells if _role(c) == "answer"}
    handed_in = []
    for share in (1.0, 0.5, 0.0):
        mine = dict(list(answers.items())[: round(share * len(answers))])
        notebook = copy.deepcopy(blank)
        for cell in notebook.cells:
            if _role(cell) == "answer" and _key(cell) in mine:
                cell.source = mine[_key(cell)]
        handed_in.append(nbformat.writes(notebook))
    for number in range(students):
        path = course.classroom / "submitted" / f"student-{number:04d}" / SLUG / f"{SLUG}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(handed_in[number % len(handed_in)], encoding="utf-8")
    return course


def _role(cell: Any) -> str | None:
    return cell.metadata.get("coursework", {}).get("role")


def _key(cell: Any) -> str:
    return cell.metadata["coursework"]["exercise"]


def _answer(cell: Any) -> str:
    return "\n".join(line for line in cell.source.splitlines() if line.strip() not in MARKERS)


def run(folder: Path, *command: str) -> float:
    """Wall time of a command, in seconds."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return time.perf_counter() - started


def scores(course: Course) -> dict[str, dict[str, float | None]]:
    """Automatic score of every graded cell of every student."""
    with gradebook.open_gradebook(course) as book:
        return {
            submission.student_id: {g.name: g.auto_score for g in submission.notebooks[0].grades}
            for submission in book.assignment_submissions(SLUG)
        }


@contextmanager
def memory_of_workers() -> Iterator[list[float]]:
    """Fills a list with the megabytes that a worker has for itself, now and then.

    What it shares with its parent, PyTorch above all, is there once for all, and is not counted.
    """
    seen: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            waiting = [os.getpid()]
            while waiting:
                pid = waiting.pop()
                below = memory.children_of(pid)
                waiting += below
                # The sandbox has a namespace of processes, and in it each worker one of its own.
                is_worker = not below and len(memory.numbers_of(pid)) == 3
                if is_worker and (sizes := memory.sizes_of(pid)):
                    seen.append(sizes.own / 1e6)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--students", type=int, default=40)
    parser.add_argument("--crowd", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=2)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        course = make_course(Path(folder), wanted.students)
        grade = ("course", "grade", "--jobs", str(wanted.jobs))
        # The first run enters the assignment into the gradebook, as generate_assignment does below.
        run(course.root, *grade, "--student", "student-0000")
        # Other work on the machine weighs on seconds, and not on the minutes of the other command.
        ours = statistics.median(run(course.root, *grade, "--force") for _ in range(RUNS))
        mine = scores(course)
        again = run(course.root, *grade)
        one = run(course.root, *grade, "--force", "--student", "student-0000")
        (course.classroom / "gradebook.db").unlink()
        run(course.root, "nbgrader", "generate_assignment", "--force", SLUG)
        stock = run(course.root, "nbgrader", "autograde", "--force", SLUG)
        differing = [s for s, cells in scores(course).items() if cells != mine[s]]
    with tempfile.TemporaryDirectory() as folder, memory_of_workers() as megabytes:
        crowd = run(make_course(Path(folder), wanted.crowd).root, *grade)
    result = {
        "submissions": wanted.students,
        "jobs": wanted.jobs,
        "course_grade_seconds": round(ours, 2),
        "course_grade_runs": RUNS,
        "course_grade_seconds_for_one": round(one, 2),
        "course_grade_seconds_if_unchanged": round(again, 2),
        "nbgrader_autograde_seconds": round(stock, 2),
        "times_faster": round(stock / ours, 1),
        "seconds_each": round(ours / wanted.students, 3),
        "students_with_other_scores": differing,
        "crowd": wanted.crowd,
        "course_grade_seconds_for_crowd": round(crowd, 1),
        "megabytes_a_worker": round(max(megabytes)),
        "load_average": [round(x, 1) for x in os.getloadavg()],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    (ROOT / "benchmarks" / "grading.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    if differing:
        sys.exit("the two give different scores")


if __name__ == "__main__":
    main()
