"""nbgrader's settings: `nbgrader generate_assignment`, `autograde` and `formgrader` from here.

nbgrader starts `alembic` by name, so the environment's `bin` must be on PATH.
"""

from pathlib import Path

c = get_config()  # noqa: F821 - nbgrader puts it there

root = Path(__file__).resolve().parent
classroom = root / "classroom"
classroom.mkdir(exist_ok=True)  # SQLite makes the gradebook, but not the folder that it lies in

c.CourseDirectory.course_id = "attention"
c.CourseDirectory.root = str(root)

c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"

# Everything about students lies in one folder, which is never committed.
c.CourseDirectory.submitted_directory = "classroom/submitted"
c.CourseDirectory.autograded_directory = "classroom/autograded"
c.CourseDirectory.feedback_directory = "classroom/feedback"
# For PostgreSQL, "postgresql+psycopg://USER@HOST/DATABASE" and the extra `postgres`.
c.CourseDirectory.db_url = f"sqlite:///{classroom / 'gradebook.db'}"

# What is taken off for being late, of assignments with a due date (`book/instructors/term.md`).
c.AssignLatePenalties.plugin_class = "coursework.late.LatePenalty"
c.LatePenalty.grace_minutes = 15
c.LatePenalty.per_day = 0.0  # 0.1: a tenth of the score for each day that has begun
c.LatePenalty.last_day = 0  # 7: nothing is left after a week
