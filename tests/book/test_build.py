"""`coursework.book`: each fault of a page fails the build, and what is stale is computed again.

A throw-away book of one page is built with the course's own settings and extensions.
"""

import gzip
import json
import shutil
import sys
import threading
import time
import urllib.error
import urllib.request

import bs4
import pytest

from coursework import book as builder
from coursework.errors import CourseError
from tests.book.conftest import ROOT

pytest.importorskip("sphinx")

from notebook_links import places

pytestmark = pytest.mark.slow

NOTEBOOK = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A page

"""

FIGURE = """\
```{code-cell} python
---
mystnb:
  image:
    alt: A line.
  figure:
    caption: A line that rises.
    name: fig-line
---
import matplotlib.pyplot as plt
from attend.figures import COLOURS, use_course_style

use_course_style()
fig, ax = plt.subplots()
ax.plot([0, 1], color=COLOURS["key"], label="$\\\\sqrt{d_k}$")
ax.legend();
```
"""


@pytest.fixture
def small_book(tmp_path):
    """Returns a function that writes the page of a small book and builds it.

    The function returns what was built, and what was said meanwhile.
    """
    for name in ("_config.yml", "package-lock.json", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    (tmp_path / "src").mkdir()
    for name in ("_ext", "_static", "_templates", "references.bib"):
        (tmp_path / "book").mkdir(exist_ok=True)
        (tmp_path / "book" / name).symlink_to(ROOT / "book" / name)
    toc = "format: jb-book\nroot: book/index\nchapters:\n- file: book/00-page\n"
    (tmp_path / "_toc.yml").write_text(toc)
    (tmp_path / "book" / "index.md").write_text("# A book\n")

    def build(page):
        (tmp_path / "book" / "00-page.md").write_text(page)
        said = []
        try:
            builder.build(tmp_path, say=said.append)
        except CourseError as error:
            return None, "\n".join([*said, str(error)])
        return (tmp_path / "_build/html/book/00-page.html").read_text("utf-8"), "\n".join(said)

    build.root = tmp_path
    return build


def test_a_sound_page_is_built_with_its_figure_formulas_and_references(small_book):
    page = (
        NOTEBOOK
        + FIGURE
        + r"""
$$
\query{q} \cdot \key{k} &= 1 \\ &= 2
$$ (eq-one)

See {eq}`eq-one`, {numref}`fig-line` and {cite:t}`vaswani2017attention`, ($x$).

```{bibliography}
```
"""
    )
    html, said = small_book(page)
    assert html is not None, said
    assert "running the cells of book/00-page.md" in said
    assert "50 % written: book/00-page" in said
    assert '<a class="reference internal" href="#equation-eq-one">(0.1)</a>' in html
    assert '<span class="std std-numref">Figure 0.1</span>' in html
    assert 'class="enclosing course-query"' in html
    assert '<span class="held">(<span class="math' in html, "the bracket stays with its formula"
    assert 'role="img" aria-label="A line."' in html
    assert "var(--course-key)" in html and "currentColor" in html
    assert "<img" not in html
    assert builder.is_fresh(small_book.root)


LAUNCH = """\
# A page

You write it in {download}`the notebook <../notebooks/01-page/01-page.ipynb>`.

```{only} launch
On Colab, run {{ install }} first.
```
"""


REPOSITORY = "https://github.com/a/course"
HOSTS = {
    "binder": "https://mybinder.org",
    "colab": "https://colab.research.google.com",
    "jupyterhub": "https://hub.example.edu",
}


def test_a_chapter_links_its_notebook_where_the_repository_and_a_hub_have_addresses(small_book):
    notebook = small_book.root / "notebooks" / "01-page" / "01-page.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_text("{}")
    html, said = small_book(LAUNCH)
    assert html is not None, said
    line = bs4.BeautifulSoup(html, "html.parser").select_one("p.reading-time")
    assert line.get_text() == "About 1 minutes to read · Exercises: notebook"
    assert "On Colab" not in html
    config = small_book.root / "_config.yml"
    settings = config.read_text("utf-8").replace('repository: ""', f"repository: {REPOSITORY}")
    settings = settings.replace('jupyterhub: ""', f"jupyterhub: {HOSTS['jupyterhub']}")
    config.write_text(settings, "utf-8")
    html, said = small_book(LAUNCH)
    assert html is not None, said
    soup = bs4.BeautifulSoup(html, "html.parser")
    line = soup.select_one("p.reading-time")
    links = {link.get_text(): link["href"] for link in line.select("a")}
    assert (small_book.root / "_build/html/book" / links.pop("notebook")).read_text() == "{}"
    path = "notebooks/01-page/01-page.ipynb"
    assert links == places(path, repository=REPOSITORY, **HOSTS)
    assert list(links) == ["Binder", "Colab", "JupyterHub"]
    assert f"On Colab, run %pip install -q git+{REPOSITORY} first." in soup.article.get_text()


DAMAGE = {
    "a failing cell": (NOTEBOOK + "```{code-cell} python\n1 / 0\n```\n", "ZeroDivisionError"),
    "a cell that complains on stderr": (
        NOTEBOOK + "```{code-cell} python\nimport sys\nprint('oh', file=sys.stderr)\n```\n",
        "stderr",
    ),
    "bad TeX": ("# A page\n\n$\\frac{1}{$\n", "KaTeX parse error"),
    "an unknown TeX command": ("# A page\n\n$$\\nonsense$$\n", "nonsense"),
    "a dead reference": ("# A page\n\n{ref}`nowhere`\n", "nowhere"),
    "a dead equation reference": ("# A page\n\n{eq}`eq-nowhere`\n", "eq-nowhere"),
    "an unknown paper": ("# A page\n\n{cite}`nobody1900nothing`\n", "nobody1900nothing"),
    "an unknown word of the glossary": ("# A page\n\n{term}`gobbledygook`\n", "gobbledygook"),
    "a figure without alt text": (
        NOTEBOOK + FIGURE.replace("  image:\n    alt: A line.\n", ""),
        "no alt text",
    ),
    "a figure without a caption": (
        NOTEBOOK
        + FIGURE.replace("  figure:\n    caption: A line that rises.\n    name: fig-line\n", ""),
        "no caption",
    ),
    "a figure in a colour of its own": (
        NOTEBOOK + FIGURE.replace('COLOURS["key"]', '"#123456"'),
        "#123456",
    ),
    "an instrument that there is not": (
        "# A page\n\n```{instrument} attend-nothing\n:label: Nothing\n\nNothing.\n```\n",
        "attend-nothing",
    ),
    "a download that there is not": ("# A page\n\n{download}`x <no.ipynb>`\n", "no.ipynb"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_page_fails_the_build_and_is_named(small_book, damage):
    page, complaint = DAMAGE[damage]
    html, said = small_book(page)
    assert html is None, f"{damage} went through"
    assert complaint in said
    assert "00-page" in said
    assert "The book has 1 problem" in said or damage in ("a failing cell",)
    assert not builder.is_fresh(small_book.root)


def test_a_kernel_that_dies_is_named_with_its_page_and_the_log(small_book, monkeypatch):
    kernel = small_book.root / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    argv = [sys.executable, "-c", "raise SystemExit('no room')", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": argv, "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(small_book.root / "jupyter"))
    html, said = small_book(NOTEBOOK + "```{code-cell} python\n1 + 1\n```\n")
    assert html is None
    kernel, problem, ending = said.splitlines()[-3:]
    assert kernel == "no room"
    assert problem == "book/00-page.md: RuntimeError: Kernel died before replying to kernel_info"
    assert "1 problem" in ending and str(small_book.root / builder.LOG) in ending


def test_a_build_that_is_interrupted_ends_the_builder(small_book):
    def interrupt(line):
        if "running the cells" in line:
            raise KeyboardInterrupt

    page = NOTEBOOK + "```{code-cell} python\nimport time\ntime.sleep(600)\n```\n"
    (small_book.root / "book" / "00-page.md").write_text(page)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        builder.build(small_book.root, say=interrupt)
    assert time.monotonic() - began < 60
    assert not builder.is_fresh(small_book.root)


def test_a_fault_is_reported_again_by_the_next_build(small_book):
    for _ in range(2):
        html, said = small_book("# A page\n\n$\\frac{1}{$\n")
        assert html is None, "Sphinx warns of a page only when it writes it"
        assert "KaTeX parse error" in said


COUNTING = """\
```{code-cell} python
from pathlib import Path

with open("runs", "a") as runs:
    runs.write("x")
print("the source says", Path("../src/answer.py").read_text())
```
"""


def test_cells_run_again_when_the_source_changes_and_only_then(small_book):
    source, runs = small_book.root / "src" / "answer.py", small_book.root / "book" / "runs"
    source.write_text("41")
    assert "the source says 41" in small_book(NOTEBOOK + COUNTING)[0]
    assert "the source says 41" in small_book(NOTEBOOK + COUNTING + "More prose.\n")[0]
    assert runs.read_text() == "x", "prose has changed, and the cells ran again"
    source.write_text("42")
    assert not builder.is_fresh(small_book.root)
    assert "the source says 42" in small_book(NOTEBOOK + COUNTING)[0]
    assert runs.read_text() == "xx"


def test_cells_run_again_when_a_pinned_package_changes(small_book):
    (small_book.root / "src" / "answer.py").write_text("1")
    small_book(NOTEBOOK + COUNTING)
    with (small_book.root / "requirements.txt").open("a") as pins:
        pins.write("numpy==0.0.0\n")
    small_book(NOTEBOOK + COUNTING)
    assert (small_book.root / "book" / "runs").read_text() == "xx"


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [("_toc.yml", "no _toc.yml"), ("node_modules", "npm ci"), ("_config.yml", "no _config.yml")],
)
def test_what_is_missing_is_named_and_nothing_is_built(small_book, missing, sentence):
    (small_book.root / missing).unlink()
    html, said = small_book("# A page\n")
    assert html is None
    assert sentence in said and said.count("\n") == 0
    assert not (small_book.root / "_build").exists()


def test_a_table_of_contents_that_is_no_yaml_is_one_problem(small_book):
    with (small_book.root / "_toc.yml").open("a") as toc:
        toc.write("[\n")
    html, said = small_book("# A page\n")
    assert html is None
    assert "_toc.yml" in said
    assert "Traceback" not in said


def test_a_folder_that_cannot_be_written_is_said_in_a_sentence(small_book):
    (small_book.root / "_build").write_text("a file where a folder should be")
    html, said = small_book("# A page\n")
    assert html is None
    assert "cannot be written" in said


def test_an_unknown_target_is_refused(small_book):
    with pytest.raises(CourseError, match="no target 'pdf'"):
        builder.build(small_book.root, target="pdf")


# Serving ----------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path):
    """The address of a small folder that is served like a book."""
    html = tmp_path / "_build" / "html"
    (html / "book").mkdir(parents=True)
    (html / "index.html").write_text("the first page " * 100)
    (html / "book" / "page.html").write_text("another page")
    (html / "404.html").write_text("no such page")
    (tmp_path / "_build" / "secret.html").write_text("not of the book")
    with builder.server(tmp_path) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def test_pages_are_served_compressed_to_whoever_takes_that(served):
    status, headers, body = ask(f"{served}/", **{"Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert gzip.decompress(body) == b"the first page " * 100
    assert len(body) < 100
    status, headers, body = ask(f"{served}/book/page.html?x=1")
    assert (status, headers["Content-Encoding"], body) == (200, None, b"another page")


@pytest.mark.parametrize(
    "address", ["/nothing.html", "/book/", "/../secret.html", "/%2e%2e/secret.html"]
)
def test_a_missing_page_and_one_outside_the_book_get_the_books_own_answer(served, address):
    status, _, body = ask(served + address)
    assert (status, body) == (404, b"no such page")


def test_the_server_can_be_reached_from_this_machine_only(served, tmp_path):
    with builder.server(tmp_path) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_taken_port_and_a_book_that_is_not_built_are_said_in_a_sentence(tmp_path, served):
    port = int(served.rsplit(":", 1)[1])
    with pytest.raises(CourseError, match=f"Port {port} cannot be had"):
        builder.server(tmp_path, port)
    with pytest.raises(CourseError, match="Port 70000 cannot be had"):
        builder.server(tmp_path, 70000)
    with pytest.raises(CourseError, match="no built book"):
        builder.server(tmp_path / "elsewhere")
