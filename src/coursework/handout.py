"""What students may have, in a folder of its own: notebooks, the package, and how to set up.

The folder can be a repository, be pulled by nbgitpuller, or be zipped and sent. Nothing of the
solutions is in it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from coursework import private
from coursework.chapters import Chapter, by_slug
from coursework.classroom import Course, write_aside
from coursework.errors import CourseError
from coursework.release import released_folder

WELCOME = """# Attention, measured: the exercises

You need Python 3.11 or later. In a terminal, in this folder:

```
python3 -m venv attention
. attention/bin/activate            # on Windows: attention\\Scripts\\activate
pip install -r requirements.txt{torch}
jupyter lab
```

Each notebook explains what it asks. Below every exercise is a cell that checks your answer and says
what is wrong. In a terminal:

```
course check --all                              # how far am I?
course check {first}                         # and in this chapter?
course check {first} --hint EXERCISE         # a nudge; --level 2 and 3 say more
course submit {first}                        # a last check, and the file to hand in
```

The notebooks here:

{chapters}
"""
#: Of an assignment whose declarations stay with the instructor.
UNCHECKED = " (checked when it is graded: hand in the file as it is)"
#: Without a GPU, where pip would fetch a build for one.
TORCH = "\npip install torch --index-url https://download.pytorch.org/whl/cpu"


def make(course: Course, slugs: Sequence[str], to: Path, *, with_checks: bool = False) -> list[str]:
    """Lay out the folder, and say what is in it.

    Of private assignments there are the notebooks alone, whose checks run when they are graded.
    `with_checks` puts their declarations into the package as well, the right answers among them.

    Files of the same names are written over; others that are there stay. A student's notebook that
    differs is never there: this is the folder that students copy from.

    Raises:
        CourseError: the folder is the course itself, or the package cannot be built.
    """
    to = to.resolve()
    root = course.root.resolve()
    own = {root, *(root / name for name in ("solutions", "notebooks", "src", "book", "tests"))}
    if to in own or own & (set(to.parents) - {root}):
        raise CourseError(f"{to} is a folder of the course itself: choose one of its own")
    theirs = private.folder()
    if theirs and (to.is_relative_to(theirs.resolve()) or theirs.resolve().is_relative_to(to)):
        raise CourseError(f"{to} holds your own exercises, or lies among them: choose another")
    laid = []
    with tempfile.TemporaryDirectory() as folder:
        given = [slug for slug in slugs if with_checks and private.is_private(slug)]
        wheel = _wheel(course.root, Path(folder), given)
        for slug in slugs:
            source = released_folder(course.root, slug) / f"{slug}.ipynb"
            if not source.is_file():
                raise CourseError(f"there is no student notebook {source}: course release makes it")
        to.mkdir(parents=True, exist_ok=True)
        for old in to.glob("attention_course-*.whl"):
            old.unlink()
        shutil.copy(wheel, to / wheel.name)
        laid.append(wheel.name)
    for slug in slugs:
        source = released_folder(course.root, slug) / f"{slug}.ipynb"
        write_aside(to / slug / source.name, source.read_text("utf-8"))
        laid.append(f"{slug}/{source.name}")
    write_aside(to / "requirements.txt", f"./{wheel.name}\njupyterlab\nmatplotlib\n")
    write_aside(to / "README.md", _welcome(slugs, with_checks))
    return [*laid, "requirements.txt", "README.md"]


def _wheel(root: Path, into: Path, given: Sequence[str]) -> Path:
    """Build the package, from a copy so that no litter is left in the course."""
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "notebooks"):
        source, target = root / name, into / "source" / name
        if not source.exists():
            raise CourseError(f"{root} lacks {name}: the package is built from it")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(
                source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(source, target)
    if given:
        _give([by_slug(slug) for slug in given], root, into / "source")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    built = subprocess.run(
        [*command, "--wheel-dir", into, into / "source"],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode:
        raise CourseError(f"the package cannot be built: {built.stderr.strip().splitlines()[-1]}")
    (wheel,) = into.glob("*.whl")
    return wheel


def _give(chapters: Sequence[Chapter], root: Path, source: Path) -> None:
    """Put private chapters beside the published ones, where they are found without a setting."""
    folder, package = private.folder(), source / "src" / "coursework" / "exercises"
    assert folder is not None
    for chapter in chapters:
        litter = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder / chapter.topic, package / chapter.topic, ignore=litter)
        name = f"{chapter.slug}.ipynb"
        (source / "notebooks" / chapter.slug).mkdir(parents=True)
        shutil.copy(
            released_folder(root, chapter.slug) / name, source / "notebooks" / chapter.slug / name
        )
    rows = "".join(f"    {chapter!r},\n" for chapter in chapters)
    text = f"from coursework.chapters import Chapter\n\nCHAPTERS = (\n{rows})\n"
    (package / "chapters.py").write_text(text, encoding="utf-8")


def _welcome(slugs: Sequence[str], with_checks: bool) -> str:
    chapters = [by_slug(slug) for slug in slugs]
    unchecked = [s for s in slugs if private.is_private(s) and not with_checks]
    return WELCOME.format(
        first=next((slug for slug in slugs if slug not in unchecked), slugs[0]),
        torch=TORCH if any(c.needs_torch for c in chapters) else "",
        chapters="\n".join(
            f"- `{c.slug}`: {c.title}{UNCHECKED * (c.slug in unchecked)}" for c in chapters
        ),
    )
