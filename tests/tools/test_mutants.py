"""The tool that changes right answers: what it tries, and what it takes for accepted."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTROPY = "04.row_entropy"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("x + 1", {"x - 1", "1 + x", "x + 2", "x + 0"}),
        ("x < y", {"x <= y", "x > y"}),
        ("-x", {"+x"}),
        ("x[1:y]", {"x[:y]", "x[1:]", "x[2:y]", "x[0:y]"}),
        ("np.max(x, axis=-1)", {"np.min(x, axis=-1)", "np.max(x)", "np.max(x, axis=+1)"}),
        ("f(x, y)", {"f(y, x)"}),
        ("x if y else z", {"x if True else z", "x if False else z"}),
    ],
)
def test_a_line_is_changed_in_one_place(tool, line, changes):
    assert changes <= {text.removeprefix("y = ") for text in tool.mutants(f"y = {line}")}


def test_every_change_is_another_program_and_comes_once(tool):
    source = tool.source_of(answer := tool.right_answers(ENTROPY)[0], _module(answer))
    made = list(tool.mutants(source))
    assert len(made) > 10
    assert len(set(made)) == len(made)
    assert source not in made


def test_a_right_answer_is_accepted_and_a_change_that_matters_is_not(tool):
    answer = tool.right_answers(ENTROPY)[0]
    source = tool.source_of(answer, _module(answer))
    assert tool.accepted(ENTROPY, answer, source)
    assert not tool.accepted(ENTROPY, answer, source.replace("return -", "return +"))
    assert not tool.accepted(ENTROPY, answer, "return without a function")


def _module(answer):
    return importlib.import_module(answer.__module__)
