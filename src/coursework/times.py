"""When work was handed in, where a download does not say it: from a table of the platform's.

The zip files of Canvas and Moodle carry dates of their making, not of handing in. Times come from
the platform's own report, as a CSV file with a line for each student.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from coursework import roster as people
from coursework import spreadsheet
from coursework.errors import CourseError
from coursework.roster import Roster

COLUMNS = {
    **people.COLUMNS,
    "lms_id": (*people.COLUMNS["lms_id"], "user id"),  # Canvas's own name, with submitted_at
    "time": ("submitted at", "timestamp"),
}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")


def read(path: Path, roster: Roster | None) -> tuple[dict[str, datetime], list[str]]:
    """Times by student, and what the file calls those whom nobody knows.

    A line without a time is of somebody who has handed in nothing.

    Args:
        path: a CSV file with a column `time`, and `student_id` or `lms_id`.
        roster: who is in the class. None: people are called what the file calls them.

    Raises:
        CourseError: it cannot be read, a column is missing, a time is none, or a student has two.
    """
    rows = spreadsheet.read(path, "the file of times", COLUMNS)
    columns = rows[0][1] if rows else {}
    if "time" not in columns or not {"student_id", "lms_id", "email"} & set(columns):
        raise CourseError(
            f"the file of times {path} needs a column time, a column student_id or lms_id, and a "
            "line for each student"
        )
    times: dict[str, datetime] = {}
    strangers = []
    for number, row in rows:
        if not row["time"]:
            continue
        time = parse(row["time"])
        if time is None:
            raise CourseError(
                f"line {number} of the file of times {path} has the time {row['time']!r}: it must "
                "be written like 2027-03-01T18:00Z or 2027-03-01 19:00+01:00"
            )
        student = _whose(row, roster)
        if student is None:
            strangers.append(row.get("student_id") or row.get("lms_id") or row.get("email") or "?")
        elif student in times:
            raise CourseError(
                f"line {number} of the file of times {path} has a second time of {student}: "
                "leave the one that counts"
            )
        else:
            times[student] = time
    return times, strangers


def parse(text: str) -> datetime | None:
    """A time in ISO 8601, in UTC where it names no zone; None if it is none.

    A date alone is none: the day of a deadline has a before and an after.
    """
    text = re.sub(r"\s*(UTC|GMT)$", "Z", text.strip())
    if not _TIME.fullmatch(text):
        return None
    try:
        time = datetime.fromisoformat(re.sub(r"\s+(?=[+-]\d\d)", "", text))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _whose(row: spreadsheet.Row, roster: Roster | None) -> str | None:
    known = {key: row.get(key, "") for key in ("student_id", "lms_id", "email", "name")}
    if roster is None:
        return known["student_id"] or people.lms_number(known["lms_id"]) or known["email"] or None
    person = roster.find(**known)
    return person and person.student_id
