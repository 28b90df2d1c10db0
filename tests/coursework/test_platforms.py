"""Platforms get their own files back, with the points filled in and nothing else changed."""

from __future__ import annotations

import csv
import io

import pytest

from coursework import platforms
from coursework.errors import CourseError
from coursework.roster import Person, Roster

SLUG = "04-scaling"
ROSTER = Roster(
    [
        Person("jdoe", "Doe", "Jane", "jane@example.org", "101"),
        Person("mueller", "Müller", "Jürgen", "jm@example.org", "102"),
        Person("kim", "Lee", "Kim", "kim@example.org", "103"),
        Person("gone", "Away", "Far", "far@example.org", "104"),
    ]
)
ROWS = [
    {"student_id": student, "first_name": p.first_name, "last_name": p.last_name, "email": p.email}
    | {"score": score, "max_score": 30.0, "status": status, "reason": reason}
    for p in ROSTER.people
    for student, score, status, reason in [
        {
            "jdoe": ("jdoe", 26.666666666666668, "graded", "=SUM(A1)"),
            "mueller": ("mueller", 30.0, "needs manual", ""),
            "kim": ("kim", "", "missing", "Nothing was handed in."),
            "gone": ("gone", 1.005, "graded", ""),
        }[p.student_id]
    ]
]

#: As Canvas writes it: two lines of header, a test student, other assignments beside.
CANVAS = (
    "Student,ID,SIS User ID,SIS Login ID,Section,03-qkv (880),04-scaling (881),Final Score\r\n"
    "    Points Possible,,,,,20,30,(read only)\r\n"
    '"Doe, Jane",101,S-1,jdoe,Morning,18,,90\r\n'
    '"Müller, Jürgen",102,S-2,mueller,Morning,20,,100\r\n'
    '"Lee, Kim",103,S-3,kim,Evening,,,\r\n'
    '"Student, Test",9,,abc123,Morning,,,\r\n'
)
#: As Moodle writes it.
MOODLE = (
    "\ufeffIdentifier,Full name,Email address,Status,Grade,Maximum Grade,"
    "Grade can be changed,Last modified (submission),Feedback comments\n"
    "Participant 101,Jane Doe,jane@example.org,Submitted for grading,,30.00,Yes,-,\n"
    "Participant 102,Jürgen Müller,jm@example.org,Submitted,5.00,30.00,No,-,\n"
    "Participant 103,Kim Lee,kim@example.org,No submission,,30.00,Yes,-,\n"
    "Participant 999,Bo Stranger,bo@example.org,Submitted,,30.00,Yes,-,\n"
)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_canvas_gets_its_column_filled_in_and_no_other_assignment():
    filled = platforms.canvas(CANVAS, SLUG, ROWS, ROSTER)
    rows = table(filled.text)
    assert list(rows[0]) == [
        *("Student", "ID", "SIS User ID", "SIS Login ID", "Section"),
        "04-scaling (881)",
    ]
    assert [r["04-scaling (881)"] for r in rows] == ["30", "26.67", "30", "", ""]
    assert [r["ID"] for r in rows] == ["", "101", "102", "103", "9"]
    assert (filled.filled, filled.strangers, filled.left_over) == (2, ["Student, Test"], ["gone"])
    assert filled.doubts == []


@pytest.mark.parametrize(
    "name",
    ["04 Scaling (881)", "04_SCALING (881)", "4. Scaling (881)", "04–scaling", "04-scaling week 5"],
)
def test_canvas_may_call_the_assignment_a_little_otherwise(name: str):
    filled = platforms.canvas(CANVAS.replace("04-scaling (881)", name), SLUG, ROWS, ROSTER)
    assert [r[name] for r in table(filled.text)] == ["30", "26.67", "30", "", ""]
    assert filled.doubts == []


def test_a_column_of_that_very_name_goes_before_one_that_begins_with_it():
    export = CANVAS.replace("03-qkv (880)", "04 Scaling corrections (880)")
    assert "04-scaling (881)" in table(platforms.canvas(export, SLUG, ROWS, ROSTER).text)[0]
    with pytest.raises(CourseError, match=r"'04 Scaling \(880\)' and '04-scaling \(881\)'"):
        platforms.canvas(CANVAS.replace("03-qkv", "04 Scaling"), SLUG, ROWS, ROSTER)


def test_it_is_said_that_a_platform_counts_to_another_number():
    (doubt,) = platforms.canvas(
        CANVAS.replace("20,30,(read", "20,26.00,(read"), SLUG, ROWS, ROSTER
    ).doubts
    assert "Canvas counts to 26.00 points and the course to 30" in doubt
    (doubt,) = platforms.moodle(MOODLE.replace("30.00", "100.00"), SLUG, ROWS, ROSTER).doubts
    assert "Moodle counts to 100.00 points and the course to 30" in doubt
    assert platforms.moodle(MOODLE, SLUG, ROWS, ROSTER).doubts == []


def test_an_export_that_was_saved_with_semicolons_is_read():
    filled = platforms.moodle(MOODLE.replace(",", ";"), SLUG, ROWS, ROSTER)
    assert [r["Grade"] for r in table(filled.text)] == ["26.67", "5.00", "", ""]


def test_canvas_gets_a_new_column_where_the_assignment_has_none():
    filled = platforms.canvas(CANVAS, "05-masking", ROWS, ROSTER)
    rows = table(filled.text)
    assert "No column is called like 05-masking: a new one is added" in filled.doubts[0]
    assert [r["05-masking"] for r in rows] == ["30", "26.67", "30", "", ""]


def test_moodle_gets_its_worksheet_back():
    filled = platforms.moodle(MOODLE, SLUG, ROWS, ROSTER)
    rows, before = table(filled.text), table(MOODLE.removeprefix("\ufeff"))
    assert [r["Grade"] for r in rows] == ["26.67", "5.00", "", ""]
    assert [r["Feedback comments"] for r in rows] == ["'=SUM(A1)", "", "", ""]
    untouched = [c for c in before[0] if c not in ("Grade", "Feedback comments")]
    assert [[r[c] for c in untouched] for r in rows] == [[r[c] for c in untouched] for r in before]
    assert filled.strangers == ["Participant 999"]


def test_gradescopes_columns():
    rows = table(platforms.gradescope(ROWS).text)
    assert [(r["SID"], r["Total Score"], r["Status"]) for r in rows] == [
        ("jdoe", "26.67", "Graded"),
        ("mueller", "30", "Ungraded"),
        ("kim", "", "Missing"),
        ("gone", "1.01", "Graded"),
    ]


@pytest.mark.parametrize(
    ("score", "text"),
    [(0, "0"), (1.005, "1.01"), (2.675, "2.68"), (10, "10"), (100.0, "100"), (1 / 3, "0.33")],
)
def test_points_are_rounded_once_as_people_round(score, text):
    assert platforms.points(score) == text


def test_a_file_of_another_kind_is_refused():
    with pytest.raises(CourseError, match="Canvas's: it has no column 'Student'"):
        platforms.canvas(MOODLE, SLUG, ROWS, ROSTER)
    with pytest.raises(CourseError, match="Moodle's: it has no column 'Identifier'"):
        platforms.moodle(CANVAS, SLUG, ROWS, ROSTER)
