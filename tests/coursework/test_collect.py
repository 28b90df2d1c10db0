"""What platforms hand out arrives where it is graded: the newest of each, nothing dropped."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coursework.classroom import Course
from coursework.collect import collect
from coursework.errors import CourseError
from coursework.roster import Person, Roster
from tests.coursework.submissions import SLUG

JANE = Person("jdoe", "Doe", "Jane", "jane@example.org", "101")
JURGEN = Person("mueller", "Müller", "Jürgen", "jm@example.org", "102")
KIM = Person("kim", "Lee", "Kim", "kim@example.org", "103")
ROSTER = Roster([JANE, JURGEN, KIM])


def zipped(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def laid(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def handed_in(course: Course) -> dict[str, str]:
    return {s: (f / f"{SLUG}.ipynb").read_text() for s, f in course.submissions(SLUG).items()}


CANVAS = {
    "doejane_101_5001_04-scaling.ipynb": "jane 1",
    "doejane_101_5009_04-scaling-1.ipynb": "jane 2",
    "mullerjurgen_LATE_102_5002_My homework (final).ipynb": "jürgen",
    "strangerbo_999_5003_04-scaling.ipynb": "bo",
    "leekim_103_5004_notes.pdf": "a pdf",
}
MOODLE = {
    "Jane Doe_101_assignsubmission_file_/04-scaling.ipynb": "jane 2",
    "Jürgen Müller_102_assignsubmission_file/Lösung.ipynb": "jürgen",
    "Bo Stranger_999_assignsubmission_file_04-scaling.ipynb": "bo",
    "Kim Lee_103_assignsubmission_file_/notes.pdf": "a pdf",
}
METADATA = """---
submission_7001:
  :submitters:
  - :name: Jane Doe
    :sid: jdoe
    :email: jane@example.org
  :created_at: !ruby/object:ActiveSupport::TimeWithZone
    utc: 2026-03-01 10:00:00.123456789 Z
  :score: 0.0
submission_7002:
  :submitters:
  - :name: Jürgen Müller
    :sid:
    :email: jm@example.org
  :created_at: 2026-03-02 10:00:00 Z
submission_7003:
  :submitters:
  - :name: Bo Stranger
    :sid: bo
    :email: bo@example.org
  :created_at: 2026-03-02 10:00:00 Z
"""
GRADESCOPE = {
    "assignment_1_export/submission_metadata.yml": METADATA,
    "assignment_1_export/submission_7001/04-scaling.ipynb": "jane 2",
    "assignment_1_export/submission_7002/x.ipynb": "jürgen",
    "assignment_1_export/submission_7003/04-scaling.ipynb": "bo",
    "assignment_1_export/submission_7002/notes.pdf": "a pdf",
}
EXCHANGE = {
    "jdoe+04-scaling+2026-03-01 09:00:00 UTC/04-scaling.ipynb": "jane 1",
    "jdoe+04-scaling+2026-03-01 10:00:00 UTC+abc/04-scaling.ipynb": "jane 2",
    "jdoe+04-scaling+2026-03-01 10:00:00 UTC+abc/timestamp.txt": "2026-03-01 10:00:00 UTC",
    "mueller+04-scaling+2026-03-01 11:00:00 UTC+def/04-scaling.ipynb": "jürgen",
    "bo+04-scaling+2026-03-01 11:00:00 UTC+def/04-scaling.ipynb": "bo",
    "kim+04-scaling+2026-03-01 11:00:00 UTC+def/notes.pdf": "a pdf",
}
PLAIN = {
    "jdoe/04-scaling.ipynb": "jane 2",
    "mueller/04-scaling/04-scaling.ipynb": "jürgen",
    "04-scaling_bo.ipynb": "bo",
    "kim/notes.pdf": "a pdf",
}
DOWNLOADS = {
    "canvas": CANVAS,
    "moodle": MOODLE,
    "gradescope": GRADESCOPE,
    "exchange": EXCHANGE,
    "plain": PLAIN,
}


@pytest.mark.parametrize("platform", DOWNLOADS)
@pytest.mark.parametrize("form", [zipped, laid])
def test_every_platforms_download_is_understood(course: Course, tmp_path: Path, platform, form):
    source = form(tmp_path / "down", DOWNLOADS[platform])
    collected = collect(course, SLUG, source, ROSTER)
    assert handed_in(course) == {"jdoe": "jane 2", "mueller": "jürgen"}
    assert sorted(collected.laid) == ["jdoe", "mueller"]
    assert collected.missing == ["kim"]
    assert len(collected.unmatched) == 2
    kept = [p.read_text() for p in (course.classroom / "unmatched").rglob("*") if p.is_file()]
    assert sorted(kept) == ["a pdf", "bo"]


def test_earlier_attempts_are_kept_and_lateness_is_told(course: Course, tmp_path: Path):
    collected = collect(course, SLUG, zipped(tmp_path / "a.zip", CANVAS), ROSTER)
    assert collected.late == ["mueller"]
    assert collected.earlier == 1
    again = collect(course, SLUG, zipped(tmp_path / "a.zip", {**CANVAS}), ROSTER)
    assert sorted(again.unchanged) == ["jdoe", "mueller"] and not again.laid
    newer = {"doejane_101_6000_04-scaling-2.ipynb": "jane 3"}
    assert collect(course, SLUG, zipped(tmp_path / "b.zip", newer), ROSTER).laid == ["jdoe"]
    assert handed_in(course)["jdoe"] == "jane 3"
    kept = {p.read_text() for p in (course.classroom / "earlier" / "jdoe").rglob("*.ipynb")}
    assert kept == {"jane 1", "jane 2"}


def jane(*versions: str, first: int = 1) -> dict[str, str]:
    """Canvas's names of these versions of Jane's notebook, of which the last is the newest."""
    return {f"doejane_101_{n}_04-scaling-{n}.ipynb": v for n, v in enumerate(versions, first)}


def test_an_older_download_does_not_replace_newer_work(course: Course, tmp_path: Path):
    older, newer = zipped(tmp_path / "a.zip", jane("1")), zipped(tmp_path / "b.zip", jane("1", "2"))
    for source in (older, newer):
        collect(course, SLUG, source, ROSTER)
    again = collect(course, SLUG, older, ROSTER)
    assert (again.laid, again.older, again.earlier) == ([], ["jdoe"], 0)
    assert handed_in(course) == {"jdoe": "2"}
    assert collect(course, SLUG, newer, ROSTER).unchanged == ["jdoe"]


def test_an_earlier_attempt_is_kept_once(course: Course, tmp_path: Path):
    for versions in (("1", "2"), ("1", "2", "3")):
        collect(course, SLUG, zipped(tmp_path / "a.zip", jane(*versions)), ROSTER)
    kept = [p.read_text() for p in (course.classroom / "earlier" / "jdoe").rglob("*.ipynb")]
    assert sorted(kept) == ["1", "2"]


def handed_in_at(hour: int, text: str) -> dict[str, str]:
    return {f"jdoe+04-scaling+2026-03-01 {hour:02d}:00:00 UTC/04-scaling.ipynb": text}


def test_where_times_are_known_they_say_what_is_newer(course: Course, tmp_path: Path):
    def then(hour: int, text: str):
        return collect(course, SLUG, zipped(tmp_path / "a.zip", handed_in_at(hour, text)), ROSTER)

    assert then(9, "first").laid and then(11, "second").laid
    assert then(12, "first").laid, "the student has gone back to an earlier file"
    between = then(10, "between")
    assert (between.older, between.earlier) == (["jdoe"], 1)
    assert handed_in(course) == {"jdoe": "first"}


def test_times_are_put_beside_work_that_is_there_already(course: Course, tmp_path: Path):
    source = zipped(tmp_path / "a.zip", CANVAS)
    without = collect(course, SLUG, source, ROSTER)
    assert (without.timed, without.timeless) == (0, ["jdoe", "mueller"])
    times = {"jdoe": datetime(2026, 3, 1, 10, tzinfo=UTC)}
    collected = collect(course, SLUG, source, ROSTER, times)
    assert (collected.timed, collected.timeless) == (1, ["mueller"])
    stamp = course.submissions(SLUG)["jdoe"] / "timestamp.txt"
    assert stamp.read_text() == "2026-03-01 10:00:00 UTC\n"


def test_the_time_of_earlier_work_is_not_that_of_newer(course: Course, tmp_path: Path):
    times = {"jdoe": datetime(2026, 3, 1, 10, tzinfo=UTC)}
    collect(course, SLUG, zipped(tmp_path / "a.zip", jane("1")), ROSTER, times)
    collected = collect(course, SLUG, zipped(tmp_path / "b.zip", jane("2", first=2)), ROSTER)
    assert collected.timeless == ["jdoe"]


def of_chapter(number: str) -> str:
    metadata = {"coursework": {"exercise": f"{number}.something"}}
    return json.dumps({"cells": [{"cell_type": "code", "source": "", "metadata": metadata}]})


def test_the_download_of_another_assignment_is_refused(course: Course, tmp_path: Path):
    files = {"jdoe/x.ipynb": of_chapter("05"), "kim/x.ipynb": "<html>"}
    with pytest.raises(CourseError, match="notebooks of chapter 05 and none of 04-scaling"):
        collect(course, SLUG, zipped(tmp_path / "a.zip", files), ROSTER)
    assert not course.classroom.exists()


def test_one_notebook_of_another_chapter_is_set_aside(course: Course, tmp_path: Path):
    files = {"jdoe/x.ipynb": of_chapter("05"), "kim/x.ipynb": of_chapter("04")}
    collected = collect(course, SLUG, zipped(tmp_path / "a.zip", files), ROSTER)
    assert (collected.laid, collected.misfiled) == (["kim"], ["jdoe/x.ipynb"])
    assert (course.classroom / "unmatched" / SLUG / "jdoe" / "x.ipynb").is_file()


@pytest.mark.parametrize("platform", ["gradescope", "exchange"])
def test_the_time_is_kept_where_it_is_known(course: Course, tmp_path: Path, platform):
    collect(course, SLUG, zipped(tmp_path / "a.zip", DOWNLOADS[platform]), ROSTER)
    folder = course.submissions(SLUG)["jdoe"]
    assert (folder / "timestamp.txt").read_text().strip() == "2026-03-01 10:00:00 UTC"


def test_without_a_roster_people_are_called_what_the_platform_calls_them(
    course: Course, tmp_path: Path
):
    collected = collect(course, SLUG, zipped(tmp_path / "a.zip", CANVAS), None)
    assert set(handed_in(course)) == {"101", "102", "999"}
    assert collected.unmatched == ["leekim_103_5004_notes.pdf"]


def test_a_path_that_leads_out_of_the_download_stays_inside(course: Course, tmp_path: Path):
    files = {"../../../evil.txt": "x", "/etc/evil.txt": "x", "jdoe/04-scaling.ipynb": "{}"}
    collect(course, SLUG, zipped(tmp_path / "a.zip", files), ROSTER)
    inside = course.classroom / "unmatched" / SLUG
    assert sorted(str(p.relative_to(inside)) for p in inside.rglob("*.txt")) == [
        "etc/evil.txt",
        "evil.txt",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no file"),
        (b"no zip", "no zip file"),
        ({}, "holds no file"),
        ({"photo.jpg": "x"}, r"down\.zip holds no notebook"),
    ],
)
def test_what_is_no_download_is_refused(course: Course, tmp_path: Path, content, words):
    source = tmp_path / "down.zip"
    if isinstance(content, dict):
        zipped(source, content)
    elif content:
        source.write_bytes(content)
    with pytest.raises(CourseError, match=words):
        collect(course, SLUG, source, ROSTER)
    assert not course.classroom.exists()
