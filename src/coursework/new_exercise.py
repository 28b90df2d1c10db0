"""A new exercise, laid out as a small one that works: its author changes it, and fills no blanks.

The declaration and the right answers are made from `templates/exercise.py` and
`templates/right_answers.py`. A published exercise goes into the clone, a private one into a folder
outside of it (`coursework.private`). Nothing is overwritten, and what cannot be laid out whole is
not laid out at all.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from coursework import exercises, private, python_source
from coursework.chapters import CHAPTERS, PRIVATE, Chapter
from coursework.classroom import Course, NoCourse, write_aside
from coursework.errors import CourseError
from coursework.exercises import declare_again, declared_chapters, for_chapter, lacks_torch
from coursework.markers import BEGIN_SOLUTION, END_SOLUTION
from coursework.release import read_solution
from coursework.sync import skeleton, sync

TEMPLATES = Path(__file__).parent / "templates"
LONGEST = 36  #: letters of a name, so that no line that holds it is too long
#: Names that mean something else in a notebook.
TAKEN = ("bug_hunt", "check", "exercises", "np", "open_question", "setup", "suspect", "torch")
ANSWER, ANSWER_IN_TORCH = "return np.mean(x, axis=-1)", "return x.mean(axis=-1)"

CHAPTERS_FILE = '''"""Chapters of our own: numbers from 50 to 99, topics and titles."""

from coursework.chapters import Chapter

CHAPTERS = ()
'''
PACKAGE = '''"""Exercises of chapter {number:02d}, {title}: a module for each."""

__all__ = ["EXERCISES"]

EXERCISES = ()
'''
RIGHT_ANSWERS = '''"""Right answers to the exercises of chapter {number:02d}."""


RIGHT_ANSWERS = {{}}
'''
QUESTION = f"""## Open question

A mean hides what it is made of. Give two tokens with the same mean that a model must tell apart,
and say what would tell them apart.

{BEGIN_SOLUTION}
For instance (1, 1) and (0, 2): their variances differ, 0 and 1.

Mark scheme: 2 points for two such tokens, 2 for a number that differs.
{END_SOLUTION}"""


@dataclass(frozen=True)
class Place:
    """Where the exercises of a chapter lie."""

    chapter: Chapter
    home: Path  #: the folder of `solutions/`
    declarations: Path  #: the folder of the chapters' packages
    right_answers: Path  #: the file of the chapter's

    @property
    def notebook(self) -> Path:
        slug = self.chapter.slug
        return self.home / "solutions" / slug / f"{slug}.ipynb"

    @property
    def package(self) -> Path:
        return self.declarations / self.chapter.topic


def lay_out(id: str, into: Path | None = None, title: str | None = None) -> list[Path]:
    """Lay out a new exercise.

    Args:
        id: the chapter's number, a dot and a name that is free: "04.row_mean".
        into: the folder of private exercises; None: the one that is set, if there is one.
        title: of a private chapter that is not there yet.

    Returns:
        the files that were written.

    Raises:
        CourseError: the id is no id, or is taken; there is no such chapter; or a file is not what
            can be added to. Nothing was changed.
    """
    number, name = _parse(id)
    place = _private(number, into, title) if number in PRIVATE else _published(number, into, title)
    _refuse_taken(place, name)
    texts = _texts(place, name)
    before = _solution(place)
    with _whole_or_not_at_all([*texts, place.notebook]):
        for path, text in texts.items():
            write_aside(path, text)
        if number in PRIVATE:
            private.use(place.declarations)
        declare_again(place.chapter)
        notebook = sync(before or _notebook(place.chapter), place.chapter)
        _answer(notebook, place.chapter, name)
        write_aside(place.notebook, nbformat.writes(notebook) + "\n")
    return [*texts, place.notebook]


# Where ---------------------------------------------------------------------------------------


def _parse(id: str) -> tuple[int, str]:
    number, _, name = id.partition(".")
    if not re.fullmatch(r"[0-9]{2}\.[a-z][a-z0-9_]*", id) or keyword.iskeyword(name):
        raise CourseError(
            f"{id!r} is no id: it is the chapter's number in two digits, a dot and a name in small "
            "letters, such as 04.row_mean"
        )
    if name in TAKEN or hasattr(builtins, name) or name.startswith(("check_", "graded_")):
        raise CourseError(f"{name} means something else in a notebook: choose another name")
    if len(name) > LONGEST:
        raise CourseError(f"the name has {len(name)} letters; {LONGEST} are the most")
    return int(number), name


def _published(number: int, into: Path | None, title: str | None) -> Place:
    slugs = ", ".join(c.slug for c in CHAPTERS if c in declared_chapters())
    chapter = next((c for c in CHAPTERS if c.number == number), None)
    if chapter is None:
        raise CourseError(
            f"there is no chapter {number:02d} with exercises; there are {slugs}, and "
            f"{PRIVATE[0]} to {PRIVATE[-1]} for your own"
        )
    if into or title:
        raise CourseError(
            f"{chapter.slug} is a published chapter: --into and --title are for your own, which "
            f"are numbered from {PRIVATE[0]} to {PRIVATE[-1]}"
        )
    if lacks_torch(chapter):
        raise CourseError(f"chapter {chapter.slug} needs PyTorch: pip install torch")
    if chapter not in declared_chapters():
        raise CourseError(f"chapter {chapter.slug} has no exercises; there are some for {slugs}")
    root = Course.find().root
    declarations = root / "src" / "coursework" / "exercises"
    running = Path(str(exercises.__file__)).parent
    if declarations.resolve() != running.resolve():
        raise CourseError(
            f"the command that runs here belongs to another copy of the course ({running}): "
            f"activate the environment of {root}"
        )
    answers = root / "tests" / "coursework" / "exercises" / "right_answers"
    return Place(chapter, root, declarations, answers / f"{chapter.topic}.py")


def _private(number: int, into: Path | None, title: str | None) -> Place:
    folder = into.expanduser().absolute() if into else private.folder()
    if folder is None:
        raise CourseError(
            f"{number} is a number for exercises of your own: say with --into in which folder they "
            f"lie, or set {private.VARIABLE}"
        )
    _refuse_inside_a_course(folder)
    private.use(folder)
    listed = _listed(folder)
    chapter = next((c for c in listed if c.number == number), None)
    if chapter and title and title != chapter.title:
        raise CourseError(f"{chapter.slug} is there already, as {chapter.title!r}")
    if chapter is None:
        chapter = _new_chapter(number, title)
        private.refuse_misfits((*listed, chapter))
    return Place(chapter, folder, folder, folder / "right_answers" / f"{chapter.topic}.py")


def _refuse_inside_a_course(folder: Path) -> None:
    try:
        root = Course.find(folder).root
    except NoCourse:
        return
    raise CourseError(
        f"{folder} lies in the course {root}: a folder outside of it keeps your own exercises apart"
    )


def _new_chapter(number: int, title: str | None) -> Chapter:
    if not title:
        raise CourseError(f"chapter {number} is new: give it a title, such as --title 'Exam 1'")
    letters = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    topic = re.sub(r"[^a-z0-9]+", "_", letters).strip("_")
    fits = re.match(r"[a-z]", topic) and len(title) <= LONGEST and not set(title) & set('"\\\n')
    if not fits or keyword.iskeyword(topic):
        raise CourseError(
            f"the title {title!r} names a package and a notebook: it begins with a letter, has no "
            f"quotes and no more than {LONGEST} letters"
        )
    return Chapter(number, topic, title)


def _refuse_taken(place: Place, name: str) -> None:
    number, init = place.chapter.number, place.package / "__init__.py"
    declared = number not in PRIVATE or place.chapter in _listed(place.declarations)
    if declared and any(e.name == name for e in for_chapter(number)):
        raise CourseError(f"there is an exercise {number:02d}.{name} already")
    module = place.package / f"{name}.py"
    if module.exists() or (place.package / name).exists():
        raise CourseError(f"{module} is there already, and nothing is overwritten")
    if init.is_file() and re.search(rf"\b{name.upper()}\b", init.read_text("utf-8")):
        raise CourseError(f"{init} uses {name.upper()} for something else: choose another name")


# What ----------------------------------------------------------------------------------------


def _texts(place: Place, name: str) -> dict[Path, str]:
    """What each file holds afterwards."""
    chapter, init = place.chapter, place.package / "__init__.py"
    private_here = chapter.number in PRIVATE
    texts = {place.package / f"{name}.py": _declaration(chapter, name)}
    if private_here and chapter not in _listed(place.declarations):
        row = f'Chapter({chapter.number}, "{chapter.topic}", {_quoted(chapter.title)})'
        path = place.declarations / "chapters.py"
        texts[path] = python_source.with_entry(_read(path, CHAPTERS_FILE), "CHAPTERS", [row], path)
    package = PACKAGE.format(number=chapter.number, title=chapter.title)
    source = _read(init, package if private_here else None)
    source = python_source.with_entry(source, "EXERCISES", [name.upper()], init)
    module = f"{private.PACKAGE}.{chapter.topic}"
    texts[init] = python_source.with_import(source, module, name, name.upper())
    answers = RIGHT_ANSWERS.format(number=chapter.number)
    source = _read(place.right_answers, answers if private_here else None)
    texts[place.right_answers] = _with_right_answers(place, source, name)
    return texts


def _listed(folder: Path) -> tuple[Chapter, ...]:
    return private.chapters() if (folder / "chapters.py").is_file() else ()


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _read(path: Path, new: str | None) -> str:
    if path.is_file():
        return path.read_text("utf-8")
    if new is None:
        raise CourseError(f"{path} is not there: an exercise is added to a whole clone")
    return new


def _declaration(chapter: Chapter, name: str) -> str:
    source = (TEMPLATES / "exercise.py").read_text("utf-8")
    if chapter.needs_torch:
        source = source.replace("import numpy as np\n", "import numpy as np\nimport torch\n")
        source = source.replace("normal(rng, *shape)", "torch.from_numpy(normal(rng, *shape))")
    return _named(source, chapter, name)


def _with_right_answers(place: Place, source: str, name: str) -> str:
    template = (TEMPLATES / "right_answers.py").read_text("utf-8")
    template = _named(template, place.chapter, name)
    functions, _, rest = template.partition("RIGHT_ANSWERS = {\n")
    entry = [line.removeprefix("    ") for line in rest.splitlines()[:-1]]
    entry[-1] = entry[-1].rstrip(",")
    section = f"{f'# {name} '.ljust(95, '-')}\n\n\n{functions}"
    source = python_source.with_entry(source, "RIGHT_ANSWERS", entry, place.right_answers)
    there = python_source.functions_in(source)
    if doubled := [n for n in python_source.functions_in(functions) if n in there]:
        raise CourseError(f"{place.right_answers} has a function {doubled[0]} already")
    return python_source.before(source, "RIGHT_ANSWERS", section, place.right_answers)


def _named(template: str, chapter: Chapter, name: str) -> str:
    """A template with the exercise's name and its chapter's number in it."""
    source = template.replace("row_mean", name).replace("ROW_MEAN", name.upper())
    source = source.replace("chapter=0,", f"chapter={chapter.number},")
    return source.replace(f'"00.{name}"', f'"{chapter.number:02d}.{name}"')


def _solution(place: Place) -> NotebookNode | None:
    """The solution notebook as it is; None for a private chapter that has none yet."""
    if place.chapter.number in PRIVATE and not place.notebook.exists():
        return None
    return read_solution(place.home, place.chapter.slug)


def _notebook(chapter: Chapter) -> NotebookNode:
    notebook = skeleton(chapter)
    notebook.cells[-1].source = QUESTION
    return notebook


def _answer(notebook: NotebookNode, chapter: Chapter, name: str) -> None:
    """Put the right answer in place of the new stub."""
    mark = {"exercise": f"{chapter.number:02d}.{name}", "role": "answer"}
    stub = next(c for c in notebook.cells if c.metadata.get("coursework") == mark)
    answer = ANSWER_IN_TORCH if chapter.needs_torch else ANSWER
    stub.source = stub.source.replace("raise NotImplementedError", answer)


# Writing -------------------------------------------------------------------------------------


@contextmanager
def _whole_or_not_at_all(paths: Iterable[Path]) -> Iterator[None]:
    """Give files back what they held, where not all could be written."""
    before = {path: path.read_bytes() if path.exists() else None for path in paths}
    new = {folder for path in before for folder in path.parents if not folder.exists()}
    try:
        yield
    except BaseException:
        for path, held in before.items():
            if held is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(held)
        for folder in new:
            shutil.rmtree(folder, ignore_errors=True)  # nothing in it was there before
        raise
