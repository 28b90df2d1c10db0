"""nbgrader's gradebook, rebuilt from the attempts as often as one likes.

Automatic scores come from the attempts. Manual scores, comments and extra credit live here alone
and are never touched. An answer that was replaced after a person graded it waits to be read again;
`classroom/shown/SLUG/STUDENT.json` has the hashes by which that is known.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from coursework.classroom import Attempt, Course, write_aside
from coursework.errors import CourseError
from coursework.judge.grading import Graded, Master
from coursework.judge.submission import Part, find_notebook, match, read_cells, sha256
from coursework.release import generate, nbgrader_config
from coursework.roster import Person, Roster


@contextmanager
def open_gradebook(course: Course) -> Iterator[Any]:
    """nbgrader's gradebook of a course.

    Raises:
        CourseError: the database cannot be opened, read or written.
    """
    from nbgrader.api import Gradebook
    from sqlalchemy.exc import ArgumentError, DBAPIError

    settings = nbgrader_config(course.root).CourseDirectory
    try:
        with _interrupts_held_back():  # a new gradebook starts alembic, which Ctrl-C reaches too
            gradebook = Gradebook(settings.db_url, settings.course_id)
        with gradebook:
            yield gradebook
    except ArgumentError as error:
        raise CourseError(
            f"the db_url in nbgrader_config.py is no database's address ({error.args[0]})"
        ) from error
    except DBAPIError as error:
        # A database says what is wrong first, and may add lines of advice.
        reason = " ".join(str(error.orig).split())
        raise CourseError(
            f"the gradebook {_without_secrets(settings.db_url)} cannot be used: {reason}"
        ) from error


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Have an interrupt wait, here and in the programs that are started meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _without_secrets(db_url: str) -> str:
    """A database's address as it may be printed: a password can stand in two places of it."""
    from sqlalchemy.engine import make_url

    return make_url(db_url).set(query={}).render_as_string(hide_password=True)


def prepare(course: Course, slug: str) -> None:
    """Enter an assignment and its cells into the gradebook, as they are in the solutions.

    That takes nbgrader seconds, and is left out where this very gradebook has this very notebook.

    Raises:
        CourseError: the gradebook cannot be written.
        ReleaseError: the solution is not fit for it, or has other cells than the ones that
            submissions in the gradebook belong to.
    """
    note = course.classroom / "prepared" / slug
    database = hashlib.sha256(nbgrader_config(course.root).CourseDirectory.db_url.encode())
    state = f"{sha256(course.master(slug))} in {database.hexdigest()}"
    with open_gradebook(course) as gradebook:
        known = any(a.name == slug for a in gradebook.assignments)
        _require_writable(gradebook)
    if known and note.is_file() and note.read_text() == state:
        return
    with tempfile.TemporaryDirectory() as nowhere:
        generate(course.root, slug, Path(nowhere), record=True)
    write_aside(note, state)


def _require_writable(gradebook: Any) -> None:
    """Write what is there already: what cannot be written had better be known before grading."""
    from sqlalchemy import text

    gradebook.db.execute(text("UPDATE alembic_version SET version_num = version_num"))
    gradebook.db.rollback()


@dataclass(frozen=True)
class Reread:
    """An answer that is no longer the one to which a person gave points."""

    student: str
    slug: str
    grade_id: str


def record(course: Course, attempts: list[Attempt]) -> list[Reread]:
    """Enter attempts into the gradebook, and lay their notebooks where formgrader looks.

    Returns:
        the answers that have changed since they were graded by hand, and wait to be read again.
    """
    from nbgrader.api import BaseCell

    rereads: list[Reread] = []
    roster = Roster.of(course)
    people = {p.student_id: p for p in (roster.people if roster else ())}
    with open_gradebook(course) as gradebook:
        # The cells are the same for all students. Held here, they are read from the database once.
        gradebook.db().expire_on_commit = False
        _cells = gradebook.db.query(BaseCell).all()
        penalty = _penalty_for_being_late(course)
        for attempt in attempts:
            _enter_student(gradebook, attempt.student, people.get(attempt.student))
            rereads += _record_scores(gradebook, course, attempt)
            gradebook.db.commit()
            _record_lateness(gradebook, course, attempt, penalty)
            gradebook.db.commit()
    masters = cache(lambda slug: Master.read(course.master(slug)))
    for attempt in attempts:
        _lay_notebook(course, attempt, masters)
    return rereads


def grant_extension(course: Course, slug: str, student: str, **time: float) -> None:
    """Give a student more time for an assignment, whether or not something was handed in.

    Args:
        course: where the class is.
        slug: the assignment.
        student: as the folders and the roster call them.
        time: `minutes`, `hours`, `days` and `weeks` after the due date. They replace what was
            granted before; none at all takes it back.

    Raises:
        CourseError: nobody is called so.
    """
    prepare(course, slug)
    roster = Roster.of(course)
    people = {p.student_id: p for p in (roster.people if roster else ())}
    with open_gradebook(course) as gradebook:
        known = {*people, *course.students, *(s.id for s in gradebook.students)}
        if student not in known:
            raise CourseError(f"nobody is called {student} here: not in a folder, nor in a roster")
        _enter_student(gradebook, student, people.get(student))
        with gradebook.db.no_autoflush:
            submission = gradebook.update_or_create_submission(slug, student)
        if course.latest(slug, student) is None:  # there is nothing yet to be read
            for grade in (g for n in submission.notebooks for g in n.grades):
                grade.needs_manual_grade = False
        gradebook.grant_extension(slug, student, **time)


def _enter_student(gradebook: Any, student: str, person: Person | None) -> None:
    """See to it that the gradebook has a student, by the roster's name where it has none."""
    entered = gradebook.update_or_create_student(student)
    for name in ("first_name", "last_name", "email"):
        if person and not getattr(entered, name):
            setattr(entered, name, getattr(person, name) or None)


def _record_scores(gradebook: Any, course: Course, attempt: Attempt) -> Iterator[Reread]:
    slug = attempt.result.slug
    with gradebook.db.no_autoflush:
        submission = gradebook.update_or_create_submission(slug, attempt.student)
    scores = {e.grade_id: e.points for e in attempt.result.exercises}
    open_questions = {q.grade_id: q for q in attempt.result.manual}
    shown = _shown(course, slug, attempt.student)
    (notebook,) = submission.notebooks
    for grade in notebook.grades:
        question = open_questions.get(grade.cell.name)
        if question:
            # Nothing written is worth nothing; everything else is for a person to read.
            grade.auto_score = None if question.answered else 0.0
            if grade.manual_score is None:
                grade.needs_manual_grade = question.answered
            elif shown.get(question.grade_id, question.answer_sha256) != question.answer_sha256:
                grade.needs_manual_grade = True
            if grade.needs_manual_grade and grade.manual_score is not None:
                yield Reread(attempt.student, slug, question.grade_id)
        else:
            grade.auto_score = scores.get(grade.cell.name)
            grade.needs_manual_grade = False
    feedback = {e.grade_id.removeprefix("graded_"): e.feedback for e in attempt.result.exercises}
    for comment in notebook.comments:
        comment.auto_comment = feedback.get(comment.cell.name)


#: Student, score and seconds; None for no penalty.
Penalty = Callable[[str, float, float], float | None]


def _penalty_for_being_late(course: Course) -> Penalty:
    """By nbgrader's plugin, as the settings name it; by default nothing is taken off."""
    from nbgrader.preprocessors import AssignLatePenalties

    penalties = AssignLatePenalties(config=nbgrader_config(course.root))
    penalties.init_plugin()
    return penalties.plugin_inst.late_submission_penalty


def _record_lateness(gradebook: Any, course: Course, attempt: Attempt, penalty: Penalty) -> None:
    """When the work was handed in, and what is taken off if that was after its due date."""
    slug, student = attempt.result.slug, attempt.student
    submission = gradebook.find_submission(slug, student)
    submission.timestamp = _handed_in(course.classroom / "submitted" / student / slug)
    (notebook,) = submission.notebooks
    notebook.late_submission_penalty = None
    gradebook.db.refresh(notebook, ["score"])  # a sum that the database makes
    if submission.total_seconds_late > 0:
        taken = penalty(student, notebook.score, submission.total_seconds_late)
        if taken is not None:
            notebook.late_submission_penalty = min(max(taken, 0.0), notebook.score)


def _handed_in(folder: Path) -> datetime | None:
    """The time in the file that nbgrader's collecting leaves there, in UTC, if it is one."""
    from nbgrader.utils import parse_utc

    try:
        return parse_utc((folder / "timestamp.txt").read_text(encoding="utf-8").strip())
    except (OSError, ValueError, OverflowError, TypeError):
        return None


def _shown_path(course: Course, slug: str, student: str) -> Path:
    return course.classroom / "shown" / slug / f"{student}.json"


def _shown(course: Course, slug: str, student: str) -> dict[str, str]:
    """Hashes of the answers that formgrader has shown last, to which points by hand belong."""
    try:
        shown = json.loads(_shown_path(course, slug, student).read_text(encoding="utf-8"))
        return dict(shown)
    except (OSError, ValueError, TypeError):
        return {}


def _lay_notebook(course: Course, attempt: Attempt, masters: Callable[[str], Master]) -> None:
    """The graded notebook: the master's cells, the student's answers, and what came of them."""
    slug = attempt.result.slug
    folder = course.classroom / "autograded" / attempt.student / slug
    if attempt.result.status not in ("graded", "needs manual"):
        shutil.rmtree(folder, ignore_errors=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    graded = json.dumps(_graded_notebook(course, attempt, masters(slug)))
    (folder / f"{slug}.ipynb").write_text(graded, encoding="utf-8")
    answers = {q.grade_id: q.answer_sha256 for q in attempt.result.manual}
    write_aside(_shown_path(course, slug, attempt.student), json.dumps(answers))


def _graded_notebook(course: Course, attempt: Attempt, asked: Master) -> dict[str, Any]:
    slug = attempt.result.slug
    path, _ = find_notebook(course.submissions(slug)[attempt.student], slug)
    found = match(read_cells(path)[0], asked.exercises, asked.manual)
    notebook = json.loads(course.master(slug).read_text(encoding="utf-8"))
    graded = {e.grade_id: e for e in attempt.result.exercises}
    waiting = list(found.parts)
    cells = []
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        role = cell["metadata"].get("coursework", {}).get("role")
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        if role == "answer":
            mine = [p for p in waiting if grade_id in p.answers]
            last = waiting.index(mine[-1]) if mine else -1
            cells += [_helper(p) for p in waiting[: last + 1] if p not in mine]
            waiting = waiting[last + 1 :]
            cell["source"] = "\n\n".join(p.source for p in mine)
        elif grade_id in found.manual:
            cell["source"] = harmless(found.manual[grade_id])
        elif grade_id in graded:
            cell["outputs"] = _outputs(graded[grade_id])
        cells.append(cell)
    return {**notebook, "cells": cells + [_helper(p) for p in waiting]}


def _helper(part: Part) -> dict[str, Any]:
    """A cell that answers nothing, with an id that is the same each time."""
    number = hashlib.sha256(part.name.encode()).hexdigest()[:8]
    code = {"cell_type": "code", "id": number, "source": part.source}
    return {**code, "metadata": {}, "outputs": [], "execution_count": None}


#: In Markdown, what can make a tag, a link or, in a formula, a link or a command for one.
_MARKUP = re.compile(
    r"<[a-z/!?]|\]\s*[(\[:]|&[#\w]+;|\\(?:href|def|let|(?:re)?newcommand|require|csname|html)",
    re.IGNORECASE,
)


def harmless(answer: str) -> str:
    """An answer in words as formgrader may show it.

    Formgrader renders Markdown as it stands, so that a script in it would run in the reader's
    session. Where there is markup beyond text and formulas, the source is shown instead.
    """
    if not _MARKUP.search(answer):
        return answer
    fence = "~" * max(3, 1 + max(map(len, re.findall("~+", answer)), default=0))
    return f"{fence}text\n{answer}\n{fence}"


def _outputs(graded: Graded) -> list[dict[str, Any]]:
    text = {"output_type": "stream", "name": "stdout", "text": f"{graded.message}\n"}
    value = {"output_type": "execute_result", "data": {"text/plain": repr(graded.points)}}
    return [text, {**value, "metadata": {}, "execution_count": None}]
