"""Pages of the book as tests see them: their text, and what their cells compute."""

from __future__ import annotations

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace

BOOK = Path(__file__).parents[2] / "book"
CHAPTERS = sorted(BOOK.glob("[0-9][0-9]-*.md"))
_CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_YAML = re.compile(r"\A---\n(.*?)^---\n", re.DOTALL | re.MULTILINE)
_TAGS = re.compile(r"^:?tags: \[(.*)\]\n", re.MULTILINE)


def cells(page: Path) -> list[SimpleNamespace]:
    """The code cells of a page: `code`, `tags`, and `options`, the YAML above the code."""
    found = []
    for cell in _CELL.findall(page.read_text(encoding="utf-8")):
        options = _YAML.match(cell)
        head = options[1] if options else ""
        code = cell.removeprefix(options[0]) if options else cell
        tags = _TAGS.search(head) if options else _TAGS.match(code)
        code = code if options or not tags else code.removeprefix(tags[0])
        names = tags[1].split(", ") if tags else []
        found.append(SimpleNamespace(code=code, tags=names, options=head))
    return found


def run(slug: str) -> SimpleNamespace:
    """Run a page's cells from top to bottom in this process, without a kernel.

    Returns:
        `names`, what the cells have defined, `said`, what they have given to the prose, and
        `printed`, the text that they have printed.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    said: dict[str, str] = {}
    myst_nb = ModuleType("myst_nb")
    myst_nb.glue = lambda name, value, display=True: said.update({name: value})
    names: dict[str, object] = {}
    printed = io.StringIO()
    real = sys.modules.get("myst_nb")
    sys.modules["myst_nb"] = myst_nb
    try:
        for number, cell in enumerate(cells(BOOK / f"{slug}.md"), start=1):
            with redirect_stdout(printed):
                exec(compile(cell.code, f"{slug}.md, cell {number}", "exec"), names)
            plt.close("all")
    finally:
        del sys.modules["myst_nb"]
        if real:
            sys.modules["myst_nb"] = real
    return SimpleNamespace(names=names, said=said, printed=printed.getvalue())
