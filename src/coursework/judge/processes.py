"""Worker processes as the judge holds them: two pipes, a way to end them, and how they ended.

Under strict isolation they are forked by a warm parent (see `warm`), of which there is one for each
chapter; processes of the judge that were forked share it. Elsewhere each is a Python of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from coursework import memory
from coursework.judge import sandbox, warm

_START_DEADLINE = 120.0  #: seconds for the warm parent's imports, on a machine under load


class WorkerProcess(Protocol):
    """A worker that has been started."""

    requests: BinaryIO
    replies: BinaryIO

    @property
    def pid(self) -> int | None:
        """Its number here, outside of its walls; None where the system does not tell."""

    def kill(self) -> None:
        """End it and everything that it started; it is gone when this returns."""

    def exit_code(self) -> int:
        """How it ended, as a shell says it: 128 and more for a signal."""

    def complaints(self) -> str:
        """What it said before it was ready, if it never was."""


class ColdWorker:
    """A Python of its own, in a process group of its own."""

    def __init__(self, site: sandbox.Site) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-B", "-m", "coursework.judge.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env=sandbox.environment("process", site),
            cwd=tempfile.gettempdir(),
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout
        self.requests, self.replies = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def kill(self) -> None:
        if os.name == "posix":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        _close(self.requests, self.replies, self._complaints)

    def exit_code(self) -> int:
        try:
            code = self._process.wait(warm.PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code if code >= 0 else 128 - code

    def complaints(self) -> str:
        return _read(self._complaints)


class WarmParent:
    """The judge's end of a warm parent."""

    def __init__(self, control: socket.socket, pid: int, complaints: BinaryIO) -> None:
        self._control = control
        self._control.settimeout(_START_DEADLINE)
        self._pid = pid
        self._complaints = complaints
        self._is_ready = False

    @classmethod
    def start(cls, site: sandbox.Site, imports: Sequence[str]) -> WarmParent:
        """A new one. It is not waited for: that is done when it is first needed."""
        complaints = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                sandbox.command(
                    site, "coursework.judge.warm", ",".join(imports), *sandbox.installations()
                ),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env=sandbox.environment("strict", site),
                cwd="/",
                start_new_session=True,
            )
        _started[process.pid] = os.getpid(), process
        return cls(ours, process.pid, complaints)

    def joined(self) -> WarmParent:
        """Another line to it, for a process of the judge to have for itself."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [warm.JOIN + bytes(4)], [theirs.fileno()])
        return WarmParent(ours, self._pid, self._complaints)

    @property
    def alive(self) -> bool:
        """Whether it has not hung up."""
        has_something, _, _ = select.select([self._control], [], [], 0)
        try:
            return not has_something or self._control.recv(1, socket.MSG_PEEK) != b""
        except ConnectionError:  # it has died before it read what was sent
            return False

    def fork(self) -> WarmWorker:
        """A new worker."""
        if not self._is_ready:
            self._receive(len(warm.READY))
            self._is_ready = True
        ours, theirs = socket.socketpair()
        with theirs:
            message = warm.FORK + bytes(4)
            socket.send_fds(self._control, [message], [theirs.fileno()])
            keeper = self._receive(4)
        return WarmWorker(self, keeper, ours)

    def ask(self, what: bytes, keeper: int) -> int:
        """Have a worker ended, or waited for; returns the code with which it ended."""
        self._control.sendall(what + keeper.to_bytes(4, "big"))
        return self._receive(4)

    def find(self, keeper: int) -> int | None:
        """A keeper's number here, which it has inside the sandbox as `keeper`."""
        inside = memory.children_of(self._pid)
        depth = len(memory.numbers_of(self._pid)) + 1
        while inside:
            pid = inside.pop()
            numbers = memory.numbers_of(pid)
            if len(numbers) == depth and numbers[-1] == keeper:
                return pid
            inside += memory.children_of(pid)
        return None

    def complaints(self) -> str:
        return _read(self._complaints)

    def close(self) -> None:
        """Hang up; if this process has started it, end it, and with it all its workers."""
        self._control.close()
        judge, process = _started.get(self._pid, (None, None))
        if process is not None and judge == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            process.wait()
            del _started[self._pid]

    def _receive(self, size: int) -> int:
        try:
            data = self._control.recv(size, socket.MSG_WAITALL)
        except TimeoutError:
            data = b""
        if len(data) < size:
            raise RuntimeError(f"the sandbox did not start: {self.complaints() or 'no word of it'}")
        return int.from_bytes(data, "big")


class WarmWorker:
    """A worker that a warm parent has forked."""

    def __init__(self, parent: WarmParent, keeper: int, pipe: socket.socket) -> None:
        self._parent = parent
        self._keeper = keeper
        self._pipe = pipe
        self._code: int | None = None
        self.requests, self.replies = pipe.makefile("wb"), pipe.makefile("rb")

    @property
    def pid(self) -> int | None:
        keeper = self._parent.find(self._keeper)
        inits = memory.children_of(keeper) if keeper else []
        workers = memory.children_of(inits[0]) if inits else []
        return workers[0] if workers else None  # the first: init adopts orphans after it

    def kill(self) -> None:
        self._end(warm.KILL)
        # The pipe is shut before it is closed: a thread may still be reading from it.
        with contextlib.suppress(OSError):
            self._pipe.shutdown(socket.SHUT_RDWR)
        _close(self.requests, self.replies, self._pipe)

    def exit_code(self) -> int:
        return self._end(warm.WAIT)

    def complaints(self) -> str:
        return self._parent.complaints()

    def _end(self, how: bytes) -> int:
        if self._code is None:
            self._code = self._parent.ask(how, self._keeper)
        return self._code


def seconds_of_work(pid: int | None) -> float | None:
    """For how long a process has had a processor so far; None where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        _, _, fields = stat.rpartition(b")")  # the name before it may hold anything
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


_sites: dict[int, sandbox.Site] = {}
_parents: dict[tuple[int, int, bool], WarmParent] = {}  #: by process, chapter, and with PyTorch
#: Warm parents that are running, by their number: who has started them, and the process.
_started: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}


def start(level: str, chapter: int, *, torch: bool = False) -> WorkerProcess:
    """Start a worker for a chapter, from a parent that has PyTorch ready if it will be needed."""
    return _parent(chapter, torch).fork() if level == "strict" else ColdWorker(site(chapter))


def get_ready(level: str, chapter: int, *, torch: bool = False) -> None:
    """Begin to make what `start` will need, here and in processes that this one will fork."""
    if level == "strict":
        _parent(chapter, torch)


def site(chapter: int) -> sandbox.Site:
    """The files for a chapter's workers, made once and removed at exit.

    A process that hands work to forks of itself asks for them first, so that all use the same.
    """
    if chapter not in _sites:
        _sites[chapter] = sandbox.Site(chapter)
    return _sites[chapter]


def _parent(chapter: int, torch: bool) -> WarmParent:
    """The warm parent for a chapter: this process's own, or that of the process that forked it."""
    key = (os.getpid(), chapter, torch)
    if key in _parents and not _parents[key].alive:
        _parents.pop(key).close()
    if key not in _parents:
        inherited = _parents.get((os.getppid(), chapter, torch))
        if inherited is not None and inherited.alive:
            _parents[key] = inherited.joined()
        else:
            imports = ["numpy", "torch"] if torch else ["numpy"]
            _parents[key] = WarmParent.start(site(chapter), imports)
    return _parents[key]


@atexit.register
def _close_parents() -> None:
    for (process, *_), parent in _parents.items():
        if process == os.getpid():
            parent.close()


def _close(*files: Any) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # what was not yet written has nobody to read it
            file.close()


def _read(file: BinaryIO) -> str:
    file.seek(0)
    return file.read(4000).decode(errors="replace").strip()
