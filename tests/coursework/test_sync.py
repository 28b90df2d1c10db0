"""Solution notebooks say what the declarations say, and keep what is written by hand."""

import copy
from dataclasses import replace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.nbgraderformat import MetadataValidator

from coursework import sync as module
from coursework.chapters import by_slug
from coursework.errors import CourseError
from coursework.evaluate import evaluate_exercise
from coursework.exercises import for_chapter
from coursework.sync import drift, executed, generated_cells, skeleton, sync

CHAPTER = by_slug("05-masking")
EXERCISES = for_chapter(CHAPTER.number)
ANSWERED = "Who sees what?\n\n### BEGIN SOLUTION\nA model answer, 4 points.\n### END SOLUTION"


@pytest.fixture
def notebook():
    """A notebook without drift: its open question is written, its answers are stubs."""
    made = skeleton(CHAPTER)
    cell(made, "open_question").source = ANSWERED
    return made


def cell(notebook, id):
    return next(c for c in notebook.cells if c.id == id)


def ids(notebook):
    return [c.id for c in notebook.cells]


# What is written -----------------------------------------------------------------------------


def test_a_new_notebook_holds_everything_but_the_answers(notebook):
    assert ids(notebook)[:2] == ["title", "setup"]
    assert ids(notebook)[-1] == "open_question"
    for exercise in EXERCISES:
        around = ["task", "answer", "check", "graded", "hints"]
        if exercise.name == "bug_hunt":
            around = ["suspect", *around]
        names = [f"{role}-{exercise.name}" for role in around]
        at = ids(notebook).index(names[0])
        assert ids(notebook)[at : at + len(names)] == names
    assert drift(notebook, CHAPTER) == []


def test_a_new_notebook_is_valid_for_jupyter_and_for_nbgrader(notebook):
    nbformat.validate(notebook)
    MetadataValidator().validate_nb(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)


def test_the_task_announces_points_minutes_and_all_that_is_graded():
    for exercise in EXERCISES:
        task = generated_cells(exercise)["task"].source
        assert exercise.task.strip() in task
        assert f"{exercise.max_points} points" in task
        assert f"about {exercise.minutes} minutes" in task
        for prop in exercise.properties:
            assert f"| {prop.points} | {prop.name} |" in task


def test_points_of_a_graded_cell_are_those_of_its_properties():
    for exercise in EXERCISES:
        nbgrader = generated_cells(exercise)["graded"].metadata["nbgrader"]
        assert nbgrader["points"] == sum(p.points for p in exercise.properties)
        assert nbgrader["grade"]
        assert nbgrader["locked"]
        assert not nbgrader["solution"]


def test_three_hints_are_folded():
    for exercise in EXERCISES:
        hints = generated_cells(exercise)["hints"].source
        assert hints.count("<details>") == hints.count("</details>") == 3
        assert "open>" not in hints


def test_only_the_graded_test_is_hidden():
    for exercise in EXERCISES:
        for role, made in generated_cells(exercise).items():
            assert ("graded=True" in made.source) == (role == "graded")
            assert ("BEGIN HIDDEN TESTS" in made.source) == (role == "graded")


def test_the_instructors_seed_chooses_the_suspect():
    suspects = {cell(skeleton(CHAPTER, seed), "suspect-bug_hunt").source for seed in range(12)}
    assert len(suspects) >= 3
    for seed in range(12):
        made = skeleton(CHAPTER, seed)
        number = cell(made, "check-bug_hunt").source.rpartition("variant=")[2].rstrip(")")
        assert (
            cell(made, "suspect-bug_hunt").source
            == generated_cells(module.declared(CHAPTER, seed)[-1], int(number))["suspect"].source
        )
        assert f"variant={number}, graded=True" in cell(made, "graded-bug_hunt").source


def test_a_class_is_asked_for_as_a_class():
    exercise = replace(EXERCISES[0], signature="class Cache(batch, n_tokens)")
    head = "class Cache:\n    def __init__(self, batch, n_tokens):\n        ### BEGIN SOLUTION"
    assert module._stub(exercise).source.startswith(head)


def test_a_new_answer_comes_behind_the_exercise_before_it(notebook):
    before = ids(notebook)
    mine = [c for c in notebook.cells if not c.id.endswith("-leaks_future")]
    assert len(mine) == len(notebook.cells) - 5
    notebook.cells = mine
    assert ids(sync(notebook, CHAPTER)) == before


def test_another_hunt_is_kept_and_its_answer_is_the_declared_one(notebook):
    cell(notebook, "answer-bug_hunt").source = "def bug_hunt(): ...  # to the published one"
    variants = {seed: module.declared(CHAPTER, seed)[-1].variant for seed in range(12)}
    seed = next(s for s, variant in variants.items() if variant != variants[0])
    changed = sync(notebook, CHAPTER, seed)
    assert f"variant={variants[seed]})" in cell(changed, "check-bug_hunt").source
    assert sync(changed, CHAPTER) == changed
    assert drift(changed, CHAPTER) == []
    assert drift(changed, CHAPTER, 0) != []
    namespace = {}
    exec(cell(changed, "answer-bug_hunt").source, namespace)
    exercise = for_chapter(CHAPTER.number, variants[seed])[-1]
    assert evaluate_exercise(exercise, namespace["bug_hunt"], (0,)).passed
    same = sync(notebook, CHAPTER, 0)
    assert "to the published one" in cell(same, "answer-bug_hunt").source


def test_a_hunt_that_is_no_more_becomes_the_published_one(notebook):
    check = cell(notebook, "check-bug_hunt")
    check.source = check.source.partition("variant=")[0] + "variant=99)"
    assert drift(notebook, CHAPTER) != []
    assert sync(notebook, CHAPTER).cells[-4].source == cell(skeleton(CHAPTER), check.id).source


# What is kept --------------------------------------------------------------------------------


def test_synchronising_twice_changes_nothing_more(notebook):
    assert sync(notebook, CHAPTER) == notebook


def test_the_given_notebook_is_left_as_it_was(notebook):
    del notebook.cells[5]
    before = copy.deepcopy(notebook)
    sync(notebook, CHAPTER)
    assert notebook == before


def test_what_is_written_by_hand_keeps_its_text_and_its_order(notebook):
    by_hand = [new_markdown_cell("why", id="why"), new_code_cell("1 + 1", id="demo")]
    at = ids(notebook).index("task-masked_softmax")
    notebook.cells[at:at] = by_hand
    cell(notebook, "answer-masked_softmax").source = "def masked_softmax(scores, mask): ..."
    cell(notebook, "demo").metadata["tags"] = ["demo"]
    changed = sync(notebook, CHAPTER)
    assert ids(changed) == ids(notebook)
    assert changed == notebook


def test_a_cell_between_an_answer_and_its_check_moves_behind_them_and_is_not_lost(notebook):
    at = ids(notebook).index("check-causal_mask")
    notebook.cells.insert(at, new_markdown_cell("a remark", id="remark"))
    assert "the generated cells do not stand around their answers" in drift(notebook, CHAPTER)
    changed = sync(notebook, CHAPTER)
    at = ids(changed).index("answer-causal_mask")
    assert ids(changed)[at + 1 : at + 5] == [
        *(f"{role}-causal_mask" for role in ("check", "graded", "hints")),
        "remark",
    ]
    assert drift(changed, CHAPTER) == []


def test_outputs_are_kept_with_the_code_that_made_them_and_no_longer(notebook):
    output = nbformat.v4.new_output("stream", text="5.0\n")
    for id in ("check-causal_mask", "graded-causal_mask"):
        cell(notebook, id).outputs = [output]
        cell(notebook, id).execution_count = 7
    cell(notebook, "graded-causal_mask").source = "check('05.causal_mask', causal_mask)"
    changed = sync(notebook, CHAPTER)
    assert cell(changed, "check-causal_mask").outputs == [output]
    assert cell(changed, "check-causal_mask").execution_count == 7
    assert cell(changed, "graded-causal_mask").outputs == []


def test_cells_without_ids_and_machines_versions_are_put_in_order(notebook):
    old = new_notebook(cells=[new_markdown_cell("# Title"), *notebook.cells[1:]])
    del old.cells[0]["id"]
    old.nbformat_minor = 4
    old.metadata = {"kernelspec": {"name": "conda-env", "display_name": "x"}, "authors": []}
    changed = sync(old, CHAPTER)
    nbformat.validate(changed)
    assert changed.metadata["kernelspec"]["name"] == "python3"
    assert changed.metadata["authors"] == []


def test_points_of_the_open_question_are_the_authors(notebook):
    cell(notebook, "open_question").metadata["nbgrader"]["points"] = 7
    assert cell(sync(notebook, CHAPTER), "open_question").metadata["nbgrader"]["points"] == 7
    assert drift(notebook, CHAPTER) == []


# Drift ---------------------------------------------------------------------------------------


def _with(change):
    """Names a change of a notebook, for the test below."""
    return pytest.param(change, id=change.__name__)


def points_changed(notebook):
    cell(notebook, "graded-causal_mask").metadata["nbgrader"]["points"] = 1000
    return "05.causal_mask: its graded cell is worth 1000 points; the declaration says 5"


def task_edited(notebook):
    cell(notebook, "task-padding_mask").source += "\n\nPlease."
    return "05.padding_mask: its task cell does not say what the declaration says"


def hint_deleted(notebook):
    del notebook.cells[ids(notebook).index("hints-leaks_future")]
    return "05.leaks_future: its hints cell is missing"


def answer_deleted(notebook):
    del notebook.cells[ids(notebook).index("answer-leaks_future")]
    return "05.leaks_future: its answer cell is missing"


def suspect_mended(notebook):
    cell(notebook, "suspect-bug_hunt").source = "suspect = masked_softmax"
    return "05.bug_hunt: its suspect cell does not say what the declaration says"


def lock_removed(notebook):
    cell(notebook, "graded-causal_mask").metadata["nbgrader"]["locked"] = False
    return "05.causal_mask: its graded cell has other metadata than it should"


def answer_without_its_mark(notebook):
    cell(notebook, "answer-causal_mask").metadata["nbgrader"]["solution"] = False
    return "05.causal_mask: its answer cell has other metadata than it should"


def cell_copied(notebook):
    notebook.cells.insert(9, copy.deepcopy(cell(notebook, "graded-causal_mask")))
    return "05.causal_mask: its graded cell is there twice"


def exercise_that_is_no_more(notebook):
    old = new_code_cell("1", id="x", metadata={"coursework": {"exercise": "05.y", "role": "check"}})
    notebook.cells.insert(4, old)
    return "05.y: its check cell belongs to no exercise of this chapter"


def answer_that_is_no_more(notebook):
    metadata = {"coursework": {"exercise": "05.y", "role": "answer"}}
    notebook.cells.insert(4, new_code_cell("1", id="x", metadata=metadata))
    return "05.y: its answer cell belongs to no exercise of this chapter"


def other_parameters(notebook):
    stub = cell(notebook, "answer-causal_mask")
    stub.source = stub.source.replace("T, S=None", "T, S")
    return (
        "05.causal_mask: its answer cell defines causal_mask(T, S); "
        "the declaration says causal_mask(T, S=None)"
    )


def other_name(notebook):
    stub = cell(notebook, "answer-causal_mask")
    stub.source = stub.source.replace("causal_mask", "mask")
    return (
        "05.causal_mask: its answer cell defines something else; "
        "the declaration says causal_mask(T, S=None)"
    )


def no_markers(notebook):
    cell(notebook, "answer-causal_mask").source = "def causal_mask(T, S=None): ..."
    return (
        "05.causal_mask: its answer cell has no '### BEGIN SOLUTION', "
        "so that its first line is not released"
    )


def not_python(notebook):
    cell(notebook, "answer-causal_mask").source += "\n)"
    return "05.causal_mask: its answer cell is not Python: unmatched ')' in line 5"


def setup_deleted(notebook):
    del notebook.cells[1]
    return "the setup cell is missing"


def nothing_to_mark(notebook):
    cell(notebook, "open_question").source = "### BEGIN SOLUTION\n### END SOLUTION"
    return "the open question has no answer with its mark scheme between the markers"


def question_moved(notebook):
    notebook.cells.insert(3, notebook.cells.pop())
    return "the open question is not the last cell"


def other_kernel(notebook):
    notebook.metadata["language_info"] = {"name": "python", "version": "3.11.2"}
    return "the notebook's metadata name another kernel, or versions of this machine"


def other_cell_id(notebook):
    cell(notebook, "hints-causal_mask").id = "0123abcd"
    return "05.causal_mask: its hints cell has other metadata than it should"


def marker_misspelt(notebook):
    stub = cell(notebook, "answer-causal_mask")
    stub.source += "\n### END SOLUTON"
    return (
        "cell answer-causal_mask: '### END SOLUTON' is no marker; did you mean '### END SOLUTION'?"
    )


@pytest.mark.parametrize(
    "change",
    [
        _with(points_changed),
        _with(task_edited),
        _with(hint_deleted),
        _with(answer_deleted),
        _with(suspect_mended),
        _with(lock_removed),
        _with(answer_without_its_mark),
        _with(cell_copied),
        _with(exercise_that_is_no_more),
        _with(answer_that_is_no_more),
        _with(other_parameters),
        _with(other_name),
        _with(no_markers),
        _with(not_python),
        _with(setup_deleted),
        _with(nothing_to_mark),
        _with(question_moved),
        _with(other_kernel),
        _with(other_cell_id),
        _with(marker_misspelt),
    ],
)
def test_drift_is_said_in_a_sentence(notebook, change):
    sentence = change(notebook)
    assert sentence in drift(notebook, CHAPTER)


def test_answers_in_another_order_are_said(notebook):
    a, b = (ids(notebook).index(f"answer-{n}") for n in ("causal_mask", "masked_softmax"))
    notebook.cells[a], notebook.cells[b] = notebook.cells[b], notebook.cells[a]
    (sentence,) = drift(sync(notebook, CHAPTER), CHAPTER)
    assert sentence.startswith("the answers stand in the order 05.masked_softmax, 05.causal_mask")


def test_another_seed_is_drift(notebook):
    others = [s for s in range(12) if skeleton(CHAPTER, s).cells != skeleton(CHAPTER).cells]
    assert others
    assert any("05.bug_hunt" in s for s in drift(notebook, CHAPTER, others[0]))


def test_a_changed_declaration_is_drift_until_it_is_synchronised(notebook, monkeypatch):
    first = EXERCISES[0]
    worth_more = replace(first.properties[0], points=9)
    changed = replace(first, properties=(worth_more, *first.properties[1:]))
    monkeypatch.setattr(module, "declared", lambda *_: (changed, *EXERCISES[1:]))
    assert drift(notebook, CHAPTER) == [
        "05.causal_mask: its task cell does not say what the declaration says",
        "05.causal_mask: its graded cell is worth 5 points; the declaration says 12",
    ]
    after = sync(notebook, CHAPTER)
    assert drift(after, CHAPTER) == []
    assert cell(after, "graded-causal_mask").metadata["nbgrader"]["points"] == 12


# Running -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_running_a_notebook_stores_outputs_and_nothing_of_the_machine(tmp_path):
    made = new_notebook(cells=[new_code_cell("1 + 1", id="a"), new_code_cell("print(3)", id="b")])
    made.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    before = copy.deepcopy(made)
    ran = executed(made, tmp_path)
    assert made == before
    assert ran.metadata == before.metadata
    assert ran.cells[0].outputs[0]["data"]["text/plain"] == "2"
    assert ran.cells[1].outputs[0]["text"] == "3\n"
    assert all(c.metadata == {} for c in ran.cells)


@pytest.mark.slow
def test_a_cell_that_raises_is_said_in_a_sentence(tmp_path):
    made = new_notebook(cells=[new_code_cell("1 / 0", id="a")])
    with pytest.raises(CourseError, match="a cell raises ZeroDivisionError: division by zero"):
        executed(made, tmp_path)
