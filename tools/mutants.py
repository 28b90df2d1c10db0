"""Which small changes to right answers do an exercise's checks accept?

    python tools/mutants.py 04.row_entropy [--most 100]

Each change is made to one place of one right answer of the tests: another operator, number, axis or
function, an argument or a line left out, a condition that always holds. What is accepted is printed
as a difference. Most of it is as right as before. What is not is a gap in the checks: declare an
input that tells the two apart, and give the wrong version to a test.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import importlib
import inspect
import linecache
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEADLINE = 2.0  #: seconds for a call: many changes make an endless loop
SEEDS = (0, 1)  #: the visible check, and a graded one

Edit = Callable[[Any], None]

OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And, ast.USub: ast.UAdd, ast.Invert: ast.UAdd,
}  # fmt: skip
COMPARISONS = {
    ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.GtE), ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
FUNCTIONS = {
    "max": "min", "min": "max", "amax": "amin", "maximum": "minimum", "minimum": "maximum",
    "argmax": "argmin", "sum": "mean", "mean": "sum", "var": "std", "std": "var", "any": "all",
    "all": "any", "triu": "tril", "tril": "triu", "sin": "cos", "cos": "sin", "zeros": "ones",
    "zeros_like": "ones_like", "floor": "ceil", "log": "log1p", "exp": "expm1",
}  # fmt: skip


def edits_of(node: ast.AST) -> Iterator[Edit]:
    """Small changes that can be made to a node, each by a function that makes it."""
    if other := OPERATORS.get(type(getattr(node, "op", None))):
        yield partial(_set, name="op", new=other())
    if isinstance(node, ast.BinOp):
        yield lambda n: _exchange(n, "left", "right")
    if isinstance(node, ast.Compare):
        for kind in COMPARISONS[type(node.ops[0])]:
            yield partial(_replace, name="ops", place=0, new=kind())
    if isinstance(node, ast.Constant):
        for value in _other_values(node.value):
            yield partial(_set, name="value", new=value)
    if isinstance(node, ast.Call):
        yield from _edits_of_call(node)
    if isinstance(node, ast.Slice):
        for end in ("lower", "upper"):
            if getattr(node, end) is not None:
                yield partial(_set, name=end, new=None)
    if isinstance(node, (ast.If, ast.IfExp)):
        for value in (True, False):
            yield partial(_set, name="test", new=ast.Constant(value))
    for body in ("body", "orelse"):
        lines = getattr(node, body, None)
        for place, line in enumerate(lines if isinstance(lines, list) else ()):
            if not isinstance(line, (ast.Return, ast.FunctionDef, ast.ClassDef, ast.Pass)):
                yield partial(_replace, name=body, place=place, new=ast.Pass())


def _edits_of_call(node: ast.Call) -> Iterator[Edit]:
    called = "attr" if isinstance(node.func, ast.Attribute) else "id"
    if other := FUNCTIONS.get(getattr(node.func, called, "")):
        yield lambda n: setattr(n.func, called, other)
    for place in range(len(node.keywords)):
        yield lambda n, place=place: n.keywords.pop(place)
    for place in range(1, len(node.args)):
        yield lambda n, place=place: n.args.insert(place, n.args.pop(place - 1))


def _other_values(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return value + 1, value - 1
    return (1.1 * value, 0.0, -value) if isinstance(value, float) else ()


def _set(node: Any, name: str, new: Any) -> None:
    setattr(node, name, new)


def _replace(node: Any, name: str, place: int, new: Any) -> None:
    getattr(node, name)[place] = new


def _exchange(node: Any, one: str, other: str) -> None:
    a, b = getattr(node, one), getattr(node, other)
    setattr(node, one, b)
    setattr(node, other, a)


def mutants(source: str) -> Iterator[str]:
    """The source with one change in it, for each change there is, each result once."""
    tree = ast.parse(source)
    seen = {ast.unparse(tree)}
    for place, node in enumerate(ast.walk(tree)):
        for edit in edits_of(node):
            changed = copy.deepcopy(tree)
            edit(list(ast.walk(changed))[place])
            text = ast.unparse(ast.fix_missing_locations(changed))
            if text not in seen:
                seen.add(text)
                yield text


def source_of(answer: Any, module: ModuleType) -> str:
    """The source of an answer and of what it uses of its module."""
    body = ast.parse(inspect.getsource(module)).body
    parts = {d.name: d for d in body if isinstance(d, (ast.FunctionDef, ast.ClassDef))}
    needed, waiting = set(), [answer.__name__]
    while waiting:
        name = waiting.pop()
        if name in parts and name not in needed:
            needed.add(name)
            waiting += [n.id for n in ast.walk(parts[name]) if isinstance(n, ast.Name)]
    return "\n\n".join(ast.unparse(part) for name, part in parts.items() if name in needed)


def accepted(id: str, answer: Any, source: str) -> bool:
    """Whether an exercise's checks accept `source` in place of an answer."""
    from coursework.evaluate import evaluate_exercise
    from coursework.exercises import get

    filename = f"<a change of {answer.__name__}>"
    linecache.cache[filename] = len(source), None, source.splitlines(keepends=True), filename
    namespace = dict(vars(sys.modules[answer.__module__]))
    try:
        exec(compile(source, filename, "exec"), namespace)
    except Exception:  # not even a definition
        return False
    return evaluate_exercise(get(id), namespace[answer.__name__], SEEDS).passed


def right_answers(id: str) -> tuple[Any, ...]:
    """The right answers to an exercise that the tests have."""
    from coursework.chapters import by_number

    sys.path.insert(0, str(ROOT))
    topic = by_number(int(id[:2])).topic
    module = importlib.import_module(f"tests.coursework.exercises.right_answers.{topic}")
    return module.RIGHT_ANSWERS[id]


def main() -> None:
    from coursework import evaluate
    from coursework.answer import LocalAnswer

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("exercise", help="its id, such as 04.row_entropy")
    parser.add_argument("--most", type=int, default=10**6, help="changes tried of each answer")
    wanted = parser.parse_args()
    module = sys.modules[evaluate.__module__]
    module.LocalAnswer = partial(LocalAnswer, deadline=DEADLINE)  # type: ignore[attr-defined]
    warnings.simplefilter("ignore")
    tried = passed = 0
    for answer in right_answers(wanted.exercise):
        source = source_of(answer, sys.modules[answer.__module__])
        changes = list(mutants(source))
        for change in random.Random(0).sample(changes, min(wanted.most, len(changes))):
            tried += 1
            if accepted(wanted.exercise, answer, change):
                passed += 1
                lines = difflib.unified_diff(source.splitlines(), change.splitlines(), n=0)
                shown = [s for s in lines if not s.startswith(("---", "+++", "@@"))]
                print(f"\n{answer.__name__}", *shown, sep="\n  ", flush=True)
    print(f"\n{wanted.exercise}: {tried} changes, {passed} accepted")


if __name__ == "__main__":
    main()
