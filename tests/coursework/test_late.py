"""Being late costs what the rule says, and nothing else."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursework import batch, gradebook, grades
from coursework.classroom import Course
from coursework.late import DAY, penalty
from tests.coursework.submissions import RIGHT, SLUG

pytestmark = pytest.mark.slow

RULE = {"grace_minutes": 15, "per_day": 0.1, "last_day": 7}


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        (-5, 0),
        (0, 0),
        (15 * 60, 0),
        (15 * 60 + 1, 2),
        (15 * 60 + DAY, 2),
        (15 * 60 + DAY + 1, 4),
        (15 * 60 + 7 * DAY, 14),
        (15 * 60 + 7 * DAY + 1, 20),
    ],
)
def test_the_edges_of_the_rule(seconds, taken):
    assert penalty(20, seconds, **RULE) == pytest.approx(taken)


@given(
    st.floats(0, 1000),
    st.floats(0, 1e7),
    st.floats(0, 1e7),
    st.floats(0, 100),
    st.floats(0, 2),
    st.integers(0, 30),
)
def test_later_never_costs_less_and_never_more_than_there_is(
    score, earlier, more, grace_minutes, per_day, last_day
):
    rule = {"grace_minutes": grace_minutes, "per_day": per_day, "last_day": last_day}
    one, other = penalty(score, earlier, **rule), penalty(score, earlier + more, **rule)
    assert 0 <= one <= other <= score


def test_a_late_score_in_the_table(course: Course, hand_in) -> None:
    config = course.root / "nbgrader_config.py"
    config.write_text(config.read_text().replace("per_day = 0.0", "per_day = 0.25"))
    for student, time in (("early", "2026-03-01 11:00:00"), ("late", "2026-03-01 13:00:00")):
        folder: Path = hand_in(student, **RIGHT).parent
        (folder / "timestamp.txt").write_text(f"{time} UTC")
    gradebook.prepare(course, SLUG)
    with gradebook.open_gradebook(course) as book:
        book.update_or_create_assignment(SLUG, duedate=datetime(2026, 3, 1, 12, 0))
    jobs = batch.jobs_of(course, [SLUG], [], None)
    gradebook.record(course, [o.attempt for o in batch.run(jobs, workers=2)])
    rows = {row["student_id"]: row for row in grades.rows(course, [SLUG])}
    full = rows["early"]["score"]
    assert (rows["early"]["late_submission_penalty"], rows["late"]["raw_score"]) == (0, full)
    assert rows["late"]["score"] == pytest.approx(0.75 * full)
