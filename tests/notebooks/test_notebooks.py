"""The course's own notebooks: solutions in step, releases fresh, grades as they must be."""

import copy
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbgrader.api import Gradebook
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.utils import determine_grade, is_grade, is_locked, is_solution

from coursework import markers
from coursework.bug_hunt import PUBLISHED_SEED
from coursework.chapters import by_slug
from coursework.exercises import declared_chapters, for_chapter
from coursework.release import leaks, slugs_with_solutions, stale
from coursework.sync import drift, solution_path

ROOT = Path(__file__).parents[2]
SLUGS = slugs_with_solutions(ROOT)

every_chapter = pytest.mark.parametrize("slug", SLUGS)


def master_of(slug):
    return nbformat.read(solution_path(ROOT, by_slug(slug)), as_version=4)


def released(slug):
    return nbformat.read(ROOT / "notebooks" / slug / f"{slug}.ipynb", as_version=4)


def grade_id(cell):
    return cell.metadata.get("nbgrader", {}).get("grade_id")


def role(cell):
    return cell.metadata.get("coursework", {}).get("role")


def autograded(notebook):
    """The cells that a machine grades: tests, and not what somebody has to read."""
    return [c for c in notebook.cells if is_grade(c) and not is_solution(c)]


# Text ----------------------------------------------------------------------------------------


def test_every_chapter_with_exercises_has_its_solutions():
    assert [c.slug for c in declared_chapters()] == list(SLUGS)


@every_chapter
def test_a_solution_notebook_says_what_the_declarations_say(slug):
    assert drift(master_of(slug), by_slug(slug), PUBLISHED_SEED) == []


@every_chapter
def test_markers_are_spelt_right(slug):
    assert markers.faults(master_of(slug)) == []


@every_chapter
def test_student_notebooks_are_fresh(slug):
    assert stale(ROOT, [slug]) == [], "course release makes them anew"


def test_no_student_notebook_comes_from_nowhere():
    assert {p.name for p in (ROOT / "notebooks").iterdir() if p.is_dir()} == set(SLUGS)


@every_chapter
def test_a_student_notebook_holds_no_answer_no_hidden_test_and_no_output(slug):
    notebook = released(slug)
    assert leaks(master_of(slug), notebook) == []
    text = nbformat.writes(notebook)
    for word in ("BEGIN ", "END SOLUTION", "HIDDEN TESTS", "graded=True", "ark scheme"):
        assert word not in text


@every_chapter
def test_every_answer_of_a_student_notebook_is_a_stub(slug):
    for cell in released(slug).cells:
        if role(cell) == "answer":
            stub = r"\n {4,}# YOUR CODE HERE\n {4,}raise NotImplementedError\(\)\Z"  # deeper in a class
            assert re.search(stub, cell.source)
            assert re.match(r"(def|class) \w+", cell.source)
        if role(cell) == "open_question":
            assert cell.source.endswith("YOUR ANSWER HERE")
            assert cell.source != "YOUR ANSWER HERE", "the question itself is missing"


@every_chapter
@pytest.mark.parametrize("make", [master_of, released])
def test_a_notebook_is_valid_for_jupyter_and_nbgrader(slug, make):
    notebook = make(slug)
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)


@every_chapter
def test_points_are_those_of_the_declarations(slug):
    declared = {f"graded_{e.name}": e.max_points for e in for_chapter(by_slug(slug).number)}
    for notebook in (master_of(slug), released(slug)):
        points = {grade_id(c): c.metadata["nbgrader"]["points"] for c in autograded(notebook)}
        assert points == declared


@every_chapter
def test_the_minutes_that_the_title_promises_are_those_of_the_exercises(slug):
    """Numbers in prose are checked where they can be."""
    minutes = sum(e.minutes for e in for_chapter(by_slug(slug).number))
    (promised,) = re.findall(r"about (\d+) minutes", master_of(slug).cells[0].source)
    assert abs(int(promised) - minutes) <= 10


@every_chapter
def test_solutions_store_their_outputs_and_nothing_of_the_machine(slug):
    notebook = master_of(slug)
    for cell in notebook.cells:
        if role(cell) in ("check", "graded"):
            assert cell.outputs, f"{cell.id} was not run"
            assert "right (" in cell.outputs[0]["text"], cell.id
    text = nbformat.writes(notebook)
    assert "/home/" not in text
    assert "Traceback" not in text
    assert "version" not in notebook.metadata["language_info"]


# Grades --------------------------------------------------------------------------------------


def with_hidden_tests(notebook, master):
    """What nbgrader does before it runs a submission: locked cells are the master's again."""
    notebook = copy.deepcopy(notebook)
    locked = {grade_id(c): c.source for c in master.cells if is_locked(c)}
    for cell in notebook.cells:
        cell.source = locked.get(grade_id(cell), cell.source)
    return notebook


def run(notebook, folder):
    NotebookClient(
        notebook, allow_errors=True, timeout=120, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return notebook


def grades(notebook):
    return {grade_id(c): determine_grade(c) for c in notebook.cells if is_grade(c)}


@pytest.mark.slow
@every_chapter
def test_an_untouched_notebook_scores_nothing_anywhere(slug, tmp_path):
    master = master_of(slug)
    notebook = run(with_hidden_tests(released(slug), master), tmp_path)
    scores = grades(notebook)
    assert {id: score for id, (score, _) in scores.items()} == dict.fromkeys(scores, 0)
    assert len(scores) == len(for_chapter(by_slug(slug).number)) + 1
    for cell in notebook.cells:
        if cell.cell_type != "code" or role(cell) == "answer":
            continue
        errors = [o.evalue for o in cell.outputs if o.output_type == "error"]
        assert errors == [], f"{cell.id} does not run before the exercises are done"
        assert not [o for o in cell.outputs if o.get("name") == "stderr"], cell.id
        if role(cell) in ("check", "graded"):
            assert "still to do" in cell.outputs[0]["text"]


@every_chapter
def test_the_solutions_score_full_marks(slug):
    """By the outputs that they store; nbval sees to it that running them gives these again."""
    for cell in autograded(master_of(slug)):
        score, most = determine_grade(cell)
        assert score == most > 0, cell.outputs
        (value,) = (o["data"]["text/plain"] for o in cell.outputs if "data" in o)
        assert value == str(float(most))  # a plain Python number, which is all that nbgrader reads


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["08-language-model", "12-real-model"])
def test_demonstrations_of_a_solved_notebook_find_what_they_need(slug, tmp_path):
    """Their outputs depend on the machine, so that nbval does not compare them."""
    notebook = run(master_of(slug), tmp_path)
    said = "".join(o.get("text", "") for c in notebook.cells for o in c.get("outputs", ()))
    assert "not the same yet" not in said  # of the reader's own model
    assert not re.search(r"^Write .* first\.$", said, re.MULTILINE)  # of what is done


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["05-masking"])  # all kinds of cells; half a minute
def test_plain_nbgrader_grades_as_the_course_does(slug, tmp_path):
    """One course, three students: all done, nothing done, and one answer of which is wrong."""
    master, untouched = master_of(slug), released(slug)
    answers = {c.id: markers_removed(c.source) for c in master.cells if role(c) == "answer"}
    done = copy.deepcopy(untouched)
    for cell in done.cells:
        cell.source = answers.get(cell.id, cell.source)
        if role(cell) == "open_question":
            cell.source = "My answer, with a word of reason."
    wrong = copy.deepcopy(done)
    first = next(c for c in wrong.cells if role(c) == "answer")
    first.source += "\n\n" + f"{grade_id(first)} = lambda *args, **kwargs: None"

    a_course(tmp_path, slug, {"ada": done, "bob": untouched, "eve": wrong})
    nbgrader(tmp_path, "generate_assignment", slug)
    nbgrader(tmp_path, "autograde", slug)

    exercises = for_chapter(by_slug(slug).number)
    full = {f"graded_{e.name}": float(e.max_points) for e in exercises}
    with Gradebook(f"sqlite:///{tmp_path}/classroom/gradebook.db") as book:
        scores = {}
        for student in ("ada", "bob", "eve"):
            notebook = book.find_submission_notebook(slug, slug, student)
            scores[student] = {g.name: g.auto_score for g in notebook.grades}
            assert any(g.needs_manual_grade for g in notebook.grades) == (student != "bob")
    assert scores["ada"] == {**full, "open_question": None}
    assert scores["bob"] == dict.fromkeys((*full, "open_question"), 0.0)
    assert scores["eve"][f"graded_{exercises[0].name}"] == 0.0
    assert sum(v or 0 for v in scores["eve"].values()) > 0


def markers_removed(source):
    return "\n".join(x for x in source.splitlines() if x.strip() not in markers.MARKERS)


def a_course(root, slug, submissions):
    shutil.copy(ROOT / "nbgrader_config.py", root)
    shutil.copytree(ROOT / "solutions" / slug, root / "solutions" / slug)
    for student, notebook in submissions.items():
        folder = root / "classroom" / "submitted" / student / slug
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{slug}.ipynb")


def nbgrader(root, *arguments):
    done = subprocess.run(
        ["nbgrader", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONWARNINGS": "default"},  # warnings on stderr must not cost points
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
