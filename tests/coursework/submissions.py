"""What students of chapter 04 hand in: right answers, and notebooks that hold them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat

SLUG = "04-scaling"

RIGHT = {
    "score_variance": "def score_variance(d_k, n_pairs, rng):\n"
    "    q = rng.standard_normal((n_pairs, d_k))\n"
    "    k = rng.standard_normal((n_pairs, d_k))\n"
    "    return float(np.var(np.sum(q * k, axis=1)))",
    "scaled_dot_product_attention": "def softmax(x):\n"
    "    e = np.exp(x - x.max(axis=-1, keepdims=True))\n"
    "    return e / e.sum(axis=-1, keepdims=True)\n\n"
    "def scaled_dot_product_attention(q, k, v):\n"
    "    weights = softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))\n"
    "    return weights @ v, weights",
    "softmax_jacobian": "def softmax_jacobian(p):\n    return np.diag(p) - np.outer(p, p)",
    "row_entropy": "def row_entropy(weights):\n"
    "    logs = np.log(np.where(weights > 0, weights, 1))\n"
    "    return -np.sum(weights * logs, axis=-1)",
    "gradient_through_softmax": "def gradient_through_softmax(scores, upstream):\n"
    "    p = softmax(scores)\n"
    "    return p * (upstream - np.sum(p * upstream, axis=-1, keepdims=True))",
}
DIVIDED_BY_D_K = RIGHT["scaled_dot_product_attention"].replace(
    "np.sqrt(q.shape[-1])", "q.shape[-1]"
)


def notebook_maker(master: Path) -> Callable[..., Any]:
    """A function that makes a notebook with these answers; others are left as they were released.

    Args:
        master: the solution notebook, or one without answers.
    """
    released = nbformat.read(master, as_version=4)

    def make(**answers: str) -> Any:
        mine = copy.deepcopy(released)
        for cell in mine.cells:
            grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
            if cell.metadata.get("coursework", {}).get("role") == "answer":
                cell.source = answers.get(grade_id, _untouched(cell.source))
            elif grade_id == "open_question":
                cell.source = answers.get(grade_id, "YOUR ANSWER HERE")
        return mine

    return make


def _untouched(source: str) -> str:
    head = source.partition("\n")[0]
    return f"{head}\n    # YOUR CODE HERE\n    raise NotImplementedError()"
