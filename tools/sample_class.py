"""Put a class of twelve into classroom/submitted, grade it, and say where to look.

Each student is named by what they handed in. Where a real class lies in classroom/, nothing is
written. To be rid of the sample class: rm -r classroom
"""

import inspect
import subprocess
import sys
import textwrap
from collections.abc import Mapping

import nbformat
from nbformat import NotebookNode

from coursework.classroom import Course, write_aside
from coursework.exercises import get
from coursework.markers import MARKERS

SLUG = "04-scaling"

OTHER_STYLE = {
    "scaled_dot_product_attention": """
        def scaled_dot_product_attention(q, k, v):
            scores = np.einsum("...td,...sd->...ts", q, k) * q.shape[-1] ** -0.5
            weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
            return np.einsum("...ts,...sd->...td", weights, v), weights
        """,
    "softmax_jacobian": """
        def softmax_jacobian(p):
            jacobian = np.empty((len(p), len(p)))
            for i in range(len(p)):
                for j in range(len(p)):
                    jacobian[i, j] = p[i] * ((i == j) - p[j])
            return jacobian
        """,
}
ENDLESS = {
    "row_entropy": """
        def row_entropy(weights):
            while True:
                pass
        """
}
DEADLY = {
    "softmax_jacobian": """
        def softmax_jacobian(p):
            import os

            os._exit(0)
        """
}
LOGIN_PAGE = "<!DOCTYPE html><html><title>Please log in</title></html>"


def main() -> int:
    course = Course.find()
    sample = handed_in(course)
    strangers = set(course.students) - set(sample)
    if strangers:
        print(f"classroom/ holds a class ({len(strangers)} students): no sample class is added.")
    else:
        for student, text in sample.items():
            folder = course.classroom / "submitted" / student / SLUG
            write_aside(folder / f"{SLUG}.ipynb", text)
        grade(course)
    print(f"""
The book          {(course.root / "_build" / "html" / "index.html").as_uri()}
                  (make serve puts it at http://127.0.0.1:8000)
The gradebook     {course.classroom / "gradebook.db"}
                  (jupyter lab in this folder, then Nbgrader > Formgrader)""")
    return 0


def handed_in(course: Course) -> dict[str, str]:
    """What each student of the sample class hands in: the text of a notebook file."""
    master = nbformat.read(course.master(SLUG), as_version=4)
    right = answers(master)
    to_be_read = {"open_question": right.pop("open_question")}
    names = list(right)
    blank = nbformat.read(course.root / "notebooks" / SLUG / f"{SLUG}.ipynb", as_version=4)

    def notebook(**changes: str) -> str:
        return filled(blank, {**right, **changes})

    return {
        "right": notebook(**to_be_read),
        "right-another-style": notebook(**OTHER_STYLE),
        "half-done": filled(blank, {name: right[name] for name in names[: len(names) // 2]}),
        "untouched": filled(blank, {}),
        "forgot-the-scale": notebook(**mistake("scaled_dot_product_attention", "does not scale")),
        "divides-by-d_k": notebook(**mistake("scaled_dot_product_attention", "divides by d_k")),
        "entropy-in-bits": notebook(**mistake("row_entropy", "measures in bits")),
        "jacobian-diagonal": notebook(**mistake("softmax_jacobian", "keeps the diagonal only")),
        "endless-loop": notebook(**ENDLESS),
        "kills-its-process": notebook(**DEADLY),
        "login-page": LOGIN_PAGE,
        "lost-metadata": without_metadata(notebook()),
    }


def answers(master: NotebookNode) -> dict[str, str]:
    """The answers of a solution notebook: source by what it answers, without markers."""
    return {
        name: "\n".join(line for line in source.splitlines() if line.strip() not in MARKERS)
        for name, source in ((asked_in(cell), cell.source) for cell in master.cells)
        if name
    }


def asked_in(cell: NotebookNode) -> str | None:
    """What a cell answers: the name of an exercise, or "open_question"."""
    about = cell.metadata.get("coursework", {})
    if about.get("role") == "answer":
        return about["exercise"].partition(".")[2]
    return "open_question" if about.get("role") == "open_question" else None


def filled(blank: NotebookNode, sources: Mapping[str, str]) -> str:
    """A student notebook with these answers, as the text of its file."""
    cells = [
        NotebookNode({**cell, "source": textwrap.dedent(sources[name]).strip()})
        if (name := asked_in(cell)) in sources
        else cell
        for cell in blank.cells
    ]
    return nbformat.writes(NotebookNode({**blank, "cells": cells}))


def mistake(exercise: str, name: str) -> dict[str, str]:
    """A declared misconception with the helpers that it calls, as a student would hand it in."""
    declared = get(f"{SLUG[:2]}.{exercise}").misconceptions
    function = next(m.function for m in declared if m.name == name)
    used = (function.__globals__.get(name) for name in function.__code__.co_names)
    helpers = [inspect.getsource(helper) for helper in used if inspect.isfunction(helper)]
    source = textwrap.dedent(inspect.getsource(function))
    renamed = source.replace(f"def {function.__name__}(", f"def {exercise}(", 1)
    return {exercise: "\n\n".join([*helpers, renamed])}


def without_metadata(text: str) -> str:
    """A notebook as it comes back from an editor that keeps the cells and nothing about them."""
    notebook = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        cell.metadata = NotebookNode()
    return nbformat.writes(notebook)


def grade(course: Course) -> None:
    graded = subprocess.run(["course", "grade", SLUG], cwd=course.root)
    if graded.returncode > 1:  # 1: some submission needs a look, and the login page does
        sys.exit(graded.returncode)


if __name__ == "__main__":
    sys.exit(main())
