"""The folders of a class, and the attempts in them.

    classroom/submitted/STUDENT/SLUG/SLUG.ipynb    what was handed in
    classroom/attempts/SLUG/STUDENT/0001.json      what grading it gave: the truth
    classroom/gradebook.db, classroom/autograded/  rebuilt from the attempts
    classroom/shown/SLUG/STUDENT.json              which answers formgrader shows (`gradebook`)

An attempt is written to the side and renamed, so that it is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coursework import private
from coursework.errors import CourseError
from coursework.judge.grading import Result


class NoCourse(CourseError):
    """A folder that is no course; the message says what to do."""


@dataclass(frozen=True)
class Course:
    """A course's folder, and the class in it."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Course:
        """The course that contains a folder (default: the working directory).

        Raises:
            NoCourse: none does.
        """
        start = (start or Path.cwd()).resolve()
        for folder in (start, *start.parents):
            if (folder / "nbgrader_config.py").is_file() and (folder / "solutions").is_dir():
                return cls(folder)
        raise NoCourse(
            f"{start} is not inside a course: a folder with nbgrader_config.py and solutions/ "
            "is what is looked for. Go to the folder that you cloned"
        )

    @property
    def classroom(self) -> Path:
        return self.root / "classroom"

    def master(self, slug: str) -> Path:
        return private.home(self.root, slug) / "solutions" / slug / f"{slug}.ipynb"

    @property
    def slugs(self) -> tuple[str, ...]:
        """Assignments: chapters with a solution notebook."""
        found = (p for home in private.homes(self.root) for p in home.glob("solutions/*/*.ipynb"))
        return tuple(sorted(p.stem for p in found))

    def submissions(self, slug: str) -> dict[str, Path]:
        """Folders that were handed in for an assignment, by student."""
        folders = self.classroom.glob(f"submitted/*/{slug}")
        return {f.parent.name: f for f in sorted(folders) if f.is_dir()}

    def misplaced(self) -> list[Path]:
        """Notebooks that were handed in where no submission is looked for."""
        submitted = self.classroom / "submitted"
        right = {p for slug in self.slugs for p in submitted.glob(f"*/{slug}/**/*.ipynb")}
        found = {p for p in submitted.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts}
        return sorted(found - right)

    def unknown_slugs(self) -> tuple[str, ...]:
        """Assignments with work in the classroom that the course does not have."""
        notebooks = self.classroom.glob("submitted/*/*/*.ipynb")
        graded = self.classroom.glob("attempts/*/*/[0-9]*.json")
        found = {p.parent.name for p in notebooks} | {p.parent.parent.name for p in graded}
        return tuple(sorted(s for s in found - set(self.slugs) if not s.startswith(".")))

    @property
    def students(self) -> tuple[str, ...]:
        """Everybody who has handed in something."""
        return tuple(sorted(p.name for p in self.classroom.glob("submitted/*") if p.is_dir()))

    @cached_property
    def seed(self) -> int:
        """The instructor's seed, from which graded inputs are made. Drawn once, and kept."""
        path = self.classroom / "seed"
        if not path.exists():
            write_aside(path, f"{secrets.randbits(32)}\n")
        return int(path.read_text())

    def attempts(self, slug: str, student: str) -> list[Path]:
        """Attempts of a student at an assignment, oldest first."""
        return sorted((self.classroom / "attempts" / slug / student).glob("[0-9]*.json"))

    def latest(self, slug: str, student: str) -> Attempt | None:
        """The attempt that counts."""
        paths = self.attempts(slug, student)
        return Attempt.read(paths[-1]) if paths else None

    def all_latest(self, slug: str) -> dict[str, Attempt]:
        """The attempts that count, by student."""
        folders = sorted((self.classroom / "attempts" / slug).glob("*/"))
        latest = {f.name: self.latest(slug, f.name) for f in folders}
        return {student: attempt for student, attempt in latest.items() if attempt}

    def save(self, attempt: Attempt) -> Path:
        """Keep an attempt, beside the earlier ones."""
        folder = self.classroom / "attempts" / attempt.result.slug / attempt.student
        paths = self.attempts(attempt.result.slug, attempt.student)
        number = int(paths[-1].stem) + 1 if paths else 1
        path = folder / f"{number:04d}.json"
        write_aside(path, json.dumps(attempt.to_json(), indent=1, ensure_ascii=False) + "\n")
        return path


@dataclass(frozen=True)
class Attempt:
    """One grading of one student's submission."""

    student: str
    time: str  #: when it was graded, ISO 8601, UTC
    checks_sha256: str  #: of the code that graded it
    notebook: str  #: the file's name; empty where there was none
    result: Result

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "result": self.result.to_json()}

    @classmethod
    def read(cls, path: Path) -> Attempt:
        """Read an attempt's file.

        Raises:
            CourseError: the file is damaged.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**data, "result": Result.from_json(data["result"])})
        except (ValueError, KeyError, TypeError) as error:
            raise CourseError(
                f"the attempt {path} is damaged ({error}). Move it away and grade again"
            ) from error

    def is_of(self, submission: str, master: str, checks: str) -> bool:
        """Whether grading these again would give this again."""
        mine = (self.result.submission_sha256, self.result.master_sha256, self.checks_sha256)
        return mine == (submission, master, checks) and self.result.status != "error"


def write_aside(path: Path, content: str | bytes) -> None:
    """Write a file so that it is never seen half written. Text is UTF-8.

    Raises:
        OSError: the system refuses; the error names the file that was meant.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def checks_sha256() -> str:
    """Hash of the code that grades: a corrected check grades anew what it concerns."""
    digest = hashlib.sha256()
    for package in ("attend", "coursework"):
        for path in sorted((Path(__file__).parent.parent / package).rglob("*.py")):
            digest.update(path.read_bytes())
    for path in private.files():
        digest.update(path.read_bytes())
    return digest.hexdigest()
