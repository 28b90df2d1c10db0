"""What a student wrote is text in formgrader: it runs nothing in the session of who grades it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bs4
import nbformat
import pytest
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_markdown_cell, new_notebook
from nbgrader.server_extensions.formgrader import handlers
from traitlets.config import Config

from coursework import batch, gradebook
from coursework.classroom import Course
from tests.coursework.submissions import SLUG

pytestmark = pytest.mark.slow

ATTACKS = {
    "a script": "<script>alert(1)</script>",
    "an event": "<img src=x onerror=alert(1)>",
    "an element after a comparison": "1 <2 <b onclick=alert(1)>x</b>",
    "a link": "[look](javascript:alert(1))",
    "a link with entities": "[look](&#106;avascript:alert(1))",
    "a reference": "[look][1]\n\n[1]: javascript:alert(1)",
    "a reference by its own name": "[look]\n\n[look]: javascript:alert(1)",
    "a picture from elsewhere": "![](https://x.test/seen)",
    "a link in a formula": r"$\href{javascript:alert(1)}{x}$",
    "a link in a formula, put together": r"$\def\h{\href} \h{javascript:alert(1)}{x}$",
    "out of a fence": "~~~\n~~~~~~~\n<script>alert(1)</script>",
    "out of a fence of the other kind": "```\n```\n<script>alert(1)</script>",
    "out of a block of code": "</code></pre><script>alert(1)</script>",
}
ACTIVE = "script, img, a, [onclick], [onerror]"


def shown(markdown: str) -> Any:
    """What formgrader shows of an answer in words."""
    config = Config()
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    marks = {"grade_id": "open_question", "grade": True, "solution": True, "points": 4}
    names = ("assignment_id", "notebook_id", "submission_id", "student", "base_url")
    resources: dict[str, Any] = {**dict.fromkeys(names, "x"), "index": 0, "total": 1}
    resources |= {"last_name": "", "first_name": "", "notebook_path": "x"}
    notebook = new_notebook(cells=[new_markdown_cell(markdown, metadata={"nbgrader": marks})])
    html, _ = HTMLExporter(config=config).from_notebook_node(notebook, resources=resources)
    return bs4.BeautifulSoup(html, "html.parser").select_one(".text_cell_render")


def is_active(body: Any) -> bool:
    """Whether there are elements that do something, or a formula that makes one."""
    for code in body.select("pre, code"):
        if not code.select(ACTIVE):
            code.decompose()
    return bool(body.select(ACTIVE)) or r"\href" in body.get_text()


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_markup_in_an_answer_is_shown_and_not_obeyed(attack: str) -> None:
    assert is_active(shown(attack)), "formgrader makes this harmless by itself"
    harmless = shown(gradebook.harmless(attack))
    assert " ".join(attack.split()) in " ".join(harmless.get_text().split())
    assert not is_active(harmless)


@pytest.mark.parametrize(
    "answer",
    [
        r"Divide by $\sqrt{d_k}$, for the *spread* of $q \cdot k$ grows.",
        "If 3 < 4, then `q[0] * k`:\n\n- one\n- two & three",
    ],
)
def test_words_formulas_and_comparisons_are_shown_as_they_are(answer: str) -> None:
    assert gradebook.harmless(answer) == answer


def test_the_notebook_that_formgrader_opens_is_harmless(course: Course, hand_in: Any) -> None:
    hand_in("ada", open_question=f"Because. {ATTACKS['a script']}", row_entropy="</pre><script>")
    (job,) = batch.jobs_of(course, [SLUG], [], None)
    gradebook.prepare(course, SLUG)
    gradebook.record(course, [batch.grade_job(job).attempt])
    path: Path = course.classroom / "autograded" / "ada" / SLUG / f"{SLUG}.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    (answer,) = (
        c for c in cells if c.metadata.get("nbgrader", {}).get("grade_id", "").startswith("open")
    )
    assert "Because." in answer.source and not is_active(shown(answer.source))
