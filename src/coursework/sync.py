"""Solution notebooks and the declarations: what one says about the other is generated.

A solution notebook is written by hand, except for the cells that say what an exercise asks, what
it is worth, how it is checked and what hints there are. `sync` writes those from the declarations;
`drift` says where they are not what the declarations say.

Each exercise has its cells in this order, the generated ones around the answer:

    (suspect)  task  ANSWER  check  graded  hints
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from coursework import markers, private
from coursework.bug_hunt import variant_in
from coursework.chapters import Chapter, by_number
from coursework.errors import CourseError
from coursework.exercise import Exercise
from coursework.exercises import bug_hunt_of, for_chapter

BEFORE, AFTER = ("suspect", "task"), ("check", "graded", "hints")
GENERATED = (*BEFORE, *AFTER)  #: roles of the cells that are never edited by hand
OPEN_QUESTION_POINTS = 4  #: of a new notebook; after that they are the author's

SETUP = "import numpy as np\n\nfrom coursework import check"
OPEN_QUESTION = f"{markers.BEGIN_SOLUTION}\n{markers.END_SOLUTION}"


def solution_path(root: Path, chapter: Chapter) -> Path:
    """Where a chapter's solution notebook lies."""
    slug = chapter.slug
    return private.home(root, slug) / "solutions" / slug / f"{slug}.ipynb"


# What is generated ---------------------------------------------------------------------------


def generated_cells(exercise: Exercise, variant: int | None = None) -> dict[str, NotebookNode]:
    """The generated cells of an exercise by their roles, in the order of the notebook.

    Args:
        exercise: its declaration.
        variant: for a bug hunt, which wrong function is printed; None: the one of `exercise`.
    """
    variant = exercise.variant if variant is None else variant
    number = "" if exercise.variant is None else f", variant={variant}"
    call = f'check("{exercise.id}", {exercise.name}{number}'
    cells = {
        "task": _markdown(exercise, "task", _task(exercise)),
        "check": _code(exercise, "check", f"{call})"),
        "graded": _code(exercise, "graded", _graded(exercise, call), exercise.max_points),
        "hints": _markdown(exercise, "hints", _hints(exercise)),
    }
    if exercise.variant is None:
        return cells
    hunt = bug_hunt_of(by_number(exercise.chapter))
    assert hunt is not None
    return {"suspect": _code(exercise, "suspect", hunt.source(variant)), **cells}


def _task(exercise: Exercise) -> str:
    rows = "\n".join(f"| {p.points} | {p.name} |" for p in exercise.properties)
    return (
        f"### Exercise: `{exercise.name}`\n\n"
        f"`{exercise.signature}` · {_points(exercise.max_points)} · "
        f"about {exercise.minutes} minutes\n\n"
        f"{exercise.task.strip()}\n\n"
        f"| points | for |\n|---:|:---|\n{rows}"
    )


def _graded(exercise: Exercise, call: str) -> str:
    how = ": the same properties, on fresh inputs" if exercise.reference else ""
    return (
        f"# {_points(exercise.max_points)}, given here when your notebook is graded{how}.\n"
        f"{markers.BEGIN_HIDDEN}\n{call}, graded=True)\n{markers.END_HIDDEN}"
    )


def _hints(exercise: Exercise) -> str:
    names = ("a nudge", "a plan", "nearly the code")
    return "\n\n".join(
        f"<details><summary>Hint {number}: {name}</summary>\n\n{hint.strip()}\n\n</details>"
        for number, (name, hint) in enumerate(zip(names, exercise.hints, strict=True), 1)
    )


def _points(number: float) -> str:
    return f"{number} point{'' if number == 1 else 's'}"


def _markdown(exercise: Exercise, role: str, source: str) -> NotebookNode:
    metadata = {"coursework": {"exercise": exercise.id, "role": role}}
    return new_markdown_cell(source, id=_cell_id(role, exercise.name), metadata=metadata)


def _code(exercise: Exercise, role: str, source: str, points: int | None = None) -> NotebookNode:
    grade_id = role if role == "suspect" else f"{role}_{exercise.name}"
    metadata = {
        "coursework": {"exercise": exercise.id, "role": role},
        "nbgrader": nbgrader_metadata(grade_id, locked=True, points=points),
    }
    return new_code_cell(source, id=_cell_id(role, exercise.name), metadata=metadata)


def _cell_id(role: str, name: str) -> str:
    """Stable, so that a notebook changes only where its text does. nbformat allows 64 letters."""
    return f"{role}-{name}"[:64]


def nbgrader_metadata(
    grade_id: str, *, locked: bool = False, solution: bool = False, points: float | None = None
) -> dict[str, Any]:
    """What nbgrader (schema 3) wants to know of a cell; a cell with points is a graded one."""
    metadata: dict[str, Any] = {
        "grade": points is not None,
        "grade_id": grade_id,
        "locked": locked,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    return metadata if points is None else {**metadata, "points": points}


# Writing it into a notebook ------------------------------------------------------------------


def sync(notebook: NotebookNode, chapter: Chapter, seed: int | None = None) -> NotebookNode:
    """A copy of the notebook in which the generated cells are what the declarations say.

    What is written by hand keeps its place and its text, but for the answer to a bug hunt whose
    wrong function is exchanged. Answers that are not there yet are added as stubs, each behind the
    exercise before it, and so are the set-up and the open question. Generated cells that are still
    right keep their outputs.

    Args:
        notebook: a solution notebook, or an empty one.
        chapter: whose exercises it holds.
        seed: chooses the wrong function of the bug hunt; None: the notebook keeps the one it has.
    """
    notebook = copy.deepcopy(notebook)
    old = {_key(c): c for c in notebook.cells if _role(c) in GENERATED}
    cells = [c for c in notebook.cells if _role(c) not in GENERATED]
    _mark_setup(cells)
    _mark_open_question(cells, chapter)
    hunted = variant_in(c.source for c in notebook.cells)
    at = _before_the_open_question(cells)
    for exercise in declared(chapter, seed, hunted):
        answer = _find(cells, "answer", exercise.id)
        if answer is None:
            answer = _stub(exercise)
            cells.insert(at, answer)
        elif exercise.variant is not None and hunted not in (None, exercise.variant):
            answer.source, answer.outputs = _solved_hunt(chapter, exercise.variant), []
        _mark(answer, _answer_metadata(exercise))
        around = generated_cells(exercise)
        at = _index(cells, answer)
        cells[at : at + 1] = [
            *(_refreshed(around[role], old) for role in BEFORE if role in around),
            answer,
            *(_refreshed(around[role], old) for role in AFTER),
        ]
        at = _index(cells, answer) + 1 + len(AFTER)
    notebook.cells = _with_ids(cells)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = _notebook_metadata(notebook.metadata)
    return notebook


def skeleton(chapter: Chapter, seed: int | None = None) -> NotebookNode:
    """A chapter's new solution notebook, to be filled in: title, set-up, stubs, open question."""
    title = new_markdown_cell(f"# {chapter.number:02d} · {chapter.title}", id="title")
    question = new_markdown_cell(OPEN_QUESTION, id="open_question")
    _mark(question, _open_question_metadata(chapter, OPEN_QUESTION_POINTS))
    return sync(new_notebook(cells=[title, question]), chapter, seed)


def declared(
    chapter: Chapter, seed: int | None = None, hunted: int | None = None
) -> tuple[Exercise, ...]:
    """A chapter's exercises, the bug hunt with the wrong function that is chosen.

    Args:
        chapter: whose exercises.
        seed: chooses the wrong function.
        hunted: the variant that a notebook has, for want of a seed. Without both, or where there
            is none such, it is the published one.
    """
    hunt = bug_hunt_of(chapter)
    if hunt and seed is not None:
        hunted = hunt.variant_for(seed)
    elif hunt and hunted is not None and hunted >= len(hunt.bugs):
        hunted = None
    return for_chapter(chapter.number, hunted)


def _solved_hunt(chapter: Chapter, variant: int) -> str:
    """An answer to a bug hunt, which its declaration holds."""
    return (
        "def bug_hunt():\n"
        f"    {markers.BEGIN_SOLUTION}\n"
        "    from coursework.chapters import by_slug\n"
        "    from coursework.exercises import bug_hunt_of\n\n"
        f'    bug = bug_hunt_of(by_slug("{chapter.slug}")).bug({variant})\n'
        '    return {"hides": bug.hides, "shows": bug.shows, "mistake": bug.mistake}\n'
        f"    {markers.END_SOLUTION}"
    )


def _with_ids(cells: list[NotebookNode]) -> list[NotebookNode]:
    """Older editors save cells without ids: such a cell is called by its place."""
    for place, cell in enumerate(cells):
        cell.setdefault("id", f"cell-{place}")
    return cells


def _refreshed(new: NotebookNode, old: dict[Any, NotebookNode]) -> NotebookNode:
    """`new`, with the outputs of the old cell if they are outputs of the same code."""
    before = old.get(_key(new))
    if before and new.cell_type == before.cell_type == "code" and new.source == before.source:
        new.outputs, new.execution_count = before.outputs, before.execution_count
    return new


def _mark_setup(cells: list[NotebookNode]) -> None:
    setup = _find(cells, "setup")
    if setup is None:
        setup = new_code_cell(SETUP, id="setup")
        code = (i for i, c in enumerate(cells) if c.cell_type == "code")
        cells.insert(next(code, _before_the_open_question(cells)), setup)
    _mark(setup, _setup_metadata())


def _mark_open_question(cells: list[NotebookNode], chapter: Chapter) -> None:
    question = _find(cells, "open_question")
    if question is None:
        if private.is_private(chapter.slug):
            return  # an author may do without
        question = new_markdown_cell(OPEN_QUESTION, id="open_question")
        cells.append(question)
    points = question.metadata.get("nbgrader", {}).get("points", OPEN_QUESTION_POINTS)
    _mark(question, _open_question_metadata(chapter, points))


def _before_the_open_question(cells: list[NotebookNode]) -> int:
    question = _find(cells, "open_question")
    return len(cells) if question is None else _index(cells, question)


def _setup_metadata() -> dict[str, Any]:
    return {
        "coursework": {"role": "setup"},
        "nbgrader": nbgrader_metadata("setup", locked=True),
    }


def _open_question_metadata(chapter: Chapter, points: float) -> dict[str, Any]:
    return {
        "coursework": {"role": "open_question"},
        "nbgrader": nbgrader_metadata("open_question", solution=True, points=points),
    }


def _answer_metadata(exercise: Exercise) -> dict[str, Any]:
    return {
        "coursework": {"exercise": exercise.id, "role": "answer"},
        "nbgrader": nbgrader_metadata(exercise.name, solution=True),
    }


def _mark(cell: NotebookNode, metadata: dict[str, Any]) -> None:
    cell.metadata.update(copy.deepcopy(metadata))


def _stub(exercise: Exercise) -> NotebookNode:
    signature = exercise.signature.partition("->")[0].strip()
    head, indent = f"def {signature}:\n", "    "
    if exercise.is_class:  # which is there, and says that it is still to do when it is made
        parameters = signature.partition("(")[2]
        head, indent = f"class {exercise.name}:\n    def __init__(self, {parameters}:\n", " " * 8
    lines = (markers.BEGIN_SOLUTION, "raise NotImplementedError", markers.END_SOLUTION)
    source = head + "\n".join(f"{indent}{line}" for line in lines)
    return new_code_cell(source, id=_cell_id("answer", exercise.name))


def _notebook_metadata(before: NotebookNode) -> NotebookNode:
    """The kernel by name alone: versions would change with every machine."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return NotebookNode({**before, "kernelspec": kernel, "language_info": {"name": "python"}})


# Finding cells -------------------------------------------------------------------------------


def _coursework(cell: NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("coursework", {})


def _role(cell: NotebookNode) -> str | None:
    return _coursework(cell).get("role")


def _key(cell: NotebookNode) -> tuple[str | None, str | None]:
    return _coursework(cell).get("exercise"), _role(cell)


def _find(
    cells: Iterable[NotebookNode], role: str, exercise: str | None = None
) -> NotebookNode | None:
    return next((c for c in cells if _key(c) == (exercise, role)), None)


def _index(cells: list[NotebookNode], cell: NotebookNode) -> int:
    return next(i for i, c in enumerate(cells) if c is cell)


# Saying what is wrong ------------------------------------------------------------------------


def drift(notebook: NotebookNode, chapter: Chapter, seed: int | None = None) -> list[str]:
    """Where a solution notebook is not what the declarations say: a sentence for each place.

    The empty list means that `sync` would change nothing and that the rest, which is written by
    hand, fits: signatures, the order of the answers, and the markers.

    Args:
        notebook: a solution notebook.
        chapter: whose exercises it holds.
        seed: by which it should hunt; None: any wrong function will do.
    """
    exercises = declared(chapter, seed, variant_in(c.source for c in notebook.cells))
    return [
        *_duplicates(notebook),
        *_generated_drift(notebook, sync(notebook, chapter, seed), exercises),
        *(s for exercise in exercises for s in _answer_drift(notebook, exercise)),
        *_order_drift(notebook, exercises),
        *_open_question_drift(notebook),
        *markers.faults(notebook),
    ]


def _duplicates(notebook: NotebookNode) -> Iterator[str]:
    seen: set[Any] = set()
    for cell in notebook.cells:
        key = _key(cell)
        if _role(cell) and key in seen:
            yield f"{_name(cell)} is there twice"
        seen.add(key)


def _generated_drift(
    notebook: NotebookNode, right: NotebookNode, exercises: Iterable[Exercise]
) -> Iterator[str]:
    there = {_key(c): c for c in notebook.cells if _role(c)}
    wanted = {_key(c): c for c in right.cells if _role(c)}
    for key, cell in there.items():
        if key not in wanted or (key[1] == "answer" and key[0] not in {e.id for e in exercises}):
            yield f"{_name(cell)} belongs to no exercise of this chapter"
    problems = 0
    for key, cell in wanted.items():
        sentence = _difference(there.get(key), cell)
        if sentence:
            problems += 1
            yield sentence
    if not problems and [c.get("id") for c in notebook.cells] != [c.id for c in right.cells]:
        yield "the generated cells do not stand around their answers"
    if not problems and notebook.metadata != right.metadata:
        yield "the notebook's metadata name another kernel, or versions of this machine"


def _difference(there: NotebookNode | None, wanted: NotebookNode) -> str | None:
    name = _name(wanted)
    if there is None:
        return f"{name} is missing"
    points, right = (c.metadata.get("nbgrader", {}).get("points") for c in (there, wanted))
    if points != right:
        return f"{name} is worth {points} points; the declaration says {right}"
    if there.source != wanted.source or there.cell_type != wanted.cell_type:
        return f"{name} does not say what the declaration says"
    if there.metadata != wanted.metadata or there.get("id") != wanted.id:
        return f"{name} has other metadata than it should"
    return None


def _answer_drift(notebook: NotebookNode, exercise: Exercise) -> Iterator[str]:
    answer = _find(notebook.cells, "answer", exercise.id)
    if answer is None:
        return
    name = _name(answer)
    if markers.BEGIN_SOLUTION not in answer.source:
        yield f"{name} has no {markers.BEGIN_SOLUTION!r}, so that its first line is not released"
        return
    try:
        given = _signature(answer.source, exercise.name)
    except SyntaxError as error:
        yield f"{name} is not Python: {error.msg} in line {error.lineno}"
        return
    wanted = _signature(_stub(exercise).source, exercise.name)
    if given != wanted:
        yield f"{name} defines {given or 'something else'}; the declaration says {wanted}"


def _signature(source: str, name: str) -> str | None:
    """A definition as it is called: name, parameters and defaults, without types."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            if isinstance(node, ast.ClassDef):
                return f"class {name}"
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
            return f"{name}({ast.unparse(node.args)})"
    return None


def _order_drift(notebook: NotebookNode, exercises: Iterable[Exercise]) -> Iterator[str]:
    wanted = [e.id for e in exercises]
    found = [_coursework(c)["exercise"] for c in notebook.cells if _role(c) == "answer"]
    known = [id for id in found if id in wanted]
    if known != [id for id in wanted if id in known]:
        yield f"the answers stand in the order {', '.join(known)}; declared is {', '.join(wanted)}"


def _open_question_drift(notebook: NotebookNode) -> Iterator[str]:
    question = _find(notebook.cells, "open_question")
    if question is None:
        return
    if _index(notebook.cells, question) != len(notebook.cells) - 1:
        yield "the open question is not the last cell"
    if not markers.withheld(question.source):
        yield "the open question has no answer with its mark scheme between the markers"


def _name(cell: NotebookNode) -> str:
    exercise, role = _key(cell)
    return f"{exercise}: its {role} cell" if exercise else f"the {str(role).replace('_', ' ')} cell"


# Running -------------------------------------------------------------------------------------


def executed(notebook: NotebookNode, folder: Path, timeout: float = 120) -> NotebookNode:
    """The notebook with the outputs that its cells give now, run from top to bottom.

    Args:
        notebook: a solution notebook.
        folder: the working directory.
        timeout: seconds for each cell.

    Raises:
        CourseError: a cell raises, or the notebook does not come to its end.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = copy.deepcopy(notebook)
    before = copy.deepcopy(notebook.metadata)
    client = NotebookClient(
        notebook,
        timeout=timeout,
        record_timing=False,
        coalesce_streams=True,  # what is printed is one output, however the kernel sent it
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise CourseError(f"a cell raises {error.ename}: {error.evalue}") from error
    except (CellTimeoutError, DeadKernelError) as error:
        raise CourseError(f"the notebook does not come to its end: {error}") from error
    notebook.metadata = before  # and not with the versions of this machine
    return notebook
