"""A file is added to as its author would have: nothing else in it moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from coursework.errors import CourseError
from coursework.python_source import before, functions_in, with_entry, with_import

PATH = Path("exam/__init__.py")


@pytest.mark.parametrize(
    ("source", "entry", "result"),
    [
        ("A = ()\n", ["X"], "A = (X,)\n"),
        ("A = (X,)\n", ["Y"], "A = (\n    X,\n    Y,\n)\n"),
        ("A = [X, f(1)]\nB = 2\n", ["Y"], "A = [\n    X,\n    f(1),\n    Y,\n]\nB = 2\n"),
        ("A = (\n    X,  # why\n)\n", ["Y"], "A = (\n    X,  # why\n    Y,\n)\n"),
        ("A = {}\n", ['"k": [', "    1,", "]"], 'A = {\n    "k": [\n        1,\n    ],\n}\n'),
    ],
)
def test_an_entry_is_added_at_the_end(source: str, entry: list[str], result: str) -> None:
    assert with_entry(source, "A", entry, PATH) == result


@pytest.mark.parametrize(
    "source",
    ["", "B = ()\n", "A = tuple()\n", "A = (\n    X\n)\n", "A = {1: 2}\n", "A = (\n"],
)
def test_what_cannot_be_added_to_is_said(source: str) -> None:
    with pytest.raises(
        CourseError, match=r"exam/__init__\.py has no A with its entries one a line"
    ):
        with_entry(source, "A", ["Y"], PATH)


IMPORTS = '''"""Exercises."""

from __future__ import annotations

from p.exam.b2 import B
from p.exam.c import (
    C,
)

A = ()
'''


@pytest.mark.parametrize(
    ("module", "follows"),
    [
        ("a", "\n\nfrom p.exam.a import X\nfrom p.exam.b2"),
        ("b10", "import B\nfrom p.exam.b10 import X\nfrom p.exam.c"),
        ("d", ")\nfrom p.exam.d import X\n\nA"),
    ],
)
def test_an_import_stands_in_its_order(module: str, follows: str) -> None:
    assert follows in with_import(IMPORTS, "p.exam", module, "X")


def test_the_first_import_and_a_long_one() -> None:
    assert with_import('"""Doc."""\n\nA = ()\n', "p", "m", "X").startswith(
        '"""Doc."""\n\nfrom p.m import X\n\nA'
    )
    assert f"import (\n    {'X' * 60},\n)" in with_import(IMPORTS, "p.exam", "x" * 40, "X" * 60)


def test_a_section_stands_before_a_variable() -> None:
    source = before("import p\n\n\nA = {\n}\n", "A", "def f(): ...\n", PATH)
    assert source == "import p\n\n\ndef f(): ...\n\n\nA = {\n}\n"
    assert functions_in(source) == ["f"]
