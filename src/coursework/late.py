"""What is taken off for being late: a rule that is a function of two numbers.

nbgrader asks for it when it enters a score: `course grade` and plain `nbgrader autograde` alike,
for assignments that have a due date. `nbgrader_config.py` says what the rule is.
"""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nbgrader.plugins import BasePlugin
from traitlets import Float, Integer

if TYPE_CHECKING:
    from coursework.classroom import Course

DAY = 24 * 60 * 60  #: seconds


def penalty(
    score: float, seconds_late: float, *, grace_minutes: float, per_day: float, last_day: int
) -> float:
    """Points that are taken off.

    Args:
        score: points before.
        seconds_late: after the due date, in UTC; zero or less is in time.
        grace_minutes: lateness that costs nothing.
        per_day: part of the score for each day that has begun, such as 0.1.
        last_day: after so many days nothing is left. 0: there is no such day.
    """
    late = seconds_late - 60 * grace_minutes
    if late <= 0 or score <= 0:
        return 0.0
    days = math.ceil(late / DAY)
    if last_day and days > last_day:
        return score
    return min(score, score * per_day * days)


class LatePenalty(BasePlugin):
    """The rule, as nbgrader's settings name it. By default nothing is taken off."""

    grace_minutes = Float(0.0, help="Lateness that costs nothing.").tag(config=True)
    per_day = Float(0.0, help="Part of the score for each day begun.").tag(config=True)
    last_day = Integer(0, help="After so many days nothing is left; 0: never.").tag(config=True)

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float:
        """What nbgrader asks for."""
        return penalty(
            score,
            total_seconds_late,
            grace_minutes=self.grace_minutes,
            per_day=self.per_day,
            last_day=self.last_day,
        )


def due_date(course: Course, slug: str) -> datetime | None:
    """When an assignment is due, in UTC and without a zone, as nbgrader keeps it; None: never.

    Raises:
        CourseError: the gradebook cannot be used.
    """
    from coursework.gradebook import open_gradebook
    from coursework.release import nbgrader_config

    url = nbgrader_config(course.root).CourseDirectory.db_url
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).is_file():
        return None  # to open it would be to make it
    with open_gradebook(course) as gradebook:
        return next((a.duedate for a in gradebook.assignments if a.name == slug), None)
