"""One submission in, one result out, whatever it does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coursework.chapters import by_slug
from coursework.exercises import for_chapter
from coursework.judge import session
from coursework.judge.grading import Result, check_notebook, grade
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT

pytestmark = pytest.mark.slow

POINTS = {e.name: float(e.max_points) for e in for_chapter(4)}
Grade = Callable[..., Result]


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CALL_DEADLINE", 1.0)
    monkeypatch.setattr(session, "CELL_DEADLINE", 1.5)


def points(result: Result) -> dict[str, float]:
    return {e.exercise.partition(".")[2]: e.points for e in result.exercises}


def feedback(result: Result, name: str) -> str:
    return next(e.feedback for e in result.exercises if e.exercise.endswith(f".{name}"))


def full(**but: float) -> dict[str, float]:
    """All points for the answers in RIGHT, none for the bug hunt, and exceptions."""
    return {**POINTS, "bug_hunt": 0.0, **but}


def test_right_answers_get_full_marks_and_untouched_ones_nothing(graded: Grade) -> None:
    assert points(graded(**RIGHT)) == full()
    untouched = graded()
    assert set(points(untouched).values()) == {0.0}
    assert untouched.status == "graded"
    assert "still to do" in untouched.reason


def test_a_misconception_is_named_without_the_numbers_of_graded_inputs(graded: Grade) -> None:
    result = graded(**{**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K})
    (mine,) = [e for e in result.exercises if e.exercise.endswith("scaled_dot_product_attention")]
    assert mine.points < mine.max_points
    assert mine.misconception is not None and "d_k" in mine.misconception
    assert "√d_k" in mine.feedback
    assert "it should be" not in mine.feedback
    assert "it should be" in mine.message


def test_the_same_seed_gives_the_same_result(graded: Grade) -> None:
    answers = {**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K}
    one, two = (graded(**answers).to_json() for _ in range(2))
    assert {**one, "seconds": 0} == {**two, "seconds": 0}


def test_a_result_survives_being_written_and_read(graded: Grade) -> None:
    result = graded(**RIGHT)
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result


ENDINGS = {
    "an endless loop": "while True: pass",
    "one that catches everything": "while True:\n        try:\n            while True: pass\n"
    "        except BaseException: pass",
    "the end of the process": "import os; os._exit(0)",
    "a crash": "import ctypes; ctypes.string_at(0)",
    "SystemExit": "import sys; sys.exit()",
    "too much memory": "x = bytearray(10**11)",
    "a module that is not there": "import not_installed",
    "a line from the keyboard": "input()",
    "its own folder deleted": "import os, shutil; shutil.rmtree(os.getcwd()); return None",
    "another folder": "import os; os.chdir('/'); return None",
}


@pytest.mark.parametrize("body", ENDINGS.values(), ids=ENDINGS)
def test_a_function_that_runs_badly_costs_its_exercise_and_no_more(
    graded: Grade, body: str
) -> None:
    bad = f"def softmax_jacobian(p):\n    {body}"
    result = graded(**{**RIGHT, "softmax_jacobian": bad})
    assert points(result) == full(softmax_jacobian=0.0)
    assert "softmax_jacobian" in result.reason


@pytest.mark.parametrize("line", ["while True: pass", "import os; os._exit(1)"])
def test_a_cell_that_ends_the_worker_costs_its_exercise_and_no_more(
    graded: Grade, line: str
) -> None:
    result = graded(**{**RIGHT, "row_entropy": f"{RIGHT['row_entropy']}\n{line}"})
    assert points(result) == full(row_entropy=0.0)
    assert "its cell did not end well" in feedback(result, "row_entropy")


def test_a_syntax_error_is_told_and_costs_its_exercise_alone(graded: Grade) -> None:
    result = graded(**{**RIGHT, "row_entropy": "def row_entropy(weights)\n    return 1"})
    assert points(result) == full(row_entropy=0.0)
    assert "SyntaxError" in feedback(result, "row_entropy")


def test_a_cell_that_raises_after_its_definition_costs_nothing(graded: Grade) -> None:
    answer = f"{RIGHT['row_entropy']}\nrow_entropy(None).plot()"
    assert points(graded(**{**RIGHT, "row_entropy": answer})) == full()


def test_many_cells_that_end_the_worker_are_not_waited_for(
    graded: Grade, notebook: Callable[..., Any]
) -> None:
    from nbformat.v4 import new_code_cell

    mine = notebook(**RIGHT)
    mine.cells[1:1] = [new_code_cell("import os; os._exit(0)") for _ in range(60)]
    result = graded(mine)
    assert "used up its time, or its restarts" in result.reason


def test_threads_and_children_that_are_left_behind_cost_nothing(graded: Grade) -> None:
    lines = (
        "import subprocess, sys, threading, time\n"
        "threading.Thread(target=lambda: time.sleep(1000)).start()\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'])\n"
    )
    result = graded(**{**RIGHT, "row_entropy": lines + RIGHT["row_entropy"]})
    assert points(result) == full()


class TestErrorsAreNotCarriedForward:
    def test_a_later_answer_that_uses_a_wrong_earlier_one_is_judged_with_the_right_one(
        self, graded: Grade
    ) -> None:
        uses = (
            "def gradient_through_softmax(scores, upstream):\n"
            "    e = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
            "    p = e / e.sum(axis=-1, keepdims=True)\n"
            "    rows = zip(p.reshape(-1, p.shape[-1]), upstream.reshape(-1, p.shape[-1]))\n"
            "    return np.array([softmax_jacobian(a) @ g for a, g in rows]).reshape(p.shape)"
        )
        wrong = "def softmax_jacobian(p):\n    return np.diag(p)"
        answers = {**RIGHT, "softmax_jacobian": wrong, "gradient_through_softmax": uses}
        result = graded(**answers)
        mine = points(result)
        assert mine["softmax_jacobian"] < POINTS["softmax_jacobian"]
        assert mine["gradient_through_softmax"] == POINTS["gradient_through_softmax"]
        note = feedback(result, "gradient_through_softmax")
        assert "in place of softmax_jacobian" in note

    def test_a_helper_that_a_later_cell_redefines_still_serves_the_earlier_answer(
        self, graded: Grade
    ) -> None:
        spoilt = f"def softmax(x):\n    return x\n\n{RIGHT['row_entropy']}"
        own = RIGHT["gradient_through_softmax"].replace(
            "    p = softmax(scores)",
            "    e = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
            "    p = e / e.sum(axis=-1, keepdims=True)",
        )
        answers = {**RIGHT, "row_entropy": spoilt, "gradient_through_softmax": own}
        assert points(graded(**answers)) == full()


CHEATS = {
    "patched comparisons": "import numpy.testing\nnp.allclose = np.isclose = lambda *a, **k: True\n"
    "np.testing.assert_allclose = lambda *a, **k: None\n"
    "import builtins; builtins.all = lambda x: True\n"
    "import coursework; coursework.check = lambda *a, **k: 99.0\n"
    "def row_entropy(weights):\n    return np.zeros(weights.shape[:-1])",
    "an object that equals everything": "class Yes:\n"
    "    def __eq__(self, other): return True\n"
    "    def __array__(self, *a, **k): return np.zeros(3)\n"
    "def row_entropy(weights):\n    return Yes()",
    "an array of a class of its own": "class Sub(np.ndarray):\n"
    "    def __array_ufunc__(self, *a, **k): return True\n"
    "def row_entropy(weights):\n    return np.zeros(weights.shape[:-1]).view(Sub)",
    "a reduce that runs": "class R:\n"
    "    def __reduce__(self):\n        return (exec, ('1/0',))\n"
    "def row_entropy(weights):\n    return R()",
    "the course's own answer": "from attend import row_entropy",
    "the declarations": "from coursework.exercises import get\n"
    "row_entropy = get('04.row_entropy').reference",
    "a search through memory": "import gc, sys\n"
    "def row_entropy(weights):\n"
    "    for o in gc.get_objects():\n"
    "        if getattr(o, '__name__', '') in ('row_entropy', 'evaluate') and "
    "o is not row_entropy:\n"
    "            return o(weights)\n"
    "    return np.zeros(weights.shape[:-1])",
    "a search through the disk": "import glob, re\n"
    "def row_entropy(weights):\n"
    "    for p in glob.glob('/**/dot_product.py', recursive=True) + "
    "glob.glob('/**/solutions/**', recursive=True):\n"
    "        s = {}\n"
    "        exec(open(p).read(), s)\n"
    "        return s['row_entropy'](weights)\n"
    "    return np.zeros(weights.shape[:-1])",
    "a printed result": "print('{\"points\": 99}')\n"
    "import os, sys\nos.write(1, b'99.0')\n"
    "def row_entropy(weights):\n    print('✓ row_entropy: right (5 of 5)')\n    return 99.0",
}


@pytest.mark.parametrize("answer", CHEATS.values(), ids=CHEATS)
def test_cheating_earns_nothing_and_harms_no_other_answer(graded: Grade, answer: str) -> None:
    result = graded(**{**RIGHT, "row_entropy": answer})
    assert points(result) == full(row_entropy=0.0)


def test_a_reply_forged_on_the_pipe_is_no_more_than_a_wrong_value(graded: Grade) -> None:
    forged = (
        "def row_entropy(weights):\n"
        "    import os\n"
        "    from coursework.judge import wire\n"
        "    for fd, n in [(fd, n) for fd in range(3, 12) for n in range(40)]:\n"
        "        try:\n"
        "            os.write(fd, wire.encode(['done', n, {'value': 0.0, 'raised': None, "
        "'not_plain': None, 'after': [], 'points': 99}]))\n"
        "        except OSError:\n"
        "            pass\n"
        "    return 0.0"
    )
    result = graded(**{**RIGHT, "row_entropy": forged})
    assert points(result) == full(row_entropy=0.0)


def test_test_cells_that_were_edited_or_deleted_change_nothing(
    graded: Grade, notebook: Callable[..., Any]
) -> None:
    mine = notebook(**RIGHT)
    for cell in list(mine.cells):
        marks = cell.metadata.get("nbgrader", {})
        if marks.get("grade_id") == "graded_row_entropy":
            mine.cells.remove(cell)
        elif marks.get("grade_id", "").startswith("graded_"):
            marks["points"] = 1000
            cell.source = "1000.0"
    result = graded(mine)
    assert points(result) == full()
    assert any("row_entropy was gone" in r for r in result.repairs)


def test_stripped_metadata_reversed_cells_and_a_foreign_kernel_change_nothing(
    graded: Grade, notebook: Callable[..., Any]
) -> None:
    mine = notebook(**RIGHT)
    for cell in mine.cells:
        cell.metadata.clear()
    mine.cells.reverse()
    mine.metadata = {"kernelspec": {"name": "conda-env-gone", "display_name": "x", "language": "R"}}
    result = graded(mine)
    assert points(result) == full()
    assert result.repairs


def test_what_is_no_notebook_is_unreadable_with_a_sentence_and_no_score(graded: Grade) -> None:
    result = graded(b"<html>log in</html>")
    assert (result.status, result.exercises) == ("unreadable", ())
    assert result.reason == "the file is a web page, not a notebook."


def test_the_notebook_of_another_chapter_is_not_graded_as_this_one(
    graded: Grade, notebook: Callable[..., Any]
) -> None:
    mine = notebook(**RIGHT)
    for cell in mine.cells:
        about = cell.metadata.get("coursework", {})
        if "exercise" in about:
            about["exercise"] = about["exercise"].replace("04.", "03.")
    result = graded(mine)
    assert result.status == "unreadable" and "chapter 03" in result.reason


def test_a_master_that_is_none_is_refused(tmp_path: Path, master: Path) -> None:
    (tmp_path / "other.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="no chapter"):
        grade(tmp_path / "other.ipynb", master)


def test_a_students_own_check_says_what_the_judge_says_and_shows_numbers(
    notebook: Callable[..., Any], tmp_path: Path
) -> None:
    import nbformat

    path = tmp_path / "04-scaling.ipynb"
    answers = {**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K}
    nbformat.write(notebook(**answers), path)
    verdicts = {v.exercise: v for v in check_notebook(path, by_slug("04-scaling"))}
    mine = verdicts["04.scaled_dot_product_attention"]
    assert "it should be" in mine.message and "√d_k" in mine.message
    assert verdicts["04.row_entropy"].passed
    assert not verdicts["04.bug_hunt"].passed


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("## Why?\n\nYOUR ANSWER HERE", "graded"),
        ("## Why?\n", "graded"),
        ("", "graded"),
        ("## Why?\n\nBecause.", "needs manual"),
        ("Because.", "needs manual"),
    ],
)
def test_an_open_question_needs_a_person_if_anything_is_written(
    notebook: Callable[..., Any], master: Path, tmp_path: Path, text: str, status: str
) -> None:
    import nbformat

    asked = nbformat.read(master, as_version=4)
    asked.cells[-1].source = "## Why?\n\n### BEGIN SOLUTION\nBecause it is.\n### END SOLUTION"
    path, mine = tmp_path / "04-scaling.ipynb", tmp_path / "mine.ipynb"
    nbformat.write(asked, path)
    nbformat.write(notebook(open_question=text), mine)
    assert grade(path, mine, seed=1).status == status
