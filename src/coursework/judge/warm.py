"""The warm parent: a process inside the sandbox that has imported what workers need, and forks.

Importing NumPy takes a tenth of a second and PyTorch two; a fork takes milliseconds. Each worker
gets its own process, mount and IPC namespaces, its own empty home and /tmp and, where we are root,
its own user, so that it can neither see nor touch this process or another worker.

    warm parent ─ keeper ─ init of the worker's process namespace ─ worker

The judge speaks to this process over a socket: `fork`, with one end of the worker's pipe attached;
`kill`; `wait`; and `join`, with one end of a socket for another process of the judge, which is
served by a fork of this one: what was imported is there at once. When the judge is gone, so is
everything here.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from coursework import steps
from coursework.judge import namespaces, worker

PRIVATE_FOLDERS = (("/tmp", 64), ("/home/student", 64), ("/dev/shm", 16))  #: and their megabytes
PATIENCE = 5.0  #: seconds to wait for a worker that is about to end

READY = b"!"  #: said first on each socket
FORK, KILL, WAIT, JOIN = b"f", b"k", b"w", b"j"
_NUMBER = 4  #: bytes of a number in a message


def main() -> None:
    """Import the modules that the first argument names, and fork until the judge leaves.

    The other arguments are the folders of the Python installation.
    """
    os.umask(0o022)
    for name in filter(None, sys.argv[1].split(",")):
        __import__(name)
        if name == "torch":
            steps.warm_up()
    # The workers' collections of garbage pass over all that is there by now: they would copy it.
    gc.collect()
    gc.freeze()
    _serve(socket.socket(fileno=os.dup(0)))


def _serve(control: socket.socket) -> int:
    """Do what one process of the judge asks, until it leaves."""
    control.sendall(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 + _NUMBER, 1)
        if not message:
            return 0
        if message[:1] == JOIN:
            (line,) = descriptors
            _fork(lambda line=line: _serve_another(line, control))
            os.close(line)
            continue
        if message[:1] == FORK:
            (pipe,) = descriptors
            answer = _fork(lambda pipe=pipe: _keep(pipe, control))
            os.close(pipe)
        else:
            keeper = int.from_bytes(message[1:], "big")
            answer = _end(keeper, at_once=message[:1] == KILL)
        control.sendall(answer.to_bytes(_NUMBER, "big"))


def _fork(child: Callable[[], int]) -> int:
    """Run `child` in a fork, which ends with what it returns; here, return the fork's number."""
    number = os.fork()
    if number:
        return number
    code = 1
    try:
        code = child()
    finally:
        os._exit(code)


def _serve_another(line: int, control: socket.socket) -> int:
    control.close()
    namespaces.die_with_parent()
    return _serve(socket.socket(fileno=line))


def _keep(pipe: int, control: socket.socket) -> int:
    """The keeper: makes the walls, starts the worker's init, and ends as it ends."""
    control.close()
    namespaces.die_with_parent()
    namespaces.unshare(namespaces.CLONE_NEWNS | namespaces.CLONE_NEWPID | namespaces.CLONE_NEWIPC)
    namespaces.keep_mounts_private()
    for path, megabytes in PRIVATE_FOLDERS:
        namespaces.mount_private(path, megabytes, kept=sys.argv[2:])
    init = _fork(lambda: _init(pipe))
    os.close(pipe)
    return _code(init)


def _init(pipe: int) -> int:
    """First process of the worker's namespace: when it ends, all others there are killed."""
    namespaces.die_with_parent()
    namespaces.mount_proc()
    number = _fork(lambda: _work(pipe))
    os.close(pipe)
    return _code(number)


def _work(pipe: int) -> int:
    os.chdir("/home/student")
    for number in (0, 1):
        os.dup2(pipe, number)
    os.close(pipe)
    worker.main()
    return 0


def _code(child: int) -> int:
    """Wait for a child, and say how it ended as a shell does: 128 and more for a signal."""
    while True:
        ended, status = os.waitpid(-1, 0)  # orphans of the worker come to init: they are let go
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end(keeper: int, *, at_once: bool) -> int:
    """The code with which a worker ended; after `PATIENCE`, or at once, it is made to."""
    until = time.monotonic() + (0 if at_once else PATIENCE)
    while True:
        ended, status = os.waitpid(keeper, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if time.monotonic() >= until:
            os.kill(keeper, signal.SIGKILL)
            return 128 - os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1])
        time.sleep(0.002)


if __name__ == "__main__":
    main()
