"""A conversation with one worker: send a request, wait for the reply, not longer than allowed."""

from __future__ import annotations

import builtins
import contextlib
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from coursework import memory, plain, steps, tensors
from coursework.answer import PATIENCE, Raised, Reply, describe, rehearsal, until_the_end
from coursework.exercise import Call, Callback
from coursework.judge import processes, sandbox, wire
from coursework.stubs import Host
from coursework.withhold import Forbidden, Withheld

# Seconds of work. On a busy machine a worker waits for its turn: by the clock, `PATIENCE` times as
# many may pass.
CELL_DEADLINE = 30.0  #: for a cell; it may import a library or train a small model
CALL_DEADLINE = 5.0  #: for one call of an answer
BUDGET = 240.0  #: seconds for all of a submission
MOST_STARTS = 40  #: workers for one submission; each costs about a tenth of a second
PORTION = 100_000  #: numbers after which calls wait for the next frame
LONGEST_AXIS, LARGEST_SIZE = 4096, 300_000  #: of what a student's code may ask the judge about
UNREADABLE = "what your code sent back could not be read"
START_DEADLINE = 60.0  #: seconds for Python and NumPy to be there, on a machine under load


class _Deadline:
    """Seconds of work that a reply may take, from now on.

    Where the system does not tell how long a process has worked, they are seconds by the clock.
    """

    def __init__(self, seconds: float, pid: int | None) -> None:
        self.seconds = seconds
        self.pid = pid
        self.started = time.monotonic()
        self.before = processes.seconds_of_work(pid)
        self.at_last = self.started + seconds * (1 if self.before is None else PATIENCE)

    def wait(self) -> float:
        """For how long nothing can be said yet."""
        left = min(self._left(), self.at_last - time.monotonic())
        return max(0.01, left)

    def is_over(self) -> bool:
        return self._left() <= 0 or time.monotonic() >= self.at_last

    def _left(self) -> float:
        now = processes.seconds_of_work(self.pid)
        if self.before is None or now is None:
            return self.seconds - (time.monotonic() - self.started)
        return self.seconds - (now - self.before)


class Ended(Exception):
    """The worker is no more; the message says how that came."""


class Session:
    """One submission's worker, which can be started anew when it has died."""

    def __init__(self, level: str, chapter: int, *, torch: bool = False) -> None:
        self.level = level
        self.chapter = chapter
        self.torch = torch
        self.left = BUDGET
        self.starts = 0
        self.process: processes.WorkerProcess | None = None
        self.pid: int | None = None  #: the worker's number here, where the system tells
        self.late = False
        self.number = 0  #: of the last request
        self.standing = Host(first=0)  #: stubs that stand for all requests

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def spent(self) -> bool:
        """Whether this submission has had all that it gets."""
        return self.left <= 0 or self.starts >= MOST_STARTS

    @property
    def alive(self) -> bool:
        return self.process is not None

    def start(self) -> None:
        """Start a fresh worker, with an empty namespace.

        Raises:
            RuntimeError: it does not come up: not the student's fault.
        """
        self.close()
        self.starts += 1
        self.late = False
        self.number = 0
        self.standing = Host(first=0)
        self.process = processes.start(self.level, self.chapter, torch=self.torch)
        self.frames: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(
            target=self._listen, args=(self.process.replies, self.frames), daemon=True
        ).start()
        settings = sandbox.settings(self.level, self.chapter, torch=self.torch)
        try:
            self._send(settings)
            self._told(START_DEADLINE, Host(), charge=False)
            self.pid = self.process.pid
        except Ended as ended:
            words = self.process.complaints()
            raise RuntimeError(f"the worker did not start: {words or ended}") from ended

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process = self.pid = None

    def run_cell(self, name: str, source: str) -> Reply:
        """Execute a cell in the worker."""
        return self._ask(["run", name, source], CELL_DEADLINE)[0]

    def defined(self, name: str) -> bool:
        """Whether the student's namespace has something to call under a name."""
        return self._ask(["defined", name], CALL_DEADLINE)[0].value is True

    def call(self, name: str, call: Call, *, forbids_fused: bool = False) -> Reply:
        """Call a function of the student's namespace, without PyTorch's fused attention if so."""
        if call.memory and self.pid and memory.sizes_of(self.pid):
            return self._call_in_fork(self.pid, name, call, forbids_fused)
        return self._calls(name, [call], forbids_fused)[0]

    def call_all(
        self, name: str, calls: Sequence[Call], *, forbids_fused: bool = False
    ) -> list[Reply]:
        """Call a function once for each of these; a reply with which the worker ends is the last.

        They go over the pipe many at a time: each way takes as long as a small answer's work.
        """
        if any(call.memory for call in calls):
            return until_the_end(self.call(name, c, forbids_fused=forbids_fused) for c in calls)
        return until_the_end(
            reply for frame in _frames(calls) for reply in self._calls(name, frame, forbids_fused)
        )

    def _calls(self, name: str, calls: Sequence[Call], forbids_fused: bool) -> list[Reply]:
        hosts = [Host() for _ in calls]
        sent = [_plain_call(host.call(call)) for host, call in zip(hosts, calls, strict=True)]
        replies = self._ask(["call", name, sent, forbids_fused], CALL_DEADLINE, *hosts)
        return [_whole(call, r) for call, r in zip(calls, replies, strict=False)]

    def _call_in_fork(self, pid: int, name: str, call: Call, forbids_fused: bool) -> Reply:
        """A call whose memory is measured from here, where the worker has no say in it."""
        host = Host()
        call = host.call(replace(call, memory=None))
        # First with other numbers: it may load a library, or make a work space that it keeps.
        request = ["call", name, [_plain_call(rehearsal(call))], forbids_fused]
        (reply,) = self._ask(request, CALL_DEADLINE, host)
        if not reply.has_value:
            return reply
        self._ask(["rest"], CALL_DEADLINE)
        before = memory.sizes_of(pid)
        done: list[tuple[Any, list[memory.Sizes | None]]] = []

        def look(told: Any) -> None:
            done.append((told, [memory.sizes_of(fork) for fork in memory.children_of(pid)]))

        handle = host.handle(Callback(look, "the judge"))
        request = ["fork", handle, name, _plain_call(call), forbids_fused]
        (reply,) = self._ask(request, CALL_DEADLINE, host)
        if not reply.has_value:
            return reply
        if not done:
            return Reply(died="your code ended its process")
        try:
            [(told, sizes)] = done
            used = [memory.used_by_fork(before, after) for after in sizes if before and after]
            # The worker copies the arguments before the call, and into its reply after it.
            copies = 4 * sum(a.nbytes for a in call.args if isinstance(a, np.ndarray))
            return replace(_reply(told), memory=max(0, max(used) - copies))
        except (Ended, ValueError):
            return Reply(died=UNREADABLE)

    def stub(self, name: str, function: Callable[..., Any]) -> None:
        """Let `name` be answered by the judge, in all later requests."""
        differentiable = self.torch
        handle = self.standing.handle(Callback(function, name, differentiable=differentiable))
        self._ask(["stub", name, handle], CALL_DEADLINE)

    def _ask(self, request: list[Any], deadline: float, *hosts: Host) -> list[Reply]:
        """Send a request, and take as many replies as it has hosts, or one.

        One after which the worker is no more is the last.
        """
        if not self.alive:
            return [Reply(died="your code had ended the process by then")]
        replies: list[Reply] = []
        try:
            self._send([self.number + 1, *request])
            for host in hosts or (Host(),):
                self.number += 1
                told = self._told(deadline, host)
                replies.append(replace(_reply(told), events=tuple(host.events)))
        except Ended as ended:
            self.close()
            replies.append(Reply(late=True) if self.late else Reply(died=str(ended)))
        return replies

    def _told(self, deadline: float, host: Host, *, charge: bool = True) -> Any:
        """Answer what the worker asks until its reply is there.

        Replies are numbered. An earlier one is what a student's code has left in the pipe, and is
        passed over.
        """
        started = time.monotonic()
        until = _Deadline(min(deadline, self.left) if charge else deadline, self.pid)
        try:
            while True:
                what, *rest = self._receive(until)
                if what == "ask":
                    self._send(_answer(rest, [self.standing, host]))
                elif what == "done" and len(rest) == 2 and type(rest[0]) is int:
                    number, told = rest
                    if number == self.number:
                        return told
                    if number > self.number:
                        raise Ended(UNREADABLE)
                else:
                    raise Ended(UNREADABLE)
        finally:
            if charge:
                self.left -= time.monotonic() - started

    def _send(self, message: Any) -> None:
        try:
            wire.write(self._running.requests, message)
        except (BrokenPipeError, OSError) as error:
            raise Ended(self._how_it_ended()) from error

    def _receive(self, until: _Deadline) -> list[Any]:
        frame = None
        while frame is None:
            try:
                frame = self.frames.get(timeout=until.wait())
            except queue.Empty:
                if until.is_over():
                    self.late = True
                    raise Ended("it took too long") from None
        if isinstance(frame, EOFError):
            raise Ended(self._how_it_ended())
        if type(frame) is not list or not frame or type(frame[0]) is not str:
            raise Ended(UNREADABLE)
        return frame

    def _how_it_ended(self) -> str:
        code = self._running.exit_code()
        with contextlib.suppress(ValueError):
            if code > 128:
                name = signal.Signals(code - 128).name
                return f"your code crashed the whole process ({name})"
        # Without the code: it is the student's choice, and feedback must not carry what it says.
        return "your code ended the whole process, as os._exit does"

    @property
    def _running(self) -> processes.WorkerProcess:
        assert self.process is not None
        return self.process

    @staticmethod
    def _listen(replies: BinaryIO, frames: queue.SimpleQueue[Any]) -> None:
        """Reads frames as they come: a pipe has no timeout of its own."""
        while True:
            try:
                frames.put(wire.read(replies))
            except (EOFError, ValueError, OSError):
                frames.put(EOFError())
                return
            except wire.BadFrame as bad:
                frames.put(bad)
                return


def _whole(call: Call, reply: Reply) -> Reply:
    """A reply; of a call that is made many times it must hold as many values."""
    is_many = type(reply.value) is list and len(reply.value) == call.times
    return reply if call.times == 1 or not reply.has_value or is_many else Reply(died=UNREADABLE)


def _frames(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """The calls, in portions that are not too long for the pipe."""
    portion: list[Call] = []
    size = 0
    for call in calls:
        portion.append(call)
        size += sum(map(plain.size, steps.arguments_of(call)))
        if size > PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _plain_call(call: Call) -> dict[str, Any]:
    """A call as it is sent: what is as usual need not be said."""
    parts = {**vars(call), "steps": steps.as_plain(call.steps)}
    return {name: part for name, part in parts.items() if part is not None and part != {}}


def _answer(asked: list[Any], hosts: list[Host]) -> list[Any]:
    """What an object of the judge's gives to the worker: a value, or an exception's name and words.

    The question comes from a process that a student's code may have taken over.
    """
    if len(asked) != 5:
        raise Ended(UNREADABLE)
    number, method, args, kwargs, gradients = asked
    host = next((h for h in hosts if number in h), None)
    if host is None or type(method) is not str or type(gradients) is not bool:
        raise Ended(UNREADABLE)
    if type(args) is not tuple or type(kwargs) is not dict:
        raise Ended(UNREADABLE)
    if not all(_is_small(a) for a in (*args, *kwargs.values())):
        return [None, ["ValueError", "that is more than an exercise needs"]]
    try:
        return [host.answer(number, method, args, kwargs, gradients), None]
    except Exception as error:  # it is for the one who asked
        raised = describe(error)
        return [None, [raised.kind, raised.message]]


def _is_small(argument: Any) -> bool:
    """Whether the judge may compute with it: attention needs the square of a length."""
    if tensors.is_array(argument):
        size = plain.size(argument)
        return size <= LARGEST_SIZE and max(argument.shape, default=0) <= LONGEST_AXIS
    return type(argument) is not int or abs(argument) <= LONGEST_AXIS


def _reply(told: Any) -> Reply:
    """A reply from what the worker sent, which is believed in nothing but its values.

    Words that may reach feedback are cut short, or come from a list of our own: a student's code
    that writes them could tell what it was asked.
    """
    try:
        value, after = plain.take(told["value"]), plain.take(told.get("after"))
        used = told.get("memory")
        raised = told.get("raised")
        if raised is not None:
            kinds, message, line = raised
            kinds = tuple(k for k in kinds if k in _EXCEPTIONS) or ("Exception",)
            raised = Raised(kinds, str(message)[:300], line and str(line)[:100])
        gradients = plain.take(told.get("gradients"))
        not_plain = told.get("not_plain")
        if not_plain is not None and not_plain not in plain.REFUSALS:
            not_plain = "an object of another kind"
    except Exception as error:  # the frame may be anything, and each thing fails in its own way
        raise Ended(UNREADABLE) from error
    return Reply(
        value=value,
        raised=raised,
        not_plain=not_plain,
        after=tuple(after) if type(after) in (tuple, list) else (),
        shares=told.get("shares") is True,
        memory=used if type(used) is int else None,
        gradients=gradients if type(gradients) is tuple else None,
        stirred=told.get("stirred") is True,
    )


#: Exceptions that are called by their names: Python's own, NumPy's, and the two of ours.
_EXCEPTIONS = frozenset(
    {name for name in dir(builtins) if name.endswith(("Error", "Exception", "Exit", "Interrupt"))}
    | {"LinAlgError", "AxisError", "StopIteration", Withheld.__name__, Forbidden.__name__}
)


class RemoteAnswer:
    """An answer that lives in a worker."""

    def __init__(self, session: Session, name: str, *, forbids_fused: bool = False) -> None:
        self.session = session
        self.name = name
        self.forbids_fused = forbids_fused

    def ask(self, call: Call) -> Reply:
        return self.session.call(self.name, call, forbids_fused=self.forbids_fused)

    def ask_all(self, calls: Sequence[Call]) -> list[Reply]:
        return self.session.call_all(self.name, calls, forbids_fused=self.forbids_fused)
