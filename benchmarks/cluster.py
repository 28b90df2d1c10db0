"""How grading over a Dask cluster grows with its workers: `course grade --cluster`, in one run.

    python benchmarks/cluster.py [--students 2000] [--workers 1 2]

The same synthetic submissions of chapter 04 are graded on clusters of this machine, one after the
other. The result is written to benchmarks/cluster.json. A machine has to have as many cores to
spare as there are workers; a third one would have the command itself and the scheduler, too.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

from distributed import LocalCluster
from grading import make_course, run, scores

RESULTS = Path(__file__).with_name("cluster.json")


def seconds_of_work() -> float:
    """For how long the processors of this machine have been at work so far, added up."""
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--students", type=int, default=2000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    wanted = parser.parse_args()
    seconds: dict[int, float] = {}
    cores: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        course = make_course(Path(folder), wanted.students)
        first = None
        for workers in wanted.workers:
            with LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
                local_directory=folder,
                silence_logs=50,
            ) as cluster:
                address = cluster.scheduler_address
                # Workers load the course on their first task, and in a term they are there already.
                warm = ["course", "grade", "--force", "--student", "student-0000"]
                run(course.root, *warm, "--cluster", address)
                before = seconds_of_work()
                seconds[workers] = run(
                    course.root, "course", "grade", "--force", "--cluster", address
                )
                cores[workers] = (seconds_of_work() - before) / seconds[workers]
            first = first or scores(course)
            assert scores(course) == first, "the scores depend on how many workers there are"
            print(f"{workers} workers: {seconds[workers]:.0f} s", flush=True)
    base = seconds[wanted.workers[0]] * wanted.workers[0]
    result = {
        "submissions": wanted.students,
        "seconds": {workers: round(s, 1) for workers, s in seconds.items()},
        "times_faster": {workers: round(base / s, 2) for workers, s in seconds.items()},
        "cores_at_work": {workers: round(n, 2) for workers, n in cores.items()},
        "cores": os.cpu_count(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
