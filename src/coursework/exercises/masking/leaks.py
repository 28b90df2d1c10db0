"""The leak test: does a function that one cannot look into see the future?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attend.masks import leaks_future
from coursework.exercise import Call, Callback, Exercise, Misconception, Property
from coursework.exercises.inputs import normal

Rng = np.random.Generator
Array = np.ndarray


# The functions f. They live with the judge, and take whatever an answer feeds them.


def _running_mean(x: Array) -> Array:
    return np.cumsum(x, axis=-2) / np.arange(1, x.shape[-2] + 1)[:, None]


def _mean_of_all(x: Array) -> Array:
    return np.broadcast_to(x.mean(axis=-2, keepdims=True), x.shape).copy()


def _next_token(x: Array) -> Array:
    return np.concatenate([x[..., 1:, :], x[..., -1:, :]], axis=-2)


def _previous_token(x: Array) -> Array:
    return np.concatenate([np.zeros_like(x[..., :1, :]), x[..., :-1, :]], axis=-2)


def _plus_last_token(x: Array) -> Array:
    return x + x[..., -1:, :]


def _plus_last_but_two(x: Array) -> Array:
    return x + x[..., -3:-2, :]


def _plus_mean_of_feature_0(x: Array) -> Array:
    return x + x[..., :1].mean(axis=-2, keepdims=True)


def _plus_mean_where_large(x: Array) -> Array:
    return x + (x[..., :1, :1] > 5) * x.mean(axis=-2, keepdims=True)


def _second_sees_all(x: Array) -> Array:
    z = np.array(x, dtype=float)
    z[..., 1, :] = x.sum(axis=-2)
    return z


def _first_sees_all(x: Array) -> Array:
    z = np.array(x, dtype=float)
    z[..., 0, :] = x.sum(axis=-2)
    return z


def _parts_the_first_two(x: Array) -> Array:
    """The last token moves two outputs by opposite amounts: their sum stays as it was."""
    z = np.array(x, dtype=float)
    z[..., 0, :] += x[..., -1, :]
    z[..., 1, :] -= x[..., -1, :]
    return z


def _one_feature_sees_all(x: Array) -> Array:
    z = np.array(x, dtype=float)
    z[..., -1] = x[..., -1].sum(axis=-1, keepdims=True)
    return z


def _feature_0_sees_all(x: Array) -> Array:
    z = np.array(x, dtype=float)
    z[..., 0] = x[..., 0].sum(axis=-1, keepdims=True)
    return z


def _blind(x: Array) -> Array:
    return np.ones((*x.shape[:-1], 1))


def _zero_weights_ahead(x: Array) -> Array:
    T = x.shape[-2]
    return np.tril(np.ones((T, T))) @ x


def _share_of_length(x: Array) -> Array:
    return np.cumsum(x, axis=-2) / x.shape[-2]


def _mean_deviation(x: Array) -> Array:
    """Sees how the features of a token differ, so that a constant added to all does not show."""
    return x + np.mean(x - x.mean(axis=-1, keepdims=True), axis=-2, keepdims=True)


def _a_millionth(x: Array) -> Array:
    return _running_mean(x) + 1e-6 * x.mean(axis=-2, keepdims=True)


def _a_millionth_of_the_last(x: Array) -> Array:
    return _running_mean(x) + 1e-6 * x[..., -1:, :]


def _a_millionth_of_the_last_step(x: Array) -> Array:
    """Sees how the last two tokens differ: small, so that no rounding of theirs gives it away."""
    return _running_mean(x) + 1e-6 * (x[..., -1:, :] - x[..., -2:-1, :])


def _attends(x: Array, allowed: Array) -> Array:
    scores = np.where(allowed, x @ x.swapaxes(-1, -2), -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ x


def _attends_to_the_past(x: Array) -> Array:
    T = x.shape[-2]
    return _attends(x, np.tril(np.ones((T, T), dtype=bool)))


def _attends_to_all(x: Array) -> Array:
    T = x.shape[-2]
    return _attends(x, np.ones((T, T), dtype=bool))


F = {
    name: Callback(function, name)
    for name, function in {
        "the running mean": _running_mean,
        "the mean of all tokens": _mean_of_all,
        "the next token": _next_token,
        "the token before": _previous_token,
        "x plus its last token": _plus_last_token,
        "x plus its last token but two": _plus_last_but_two,
        "x plus the mean of feature 0": _plus_mean_of_feature_0,
        "x plus the mean of all tokens, where token 0 begins with more than 5": (
            _plus_mean_where_large
        ),
        "x, but position 0 sums all tokens": _first_sees_all,
        "x, but position 1 sums all tokens": _second_sees_all,
        "x, but the last token parts positions 0 and 1": _parts_the_first_two,
        "x, but its last feature sums all tokens": _one_feature_sees_all,
        "x, but its feature 0 sums all tokens": _feature_0_sees_all,
        "a function that ignores x": _blind,
        "weights that are 0 for the future": _zero_weights_ahead,
        "the running sum divided by T": _share_of_length,
        "x plus how the features of all tokens differ": _mean_deviation,
        "the running mean plus a millionth of the mean of all": _a_millionth,
        "the running mean plus a millionth of the last token": _a_millionth_of_the_last,
        "the running mean plus a millionth of the last step": _a_millionth_of_the_last_step,
        "causal attention": _attends_to_the_past,
        "attention without a mask": _attends_to_all,
    }.items()
}


# What learners write in place of leaks_future.


def _never(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    return False


def _always(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    return True


def _changes_everything(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x + np.random.default_rng(0).standard_normal(x.shape)
    return not np.array_equal(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :])


def _changes_the_present(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t:, :] += np.random.default_rng(0).standard_normal(changed[..., t:, :].shape)
    return not np.array_equal(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :])


def _constant_change_seen_exactly(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] += 1.0
    return not np.array_equal(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :])


def _constant_change(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] += 1.0
    return not np.allclose(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :], rtol=0, atol=1e-9)


def _nan_future(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] = np.nan
    return not np.array_equal(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :])


def _zero_future(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] = 0.0
    return not np.array_equal(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :])


def _future_reversed(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] = x[..., t + 1 :, :][..., ::-1, :]
    return not np.allclose(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :], rtol=0, atol=1e-9)


def _last_token_only(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    if t < x.shape[-2] - 1:
        changed[..., -1, :] += np.random.default_rng(0).standard_normal(changed[..., -1, :].shape)
    return not np.array_equal(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :])


def _next_token_only(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    if t < x.shape[-2] - 1:
        changed[..., t + 1, :] += np.random.default_rng(0).standard_normal(x[..., 0, :].shape)
    return not np.array_equal(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :])


def _watches_t_only(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] += np.random.default_rng(0).standard_normal(x[..., t + 1 :, :].shape)
    return not np.array_equal(f(x)[..., t, :], f(changed)[..., t, :])


def _stops_before_t(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] += np.random.default_rng(0).standard_normal(x[..., t + 1 :, :].shape)
    return not np.array_equal(f(x)[..., :t, :], f(changed)[..., :t, :])


def _watches_the_future(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] += np.random.default_rng(0).standard_normal(x[..., t + 1 :, :].shape)
    return not np.array_equal(f(x), f(changed))


def _loose(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[..., t + 1 :, :] += np.random.default_rng(0).standard_normal(x[..., t + 1 :, :].shape)
    return not np.allclose(f(x)[..., : t + 1, :], f(changed)[..., : t + 1, :], atol=1e-5)


def _first_axis(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    changed = x.copy()
    changed[t + 1 :] += np.random.default_rng(0).standard_normal(x[t + 1 :].shape)
    return not np.array_equal(f(x)[: t + 1], f(changed)[: t + 1])


def _cut_off(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    whole, part = f(x)[..., : t + 1, :], f(x[..., : t + 1, :])
    return not np.allclose(whole, part, rtol=0, atol=1e-9)


def _writes_into_x(f: Callable[[Array], Array], x: Array, t: int) -> bool:
    before = f(x)[..., : t + 1, :]
    x[..., t + 1 :, :] += np.random.default_rng(0).standard_normal(x[..., t + 1 :, :].shape)
    return not np.array_equal(before, f(x)[..., : t + 1, :])


def _leak_calls(rng: Rng, *cases: tuple[str, tuple[int, ...], int]) -> Sequence[Call]:
    """A call for each name of a function, shape of x, and t (from the end where it is negative)."""
    return [Call((F[name], normal(rng, *shape), t % shape[-2])) for name, shape, t in cases]


def _ahead_or_back(rng: Rng) -> Sequence[Call]:
    T, D = 5, int(rng.integers(2, 4))
    longer = int(rng.choice([7, 11]))
    return _leak_calls(
        rng,
        ("the running mean", (T, D), 2),
        ("the mean of all tokens", (T, D), 2),
        ("the token before", (T, D), 1),
        ("attention without a mask", (longer, D), 3),
        ("causal attention", (longer, D), 3),
        ("a function that ignores x", (longer, D), 2),
        ("a function that ignores x", (3, longer, D), 4),
        ("a function that ignores x", (2, T, D), 1),
        ("the token before", (3, longer, D), 4),
        ("the token before", (longer, D), 2),
    )


def _any_place(rng: Rng) -> Sequence[Call]:
    T, D = int(rng.choice([7, 11])), int(rng.integers(2, 5))
    B = int(rng.choice([2, 3, 5]))

    def one_entry_leaks(entry: int, *shape: int) -> Call:
        x = normal(rng, *shape)
        x[entry, ..., 0, 0] = 10
        name = "x plus the mean of all tokens, where token 0 begins with more than 5"
        return Call((F[name], x, 2))

    leaks = _leak_calls(
        rng,
        ("the next token", (5, D), 2),
        ("the next token", (B, T, D), 0),
        ("the next token", (T, D), 4),
        ("x plus its last token", (5, D), 2),
        ("x plus its last token", (T, D), 0),
        ("x plus its last token", (B, T, D), 3),
        ("x, but position 0 sums all tokens", (5, D), 2),
        ("x, but position 0 sums all tokens", (T, D), 4),
        ("x, but position 0 sums all tokens", (B, 2, T, D), 3),
        ("x, but the last token parts positions 0 and 1", (T, D), 3),
        ("x, but its last feature sums all tokens", (B, T, D), 2),
        ("x, but its feature 0 sums all tokens", (T, D), 2),
        ("x, but its feature 0 sums all tokens", (B, T, D), 3),
        ("x plus the mean of feature 0", (T, D), 3),
        ("x plus the mean of feature 0", (B, T, D), 2),
        ("x plus its last token but two", (T, D), 1),
        ("x plus its last token but two", (B, 11, D), 4),
        ("x, but position 1 sums all tokens", (T, D), 4),
        ("x, but position 1 sums all tokens", (B, T, D), 3),
        ("the mean of all tokens", (T, D), 0),
        ("attention without a mask", (B, T, D), 0),
        ("the running mean", (B, T, D), 3),
        ("causal attention", (B, T, D), 2),
    )
    return [*leaks, one_entry_leaks(1, 2, T, D), one_entry_leaks(-1, B, 2, T, D)]


def _hidden_leaks(rng: Rng) -> Sequence[Call]:
    T, D = int(rng.choice([7, 11])), int(rng.integers(2, 5))

    def zero_ahead(name: str, shape: tuple[int, ...], t: int) -> Call:
        x = normal(rng, *shape)
        x[..., t + 1 :, :] = 0.0
        return Call((F[name], x, t))

    return [
        *_leak_calls(
            rng,
            ("x plus how the features of all tokens differ", (5, D), 2),
            ("x plus how the features of all tokens differ", (T, D), 3),
            ("x plus how the features of all tokens differ", (3, T, D), 0),
            ("weights that are 0 for the future", (5, D), 2),
            ("weights that are 0 for the future", (T, D), 4),
            ("weights that are 0 for the future", (2, T, D), 1),
            ("the running sum divided by T", (5, D), 2),
            ("the running sum divided by T", (T, D), 4),
            ("the running sum divided by T", (2, T, D), 1),
            ("the running mean plus a millionth of the mean of all", (5, D), 2),
            ("the running mean plus a millionth of the mean of all", (T, D), 3),
            ("the running mean plus a millionth of the mean of all", (2, T, D), 1),
            ("the running mean plus a millionth of the last token", (T, D), 3),
            ("the running mean plus a millionth of the last step", (5, D), 1),
            ("the running mean plus a millionth of the last step", (T, D), 3),
        ),
        zero_ahead("the mean of all tokens", (5, D), 2),
        zero_ahead("attention without a mask", (T, D), 3),
        zero_ahead("x plus how the features of all tokens differ", (2, T, D), 1),
    ]


def _last_position(rng: Rng) -> Sequence[Call]:
    T, D = int(rng.choice([3, 7])), int(rng.integers(2, 5))
    return _leak_calls(
        rng,
        ("the mean of all tokens", (5, D), -1),
        ("attention without a mask", (T, D), -1),
        ("x plus its last token", (2, T, D), -1),
        ("the running mean", (T, D), -1),
        ("the mean of all tokens", (5, D), -2),
        ("the next token", (T, D), -2),
    )


LEAKS_FUTURE = Exercise(
    chapter=5,
    signature="leaks_future(f, x, t) -> bool",
    task="""
Test a function that you cannot look into. `f` maps tokens (..., T, D) to outputs (..., T, D'); `x`
is an input, with as many leading axes as you like; `t` is a position, 0 … T − 1. Return True if
changing tokens **after** t can change any output of `f` **up to and including** t, and False if it
cannot.

- Call `f` as often as you like. It gives equal results for equal inputs, to the last bit, and a
  causal `f` gives the same past for every future, to the last bit.
- A leak may be small (`f` lets a millionth of a token through), may come from one later token or
  feature only, may reach one earlier output or feature or one entry of a batch only, and may be
  blind to some changes: adding a constant, adding one vector to all later tokens, exchanging
  tokens, setting to 0 a future that is 0 already.
- A causal `f` may multiply the future by 0, and may divide by T. It must not be accused.
- After the last token nothing comes: for t = T − 1 the answer is False.
- `x` stays as it was. `f` is only ever fed finite numbers of ordinary size by those who use it.
""",
    reference=leaks_future,
    properties=(
        Property("looking back is no leak, looking ahead is one", 2, _ahead_or_back),
        Property("from any later token, to any output up to t", 2, _any_place),
        Property("leaks that hide, and functions that only seem to leak", 2, _hidden_leaks),
        Property("nothing comes after the last token", 1, _last_position, edge=True),
    ),
    misconceptions=(
        Misconception(
            "never reports",
            "Your test calls every function causal. Compare two runs of f: on x, and on an x whose "
            "future is another one.",
            _never,
            "it never reports a leak",
        ),
        Misconception(
            "reports every function",
            "Your test accuses every function, even one that does not look at x at all.",
            _always,
            "it reports every function",
        ),
        Misconception(
            "changes the past as well",
            "You change all tokens. When an output moves then, nobody knows whether the past or "
            "the future did it: change only what comes after t.",
            _changes_everything,
            "it changes tokens that outputs may depend on",
        ),
        Misconception(
            "changes token t as well",
            "Your change begins at t. Output t may depend on token t, so it moves without any "
            "leak: the future begins at t + 1.",
            _changes_the_present,
            "it changes token t, which is not the future",
        ),
        Misconception(
            "adds a constant",
            "You add the same number to all of the future. A function that compares the features "
            "of a token with each other, as a LayerNorm does, does not see that, nor does one that "
            "compares later tokens with each other. Make the change irregular.",
            _constant_change,
            "it misses a leak that a constant change does not show",
            also=(_constant_change_seen_exactly,),
        ),
        Misconception(
            "NaN as the future",
            "0 · NaN is NaN: a function that multiplies the future by 0 is causal, and your test "
            "accuses it. Use finite numbers.",
            _nan_future,
            "it accuses a function that multiplies the future by 0",
        ),
        Misconception(
            "leaves a future of zeros as it is",
            "Where the future is zero already, your change leaves it so, as multiplying it or "
            "setting it to zero does, and a leak goes unseen. *Add* something to it, or make it "
            "random.",
            _zero_future,
            "it misses a leak when the future is zero already",
        ),
        Misconception(
            "exchanges future tokens",
            "You put the future tokens into another order. A mean over them does not change then, "
            "and it leaks all the same: the tokens must be new ones.",
            _future_reversed,
            "it misses a leak that does not depend on the order",
        ),
        Misconception(
            "changes only the last token",
            "You change one token, the last. A function that looks one token ahead sees t + 1 and "
            "not the last: change everything after t.",
            _last_token_only,
            "it misses a leak from the next token",
        ),
        Misconception(
            "changes only token t + 1",
            "You change one token, the next. A function may look further ahead: change everything "
            "after t.",
            _next_token_only,
            "it misses a leak from a token further on",
        ),
        Misconception(
            "looks at output t only",
            "You compare output t alone. The outputs before it must not move either: position 0 "
            "can leak while position t does not.",
            _watches_t_only,
            "it misses a leak into an earlier output",
        ),
        Misconception(
            "stops before t",
            "You compare the outputs before t, but not output t itself. That is the one a look at "
            "the next token reaches first.",
            _stops_before_t,
            "it misses a leak into output t",
        ),
        Misconception(
            "compares all outputs",
            "Outputs after t may of course depend on tokens after t. Compare only those up to and "
            "including t.",
            _watches_the_future,
            "it accuses causal functions",
        ),
        Misconception(
            "tolerance too wide",
            "Your comparison forgives differences of about 1e-5, as np.allclose does by itself, "
            "and a small leak is smaller than that. It is enough to learn from. Compare exactly, "
            "or nearly so.",
            _loose,
            "it misses a small leak",
        ),
        Misconception(
            "first axis",
            "You cut along the first axis. With a batch in front, tokens are on axis −2: an "
            "ellipsis before them serves every number of leading axes.",
            _first_axis,
            "it goes wrong when x has a batch axis",
        ),
        Misconception(
            "cuts the future off",
            "You compare with a shorter x. That changes T as well, and a function that divides by "
            "T is causal for all that. Keep the length and change the tokens.",
            _cut_off,
            "it accuses a function that only depends on the length",
        ),
        Misconception(
            "writes into x",
            "The test is right, but x is no longer what it was: the caller's data now have a "
            "random future. Work on a copy.",
            _writes_into_x,
            "it changes its input x",
        ),
    ),
    hints=(
        "You cannot see inside f. But you can ask twice: what would be the same, for a causal f, "
        "and would not be for a leaking one?",
        "Run f on x and on a copy whose tokens after t are new ones, and compare the outputs up to "
        "t. Then attack your own test. Which leak would your change not show? Which causal f would "
        "it accuse? Which outputs do you compare, and how exactly?",
        "Copy x; into the slice `[..., t + 1:, :]` of the copy add random numbers (finite, all "
        "different, a fixed seed will do). Take the slice `[..., : t + 1, :]` of both outputs and "
        "ask whether all entries are equal. Return a bool. For t = T − 1 the first slice is empty "
        "and nothing changes: that case needs no line of its own.",
    ),
    minutes=20,
    returns=("the result",),
)
