"""`is_order_blind`: does a function notice when tokens change places?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attend.positions import (
    is_order_blind,
)
from coursework.exercise import Call, Callback, Exercise, Misconception, Property, calls
from coursework.exercises.inputs import normal

# The functions f. They live with the judge, and take whatever an answer feeds them.


def _place(x: np.ndarray) -> np.ndarray:
    """Positions as a column: (T, 1)."""
    return np.arange(x.shape[-2])[:, None]


def _weigh(scores: np.ndarray, x: np.ndarray) -> np.ndarray:
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True) @ x


def _attends(x: np.ndarray) -> np.ndarray:
    return _weigh(x @ np.swapaxes(x, -1, -2), x)


def _attends_to_the_near(x: np.ndarray) -> np.ndarray:
    distance = np.abs(_place(x) - _place(x).T)
    return _weigh(x @ np.swapaxes(x, -1, -2) - distance, x)


def _token_by_token(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, x**2], axis=-1)


def _mean_of_all(x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.mean(x, axis=-2, keepdims=True), x.shape).copy()


def _marks_places(x: np.ndarray) -> np.ndarray:
    return x + np.sin(1.0 + _place(x))


def _marks_every_second(x: np.ndarray) -> np.ndarray:
    return x + _place(x) % 2


def _marks_one(x: np.ndarray) -> np.ndarray:
    return x + 0.01 * (_place(x) == 1)


def _marks_little(x: np.ndarray) -> np.ndarray:
    return x + 0.0015 * (_place(x) == 1)


def _parts_two_features(x: np.ndarray) -> np.ndarray:
    """Neither the first feature of a token nor its last tells, nor their sum (from D = 4 up)."""
    z, middle = x.copy(), x.shape[-1] // 2
    z[..., 1, middle] += 0.0015
    z[..., 1, middle - 1] -= 0.0015
    return z


def _marks_large(x: np.ndarray) -> np.ndarray:
    return x + _place(x) * (x[..., :1] > 5)


def _first_sees_next(x: np.ndarray) -> np.ndarray:
    z = x.copy()
    z[..., 0, :] += x[..., 1, :]
    return z


def _running_mean(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x, axis=-2) / (1 + _place(x))


def _backwards(x: np.ndarray) -> np.ndarray:
    return x[..., ::-1, :].copy()


def _sorted_tokens(x: np.ndarray) -> np.ndarray:
    return np.sort(x, axis=-2)


F = {
    name: Callback(function, name)
    for name, function in {
        "attention": _attends,
        "attention that prefers near tokens": _attends_to_the_near,
        "x and its square, token by token": _token_by_token,
        "the mean of all tokens": _mean_of_all,
        "x plus a number for each position": _marks_places,
        "x plus 1 at every second position": _marks_every_second,
        "x plus 0.01 at position 1": _marks_one,
        "x plus 0.0015 at position 1": _marks_little,
        "x, but with ±0.0015 in two middle features at position 1": _parts_two_features,
        "x plus a number for each position, where feature 0 is above 5": _marks_large,
        "x, but position 0 adds the token at position 1": _first_sees_next,
        "the running mean": _running_mean,
        "x read backwards": _backwards,
        "each feature of x, sorted by size": _sorted_tokens,
    }.items()
}


def _cycle(rng: np.random.Generator, places: np.ndarray, order: np.ndarray) -> None:
    """Let the tokens at `places` move round in a ring, in a random order."""
    ring = rng.permutation(places)
    order[ring] = np.roll(ring, 1)


def _ring(rng: np.random.Generator, T: int) -> np.ndarray:
    """An order in which no token stays, and which is not its own inverse (from T = 3 up)."""
    order = np.arange(T)
    _cycle(rng, order.copy(), order)
    return order


def _two_rings(rng: np.random.Generator, T: int) -> np.ndarray:
    """The same, but tokens at even places stay at even places (from T = 6 up)."""
    order = np.arange(T)
    _cycle(rng, np.arange(0, T, 2), order)
    _cycle(rng, np.arange(1, T, 2), order)
    return order


def _ring_around(*fixed: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    """The same, but for tokens at these places (from the end if negative), which stay."""

    def order_of(rng: np.random.Generator, T: int) -> np.ndarray:
        order = np.arange(T)
        _cycle(rng, np.delete(order, fixed), order)
        return order

    return order_of


def _all_stay(rng: np.random.Generator, T: int) -> np.ndarray:
    return np.arange(T)


def _blind_calls(
    rng: np.random.Generator, *cases: tuple[str, tuple[int, ...]], order: Callable[..., Any] = _ring
) -> tuple[Call, ...]:
    return calls(*((F[name], normal(rng, *shape), order(rng, shape[-2])) for name, shape in cases))


def _blind_or_not(rng: np.random.Generator) -> tuple[Call, ...]:
    return _blind_calls(
        rng,
        ("x and its square, token by token", (3, 2)),
        ("x plus a number for each position", (3, 2)),
        ("x and its square, token by token", (5, 7)),
        ("x and its square, token by token", (7, 3)),
        ("attention", (5, 2)),
        ("attention", (7, 3)),
        ("attention", (11, 5)),
        ("the running mean", (5, 3)),
        ("the running mean", (3, 7)),
        ("the running mean", (7, 2)),
        ("x plus a number for each position", (5, 11)),
        ("x plus a number for each position", (11, 2)),
        ("attention that prefers near tokens", (5, 3)),
    )


def _looks_like_a_set(rng: np.random.Generator) -> tuple[Call, ...]:
    return _blind_calls(
        rng,
        ("the mean of all tokens", (3, 2)),
        ("the mean of all tokens", (7, 5)),
        ("the mean of all tokens", (11, 3)),
        ("each feature of x, sorted by size", (3, 2)),
        ("each feature of x, sorted by size", (5, 3)),
        ("each feature of x, sorted by size", (7, 2)),
        ("x read backwards", (5, 2)),
        ("x read backwards", (7, 3)),
        ("x read backwards", (11, 5)),
    )


def _this_order(rng: np.random.Generator) -> tuple[Call, ...]:
    marks = "x plus 1 at every second position"
    near, ahead = (
        "attention that prefers near tokens",
        "x, but position 0 adds the token at position 1",
    )
    tokens = "x and its square, token by token"
    return (
        *_blind_calls(rng, (marks, (6, 2)), (marks, (8, 3)), (marks, (10, 7)), order=_two_rings),
        *_blind_calls(rng, (marks, (5, 2)), (marks, (7, 3)), (marks, (11, 2))),
        # The only output that tells belongs to a token that stays.
        *_blind_calls(rng, (ahead, (5, 2)), (ahead, (7, 3)), order=_ring_around(0)),
        *_blind_calls(rng, (near, (7, 3)), (tokens, (11, 2)), order=_ring_around(0, -1)),
        *_blind_calls(rng, (near, (5, 3)), (marks, (7, 2)), order=_all_stay),
        *_blind_calls(rng, (near, (1, 3)), ("the running mean", (1, 2)), order=_all_stay),
    )


def _batches_of_tokens(rng: np.random.Generator) -> tuple[Call, ...]:
    def one_entry_tells(entry: int, *shape: int) -> Call:
        x = normal(rng, *shape)
        x[entry] += 10
        name = "x plus a number for each position, where feature 0 is above 5"
        return Call((F[name], x, _ring(rng, shape[-2])))

    blind_or_not = _blind_calls(
        rng,
        ("attention", (3, 5, 2)),
        ("x and its square, token by token", (2, 7, 3)),
        ("attention", (2, 3, 7, 5)),
        ("the running mean", (7, 5, 3)),
        ("x and its square, token by token", (11, 5, 3)),
        ("attention that prefers near tokens", (2, 3, 5, 7)),
    )
    return (*blind_or_not, one_entry_tells(1, 3, 5, 2), one_entry_tells(-1, 2, 2, 7, 3))


def _small_effects(rng: np.random.Generator) -> tuple[Call, ...]:
    return _blind_calls(
        rng,
        ("x plus 0.01 at position 1", (3, 2)),
        ("x plus 0.01 at position 1", (5, 3)),
        ("x plus 0.01 at position 1", (11, 7)),
        ("x plus 0.01 at position 1", (7, 5)),
        ("x plus 0.0015 at position 1", (5, 7)),
        ("x plus 0.0015 at position 1", (11, 5)),
        ("x, but with ±0.0015 in two middle features at position 1", (5, 5)),
        ("x, but with ±0.0015 in two middle features at position 1", (11, 7)),
        ("attention", (7, 5)),
        ("the mean of all tokens", (11, 7)),
    )


# What learners write in place of is_order_blind.


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= 1e-6))


def _nothing_moves(f, x, order):
    return _close(f(x[..., order, :]), f(x))


def _the_way_back(f, x, order):
    return _close(f(x[..., order, :])[..., order, :], f(x))


def _always_blind(f, x, order):
    return True


def _never_blind(f, x, order):
    return False


def _sums_only(f, x, order):
    return _close(np.sum(f(x[..., order, :]), axis=-2), np.sum(f(x), axis=-2))


def _same_rows_somewhere(f, x, order):
    return _close(np.sort(f(x[..., order, :]), axis=-2), np.sort(f(x), axis=-2))


def _features_moved(f, x, order):
    return _close(f(x[..., order]), f(x)[..., order])


def _first_axis_moved(f, x, order):
    return _close(f(x[order]), f(x)[order])


def _to_the_last_bit(f, x, order):
    return bool(np.array_equal(f(x[..., order, :]), f(x)[..., order, :]))


def _another_order(f, x, order):
    return _close(f(x[..., ::-1, :]), f(x)[..., ::-1, :])


def _one_token_will_do(f, x, order):
    gap = np.abs(f(x[..., order, :]) - f(x)[..., order, :])
    return bool(np.any(np.all(gap <= 1e-6, axis=-1)))


IS_ORDER_BLIND = Exercise(
    chapter=2,
    signature="is_order_blind(f, x, order) -> bool",
    task="""\
Test a function that you cannot look into: does `f` treat the tokens of `x` as a set? `f` maps
`(..., T, D)` to `(..., T, D')`, and each token's output stands where the token stands. Return True
if moving the tokens moves the outputs along and does nothing else, that is, if
$f(x[\\text{order}])$ equals $f(x)[\\text{order}]$, and False otherwise.

- `order` is an array of T integers, each of 0 … T − 1 once. It may leave some tokens where they
  are, or all of them. Tokens lie along axis −2, whatever axes come before it.
- The question is about *this* `order`: an `f` that marks every second position passes for blind
  where `order` keeps even places even.
- A moved sum is added up in another order, so results may differ by rounding (less than 1e-12). An
  `f` that sees the order differs by 0.001 or more, perhaps at one token only, in one feature only
  or in one entry of a batch only.
- Call `f` as often as you like. `x` stays as it was. A Python bool or a NumPy one will do.""",
    reference=is_order_blind,
    properties=(
        Property("attention is blind, what looks at positions is not", 2, _blind_or_not),
        Property("outputs must move along, and not merely be the same set", 1, _looks_like_a_set),
        Property("this order decides, not another", 1, _this_order),
        Property("tokens lie along axis −2, also in a batch", 1, _batches_of_tokens),
        Property("a small effect at one token counts, rounding does not", 1, _small_effects),
    ),
    misconceptions=(
        Misconception(
            "expects nothing to move",
            "You compare f(x[order]) with f(x). If the tokens move, so must their outputs: the "
            "first row now belongs to another token. Move f(x) as well before you compare.",
            _nothing_moves,
            symptom="it expects outputs to stay where they were",
        ),
        Misconception(
            "applies the order again to go back",
            "You apply `order` to the outputs of f(x[order]), as if that led back. It does so only "
            "for an order that is its own inverse, such as an exchange of two tokens.",
            _the_way_back,
            symptom="it takes the order for its own inverse",
        ),
        Misconception(
            "calls every function blind",
            "Your test calls every function blind, even one that adds a number for each position.",
            _always_blind,
            symptom="it always says True",
        ),
        Misconception(
            "calls no function blind",
            "Your test finds that every function sees the order, even one that looks at each token "
            "alone.",
            _never_blind,
            symptom="it always says False",
        ),
        Misconception(
            "compares sums over the tokens",
            "You compare one sum over all tokens. A sum does not tell which token got what: "
            "compare every output of every token.",
            _sums_only,
            symptom="it looks at the tokens' sum only",
        ),
        Misconception(
            "compares the outputs as a set",
            "You sort the outputs, or look for each anywhere. A function that hands every output "
            "to the wrong token passes so: each must be found at its own token's new place.",
            _same_rows_somewhere,
            symptom="outputs may stand at the wrong token",
        ),
        Misconception(
            "moves the features",
            "`x[..., order]` moves the features of each token. Tokens are rows: they lie along the "
            "last axis but one.",
            _features_moved,
            symptom="it moves columns, not tokens",
        ),
        Misconception(
            "moves the first axis",
            "`x[order]` moves along the first axis, which in a batch counts sentences. Tokens lie "
            "along axis −2: count from the end.",
            _first_axis_moved,
            symptom="right for one sequence, wrong for a batch",
        ),
        Misconception(
            "compares to the last bit",
            "You ask for equality to the last bit. Attention adds up the same numbers in another "
            "order, and a sum of floats depends on that by about 1e-16: allow for rounding.",
            _to_the_last_bit,
            symptom="rounding passes for seeing the order",
        ),
        Misconception(
            "uses an order of its own",
            "You reverse the tokens, whatever `order` says. The question is about the order that "
            "is handed in: another one may show what this one hides, and the other way round.",
            _another_order,
            symptom="it does not use the order that it is given",
        ),
        Misconception(
            "is content with one token",
            "One token whose output fits is enough for your test. All of them must fit: an f may "
            "mark a single position.",
            _one_token_will_do,
            symptom="a single match passes for blindness",
        ),
    ),
    hints=(
        "Take three tokens a, b, c with outputs A, B, C, and the order 2, 0, 1. What does f see, "
        "and in which rows do you expect A, B and C?",
        "Two calls of f: one on x, one on x with its tokens moved. Move the outputs of the first "
        "in the same way as you moved the tokens for the second. Compare all of them, with a "
        "tolerance between rounding and 0.001.",
        "`moved = x[..., order, :]`. Then `np.allclose` of `f(moved)` and of `f(x)`, indexed in "
        "the same manner.",
    ),
    minutes=15,
    returns=("the answer",),
)
