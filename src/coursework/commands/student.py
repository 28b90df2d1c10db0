"""`course start`, `course check`, `course submit`: one's own notebooks, from first to last."""

from __future__ import annotations

from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from coursework import private, workbook
from coursework.chapters import Chapter, by_slug
from coursework.chapters import chapters as all_chapters
from coursework.commands.arguments import known
from coursework.commands.console import err, out, say
from coursework.errors import CourseError
from coursework.evaluate import Verdict
from coursework.exercise import Exercise
from coursework.exercises import declared_chapters, for_chapter, lacks_torch
from coursework.judge.grading import check_notebook
from coursework.judge.submission import Unreadable


def register(app: typer.Typer) -> None:
    app.command()(start)
    app.command()(check)
    app.command()(submit)


def check(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A chapter such as 04-scaling, or a notebook's file. None: all chapters.",
            metavar="[SLUG|NOTEBOOK]",
        ),
    ] = None,
    hint: Annotated[
        str | None, typer.Option(help="Give the hints to this exercise.", metavar="EXERCISE")
    ] = None,
    level: Annotated[int, typer.Option(help="How far the hint may go: 1, 2 or 3.")] = 1,
    everything: Annotated[
        bool, typer.Option("--all", help="A line for each chapter of the book: how far am I?")
    ] = False,
) -> None:
    """Run the visible checks of your own notebook, in a fresh process.

    The notebook is looked for in this folder: SLUG.ipynb, SLUG/SLUG.ipynb or
    notebooks/SLUG/SLUG.ipynb. Save it first.
    """
    if everything:
        if what or hint:
            raise CourseError("--all is about all chapters: name none, and ask for no hint")
        _progress_over_the_book()
        return
    if hint is not None:
        _hint(what, hint, level)
        return
    found = _notebooks(what)
    verdicts = {chapter: _checked(path, chapter) for chapter, path in found}
    for (chapter, path), mine in zip(found, verdicts.values(), strict=True):
        out.print(Text(f"{chapter.number:02d} {chapter.title} · {path}", style="bold"))
        out.print(_table(mine))
        for verdict in mine:
            if not verdict.passed and not _is_to_do(verdict):
                out.print(Text(f"\n{verdict.message}"))
        out.print()
    if not all(v.passed for mine in verdicts.values() for v in mine):
        raise typer.Exit(1)


def start(
    slug: Annotated[str, typer.Argument(help="A chapter, such as 04-scaling.", metavar="SLUG")],
    to: Annotated[Path, typer.Option(help="The folder to lay it into.")] = Path(),
) -> None:
    """Lay a chapter's fresh notebook into this folder.

    Nothing is overwritten: a notebook that is there already gets the date into its name.
    """
    chapter = _with_exercises(slug)
    started = workbook.start(chapter.slug, to, datetime.now())
    if not started.fresh:
        say(out, f"{started.path} is there already, as it was released.")
        return
    if started.kept:
        say(out, f"What was there is kept as {started.kept}.")
    say(out, f"{started.path} is fresh. Open it with: jupyter lab {started.path}")


def submit(
    what: Annotated[
        str,
        typer.Argument(help="A chapter or a notebook's file.", metavar="SLUG|NOTEBOOK"),
    ],
    to: Annotated[Path, typer.Option(help="The folder for the file to hand in.")] = Path(
        workbook.FOLDER
    ),
) -> None:
    """Make the file to hand in, after a last check, and say what it holds.

    The file is complete even if some checks fail: whether you hand it in is up to you.
    """
    ((chapter, path),) = _notebooks(what)
    with err.status(f"Checking {path.name} a last time"):
        made = workbook.prepare(path, chapter, to)
    out.print(_table(made.verdicts))
    for note in made.notes:
        say(out, f"Note: {note}.")
    if made.outputs_left_out:
        say(out, "Its outputs were so large that they were left out. Your answers are all there.")
    say(out, f"{made.path} ({made.size / 1000:.0f} kB) is the file to hand in.")
    say(out, "Graded checks use fresh inputs, and open questions are read by people.")


def _progress_over_the_book() -> None:
    table = Table(box=None, pad_edge=False)
    for name, side in (("chapter", "left"), ("points", "right"), ("right", "right"), ("", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    earned = most = 0.0
    for chapter in _chapters_with_exercises():
        name = f"{chapter.number:02d} {chapter.title}"
        if lacks_torch(chapter):
            table.add_row(name, "", "", "needs PyTorch: pip install torch")
            continue
        exercises = for_chapter(chapter.number)
        possible = float(sum(e.max_points for e in exercises))
        path = _find(chapter.slug)
        state, verdicts = "" if path else f"not begun: course start {chapter.slug}", ()
        try:
            verdicts = _checked(path, chapter) if path else ()
        except CourseError as error:  # the other chapters' notebooks are none the worse for it
            state = str(error)
        points = sum(v.points for v in verdicts)
        right = sum(v.passed for v in verdicts)
        table.add_row(name, f"{points:g} of {possible:g}", f"{right} of {len(exercises)}", state)
        earned, most = earned + points, most + possible
    table.add_row("all", f"{earned:g} of {most:g}", "", "")
    out.print(table)


def _chapters_with_exercises() -> list[Chapter]:
    """Those that can be done here, and those that need PyTorch to be installed first."""
    return [c for c in all_chapters() if c in declared_chapters() or lacks_torch(c)]


def _checked(path: Path, chapter: Chapter) -> tuple[Verdict, ...]:
    with err.status(f"Checking {path.name}"):
        try:
            return check_notebook(path, chapter)
        except Unreadable as error:
            raise CourseError(f"{path}: {error}") from error


def _is_to_do(verdict: Verdict) -> bool:
    return verdict.message.startswith("·")


def _table(verdicts: tuple[Verdict, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("exercise")
    table.add_column("points", justify="right")
    table.add_column("")
    for v in verdicts:
        mark, state = ("✓", "right") if v.passed else ("✗", "not right yet")
        if _is_to_do(v):
            mark, state = "·", "still to do"
        if v.misconception:
            state = v.misconception
        points = f"{v.points:g} of {v.max_points:g}"
        table.add_row(mark, v.exercise.partition(".")[2], points, Text(state))
    points, most = sum(v.points for v in verdicts), sum(v.max_points for v in verdicts)
    table.add_row("", "all", f"{points:g} of {most:g}", "")
    return table


def _notebooks(what: str | None) -> list[tuple[Chapter, Path]]:
    """Chapters and the notebooks that answer them."""
    if what is None:
        found = [(c, p) for c in declared_chapters() if (p := _find(c.slug))]
        if not found:
            raise CourseError(f"there is no notebook of the course in {Path.cwd()}")
        return found
    path = Path(what)
    if path.suffix == ".ipynb":
        if not path.is_file():
            raise CourseError(f"there is no file {path}")
        return [(_chapter_of(path), path)]
    slug = _with_exercises(what).slug
    path = _find(slug) or path
    if not path.is_file():
        raise CourseError(f"there is no {slug}.ipynb in {Path.cwd()}, nor in {slug}/ or notebooks/")
    return [(by_slug(slug), path)]


def _with_exercises(slug: str) -> Chapter:
    chapter = by_slug(known(slug))
    if lacks_torch(chapter):
        raise CourseError(f"chapter {chapter.slug} needs PyTorch: pip install torch")
    if chapter not in declared_chapters():
        slugs = ", ".join(c.slug for c in _chapters_with_exercises())
        raise CourseError(f"chapter {chapter.slug} has no exercises; there are some for {slugs}")
    return chapter


def _find(slug: str) -> Path | None:
    places = (Path(), Path(slug), Path("notebooks") / slug)
    return next((p / f"{slug}.ipynb" for p in places if (p / f"{slug}.ipynb").is_file()), None)


def _chapter_of(path: Path) -> Chapter:
    """The chapter whose slug a file's name begins with: copies have longer names."""
    for chapter in declared_chapters():
        if path.stem.startswith(chapter.slug):
            return chapter
    if private.is_elsewhere(path.stem):
        raise CourseError(private.elsewhere(path.stem))
    slugs = ", ".join(c.slug for c in declared_chapters())
    raise CourseError(f"{path.name} is named after no chapter with exercises ({slugs})")


def _hint(what: str | None, name: str, level: int) -> None:
    if level not in (1, 2, 3):
        raise CourseError(f"--level is {level}: each exercise has hints of level 1, 2 and 3")
    exercise = _exercise(what, name)
    for number, text in enumerate(exercise.hints[:level], 1):
        out.print(Text(f"Hint {number} of 3: {text}"))
    if level < 3:
        slug = next(c.slug for c in declared_chapters() if c.number == exercise.chapter)
        more = f"course check {slug} --hint {exercise.name} --level {level + 1}"
        say(out, f"More: {more}")


def _exercise(what: str | None, name: str) -> Exercise:
    """The exercise that a name means in a chapter, or in the chapters whose notebooks are here."""
    here = [c for c in declared_chapters() if _find(c.slug)] or list(declared_chapters())
    chapters = [by_slug(known(what))] if what else here
    exercises = [e for c in chapters for e in for_chapter(c.number)]
    matching = [e for e in exercises if name in (e.name, e.id)]
    if not matching:
        names = [e.name for e in exercises]
        near = get_close_matches(name, names, n=2) or names
        raise CourseError(f"there is no exercise {name!r} here; there are {', '.join(near)}")
    if len(matching) > 1:
        ids = ", ".join(e.id for e in matching)
        raise CourseError(f"{name} could be any of {ids}: say which")
    return matching[0]
