"""Gradebook and table of grades say what the attempts say, and keep manual grades.

All of it holds for SQLite, which is the default, and for a PostgreSQL server.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import nbformat
import pytest
import sqlalchemy

from coursework import batch, gradebook, grades
from coursework.classroom import Course
from coursework.errors import CourseError
from tests.coursework.conftest import ROOT, use_database
from tests.coursework.submissions import RIGHT, SLUG

pytestmark = pytest.mark.slow
HandIn = Callable[..., Path]
ESSAY = "Because the variance of a dot product grows with its length."


@pytest.fixture(params=["sqlite", "postgresql"])
def course(request: pytest.FixtureRequest, course: Course) -> Course:
    """The course, with its gradebook in one kind of database or the other."""
    if request.param == "postgresql":
        use_database(course, request.getfixturevalue("postgres").new_database())
    return course


def grade_all(course: Course) -> list[gradebook.Reread]:
    gradebook.prepare(course, SLUG)
    outcomes = list(batch.run(batch.jobs_of(course, [SLUG], [], None), workers=2))
    return gradebook.record(course, [o.attempt for o in outcomes])


def table(course: Course) -> dict[str, dict[str, str]]:
    text = grades.to_csv(grades.rows(course))
    return {row["student_id"]: row for row in csv.DictReader(io.StringIO(text))}


def manual_grade(course: Course, student: str, score: float, comment: str) -> None:
    with gradebook.open_gradebook(course) as book:
        grade = book.find_grade("open_question", SLUG, SLUG, student)
        grade.manual_score, grade.needs_manual_grade = score, False
        book.find_comment("open_question", SLUG, SLUG, student).manual_comment = comment
        book.db.commit()


def everybody(hand_in: HandIn) -> None:
    hand_in("ada", open_question=ESSAY, **RIGHT)
    hand_in("bob", **RIGHT)
    hand_in("eve", b"<html>")
    hand_in("=cmd()")


@pytest.fixture
def a_class(course: Course, graded_once: Callable[..., None]) -> Course:
    graded_once(everybody, course)
    grade_all(course)  # nothing has changed: what is known goes into the gradebook
    return course


def test_every_student_has_a_row_with_status_score_and_reason(
    a_class: Course, hand_in: HandIn
) -> None:
    (a_class.classroom / "submitted" / "kim").mkdir()
    rows = table(a_class)
    assert {s: r["status"] for s, r in rows.items()} == {
        "ada": "needs manual",
        "bob": "graded",
        "eve": "unreadable",
        "kim": "missing",
        "'=cmd()": "graded",
    }
    assert float(rows["ada"]["score"]) == float(rows["bob"]["score"]) > 0
    assert float(rows["'=cmd()"]["score"]) == 0.0
    assert rows["eve"]["score"] == rows["kim"]["score"] == ""
    assert "web page" in rows["eve"]["reason"] and "handed in" in rows["kim"]["reason"]


def test_a_manual_grade_counts_and_survives_everything(a_class: Course, hand_in: HandIn) -> None:
    before = float(table(a_class)["ada"]["score"])
    manual_grade(a_class, "ada", 3.0, "Well argued.")
    assert table(a_class)["ada"]["status"] == "graded"
    hand_in("ada", open_question=ESSAY, **{**RIGHT, "row_entropy": "row_entropy = None"})
    grade_all(a_class)
    assert float(table(a_class)["ada"]["score"]) < before + 3.0
    hand_in("ada", b"broken")
    grade_all(a_class)
    assert table(a_class)["ada"]["score"] == ""
    hand_in("ada", open_question=ESSAY, **RIGHT)
    grade_all(a_class)
    assert float(table(a_class)["ada"]["score"]) == before + 3.0
    with gradebook.open_gradebook(a_class) as book:
        comment = book.find_comment("open_question", SLUG, SLUG, "ada")
        assert comment.manual_comment == "Well argued."


def test_an_answer_that_was_replaced_waits_for_a_person_again_and_keeps_its_points(
    a_class: Course, hand_in: HandIn
) -> None:
    before = float(table(a_class)["ada"]["score"])
    manual_grade(a_class, "ada", 3.5, "Well argued.")
    assert grade_all(a_class) == [] and table(a_class)["ada"]["status"] == "graded"
    hand_in("ada", open_question="Because I say so.", **RIGHT)
    for _ in range(2):  # until somebody has read it
        assert grade_all(a_class) == [gradebook.Reread("ada", SLUG, "open_question")]
        row = table(a_class)["ada"]
        assert (row["status"], float(row["score"])) == ("needs manual", before + 3.5)
    with gradebook.open_gradebook(a_class) as book:
        assert book.find_grade("open_question", SLUG, SLUG, "ada").needs_manual_grade
        comment = book.find_comment("open_question", SLUG, SLUG, "ada")
        assert comment.manual_comment == "Well argued."
    manual_grade(a_class, "ada", 1.0, "Why?")
    assert grade_all(a_class) == [] and table(a_class)["ada"]["status"] == "graded"


def test_a_gradebook_has_the_names_of_the_roster_where_it_has_none_of_its_own(
    a_class: Course,
) -> None:
    with gradebook.open_gradebook(a_class) as book:
        book.update_or_create_student("bob", first_name="Robert")
    (a_class.classroom / "roster.csv").write_text(
        "student_id,last_name,first_name,email\nada,Lovelace,Ada,ada@example.org\n"
        "bob,Noyce,Bob,\nzoe,Z,Zoe,\n"
    )
    grade_all(a_class)
    with gradebook.open_gradebook(a_class) as book:
        people = {s.id: (s.first_name, s.last_name, s.email) for s in book.students}
    assert people["ada"] == ("Ada", "Lovelace", "ada@example.org")
    assert people["bob"] == ("Robert", "Noyce", None)
    assert "zoe" not in people and people["eve"] == (None, None, None)


@pytest.mark.parametrize("text", ["", "yesterday evening", "\u0660", "0", "9" * 400])
def test_a_time_that_is_none_leaves_the_work_in_time(
    a_class: Course, hand_in: HandIn, text: str
) -> None:
    path = hand_in("bob", **RIGHT)
    (path.parent / "timestamp.txt").write_text(text, encoding="utf-8")
    before = table(a_class)["bob"]
    grade_all(a_class)
    assert table(a_class)["bob"] == before


def test_work_handed_in_late_loses_what_the_settings_say_but_not_within_an_extension(
    a_class: Course,
) -> None:
    with (a_class.root / "nbgrader_config.py").open("a") as settings:
        settings.write("\nc.LatePenalty.per_day = 1.0\n")
    for student, time in (("ada", "2026-03-02 12:00:00 UTC"), ("bob", "2026-02-28 12:00:00 UTC")):
        stamp = a_class.classroom / "submitted" / student / SLUG / "timestamp.txt"
        stamp.write_text(f"{time}\n")
    with gradebook.open_gradebook(a_class) as book:
        book.update_or_create_assignment(SLUG, duedate="2026-03-01 00:00:00 UTC")
    full = table(a_class)["bob"]["score"]
    grade_all(a_class)
    rows = table(a_class)
    assert (rows["bob"]["score"], rows["bob"]["timestamp"]) == (full, "2026-02-28 12:00:00")
    assert (rows["ada"]["score"], rows["ada"]["raw_score"]) == ("0.0", full)
    with gradebook.open_gradebook(a_class) as book:
        book.grant_extension(SLUG, "ada", days=2)
    grade_all(a_class)
    assert table(a_class)["ada"]["score"] == full


def test_an_extension_is_granted_as_the_page_says_before_anything_is_handed_in(
    course: Course, hand_in: HandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "book" / "instructors" / "grading.md").read_text("utf-8")
    snippet = re.search(r"^Extensions$.*?^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert snippet
    monkeypatch.chdir(course.root)
    with pytest.raises(CourseError, match="nobody is called ada"):
        exec(snippet[1], {})
    (course.classroom / "roster.csv").write_text("student_id,first_name\nada,Ada\n")
    exec(snippet[1], {})
    with gradebook.open_gradebook(course) as book:
        submission = book.find_submission(SLUG, "ada")
        assert submission.student.first_name == "Ada" and not submission.needs_manual_grade
    hand_in("bob", **RIGHT)
    grade_all(course)
    assert {s: r["status"] for s, r in table(course).items()} == {"ada": "missing", "bob": "graded"}
    hand_in("ada", **RIGHT)
    grade_all(course)
    assert table(course)["ada"]["score"] == table(course)["bob"]["score"]
    with gradebook.open_gradebook(course) as book:
        assert book.find_submission(SLUG, "ada").extension == timedelta(days=2)


def test_recording_twice_changes_nothing(
    a_class: Course, hand_in: HandIn, notebook: Callable[..., Any]
) -> None:
    def notebooks() -> dict[Path, bytes]:
        laid = (a_class.classroom / "autograded").rglob("*.ipynb")
        return {path: path.read_bytes() for path in laid}

    mine = notebook(**RIGHT)
    mine.cells.insert(3, nbformat.v4.new_code_cell("def helper():\n    return 1"))
    hand_in("bob", mine)
    grade_all(a_class)
    before, laid = table(a_class), notebooks()
    gradebook.record(a_class, list(a_class.all_latest(SLUG).values()))
    assert table(a_class) == before
    assert notebooks() == laid
    assert any(b"def helper" in content for content in laid.values())


def test_a_lost_gradebook_is_rebuilt_from_the_attempts(a_class: Course) -> None:
    before = table(a_class)
    with gradebook.open_gradebook(a_class) as book:
        everything = sqlalchemy.MetaData()
        everything.reflect(book.engine)
        everything.drop_all(book.engine)
    grade_all(a_class)
    assert table(a_class) == before


def test_a_broken_resubmission_leaves_no_old_score_in_the_gradebook(
    a_class: Course, hand_in: HandIn
) -> None:
    hand_in("bob", b"")
    grade_all(a_class)
    with gradebook.open_gradebook(a_class) as book:
        assert book.find_submission(SLUG, "bob").score == 0.0
    assert not (a_class.classroom / "autograded" / "bob" / SLUG).exists()


def test_text_that_no_file_takes_harms_neither_the_gradebook_nor_the_terminal(
    hand_in: HandIn, notebook: Callable[..., Any], course: Course
) -> None:
    hand_in("ada", row_entropy=r'raise ValueError("halved \ud800, ended \x00, red \x1b[31m")')
    half = notebook(row_entropy="text = '\ud83d'", open_question="half a face: \ud83d")
    hand_in("bob", json.dumps(half).encode())
    grade_all(course)
    rows = table(course)
    assert "halved \ufffd, ended \ufffd, red \ufffd[31m" in rows["ada"]["reason"]
    assert rows["bob"]["status"] == "needs manual"
    laid = course.classroom / "autograded" / "bob" / SLUG / f"{SLUG}.ipynb"
    assert "half a face: ?" in laid.read_text(encoding="utf-8")


def test_formgrader_finds_the_students_answers_and_the_words_of_the_checks(
    a_class: Course,
) -> None:
    path = a_class.classroom / "autograded" / "ada" / SLUG / f"{SLUG}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = {c.metadata.get("nbgrader", {}).get("grade_id"): c for c in notebook.cells}
    assert cells["row_entropy"].source == RIGHT["row_entropy"]
    assert cells["open_question"].source == ESSAY
    assert "right" in cells["graded_row_entropy"].outputs[0].text


def test_nbgraders_own_export_and_form_open_the_same_course(
    a_class: Course, tmp_path: Path
) -> None:
    from nbconvert.exporters import HTMLExporter
    from nbgrader.plugins import CsvExportPlugin
    from nbgrader.preprocessors import GetGrades

    to = tmp_path / "grades.csv"
    with gradebook.open_gradebook(a_class) as book:
        plugin = CsvExportPlugin()
        plugin.to = str(to)
        plugin.export(book)
        db_url = book.engine.url.render_as_string(hide_password=False)
    exported = {r["student_id"]: r for r in csv.DictReader(to.open())}
    assert float(exported["ada"]["score"]) == float(table(a_class)["ada"]["score"])
    path = a_class.classroom / "autograded" / "ada" / SLUG / f"{SLUG}.ipynb"
    resources: dict[str, Any] = {
        "nbgrader": {"notebook": SLUG, "assignment": SLUG, "student": "ada", "db_url": db_url}
    }
    notebook, resources = GetGrades().preprocess(nbformat.read(path, as_version=4), resources)
    assert resources["nbgrader"]["score"] == float(exported["ada"]["score"])
    html, _ = HTMLExporter().from_notebook_node(notebook)
    assert "row_entropy" in html


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_text_that_a_spreadsheet_would_run_is_made_harmless(text: str) -> None:
    row = dict.fromkeys(grades.COLUMNS, "") | {"student_id": text, "score": -1.5}
    read = next(csv.DictReader(io.StringIO(grades.to_csv([row]))))
    assert read["student_id"] == f"'{text}"
    assert read["score"] == "-1.5"


@pytest.mark.parametrize("name", ["Smith, Jr.", 'O"Neil', "Ünïcode", "two\nlines", "a;b"])
def test_names_of_every_kind_survive_the_table(name: str) -> None:
    row = dict.fromkeys(grades.COLUMNS, "") | {"student_id": name}
    text = grades.to_csv([row]).encode().decode()
    assert next(csv.DictReader(io.StringIO(text, newline="")))["student_id"] == name
