"""Feedback: a page for each student and assignment, made from the attempt as often as one likes.

    classroom/feedback/STUDENT/SLUG.html
    classroom/feedback/STUDENT/SLUG/SLUG.html    for nbgrader's exchange, if the work came by it

A page is one file without a script or a request, the same each time it is made. Of the attempt it
shows the words for the student (`Graded.feedback`), never those for the instructor, which hold
graded inputs and right values. Manual scores and comments come from the gradebook.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from coursework import gradebook
from coursework.chapters import by_slug
from coursework.classroom import Attempt, Course, write_aside
from coursework.errors import CourseError
from coursework.judge.grading import Graded, OpenQuestion
from coursework.plain import readable
from coursework.roster import Roster

NOT_GRADED = ("unreadable", "error")
_OF_THE_EXCHANGE = ("timestamp.txt", "submission_secret.txt")  #: which `nbgrader submit` adds


@dataclass(frozen=True)
class Page:
    """A page that has been written."""

    student: str
    slug: str
    path: Path


@dataclass(frozen=True)
class Part:
    """One exercise or open question, as its page shows it."""

    name: str
    title: str  #: what came of it, in a few words
    state: str  #: "right", "wrong", "to do" or "waiting"
    points: float | None  #: None where nobody has read it yet
    max_points: float
    sentences: tuple[str, ...] = ()
    properties: tuple[tuple[str, int, int], ...] = ()
    misconception: str | None = None
    hint: str | None = None  #: the command that gives one
    comment: str = ""  #: a person's
    by_hand: bool = False  #: the points are a person's
    extra: float = 0.0


def write(course: Course, slugs: Sequence[str], students: Sequence[str] = ()) -> Iterator[Page]:
    """Write the pages of these assignments for these students (none: for everybody).

    Raises:
        CourseError: a student is not known, or the gradebook cannot be read.
    """
    with gradebook.open_gradebook(course) as book:
        people = {s.id: s for s in book.students}
        roster = Roster.of(course)
        named = {p.student_id: p for p in (roster.people if roster else ())}
        everybody = sorted({*people, *course.students})
        if unknown := set(students) - set(everybody):
            raise CourseError(f"nobody is called {', '.join(sorted(unknown))} here")
        for slug in slugs:
            attempts, submissions = course.all_latest(slug), course.submissions(slug)
            for student in students or everybody:
                text = page(
                    slug,
                    _name(student, people.get(student), named.get(student)),
                    attempts.get(student),
                    Marks.of(book, slug, student),
                    handed_in=student in submissions,
                )
                path = _path(course, student, slug)
                write_aside(path, text)
                _lay_for_the_exchange(submissions.get(student), path)
                yield Page(student, slug, path)


def _path(course: Course, student: str, slug: str) -> Path:
    if Path(student).name != student:  # the gradebook takes any name; a folder does not
        raise CourseError(f"the student {student!r} of the gradebook cannot have a folder")
    return course.classroom / "feedback" / student / f"{slug}.html"


def _lay_for_the_exchange(submission: Path | None, page: Path) -> None:
    """Lay a page where `nbgrader release_feedback` takes it, if the work came by the exchange.

    The student's own nbgrader finds it there by a secret that it handed in with the work.
    """
    files = [submission / name for name in _OF_THE_EXCHANGE] if submission else []
    if not files or not all(path.is_file() for path in files):
        return
    folder = page.with_suffix("")
    for path in (page, *files):
        write_aside(folder / path.name, path.read_text(encoding="utf-8"))


def _name(student: str, *people: Any) -> str:
    """The name that the gradebook or the roster has, with the id, by which both know a student."""
    for person in people:
        names = (getattr(person, "first_name", None), getattr(person, "last_name", None))
        if any(names):
            return f"{' '.join(filter(None, names))} ({student})"
    return student


# What people gave -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Marks:
    """What people gave for one submission: scores, extra credit and comments by cell."""

    scores: dict[str, float]
    extra: dict[str, float]
    comments: dict[str, str]
    penalty: float = 0.0  #: for handing in late
    outdated: frozenset[str] = frozenset()  #: cells whose answer changed after it got its score

    @classmethod
    def of(cls, book: Any, slug: str, student: str) -> Marks:
        """Read them from nbgrader's gradebook; there are none before grading."""
        from nbgrader.api import MissingEntry

        try:
            submission = book.find_submission(slug, student)
        except MissingEntry:
            return cls({}, {}, {})
        grades = [g for n in submission.notebooks for g in n.grades]
        comments = [c for n in submission.notebooks for c in n.comments]
        return cls(
            {g.cell.name: g.manual_score for g in grades if g.manual_score is not None},
            {g.cell.name: g.extra_credit for g in grades if g.extra_credit},
            {c.cell.name: c.manual_comment for c in comments if c.manual_comment},
            submission.late_submission_penalty or 0.0,
            frozenset(
                g.cell.name for g in grades if g.needs_manual_grade and g.manual_score is not None
            ),
        )


NO_MARKS = Marks({}, {}, {})

# The page -------------------------------------------------------------------------------------


def page(
    slug: str,
    name: str,
    attempt: Attempt | None,
    marks: Marks = NO_MARKS,
    *,
    handed_in: bool = False,
) -> str:
    """The page of one student for one assignment.

    Args:
        slug: the assignment.
        name: the student's, as they are called.
        attempt: what grading gave; None where nothing has been graded.
        marks: what people gave.
        handed_in: whether there is something to grade.
    """
    graded = attempt is not None and attempt.result.status not in NOT_GRADED
    parts = tuple(_parts(attempt, marks)) if attempt and graded else ()
    points = sum((p.points or 0.0) + p.extra for p in parts)
    return template("feedback.html").render(
        chapter=by_slug(slug),
        student=readable(name),
        attempt=attempt,
        graded=graded,
        handed_in=handed_in,
        parts=parts,
        points=max(0.0, points - marks.penalty),
        max_points=sum(p.max_points for p in parts),
        penalty=marks.penalty,
        waiting=[p.name for p in parts if p.state == "waiting"],
        hint=f"course check {slug} --hint",
    )


def _parts(attempt: Attempt, marks: Marks) -> Iterator[Part]:
    for exercise in attempt.result.exercises:
        yield _exercise(exercise, marks, attempt.result.slug)
    for question in attempt.result.manual:
        yield _question(question, marks)


def _exercise(graded: Graded, marks: Marks, slug: str) -> Part:
    name = graded.exercise.partition(".")[2]
    title, sentences = _words(graded, name)
    right = graded.points == graded.max_points
    to_do = graded.feedback.startswith("·")
    changed = marks.scores.get(graded.grade_id)
    return Part(
        name=name,
        title=title,
        state="right" if right else "to do" if to_do else "wrong",
        points=graded.points if changed is None else changed,
        max_points=graded.max_points,
        sentences=sentences,
        properties=() if to_do else graded.properties,
        misconception=graded.misconception,
        hint=None if right else f"course check {slug} --hint {name}",
        by_hand=changed is not None,
        **_given(marks, graded.grade_id),
    )


def _words(graded: Graded, name: str) -> tuple[str, tuple[str, ...]]:
    """What the check said: its headline, and its sentences.

    The points, the properties and the hint that it lists as well are shown in their own places.
    """
    score = f" ({graded.points:g} of {graded.max_points:g} points)."
    first, *rest = graded.feedback.replace(score, "", 1).splitlines()
    title = first.lstrip("✓✗· ").removeprefix(f"{name}:").strip()
    lines = (line.strip() for line in rest)
    shown_elsewhere = tuple(f"{mark} {p}" for mark in "✓✗" for p, _, _ in graded.properties)
    sentences = tuple(
        line for line in lines if line not in shown_elsewhere and not line.startswith("A hint: ")
    )
    return title, sentences


def _question(question: OpenQuestion, marks: Marks) -> Part:
    score = marks.scores.get(question.grade_id)
    if score is None and not question.answered:
        score, title, state = 0.0, "nothing was written", "to do"
    elif score is None:
        title, state = "your answer is there; a person reads it", "waiting"
    elif question.grade_id in marks.outdated:
        title = "your answer has changed since a person graded it; it is read again"
        state = "waiting"
    else:
        title, state = "read and graded by a person", "read"
    return Part(
        name=question.grade_id.replace("_", " "),
        title=title,
        state=state,
        points=score,
        max_points=question.max_points,
        by_hand=state == "read",
        **_given(marks, question.grade_id),
    )


def _given(marks: Marks, grade_id: str) -> dict[str, Any]:
    """What a person gave for a cell beside its score. A comment may stand at the answer's cell."""
    cells = dict.fromkeys((grade_id.removeprefix("graded_"), grade_id))
    comments = (marks.comments.get(cell, "") for cell in cells)
    return {
        "comment": readable("\n\n".join(filter(None, comments))),
        "extra": marks.extra.get(grade_id, 0.0),
    }


_EMPHASIS = re.compile(r"(?<![\w*])\*(\w[^*\n]*\w|\w)\*(?![\w*])")


def _emphasis(text: str) -> Any:
    """Text as HTML, in which words that stand in *asterisks* are emphasised."""
    from markupsafe import Markup, escape

    return Markup(_EMPHASIS.sub(r"<em>\1</em>", str(escape(text))))


@cache
def template(name: str) -> Any:
    """A template of ours, in which everything that is put in is text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("coursework"),
        autoescape=True,  # everything that a student wrote is text, whatever it looks like
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = "{:g}".format
    environment.filters["emphasis"] = _emphasis
    return environment.get_template(name)
