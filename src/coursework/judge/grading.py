"""Grading one submission: a function of two files.

Student code runs in a worker, checks run here. A worker that dies or hangs costs the exercise that
did it: it is started anew, the other cells are run again, and grading goes on. An exercise that
fails is judged a second time as if it stood alone, with right answers in place of the earlier ones
that are wrong, and the better of the two results counts.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from coursework.bug_hunt import variant_in
from coursework.chapters import Chapter, chapters
from coursework.evaluate import (
    VISIBLE_SEED,
    WITHHELD,
    Failure,
    Verdict,
    all_failed,
    judge,
    verdict_of,
)
from coursework.exercise import Exercise
from coursework.exercises import for_chapter
from coursework.judge import sandbox
from coursework.judge.session import RemoteAnswer, Session
from coursework.judge.submission import (
    Cell,
    Part,
    Submission,
    Unreadable,
    defined_names,
    match,
    read_cells,
    sha256,
)
from coursework.markers import released
from coursework.withhold import Withheld

STATUSES = ("graded", "needs manual", "unreadable", "error", "missing")


@dataclass(frozen=True)
class Graded:
    """What one exercise earned, and the words for it."""

    exercise: str
    grade_id: str  #: of the graded cell
    points: float
    max_points: float
    feedback: str  #: for the student, without graded inputs or right values
    message: str  #: for the instructor, with them
    misconception: str | None
    properties: tuple[tuple[str, int, int], ...]  #: sentence, points, points at most
    fingerprint: str = ""  #: of a wrong answer without a name: equal for those that do the same


@dataclass(frozen=True)
class OpenQuestion:
    """A question that people grade."""

    grade_id: str
    max_points: float
    answered: bool  #: there is something to read
    answer_sha256: str = ""  #: by which a changed answer is known


@dataclass(frozen=True)
class Result:
    """The outcome for one submission."""

    slug: str
    status: str
    reason: str  #: a sentence; empty where there is nothing to say
    exercises: tuple[Graded, ...] = ()
    manual: tuple[OpenQuestion, ...] = ()
    repairs: tuple[str, ...] = ()
    isolation: str = ""
    seed: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    submission_sha256: str = ""
    master_sha256: str = ""
    seconds: float = 0.0

    @property
    def points(self) -> float:
        return sum(e.points for e in self.exercises)

    @property
    def max_points(self) -> float:
        """Points that the machine can give."""
        return sum(e.max_points for e in self.exercises)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        exercises = tuple(
            Graded(**{**e, "properties": tuple(tuple(p) for p in e["properties"])})
            for e in data["exercises"]
        )
        manual = tuple(OpenQuestion(**q) for q in data["manual"])
        lists = {"exercises": exercises, "manual": manual, "repairs": tuple(data["repairs"])}
        return cls(**{**data, **lists})


@dataclass(frozen=True)
class Asked:
    """An open question as students get it."""

    points: float
    text: str


@dataclass(frozen=True)
class Master:
    """What is asked in an assignment, as its solution notebook has it."""

    slug: str
    chapter: Chapter
    exercises: tuple[Exercise, ...]
    manual: dict[str, Asked]  #: open questions, by grade id
    setup: str

    @property
    def needs_torch(self) -> bool:
        """Whether answers will import PyTorch, which had better be ready then."""
        imports = re.search(r"^\s*(import|from)\s+torch\b", self.setup, re.MULTILINE)
        return self.chapter.needs_torch or imports is not None

    @classmethod
    def read(cls, path: Path) -> Master:
        """Read a solution notebook.

        Raises:
            ValueError: it belongs to no chapter, or holds no exercise.
        """
        chapter = next((c for c in chapters() if c.slug == path.stem), None)
        if chapter is None:
            raise ValueError(f"{path.name} is named after no chapter")
        cells, _ = read_cells(path)
        exercises = for_chapter(chapter.number, variant_in(c.source for c in cells))
        asked = [e for e in exercises if any(c.exercise == e.id for c in cells)]
        if not asked:
            raise ValueError(f"{path} holds no exercise of chapter {chapter.number:02d}")
        setup = "\n".join(c.source for c in cells if c.role == "setup")
        return cls(path.stem, chapter, tuple(asked), _manual(path), setup)

    @classmethod
    def of_chapter(cls, chapter: Chapter, cells: Sequence[Cell] = ()) -> Master:
        """The assignment as declared, where there is no solution notebook: at a student's."""
        exercises = for_chapter(chapter.number, variant_in(c.source for c in cells))
        return cls(chapter.slug, chapter, exercises, {}, "import numpy as np\n")


def _manual(path: Path) -> dict[str, Asked]:
    """Cells that people grade: those that are both a solution and graded."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    marked = ((c, c.get("metadata", {}).get("nbgrader", {})) for c in cells)
    return {
        marks["grade_id"]: Asked(float(marks["points"]), released("".join(cell["source"])))
        for cell, marks in marked
        if marks.get("grade") and marks.get("solution")
    }


def grade(
    master: Path,
    submission: Path,
    *,
    seed: int | None = None,
    isolation: str | None = None,
    repairs: Sequence[str] = (),
) -> Result:
    """Grade one submission against its solution notebook.

    Args:
        master: the solution notebook; its name is the slug.
        submission: the student's notebook. Whatever is in it, it ends in a `Result`.
        seed: makes the graded inputs; None draws one.
        isolation: "strict" or "process"; None takes the best that there is.
        repairs: what was overlooked to find the file.

    Raises:
        sandbox.NoSandbox: strict isolation is wanted and not to be had.
        ValueError: `master` is no solution notebook.
    """
    asked = Master.read(master)
    level = sandbox.choose_level(isolation)
    seed = secrets.randbits(32) if seed is None else seed
    started = time.monotonic()
    common: dict[str, Any] = {
        "slug": asked.slug,
        "isolation": level,
        "seed": seed,
        "versions": versions(),
        "master_sha256": sha256(master),
    }
    try:
        cells, repaired = read_cells(submission)
    except Unreadable as error:
        digest = sha256(submission) if submission.is_file() else ""
        return Result(status="unreadable", reason=f"{error}.", submission_sha256=digest, **common)
    other = other_chapter(cells, asked.chapter)
    if other:
        return Result(
            status="unreadable",
            reason=f"this is a notebook of chapter {other}, not of {asked.slug}.",
            submission_sha256=sha256(submission),
            **common,
        )
    found = match(cells, asked.exercises, asked.manual)
    with _Grading(asked, found, level, (VISIBLE_SEED, seed)) as grading:
        graded = grading.grade_all()
    manual = tuple(_open_question(g, question, found) for g, question in asked.manual.items())
    return Result(
        status="needs manual" if any(q.answered for q in manual) else "graded",
        reason=_reason(graded, found),
        exercises=graded,
        manual=manual,
        repairs=(*repairs, *repaired, *found.repairs),
        submission_sha256=sha256(submission),
        seconds=round(time.monotonic() - started, 3),
        **common,
    )


def check_notebook(path: Path, chapter: Chapter) -> tuple[Verdict, ...]:
    """The visible checks of a student's own notebook, in a fresh process on their own machine.

    Raises:
        Unreadable: there is no notebook in the file.
    """
    cells, _ = read_cells(path)
    asked = Master.of_chapter(chapter, cells)
    found = match(cells, asked.exercises)
    with _Grading(asked, found, "process", (VISIBLE_SEED,)) as grading:
        return tuple(grading.verdicts())


def versions() -> dict[str, str]:
    """What a score depends on beside the two files."""
    from coursework import __version__

    return {"course": __version__, "python": platform.python_version(), "numpy": np.__version__}


def other_chapter(cells: Sequence[Cell], chapter: Chapter) -> str | None:
    """The number of the chapter that all marked cells belong to, if it is another one."""
    numbers = {c.exercise[:2] for c in cells if c.exercise}
    return numbers.pop() if len(numbers) == 1 and f"{chapter.number:02d}" not in numbers else None


def _open_question(grade_id: str, question: Asked, found: Submission) -> OpenQuestion:
    """Answered is a question whose cell holds a line that is not the question's own."""
    asked = {line.strip() for line in question.text.splitlines()}
    # nbgrader puts these words where an answer shall stand.
    answer = found.manual.get(grade_id, "")
    lines = answer.replace("YOUR ANSWER HERE", "").splitlines()
    answered = any(line.strip() and line.strip() not in asked for line in lines)
    digest = hashlib.sha256(answer.strip().encode()).hexdigest()
    return OpenQuestion(grade_id, question.points, answered, digest)


def _reason(graded: Sequence[Graded], found: Submission) -> str:
    """The sentence beside a score: for each exercise that lost points, the check's first line."""
    if not found.parts:
        return "The notebook holds no answer."
    lost = [e for e in graded if e.points < e.max_points]
    heads = [(e, e.feedback.partition("\n")[0]) for e in lost]
    to_do = [e.exercise.partition(".")[2] for e, head in heads if head.startswith("·")]
    wrong = [head.lstrip("✗ ").rstrip(".") for _, head in heads if not head.startswith("·")]
    return "; ".join([*wrong, *([f"still to do: {', '.join(to_do)}"] if to_do else [])])


class _Grading:
    """One submission on its way through the judge."""

    def __init__(
        self, asked: Master, found: Submission, level: str, seeds: tuple[int, ...]
    ) -> None:
        self.asked = asked
        self.found = found
        self.seeds = seeds
        number = asked.chapter.number
        self.session = Session(level, number, torch=asked.needs_torch)
        self.poisoned: dict[str, str] = {}  #: cells that end the process, and how
        self.raised: dict[str, str] = {}  #: cells that raise, and what

    def __enter__(self) -> _Grading:
        return self

    def __exit__(self, *exception: object) -> None:
        self.session.close()

    def grade_all(self) -> tuple[Graded, ...]:
        return tuple(
            Graded(
                exercise=v.exercise,
                grade_id=f"graded_{e.name}",
                points=v.points,
                max_points=v.max_points,
                feedback=v.feedback,
                message=v.message,
                misconception=v.misconception,
                properties=tuple((r.property, r.points, r.max_points) for r in v.results),
                fingerprint=v.fingerprint,
            )
            for e, v in zip(self.asked.exercises, self.verdicts(), strict=True)
        )

    def verdicts(self) -> list[Verdict]:
        """Judge every exercise; those that fail a second time, as if they stood alone."""
        self.replay(self.found.parts)
        verdicts = []
        for exercise in self.asked.exercises:
            if not self.session.alive:
                self.replay(self.found.parts)
            verdicts.append(self.judge(exercise))
        for i, (exercise, verdict) in enumerate(
            zip(self.asked.exercises, list(verdicts), strict=True)
        ):
            if not verdict.passed and not _is_to_do(verdict):
                wrong = [v for v in verdicts[:i] if not v.passed]
                verdicts[i] = max(
                    (verdict, *self.second_chances(exercise, wrong)), key=lambda v: v.points
                )
        return verdicts

    def judge(self, exercise: Exercise) -> Verdict:
        failure = self.why_not_there(exercise)
        if failure:
            return verdict_of(exercise, all_failed(exercise, failure), None)
        answer = RemoteAnswer(self.session, exercise.name, forbids_fused=exercise.forbids_fused)
        return judge(exercise, answer, self.seeds)

    def second_chances(self, exercise: Exercise, wrong: Sequence[Verdict]) -> list[Verdict]:
        """Judged as the notebook stood after its cell, and with earlier answers put right."""
        mine = [i for i, p in enumerate(self.found.parts) if exercise.name in p.answers]
        if not mine or self.why_not_there(exercise):
            return []
        chances = []
        rest = self.found.parts[mine[-1] + 1 :]
        if rest and any(set(_bound(p)) & self._names_before(mine[-1]) for p in rest):
            self.replay(self.found.parts[: mine[-1] + 1])
            chances.append(self.judge(exercise))
        stubs = [e for e in self.asked.exercises if any(e.id == v.exercise for v in wrong)]
        # A class stays where it is, and so does a function that is handed others.
        stubs = [e for e in stubs if e.reference is not None and not e.is_class]
        if stubs:
            self.replay(self.found.parts)
            for stub in stubs:
                self.session.stub(stub.name, stub.reference)  # type: ignore[arg-type]
            verdict = self.judge(exercise)
            names = ", ".join(s.name for s in stubs)
            chances.append(_with_note(verdict, f"judged with right answers in place of {names}"))
        return chances

    def _names_before(self, last: int) -> set[str]:
        return {name for p in self.found.parts[: last + 1] for name in _bound(p)}

    def why_not_there(self, exercise: Exercise) -> Failure | None:
        """The reason why there is nothing to call, if there is nothing."""
        mine = [p for p in self.found.parts if exercise.name in p.answers]
        if not mine:
            return Failure("there is no answer", kind="missing")
        if not self.session.alive and self.session.spent:
            return Failure("the notebook had used up its time, or its restarts", kind="late")
        for part in mine:
            if part.name in self.poisoned:
                return Failure(
                    f"its cell did not end well: {self.poisoned[part.name]}", kind="died"
                )
        if self.session.alive and not self.session.defined(exercise.name):
            raised = next((self.raised[p.name] for p in mine if p.name in self.raised), None)
            if raised and raised.startswith(Withheld.__name__):
                return WITHHELD
            if raised:
                return Failure(f"its cell raised {raised}", kind="error")
            noun = "class" if exercise.is_class else "function"
            return Failure(f"there is no {noun} {exercise.name}", kind="missing")
        return None

    def replay(self, parts: Sequence[Part]) -> None:
        """A fresh worker that has run the set-up and these cells, without those that end it."""
        while True:
            if self.session.spent:
                self.session.close()
                return
            self.session.start()
            if self.asked.setup:
                self.session.run_cell("set-up", self.asked.setup)
            if all(self.run(part) for part in parts if part.name not in self.poisoned):
                return

    def run(self, part: Part) -> bool:
        """Run a cell; False if that was the end of the worker."""
        reply = self.session.run_cell(part.name, part.source)
        if reply.late or reply.died:
            self.poisoned[part.name] = "it took too long" if reply.late else str(reply.died)
            return False
        if reply.raised:
            message = reply.raised.message
            self.raised[part.name] = f"{reply.raised.kind}{': ' if message else ''}{message}"
        return True


def _bound(part: Part) -> set[str]:
    return set(defined_names(part.source))


def _is_to_do(verdict: Verdict) -> bool:
    """Whether the stub stands as it was released: there is nothing to judge a second time."""
    return any(r.failure is not None and r.failure.kind == "todo" for r in verdict.results)


def _with_note(verdict: Verdict, note: str) -> Verdict:
    def noted(text: str) -> str:
        first, line, rest = text.partition("\n")
        return f"{first}\n  ({note}){line}{rest}"

    return replace(verdict, message=noted(verdict.message), feedback=noted(verdict.feedback))
