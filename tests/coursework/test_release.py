"""Student notebooks are what nbgrader makes of the solutions, without what they must not hold."""

import copy
import json
import os

import nbformat
import pytest

from coursework.chapters import by_slug
from coursework.release import ReleaseError, generate, leaks, release, stale
from coursework.sync import skeleton

SLUG = "05-masking"
CONFIG = """
c = get_config()
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "notebooks"
"""


@pytest.fixture(scope="module")
def solved():
    """A solution notebook with one answer, one output and a model answer."""
    notebook = skeleton(by_slug(SLUG))
    cell(notebook, "answer-causal_mask").source = (
        "def causal_mask(T, S=None):\n    ### BEGIN SOLUTION\n"
        "    return np.tri(T, S, (S or T) - T, dtype=bool)\n    ### END SOLUTION"
    )
    cell(notebook, "check-causal_mask").outputs = [nbformat.v4.new_output("stream", text="5.0")]
    cell(notebook, "check-causal_mask").execution_count = 3
    cell(
        notebook, "open_question"
    ).source = "Why?\n\n### BEGIN SOLUTION\nBecause of the mark scheme.\n### END SOLUTION"
    return notebook


@pytest.fixture
def course(tmp_path, solved):
    (tmp_path / "nbgrader_config.py").write_text(CONFIG)
    write(tmp_path, solved)
    return tmp_path


def cell(notebook, id):
    return next(c for c in notebook.cells if c.id == id)


def write(root, notebook, slug=SLUG):
    path = root / "solutions" / slug / f"{slug}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


def student(root, slug=SLUG):
    return nbformat.read(root / "notebooks" / slug / f"{slug}.ipynb", as_version=4)


def everything(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# What students get ---------------------------------------------------------------------------


def test_a_student_gets_stubs_for_answers_and_nothing_for_hidden_tests(course):
    assert release(course, progress=False) == (SLUG,)
    notebook = student(course)
    assert cell(notebook, "answer-causal_mask").source == (
        "def causal_mask(T, S=None):\n    # YOUR CODE HERE\n    raise NotImplementedError()"
    )
    assert cell(notebook, "open_question").source == "Why?\n\nYOUR ANSWER HERE"
    graded = cell(notebook, "graded-causal_mask")
    assert "check(" not in graded.source
    assert graded.metadata["nbgrader"]["points"] == 5
    assert cell(notebook, "check-causal_mask").source == 'check("05.causal_mask", causal_mask)'
    assert not any(c.get("outputs") or c.get("execution_count") for c in notebook.cells)


def test_cells_keep_their_ids_and_their_order(course, solved):
    release(course, progress=False)
    assert [c.id for c in student(course).cells] == [c.id for c in solved.cells]


def test_what_lies_beside_a_solution_goes_with_it(course):
    beside = course / "solutions" / SLUG / "data" / "text.txt"
    beside.parent.mkdir()
    beside.write_text("a text")
    release(course, progress=False)
    assert (course / "notebooks" / SLUG / "data" / "text.txt").read_text() == "a text"
    beside.unlink()
    release(course, progress=False)
    assert not (course / "notebooks" / SLUG / "data" / "text.txt").exists()


def test_no_gradebook_is_made(course):
    release(course, progress=False)
    assert not list(course.rglob("*.db"))


# Again and again -----------------------------------------------------------------------------


def test_releasing_again_changes_not_a_byte(course):
    release(course, progress=False)
    before = everything(course / "notebooks")
    assert release(course, progress=False) == ()
    assert everything(course / "notebooks") == before


def test_two_courses_give_the_same_bytes(course, tmp_path_factory, solved):
    other = tmp_path_factory.mktemp("other")
    (other / "nbgrader_config.py").write_text(CONFIG)
    write(other, solved)
    release(course, progress=False)
    release(other, progress=False)
    assert list(everything(course / "notebooks").values()) == list(
        everything(other / "notebooks").values()
    )


def test_the_working_directory_stays_where_it_was(course):
    before = os.getcwd()
    release(course, progress=False)
    assert os.getcwd() == before


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_stderr_of_a_terminal(course, capfd, monkeypatch, terminal):
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    release(course, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert ("Making student notebooks" in shown.err) == terminal


# Staleness -----------------------------------------------------------------------------------


def test_fresh_notebooks_are_not_stale(course):
    release(course, progress=False)
    assert stale(course) == []


def test_a_notebook_that_was_never_released_is_stale(course):
    assert stale(course) == [f"notebooks/{SLUG}/{SLUG}.ipynb is missing"]


def test_a_changed_solution_makes_its_notebook_stale_until_it_is_released(course, solved):
    release(course, progress=False)
    changed = copy.deepcopy(solved)
    cell(changed, "title").source += "\n\nA word more."
    write(course, changed)
    assert stale(course) == [
        f"notebooks/{SLUG}/{SLUG}.ipynb is not what solutions/{SLUG} gives now"
    ]
    assert release(course, progress=False) == (SLUG,)
    assert stale(course) == []


def test_a_notebook_that_was_edited_by_hand_is_stale(course):
    release(course, progress=False)
    path = course / "notebooks" / SLUG / f"{SLUG}.ipynb"
    path.write_text(path.read_text() + "\n")
    assert len(stale(course)) == 1
    release(course, progress=False)
    assert stale(course) == []


def test_files_and_folders_that_come_from_nowhere_are_said(course):
    release(course, progress=False)
    (course / "notebooks" / SLUG / "notes.txt").write_text("mine")
    (course / "notebooks" / "99-old").mkdir()
    assert stale(course) == [
        "notebooks/99-old comes from no solution",
        f"notebooks/{SLUG}/notes.txt comes from no solution",
    ]


def test_asking_whether_notebooks_are_stale_writes_nothing(course):
    before = everything(course)
    stale(course)
    assert everything(course) == before


# What cannot be released ---------------------------------------------------------------------


def misspelt(notebook):
    stub = cell(notebook, "answer-causal_mask")
    stub.source = stub.source.replace("BEGIN SOLUTION", "BEGIN SOLUTON")
    return "'### BEGIN SOLUTON' is no marker"


def unfinished(notebook):
    stub = cell(notebook, "answer-causal_mask")
    stub.source = stub.source.replace("    ### END SOLUTION", "")
    return "has no '### END SOLUTION'"


def same_grade_id(notebook):
    cell(notebook, "answer-causal_mask").metadata["nbgrader"]["grade_id"] = "setup"
    return "Duplicate grade id: setup"


def no_points(notebook):
    del cell(notebook, "graded-causal_mask").metadata["nbgrader"]["points"]
    return "does not have points"


def answer_in_a_demo(notebook):
    line = "return np.tri(T, S, (S or T) - T, dtype=bool)"
    cell(notebook, "title").source += f"\n\n    {line}"
    return f"cell title of the student notebook holds a line of the solution: {line!r}"


def graded_in_the_open(notebook):
    graded = cell(notebook, "graded-causal_mask")
    graded.source = 'check("05.causal_mask", causal_mask, graded=True)'
    return "cell graded-causal_mask of the student notebook holds a graded test"


FAULTS = [misspelt, unfinished, same_grade_id, no_points, answer_in_a_demo, graded_in_the_open]


@pytest.mark.parametrize("spoil", FAULTS, ids=lambda f: f.__name__)
@pytest.mark.slow
def test_a_faulty_solution_is_refused_in_a_sentence_and_changes_nothing(course, solved, spoil):
    release(course, progress=False)
    before = everything(course / "notebooks")
    notebook = copy.deepcopy(solved)
    words = spoil(notebook)
    write(course, notebook)
    with pytest.raises(ReleaseError) as refusal:
        release(course, progress=False)
    assert words in str(refusal.value)
    assert SLUG in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert everything(course / "notebooks") == before
    assert words in " ".join(stale(course))


def test_one_faulty_solution_keeps_all_notebooks_as_they_were(course, solved):
    release(course, progress=False)
    good, bad = copy.deepcopy(solved), copy.deepcopy(solved)
    cell(good, "title").source = "# Changed"
    misspelt(bad)
    write(course, good)
    write(course, bad, "06-heads")
    before = everything(course / "notebooks")
    with pytest.raises(ReleaseError, match="06-heads"):
        release(course, progress=False)
    assert everything(course / "notebooks") == before
    assert release(course, [SLUG], progress=False) == (SLUG,)


@pytest.mark.parametrize("damage", ["", "{", "<html>", json.dumps({"cells": 3})])
def test_a_damaged_solution_is_said(course, damage):
    (course / "solutions" / SLUG / f"{SLUG}.ipynb").write_text(damage)
    with pytest.raises(ReleaseError, match="05-masking"):
        release(course, progress=False)


def test_a_chapter_without_a_solution_is_said(course):
    with pytest.raises(ReleaseError, match=r"06-heads"):
        release(course, ["06-heads"], progress=False)


def test_a_folder_that_is_no_course_is_said(tmp_path, solved):
    write(tmp_path, solved)
    with pytest.raises(ReleaseError, match=r"nbgrader_config\.py"):
        release(tmp_path, progress=False)


# Leaks ---------------------------------------------------------------------------------------


def test_a_leak_is_found_wherever_it_is(course, solved, tmp_path):
    notebook = nbformat.read(generate(course, SLUG, tmp_path / "fresh"), as_version=4)
    assert leaks(solved, notebook) == []
    for spoil, words in [
        (lambda c: c.update(source="Because of the mark scheme."), "a line of the solution"),
        (lambda c: c.update(source="    ### END SOLUTION"), "the marker '### END SOLUTION'"),
        (lambda c: c.update(source="check(x, graded=True)"), "a graded test"),
        (lambda c: c.update(outputs=[nbformat.v4.new_output("stream")]), "outputs"),
        (lambda c: c.update(execution_count=1), "outputs"),
    ]:
        changed = copy.deepcopy(notebook)
        spoil(cell(changed, "check-leaks_future"))
        (sentence,) = leaks(solved, changed)
        assert words in sentence
        assert "check-leaks_future" in sentence


def test_a_suspect_may_hold_a_line_that_a_solution_holds_too(solved):
    line = cell(solved, "suspect-bug_hunt").source.splitlines()[-1]
    master = copy.deepcopy(solved)
    stub = cell(master, "answer-masked_softmax")
    stub.source = (
        f"def masked_softmax(scores, mask):\n    ### BEGIN SOLUTION\n{line}\n    ### END SOLUTION"
    )
    student = copy.deepcopy(solved)
    student.cells = [cell(student, "suspect-bug_hunt")]
    assert leaks(master, student) == []
    student.cells[0].metadata["coursework"]["role"] = "check"
    assert len(leaks(master, student)) == 1
