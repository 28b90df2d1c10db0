"""Grades as a table: what nbgrader exports, and beside it what became of each submission."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from coursework.classroom import Attempt, Course
from coursework.roster import Roster

#: nbgrader's export, and our two.
COLUMNS = (
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
    "status",
    "reason",
)
NO_SCORE = ("unreadable", "error", "missing")
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r")


def rows(course: Course, slugs: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One row for each student and assignment, missing submissions included."""
    from coursework.gradebook import open_gradebook  # loads nbformat; not every command needs it

    with open_gradebook(course) as gradebook:
        known = {a.name: a for a in gradebook.assignments}
        assignments = [known[s] for s in (slugs or sorted(known)) if s in known]
        people: dict[str, Any] = {s.id: s for s in gradebook.students}
        roster = Roster.of(course)
        people |= {p.student_id: p for p in (roster.people if roster else ())}
        everybody = sorted({*people, *course.students})
        return [
            _row(gradebook, assignment, people.get(student), student, attempts.get(student))
            | ({} if student in attempts else _without_attempt(gradebook, course, slug, student))
            for assignment in assignments
            for slug in [assignment.name]
            for attempts in [course.all_latest(slug)]
            for student in everybody
        ]


def _row(
    gradebook: Any, assignment: Any, person: Any, student: str, attempt: Attempt | None
) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    row |= {
        "assignment": assignment.name,
        "duedate": assignment.duedate or "",
        "student_id": student,
        "last_name": getattr(person, "last_name", None) or "",
        "first_name": getattr(person, "first_name", None) or "",
        "email": getattr(person, "email", None) or "",
        "max_score": assignment.max_score,
        "status": attempt.result.status if attempt else "missing",
        "reason": _reason(attempt),
    }
    if row["status"] in NO_SCORE:
        return row
    submission = gradebook.find_submission(assignment.name, student)
    return row | _score(submission)


def _score(submission: Any) -> dict[str, Any]:
    penalty = submission.late_submission_penalty or 0.0
    return {
        # Somebody may have read it since it was graded, or have to read it once more.
        "status": "needs manual" if submission.needs_manual_grade else "graded",
        "timestamp": submission.timestamp or "",
        "raw_score": submission.score,
        "late_submission_penalty": penalty,
        "score": max(0.0, submission.score - penalty),
    }


def _without_attempt(gradebook: Any, course: Course, slug: str, student: str) -> dict[str, Any]:
    """What is to be said of work that `course grade` has not graded, if there is any."""
    from nbgrader.api import MissingEntry

    try:
        submission = gradebook.find_submission(slug, student)
        scores = [g.auto_score for notebook in submission.notebooks for g in notebook.grades]
    except MissingEntry:
        scores = []
    if all(score is None for score in scores):  # an extension may have been granted
        if student not in course.submissions(slug):
            return {}
        return {"reason": f"Handed in and not graded yet: course grade {slug}"}
    reason = "Graded by nbgrader autograde; course grade would say why."
    return _score(submission) | {"reason": reason}


def _reason(attempt: Attempt | None) -> str:
    if attempt is None:
        return "Nothing was handed in."
    repairs = "; ".join(attempt.result.repairs)
    return " ".join(
        part for part in (attempt.result.reason, f"Repaired: {repairs}." if repairs else "") if part
    )


def to_csv(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as CSV, UTF-8 when encoded, with text that a spreadsheet would run made harmless."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([harmless(row[c]) for c in COLUMNS])
    return text.getvalue()


def harmless(value: Any) -> Any:
    """A cell of a table that no spreadsheet runs: text that would be is led by an apostrophe."""
    if isinstance(value, (int, float)):
        return value
    text = str(value)
    return f"'{text}" if text.startswith(_DANGEROUS) else text
