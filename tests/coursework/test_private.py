"""An instructor's own exercises are found where they lie, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coursework import check, evaluate, exercises, private
from coursework.chapters import CHAPTERS, PRIVATE, Chapter, by_slug, chapters, modules_from
from coursework.classroom import Course, checks_sha256
from coursework.errors import CourseError
from coursework.exercises import asked_from, declared_chapters
from coursework.judge import sandbox
from coursework.new_exercise import lay_out


def listed(own: Path, *rows: str) -> None:
    """Let the folder list these chapters, and be used."""
    own.mkdir(exist_ok=True)
    text = "from coursework.chapters import Chapter\n\nCHAPTERS = (\n"
    (own / "chapters.py").write_text(text + "".join(f"    {row},\n" for row in rows) + ")\n")
    private.use(own)


# Where they are there ------------------------------------------------------------------------


def test_published_chapters_have_other_numbers() -> None:
    assert not {c.number for c in CHAPTERS} & set(PRIVATE)


def test_an_exercise_of_ones_own_is_one_like_any_other(own: Path) -> None:
    lay_out("50.token_mean", own, "Exam 1")
    assert by_slug("50-exam-1").title == by_slug("50").title == "Exam 1"
    assert "50.token_mean" in exercises()
    assert evaluate("50.token_mean", lambda x: np.mean(x, -1)).passed
    verdict = evaluate("50.token_mean", lambda x: x.sum(0) / len(x))
    assert verdict.misconception == "averages over the tokens"
    assert "course check" not in verdict.message
    assert "50.token_mean" not in [e.id for e in asked_from(4)]
    assert [e.id for e in asked_from(50)] == ["50.token_mean"]
    assert declared_chapters()[-1].slug == "50-exam-1"
    with pytest.raises(ValueError, match=r"did you mean 50\.token_mean"):
        evaluate("50.token_men", None)


def test_a_changed_exercise_grades_anew(own: Path) -> None:
    before = checks_sha256()
    lay_out("50.token_mean", own, "Exam 1")
    after = checks_sha256()
    assert after != before
    (own / "right_answers" / "exam_1.py").write_text("# another\n")
    assert checks_sha256() == after
    (own / "exam_1" / "token_mean.py").write_text("# another\n")
    assert checks_sha256() != after


def test_the_notebooks_of_a_private_chapter_lie_with_it(own: Path, course: Course) -> None:
    lay_out("50.token_mean", own, "Exam 1")
    assert course.slugs == ("04-scaling", "50-exam-1")
    assert course.master("50-exam-1") == own / "solutions" / "50-exam-1" / "50-exam-1.ipynb"
    assert course.master("04-scaling").is_relative_to(course.root)


def test_a_private_chapter_withholds_the_modules_that_it_names(own: Path) -> None:
    listed(own, 'Chapter(57, "final", "Final", modules=("masks",))', 'Chapter(58, "b", "B")')
    assert modules_from(57) == ("attend.masks",)
    assert modules_from(58) == ()
    assert "attend.masks" in modules_from(5)
    assert sandbox.settings("strict", 57)["withheld"] == ["attend.masks"]
    site = sandbox.Site(57)
    assert not (site.path / "attend" / "masks.py").exists()
    assert (site.path / "attend" / "heads.py").exists()
    assert not (site.path / "coursework" / "exercises").exists()


def test_workers_are_not_told_of_the_folder_and_do_not_see_it(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(own, 'Chapter(58, "b", "B")')
    site = sandbox.Site(58)
    for level in sandbox.LEVELS:
        assert not any(str(own) in value for value in sandbox.environment(level, site).values())
    assert str(own) not in sandbox._hidden()
    monkeypatch.setattr(sandbox, "installations", lambda: [str(own.parent)])
    assert str(own) in sandbox._hidden()


# Where they are not --------------------------------------------------------------------------


def test_on_a_students_machine_a_check_says_when_it_will_run(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("50.token_mean", None) == 0.0
    assert capsys.readouterr().out == "· token_mean: checked when your notebook is graded.\n"
    for ask in (lambda: check("50.token_mean", None, graded=True), lambda: by_slug("50-exam-1")):
        with pytest.raises(ValueError, match="an instructor's own and not on this machine"):
            ask()
    with pytest.raises(ValueError, match="an instructor's own"):
        evaluate("50.token_mean", None)
    with pytest.raises(ValueError, match="there is no exercise '49"):
        check("49.token_mean", None)


# What is not as it must be -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (['Chapter(13, "exam", "Exam")'], "from 50 to 99"),
        (['Chapter(50, "scaling", "Exam")'], "scaling is the course's own"),
        (['Chapter(50, "inputs", "Exam")'], "inputs is the course's own"),
        (['Chapter(50, "get", "Exam")'], "get is the course's own"),
        (['Chapter(50, "a", "A")', 'Chapter(50, "b", "B")'], "like 50-a in number or topic"),
        (['Chapter(50, "a", "A")', 'Chapter(51, "a", "B")'], "like 50-a in number or topic"),
        (["Chapter()"], "chapters cannot be loaded: TypeError"),
    ],
)
def test_chapters_that_do_not_fit_are_said(own: Path, rows: list[str], words: str) -> None:
    listed(own, *rows)
    with pytest.raises(CourseError, match=words):
        chapters()


@pytest.mark.parametrize("value", ["nowhere", "/nowhere/at/all"])
def test_a_folder_that_is_none(own: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    private.chapters.cache_clear()
    monkeypatch.setenv(private.VARIABLE, value)
    with pytest.raises(CourseError, match=f"COURSE_EXERCISES must name a folder.*says {value}"):
        chapters()


def test_a_declaration_that_cannot_be_loaded_is_said_and_harms_no_published_one(own: Path) -> None:
    listed(own, 'Chapter(50, "exam", "Exam")')
    (own / "exam").mkdir()
    (own / "exam" / "__init__.py").write_text("EXERCISES = (\n")
    with pytest.raises(CourseError, match="the private exercises in exam cannot be loaded: Syntax"):
        exercises()
    assert evaluate("04.row_entropy", lambda weights: weights).points == 0


def test_a_private_chapter_in_pytorch_is_left_out_where_there_is_none(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed(own, 'Chapter(50, "exam", "Exam", needs_torch=True)')
    (own / "exam").mkdir()
    (own / "exam" / "__init__.py").write_text("raise ImportError\n")
    find: Callable[..., object] = exercises.find_spec
    monkeypatch.setattr(exercises, "find_spec", lambda n: None if n == "torch" else find(n))
    assert Chapter(50, "exam", "Exam", needs_torch=True) not in declared_chapters()
