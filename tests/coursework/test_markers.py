"""A marker that is spelt in another way releases an answer without a word: it is found."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from coursework import markers
from coursework.sync import nbgrader_metadata

ANSWER = nbgrader_metadata("name", solution=True)
TEST = nbgrader_metadata("graded_name", locked=True, points=2)


def code(*lines, nbgrader=ANSWER):
    return new_code_cell("\n".join(lines), metadata={"nbgrader": nbgrader} if nbgrader else {})


def faults_of(*cells):
    return markers.faults(new_notebook(cells=list(cells)))


def test_right_markers_are_right():
    solution = code("def f(x):", "    ### BEGIN SOLUTION", "    return x", "    ### END SOLUTION")
    hidden = code("### BEGIN HIDDEN TESTS", "f(1)", "### END HIDDEN TESTS", nbgrader=TEST)
    assert faults_of(solution, hidden) == []


@pytest.mark.parametrize(
    "line",
    [
        "### BEGIN SOLUTON",
        "### BEGIN  SOLUTION",
        "### BEGINN SOLUTION",
        "### BEGIN SOLUTIONS",
        "### BEGIN SOLUTI0N",
        "### BEGIN SOLUTI\N{CYRILLIC CAPITAL LETTER O}N",
        "### BEGIN\N{NO-BREAK SPACE}SOLUTION",
        "### BEGIN SOLUTION\N{ZERO WIDTH SPACE}",
        "### BEGIN SOLUTION:",
        "### Begin solution",
        "### BEGIN_SOLUTION",
        "### BEGIN-SOLUTION",
        "###BEGIN SOLUTION",
        "## BEGIN SOLUTION",
        "# BEGIN SOLUTION",
        "#### BEGIN SOLUTION",
        "BEGIN SOLUTION",
        "x = 1  ### BEGIN SOLUTION",
        "### SOLUTION",
        "### BEGIN",
        "### END SOLUTON",
        "### END SOLUTION HERE",
        "### ENDSOLUTION",
        "### BEGIN HIDDEN TEST",
        "### BEGIN HIDEN TESTS",
        "### BEGIN HIDDEN TESTS #",
        "### HIDDEN TESTS",
        "### END HIDDEN TEST",
        "# END HIDDEN TESTS",
        "### BEGIN MARK SCHEME",
        "### END MARK SCHEME",
        "### AUTOTEST f(1)",
        "# HASHED AUTOTEST f(1)",
        "#Begin Solution",
        "# end of hidden tests",
    ],
)
@pytest.mark.parametrize("make", [code, lambda line: new_markdown_cell(f"text\n\n{line}")])
def test_whatever_comes_near_a_marker_is_a_fault(line, make):
    if make is not code and line == "### BEGIN":
        return  # a heading of one word; in code, ## is kept for markers
    sentences = faults_of(make(line))
    assert sentences
    assert any("did you mean '### " in s for s in sentences), sentences


@pytest.mark.parametrize(
    "line",
    [
        "# The solution of this equation is a row that sums to 1.",
        "# begin with the scores",
        "# the end",
        "x = solution[0]",
        "### Exercise: `causal_mask`",
        "## Open question",
        "### Hidden states",
        "Here the tests begin.",
    ],
)
def test_ordinary_comments_and_headings_are_no_markers(line):
    cell = new_markdown_cell(line) if line.startswith("##") else code(line, nbgrader=None)
    assert faults_of(cell) == []


@pytest.mark.parametrize(
    ("lines", "nbgrader", "words"),
    [
        (["### BEGIN SOLUTION", "1"], ANSWER, "has no '### END SOLUTION'"),
        (["1", "### END SOLUTION"], ANSWER, "ends nothing"),
        (["### BEGIN SOLUTION", "### END HIDDEN TESTS"], ANSWER, "ends nothing"),
        (
            ["### BEGIN SOLUTION", "### BEGIN SOLUTION", "### END SOLUTION"],
            ANSWER,
            "before the end",
        ),
        (["### BEGIN SOLUTION", "### END SOLUTION"], None, "not marked as a solution"),
        (["### BEGIN SOLUTION", "### END SOLUTION"], TEST, "not marked as a solution"),
        (["### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"], None, "not marked as a test"),
        (["### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"], ANSWER, "not marked as a test"),
    ],
)
def test_markers_come_in_pairs_and_in_the_cells_that_they_are_for(lines, nbgrader, words):
    (sentence,) = faults_of(code(*lines, nbgrader=nbgrader))[:1]
    assert words in sentence


def test_a_source_is_parted_by_its_markers():
    source = "a\n### BEGIN SOLUTION\nb\na\n  ### END SOLUTION\nc"
    assert markers.released(source) == "a\nc"
    assert markers.withheld(source) == ["b"]
