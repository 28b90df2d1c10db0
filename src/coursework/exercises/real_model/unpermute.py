"""`unpermute_rope`: rows in the order of one layout of RoPE, for the other one."""

from __future__ import annotations

import numpy as np
import torch

from attend.checkpoints import unpermute_rope
from coursework.exercise import Call, Exercise, Misconception, Property


def matrix(
    rng: np.random.Generator, n_heads: int, d_head: int, d_in: int, dtype=torch.float64
) -> Call:
    """A random matrix (n_heads · d_head, d_in) and the number of heads."""
    return Call(
        (torch.from_numpy(rng.standard_normal((n_heads * d_head, d_in))).to(dtype), n_heads)
    )


def _several_heads(rng: np.random.Generator) -> tuple[Call, ...]:
    sizes = ((2, 6, 8), (3, 8, 12), (2, 10, 24), (3, 6, 36), (5, 8, 30), (2, 14, 12))
    return tuple(matrix(rng, *size) for size in sizes)


def _wide_heads(rng: np.random.Generator) -> tuple[Call, ...]:
    return tuple(matrix(rng, *size) for size in ((1, 6, 4), (1, 16, 10), (9, 64, 5), (3, 64, 18)))


def _other_floats(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        matrix(rng, 3, 6, 4, torch.float32),
        matrix(rng, 2, 2, 6),
        matrix(rng, 4, 2, 3, torch.float32),
        matrix(rng, 3, 4, 12),
        matrix(rng, 2, 6, 12),  # square
        matrix(rng, 2, 8, 1),
    )


def _order(d_head):
    return [*range(0, d_head, 2), *range(1, d_head, 2)]


def _left_alone(w, n_heads):
    return w.clone()


def _inverse(w, n_heads):
    rows, d_in = w.shape
    w = w.reshape(n_heads, 2, rows // n_heads // 2, d_in)
    return w.transpose(1, 2).reshape(rows, d_in)


def _across_heads(w, n_heads):
    return torch.cat([w[0::2], w[1::2]])


def _width_of_the_columns(w, n_heads):
    rows, d_in = w.shape
    d_head = d_in // n_heads
    w = w.reshape(rows // d_head, d_head // 2, 2, d_in)
    return w.transpose(1, 2).reshape(rows, d_in)


def _heads_fastest(w, n_heads):
    rows, d_in = w.shape
    w = w.reshape(rows // n_heads // 2, 2, n_heads, d_in)
    return w.transpose(0, 1).reshape(rows, d_in)


def _odd_first(w, n_heads):
    rows, d_in = w.shape
    heads = w.reshape(n_heads, rows // n_heads, d_in)
    return torch.cat([heads[:, 1::2], heads[:, 0::2]], dim=1).reshape(rows, d_in)


def _halves_exchanged(w, n_heads):
    rows, d_in = w.shape
    heads = w.reshape(n_heads, rows // n_heads, d_in)
    half = rows // n_heads // 2
    return torch.cat([heads[:, half:], heads[:, :half]], dim=1).reshape(rows, d_in)


def _columns(w, n_heads):
    return torch.cat([w[:, 0::2], w[:, 1::2]], dim=1)


def _transposed(w, n_heads):
    rows, d_in = w.shape
    w = w.reshape(n_heads, rows // n_heads // 2, 2, d_in)
    return w.transpose(1, 2).reshape(rows, d_in).T


def _heads_kept_apart(w, n_heads):
    rows, d_in = w.shape
    w = w.reshape(n_heads, rows // n_heads // 2, 2, d_in)
    return w.transpose(1, 2).reshape(n_heads, rows // n_heads, d_in)


def _first_head_only(w, n_heads):
    d_head = w.shape[0] // n_heads
    head = w[:d_head]
    return torch.cat([head[0::2], head[1::2], w[d_head:]])


UNPERMUTE_ROPE = Exercise(
    chapter=12,
    signature="unpermute_rope(w, n_heads) -> (n_heads * K, D_in)",
    task="""\
In a GGUF file of a Llama the rows of the query and key matrices stand in the *interleaved* order:
within each head, rows 0 and 1 make the first pair that RoPE turns, rows 2 and 3 the second, and so
on. Our RoPE turns *halves*: feature $i$ with feature $i + K/2$. Bring the rows of each head into
the order that ours needs: 0, 2, 4, …, then 1, 3, 5, …

- `w` is as published, `(out, in)`: a tensor `(n_heads * K, D_in)`, float64 or float32. Head `h`
  owns the rows `h*K` … `(h+1)*K - 1`. `K` is even and follows from `w` and `n_heads`; `D_in` may
  be any number and has nothing to do with it.
- Return a tensor of the same shape and dtype: the same rows in another order, each within its head.
  It is still `(out, in)`. Leave `w` as it is.""",
    reference=unpermute_rope,
    properties=(
        Property("the rows of each head: even ones first, then odd ones", 2, _several_heads),
        Property("a single head, and heads of a real model's width", 1, _wide_heads),
        Property("narrow heads, square matrices, float32", 1, _other_floats, edge=True),
    ),
    misconceptions=(
        Misconception(
            "leaves the rows as they are",
            "These are the rows as they were published. The file turns neighbours, our RoPE turns "
            "halves: without another order every pair is a wrong pair.",
            _left_alone,
            symptom="nothing has moved",
        ),
        Misconception(
            "goes the other way",
            "This is the inverse, which carries halves into pairs of neighbours. For heads of "
            "width 4 the two are the same, so a small test does not tell them apart.",
            _inverse,
            symptom="the rows are in order for the other layout",
        ),
        Misconception(
            "permutes across heads",
            "You take the even rows of the whole matrix, then the odd ones. That mixes the heads: "
            "each head keeps its own rows.",
            _across_heads,
            symptom="rows have moved to other heads",
        ),
        Misconception(
            "takes the width of a head from the columns",
            "You divide the number of *columns* by the number of heads. For a square matrix that "
            "is K as well; keys have fewer rows. K is the number of rows divided by the heads.",
            _width_of_the_columns,
            symptom="right for a square matrix, wrong for others",
        ),
        Misconception(
            "lets the heads run fastest",
            "You split the rows as if neighbours belonged to different heads. A head owns K rows "
            "in a row: the axis of heads comes first.",
            _heads_fastest,
            symptom="the rows are split into heads in the wrong order",
        ),
        Misconception(
            "puts the odd rows first",
            "You put the odd rows first. The first half holds the first partner of every pair, and "
            "RoPE does not treat the two alike: the sine has a sign.",
            _odd_first,
            symptom="the two halves have changed places",
        ),
        Misconception(
            "exchanges the halves",
            "You exchange the two halves of each head. The halves are what is to be made; in the "
            "file partners stand side by side.",
            _halves_exchanged,
            symptom="whole halves have moved",
        ),
        Misconception(
            "permutes the columns",
            "You reorder the columns. They are the inputs, the token's features. What RoPE turns "
            "are the outputs, and in a published matrix those are the rows.",
            _columns,
            symptom="the columns have moved, not the rows",
        ),
        Misconception(
            "transposes as well",
            "The order is right, and the matrix is transposed. It should stay (out, in) here; "
            "`load_block` transposes.",
            _transposed,
            symptom="rows and columns are exchanged",
        ),
        Misconception(
            "keeps an axis of heads",
            "The order is right. What comes back should be a matrix again: put the heads one below "
            "the other.",
            _heads_kept_apart,
            symptom="there is an axis too many",
        ),
        Misconception(
            "permutes the first head only",
            "Only the first head is in order. All of them are turned.",
            _first_head_only,
            symptom="right in the first head, wrong in the others",
        ),
    ),
    hints=(
        "Write 0, 1, 2, … into a matrix with one column, two heads of width 6, and say by hand "
        "what should come out: 0 2 4 1 3 5, and then?",
        "Give the rows an axis of heads of their own, so that you can index within a head. Take "
        "the even ones, then the odd ones, and put the axes back together.",
        "`heads = w.reshape(n_heads, K, D_in)` with K from the number of rows; `heads[:, 0::2]` "
        "and `heads[:, 1::2]` side by side along axis 1.",
    ),
    minutes=12,
    keeps_dtype=True,
)
