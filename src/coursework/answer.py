"""Calling a student's answer: one request, one reply, nothing but plain values between them.

`Answer` is what checks speak to. `LocalAnswer` calls a function of this process, for a student's
own notebook; the judge has another one, which sends the same requests to a worker.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import io
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from coursework import memory, plain, steps, tensors
from coursework.exercise import Call, Event, Seed
from coursework.stubs import Handle, Host, StandIn, stand_in
from coursework.withhold import Forbidden, Withheld, Withholding, no_fused_attention

#: Seconds of work that one evaluation may spend in an answer, all calls together. On a busy machine
#: an answer waits for its turn: it may take `PATIENCE` times as long by the clock.
DEADLINE = 5.0
PATIENCE = 5


@dataclass(frozen=True)
class Raised:
    """An exception, in plain words."""

    kinds: tuple[str, ...]  #: names of its class and of that class's ancestors
    message: str
    line: str | None = None  #: the student's line that it came from

    @property
    def kind(self) -> str:
        return self.kinds[0]


@dataclass(frozen=True)
class Reply:
    """What came back from one call: a value, or the reason why there is none."""

    value: Any = None
    raised: Raised | None = None
    not_plain: str | None = None  #: what was returned instead of a plain value
    late: bool = False
    died: str | None = None  #: what became of the worker, where there is one
    #: The arguments as they were after the call, for the arrays among them.
    after: tuple[Any, ...] = ()
    shares: bool = False  #: whether a returned array is one of the arguments, or a view of it
    memory: int | None = None  #: bytes needed at the peak, where the call limits them
    #: Of the result by each tensor of floats, where the call asks; None if nothing leads back.
    gradients: tuple[Any, ...] | None = None
    #: Whether a global random generator, or PyTorch's gradient mode, is not as it was.
    stirred: bool = False
    events: tuple[Event, ...] = ()  #: what was asked of the stubs

    @property
    def has_value(self) -> bool:
        return not (self.raised or self.not_plain or self.late or self.died)


class Answer(Protocol):
    """Something that can be asked."""

    def ask(self, call: Call) -> Reply: ...

    def ask_all(self, calls: Sequence[Call]) -> list[Reply]:
        """The replies to calls made one after another; one that ends the answer is the last."""


def until_the_end(replies: Iterable[Reply]) -> list[Reply]:
    """Replies up to the first that came too late, or with which the worker died."""
    taken = []
    for reply in replies:
        taken.append(reply)
        if reply.late or reply.died:
            break
    return taken


def arrays_of(call: Call) -> tuple[Any, ...]:
    """The arguments that an answer could change in place, in order."""
    everything = steps.arguments_of(call, spoiled=False)
    return tuple(a for a in everything if isinstance(a, (list, tuple, dict)) or tensors.is_array(a))


def run_here(
    function: Callable[..., Any],
    call: Call,
    around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    *,
    forbids_fused: bool = False,
) -> Reply:
    """Call `function` in this process, where the objects behind its stubs are as well.

    Args:
        function: the answer, or one of ours.
        call: its arguments.
        around: entered while an object answers.
        forbids_fused: whether PyTorch's fused attention refuses meanwhile.
    """
    host = Host()

    def ask(*question: Any) -> Any:
        with around():
            return host.answer(*question)

    with around():
        call = host.call(call)
    reply = run(function, call, lambda h: stand_in(h, ask), forbids_fused=forbids_fused)
    return replace(reply, events=tuple(host.events))


def run(
    function: Callable[..., Any],
    call: Call,
    connect: Callable[[Handle], StandIn],
    *,
    forbids_fused: bool = False,
) -> Reply:
    """Call `function` here and now, and put what happens into a `Reply`.

    Args:
        function: the answer.
        call: its arguments. They are copied: the answer may do with them what it likes.
        connect: makes the stand-in of a `Handle` among them.
        forbids_fused: whether PyTorch's fused attention refuses meanwhile.
    """

    def once() -> Reply:
        with no_fused_attention() if forbids_fused else contextlib.nullcontext():
            return _run_once(function, call, connect)

    had_torch = "torch" in sys.modules
    reply = once()
    imported_torch = "torch" in sys.modules and not had_torch
    if forbids_fused and imported_torch:  # which can be watched only once it is there
        reply = replace(once(), memory=reply.memory)
    return reply


def rehearsal(call: Call) -> Call:
    """The same call with other numbers: nothing can be kept from it but what is no answer."""
    rng = np.random.default_rng()

    def other(argument: Any) -> Any:
        if type(argument) is not np.ndarray:
            return argument
        if argument.dtype.kind == "f":
            return rng.standard_normal(argument.shape).astype(argument.dtype)
        return rng.permutation(argument.ravel()).reshape(argument.shape)

    kwargs = {name: other(a) for name, a in call.kwargs.items()}
    return replace(call, args=tuple(map(other, call.args)), kwargs=kwargs)


def takes_too_much(call: Call, reply: Reply) -> bool:
    """Whether an answer needed more memory than its call allows."""
    return call.memory is not None and reply.memory is not None and reply.memory >= call.memory


def _run_once(
    function: Callable[..., Any], call: Call, connect: Callable[[Handle], StandIn]
) -> Reply:
    own = _handed_over(call, connect)
    if call.times > 1:
        turns = [_handed_over(call, connect, turn) for turn in range(1, call.times + 1)]
        function = _one_after_another(function, turns)
    with tensors.kept_gradient_mode():
        return _reply(function, own)


def _one_after_another(
    function: Callable[..., Any], calls: Sequence[Call]
) -> Callable[..., list[Any]]:
    return lambda *args, **kwargs: [function(*c.args, **c.kwargs) for c in calls]


def _reply(function: Callable[..., Any], call: Call) -> Reply:
    """What comes of a call whose arguments are the answer's own."""
    differentiable = [a for a in (*call.args, *call.kwargs.values()) if tensors.has_floats(a)]
    if call.gradient:
        for tensor in differentiable:
            tensor.requires_grad_()
    state = tensors.global_state()
    used = gradients = None
    try:
        if call.memory is None:
            value = function(*call.args, **call.kwargs)
        else:
            value, used = memory.peak_of(lambda: function(*call.args, **call.kwargs))
        stirred = state != tensors.global_state()[: len(state)]
        if call.gradient:
            gradients = steps.gradients_of(value, differentiable)
    except BaseException as error:  # SystemExit as well: quit() in an answer ends the answer only
        return Reply(raised=describe(error))
    try:
        if call.steps is not None:  # a constructor may draw, and the instance itself is not plain
            stirred = False
            value = steps.take(value, function, call.steps, describe)
        taken = plain.take(value)
        shares = _share(value, (*call.args, *call.kwargs.values()))
        after = tuple(plain.take(a) for a in arrays_of(call))
    except plain.NotPlain as error:
        return Reply(not_plain=str(error))
    except (Withheld, Forbidden) as error:
        return Reply(raised=describe(error))
    return Reply(
        value=taken,
        after=after,
        shares=shares,
        memory=used,
        gradients=gradients,
        stirred=stirred,
    )


def _handed_over(call: Call, connect: Callable[[Handle], StandIn], turn: int = 0) -> Call:
    """A call whose arguments are the answer's own, with stand-ins for handles."""

    def own(argument: Any) -> Any:
        if isinstance(argument, Seed):
            return argument.generator(turn)
        if type(argument) is Handle:
            return connect(argument)
        return argument if type(argument) in (int, float, bool, str) else copy.deepcopy(argument)

    def step(old: Any) -> Any:
        return replace(old, **{name: plain.mapped(part, own) for name, part in vars(old).items()})

    return replace(
        call,
        args=plain.mapped(call.args, own),
        kwargs=plain.mapped(call.kwargs, own),
        steps=call.steps and tuple(map(step, call.steps)),
    )


def _share(value: Any, arguments: Any) -> bool:
    """Whether an array in `value` lies in the memory of one among the arguments."""
    given = list(_arrays_in(arguments))
    return any(np.may_share_memory(one, other) for one in _arrays_in(value) for other in given)


def _arrays_in(value: Any, depth: int = 0) -> Iterator[np.ndarray]:
    kind = type(value)  # compared by identity: `in` would ask `==` of the student's class
    if tensors.is_array(value) and (kind is np.ndarray or tensors.can_pass(value)):
        yield tensors.numbers(value)
    elif (kind is list or kind is tuple) and depth < 3 and len(value) < 10:
        for part in value:
            yield from _arrays_in(part, depth + 1)


def describe(error: BaseException) -> Raised:
    """An exception as plain words; a message that cannot be had is left empty."""
    kinds = tuple(plain.bare_name(k) for k in plain.ancestors(type(error)) if k is not object)
    message, line = "", None
    with contextlib.suppress(BaseException):  # its class is the student's, and may do anything
        message = str.__str__(str(error)).strip()[:300]
    with contextlib.suppress(BaseException):
        frames = traceback.extract_tb(error.__traceback__)[1:]
        theirs = [f.line for f in frames if f.line and not _is_library(f.filename)]
        line = theirs[-1] if theirs else None
    return Raised(kinds, message, line)


def _is_library(filename: str) -> bool:
    return "/site-packages/" in filename or filename.startswith(_HERE)


_HERE = str(Path(__file__).parent)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Warnings and what is written to stderr go nowhere: they never cost points.

    A wrong answer's overflow would warn, and so would ours when a mistake is looked for. For
    `nbgrader autograde`, one word on stderr makes a graded cell worth nothing.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stderr(io.StringIO()):
            yield


class LocalAnswer:
    """An answer in this process, called in a thread so that an endless loop can be left behind."""

    def __init__(
        self,
        function: Callable[..., Any],
        withholding: Withholding,
        *,
        forbids_fused: bool = False,
        deadline: float = DEADLINE,
    ) -> None:
        self.function = function
        self.withholding = withholding
        self.forbids_fused = forbids_fused
        self.left = deadline  #: seconds of work
        self.patience = PATIENCE * deadline  #: seconds by the clock

    def ask(self, call: Call) -> Reply:
        if self.left <= 0 or self.patience <= 0:
            return Reply(late=True)
        started = time.perf_counter()
        reply = self._in_thread(call)
        self.patience -= time.perf_counter() - started
        return reply

    def ask_all(self, calls: Sequence[Call]) -> list[Reply]:
        return until_the_end(map(self.ask, calls))

    def _in_thread(self, call: Call) -> Reply:
        replies: list[Reply] = []

        def target() -> None:
            forbids, lifted = self.forbids_fused, self.withholding.lifted
            replies.append(run_here(self.function, call, lifted, forbids_fused=forbids))
            self.left -= time.thread_time()

        thread = threading.Thread(target=target, daemon=True)
        with self.withholding():
            thread.start()
            try:
                _wait_for(thread, self.left, self.patience)
            finally:  # too late, or the student has stopped the check by hand
                if late := thread.is_alive():
                    _interrupt(thread)
            if late:
                self.left = 0.0
                return Reply(late=True)
        return replies[0] if replies else Reply(raised=Raised(("SystemExit",), ""))


def _wait_for(thread: threading.Thread, seconds: float, patience: float) -> None:
    """Wait until a thread has ended, or has worked for so long, or has taken all our patience."""
    until = time.perf_counter() + patience
    left = seconds
    while left > 0 and time.perf_counter() < until:
        thread.join(min(left, until - time.perf_counter()))
        if not thread.is_alive():
            return
        left = seconds - _time_worked(thread, else_=seconds)


def _time_worked(thread: threading.Thread, else_: float) -> float:
    """Seconds that a thread has had a processor, where the system keeps an account of that."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))  # type: ignore[arg-type]
    except (AttributeError, OSError):  # no such clock here, or the thread has just ended
        return else_


def _interrupt(thread: threading.Thread) -> None:
    """Raise SystemExit in a thread that will not end; if it catches that, it is left to run."""
    for _ in range(3):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
        )
        thread.join(0.05)
        if not thread.is_alive():
            return


def is_withheld(reply: Reply) -> bool:
    return reply.raised is not None and reply.raised.kind == Withheld.__name__


def is_forbidden(reply: Reply) -> bool:
    return reply.raised is not None and reply.raised.kind == Forbidden.__name__
