"""Grades as learning platforms take them: their own export, with the points filled in.

Each platform recognises its students by columns of its own, so that the safest file to give it is
the one that came from it. Moodle's comes back whole, with every other cell as it was. Of Canvas's
come back the columns that name people, and the assignment: Canvas takes what is in a column for
its new value, and leaves alone what has no column, such as an essay graded since the export.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from coursework import spreadsheet
from coursework.errors import CourseError
from coursework.grades import NO_SCORE, harmless
from coursework.roster import Person, Roster, plain_letters

Row = dict[str, str]


@dataclass
class Filled:
    """A platform's file with points in it."""

    text: str
    filled: int = 0
    strangers: list[str] = field(default_factory=list)  #: rows of nobody who has a grade here
    left_over: list[str] = field(default_factory=list)  #: students with a grade and without a row
    doubts: list[str] = field(default_factory=list)  #: sentences on what may not be as it was meant


def points(score: Any) -> str:
    """A score as a decimal number, rounded once, to hundredths, halves up."""
    exact = Decimal(str(score)).quantize(Decimal("0.01"), ROUND_HALF_UP)
    return f"{exact.normalize():f}"


def canvas(export: str, slug: str, rows: Sequence[dict[str, Any]], roster: Roster) -> Filled:
    """Canvas's gradebook (Grades, Export) with one assignment's column filled in.

    The column is the one that is called like the slug, such as `04-scaling (123)` or `04 Scaling`;
    where there is none, it is added, and Canvas asks what to make of it.

    Raises:
        CourseError: this is no such export, or two columns are called so.
    """
    header, lines = _read(export, "Canvas", ("Student", "ID"))
    called_so = _called(header, slug)
    column = called_so or slug
    doubts = []
    if not called_so:
        doubts.append(
            f"No column is called like {slug}: a new one is added, and Canvas will ask which "
            "assignment it is. Where that is wrong, name the assignment in Canvas so, and export "
            "again."
        )
    keep = [c for c in ("Student", "ID", "SIS User ID", "SIS Login ID", "Section") if c in header]

    def who(line: Row) -> Person | None:
        return roster.find(
            lms_id=line["ID"],
            student_id=line.get("SIS Login ID", ""),
            email=line.get("SIS Login ID", ""),
            name=line["Student"],
        )

    def fill(line: Row, row: dict[str, Any]) -> None:
        line[column] = points(row["score"])

    people = [line for line in lines if line["ID"].strip()]
    for line in lines:
        line.setdefault(column, "")
        if rows and not line["ID"].strip() and "Points Possible" in line["Student"]:
            most = rows[0]["max_score"]
            doubts += _other_maximum("Canvas", line[column], most)
            line[column] = line[column] or points(most)
    filled = _fill([*keep, column], lines, people, who, fill, rows, lambda line: line["Student"])
    filled.doubts += doubts
    return filled


def _called(header: Sequence[str], slug: str) -> str | None:
    """The column of an assignment, by its name without signs, spaces and Canvas's number.

    A name that is the slug goes before one that only begins with it.

    Raises:
        CourseError: two are called so.
    """
    wanted = plain_letters(slug).lstrip("0")
    names = {c: plain_letters(re.sub(r"\(\d+\)\s*$", "", c)).lstrip("0") for c in header}
    for found in (
        [c for c, name in names.items() if name == wanted],
        [c for c, name in names.items() if name.startswith(wanted)],
    ):
        if len(found) > 1:
            raise CourseError(
                f"two columns are called like {slug}, {found[0]!r} and {found[1]!r}: take one out "
                "of the export"
            )
        if found:
            return found[0]
    return None


def _other_maximum(platform: str, theirs: str, ours: float) -> list[str]:
    """The sentence to say where a platform counts to another number than the course."""
    try:
        same = not theirs.strip() or Decimal(theirs.strip()) == Decimal(points(ours))
    except InvalidOperation:
        return []  # "(read only)"
    if same:
        return []
    return [
        f"{platform} counts to {theirs.strip()} points and the course to {points(ours)}: scores "
        "are not converted. Set the assignment's points there."
    ]


def moodle(export: str, slug: str, rows: Sequence[dict[str, Any]], roster: Roster) -> Filled:
    """Moodle's grading worksheet (View all submissions, Download grading worksheet), filled in.

    The assignment's feedback type "Offline grading worksheet" must be switched on. A grade that
    Moodle says cannot be changed stays; a reason goes into the feedback comments, where there are.
    """
    header, lines = _read(export, "Moodle", ("Identifier", "Grade"))

    def who(line: Row) -> Person | None:
        return roster.find(
            lms_id=line["Identifier"],
            student_id=line.get("ID number", ""),
            email=line.get("Email address", ""),
            name=line.get("Full name", ""),
        )

    def fill(line: Row, row: dict[str, Any]) -> None:
        if line.get("Grade can be changed", "Yes").strip().casefold() == "no":
            return
        line["Grade"] = points(row["score"])
        if "Feedback comments" in line and row["reason"]:
            line["Feedback comments"] = harmless(row["reason"])

    filled = _fill(header, lines, lines, who, fill, rows, lambda line: line["Identifier"])
    for theirs in sorted({line.get("Maximum Grade", "") for line in lines if rows}):
        filled.doubts += _other_maximum("Moodle", theirs, rows[0]["max_score"])
    return filled


def gradescope(rows: Sequence[dict[str, Any]]) -> Filled:
    """A table with the columns of Gradescope's own downloads."""
    columns = ("First Name", "Last Name", "SID", "Email", "Total Score", "Max Points", "Status")
    lines = [
        {
            "First Name": harmless(row["first_name"]),
            "Last Name": harmless(row["last_name"]),
            "SID": harmless(row["student_id"]),
            "Email": harmless(row["email"]),
            "Total Score": "" if row["status"] in NO_SCORE else points(row["score"]),
            "Max Points": points(row["max_score"]),
            "Status": {"graded": "Graded", "missing": "Missing"}.get(row["status"], "Ungraded"),
        }
        for row in rows
    ]
    return Filled(_written(columns, lines), filled=len(lines))


def _read(export: str, platform: str, needed: tuple[str, ...]) -> tuple[list[str], list[Row]]:
    try:
        header, cells = spreadsheet.parse(export.removeprefix("\ufeff"))
    except ValueError as error:
        raise CourseError(f"the export cannot be read: {error}") from error
    lines = [spreadsheet.under(header, line) for _, line in cells]
    missing = [name for name in needed if name not in header]
    if missing:
        raise CourseError(f"this is no export of {platform}'s: it has no column {missing[0]!r}")
    return header, lines


def _fill(
    header: Sequence[str],
    lines: list[Row],
    people: Iterable[Row],
    who: Callable[[Row], Person | None],
    fill: Callable[[Row, dict[str, Any]], None],
    rows: Sequence[dict[str, Any]],
    name: Callable[[Row], str],
) -> Filled:
    graded = {row["student_id"]: row for row in rows if row["status"] not in NO_SCORE}
    known = {row["student_id"] for row in rows}
    filled = Filled("")
    seen = set()
    for line in people:
        person = who(line)
        if person is None or person.student_id not in known:
            filled.strangers.append(name(line))
            continue
        seen.add(person.student_id)
        if person.student_id in graded:
            fill(line, graded[person.student_id])
            filled.filled += 1
    filled.left_over = sorted(graded.keys() - seen)
    filled.text = _written(header, lines)
    return filled


def _written(header: Sequence[str], lines: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, header, extrasaction="ignore", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
