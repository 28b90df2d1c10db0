"""`course collect` says what became of a download, and refuses before it changes anything."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from coursework import gradebook
from coursework.classroom import Course
from tests.coursework.commands.conftest import Ran, snapshot
from tests.coursework.conftest import use_database
from tests.coursework.submissions import SLUG
from tests.coursework.test_collect import jane, laid, of_chapter, zipped

Run = Callable[..., Ran]

CLASS = "student_id,last_name,first_name,lms_id\njdoe,Doe,Jane,101\nkim,Lee,Kim,103\n"
KIM = {"leekim_103_7_04-scaling.ipynb": "kim"}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Where the instructor's own files lie: a roster, a download, and times."""
    desk = tmp_path / "desk"
    laid(
        desk,
        {
            "class.csv": CLASS,
            "times.csv": "lms_id,time\n101,2027-03-01 17:00\n",
            "all.csv": "student_id,time\njdoe,2027-03-01 17:00\nkim,2027-03-03 17:00\n",
            "bad.csv": "student_id,time\njdoe,yesterday\n",
        },
    )
    zipped(desk / "one.zip", jane("1"))
    zipped(desk / "two.zip", {**jane("1", "2"), **KIM})
    zipped(desk / "photo.zip", {"photo.jpg": "x"})
    zipped(desk / "other.zip", {"doejane_101_9_x.ipynb": of_chapter("05")})
    zipped(
        desk / "mixed.zip", {"doejane_101_9_x.ipynb": of_chapter("05"), **jane(of_chapter("04"))}
    )
    return desk


@pytest.fixture
def collect(run: Run, course: Course, desk: Path) -> Callable[..., Ran]:
    def call(source: str, *options: str) -> Ran:
        given = [o if o.startswith("--") else str(desk / o) for o in options]
        return run(course.root, "collect", SLUG, str(desk / source), *given)

    return call


def test_one_student_is_no_students(collect):
    ran = collect("one.zip", "--roster", "class.csv")
    assert ran.code == 0
    assert "1 student with new work" in ran.out and "Nothing to grade came from: kim." in ran.out
    assert "2 students with new work" in collect("two.zip").out


def test_an_older_download_is_told_of(collect):
    collect("two.zip", "--roster", "class.csv")
    ran = collect("one.zip")
    assert ran.code == 0 and "0 students with new work" in ran.out
    assert "Newer work was there already and stays: jdoe." in ran.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("photo.zip", "--roster", "class.csv"), "photo.zip holds no notebook"),
        (("other.zip", "--roster", "class.csv"), "notebooks of chapter 05 and none of 04-scaling"),
        (("one.zip", "--times", "bad.csv"), "'yesterday'"),
        (("one.zip", "--times", "none.csv"), "there is no such file"),
    ],
)
def test_what_cannot_be_collected_is_refused_in_a_sentence(collect, course, arguments, words):
    ran = collect(*arguments)
    assert (ran.code, ran.out) == (2, "")
    (sentence,) = ran.err.strip().splitlines()
    assert words in sentence
    assert not course.classroom.exists()


def test_a_notebook_of_another_chapter_is_named(collect):
    ran = collect("mixed.zip", "--roster", "class.csv")
    assert ran.code == 1
    assert "Of another chapter (kept in classroom/unmatched): doejane_101_9_x.ipynb." in ran.out


@pytest.mark.slow
def test_it_is_said_who_cannot_be_counted_late(collect, course: Course):
    ran = collect("two.zip", "--roster", "class.csv")
    assert "counted late" not in ran.out, "there is no due date"
    assert not (course.classroom / "gradebook.db").exists()
    with gradebook.open_gradebook(course) as book:
        book.update_or_create_assignment(SLUG, duedate=datetime(2027, 3, 1, 18, 0))
    said = "04-scaling is due 2027-03-01 18:00 UTC, and the time of handing in is not known of "
    assert f"{said}anybody: nobody will be counted late. --times" in collect("two.zip").out
    ran = collect("two.zip", "--times", "times.csv")
    assert f"{said}kim: they will not be counted late." in ran.out
    assert "counted late" not in collect("two.zip", "--times", "all.csv").out


@pytest.mark.slow
def test_without_its_gradebook_a_class_is_collected_all_the_same(collect, course: Course):
    use_database(course, "no address")
    ran = collect("one.zip")
    assert ran.code == 0 and "1 student with new work" in ran.out
    assert "Whether 04-scaling has a due date cannot be seen" in ran.err


def test_an_undone_collect_can_be_collected_again(collect, course: Course):
    collect("two.zip", "--roster", "class.csv")
    before = snapshot(course.classroom / "submitted")
    for folder in course.submissions(SLUG).values():
        (folder / f"{SLUG}.ipynb").unlink()
        folder.rmdir()
    assert "2 students with new work" in collect("two.zip").out
    assert snapshot(course.classroom / "submitted") == before
