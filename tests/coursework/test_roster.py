"""People are found by whatever a platform knows of them, and never confused."""

from __future__ import annotations

from pathlib import Path

import pytest

from coursework.classroom import Course
from coursework.errors import CourseError
from coursework.roster import Person, Roster

CLASS = """\ufeffStudent ID,Surname,First name,Email address,Participant
jdoe,Doe,Jane,jane.doe@example.org,Participant 101
mueller,Müller,Jürgen,jm@example.org,102
smith2,"Smith, Jr.",Al,al@example.org,103
smith1,Smith,Al,al.smith@example.org,104
"""


@pytest.fixture
def roster(tmp_path: Path) -> Roster:
    path = tmp_path / "class.csv"
    path.write_text(CLASS, encoding="utf-8")
    return Roster.read(path)


@pytest.mark.parametrize(
    ("known", "student"),
    [
        ({"lms_id": "102"}, "mueller"),
        ({"student_id": "JDoe"}, "jdoe"),
        ({"email": "Jane.Doe@example.org"}, "jdoe"),
        ({"name": "Jane Doe"}, "jdoe"),
        ({"name": "Doe, Jane"}, "jdoe"),
        ({"name": "doejane"}, "jdoe"),
        ({"name": "mullerjurgen"}, "mueller"),
        ({"name": "Jürgen Müller"}, "mueller"),
        ({"name": "smithjral"}, "smith2"),
        ({"name": "Al Smith"}, "smith1"),
        ({"name": "Jane"}, None),
        ({"lms_id": "999", "name": "Jane Doe"}, "jdoe"),
        ({}, None),
    ],
)
def test_a_person_is_found_by_number_id_address_or_name(roster, known, student):
    person = roster.find(**known)
    assert (person and person.student_id) == student


def test_two_people_of_one_name_are_told_by_their_number_only():
    roster = Roster([Person("a", "Lee", "Kim", lms_id="1"), Person("b", "Lee", "Kim", lms_id="2")])
    assert roster.find(name="Kim Lee") is None
    assert roster.find(lms_id="2", name="Kim Lee").student_id == "b"


def test_a_column_of_whole_names_is_taken_apart(tmp_path: Path):
    path = tmp_path / "class.csv"
    path.write_text('id,name\na,Ada Lovelace\nb,"Noether, Emmy"\n')
    people = Roster.read(path).people
    names = [(p.first_name, p.last_name) for p in people]
    assert names == [("Ada", "Lovelace"), ("Emmy", "Noether")]


def test_a_number_that_a_spreadsheet_wrote_as_a_fraction_is_the_number(tmp_path: Path):
    path = tmp_path / "class.csv"
    path.write_text("student_id,lms_id\nada,101.0\nemmy,Participant 102\n")
    roster = Roster.read(path)
    assert [p.lms_id for p in roster.people] == ["101", "102"]
    assert roster.find(lms_id="101.0") == roster.find(lms_id="Participant 101") == roster.people[0]


def test_a_kept_roster_is_the_same(roster, course: Course):
    assert Roster.of(course) is None
    roster.keep(course)
    assert Roster.of(course).people == roster.people


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "student_id"),
        ("student_id\n", "student_id"),
        ("who,what\na,b\n", "student_id"),
        ("id,name\na,x\na,y\n", "'a' twice"),
        ("id,name\na,x\nA,y\n", "'a' twice"),
        ("id,canvas id\na,7\nb,7\n", "'7' twice"),
        ("id\n../up\n", "no folder can be named so"),
        ('id,name\na,x\n"",x\n', "line 3 .* has no student_id"),
    ],
)
def test_a_roster_that_cannot_be_one_is_refused(tmp_path: Path, text: str, words: str):
    path = tmp_path / "class.csv"
    path.write_text(text)
    with pytest.raises(CourseError, match=words):
        Roster.read(path)


def test_a_missing_or_binary_roster_is_refused(tmp_path: Path):
    with pytest.raises(CourseError, match="cannot be read"):
        Roster.read(tmp_path / "none.csv")
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CourseError, match="cannot be read"):
        Roster.read(tmp_path / "x.csv")
