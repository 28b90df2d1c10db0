"""The judge as somebody who is not root: the same submissions come to the same ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOBODY = 65_534
#: Every kind of submission, in one class.
TESTS = ("tests/coursework/judge/test_cases.py", "-k", "all_kinds")

#: The project and its Python, seen from folders that everybody may enter: they may well lie in one
#: that only root may. The mounts are gone with the process that made them.
AS_NOBODY = f"""
set -e
mount --bind "$1" "$2/project"
mount --bind "$3" "$2/python"
cd "$2/project"
packages="$2/project/src:$2/project/$4"
exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups env -i \\
  HOME="$2" PATH="$2/python/bin:/usr/bin:/bin" PYTHONPATH="$packages" CI="$5" \\
  OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 "${{@:6}}"
"""


def as_nobody(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the project as the user nobody."""
    packages = Path(sysconfig.get_path("purelib")).relative_to(ROOT)
    for name in ("project", "python"):
        (home / name).mkdir(exist_ok=True)
    arguments = (ROOT, home, sys.base_prefix, packages, os.environ.get("CI", ""))
    return subprocess.run(
        [
            "unshare",
            "--mount",
            "bash",
            "-c",
            AS_NOBODY,
            "as-nobody",
            *map(str, arguments),
            *command,
        ],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that the user nobody may enter and write to."""
    path = Path("/var/tmp") / f"course-nobody-{os.getpid()}"
    path.mkdir(mode=0o755)
    os.chown(path, NOBODY, NOBODY)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_holds_for_root_holds_for_a_plain_user(home: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this is a plain user already: every other test of the judge shows it")
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    who = as_nobody(home, python, "-c", "import os, numpy, coursework; print(os.geteuid())")
    assert who.stdout.strip() == str(NOBODY), who.stderr
    options = ("-q", "-p", "no:cacheprovider", "--basetemp", str(home / "tmp"), "--no-header")
    run = as_nobody(home, python, "-m", "pytest", *options, *TESTS)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert " passed" in run.stdout.splitlines()[-1]
