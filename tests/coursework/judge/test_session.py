"""A worker does what it is told, in its walls, and its end is no one else's."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from coursework.answer import run_here
from coursework.exercise import Call, Callback, Seed
from coursework.judge import sandbox, session
from coursework.memory import MIB

pytestmark = pytest.mark.slow

LEVELS = ("strict", "process")


@pytest.fixture(params=LEVELS)
def worker(request: pytest.FixtureRequest) -> Iterator[session.Session]:
    sandbox.choose_level(request.param)  # says why, where strict cannot be had
    with session.Session(request.param, 5) as worker:
        worker.start()
        yield worker


@pytest.fixture
def strict() -> Iterator[session.Session]:
    sandbox.choose_level("strict")
    with session.Session("strict", 5) as worker:
        worker.start()
        yield worker


def defined(worker: session.Session, source: str) -> None:
    reply = worker.run_cell("cell", source)
    assert reply.has_value, reply


def test_a_function_is_called_with_copies_and_its_value_comes_back(
    worker: session.Session,
) -> None:
    defined(worker, "def double(x):\n    x *= 2\n    return x, 'done'")
    x = np.arange(3.0)
    reply = worker.call("double", Call((x,)))
    assert reply.value[1] == "done"
    np.testing.assert_array_equal(reply.value[0], [0, 2, 4])
    np.testing.assert_array_equal(reply.after[0], [0, 2, 4])
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_a_generator_in_the_worker_draws_what_it_would_draw_here(worker: session.Session) -> None:
    defined(worker, "def draw(rng):\n    return rng.standard_normal(4)")
    reply = worker.call("draw", Call((Seed(11),)))
    np.testing.assert_array_equal(reply.value, np.random.default_rng(11).standard_normal(4))


def test_a_call_can_be_made_many_times_each_with_generators_of_its_own(
    worker: session.Session,
) -> None:
    def draw(rng: np.random.Generator) -> float:
        return float(rng.standard_normal())

    defined(worker, "def draw(rng):\n    return float(rng.standard_normal())")
    drawn = worker.call("draw", Call((Seed(11),), times=50)).value
    assert type(drawn) is list and len(set(drawn)) == 50
    assert drawn == run_here(draw, Call((Seed(11),), times=50)).value
    assert set(drawn).isdisjoint(worker.call("draw", Call((Seed(12),), times=50)).value)


def test_many_calls_are_answered_in_order_however_long_their_arrays(
    worker: session.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PORTION", 100)  # some go alone, some together
    defined(worker, "def first_of(x):\n    return x[0]")
    calls = [Call((np.full(size, float(size)),)) for size in (1, 200, 3, 40, 100, 7, 1000, 1)]
    assert [r.value for r in worker.call_all("first_of", calls)] == [c.args[0][0] for c in calls]


def test_each_of_many_calls_has_functions_of_its_own(worker: session.Session) -> None:
    def adding(n: float) -> Callback:
        return Callback(lambda x: x + n, f"plus {n}", counted=True)

    defined(worker, "def apply(f, x):\n    return f(x) if x else f(f(x))")
    replies = worker.call_all("apply", [Call((adding(10.0 * x), x)) for x in (0.0, 1.0, 2.0)])
    assert [r.value for r in replies] == [0.0, 11.0, 22.0]
    assert [[e.stub for e in r.events] for r in replies] == [
        ["plus 0.0", "plus 0.0"],
        ["plus 10.0"],
        ["plus 20.0"],
    ]


def test_of_many_calls_the_one_that_ends_the_worker_is_the_last(worker: session.Session) -> None:
    source = "import os\ndef f(n):\n    return n if n < 3 else os._exit(1)"
    defined(worker, source)
    replies = worker.call_all("f", [Call((n,)) for n in range(6)])
    assert [r.value for r in replies[:3]] == [0, 1, 2]
    assert len(replies) == 4 and replies[3].died
    worker.start()
    defined(worker, source.replace("os._exit(1)", "[0 for _ in iter(int, 1)]"))
    worker.left = 1.0
    replies = worker.call_all("f", [Call((n,)) for n in range(6)])
    assert [r.value for r in replies[:3]] == [0, 1, 2]
    assert len(replies) == 4 and replies[3].late


def test_replies_that_a_students_code_forges_count_as_its_answers_and_no_more(
    strict: session.Session,
) -> None:
    """Code that has found the pipe can say what it likes: of its own calls, and nothing else."""
    defined(
        strict,
        "import gc\nfrom coursework.judge import wire\nfrom coursework.judge.worker import Worker\n"
        "worker = next(o for o in gc.get_objects() if isinstance(o, Worker))\n"
        "def f(n):\n    if n == 1:\n"
        "        for number in range(9):\n"
        "            wire.write(worker.replies, ['done', number, {'value': 'forged'}])\n"
        "    return n",
    )
    replies = strict.call_all("f", [Call((n,)) for n in range(5)])
    assert replies[0].value == 0 and {r.value for r in replies[1:]} <= {"forged", None}


def test_functions_that_are_handed_over_are_answered_and_can_be_counted(
    worker: session.Session,
) -> None:
    asked: list[float] = []

    def square(x: float) -> float:
        asked.append(x)
        return x * x

    defined(worker, "def twice(f, x):\n    return f(f(x))")
    assert worker.call("twice", Call((Callback(square, "square"), 3.0))).value == 81.0
    assert asked == [3.0, 9.0]


def test_an_exception_in_a_function_that_was_handed_over_arrives_as_one(
    worker: session.Session,
) -> None:
    def refuse(x: float) -> float:
        raise ValueError(f"{x} is too large")

    defined(worker, "def ask(f):\n    try:\n        return f(9.0)\n    except ValueError as e:\n"
            "        return str(e)")  # fmt: skip
    assert worker.call("ask", Call((Callback(refuse, "refuse"),))).value == "9.0 is too large"


def test_a_stub_takes_the_place_of_a_name(worker: session.Session) -> None:
    defined(worker, "def half(x):\n    return x\ndef quarter(x):\n    return half(half(x))")
    worker.stub("half", lambda x: x / 2)
    assert worker.call("quarter", Call((8.0,))).value == 2.0


def test_what_a_cell_raises_is_told_with_its_line(worker: session.Session) -> None:
    reply = worker.run_cell("cell 3", "x = 1\ny = x / 0")
    assert reply.raised is not None
    assert (reply.raised.kind, reply.raised.line) == ("ZeroDivisionError", "y = x / 0")
    reply = worker.run_cell("cell 4", "def f(:")
    assert reply.raised is not None and reply.raised.kind == "SyntaxError"


def test_magics_shell_lines_and_output_do_no_harm(worker: session.Session) -> None:
    defined(
        worker,
        "%matplotlib inline\n!echo hello\nimport sys, warnings\n"
        "print('x' * 10**7)\nprint('y', file=sys.stderr)\nwarnings.warn('z')\n"
        "display(1)\ndef one():\n    print('called')\n    return 1",
    )
    assert worker.call("one", Call(())).value == 1
    defined(worker, "%%time\ntwo = lambda: 2")
    assert worker.call("two", Call(())).value == 2


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("import sys; sys.exit()", "SystemExit"),
        ("quit()", "SystemExit"),
        ("input()", "EOFError"),
        ("import not_installed", "ModuleNotFoundError"),
        ("return 'x' * 10**11", "MemoryError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\n    f()", "RecursionError"),
    ],
)
def test_what_can_be_caught_costs_the_worker_nothing(
    worker: session.Session, body: str, kind: str
) -> None:
    defined(worker, f"def bad():\n    {body}\ndef good():\n    return 1")
    reply = worker.call("bad", Call(()))
    assert reply.raised is not None and reply.raised.kind == kind
    assert worker.call("good", Call(())).value == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import os; os._exit(3)", "as os._exit does"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("[garbage(n) for n in range(3, 9)]", "could not be read"),
    ],
)
def test_the_end_of_a_worker_is_told_and_it_can_be_started_anew(
    worker: session.Session, body: str, says: str
) -> None:
    defined(worker, "import os\ndef garbage(n):\n    try:\n        os.write(n, b'x' * 4096)\n"
            f"    except OSError:\n        pass\ndef bad():\n    {body}")  # fmt: skip
    reply = worker.call("bad", Call(()))
    assert reply.died is not None and says in reply.died
    assert not worker.alive
    worker.start()
    defined(worker, "def good():\n    return 1")
    assert worker.call("good", Call(())).value == 1


def test_an_endless_loop_that_catches_everything_ends_at_the_deadline(
    worker: session.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CALL_DEADLINE", 0.5)
    defined(worker, "def loop():\n    while True:\n        try:\n            while True: pass\n"
            "        except BaseException: pass")  # fmt: skip
    started = time.monotonic()
    assert worker.call("loop", Call(())).late
    assert time.monotonic() - started < 4
    assert not worker.alive


def test_of_a_call_that_is_made_many_times_a_forged_reply_has_to_hold_as_many_values(
    strict: session.Session,
) -> None:
    defined(
        strict,
        "import gc\nfrom coursework.judge import wire\nfrom coursework.judge.worker import Worker\n"
        "worker = next(o for o in gc.get_objects() if isinstance(o, Worker))\n"
        "def f(rng, value):\n    for number in range(9):\n"
        "        wire.write(worker.replies, ['done', number, {'value': value}])\n",
    )
    assert strict.call("f", Call((Seed(1), []), times=50)).died == session.UNREADABLE


def test_waiting_for_a_processor_is_not_counted_as_work(
    worker: session.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CALL_DEADLINE", 0.4)
    defined(worker, "def total(n):\n    return sum(range(n))")
    pid = worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (pid, signal.SIGCONT)).start()
    assert worker.call("total", Call((1000,))).value == 499_500


def test_an_answer_that_does_nothing_is_waited_for_a_while_and_no_longer(
    worker: session.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CALL_DEADLINE", 0.2)
    defined(worker, "import time\ndef sleep():\n    time.sleep(600)")
    started = time.monotonic()
    assert worker.call("sleep", Call(())).late
    assert 0.9 < time.monotonic() - started < 10


@pytest.mark.parametrize(
    "returned",
    [
        "object()",
        "open",
        "type('Sub', (np.ndarray,), {})(3)",
        "type('Yes', (), {'__eq__': lambda s, o: True, '__hash__': None})()",
        "type('M', (type,), {'__eq__': lambda s, o: True, '__hash__': int})('C', (), {})()",
        "np.array([object()])",
        "[[[[[[[[[[[[1]]]]]]]]]]]]",
        "10 ** 10_000",
    ],
)
def test_only_plain_values_come_back(worker: session.Session, returned: str) -> None:
    defined(worker, f"import numpy as np\ndef f():\n    return {returned}")
    reply = worker.call("f", Call(()))
    assert reply.not_plain and not reply.has_value


def test_modules_that_answer_the_chapter_are_not_there(worker: session.Session) -> None:
    defined(
        worker,
        "def module():\n    import attend.masks\n"
        "def name():\n    from attend import causal_mask\n"
        "def function(x, m):\n    from attend import masked_softmax as f\n    return f(x, m)\n"
        "def earlier(x):\n    from attend import softmax\n    return softmax(x)\n"
        "def declarations():\n    import coursework.exercises.masking\n"
        "def judges():\n    import coursework.judge.grading\n",
    )
    x, mask = np.zeros((2, 2)), np.ones((2, 2), dtype=bool)
    for name in ("module", "name"):
        raised = worker.call(name, Call(())).raised
        assert raised is not None and raised.kind == "Withheld"
    raised = worker.call("function", Call((x, mask))).raised
    assert raised is not None and raised.kind == "Withheld"
    for name in ("declarations", "judges"):
        raised = worker.call(name, Call(())).raised
        assert raised is not None and raised.kind in ("ImportError", "ModuleNotFoundError")
    np.testing.assert_allclose(worker.call("earlier", Call((x,))).value, 0.5)


def test_a_withheld_function_is_not_even_in_the_source(worker: session.Session) -> None:
    defined(
        worker,
        "import attend, importlib.util\n"
        "def load():\n"
        "    path = attend.__path__[0] + '/dot_product.py'\n"
        "    spec = importlib.util.spec_from_file_location('copy', path)\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(module)\n"
        "    return module\n"
        "def withheld(x, m):\n    return load().masked_softmax(x, m)\n"
        "def earlier(x):\n    return load().softmax(x)\n",
    )
    x, mask = np.zeros((2, 2)), np.ones((2, 2), dtype=bool)
    raised = worker.call("withheld", Call((x, mask))).raised
    assert raised is not None and raised.kind == "Withheld"
    np.testing.assert_allclose(worker.call("earlier", Call((x,))).value, 0.5)


FORGED = {
    "a list as a callback's name": "['callback', [1], (), {}]",
    "an array as the kind of frame": "[np.array([1, 2]), 1, None]",
    "an array as a number": "['done', np.array([1, 2]), None]",
    "an array as a reply": "['done', n, np.array([1.0, 2.0])]",
    "an array as a refusal": "['done', n, {**REPLY, 'not_plain': np.array([1, 2])}]",
    "nothing": "[]",
    "words": "'done'",
    "too few parts": "['done']",
    "a reply without parts": "['done', n, {}]",
    "an exception of numbers": "['done', n, {**REPLY, 'raised': [1, 2, 3]}]",
}


@pytest.mark.parametrize("frame", FORGED.values(), ids=FORGED)
def test_a_forged_frame_ends_the_worker_and_nothing_else(
    worker: session.Session, frame: str
) -> None:
    defined(
        worker,
        "import sys\nimport numpy as np\nfrom coursework.judge import wire\n"
        "REPLY = dict(value=1, raised=None, not_plain=None, after=(), memory=None)\n"
        "def forge():\n"
        "    frame = sys._getframe()\n"
        "    while 'number' not in frame.f_locals or 'self' not in frame.f_locals:\n"
        "        frame = frame.f_back\n"
        "    n, server = frame.f_locals['number'], frame.f_locals['self']\n"
        f"    wire.write(server.replies, {frame})\n",
    )
    reply = worker.call("forge", Call(()))
    assert reply.died == session.UNREADABLE
    assert not worker.alive


@pytest.mark.parametrize("words", ["LEAK [0.25 0.5]", "x" * 10**6])
def test_what_is_said_of_a_value_comes_from_a_list_of_ours(
    worker: session.Session, words: str
) -> None:
    defined(
        worker,
        "def odd(words):\n    return type(words[:50], (), {})()\n"
        "def loud(words):\n    raise type('E' + words[:50], (ValueError,), {})(words)",
    )
    reply = worker.call("odd", Call((words,)))
    assert reply.not_plain == "an object of another kind"
    raised = worker.call("loud", Call((words,))).raised
    assert raised is not None and raised.kind == "ValueError" and len(raised.message) <= 300


def test_the_judge_computes_nothing_large_for_a_student(worker: session.Session) -> None:
    asked: list[object] = []
    defined(
        worker,
        "import numpy as np\n"
        "def large(f, shape):\n"
        "    try:\n        return f(np.zeros(shape))\n"
        "    except ValueError as error:\n        return str(error)\n",
    )
    for shape in ((9000, 1), (700, 700)):
        reply = worker.call("large", Call((Callback(asked.append, "f"), shape)))
        assert "more than an exercise needs" in reply.value
    assert asked == []


class TestWalls:
    """What a stranger's code meets under strict isolation."""

    def test_there_is_no_network(self, strict: session.Session) -> None:
        defined(
            strict,
            "def f():\n    import socket\n    socket.create_connection(('127.0.0.1', 22), 1)",
        )
        raised = strict.call("f", Call(())).raised
        assert raised is not None and "OSError" in raised.kinds

    def test_only_the_installation_can_be_read(self, strict: session.Session) -> None:
        defined(strict, "def there(path):\n    import os\n    return os.path.exists(path)")
        for path in (sandbox.__file__, __file__, "/etc/passwd", "/sys/kernel", "/root/.bashrc"):
            assert strict.call("there", Call((path,))).value is False, path

    @pytest.mark.parametrize("path", ["/x", "/usr/x", "/dev/x", "/etc/x", "/course/x", "/home/x"])
    def test_nothing_outside_its_home_can_be_written(
        self, strict: session.Session, path: str
    ) -> None:
        defined(strict, "def write(path):\n    open(path, 'w')")
        raised = strict.call("write", Call((path,))).raised
        assert raised is not None and "OSError" in raised.kinds

    def test_its_home_is_writable_and_of_limited_size(self, strict: session.Session) -> None:
        defined(
            strict,
            "def fill(folder):\n    for i in range(40):\n"
            "        open(f'{folder}/{i}', 'wb').write(bytes(4 * 2**20))",
        )
        for folder in ("/home/student", "/tmp", "/dev/shm"):
            raised = strict.call("fill", Call((folder,))).raised
            assert raised is not None and "No space left" in raised.message

    def test_it_is_not_root_and_cannot_become_root(self, strict: session.Session) -> None:
        defined(
            strict,
            "import os\ndef who():\n    return os.getuid(), os.geteuid()\n"
            "def become():\n    os.setuid(0)\n"
            "def capabilities():\n"
            "    lines = open('/proc/self/status')\n"
            "    return [line.split()[1] for line in lines if line.startswith('CapEff')]",
        )
        assert 0 not in strict.call("who", Call(())).value
        raised = strict.call("become", Call(())).raised
        assert raised is not None and "OSError" in raised.kinds
        assert strict.call("capabilities", Call(())).value == ["0000000000000000"]

    def test_it_sees_no_other_process(self, strict: session.Session) -> None:
        defined(
            strict,
            "def processes():\n    import os\n"
            "    return sorted(int(n) for n in os.listdir('/proc') if n.isdigit())",
        )
        assert len(strict.call("processes", Call(())).value) <= 3

    def test_its_children_end_with_it(self, strict: session.Session) -> None:
        defined(
            strict,
            "def spawn():\n    import subprocess, sys\n"
            "    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(977)'])",
        )
        strict.call("spawn", Call(()))
        assert _soon(lambda: _running("time.sleep(977)"))
        strict.close()
        assert _soon(lambda: not _running("time.sleep(977)"))


def _running(words: str) -> bool:
    """Whether a process with these words in its command line is there."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes()
            if words.encode() in line and b"pytest" not in line:
                return True
    return False


def _soon(holds: Callable[[], bool]) -> bool:
    """Whether something holds within ten seconds: the system ends processes in its own time."""
    for _ in range(200):
        if holds():
            return True
        time.sleep(0.05)
    return False


# Memory --------------------------------------------------------------------------------------

#: What the student's code does, and what that needs, in MiB.
NEEDS = {
    "an array": (8, "def f(x):\n    return float(np.ones(2**20).sum() + x.sum())"),
    "pieces": (2, "def f(x):\n    return float(sum(np.ones(2**18).sum() for _ in range(9)))"),
    "pieces kept": (16, "def f(x):\n    return len([np.ones(2**18) for _ in range(8)])"),
    "an account without entries": (
        8,
        "import gc, tracemalloc\ngc.collect = lambda *a: 0\n"
        "for name in ('start', 'stop', 'reset_peak', 'get_traced_memory'):\n"
        "    setattr(tracemalloc, name, lambda *a: (0, 0))\n"
        "def f(x):\n    return float(np.ones(2**20).sum() + x.sum())",
    ),
    "an old buffer": (
        12,  # and 4 that are not charged
        "old = np.ones(2**21)\ndef f(x):\n    old[:] = x[0]\n    return float(old.sum())",
    ),
    "an old buffer, let go": (
        16,
        "old = [np.ones(2**21) for _ in range(9)]\n"
        "def f(x):\n    last = old.pop()\n    last[:] = x[0]\n    return float(last.sum())",
    ),
    "memory of the system's own": (
        8,
        "import mmap\ndef f(x):\n    a = np.frombuffer(mmap.mmap(-1, 2**23))\n"
        "    a[:] = x[0]\n    return float(a.sum())",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NEEDS)
def test_the_memory_of_a_call_is_seen_from_outside(worker: session.Session, what: str) -> None:
    needed, source = NEEDS[what]
    defined(worker, f"import numpy as np\n{source}")
    for n in (3, 5):
        reply = worker.call("f", Call((np.arange(float(n)),), memory=MIB))
        assert reply.has_value, reply
        # Up to a megabyte may lie in memory that the process had freed before.
        assert needed - 1 <= reply.memory / MIB < needed + 2.5


def test_a_measured_call_gives_its_value_and_its_changed_arguments(
    worker: session.Session,
) -> None:
    defined(worker, "def double(x):\n    x *= 2\n    return x, 'done'")
    x = np.arange(3.0)
    reply = worker.call("double", Call((x,), memory=MIB))
    assert reply.value[1] == "done"
    np.testing.assert_array_equal(reply.value[0], [0, 2, 4])
    np.testing.assert_array_equal(reply.after[0], [0, 2, 4])
    assert reply.memory < MIB


def test_a_measured_call_may_raise_and_may_end_its_process(worker: session.Session) -> None:
    defined(worker, "import os\ndef fail(n):\n    raise KeyError(n)\n"
            "calls = []\ndef leave(n):\n    calls.append(n)\n"
            "    return n if len(calls) < 2 else os._exit(0)\n"
            "def count():\n    return len(calls)")  # fmt: skip
    raised = worker.call("fail", Call((1,), memory=MIB)).raised
    assert raised is not None and raised.kind == "KeyError"
    assert "ended its process" in str(worker.call("leave", Call((1,), memory=MIB)).died)
    assert worker.call("count", Call(())).value == 1  # the worker itself is as it was


def test_a_measured_call_can_hand_its_work_to_no_file_and_no_process(
    strict: session.Session,
) -> None:
    defined(strict, "import os\nwarm = []\ndef write(n):\n"
            "    warm.append(n)\n    with open('/tmp/a', 'w') as file:\n"
            "        file.write('12345')\n    return len(warm)\n"
            "def start(n):\n    warm.append(n)\n    pid = os.fork()\n"
            "    if pid == 0:\n        os._exit(0)\n    return len(warm)")  # fmt: skip
    for name in ("write", "start"):
        reply = strict.call(name, Call((1,), memory=MIB))
        assert reply.raised is not None, reply
        assert reply.raised.kind in ("OSError", "BlockingIOError")


def test_an_argument_that_comes_back_is_known_for_one(worker: session.Session) -> None:
    worker.run_cell(
        "cell",
        "def same(pair):\n    return pair[0]\n\ndef view(pair):\n    return [pair[1][1:]]\n\n"
        "def copy(pair):\n    return pair[0].copy(), pair[1] + 0\n",
    )
    call = Call(((np.ones(2), np.ones(3)),))
    for name, shares in (("same", True), ("view", True), ("copy", False)):
        reply = worker.call(name, call)
        assert reply.has_value, reply
        assert reply.shares is shares


def test_arrays_stored_by_columns_arrive_stored_by_columns(worker: session.Session) -> None:
    source = "def flags(*arrays):\n    return [bool(a.flags.c_contiguous) for a in arrays]\n"
    worker.run_cell("cell", source)
    array = np.arange(6.0).reshape(2, 3)
    assert worker.call("flags", Call((array, np.asfortranarray(array)))).value == [True, False]
