"""Figures: one style, colours that the book can exchange, and matplotlib only when it is drawn."""

import io
import re
import subprocess
import sys

import numpy as np
import pytest

from attend.figures import COLOURS, INK, RULE, show_weights, use_course_style

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def axes():
    with plt.rc_context():
        use_course_style()
        figure, axes = plt.subplots()
        yield axes
        plt.close(figure)


def svg_of(axes):
    file = io.StringIO()
    axes.figure.savefig(file, format="svg")
    return file.getvalue()


def test_importing_the_module_does_not_import_matplotlib():
    look = "import attend.figures, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", look]).returncode == 0


def test_everything_that_is_drawn_has_a_colour_of_the_course(axes):
    axes.plot([1, 3, 2], label="first")
    axes.plot([3, 1, 2], label="second")
    axes.bar([0, 1], [1, 2], color=COLOURS["residual"], alpha=0.5)
    axes.set(title="title", xlabel="$d_k$", ylabel="y")
    axes.grid()
    axes.legend()
    found = set(re.findall(r"#[0-9a-f]{6}\b", svg_of(axes)))
    assert {COLOURS["query"], COLOURS["key"], COLOURS["residual"], INK, RULE} <= found
    assert found <= {*COLOURS.values(), INK, RULE}


def test_the_same_figure_is_the_same_file(axes):
    def drawn():
        fresh = plt.figure().add_subplot()
        fresh.plot([1, 3, 2])
        return re.sub("<dc:date>.*?</dc:date>", "", svg_of(fresh))

    assert drawn() == drawn()
    plt.close("all")


def test_weights_are_shaded_in_proportion_and_carry_their_number(axes):
    show_weights(axes, np.array([[0.5, 1.0, 0.0]]), ["it"], ["a", "b", "c"], digits=1)
    shades = [patch.get_alpha() for patch in axes.patches if patch.get_alpha() is not None]
    assert shades[1] == 2 * shades[0] > 0
    assert shades[2] == 0
    assert [text.get_text() for text in axes.texts] == ["0.5", "1.0", "0.0"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b", "c"]


def test_a_masked_cell_gets_a_cross_and_no_number_and_a_hole_gets_neither(axes):
    weights = np.array([[1.0, 0.0], [np.nan, 1.0]])
    show_weights(axes, weights, mask=np.array([[True, False], [True, True]]))
    assert len(axes.lines) == 2, "one cross of two strokes"
    assert [text.get_text() for text in axes.texts] == ["1.00", "1.00"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"weights": np.zeros(3)}, "must be a matrix"),
        ({"weights": np.zeros((2, 3)), "rows": ["a"]}, "1 row labels"),
        ({"weights": np.zeros((2, 3)), "mask": np.ones((3, 2), bool)}, "mask has shape"),
    ],
)
def test_weights_that_do_not_fit_their_labels_are_refused(axes, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        show_weights(axes, **arguments)
