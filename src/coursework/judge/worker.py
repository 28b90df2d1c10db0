"""The process that runs a student's code. It knows no check and no right answer.

It is told what to do one request at a time, and answers each with plain values:

- `run`: execute the source of a cell in the student's namespace;
- `defined`: whether that namespace has a function of a name;
- `call`: call it;
- `rest` and `fork`: call it in a fork, whose memory the judge looks at;
- `stub`: put a function that the judge answers in place of a name.

Whatever the student's code does to this process, it can only change the values that are sent back.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import linecache
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from coursework import memory, steps
from coursework.answer import Reply, describe, run
from coursework.exercise import Call
from coursework.judge import wire
from coursework.stubs import Handle, StandIn, stand_in


class Worker:
    """The student's namespace, and the two ends of the pipe."""

    def __init__(self, requests: BinaryIO, replies: BinaryIO) -> None:
        self.requests = requests
        self.replies = replies
        self.process = os.getpid()
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = self.module
        self.namespace = vars(self.module)
        self.namespace["display"] = lambda *args, **kwargs: None
        self.namespace["get_ipython"] = lambda: _Shell(self.namespace)

    def serve(self) -> None:
        """Answer requests until the judge hangs up."""
        handlers: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
            "run": self.run_cell,
            "defined": self.defined,
            "call": self.call_all,
            "rest": self.rest,
            "fork": self.fork,
            "stub": self.stub,
        }
        while True:
            try:
                number, what, *rest = wire.read(self.requests)
            except EOFError:
                return
            for place, reply in enumerate(handlers[what](*rest)):
                if os.getpid() != self.process:
                    os._exit(0)  # a fork that the student's code made came back: it has no say here
                wire.write(self.replies, ["done", number + place, reply])

    def run_cell(self, name: str, source: str) -> Iterator[dict[str, Any]]:
        """Execute a cell; the reply says what it raised, if it did."""
        reply = Reply()
        try:
            _execute(_as_python(source), f"<{name}>", self.namespace)
        except BaseException as error:
            reply = Reply(raised=describe(error))
        yield _plain_reply(reply)

    def defined(self, name: str) -> Iterator[dict[str, Any]]:
        """Whether there is something to call under a name."""
        yield _plain_reply(Reply(value=callable(self.namespace.get(name))))

    def call_all(
        self, name: str, calls: list[dict[str, Any]], forbids_fused: bool
    ) -> Iterator[dict[str, Any]]:
        """`call`, once for each."""
        for call in calls:
            yield self.call(name, call, forbids_fused)

    def call(self, name: str, call: dict[str, Any], forbids_fused: bool) -> dict[str, Any]:
        """Call a function, or make an instance of a class, of the student's namespace."""
        request = Call(**{**call, "steps": steps.from_plain(call.get("steps"))})
        function = self.namespace[name]
        return _plain_reply(run(function, request, self.connect, forbids_fused=forbids_fused))

    def rest(self) -> Iterator[dict[str, Any]]:
        """Let go of all memory that is not in use, for the judge to look."""
        memory.give_back_free_memory()
        gc.freeze()  # a fork that counted these objects again would write to all of them
        yield _plain_reply(Reply())

    def fork(self, done: Handle, *request: Any) -> Iterator[dict[str, Any]]:
        """`call` in a fork, which hands its reply to the judge's `done` and waits for an answer.

        While it waits, the judge looks at its memory. It may write no file and start no process:
        these would be memory by another name.
        """
        child = os.fork()
        if child == 0:
            try:
                _limit({"FSIZE": 0, "NPROC": 0})
                memory.keep_exact_accounts()
                self.connect(done)(self.call(*request))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        yield _plain_reply(Reply())

    def stub(self, name: str, handle: Handle) -> Iterator[dict[str, Any]]:
        """Let `name` be a function that the judge answers."""
        self.namespace[name] = self.connect(handle)
        yield _plain_reply(Reply())

    def connect(self, handle: Handle) -> StandIn:
        """The stand-in of an object that is with the judge."""
        return stand_in(handle, self.ask)

    def ask(self, *question: Any) -> Any:
        """Ask the judge about one of its objects."""
        wire.write(self.replies, ["ask", *question])
        value, error = wire.read(self.requests)
        if error:
            kind, message = error
            raise _ERRORS.get(kind, RuntimeError)(message)
        return value


_ERRORS = {e.__name__: e for e in (ValueError, IndexError, TypeError, KeyError, AttributeError)}


def _execute(source: str, filename: str, namespace: dict[str, Any]) -> None:
    """Execute source so that a traceback can quote its lines."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(ast.parse(source, filename), filename, "exec"), namespace)


def _as_python(source: str) -> str:
    """The cell without what only notebooks understand: magics and shell lines."""
    if not any(line.lstrip().startswith(("%", "!", "?")) for line in source.splitlines()):
        return source
    try:
        from IPython.core.inputtransformer2 import TransformerManager
    except ImportError:
        return source
    return TransformerManager().transform_cell(source)


class _Shell:
    """As much of IPython as a cell may expect: magics do nothing, and `%%time` runs its cell."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace

    def run_line_magic(self, name: str, line: str, *args: Any) -> None:
        if name in ("time", "timeit", "prun"):
            _execute(line, f"<%{name}>", self.namespace)

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        if name in ("time", "timeit", "capture", "prun"):
            _execute(_as_python(cell), f"<%%{name}>", self.namespace)

    def system(self, command: str) -> None:
        """Shell lines are for the student's own machine."""

    def getoutput(self, command: str, *args: Any) -> list[str]:
        return []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def _plain_reply(reply: Reply) -> dict[str, Any]:
    """A reply as it is sent: what is as usual need not be said."""
    raised = reply.raised
    parts = {
        "raised": raised and [list(raised.kinds), raised.message, raised.line],
        "not_plain": reply.not_plain,
        "after": reply.after,
        "shares": reply.shares,
        "memory": reply.memory,
        "gradients": reply.gradients,
        "stirred": reply.stirred,
    }
    told = {name: part for name, part in parts.items() if part is not None and part is not False}
    return {"value": reply.value, **told}


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep standard input and output for the judge, and give the student empty ones."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    for number in (0, 1):
        _silence(number)
    return requests, replies


def _silence(number: int) -> None:
    """Connect a file descriptor to nothing: a million lines of output cost nobody anything."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, number)
    os.close(nothing)


def _limit(limits: dict[str, int]) -> None:
    """Bounds on memory, processor time, files and processes, where the system has them."""
    with contextlib.suppress(ImportError):
        import resource

        for name, value in limits.items():
            number = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(number)[1]
            if hard != resource.RLIM_INFINITY:
                value = min(value, hard)
            resource.setrlimit(number, (value, value))


def _seal(uid: int) -> None:
    """Give up all privileges, for good, and become another user if there is one to become."""
    from coursework.judge import namespaces

    if uid:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    namespaces.drop_capabilities()


def main() -> None:
    """Serve one submission. The first request says which limits hold."""
    requests, replies = _take_pipes()
    settings = wire.read(requests)
    _limit(settings["limits"])
    if settings["sealed"]:
        _seal(settings["uid"])
    from coursework.judge import withheld

    withheld.install(settings["withheld"])
    _silence(2)  # until here it says why a worker does not start
    wire.write(replies, ["done", 0, None])
    Worker(requests, replies).serve()


if __name__ == "__main__":
    main()
