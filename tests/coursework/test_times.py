"""Times of handing in come from a table, and none is guessed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from coursework import times
from coursework.errors import CourseError
from coursework.roster import Person, Roster

ROSTER = Roster([Person("ada", "Lovelace", "Ada", lms_id="101"), Person("emmy", lms_id="102")])
SIX = datetime(2027, 3, 1, 18, 0, tzinfo=UTC)


def read(tmp_path: Path, text: str, roster: Roster | None = ROSTER):
    path = tmp_path / "times.csv"
    path.write_text(text)
    return times.read(path, roster)


@pytest.mark.parametrize(
    "text",
    [
        "2027-03-01T18:00Z",
        "2027-03-01T18:00:00Z",
        "2027-03-01 18:00",
        "2027-03-01 18:00 UTC",
        "2027-03-01 18:00:00.000",
        "2027-03-01T19:00:00+01:00",
        "2027-03-01 10:00 -0800",
    ],
)
def test_a_time_is_utc_where_it_names_no_zone(text: str):
    assert times.parse(text) == SIX


@pytest.mark.parametrize("text", ["2027-03-01", "1/3/2027 18:00", "2027-13-01 18:00", "Monday", ""])
def test_what_can_be_read_in_two_ways_is_no_time(text: str):
    assert times.parse(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "student_id,time\nada,2027-03-01 18:00\nemmy,\n",
        "lms_id;time\nParticipant 101;2027-03-01T18:00Z\n102;\n",
        "user_id,submitted_at\n101.0,2027-03-01T18:00:00Z\n",
    ],
)
def test_people_are_known_by_id_or_number(tmp_path: Path, text: str):
    assert read(tmp_path, text) == ({"ada": SIX}, [])


def test_strangers_are_told(tmp_path: Path):
    text = "student_id,time\nada,2027-03-01 18:00\nbo,2027-03-01 18:00\n"
    assert read(tmp_path, text) == ({"ada": SIX}, ["bo"])


def test_without_a_roster_people_are_called_what_the_file_calls_them(tmp_path: Path):
    assert read(tmp_path, "lms_id,time\n101,2027-03-01 18:00\n", None) == ({"101": SIX}, [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("student_id,time\n", "a line for each student"),
        ("student_id,name\nada,Ada\n", "needs a column time"),
        ("time\n2027-03-01 18:00\n", "a column student_id or lms_id"),
        ("student_id,time\nada,1/3/27\n", "line 2 .* '1/3/27': it must be written like 2027"),
        ("id,time\nada,2027-03-01 18:00\nADA,2027-03-02 18:00\n", "line 3 .* second time of ada"),
    ],
)
def test_a_file_of_times_that_is_none_is_refused(tmp_path: Path, text: str, words: str):
    with pytest.raises(CourseError, match=words):
        read(tmp_path, text)
