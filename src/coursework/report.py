"""What a class has understood: one page for the instructor, made from the attempts.

Scores and where they were lost, the misconceptions and who has them, wrong answers that nobody has
named yet, put together by what they compute, and what was broken or has changed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import mean, median

from coursework.chapters import Chapter, by_slug
from coursework.classroom import Attempt, Course
from coursework.exercise import Exercise
from coursework.exercises import for_chapter
from coursework.feedback import template
from coursework.judge.grading import Result
from coursework.judge.submission import Unreadable, find_notebook, match, read_cells
from coursework.roster import Roster

BARS = 10  #: of the histogram
MOST_LINES = 40  #: of an example


@dataclass(frozen=True)
class Bar:
    """How many scores lie in one tenth of the points."""

    label: str  #: "60–70 %"
    count: int
    part: float  #: of the highest bar


@dataclass(frozen=True)
class Row:
    """How one exercise went."""

    name: str
    minutes: int
    max_points: float
    mean: float
    right: int
    wrong: int
    to_do: int


@dataclass(frozen=True)
class Mistake:
    """A misconception that somebody has, or a group of equal wrong answers without a name."""

    exercise: str
    name: str
    sentence: str
    students: tuple[str, ...]
    example: str = ""  #: one student's code
    draft: str = ""  #: of a new misconception


@dataclass(frozen=True)
class Change:
    """A score that the last run changed."""

    student: str
    before: float | None
    now: float | None


@dataclass(frozen=True)
class Assignment:
    """All that the page says of one assignment."""

    chapter: Chapter
    graded: int
    missing: tuple[str, ...]
    waiting: tuple[str, ...]  #: for a person to read their open question
    mean: float
    median: float
    max_points: float
    bars: tuple[Bar, ...]
    rows: tuple[Row, ...]
    named: tuple[Mistake, ...]
    unnamed: tuple[Mistake, ...]
    broken: tuple[tuple[str, str], ...]
    repaired: tuple[tuple[str, str], ...]
    changes: tuple[Change, ...]


def page(course: Course, slugs: Sequence[str], now: datetime) -> str:
    """The page, as one HTML file that asks for nothing else."""
    there = course.students
    roster = Roster.of(course)
    everybody = {*there, *(p.student_id for p in (roster.people if roster else ()))}
    assignments = [of(course, slug, everybody) for slug in slugs]
    shown = [a for a in assignments if a.graded or a.broken]
    return template("report.html").render(
        assignments=shown,
        students=len(there),
        people=len(roster.people) if roster else 0,
        now=now,
    )


def of(course: Course, slug: str, everybody: Iterable[str]) -> Assignment:
    """What there is to say of an assignment."""
    attempts = course.all_latest(slug)
    graded = {s: a for s, a in attempts.items() if a.result.exercises}
    scores = [a.result.points for a in graded.values()]
    chapter = by_slug(slug)
    most = max((a.result.max_points for a in graded.values()), default=0.0)
    exercises = {e.id: e for e in for_chapter(chapter.number)}
    reasons = {s: a.result for s, a in attempts.items()}
    return Assignment(
        chapter=chapter,
        graded=len(graded),
        missing=tuple(sorted(set(everybody) - attempts.keys())),
        waiting=tuple(s for s, r in reasons.items() if r.status == "needs manual"),
        mean=mean(scores) if scores else 0.0,
        median=median(scores) if scores else 0.0,
        max_points=most,
        bars=_histogram(scores, most),
        rows=tuple(_row(e, graded) for e in exercises.values()),
        named=_named(exercises, graded),
        unnamed=_unnamed(course, chapter, exercises, graded),
        broken=tuple((s, r.reason) for s, r in reasons.items() if not r.exercises),
        repaired=tuple((s, "; ".join(r.repairs)) for s, r in reasons.items() if r.repairs),
        changes=tuple(_changes(course, slug, attempts)),
    )


def _histogram(scores: Sequence[float], most: float) -> tuple[Bar, ...]:
    if not scores or not most:
        return ()
    counts = [0] * BARS
    for score in scores:
        counts[min(BARS - 1, int(BARS * score / most))] += 1
    step = 100 // BARS
    return tuple(
        Bar(f"{i * step}–{(i + 1) * step} %", n, n / max(counts)) for i, n in enumerate(counts)
    )


def _row(exercise: Exercise, graded: dict[str, Attempt]) -> Row:
    parts = [e for a in graded.values() for e in a.result.exercises if e.exercise == exercise.id]
    right = sum(e.points == e.max_points for e in parts)
    to_do = sum(e.feedback.startswith("·") for e in parts)
    return Row(
        exercise.name,
        exercise.minutes,
        exercise.max_points,
        mean(e.points for e in parts) if parts else 0.0,
        right,
        len(parts) - right - to_do,
        to_do,
    )


def _named(exercises: dict[str, Exercise], graded: dict[str, Attempt]) -> tuple[Mistake, ...]:
    who: dict[tuple[str, str], list[str]] = defaultdict(list)
    for student, attempt in graded.items():
        for e in attempt.result.exercises:
            if e.misconception:
                who[e.exercise, e.misconception].append(student)
    mistakes = []
    for (id, name), students in who.items():
        known = exercises[id].misconceptions if id in exercises else ()
        sentence = next((m.sentence for m in known if m.name == name), "")
        mistakes.append(Mistake(id.partition(".")[2], name, sentence, tuple(students)))
    return tuple(sorted(mistakes, key=lambda m: (-len(m.students), m.exercise, m.name)))


def _unnamed(
    course: Course, chapter: Chapter, exercises: dict[str, Exercise], graded: dict[str, Attempt]
) -> tuple[Mistake, ...]:
    """Wrong answers that do the same on the same inputs, the largest groups first."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    said: dict[tuple[str, str], str] = {}
    for student, attempt in graded.items():
        for e in attempt.result.exercises:
            if e.fingerprint:
                groups[e.exercise, e.fingerprint].append(student)
                said.setdefault((e.exercise, e.fingerprint), e.feedback.partition("\n")[0])
    mistakes = []
    for (id, mark), students in groups.items():
        name = id.partition(".")[2]
        code = _answer(course, chapter, students[0], name)
        words = said[id, mark].lstrip("✗ ").removeprefix(f"{name}: ").partition(" (")[0]
        draft = _draft(name, words, code, exercises.get(id))
        mistakes.append(Mistake(name, words, "", tuple(students), code, draft))
    return tuple(sorted(mistakes, key=lambda m: (-len(m.students), m.exercise)))


def _answer(course: Course, chapter: Chapter, student: str, name: str) -> str:
    """The cells in which a student answers an exercise."""
    try:
        path, _ = find_notebook(course.submissions(chapter.slug)[student], chapter.slug)
        found = match(read_cells(path)[0], for_chapter(chapter.number))
    except (KeyError, Unreadable):
        return ""
    lines = "\n\n".join(p.source for p in found.parts if name in p.answers).splitlines()
    return "\n".join(lines[:MOST_LINES] + ["…"] * (len(lines) > MOST_LINES))


def _draft(name: str, words: str, code: str, exercise: Exercise | None) -> str:
    """What would go into the declaration, for somebody to finish."""
    private = f"_{name}_as_seen"
    try:
        body = [n for n in ast.parse(code).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        for node in body:
            if node.name == name:
                node.name = private
        source = "\n\n\n".join(ast.unparse(node) for node in body)
    except SyntaxError:
        source = code
    return (
        f"{source}\n\n\n"
        f"Misconception(\n"
        f'    "NAME: a few words for tables",\n'
        f'    "SENTENCE: what this gives, and the idea that is missing.",\n'
        f"    {private},\n"
        f"    symptom={words!r},\n"
        f")"
    )


def _changes(course: Course, slug: str, attempts: dict[str, Attempt]) -> Iterable[Change]:
    """Scores that are not what they were in the attempt before."""
    for student, attempt in attempts.items():
        paths = course.attempts(slug, student)
        if len(paths) < 2:
            continue
        before = Attempt.read(paths[-2]).result
        if before.points != attempt.result.points or bool(before.exercises) != bool(
            attempt.result.exercises
        ):
            yield Change(student, _score(before), _score(attempt.result))


def _score(result: Result) -> float | None:
    return result.points if result.exercises else None
