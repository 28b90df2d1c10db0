"""What a learning platform hands out for an assignment, brought to where `course grade` looks.

Canvas, Moodle, Gradescope and nbgrader's exchange each have a way of their own to say whose file is
whose. Here each becomes a `Found`; the newest of a student's is laid into
`classroom/submitted/STUDENT/SLUG/`, older ones into `classroom/earlier/`, and what belongs to
nobody known into `classroom/unmatched/`. Nothing is dropped, and work that has been replaced does
not come back when an old download is collected again.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from coursework.chapters import by_slug
from coursework.classroom import Course, write_aside
from coursework.errors import CourseError
from coursework.judge.grading import other_chapter
from coursework.judge.submission import Unreadable, cells_in
from coursework.roster import Roster, is_safe

LARGEST = 200 * 2**20  #: bytes of one file that is taken in

#: `doejane_LATE_123_4567_04-scaling-1.ipynb`: Canvas counts resubmissions behind the file's name.
_CANVAS = re.compile(
    r"(?P<name>[^_/]+)_(?P<late>LATE_)?(?P<id>\d+)_(?P<upload>\d+)_(?P<file>[^/]+)$"
)
#: `Jane Doe_123_assignsubmission_file_/04-scaling.ipynb`, or the same without a folder.
_MOODLE = re.compile(r"(?P<name>[^/]+)_(?P<id>\d+)_assignsubmission_file_?/?(?P<file>[^/]+)$")
_GRADESCOPE = re.compile(r"(?P<submission>submission_\d+)/(?P<file>.+)$")
#: `jane+04-scaling+2026-11-30 12:00:00 UTC+…/04-scaling.ipynb`
_EXCHANGE = re.compile(
    r"(?P<id>[^/+]+)\+(?P<slug>[^/+]+)\+(?P<time>[^/+]+)(\+[^/]*)?/(?P<file>.+)$"
)
_METADATA = "submission_metadata.yml"
_IGNORED = ("__MACOSX", ".DS_Store", ".ipynb_checkpoints", "timestamp.txt", _METADATA)


@dataclass(frozen=True)
class Found:
    """One file of somebody's."""

    path: str  #: within the download
    content: bytes
    file: str  #: its name
    student_id: str = ""
    lms_id: str = ""
    email: str = ""
    name: str = ""
    time: datetime | None = None  #: when it was handed in, where the download says so
    order: tuple[int, int] = (0, 0)  #: of attempts without a time: later ones have larger numbers
    late: bool = False

    @property
    def is_notebook(self) -> bool:
        return self.file.endswith(".ipynb")


@dataclass
class Collected:
    """What became of a download."""

    laid: list[str] = field(default_factory=list)  #: students with new work
    unchanged: list[str] = field(default_factory=list)
    older: list[str] = field(default_factory=list)  #: students whose newer work was there already
    earlier: int = 0  #: attempts kept beside
    late: list[str] = field(default_factory=list)  #: students whose file the platform calls late
    misfiled: list[str] = field(default_factory=list)  #: notebooks of another chapter
    unmatched: list[str] = field(default_factory=list)  #: files of nobody known, or no notebooks
    missing: list[str] = field(default_factory=list)  #: in the roster, with nothing to grade
    timeless: list[str] = field(default_factory=list)  #: students whose time is not known
    timed: int = 0  #: students whose time is


def collect(
    course: Course,
    slug: str,
    source: Path,
    roster: Roster | None,
    times: Mapping[str, datetime] | None = None,
) -> Collected:
    """Bring a download to where it is graded.

    Args:
        course: where the class is.
        slug: the assignment.
        source: a zip file or a folder.
        roster: who is in the class. None: everybody is called what the platform calls them.
        times: when students handed in, where the download does not say it (`times.read`).

    Raises:
        CourseError: there is no such file or folder, it is damaged, it holds no notebook, or only
            those of another chapter. Nothing was changed.
    """
    files = list(found(source, slug))
    if not any(one.is_notebook for one in files):
        what = "no notebook (a file ending in .ipynb)" if files else "no file"
        raise CourseError(f"{source} holds {what}, so that there is nothing to collect")
    others = _of_other_chapters(files, slug, source)
    collected = Collected()
    everybody: dict[str, list[Found]] = {}
    for one in files:
        student = _student(one, roster)
        if one.is_notebook and student and one.path not in others:
            everybody.setdefault(student, []).append(one)
            continue
        (collected.misfiled if one.path in others else collected.unmatched).append(one.path)
        write_aside(course.classroom / "unmatched" / slug / _inside(one.path), one.content)
    for student, attempts in sorted(everybody.items()):
        _lay(course, slug, student, sorted(attempts, key=_age), collected)
    _note_times(course, slug, times or {}, collected)
    if roster:
        there = {*everybody, *course.submissions(slug)}
        collected.missing = sorted(p.student_id for p in roster.people if p.student_id not in there)
    return collected


def _of_other_chapters(files: Iterable[Found], slug: str, source: Path) -> set[str]:
    """Paths of notebooks that belong to another chapter than the one that is collected.

    Raises:
        CourseError: some do, and none belongs to this one: it is the wrong download.
    """
    others, ours = {}, 0
    for one in files:
        try:
            cells, _ = cells_in(one.content) if one.is_notebook else ([], [])
        except Unreadable:
            continue  # grading will say what it is
        number = other_chapter(cells, by_slug(slug))
        if number:
            others[one.path] = number
        else:
            ours += any(cell.exercise for cell in cells)
    if others and not ours:
        numbers = " and ".join(sorted(set(others.values())))
        raise CourseError(
            f"{source} holds notebooks of chapter {numbers} and none of {slug}: is it the download "
            "of another assignment?"
        )
    return set(others)


def _student(one: Found, roster: Roster | None) -> str | None:
    if roster:
        person = roster.find(
            lms_id=one.lms_id, student_id=one.student_id, email=one.email, name=one.name
        )
        return person and person.student_id
    called = (one.student_id, one.email, one.lms_id, one.name)
    return next((name for name in called if is_safe(name)), None)


def _age(one: Found) -> tuple[datetime, tuple[int, int]]:
    return one.time or datetime.min.replace(tzinfo=UTC), one.order


def _lay(
    course: Course, slug: str, student: str, attempts: list[Found], collected: Collected
) -> None:
    """Lay the newest attempt where it is graded, and what it replaces beside."""
    folder = course.classroom / "submitted" / student / slug
    beside = course.classroom / "earlier" / student / slug
    last = attempts[-1]
    if last.late:
        collected.late.append(student)
    if _same(folder, last.content):
        collected.unchanged.append(student)
        return
    kept = {p.read_bytes() for p in beside.rglob("*.ipynb")}
    there = list(folder.glob("*.ipynb"))
    if there and _is_older(last, _time_in(folder), kept):
        collected.older.append(student)
        _keep(attempts, beside, slug, kept, collected)
        return
    if there:
        kept |= {p.read_bytes() for p in there}
        beside.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, beside / _next(beside))
        collected.earlier += 1
    _keep(attempts[:-1], beside, slug, kept | {last.content}, collected)
    write_aside(folder / f"{slug}.ipynb", last.content)
    if last.time:
        _note_time(folder, last.time)
    collected.laid.append(student)


def _same(folder: Path, content: bytes) -> bool:
    there = list(folder.glob("*.ipynb"))
    return len(there) == 1 and there[0].read_bytes() == content


def _is_older(one: Found, current: datetime | None, kept: set[bytes]) -> bool:
    """Whether work was handed in before the work that is there.

    Times decide where both are known. Otherwise it is older if it has been replaced before: an
    earlier download is collected again more often than a student goes back to an earlier file.
    """
    if one.time and current and one.time != current:
        return one.time < current
    return one.content in kept


def _keep(
    attempts: Iterable[Found], beside: Path, slug: str, kept: set[bytes], collected: Collected
) -> None:
    """Keep earlier attempts, each content once."""
    for one in attempts:
        if one.content not in kept:
            write_aside(beside / _next(beside) / f"{slug}.ipynb", one.content)
            kept.add(one.content)
            collected.earlier += 1


def _next(folder: Path) -> str:
    numbers = [int(p.name) for p in folder.glob("*/") if p.name.isdecimal()]
    return f"{max(numbers, default=0) + 1:04d}"


def _note_times(
    course: Course, slug: str, times: Mapping[str, datetime], collected: Collected
) -> None:
    """Put the times that were given beside the work, and see whose are not known."""
    for student, folder in course.submissions(slug).items():
        if student in times:
            _note_time(folder, times[student])
        if _time_in(folder):
            collected.timed += 1
        else:
            collected.timeless.append(student)


def _note_time(folder: Path, time: datetime) -> None:
    """As nbgrader's collecting does, for its gradebook to read."""
    write_aside(folder / "timestamp.txt", f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC\n")


def _time_in(folder: Path) -> datetime | None:
    path = folder / "timestamp.txt"
    return _utc(path.read_text("utf-8", errors="replace").strip()) if path.is_file() else None


def _inside(path: str) -> Path:
    """A path from a download that leads nowhere else."""
    parts = [p for p in PurePosixPath(path).parts if p not in ("/", "..", ".")]
    return Path(*(re.sub(r'[\\\\:*?"<>|\0]', "_", p) for p in parts))


# Reading a download ----------------------------------------------------------------------------


def found(source: Path, slug: str) -> Iterator[Found]:
    """The files of a download, and what its names say of each.

    Raises:
        CourseError: it is no zip file and no folder, or it is damaged.
    """
    files = dict(_files(source))
    people = _gradescope_people(files)
    for path, (content, order) in files.items():
        if any(part in _IGNORED for part in PurePosixPath(path).parts):
            continue
        yield _named(path, content, order, slug, people)


def _files(source: Path) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Paths, contents, and a number that grows with the time of a file."""
    if source.is_dir():
        for path in sorted(p for p in source.rglob("*") if p.is_file() and not p.is_symlink()):
            stat = path.stat()
            if stat.st_size <= LARGEST:
                yield path.relative_to(source).as_posix(), (path.read_bytes(), int(stat.st_mtime))
        return
    if not source.is_file():
        raise CourseError(f"there is no file or folder {source}")
    try:
        with zipfile.ZipFile(source) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and entry.file_size <= LARGEST:
                    age = int(datetime(*entry.date_time, tzinfo=UTC).timestamp())
                    yield entry.filename.replace("\\", "/"), (archive.read(entry), age)
    except (zipfile.BadZipFile, ValueError, RuntimeError, OSError) as error:
        raise CourseError(f"{source} is no zip file that can be read: {error}") from error


def _named(path: str, content: bytes, age: int, slug: str, people: dict[str, Any]) -> Found:
    if match := _EXCHANGE.search(path):
        time, whose = _utc(match["time"]), match["id"]
        return Found(path, content, match["file"], student_id=whose, time=time, order=(0, age))
    if match := _MOODLE.search(path):
        return Found(
            path, content, match["file"], lms_id=match["id"], name=match["name"], order=(0, age)
        )
    if (match := _GRADESCOPE.search(path)) and match["submission"] in people:
        return Found(path, content, match["file"], order=(0, age), **people[match["submission"]])
    if match := _CANVAS.search(path):
        resubmission = re.search(r"-(\d+)\.\w+$", match["file"])
        number = int(resubmission[1]) if resubmission else 0
        return Found(
            path,
            content,
            match["file"],
            lms_id=match["id"],
            name=match["name"],
            order=(number, int(match["upload"])),
            late=bool(match["late"]),
        )
    *folders, file = PurePosixPath(path).parts
    owners = [f for f in folders if f != slug] or [_without(Path(file).stem, slug)]
    return Found(path, content, file, student_id=owners[-1], name=owners[-1], order=(0, age))


def _without(stem: str, slug: str) -> str:
    """A file's name without the assignment's: `04-scaling_jane` is jane's."""
    return stem.replace(slug, "").strip(" _-+.")


def _utc(text: str) -> datetime | None:
    from nbgrader.utils import parse_utc

    try:
        return parse_utc(text).replace(tzinfo=UTC)
    except (ValueError, OverflowError, TypeError):
        return None


def _gradescope_people(files: dict[str, tuple[bytes, int]]) -> dict[str, dict[str, Any]]:
    """Whose each submission is, from the list that Gradescope packs in."""
    text = next((c for p, (c, _) in files.items() if PurePosixPath(p).name == _METADATA), None)
    if text is None:
        return {}
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads Ruby's objects as the plain mappings that they are."""

    Loader.add_multi_constructor("!ruby", lambda loader, tag, node: _plain_node(loader, node))
    try:
        entries = yaml.load(text, Loader)
        return {
            name: {
                "student_id": str(who.get(":sid") or ""),
                "email": str(who.get(":email") or ""),
                "name": str(who.get(":name") or ""),
                "time": _as_time(entry.get(":created_at")),
            }
            for name, entry in entries.items()
            for who in entry[":submitters"][:1]
        }
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise CourseError(f"{_METADATA} in the download cannot be read: {error}") from error


def _plain_node(loader: Any, node: Any) -> Any:
    """One of Ruby's objects: a mapping, of which a time's `utc` is what is wanted, or text."""
    if isinstance(node.value, str):
        return node.value
    fields = loader.construct_mapping(node)
    return fields.get("utc", fields)


def _as_time(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return _utc(str(value)) if value else None
