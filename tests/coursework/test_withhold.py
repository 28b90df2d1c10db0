"""What an answer may not call, under whatever name, and that it is given back afterwards."""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attend
from coursework import evaluate
from coursework.evaluate import evaluate_exercise
from coursework.exercise import Call, Callback, Exercise, Property
from coursework.exercises import get
from coursework.withhold import Forbidden, Withheld, Withholding, from_chapter, no_fused_attention

from .submissions import RIGHT

ENTROPY = "04.row_entropy"
BUG_HUNT_POINTS = 4  #: which nobody earns here
P = np.array([0.25, 0.75])


def answers_that_borrow() -> dict[str, Callable[[Any], Any]]:
    from attend import row_entropy as alias

    def through_the_module(weights: Any) -> Any:
        import attend.dot_product

        return attend.dot_product.row_entropy(weights)

    def through_import(weights: Any) -> Any:
        return importlib.import_module("attend.dot_product").row_entropy(weights)

    def hidden_in_a_closure(weights: Any) -> Any:
        return (lambda: [alias])()[0](weights)

    def behind_an_except(weights: Any) -> Any:
        try:
            return alias(weights)
        except Exception:
            raise RuntimeError("nothing to see") from None

    return {
        "the function itself": alias,
        "a partial": functools.partial(alias),
        "a bound method": types.MethodType(lambda self, weights: alias(weights), object()),
        "by the module": through_the_module,
        "by import_module": through_import,
        "in a closure": hidden_in_a_closure,
        "behind an except": behind_an_except,
    }


@pytest.mark.parametrize("name", answers_that_borrow())
def test_attends_answer_is_no_answer(name: str) -> None:
    verdict = evaluate(ENTROPY, answers_that_borrow()[name], seed=1)
    assert verdict.points == 0
    assert name == "behind an except" or "uses a part of attend" in verdict.message


def test_attend_works_again_afterwards() -> None:
    before = attend.row_entropy(P)
    evaluate(ENTROPY, attend.row_entropy)
    evaluate(ENTROPY, lambda weights: 1 / 0)
    assert attend.row_entropy(P) == before


def test_all_of_this_chapter_and_of_later_ones_is_withheld_and_nothing_earlier() -> None:
    reference = get("04.softmax_jacobian").reference
    assert isinstance(reference, types.FunctionType)
    with from_chapter(4, {reference})():
        for function in (attend.softmax, attend.row_entropy, attend.causal_mask, reference):
            with pytest.raises(Withheld):
                function(P)
    with from_chapter(5, set())():
        assert attend.row_entropy(P) > 0
        with pytest.raises(Withheld):
            attend.causal_mask(3)


def test_a_function_that_chapter_5_asks_for_is_withheld_there_though_its_module_is_not() -> None:
    def borrowed(scores: Any, mask: Any) -> Any:
        return attend.masked_softmax(scores, mask)

    verdict = evaluate("05.masked_softmax", borrowed, seed=1)
    assert verdict.points == 0
    assert "uses a part of attend" in verdict.message


def test_functions_with_cells_are_left_alone() -> None:
    inside = 2

    def closure(x: int) -> int:
        return inside * x

    with Withholding({closure})():  # type: ignore[arg-type]
        assert closure(3) == 6


def test_the_judge_may_use_attend_while_it_answers_for_an_argument() -> None:
    """A function that is handed over may be made of what is withheld."""

    def entropy(weights: Any) -> Any:
        return attend.row_entropy(weights)

    def reference(f: Any, weights: Any) -> Any:
        return 2 * np.asarray(f(weights))

    def ask(rng: np.random.Generator) -> tuple[Call, ...]:
        rows = (rng.dirichlet(np.ones(n), 2) for n in (2, 3, 5))
        return tuple(Call((Callback(entropy, "an entropy"), row)) for row in rows)

    exercise = Exercise(
        chapter=4,
        signature="twice(f, weights)",
        task="",
        reference=reference,
        properties=(Property("twice", 1, ask),),
        misconceptions=(),
        hints=("", "", ""),
        minutes=1,
    )
    kept: list[Any] = []

    def twice(f: Any, weights: Any) -> Any:
        kept.append(f)
        return 2 * f(weights)

    def borrows_after_asking(f: Any, weights: Any) -> Any:
        f(weights)
        return 2 * attend.row_entropy(weights)

    assert evaluate_exercise(exercise, twice, (0,)).passed
    assert evaluate_exercise(exercise, borrows_after_asking, (0,)).points == 0
    kept[0](np.array([[0.5, 0.5]]))  # kept and called when the check is over
    assert attend.row_entropy(P) > 0


# Fused attention -----------------------------------------------------------------------------

torch = pytest.importorskip("torch")
F = torch.nn.functional
X = torch.ones(2, 3, 4, dtype=torch.float64)


def multi_head(x: Any) -> Any:
    return torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=x.dtype)(x, x, x)


def multi_head_for_inference(x: Any) -> Any:
    with torch.inference_mode():
        layer = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=x.dtype).eval()
        return layer(x, x, x, need_weights=False)


FUSED = {
    "functional": lambda x: F.scaled_dot_product_attention(x, x, x),
    "another name": functools.partial(F.scaled_dot_product_attention, X, X),
    "the C function": lambda x: torch._C._nn.scaled_dot_product_attention(x, x, x),
    "an operator": lambda x: torch.ops.aten.scaled_dot_product_attention.default(x, x, x),
    "its mathematics": lambda x: torch.ops.aten._scaled_dot_product_attention_math(x, x, x),
    "a module": multi_head,
    "a module's fast path": multi_head_for_inference,
    "an encoder layer": lambda x: torch.nn.TransformerEncoderLayer(4, 2, dtype=x.dtype).eval()(x),
}


@pytest.mark.parametrize("name", FUSED)
def test_every_way_to_fused_attention_is_closed_and_opens_again(name: str) -> None:
    with pytest.raises(Forbidden), no_fused_attention():
        FUSED[name](X)
    FUSED[name](X)


def test_the_rest_of_pytorch_is_open() -> None:
    with no_fused_attention():
        weights = torch.softmax(X @ X.mT / 2.0, dim=-1)
        assert (weights @ X).shape == X.shape
        linear = torch.nn.Linear(4, 4, dtype=torch.float64)
        assert linear(X).sum().backward() is None


@pytest.mark.slow
def test_fused_attention_is_refused_in_the_judges_workers_as_well(
    graded: Callable[..., Any],
) -> None:
    result = graded(
        **{
            **RIGHT,
            "scaled_dot_product_attention": "import torch\n"
            "def scaled_dot_product_attention(q, k, v):\n"
            "    q, k, v = (torch.from_numpy(np.array(a, dtype=float)) for a in (q, k, v))\n"
            "    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)\n"
            "    z = torch.nn.functional.scaled_dot_product_attention(q, k, v)\n"
            "    return z.numpy(), weights.numpy()\n\n"
            "def softmax(x):\n"
            "    return torch.softmax(torch.from_numpy(np.array(x, dtype=float)), -1).numpy()",
        }
    )
    fused = next(e for e in result.exercises if e.exercise == "04.scaled_dot_product_attention")
    assert fused.points == 0
    assert "fused attention" in fused.feedback
    assert result.points == result.max_points - fused.max_points - BUG_HUNT_POINTS
