"""The report says what a class has understood, who has which mistake, and what nobody named yet."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from coursework import batch, report
from coursework.classroom import Course
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow

NOW = datetime(2026, 3, 4, 5, 6)
ABSURD = (
    "def row_entropy(weights):\n    # <script>alert(1)</script>\n"
    "    return 7 - np.sum(weights * weights, axis=-1)"
)
ABSURD_TOO = "def row_entropy(weights):\n    total = (weights ** 2).sum(-1)\n    return 7 - total"
OTHER = "def row_entropy(weights):\n    return weights.max(axis=-1) + 3"


def everybody(hand_in: Callable[..., Path]) -> None:
    hand_in("ada", **RIGHT)
    hand_in("bob", **{**RIGHT, "row_entropy": ABSURD})
    hand_in("cleo", **{**RIGHT, "row_entropy": ABSURD_TOO})
    hand_in("dan", **{**RIGHT, "row_entropy": OTHER})
    hand_in("eve", **{**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K})
    hand_in("fay", b"<html>log in</html>")
    hand_in("gus")


@pytest.fixture
def graded(course: Course, graded_once: Callable[..., None]) -> Course:
    graded_once(everybody, course)
    (course.classroom / "submitted" / "hal").mkdir()
    return course


def run(course: Course) -> None:
    for _ in batch.run(batch.jobs_of(course, [SLUG], [], None), workers=2):
        pass


def of(course: Course) -> report.Assignment:
    return report.of(course, SLUG, course.students)


def test_wrong_answers_without_a_name_are_put_together_by_what_they_compute(graded: Course):
    groups = {g.students: g for g in of(graded).unnamed}
    assert set(groups) == {("bob", "cleo"), ("dan",)}
    both = groups["bob", "cleo"]
    assert both.exercise == "row_entropy" and "7 - np.sum" in both.example
    assert next(iter(of(graded).unnamed)) is not None and len(of(graded).unnamed[0].students) == 2
    compile(both.draft, "draft", "exec")
    assert "Misconception(" in both.draft and "_row_entropy_as_seen" in both.draft


def test_named_mistakes_say_who_has_them(graded: Course):
    (mistake,) = of(graded).named
    assert (mistake.name, mistake.students) == ("divides by d_k", ("eve",))
    assert "Divide by √d_k" in mistake.sentence


def test_numbers_add_up(graded: Course):
    a = of(graded)
    assert (a.graded, a.missing) == (6, ("hal",))
    assert [s for s, _ in a.broken] == ["fay"] and "web page" in a.broken[0][1]
    assert sum(bar.count for bar in a.bars) == 6
    entropy = next(r for r in a.rows if r.name == "row_entropy")
    assert (entropy.right, entropy.wrong, entropy.to_do) == (2, 3, 1)


def test_changes_since_the_attempt_before_are_listed(graded: Course, hand_in):
    assert not of(graded).changes
    hand_in("gus", **RIGHT)
    hand_in("fay", **RIGHT)
    run(graded)
    full = of(graded).changes[0].now
    assert {(c.student, c.before, c.now) for c in of(graded).changes} == {
        ("gus", 0.0, full),
        ("fay", None, full),
    }


def test_a_score_that_is_gone_is_not_a_score_of_0(graded: Course, hand_in):
    hand_in("ada", b"<html>")
    run(graded)
    (change,) = of(graded).changes
    assert change.now is None
    assert "before, no score now" in report.page(graded, [SLUG], NOW)


def test_with_a_roster_it_is_said_who_has_handed_in_nothing(graded: Course):
    roster = "student_id\nada\nzoe\n"
    (graded.classroom / "roster.csv").write_text(roster)
    text = report.page(graded, [SLUG], NOW)
    assert "8 students who have handed in something, of 2 in the roster" in text
    assert "Nothing came from\n2: hal, zoe." in text


def test_a_sentence_of_a_misconception_is_no_markdown(graded: Course, monkeypatch):
    mistake = report.Mistake("row_entropy", "bits", "The *standard* one <b>.", ("eve",))
    monkeypatch.setattr(report, "_named", lambda *_: (mistake,))
    assert "<p>The <em>standard</em> one &lt;b&gt;.</p>" in report.page(graded, [SLUG], NOW)


def test_the_page_is_one_file_in_which_what_students_wrote_is_text(graded: Course):
    text = report.page(graded, [SLUG], NOW)
    assert "<script" not in text and "&lt;script&gt;" in text
    assert "src=" not in text and "http" not in text.replace("http-equiv", "")
    assert "2026-03-04 05:06" in text
    assert report.page(graded, [SLUG], NOW) == text


def test_a_class_of_nobody_has_an_empty_page(course: Course):
    assert "Nothing has been graded yet" in report.page(course, [SLUG], NOW)
