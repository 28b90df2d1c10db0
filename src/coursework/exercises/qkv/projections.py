"""`project_qkv`: three views of the same tokens."""

from __future__ import annotations

import numpy as np

from attend.dot_product import project_qkv
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, numbers


def _tokens_and_matrices(
    rng: np.random.Generator,
    T: int,
    D: int,
    K: int,
    d_v: int,
    *leading: int,
    dtype: type = np.float64,
) -> Call:
    shapes = ((*leading, T, D), (D, K), (D, K), (D, d_v))
    return Call(tuple(numbers(rng, shape, dtype) for shape in shapes))


def _sentences(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _tokens_and_matrices(rng, 2, 3, 4, 5),
        _tokens_and_matrices(rng, 7, 5, 3, 2),
        _tokens_and_matrices(rng, 1, 11, 2, 3),
        _tokens_and_matrices(rng, 5, 2, 7, 11),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _tokens_and_matrices(rng, 3, 5, 4, 7, 2),
        _tokens_and_matrices(rng, 2, 7, 3, 5, 11),
        _tokens_and_matrices(rng, 5, 3, 2, 4, 1),
        _tokens_and_matrices(rng, 3, 2, 5, 7, 4, 11),
        in_columns(_tokens_and_matrices(rng, 5, 4, 7, 3, 2)),
        _tokens_and_matrices(rng, 3, 5, 2, 7, 4, dtype=np.float32),
    )


def _square_matrices(rng: np.random.Generator) -> tuple[Call, ...]:
    """Where a transposed matrix does not raise an error, and all three results are of one shape."""
    return tuple(_tokens_and_matrices(rng, T, D, D, D) for T, D in ((2, 3), (7, 5), (3, 2), (2, 7)))


def _transposed(x, w_q, w_k, w_v):
    return x @ w_q.T, x @ w_k.T, x @ w_v.T


def _keys_and_values_swapped(x, w_q, w_k, w_v):
    return x @ w_q, x @ w_v, x @ w_k


def _queries_and_keys_swapped(x, w_q, w_k, w_v):
    return x @ w_k, x @ w_q, x @ w_v


def _one_matrix(x, w_q, w_k, w_v):
    return x @ w_q, x @ w_q, x @ w_q


def _keys_from_queries(x, w_q, w_k, w_v):
    return x @ w_q, x @ w_q, x @ w_v


def _columns(x, w_q, w_k, w_v):
    return tuple(np.swapaxes(x @ w, -1, -2) for w in (w_q, w_k, w_v))


def _columns_of_a_matrix(x, w_q, w_k, w_v):
    return w_q.T @ x.T, w_k.T @ x.T, w_v.T @ x.T


def _one_array(x, w_q, w_k, w_v):
    return np.concatenate([x @ w_q, x @ w_k, x @ w_v], axis=-1)


def _values_left_alone(x, w_q, w_k, w_v):
    return x @ w_q, x @ w_k, x


PROJECT_QKV = Exercise(
    chapter=3,
    signature="project_qkv(x, w_q, w_k, w_v) -> (q, k, v)",
    task="""\
Look at each token in three ways: as one that asks, as one that is found, and as one that is handed
over.

- `x` is `(..., T, D)`, one token a row, with any leading axes. `w_q` and `w_k` are `(D, K)`, `w_v`
  is `(D, d_v)`; `T`, `D`, `K` and `d_v` need not be equal.
- Return the tuple `(q, k, v)` of NumPy arrays, `(..., T, K)`, `(..., T, K)` and `(..., T, d_v)`.
  Each row of `q` is the row of `x` times `w_q`, and so on. No bias.
- Inputs are float64 or float32 in any memory order; leave them as they are.""",
    reference=project_qkv,
    properties=(
        Property("each of q, k and v is x times its own matrix", 2, _sentences),
        Property("any leading axes, float32, any memory order", 1, _batches),
    ),
    misconceptions=(
        Misconception(
            "transposes the matrices",
            "Your matrices are transposed. They are (in, out), D rows and K columns, and are used "
            "as they are: `x @ w`. If an error told you that the sizes do not fit, that was why.",
            _transposed,
            symptom="the matrices are the wrong way round",
        ),
        Misconception(
            "swaps keys and values",
            "k comes from w_v and v from w_k. Keys are what queries are compared with, so they "
            "have the width of the queries.",
            _keys_and_values_swapped,
            symptom="keys and values have changed places",
        ),
        Misconception(
            "swaps queries and keys",
            "q comes from w_k and k from w_q. Shapes cannot tell the two apart, but roles can: the "
            "query asks, the key is found.",
            _queries_and_keys_swapped,
            symptom="queries and keys have changed places",
        ),
        Misconception(
            "uses one matrix for all three",
            "q, k and v all come from w_q. Then every token seeks exactly what it offers. Each of "
            "the three views has a matrix of its own.",
            _one_matrix,
            symptom="q, k and v are all the same",
        ),
        Misconception(
            "makes the keys with w_q",
            "k comes from w_q, as q does. Then every token finds itself best. Keys have a matrix "
            "of their own, w_k.",
            _keys_from_queries,
            symptom="q and k are the same",
        ),
        Misconception(
            "returns columns for rows",
            "Your tokens stand in columns. In this course a token is a *row*, in x and in what "
            "becomes of it: x @ w, with nothing transposed before or after.",
            _columns,
            symptom="your results are turned round",
            also=(_columns_of_a_matrix,),
        ),
        Misconception(
            "returns one array",
            "The three are side by side in one array. Return them as a tuple of three.",
            _one_array,
            symptom="one array came back instead of three",
        ),
        Misconception(
            "hands over the tokens themselves",
            "v is x itself. What a token hands over is a view of it as well, x @ w_v, and w_v is "
            "learned like the others.",
            _values_left_alone,
            symptom="the values are the tokens as they came",
        ),
    ),
    hints=(
        "A row of `x` has D numbers, a row of `q` has K. Which product of a row with a matrix "
        "makes K numbers of D?",
        "Three matrix products with the same `x`, one for each matrix. `@` treats leading axes as "
        "a batch, so that nothing more is needed for them.",
        "`x @ w_q` is the first of the three.",
    ),
    minutes=8,
    returns=("q", "k", "v"),
    probes=_square_matrices,
)
