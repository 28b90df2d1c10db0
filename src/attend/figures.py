"""How the course draws: one style, one colour a thing, SVG that takes on the page's colours.

    from attend.figures import COLOURS, show_weights, use_course_style

The book puts each figure into its page as SVG and exchanges the exact colours below for the
page's own (`book/_ext/inline_figures.py`), so that a figure follows the reader into the dark. A
figure seen elsewhere, in a notebook say, keeps them: they can be read on white and on near-black.

matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: One colour for one thing, in every figure, instrument and formula of the book.
COLOURS = {
    "query": "#0072b2",
    "key": "#d55e00",
    "value": "#00795a",
    "masked": "#767676",
    "residual": "#9c4a86",
}
INK = "#757575"  #: text and axes; in the book, the colour of the page's text
RULE = "#bfbfbf"  #: grid lines and frames; in the book, the colour of its rules

_FULL_WEIGHT = 0.55  # how opaque a weight of 1 is drawn: more, and the number in it is hard to read


def use_course_style() -> None:
    """Make every figure from here on look like the course, and every notebook draw SVG."""
    import matplotlib.pyplot as plt
    from cycler import cycler

    plt.rcdefaults()
    plt.rcParams.update(
        {
            "figure.figsize": (6.4, 3.2),
            "figure.facecolor": "none",
            "figure.constrained_layout.use": True,
            "savefig.facecolor": "none",
            "savefig.transparent": True,
            "svg.fonttype": "path",  # no font to be missing, no text to run out of its place
            "svg.hashsalt": "attend",  # the same figure is the same file, build after build
            "font.size": 10,
            "axes.facecolor": "none",
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "axes.titlecolor": INK,
            "axes.titlesize": 10,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=[COLOURS[n] for n in COLOURS if n != "masked"]),
            "axes.axisbelow": True,
            "grid.color": RULE,
            "grid.linewidth": 0.6,
            "text.color": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.frameon": False,
            "legend.labelcolor": INK,
            "lines.linewidth": 1.8,
        }
    )
    try:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg")
    except (ImportError, AttributeError):  # not in a notebook: whoever saves chooses the format
        pass


def show_weights(
    ax: Axes,
    weights: np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    colour: str = COLOURS["query"],
    digits: int = 2,
    largest: float = 1.0,
    mask: np.ndarray | None = None,
) -> None:
    """Draw a matrix of weights, one shaded cell a weight with its number in it.

    Cells are shaded by opacity, not by a colour map, so that they do on any ground.

    Args:
        ax: where to draw; its limits, ticks and frame are set.
        weights: (T, S), each from 0 to `largest`; NaN is drawn as an empty cell.
        rows: T labels, by default the positions.
        columns: S labels, by default the positions.
        colour: of a full cell.
        digits: after the point; negative for no numbers at all.
        largest: the weight that is drawn fullest.
        mask: (T, S), False where a query may not attend: those cells get a cross.

    Raises:
        ValueError: `weights` is not a matrix, or the labels or the mask do not fit it.
    """
    weights = np.asarray(weights, dtype=float)
    if weights.ndim != 2:
        raise ValueError(f"weights has shape {weights.shape}: it must be a matrix (T, S)")
    n_rows, n_columns = weights.shape
    rows = [str(i) for i in range(n_rows)] if rows is None else list(rows)
    columns = [str(j) for j in range(n_columns)] if columns is None else list(columns)
    if (len(rows), len(columns)) != weights.shape:
        raise ValueError(
            f"weights has shape {weights.shape}, but there are {len(rows)} row labels "
            f"and {len(columns)} column labels"
        )
    allowed = np.ones(weights.shape, dtype=bool) if mask is None else np.asarray(mask)
    if allowed.shape != weights.shape:
        raise ValueError(f"mask has shape {allowed.shape}: it must be {weights.shape}, as weights")
    for i, j in np.ndindex(weights.shape):
        _draw_cell(ax, i, j, weights[i, j], colour, digits, largest, bool(allowed[i, j]))
    ax.set(xlim=(-0.5, n_columns - 0.5), ylim=(n_rows - 0.5, -0.5), aspect="equal")
    ax.set_xticks(range(n_columns), columns)
    ax.set_yticks(range(n_rows), rows)
    ax.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)


def _draw_cell(
    ax: Axes, i: int, j: int, weight: float, colour: str, digits: int, largest: float, allowed: bool
) -> None:
    """Draw cell (i, j): a frame, a shade, and the number or, where not allowed, a cross."""
    from matplotlib.patches import Rectangle

    corner = (j - 0.47, i - 0.47)
    frame = COLOURS["masked"] if not allowed else RULE
    ax.add_patch(Rectangle(corner, 0.94, 0.94, facecolor="none", edgecolor=frame, linewidth=0.6))
    if not allowed:
        ax.plot([j - 0.12, j + 0.12], [i - 0.12, i + 0.12], color=frame, linewidth=1)
        ax.plot([j - 0.12, j + 0.12], [i + 0.12, i - 0.12], color=frame, linewidth=1)
        if not weight > 0:
            return
    if np.isnan(weight):
        return
    shade = _FULL_WEIGHT * min(max(weight / largest, 0.0), 1.0)
    ax.add_patch(Rectangle(corner, 0.94, 0.94, facecolor=colour, alpha=shade, linewidth=0))
    if digits >= 0:
        ax.text(j, i, f"{weight:.{digits}f}", ha="center", va="center", color=INK)
