"""A gradebook on a PostgreSQL server: our commands and nbgrader's work on the same one."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import text

from coursework import gradebook
from coursework.classroom import Course
from tests.coursework.commands.conftest import run  # noqa: F401 - a fixture
from tests.coursework.conftest import use_database
from tests.coursework.postgresql import Server
from tests.coursework.submissions import RIGHT, SLUG

pytestmark = pytest.mark.slow
HandIn = Callable[..., Path]


@pytest.fixture
def db_url(postgres: Server) -> str:
    return postgres.new_database()


@pytest.fixture
def on_server(course: Course, db_url: str) -> Course:
    use_database(course, db_url)
    return course


def nbgrader(course: Course, *arguments: str) -> str:
    """Run nbgrader's own command in the course's folder."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=course.root,
        env={**os.environ, "PATH": programs},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_a_class_is_graded_sent_feedback_and_exported_from_the_server(
    on_server: Course,
    hand_in: HandIn,
    run: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    hand_in("ada", **RIGHT)
    hand_in("Ünïcode", row_entropy=RIGHT["row_entropy"])
    hand_in("eve", b"<html>")
    assert run(on_server.root, "grade").code == 1
    assert run(on_server.root, "feedback").code == 0
    to = tmp_path / "ours.csv"
    assert run(on_server.root, "grades", "--to", str(to)).code == 0
    assert not (on_server.classroom / "gradebook.db").exists()
    ours = {r["student_id"]: r for r in csv.DictReader(to.open(encoding="utf-8", newline=""))}
    theirs = tmp_path / "theirs.csv"
    nbgrader(on_server, "export", "--to", str(theirs))
    exported = {r["student_id"]: r for r in csv.DictReader(theirs.open(encoding="utf-8"))}
    assert set(ours) == set(exported) == {"ada", "Ünïcode", "eve"}
    assert 0 < float(ours["Ünïcode"]["score"]) < float(ours["ada"]["score"])
    for student in ("ada", "Ünïcode"):
        assert float(ours[student]["score"]) == float(exported[student]["score"])


def test_nbgrader_upgrades_an_older_gradebook_on_the_server(on_server: Course, db_url: str) -> None:
    with gradebook.open_gradebook(on_server) as book:
        book.update_or_create_student("ada")
    engine = sqlalchemy.create_engine(db_url)
    with engine.begin() as connection:
        head = connection.scalar(text("SELECT version_num FROM alembic_version"))
        # What the version of 2018 did not have.
        connection.execute(text("UPDATE alembic_version SET version_num = '167914646830'"))
        connection.execute(text("ALTER TABLE student DROP COLUMN lms_user_id"))
        connection.execute(text("ALTER TABLE assignment DROP COLUMN course_id"))
        connection.execute(text("DROP TABLE course"))
    nbgrader(on_server, "db", "upgrade")
    inspected = sqlalchemy.inspect(engine)
    assert "lms_user_id" in {c["name"] for c in inspected.get_columns("student")}
    assert "course_id" in {c["name"] for c in inspected.get_columns("assignment")}
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == head
    engine.dispose()
    with gradebook.open_gradebook(on_server) as book:
        assert [s.id for s in book.students] == ["ada"]


def test_another_database_is_prepared_although_this_one_is(
    on_server: Course, postgres: Server
) -> None:
    gradebook.prepare(on_server, SLUG)
    use_database(on_server, postgres.new_database())
    gradebook.prepare(on_server, SLUG)
    with gradebook.open_gradebook(on_server) as book:
        assert [a.name for a in book.assignments] == [SLUG]


@pytest.mark.parametrize("secret", ["course:hunter2@", "course@"])
def test_a_server_that_does_not_answer_is_said_in_a_sentence_without_the_password(
    course: Course,
    hand_in: HandIn,
    run: Callable[..., Any],  # noqa: F811
    tmp_path: Path,
    secret: str,
) -> None:
    hand_in("ada", **RIGHT)
    query = f"host={tmp_path}" + ("" if "hunter2" in secret else "&password=hunter2")
    use_database(course, f"postgresql+psycopg://{secret}/attention?{query}")
    ran = run(course.root, "grade")
    assert ran.code == 2 and not (course.classroom / "attempts").exists()
    (sentence,) = ran.err.strip().splitlines()
    assert "cannot be used" in sentence and "attention" in sentence
    assert "hunter2" not in ran.err


@pytest.mark.parametrize("address", ["gradebook.db", "postgresql+oracle://x/y"])
def test_an_address_that_is_none_is_said_to_be_none(
    course: Course,
    hand_in: HandIn,
    run: Callable[..., Any],  # noqa: F811
    address: str,
) -> None:
    hand_in("ada", **RIGHT)
    use_database(course, address)
    ran = run(course.root, "grade")
    assert ran.code == 2 and "db_url in nbgrader_config.py" in ran.err
    assert "Traceback" not in ran.err
