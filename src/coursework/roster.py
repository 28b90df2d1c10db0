"""Who is in a class: ids, names, addresses, and the numbers that other systems call people by."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from coursework import spreadsheet
from coursework.classroom import Course, write_aside
from coursework.errors import CourseError

FILE = "roster.csv"  #: in the classroom

#: What a roster's columns may be called, in any case, with spaces or underscores.
COLUMNS = {
    "student_id": ("student id", "id", "username", "login", "sis login id", "sid"),
    "last_name": ("last name", "surname", "family name"),
    "first_name": ("first name", "given name"),
    "name": ("name", "full name", "student"),
    "email": ("email", "email address", "e-mail"),
    "lms_id": ("lms id", "canvas id", "moodle id", "participant", "identifier"),
}


@dataclass(frozen=True)
class Person:
    """Somebody in the class."""

    student_id: str  #: names the folders
    last_name: str = ""
    first_name: str = ""
    email: str = ""
    lms_id: str = ""  #: Canvas's "ID", the number in Moodle's "Participant 123"

    @property
    def spellings(self) -> set[str]:
        """The name as systems write it: first or last name first, without signs between."""
        first, last = plain_letters(self.first_name), plain_letters(self.last_name)
        return {first + last, last + first} - {""}


class Roster:
    """A class, in which people are found by what a system knows of them."""

    def __init__(self, people: Iterable[Person]) -> None:
        self.people = tuple(people)

    @classmethod
    def read(cls, path: Path) -> Roster:
        """Read a CSV file with a line of column names, as `spreadsheet` reads it.

        Raises:
            CourseError: it cannot be read, has no column of ids, nobody in it, a line without an
                id, or an id twice (upper and lower case are the same to some systems' folders).
        """
        rows = spreadsheet.read(path, "the roster", COLUMNS)
        if not rows or "student_id" not in rows[0][1]:
            raise CourseError(
                f"the roster {path} needs a line of column names with student_id among them, and "
                "a line for each student"
            )
        for number, row in rows:
            if not row["student_id"]:
                raise CourseError(f"line {number} of the roster {path} has no student_id")
            if not is_safe(row["student_id"]):
                raise CourseError(
                    f"line {number} of the roster {path} has the student_id {row['student_id']!r}: "
                    "no folder can be named so"
                )
        people = [_person(row) for _, row in rows]
        for what in ("student_id", "lms_id"):
            counts = Counter(getattr(p, what).casefold() for p in people)
            twice = [value for value, n in counts.items() if value and n > 1]
            if twice:
                raise CourseError(f"the roster {path} has the {what} {twice[0]!r} twice")
        return cls(people)

    @classmethod
    def of(cls, course: Course) -> Roster | None:
        """The roster that was kept for a class; None if there was none."""
        path = course.classroom / FILE
        return cls.read(path) if path.is_file() else None

    def keep(self, course: Course) -> None:
        """Keep the roster for the next time."""
        text = io.StringIO()
        columns = [f.name for f in fields(Person)]
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(vars(p) for p in self.people)
        write_aside(course.classroom / FILE, text.getvalue())

    def find(
        self, *, lms_id: str = "", student_id: str = "", email: str = "", name: str = ""
    ) -> Person | None:
        """The one person whom these mean: by number, by id, by address, then by name."""
        lms_id = lms_number(lms_id)
        tests = (
            (lms_id, lambda p: p.lms_id == lms_id),
            (student_id, lambda p: p.student_id.casefold() == student_id.casefold()),
            (email, lambda p: p.email.casefold() == email.casefold()),
            (plain_letters(name), lambda p: plain_letters(name) in p.spellings),
        )
        for given, fits in tests:
            found = [p for p in self.people if given and fits(p)]
            if len(found) == 1:
                return found[0]
        return None


def _person(row: dict[str, str]) -> Person:
    row = dict(row)
    full = row.pop("name", "")
    if full and not (row.get("last_name") or row.get("first_name")):
        last, comma, first = full.partition(",")
        if not comma:
            first, _, last = full.rpartition(" ")
        row |= {"last_name": last.strip(), "first_name": first.strip()}
    row["lms_id"] = lms_number(row.get("lms_id", ""))
    return Person(**row)


def lms_number(text: str) -> str:
    """A platform's number of a person: 101 of "Participant 101", and of a spreadsheet's "101.0"."""
    return re.sub(r"(?<=\d)\.0+$", "", text.strip().removeprefix("Participant").strip())


def plain_letters(name: str) -> str:
    """A name for comparing: small letters without accents, signs and spaces."""
    apart = unicodedata.normalize("NFKD", name.casefold().replace("ß", "ss"))
    return "".join(c for c in apart if c.isalnum())


def is_safe(name: str) -> bool:
    """Whether a folder can be named so, on any system."""
    return bool(name) and name.strip(". ") == name and not set(name) & set('/\\\\:*?"<>|\0\n\r\t')
