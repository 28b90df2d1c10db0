"""Adding to a Python file as its author would: an import, an entry of a tuple, a function.

What is there stays as it is, comments included. Sources are laid out as `ruff format` has them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from coursework.errors import CourseError

WIDTH = 100  #: columns of a line


def with_entry(source: str, name: str, entry: Sequence[str], path: Path) -> str:
    """Source in which the tuple, list or dict that is assigned to `name` has one entry more.

    Args:
        source: of a module.
        name: of the variable.
        entry: its lines, without the comma at the end.
        path: the file, for a message.

    Raises:
        CourseError: there is no such variable, or its entries do not stand one a line.
    """
    node = _assignment(source, name, path)
    value, lines = node.value, source.splitlines()
    new = [f"    {line}" for line in entry]
    new[-1] += ","
    literal = ast.get_source_segment(source, value) or ""
    if literal == "()" and len(entry) == 1:
        lines[node.lineno - 1] = f"{name} = ({entry[0]},)"
    elif node.lineno == node.end_lineno:
        old = [ast.get_source_segment(source, e) for e in getattr(value, "elts", ())]
        lines[node.lineno - 1 : node.end_lineno] = [
            f"{name} = {literal[0]}",
            *(f"    {e}," for e in old),
            *new,
            literal[-1],
        ]
    else:
        lines[node.end_lineno - 1 : node.end_lineno - 1] = new  # type: ignore[operator]
    added = "\n".join(lines) + "\n"
    if _size(_assignment(added, name, path)) != _size(node) + 1:
        raise _unlike(name, path)
    return added


def with_import(source: str, package: str, module: str, name: str) -> str:
    """Source that also imports `name` from a module of a package, among the imports from there."""
    line = f"from {package}.{module} import {name}"
    if len(line) > WIDTH:
        line = f"from {package}.{module} import (\n    {name},\n)"
    body, lines = ast.parse(source).body, source.splitlines()
    imports = [n for n in body if isinstance(n, ast.Import | ast.ImportFrom)]
    siblings = [n for n in imports if (getattr(n, "module", "") or "").startswith(f"{package}.")]
    if not siblings:
        last = (imports or body)[0 if not imports else -1]
        at, text = last.end_lineno, ["", line]
    else:
        wanted = _natural(f"{package}.{module}")
        after = [n for n in siblings if _natural(n.module) > wanted]  # type: ignore[union-attr]
        at = after[0].lineno - 1 if after else siblings[-1].end_lineno
        text = [line]
    lines[at:at] = text  # type: ignore[misc]
    return "\n".join(lines) + "\n"


def before(source: str, name: str, section: str, path: Path) -> str:
    """Source with a section before the assignment to `name`.

    Raises:
        CourseError: there is no such variable.
    """
    at = _assignment(source, name, path).lineno - 1
    lines = source.splitlines()
    return "\n".join([*lines[:at], section.rstrip("\n"), "", "", *lines[at:]]) + "\n"


def functions_in(source: str) -> list[str]:
    """Names of the functions and classes of a module."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in ast.parse(source).body if isinstance(node, kinds)]


def _assignment(source: str, name: str, path: Path) -> ast.Assign:
    try:
        body = ast.parse(source).body
    except SyntaxError as error:
        raise _unlike(name, path) from error
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            assert isinstance(node, ast.Assign)
            if isinstance(node.value, ast.Tuple | ast.List | ast.Dict):
                return node
    raise _unlike(name, path)


def _size(node: ast.Assign) -> int:
    value = node.value
    return len(value.keys) if isinstance(value, ast.Dict) else len(value.elts)  # type: ignore[attr-defined]


def _unlike(name: str, path: Path) -> CourseError:
    return CourseError(f"{path} has no {name} with its entries one a line, to which one is added")


def _natural(module: str) -> list[object]:
    """The order in which imports stand: numbers by their size."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", module)]
