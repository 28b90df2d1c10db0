"""What every chapter page has: the parts of its anatomy, questions with answers, code that fits."""

from __future__ import annotations

import ast
import re

import pytest

from tests.book.cells import BOOK, CHAPTERS, cells

chapters = pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)


@chapters
def test_five_questions_answer_every_option(page):
    text = page.read_text(encoding="utf-8")
    questions = re.findall(r"^:::::\{admonition\} \d\..*?^:::::$", text, re.DOTALL | re.MULTILINE)
    assert len(questions) == 5
    for question in questions:
        asked, answered = question.split("::::{dropdown}", 1)
        options = re.findall(r"^([A-Z])\. ", asked, re.MULTILINE)
        answers = re.findall(r"^\*\*([A-Z])\*\*", answered, re.MULTILINE)
        assert len(options) >= 3
        assert answers == options, question.splitlines()[0]


@chapters
def test_at_least_four_figures_are_drawn_by_code(page):
    assert sum("caption:" in cell.options for cell in cells(page)) >= 4


@chapters
def test_open_code_fits_the_column(page):
    for cell in cells(page):
        if not {"hide-input", "remove-input", "remove-cell", "hide-cell"} & set(cell.tags):
            too_long = [line for line in cell.code.splitlines() if len(line) > 76]
            assert not too_long, f"more than 76 columns: {too_long}"


@pytest.mark.parametrize("page", sorted(BOOK.rglob("*.md")), ids=lambda page: page.stem)
def test_no_line_of_prose_begins_with_a_per_cent_sign(page):
    """MyST takes such a line for a comment, and the rest of its sentence is lost."""
    prose = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^\s*%.*", prose, re.MULTILINE) == []


@chapters
def test_no_number_is_given_to_the_prose_twice(page):
    """The build stops at a name that is glued again, ten minutes after it began."""
    names = []
    for cell in cells(page):
        code = re.sub(r"^\s*[%!].*", "", cell.code, flags=re.MULTILINE)
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Call) and _noted(node):
                names.append(_noted(node))
            if isinstance(node, (ast.For, ast.While)):  # under an `if`, once may be all
                calls = [s.value for s in node.body if isinstance(s, ast.Expr)]
                names += 2 * [_noted(c) for c in calls if isinstance(c, ast.Call) and _noted(c)]
    assert sorted(names) == sorted(set(names))


def _noted(call):
    """The name that `note("name", ...)` gives, where it is a plain string."""
    is_note = isinstance(call.func, ast.Name) and call.func.id == "note" and call.args
    return is_note and isinstance(call.args[0], ast.Constant) and call.args[0].value
