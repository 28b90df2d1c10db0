"""Answers in PyTorch do in a worker what they do in a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from coursework.answer import Reply, run_here
from coursework.exercise import Call, Callback, Event, Inspect, Load, New, Stub, Use
from coursework.judge import sandbox, session

pytestmark = pytest.mark.slow

SETUP = "import torch\nfrom torch import nn\n"


class Model:
    """A model that a student may call, and that counts its tokens."""

    eos_id = 7

    def __init__(self) -> None:
        self.tokens = 0

    def __call__(self, ids: torch.Tensor, caches: Any = None) -> torch.Tensor:
        self.tokens += ids.shape[-1]
        if caches:
            for cache in caches:
                cache.rows.append(ids.shape[-1])
        return torch.nn.functional.one_hot((ids + 1) % 11, 11).double()

    def new_caches(self, batch: int) -> list[Stub]:
        return [Stub(Cache, "a cache", ("__len__", "append"), counted=("append",))] * batch


class Cache:
    def __init__(self) -> None:
        self.rows: list[int] = []

    def __len__(self) -> int:
        return sum(self.rows)

    def append(self, n: int) -> int:
        if n > 5:
            raise ValueError("it is full")
        self.rows.append(n)
        return len(self)


MODEL = Stub(Model, "a model", ("__call__", "new_caches"), ("eos_id",), counted=("__call__",))
Ask = Callable[[str, str, Call], Reply]


@pytest.fixture(params=["here", "process", "strict"], scope="module")
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Calls what a source defines: in this process, or in a worker."""
    if request.param == "here":

        def here(source: str, name: str, call: Call) -> Reply:
            names: dict[str, Any] = {}
            exec(SETUP + source, names)
            return run_here(names[name], call)

        yield here
        return
    sandbox.choose_level(request.param)
    with session.Session(request.param, 9, torch=True) as worker:
        worker.start()

        def there(source: str, name: str, call: Call) -> Reply:
            defined = worker.run_cell("cell", SETUP + source)
            assert defined.has_value, defined
            return worker.call(name, call)

        yield there


def test_a_tensor_comes_back_as_a_tensor_of_its_dtype(ask: Ask) -> None:
    source = "def double(x, by):\n    return 2 * x, {'by': by, 'ids': torch.arange(3)}"
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(2, 3, dtype=dtype)
        value, rest = ask(source, "double", Call((x, 5))).value
        assert value.dtype == dtype
        assert torch.equal(value, 2 * x)
        assert rest["by"] == 5
        assert torch.equal(rest["ids"], torch.arange(3))


def test_a_tensor_that_was_changed_is_told(ask: Ask) -> None:
    x = torch.ones(2)
    reply = ask("def change(x):\n    x += 1\n    return x", "change", Call((x,)))
    assert torch.equal(reply.after[0], torch.full((2,), 2.0))
    assert reply.shares
    assert torch.equal(x, torch.ones(2))


@pytest.mark.parametrize(
    "what", ["x.to(torch.bfloat16)", "x.to_sparse()", "x.to('meta')", "[x.half().bfloat16()]"]
)
def test_a_tensor_of_another_kind_is_refused(ask: Ask, what: str) -> None:
    reply = ask(f"def odd(x):\n    return {what}", "odd", Call((torch.ones(2),)))
    assert "half precision, sparse, quantised" in str(reply.not_plain)


def test_gradients_are_those_of_the_answer(ask: Ask) -> None:
    x, y = torch.randn(3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    source = "def f(x, n, y):\n    return x ** n + 0 * y[0]"
    reply = ask(source, "f", Call((x, 3, y), gradient=True))
    upstream = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(reply.gradients[0], 3 * x**2 * upstream)
    torch.testing.assert_close(reply.gradients[1], torch.zeros_like(y))
    assert not ask(source, "f", Call((x, 3, y))).gradients


def test_a_result_that_is_cut_off_has_no_gradients(ask: Ask) -> None:
    reply = ask("def f(x):\n    return x.detach()", "f", Call((torch.ones(2),), gradient=True))
    assert reply.has_value
    assert reply.gradients is None


def test_gradients_flow_through_a_function_that_was_handed_over(ask: Ask) -> None:
    tanh = Callback(torch.tanh, "a tanh", counted=True, differentiable=True)
    x = torch.randn(4, dtype=torch.float64)
    reply = ask("def f(x, g):\n    return x + g(2 * x)", "f", Call((x, tanh), gradient=True))
    ours = run_here(lambda x, g: x + torch.tanh(2 * x), Call((x, tanh), gradient=True))
    torch.testing.assert_close(reply.value, ours.value)
    torch.testing.assert_close(reply.gradients[0], ours.gradients[0])
    [event] = reply.events
    assert (event.stub, event.method) == ("a tanh", "__call__")
    torch.testing.assert_close(event.args[0], 2 * x)


def test_an_object_has_the_methods_and_attributes_that_are_listed(ask: Ask) -> None:
    source = (
        "def use(model, ids):\n"
        "    try:\n        model.tokens\n    except AttributeError as e:\n        said = str(e)\n"
        "    with torch.no_grad():\n        model(ids)\n"
        "    return model.eos_id, model(ids[:, :2]).argmax(-1), said"
    )
    ids = torch.tensor([[1, 2, 3]])
    reply = ask(source, "use", Call((MODEL, ids)))
    assert reply.value[0] == 7
    assert reply.value[1].tolist() == [[2, 3]]
    assert "tokens" in reply.value[2]
    calls = [(e.args[0].tolist(), e.gradients) for e in reply.events]
    assert calls == [([[1, 2, 3]], False), ([[1, 2]], True)]
    assert isinstance(reply.events[0], Event)


def test_what_an_object_returns_may_be_used_and_handed_back(ask: Ask) -> None:
    source = (
        "def use(model, ids):\n"
        "    caches = model.new_caches(1)\n"
        "    model(ids, caches=caches)\n"
        "    grown = caches[0].append(2)\n"
        "    try:\n        caches[0].append(6)\n"
        "    except ValueError as e:\n        said = str(e)\n"
        "    return len(caches[0]), grown, said"
    )
    reply = ask(source, "use", Call((MODEL, torch.tensor([[1, 2, 3]]))))
    assert reply.value == (5, 5, "it is full")
    assert [(e.stub, e.method) for e in reply.events] == [
        ("a model", "__call__"),
        ("a cache", "append"),
        ("a cache", "append"),
    ]


def test_every_call_gets_fresh_objects(ask: Ask) -> None:
    source = "def use(cache):\n    cache.append(2)\n    return len(cache)"
    cache = Stub(Cache, "a cache", ("__len__", "append"))
    assert [ask(source, "use", Call((cache,))).value for _ in range(2)] == [2, 2]


BLOCK = """
class Block(nn.Module):
    def __init__(self, d, tied=False):
        super().__init__()
        self.w = nn.Parameter(torch.randn(d, d))
        self.b = nn.Parameter(torch.zeros(d))
        if tied:
            self.c = nn.Parameter(self.b.data)

    def forward(self, x):
        return x @ self.w + self.b
"""


def test_a_class_is_made_loaded_and_called(ask: Ask) -> None:
    state = {"w": torch.randn(3, 3).double(), "b": torch.randn(3).double()}
    x = torch.randn(2, 3).double()
    steps = (Inspect(), Load(state), Use("__call__", (x,), gradient=True), New((5,)), Inspect(1))
    reply = ask(BLOCK, "Block", Call((3,), steps=steps))
    looked, loaded, called, new, other = reply.value
    assert looked[1]["shapes"] == {"w": (3, 3), "b": (3,)}
    assert looked[1]["trained"] == ["b", "w"]
    assert looked[1]["shared"] == []
    assert loaded == ("gave", None)
    assert new == ("gave", None)
    torch.testing.assert_close(called[1], x @ state["w"] + state["b"])
    generator = torch.Generator().manual_seed(0)
    upstream = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    for_x, for_b, for_w = called[2]
    torch.testing.assert_close(for_x, upstream @ state["w"].T)
    torch.testing.assert_close(for_b, upstream.sum(0))
    torch.testing.assert_close(for_w, x.T @ upstream)
    assert other[1]["shapes"]["w"] == (5, 5)


def test_parameters_that_share_memory_are_found(ask: Ask) -> None:
    reply = ask(BLOCK, "Block", Call((3, True), steps=(Inspect(),)))
    assert reply.value[0][1]["shared"] == [["b", "c"]]


def test_an_exception_in_a_step_is_its_outcome_and_the_next_step_is_taken(ask: Ask) -> None:
    source = (
        "class Counter:\n"
        "    def __init__(self, most):\n        self.most, self.n = most, 0\n"
        "    def add(self, n):\n"
        "        if self.n + n > self.most:\n            raise ValueError('full')\n"
        "        self.n += n\n        return self\n"
        "    def __len__(self):\n        return self.n\n"
    )
    steps = (Use("add", (2,)), Use("add", (9,)), Use("__len__"))
    first, second, third = ask(source, "Counter", Call((3,), steps=steps)).value
    assert first == ("gave", None, None)
    assert second[0] == "raised"
    assert second[1][0] == "ValueError"
    assert third == ("gave", 2, None)


def test_a_class_that_keeps_what_it_is_handed_is_found_out_by_spoiling_it(ask: Ask) -> None:
    source = (
        "class Keeper:\n"
        "    def put(self, x):\n        self.x = x\n        return self.x\n"
        "    def get(self):\n        return self.x\n"
    )
    x = torch.ones(2)
    steps = (Use("put", (x,), spoil=True), Use("get"))
    put, get = ask(source, "Keeper", Call((), steps=steps)).value
    assert torch.equal(put[1], torch.ones(2))
    assert torch.isnan(get[1]).all()
    assert torch.equal(x, torch.ones(2))


def test_a_changed_random_state_is_told(ask: Ask) -> None:
    assert ask("def f(x):\n    return x + torch.rand(1)", "f", Call((torch.ones(1),))).stirred
    assert ask("def f(x):\n    torch.manual_seed(3)\n    return x", "f", Call((1,))).stirred
    drawn = "def f(x):\n    return torch.rand(1, generator=torch.Generator().manual_seed(1))"
    assert not ask(drawn, "f", Call((1,))).stirred
