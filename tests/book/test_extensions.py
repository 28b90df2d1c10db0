"""The small parts of `book/_ext`, without a build."""

import html
import re
from types import SimpleNamespace

import pytest
from docutils import nodes

pytest.importorskip("sphinx")

import chapter_numbers
import formulas
import inline_figures
import instruments
import no_break
import notebook_links
import reading_time

from attend.figures import COLOURS, INK

SVG = f"""<?xml version="1.0"?>
<!DOCTYPE svg>
<svg xmlns="http://www.w3.org/2000/svg" width="460.8pt" height="230.4pt" viewBox="0 0 460.8 230.4">
 <metadata>made today</metadata>
 <!-- a comment -->
 <defs><clipPath id="pA1"><rect/></clipPath><path id="DejaVuSans-31" d=""/></defs>
 <g id="text_1" style="fill: {INK}"><use xlink:href="#DejaVuSans-31"/></g>
 <path clip-path="url(#pA1)" style="fill: none; stroke: {COLOURS["query"].upper()}"/>
 <path style="fill: url(#hABCDEF)"/>
</svg>"""


def test_a_figure_takes_the_pages_colours_and_keeps_its_references():
    page = inline_figures.page_svg(SVG, alt='A "line" & more', prefix="f3-")
    assert "stroke: var(--course-query)" in page
    assert "fill: currentColor" in page
    assert "url(#f3-hABCDEF)" in page, "an id is not a colour"
    assert 'aria-label="A &quot;line&quot; &amp; more"' in page
    assert not re.search("metadata|comment|DOCTYPE|height=", page)
    ids = set(re.findall(r'id="([^"]*)"', page))
    assert ids == {"f3-pA1", "f3-DejaVuSans-31", "f3-text_1"}
    used = set(re.findall(r'(?:href="#|clip-path="url\(#)([^")]*)', page))
    assert used <= ids


def test_a_colour_that_the_course_does_not_have_is_found():
    assert inline_figures.foreign_colours(SVG) == set()
    odd = SVG.replace(COLOURS["query"].upper(), "#00FF7F")
    assert inline_figures.foreign_colours(odd) == {"#00ff7f"}


def test_every_colour_of_the_course_has_its_own_custom_property():
    assert len(set(inline_figures.IN_PAGE.values())) == len(inline_figures.IN_PAGE) == 7


@pytest.mark.parametrize(
    ("tex", "nowrap", "expected"),
    [
        ("a = b", False, "a = b"),
        (r"a &= b \\ &= c", False, r"\begin{aligned}a &= b \\ &= c\end{aligned}"),
        (
            r"\begin{aligned} a \\ b \end{aligned}",
            False,
            r"\begin{aligned} a \\ b \end{aligned}",
        ),
        (r"\begin{align} a \\ b \end{align}", True, r"\begin{align*} a \\ b \end{align*}"),
    ],
)
def test_lines_of_a_formula_are_aligned_and_numbered_by_the_book_alone(tex, nowrap, expected):
    assert formulas.display_tex(nodes.math_block(tex, tex, nowrap=nowrap)) == expected


def test_punctuation_and_brackets_stay_with_their_formula():
    math = nodes.math("x", "x")
    paragraph = nodes.paragraph("", "", nodes.Text("so ("), math, nodes.Text("), then"))
    formulas.KeepPunctuation.hold(math)
    assert [child.astext() for child in paragraph.children] == ["so ", "(x),", " then"]
    assert paragraph[1]["classes"] == ["held"]


def test_reading_time_counts_prose_and_open_code_but_not_folded_code():
    document = nodes.document(None, None)
    document += nodes.paragraph("", "word " * 400)
    assert reading_time.minutes(document) == 2
    code = nodes.literal_block("", "line\n" * 29 + "line")
    document += code
    assert reading_time.minutes(document) == 4
    document.remove(code)
    folded = nodes.container("", code)
    folded["hide_mode"] = "input"
    document += folded
    assert reading_time.minutes(document) == 2
    document += nodes.figure()
    assert reading_time.minutes(document) == 3


def test_an_instrument_comes_after_what_is_shared_and_after_its_own_data(tmp_path):
    folder = tmp_path / "instruments"
    folder.mkdir()
    names = ("attend-b.js", "attend-a.js", "attend-b.example.js", "attend-bc.x.js", "shared.js")
    for name in (*names, "look.css"):
        (folder / name).touch()
    scripts, styles = instruments.files_for(tmp_path, ["attend-b", "attend-a", "attend-b"])
    expected = ("shared.js", "attend-b.example.js", "attend-b.js", "attend-a.js")
    assert scripts == [f"instruments/{name}" for name in expected]
    assert styles == ["instruments/look.css"]
    with pytest.raises(FileNotFoundError, match="attend-bc"):
        instruments.files_for(tmp_path, ["attend-bc"])


def test_attributes_are_handed_to_the_element():
    node = instruments.instrument(tag="attend-x", label="A", given={"text": 'a "b"', "layer": "3"})
    said = []
    translator = SimpleNamespace(attval=html.escape, body=said)
    instruments.visit(translator, node)
    assert said == [
        '<attend-x class="instrument" aria-label="A" text="a &quot;b&quot;" layer="3">\n'
    ]


SERVICES = {
    "binder": "https://mybinder.org/",
    "colab": "https://colab.research.google.com",
    "jupyterhub": "https://hub.example.edu/",
}
NOTEBOOK = "notebooks/04-scaling/04-scaling.ipynb"


def test_a_repository_on_github_opens_on_binder_colab_and_the_hub():
    found = notebook_links.places(
        NOTEBOOK, repository="https://github.com/a/course.git", **SERVICES
    )
    assert found == {
        "Binder": "https://mybinder.org/v2/gh/a/course/main"
        "?urlpath=lab%2Ftree%2Fnotebooks%2F04-scaling%2F04-scaling.ipynb",
        "Colab": "https://colab.research.google.com/github/a/course/blob/main/" + NOTEBOOK,
        "JupyterHub": "https://hub.example.edu/hub/user-redirect/git-pull"
        "?repo=https%3A%2F%2Fgithub.com%2Fa%2Fcourse&branch=main"
        "&urlpath=lab%2Ftree%2Fcourse%2Fnotebooks%2F04-scaling%2F04-scaling.ipynb",
    }


@pytest.mark.parametrize(
    ("repository", "source"),
    [
        ("https://gitlab.com/group/course", "gl/group%2Fcourse/main"),
        ("https://git.example.edu/x/course", "git/https%3A%2F%2Fgit.example.edu%2Fx%2Fcourse/main"),
    ],
)
def test_a_repository_elsewhere_opens_on_binder_and_not_on_colab(repository, source):
    found = notebook_links.places(NOTEBOOK, repository=repository, **SERVICES)
    assert set(found) == {"Binder", "JupyterHub"}
    assert f"/v2/{source}?" in found["Binder"]


@pytest.mark.parametrize(
    ("repository", "services"),
    [("", SERVICES), (" ", SERVICES), ("https://github.com/a/course", {"binder": ""})],
)
def test_without_an_address_there_is_no_link(repository, services):
    assert notebook_links.places(NOTEBOOK, repository=repository, **services) == {}


def test_figures_count_by_chapter_and_on_any_other_page_from_one():
    figures = {"figure": {"id1": (84,), "id2": (85,)}}
    env = SimpleNamespace(
        toc_fignumbers={
            "book/04-scaling": {"figure": {"id7": (20,), "id9": (21,)}},
            "book/measurements": figures,
        }
    )
    chapter_numbers.renumber(None, env)
    assert env.toc_fignumbers["book/04-scaling"]["figure"] == {"id7": (4, 1), "id9": (4, 2)}
    assert figures["figure"] == {"id1": (1,), "id2": (2,)}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a loss of 2.0 × 10⁻⁴, measured", "a loss of 2.0~×~10⁻⁴, measured"),
        ("85 MB of weights in 12 ms", "85~MB of weights in 12~ms"),
        ("It is 320 px wide", "It is 320~px wide"),
        ("the 3 best of 4 models", "the 3 best of 4 models"),
        ("T × S scores, 5 separate ones", "T × S scores, 5 separate ones"),
    ],
)
def test_a_number_and_its_unit_stay_on_one_line(text, kept):
    assert no_break.joined(text) == kept.replace("~", "\u00a0")


def test_a_number_that_a_cell_gave_keeps_its_unit():
    cell = nodes.inline("", "68")
    page = nodes.paragraph("", "", nodes.Text("takes "), cell, nodes.Text(" % of 2 s"))
    no_break.join_numbers(page)
    assert page.astext() == "takes 68\u00a0% of 2\u00a0s"
