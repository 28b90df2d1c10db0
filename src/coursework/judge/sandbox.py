"""Where a worker runs: its files, its walls, and how it is started and killed.

Two levels, named in every result:

- `strict`: bubblewrap. No network, a read-only system, a private home and /tmp of limited size, no
  view of anybody's files, its own processes, no capabilities; its own user where we are root.
- `process`: a process of its own with limits. Enough for one's own code, not for a stranger's.
"""

from __future__ import annotations

import ast
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from coursework import private
from coursework.chapters import modules_from
from coursework.errors import CourseError

LEVELS = ("strict", "process")

#: Of coursework, what the worker itself is made of. No declaration, no check, no reference.
_WORKER_FILES = (
    "plain.py",
    "tensors.py",
    "steps.py",
    "stubs.py",
    "answer.py",
    "exercise.py",
    "memory.py",
    "chapters.py",
    "withhold.py",
    "judge/wire.py",
    "judge/worker.py",
    "judge/warm.py",
    "judge/namespaces.py",
    "judge/withheld.py",
)
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc/alternatives", "/etc/ld.so.cache")
_MEGABYTE = 2**20
_HOME = "/home/student"
_SITE = "/course"
_uids = itertools.cycle(range(61_000, 62_000))


class NoSandbox(CourseError):
    """Strict isolation was asked for where it cannot be had; the message says why."""


@cache
def why_not_strict() -> str | None:
    """None if the strict level works here; otherwise the reason, in a sentence."""
    bwrap = shutil.which("bwrap")
    if sys.platform != "linux":
        return "strict isolation needs Linux: bubblewrap is made of its namespaces"
    if bwrap is None:
        return "bubblewrap is not installed (Debian and Ubuntu: apt install bubblewrap)"
    unshare = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x28020000))"
    probe = subprocess.run(
        [bwrap, *_walls(), "--ro-bind", "/", "/", sys.executable, "-S", "-c", unshare],
        capture_output=True,
        text=True,
    )
    if probe.returncode:
        return f"bubblewrap cannot make its namespaces here: {probe.stderr.strip()}"
    return None


def choose_level(wanted: str | None = None) -> str:
    """The level to work at: the one that is wanted, or the best that there is.

    Raises:
        NoSandbox: `strict` is wanted and not to be had.
        ValueError: no such level.
    """
    if wanted not in (None, *LEVELS):
        raise ValueError(f"isolation {wanted!r} is not one of {', '.join(LEVELS)}")
    reason = why_not_strict()
    if wanted == "strict" and reason:
        raise NoSandbox(reason)
    return wanted or ("process" if reason else "strict")


class Site:
    """The Python files that a student's code may import while a chapter is graded.

    `attend` without the modules of this chapter and later ones and without functions of these
    chapters that live in earlier modules, and of `coursework` the worker. It is a temporary folder,
    removed at exit.
    """

    def __init__(self, chapter: int) -> None:
        self.chapter = chapter
        self._folder = tempfile.TemporaryDirectory(prefix="course-site-")
        self.path = Path(self._folder.name) / "site"
        self.path.mkdir(mode=0o755)
        self._copy_attend(modules_from(chapter))
        self._copy_coursework()

    def _copy_attend(self, withheld: Iterable[str]) -> None:
        names = {f"{name.removeprefix('attend.')}.py" for name in withheld}
        shutil.copytree(
            _package_folder("attend"),
            self.path / "attend",
            ignore=lambda folder, files: [f for f in files if f in names or f == "__pycache__"],
        )
        for module, functions in withheld_functions(self.chapter).items():
            path = self.path / f"{module.replace('.', '/')}.py"
            path.write_text(without(path.read_text(encoding="utf-8"), functions), encoding="utf-8")

    def _copy_coursework(self) -> None:
        source, target = _package_folder("coursework"), self.path / "coursework"
        (target / "judge").mkdir(parents=True)
        for name in _WORKER_FILES:
            shutil.copyfile(source / name, target / name)
        shutil.copyfile(source / "judge" / "student_coursework.py", target / "__init__.py")
        (target / "judge" / "__init__.py").touch()


def withheld_functions(chapter: int) -> dict[str, set[str]]:
    """Functions asked for by this chapter or a later one that live in modules of earlier ones."""
    from coursework.exercises import asked_from

    gone = modules_from(chapter)
    found: dict[str, set[str]] = {}
    for exercise in asked_from(chapter):
        function = exercise.reference
        module = getattr(function, "__module__", "")
        if module.startswith("attend.") and module not in gone:
            found.setdefault(module, set()).add(function.__name__)  # type: ignore[union-attr]
    return found


def without(source: str, functions: set[str]) -> str:
    """Python source in which these functions refuse, their own lines being gone."""
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef) and node.name in functions:
            refuses = ["    from coursework.withhold import Withheld", "", "    raise Withheld"]
            lines[node.body[0].lineno - 1 : node.end_lineno] = refuses
    return "\n".join(lines) + "\n"


def _package_folder(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def settings(level: str, chapter: int, *, torch: bool = False) -> dict[str, object]:
    """What the worker is told first: its limits, its user, what is withheld."""
    memory = 4096 if torch else 2048
    limits = {
        "DATA": memory * _MEGABYTE,
        "CPU": 300,
        "FSIZE": 64 * _MEGABYTE,
        "NOFILE": 256,
        "CORE": 0,
    }
    root = os.name == "posix" and os.getuid() == 0
    if level == "strict":
        # Counted per user, who is the worker's own where we are root, and everybody's elsewhere.
        limits["NPROC"] = 64 if root else 4096
    return {
        "limits": limits,
        "sealed": level == "strict",
        "uid": next(_uids) if root and level == "strict" else 0,
        "withheld": list(modules_from(chapter)),
    }


def environment(level: str, site: Site) -> dict[str, str]:
    """Environment variables of a worker: nothing of the judge's own."""
    variables = {
        "PYTHONPATH": os.pathsep.join(
            [_SITE if level == "strict" else str(site.path), str(_libraries())]
        ),
        "PATH": os.defpath,
        "HOME": _HOME if level == "strict" else tempfile.gettempdir(),
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    kept = ("SYSTEMROOT", "TEMP", "TMP") if level == "process" else ()
    return variables | {k: v for k, v in os.environ.items() if k in kept}


def command(site: Site, module: str, *arguments: str) -> list[str]:
    """The command that runs a module of Python inside the strict walls."""
    python = [sys.executable, "-s", "-B", "-m", module, *arguments]
    return [str(shutil.which("bwrap")), *_walls(), *_view(site), "--", *python]


def _walls() -> list[str]:
    """Namespaces and capabilities."""
    shared = ["--die-with-parent", "--new-session", "--hostname", "student"]
    if os.getuid() == 0:
        # Each worker steps down to a user of its own. A user namespace would know root alone.
        namespaces = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        needed = ["CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"]
    else:
        namespaces = ["--unshare-all", "--unshare-user", "--disable-userns"]
        needed = ["CAP_SYS_ADMIN"]
    # The warm parent makes each worker's walls with these, and the worker gives them up.
    capabilities = [argument for name in needed for argument in ("--cap-add", name)]
    return [*namespaces, "--cap-drop", "ALL", *capabilities, *shared]


def _view(site: Site) -> list[str]:
    """The file system that the worker sees."""
    arguments: list[str] = []
    for path in ("/tmp", _HOME):
        arguments += ["--tmpfs", path]  # each worker mounts its own over these
    for path in _SYSTEM:
        arguments += ["--ro-bind-try", path, path]
    for path in installations():
        if not Path(path).is_relative_to("/usr"):
            # Made by themselves, folders on the way would be closed to all but root.
            for folder in reversed(Path(path).parents[:-1]):
                arguments += ["--perms", "0755", "--dir", str(folder)]
            arguments += ["--ro-bind", path, path]
    for path in _hidden():
        arguments += ["--tmpfs", path]
    return [
        *arguments,
        "--proc", "/proc",
        "--dev", "/dev",
        "--ro-bind", str(site.path), _SITE,
        "--chdir", _HOME,
        *(argument for path in ("/tmp", _HOME, "/dev", "/") for argument in ("--remount-ro", path)),
    ]  # fmt: skip


def _libraries() -> Path:
    """The folder that NumPy was installed into: `pip install --user` has one of its own."""
    return _package_folder("numpy").parent


def installations() -> list[str]:
    """Folders that Python and its packages lie in, none inside another."""
    folders = {sys.prefix, sys.base_prefix}
    inside = any(_libraries().is_relative_to(folder) for folder in folders)
    return sorted(folders if inside else {*folders, str(_libraries())})


def _hidden() -> list[str]:
    """Copies of the course, and private exercises, inside what the worker would otherwise see."""
    folders = [_package_folder("attend"), _package_folder("coursework")]
    if own := private.folder():
        folders.append(own.resolve())
    seen = (*installations(), *_SYSTEM)
    return [str(f) for f in folders if any(f.is_relative_to(p) for p in seen)]
