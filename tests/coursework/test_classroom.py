"""Attempts are kept whole, in order, and found again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coursework.classroom import Attempt, Course, NoCourse, write_aside
from coursework.errors import CourseError
from coursework.judge.grading import Graded, OpenQuestion, Result

RESULT = Result(
    slug="04-scaling",
    status="graded",
    reason="",
    exercises=(
        Graded(
            exercise="04.row_entropy",
            grade_id="graded_row_entropy",
            points=2.0,
            max_points=3.0,
            feedback="✗ row_entropy: …",
            message="✗ row_entropy: … [0.1 0.9]",
            misconception="bits",
            properties=(("each row", 2, 3),),
        ),
    ),
    manual=(OpenQuestion("open_question", 4.0, True),),
    repairs=("the file was called 'x'",),
)
ATTEMPT = Attempt("ada", "2026-01-02T03:04:05+00:00", "abc", "04-scaling.ipynb", RESULT)


def test_a_course_is_found_from_any_folder_inside_it(course: Course) -> None:
    inside = course.root / "solutions" / "04-scaling"
    assert Course.find(inside) == Course(course.root.resolve())
    assert course.slugs == ("04-scaling",)


def test_outside_a_course_it_is_said_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(NoCourse, match=r"nbgrader_config\.py and solutions/"):
        Course.find(tmp_path)


def test_an_attempt_is_read_as_it_was_saved(course: Course) -> None:
    path = course.save(ATTEMPT)
    assert path.name == "0001.json"
    assert course.latest("04-scaling", "ada") == ATTEMPT


def test_the_last_attempt_counts_and_earlier_ones_are_kept(course: Course) -> None:
    course.save(ATTEMPT)
    later = replace(ATTEMPT, result=replace(RESULT, status="unreadable", exercises=()))
    course.save(later)
    assert course.latest("04-scaling", "ada") == later
    assert len(course.attempts("04-scaling", "ada")) == 2
    assert course.all_latest("04-scaling") == {"ada": later}


def test_more_than_nine_attempts_stay_in_order(course: Course) -> None:
    for number in range(12):
        course.save(replace(ATTEMPT, notebook=f"{number}.ipynb"))
    latest = course.latest("04-scaling", "ada")
    assert latest is not None and latest.notebook == "11.ipynb"


def test_a_damaged_attempt_is_named_and_not_passed_over(course: Course) -> None:
    path = course.save(ATTEMPT)
    path.write_text(path.read_text()[:50])
    with pytest.raises(CourseError, match=r"0001\.json is damaged"):
        course.latest("04-scaling", "ada")


def test_a_file_written_aside_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "score.json"
    write_aside(path, "old")

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_aside(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_named_as_it_was_meant(tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    for path in (tmp_path / "report.html", Path("/proc/report.html")):
        with pytest.raises(OSError) as refusal:
            write_aside(path, "text")
        assert refusal.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_seed_is_drawn_once_and_kept(course: Course) -> None:
    assert course.seed == Course(course.root).seed
    other = Course(course.root / "elsewhere")
    assert other.seed != course.seed
