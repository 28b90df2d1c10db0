"""Every kind of submission that instructors report, and what must come of it.

Each family is a dictionary: what arrives, and how it is made from a notebook whose answers are
right. `DAMAGED` must get full marks with a note of what was repaired, `ODD` full marks without one,
`BAD` all points but those of one exercise, `UNREADABLE` no score and a sentence. Cheating is in
`test_grading.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from coursework.exercises import for_chapter
from tests.coursework.submissions import RIGHT, SLUG

FULL = sum(e.max_points for e in for_chapter(4) if e.name in RIGHT)
POINTS = {e.name: e.max_points for e in for_chapter(4)}


@dataclass(frozen=True)
class Folder:
    """A student's folder, into which a case writes what arrives."""

    path: Path
    notebook: Callable[..., Any]  #: makes a notebook with these answers

    def right(self, **but: str) -> Any:
        return self.notebook(**{**RIGHT, **but})

    def write(self, content: Any, name: str = f"{SLUG}.ipynb") -> None:
        if isinstance(content, bytes):
            (self.path / name).write_bytes(content)
        else:
            text = json.dumps(content, ensure_ascii=False)
            (self.path / name).write_text(text, encoding="utf-8")

    def answers(self, notebook: Any) -> dict[str, Any]:
        return {c.metadata.nbgrader.grade_id: c for c in notebook.cells if _role(c) == "answer"}


def _role(cell: Any) -> Any:
    return cell.metadata.get("coursework", {}).get("role")


Case = Callable[[Folder], None]


# Damaged, but the work is there ----------------------------------------------------------------


def changed(change: Callable[[Any], None]) -> Case:
    """A case made by changing the right notebook."""

    def write(folder: Folder) -> None:
        notebook = folder.right()
        change(notebook)
        folder.write(notebook)

    return write


def cell_of(notebook: Any, grade_id: str) -> Any:
    return next(
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    )


def encoded(encoding: str) -> Case:
    def write(folder: Folder) -> None:
        answer = RIGHT["row_entropy"].replace("\n", "\n    # größer als null\n", 1)
        text = json.dumps(folder.right(row_entropy=answer), ensure_ascii=False)
        folder.write(text.encode(encoding, errors="replace"))

    return write


def old_format(folder: Folder) -> None:
    cells = [
        {**{k: v for k, v in c.items() if k not in ("id", "source")}, "input": c["source"]}
        for c in folder.right().cells
    ]
    folder.write(
        {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells}]}
    )


def renamed(name: str) -> Case:
    return lambda folder: folder.write(folder.right(), name)


def strip_everything(notebook: Any) -> None:
    for cell in notebook.cells:
        cell.metadata = {}


def strip_one_cell(notebook: Any) -> None:
    cell_of(notebook, "row_entropy").metadata = {}


def split_a_cell(notebook: Any) -> None:
    cell = cell_of(notebook, "scaled_dot_product_attention")
    helper, rest = cell.source.split("\n\n", 1)
    second = copy.deepcopy(cell)
    cell.source, second.source, second.id = helper, rest, "second"
    notebook.cells.insert(notebook.cells.index(cell) + 1, second)


def copy_a_test_to_the_end(notebook: Any) -> None:
    notebook.cells.append(copy.deepcopy(cell_of(notebook, "graded_row_entropy")))


def delete_a_test(notebook: Any) -> None:
    notebook.cells.remove(cell_of(notebook, "graded_row_entropy"))


def reverse(notebook: Any) -> None:
    notebook.cells.reverse()


DAMAGED: dict[str, Case] = {
    "a byte-order mark": encoded("utf-8-sig"),
    "Windows-1252": encoded("cp1252"),
    "nbformat 3": old_format,
    "a copy's name": renamed(f"{SLUG} (1).ipynb"),
    "another name": renamed("homework final FINAL.ipynb"),
    "metadata stripped from all cells": changed(strip_everything),
    "metadata stripped from one cell": changed(strip_one_cell),
    "a cell split in two with its metadata on both": changed(split_a_cell),
    "a test copied to the end": changed(copy_a_test_to_the_end),
    "a test deleted": changed(delete_a_test),
    "cells in reverse": changed(reverse),
}


# Odd, but right --------------------------------------------------------------------------------


def without_ids(notebook: Any) -> None:
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        cell.pop("id", None)


def foreign_kernel(notebook: Any) -> None:
    notebook.metadata = {
        "kernelspec": {"name": "conda-env-gone-py", "display_name": "x", "language": "R"}
    }


def edited_test(notebook: Any) -> None:
    cell_of(notebook, "graded_row_entropy").source = "1000.0"


def a_test_as_text(notebook: Any) -> None:
    cell = cell_of(notebook, "graded_row_entropy")
    cell.cell_type = "markdown"


def more_points(notebook: Any) -> None:
    cell_of(notebook, "graded_row_entropy").metadata.nbgrader.points = 1000


def old_schema(notebook: Any) -> None:
    for cell in notebook.cells:
        marks = cell.metadata.get("nbgrader")
        if marks:
            marks["schema_version"] = 1
            marks.pop("task", None)


def extra_cells(notebook: Any) -> None:
    notebook.cells.insert(3, new_code_cell("scratch = list(range(3))\nscratch"))
    notebook.cells.append(new_markdown_cell("Done."))


def a_last_cell_that_raises(notebook: Any) -> None:
    notebook.cells.append(new_code_cell("undefined_name"))


def much_output(notebook: Any) -> None:
    output = new_output("stream", name="stdout", text="x" * 30_000_000)
    cell_of(notebook, "row_entropy").outputs = [output]


def a_timestamp_in_words(folder: Folder) -> None:
    folder.write(folder.right())
    (folder.path / "timestamp.txt").write_text("yesterday evening")


def in_setup(line: str) -> Case:
    return changed(lambda notebook: notebook.cells.insert(1, new_code_cell(line)))


def answered(name: str, source: str) -> Case:
    return lambda folder: folder.write(folder.right(**{name: source}))


ODD: dict[str, Case] = {
    "no cell ids": changed(without_ids),
    "the kernel of an environment that does not exist": changed(foreign_kernel),
    "a test edited": changed(edited_test),
    "a test turned into text": changed(a_test_as_text),
    "a test's points changed to 1000": changed(more_points),
    "schema version 1": changed(old_schema),
    "extra cells": changed(extra_cells),
    "a last cell that raises": changed(a_last_cell_that_raises),
    "30 MB of output": changed(much_output),
    "a timestamp in words": a_timestamp_in_words,
    "warnings": in_setup("import warnings\nwarnings.warn('careful')"),
    "a progress bar on stderr": in_setup(
        "import sys\nfor i in range(100):\n    print(f'{i}%', end='\\r', file=sys.stderr)"
    ),
    "a plot": in_setup("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"),
    "a magic": in_setup("%matplotlib inline"),
    "a shell line": in_setup("!echo hello"),
    "a helper cell": in_setup("def softmax_of(x):\n    return x"),
    "type hints": answered(
        "softmax_jacobian",
        "def softmax_jacobian(p: np.ndarray) -> np.ndarray:\n"
        "    return np.diag(p) - np.outer(p, p)",
    ),
    "an answer defined twice, the last one right": answered(
        "row_entropy", f"def row_entropy(weights):\n    return 1\n\n{RIGHT['row_entropy']}"
    ),
    "einsum": answered(
        "softmax_jacobian",
        "def softmax_jacobian(p):\n    return np.einsum('ij,j->ij', np.eye(len(p)), p) "
        "- np.einsum('i,j->ij', p, p)",
    ),
    "loops": answered(
        "softmax_jacobian",
        "def softmax_jacobian(p):\n    n = len(p)\n    j = np.zeros((n, n))\n"
        "    for a in range(n):\n        for b in range(n):\n"
        "            j[a, b] = p[a] * ((a == b) - p[b])\n    return j",
    ),
    "PyTorch inside, NumPy outside": answered(
        "softmax_jacobian",
        "import torch\n\ndef softmax_jacobian(p):\n    t = torch.tensor(p)\n"
        "    return (torch.diag(t) - torch.outer(t, t)).numpy()",
    ),
    "a million lines of output": in_setup("for i in range(10**6):\n    print(i)"),
    "50 MB in one line": in_setup("print('x' * 50 * 10**6)"),
    "a thread that never ends": in_setup(
        "import threading, time\nthreading.Thread(target=lambda: time.sleep(10**6)).start()"
    ),
    "a child process left behind": in_setup(
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(10**6)'])"
    ),
    "its own folder deleted": in_setup("import os, shutil\nshutil.rmtree(os.getcwd(), True)"),
    "another folder": in_setup("import os\nos.chdir('/')"),
}


# Bad, and costly for one exercise only ---------------------------------------------------------


def body(*lines: str) -> Case:
    source = "\n    ".join(["def row_entropy(weights):", *lines])
    return answered("row_entropy", source)


def top_level(*lines: str) -> Case:
    return answered("row_entropy", "\n".join([RIGHT["row_entropy"], *lines]))


BAD: dict[str, Case] = {
    "an endless loop in a function": body("while True: pass"),
    "an endless loop at the top of a cell": top_level("while True: pass"),
    "one that catches KeyboardInterrupt": body(
        "while True:",
        "    try:",
        "        while True: pass",
        "    except KeyboardInterrupt: pass",
    ),
    "os._exit": body("import os", "os._exit(0)"),
    "sys.exit": body("import sys", "sys.exit()"),
    "quit": body("quit()"),
    "a crash": body("import ctypes", "ctypes.string_at(0)"),
    "a crash at the top of a cell": top_level("import ctypes", "ctypes.string_at(0)"),
    "memory until it dies": body("x = []", "while True: x.append(bytearray(10**8))"),
    "a value too large to be handed over": body("return 'x' * 10**8"),
    "input": body("return float(input())"),
    "a module that is not installed": body("import einops_of_tomorrow", "return 0"),
    "a syntax error": answered("row_entropy", "def row_entropy(weights):\n    return (1"),
    "a fork bomb": body("import os", "while True: os.fork()"),
    "open files until there are none": body(
        "import os", "f = [os.open('/dev/null', 0) for _ in range(10**5)]"
    ),
    "a disk filled": body("open('x', 'wb').write(bytes(10**9))"),
}


# Unreadable ------------------------------------------------------------------------------------


def cut_off(folder: Folder) -> None:
    folder.write(json.dumps(folder.right()).encode()[:-2000])


def two(folder: Folder) -> None:
    folder.write(folder.right(), "first.ipynb")
    folder.write(folder.right(), "second.ipynb")


def a_link_out(folder: Folder) -> None:
    target = folder.path.parent / "somewhere-else.ipynb"
    target.write_text(json.dumps(folder.right()))
    (folder.path / f"{SLUG}.ipynb").symlink_to(target)


UNREADABLE: dict[str, tuple[Case, str]] = {
    "an empty file": (lambda f: f.write(b""), "empty"),
    "a file cut off in the middle": (cut_off, "cut off"),
    "a login page": (lambda f: f.write(b"<html><body>Log in</body></html>"), "web page"),
    "no notebook": (lambda f: None, "no notebook"),
    "two notebooks": (two, "2 notebooks"),
    "a link out of the folder": (a_link_out, "link"),
    "another file under the name": (lambda f: f.write(b"PK\x03\x04zip"), "not a notebook"),
}
