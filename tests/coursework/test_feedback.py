"""Feedback says what was found, in the check's words, and nothing that is secret or dangerous."""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bs4
import numpy as np
import pytest

from coursework import batch, feedback, gradebook, grades
from coursework.answer import run_here
from coursework.classroom import Attempt, Course
from coursework.errors import CourseError
from coursework.exercises import for_chapter
from coursework.feedback import Marks
from coursework.judge.grading import Graded, OpenQuestion, Result
from tests.coursework.submissions import DIVIDED_BY_D_K, RIGHT, SLUG

pytestmark = pytest.mark.slow

HandIn = Callable[..., Path]
MARKUP = "<img src=https://x.test/a onerror=alert(1)>&amp;{{ 7001 * 7 }}"

RESULT = Result(
    slug=SLUG,
    status="needs manual",
    reason="",
    exercises=(
        Graded(
            exercise="04.row_entropy",
            grade_id="graded_row_entropy",
            points=2.0,
            max_points=3.0,
            feedback="✗ row_entropy: your entropies are too large (2 of 3 points).\n"
            "  (judged with right answers in place of softmax)\n"
            "  This is the entropy in bits.\n"
            "  ✗ the entropy of every row\n  ✓ a row of one weight\n"
            "  A hint: course check 04-scaling --hint row_entropy",
            message="✗ row_entropy: result[0] is 1.2345; it should be 0.8557.",
            misconception="measures in bits",
            properties=(("the entropy of every row", 0, 1), ("a row of one weight", 2, 2)),
        ),
        Graded(
            exercise="04.softmax_jacobian",
            grade_id="graded_softmax_jacobian",
            points=4.0,
            max_points=4.0,
            feedback="✓ softmax_jacobian: right (4 of 4 points).\n  ✓ every entry",
            message="✓ softmax_jacobian: right (4 of 4 points).",
            misconception=None,
            properties=(("every entry", 4, 4),),
        ),
        Graded(
            exercise="04.bug_hunt",
            grade_id="graded_bug_hunt",
            points=0.0,
            max_points=5.0,
            feedback="· bug_hunt: still to do (0 of 5 points).",
            message="· bug_hunt: still to do (0 of 5 points).",
            misconception=None,
            properties=(("hides", 0, 5),),
        ),
    ),
    manual=(OpenQuestion("open_question", 4.0, True),),
    repairs=("the file was called 'mine.ipynb'",),
    isolation="strict",
    versions={"numpy": "2.4.6"},
    submission_sha256="0123456789abcdef",
)
ATTEMPT = Attempt("ada", "2026-01-02T03:04:05+00:00", "abc", "mine.ipynb", RESULT)


def text_of(html: str) -> str:
    """What a reader of the page reads, with single spaces."""
    page = bs4.BeautifulSoup(html, "html.parser")
    for tag in page(["style", "script"]):
        tag.decompose()
    return " ".join(page.get_text(" ").split())


def test_a_page_says_what_passed_what_did_not_and_why() -> None:
    text = text_of(feedback.page(SLUG, "ada", ATTEMPT))
    assert "6 of 16 points so far. A person has still to read: open question" in text
    assert "your entropies are too large" in text
    assert "This is the entropy in bits." in text
    assert "judged with right answers in place of softmax" in text
    assert "The mistake has a name: measures in bits" in text
    assert "the entropy of every row 0 of 1" in text and "a row of one weight 2 of 2" in text
    assert "still to do" in text and "hides" not in text
    assert text.count("For a hint") == 2
    assert "course check 04-scaling --hint row_entropy" in text
    assert "the file was called 'mine.ipynb'" in text
    assert "isolation: strict" in text and "numpy 2.4.6" in text


def test_each_thing_is_said_once() -> None:
    text = text_of(feedback.page(SLUG, "ada", ATTEMPT))
    for once in ("too large", "the entropy of every row", "--hint row_entropy", "in bits."):
        assert text.count(once) == 1, once
    assert "A hint:" not in text and "(2 of 3 points)" not in text


def test_the_words_for_the_instructor_are_not_shown() -> None:
    html = feedback.page(SLUG, "ada", ATTEMPT)
    assert "0.8557" not in html and "1.2345" not in html
    assert str(replace(RESULT, seed=987654321).seed) not in feedback.page(
        SLUG, "ada", replace(ATTEMPT, result=replace(RESULT, seed=987654321))
    )


def test_what_a_person_gave_counts_and_is_shown() -> None:
    marks = Marks(
        scores={"open_question": 3.5, "graded_row_entropy": 3.0},
        extra={"graded_bug_hunt": 1.0},
        comments={"open_question": "Well <argued>.", "row_entropy": "Bits are fine here."},
        penalty=2.0,
    )
    text = text_of(feedback.page(SLUG, "ada", ATTEMPT, marks))
    assert "9.5 of 16 points." in text  # 3 + 4 + 0 + 1 + 3.5, less 2
    assert "so far" not in text
    assert "2 points are taken off for handing in late" in text
    assert "Well <argued>." in text and "Bits are fine here." in text
    assert "Extra credit: +1 points" in text
    assert text.count("A person has looked at this") == 1


@pytest.mark.parametrize(
    ("attempt", "handed_in", "says"),
    [
        (None, False, "Nothing was handed in"),
        (None, True, "has not been graded yet"),
        ("unreadable", True, "could not be read: The file is a web page."),
        ("error", True, "the fault is ours"),
    ],
)
def test_where_there_is_no_score_the_page_says_so_and_why(
    attempt: str | None, handed_in: bool, says: str
) -> None:
    reason = "The file is a web page."
    made = attempt and replace(ATTEMPT, result=Result(SLUG, attempt, reason))
    text = text_of(feedback.page(SLUG, "ada", made or None, handed_in=handed_in))
    assert "There is no score" in text and says in text
    assert "points" not in text


def test_the_fault_of_a_failed_grading_is_not_spread_out_before_the_student() -> None:
    reason = "grading failed on our side: OSError: /srv/course/secret"
    html = feedback.page(SLUG, "ada", replace(ATTEMPT, result=Result(SLUG, "error", reason)))
    assert "OSError" not in html and "secret" not in html


def only_markup_of_ours(html: str) -> None:
    page = bs4.BeautifulSoup(html, "html.parser")
    assert page.find(["img", "script", "iframe", "link", "object", "base", "form"]) is None
    attributes = {name for tag in page.find_all(True) for name in tag.attrs}
    assert not {name for name in attributes if name.startswith("on")}
    assert all(a["href"].startswith("#") for a in page.find_all("a"))
    assert "url(" not in html and "@import" not in html
    assert "49007" not in text_of(html), "a template within a name was run"


def test_whatever_a_student_wrote_stands_there_as_text() -> None:
    spoiled = replace(
        RESULT,
        exercises=tuple(
            replace(e, feedback=f"✗ {e.exercise[3:]}: {MARKUP}\n  {MARKUP}", misconception=MARKUP)
            for e in RESULT.exercises
        ),
        repairs=(MARKUP,),
    )
    attempt = Attempt(MARKUP, ATTEMPT.time, "abc", f"{MARKUP}.ipynb", spoiled)
    html = feedback.page(SLUG, MARKUP, attempt, Marks({}, {}, {"open_question": MARKUP}))
    only_markup_of_ours(html)
    assert text_of(html).count(MARKUP) >= 9
    for status in ("unreadable", "error"):
        broken = replace(attempt, result=Result(SLUG, status, MARKUP))
        only_markup_of_ours(feedback.page(SLUG, MARKUP, broken))


def test_a_name_with_control_characters_is_written() -> None:
    html = feedback.page(SLUG, "a\udcff\x00\x1b[2Jb", None)
    assert "a\ufffd\ufffd\ufffd[2Jb" in html.encode().decode()


# A class ---------------------------------------------------------------------------------------

#: An answer that tries to carry its graded inputs out, by every way that words can take.
SMUGGLER = """
def scaled_dot_product_attention(q, k, v):
    raise ValueError(str(q.ravel()[:3].tolist()))

def softmax_jacobian(p):
    return type(f"P{str(p.ravel()[0]).replace('.', '_')}", (), {})()

def row_entropy(weights):
    return weights * 1.5

def gradient_through_softmax(scores, upstream):
    raise type(f"P{str(scores.ravel()[0]).replace('.', '_')}", (Exception,), {})
"""


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, np.ndarray):
        yield from map(float, value.ravel())
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, float):
        yield value


def graded_numbers(seed: int) -> set[str]:
    """The numbers of graded inputs and right values, as they would be printed."""
    found = set()
    for exercise in for_chapter(4):
        for prop in exercise.properties:
            rng = np.random.default_rng([seed, zlib.crc32(prop.name.encode())])
            for call in prop.calls(rng):
                right = exercise.reference and run_here(exercise.reference, call)
                values = (*call.args, *call.kwargs.values(), right and right.value)
                found |= {f"{abs(x):.4g}" for x in numbers(values) if np.isfinite(x)}
    return {number for number in found if re.fullmatch(r"\d+\.\d{3,}", number)}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "course"


@pytest.fixture
def a_class(kept: Path, hand_in: HandIn, course: Course) -> Course:
    """A class that has been graded: once for all tests, of which each gets a copy."""
    if kept.exists():
        shutil.copytree(kept, course.root, dirs_exist_ok=True)
        return course
    hand_in("ada", open_question="Because.", **RIGHT)
    hand_in("bob", **{**RIGHT, "scaled_dot_product_attention": DIVIDED_BY_D_K})
    hand_in("spy", row_entropy=SMUGGLER)
    hand_in("<b>Smith, Jr.", name="<i>mine.ipynb", row_entropy=f"raise ValueError({MARKUP!r})")
    hand_in("eve", b"<html>")
    (course.classroom / "submitted" / "kim").mkdir()
    gradebook.prepare(course, SLUG)
    outcomes = batch.run(batch.jobs_of(course, [SLUG], [], None), workers=2)
    gradebook.record(course, [o.attempt for o in outcomes])
    shutil.copytree(course.root, kept)
    return course


def pages_of(course: Course, *students: str) -> dict[str, str]:
    return {
        p.student: p.path.read_text(encoding="utf-8")
        for p in feedback.write(course, [SLUG], students)
    }


def test_everybody_gets_a_page_and_the_same_one_each_time(a_class: Course) -> None:
    pages = pages_of(a_class)
    assert set(pages) == {"ada", "bob", "spy", "<b>Smith, Jr.", "eve", "kim"}
    assert "divides by d_k" in text_of(pages["bob"])
    assert "web page" in text_of(pages["eve"])
    assert "Nothing was handed in" in text_of(pages["kim"])
    smith = text_of(pages["<b>Smith, Jr."])
    assert "<b>Smith, Jr." in smith and "<i>mine.ipynb" in smith and MARKUP in smith
    for html in pages.values():
        only_markup_of_ours(html)
    folder = a_class.classroom / "feedback"
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    assert files == sorted(f"{student}/{SLUG}.html" for student in pages)
    assert pages_of(a_class) == pages
    (a_class.classroom / "gradebook.db").unlink()
    assert pages_of(a_class)["bob"] == pages["bob"]


def test_no_page_holds_a_number_of_a_graded_input_or_of_a_right_value(a_class: Course) -> None:
    secret = graded_numbers(a_class.seed)
    assert len(secret) > 500
    attempt = a_class.latest(SLUG, "spy")
    assert attempt is not None
    told = " ".join(e.message for e in attempt.result.exercises)
    assert set(re.findall(r"\d+\.\d+", told)) & secret, "this test would find nothing"
    for student, html in pages_of(a_class).items():
        shown = set(re.findall(r"\d+[._]\d+", text_of(html)))
        assert not {number.replace("_", ".") for number in shown} & secret, student
        assert str(a_class.seed) not in html


def test_the_score_of_a_page_is_the_score_of_the_table(a_class: Course) -> None:
    with gradebook.open_gradebook(a_class) as book:
        book.find_grade("open_question", SLUG, SLUG, "ada").manual_score = 2.5
        book.find_grade("graded_row_entropy", SLUG, SLUG, "bob").extra_credit = 1.0
        book.find_comment("open_question", SLUG, SLUG, "ada").manual_comment = "Say more."
        book.db.commit()
    pages = pages_of(a_class)
    rows = {r["student_id"]: r for r in grades.rows(a_class)}
    for student in ("ada", "bob", "spy"):
        score, most = rows[student]["score"], rows[student]["max_score"]
        assert f"{score:g} of {most:g} points" in text_of(pages[student])
    assert "Say more." in pages["ada"]


def test_a_person_has_the_name_that_the_gradebook_gives(a_class: Course) -> None:
    with gradebook.open_gradebook(a_class) as book:
        book.update_or_create_student("ada", first_name="Ada", last_name="<King>")
    pages = pages_of(a_class, "ada")
    assert set(pages) == {"ada"}
    assert "Feedback for Ada <King> (ada)" in text_of(pages["ada"])


def test_a_person_has_the_name_of_the_roster_where_the_gradebook_has_none(a_class: Course) -> None:
    roster = "student_id,last_name,first_name\nbob,Noyce,Bob\n"
    (a_class.classroom / "roster.csv").write_text(roster)
    assert "Feedback for Bob Noyce (bob)" in text_of(pages_of(a_class, "bob")["bob"])
    assert "Feedback for ada" in text_of(pages_of(a_class, "ada")["ada"])


def test_an_answer_that_changed_after_a_person_graded_it_waits_with_its_points() -> None:
    marks = Marks({"open_question": 3.5}, {}, {}, outdated=frozenset({"open_question"}))
    text = text_of(feedback.page(SLUG, "ada", ATTEMPT, marks))
    assert "9.5 of 16 points so far. A person has still to read: open question" in text
    assert "your answer has changed since a person graded it" in text


def test_words_in_asterisks_are_emphasised_and_signs_of_multiplication_are_not() -> None:
    said = "The *standard deviation* is q*k*v, 2 * <b> * 3."
    exercise = replace(RESULT.exercises[0], feedback=f"✗ row_entropy: wrong.\n  {said}")
    page = feedback.page(
        SLUG, "ada", replace(ATTEMPT, result=replace(RESULT, exercises=(exercise,)))
    )
    assert "The <em>standard deviation</em> is q*k*v, 2 * &lt;b&gt; * 3." in page


def test_no_page_is_written_outside_of_the_feedback_folder(course: Course) -> None:
    with gradebook.open_gradebook(course) as book:
        book.update_or_create_student("../../solutions")
    with pytest.raises(CourseError, match="cannot have a folder"):
        pages_of(course)
    with pytest.raises(CourseError, match="nobody is called zoe"):
        pages_of(course, "zoe")
