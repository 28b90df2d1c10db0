"""A bug hunt takes any input that hides the bug, if it is not degenerate, and believes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from coursework.bug_hunt import MAX_NUMBERS, Bug, BugHunt, Condition
from coursework.evaluate import Verdict, evaluate_exercise
from coursework.exercise import Exercise, Misconception, Property
from coursework.exercises.heads import BUG_HUNT as HEADS_HUNT
from coursework.exercises.qkv import BUG_HUNT
from coursework.exercises.scaling import BUG_HUNT as SCALING_HUNT


def total(x: Any) -> Any:
    return np.sum(x)


def _last_left_out(x: Any) -> Any:
    return np.sum(x[:-1])


def _squares(x: Any) -> Any:
    return np.sum(x**2)


TARGET = Exercise(
    chapter=3,
    signature="total(x)",
    task="",
    reference=total,
    properties=(Property("it is the sum", 1, lambda rng: ()),),
    misconceptions=(
        Misconception("leaves the last one out", "No.", _last_left_out),
        Misconception("adds squares", "No.", _squares),
    ),
    hints=("", "", ""),
    minutes=1,
)

LAST, SQUARES, OTHERS = "The last is left out.", "Squares are added.", ("A.", "B.", "C.")
HUNT = BugHunt(
    target=TARGET,
    bugs=(
        Bug(
            "leaves the last one out",
            mistake=LAST,
            others=(SQUARES, *OTHERS),
            hides=(np.array([1.0, 2.0, 0.0]),),
            shows=(np.array([1.0, 2.0, 3.0]),),
        ),
        Bug(
            "adds squares",
            mistake=SQUARES,
            others=(LAST, *OTHERS),
            hides=(np.array([1.0, 0.0, 1.0]),),
            shows=(np.array([1.0, 2.0]),),
        ),
    ),
    conditions=(
        Condition("`x` is an array of floats", lambda x: x.dtype == np.float64 and x.ndim == 1),
        Condition("`x` holds a number that is not 0", lambda x: bool(np.any(x))),
    ),
    hints=("", "", ""),
    minutes=5,
)
RIGHT: dict[str, Any] = {
    "hides": HUNT.bugs[0].hides,
    "shows": HUNT.bugs[0].shows,
    "mistake": LAST,
}


def judged(value: Any, variant: int = 0) -> Verdict:
    return evaluate_exercise(HUNT.exercise(variant), lambda: value, (0,))


def why_not(entry: str, value: Any) -> str:
    """What is said of an answer that is right but for one entry."""
    verdict = judged({**RIGHT, entry: value})
    lost = {"hides": 2, "shows": 1, "mistake": 1}[entry]
    assert verdict.points == 4 - lost
    return verdict.message.splitlines()[0]


def test_any_input_that_hides_the_bug_and_any_that_shows_it_will_do() -> None:
    for hides, shows in (
        (np.array([5.0, 0.0]), np.array([0.0, 1.0])),
        (np.array([2.0, 7.0, 0.0]), np.array([-3.0])),
    ):
        assert judged({**RIGHT, "hides": (hides,), "shows": [shows]}).passed
    assert judged({**RIGHT, "mistake": f" {LAST}\n"}).passed


def test_each_variant_has_its_own_bug() -> None:
    assert not judged(RIGHT, variant=1).passed
    right = {"hides": HUNT.bugs[1].hides, "shows": HUNT.bugs[1].shows, "mistake": SQUARES}
    assert judged(right, variant=1).passed


def test_an_input_on_the_wrong_side_is_said_to_be_there() -> None:
    assert "suspect and the right function differ" in why_not("hides", RIGHT["shows"])
    assert "suspect and the right function agree" in why_not("shows", RIGHT["hides"])


def test_a_degenerate_input_is_refused_by_the_condition_that_it_breaks() -> None:
    assert "degenerate" in why_not("hides", (np.zeros(3),))
    assert "a number that is not 0" in why_not("hides", (np.zeros(3),))
    assert "an array of floats" in why_not("shows", (np.arange(3),))
    for odd in (3.0, None, "text", [1.0, 0.0], {"x": 1}):
        assert "degenerate" in why_not("hides", (odd,))


@pytest.mark.parametrize(
    "value",
    [None, 3, np.array([1.0, 0.0]), (), (np.ones(2), np.ones(2)), "x", {"x": np.ones(2)}],
    ids=lambda value: type(value).__name__,
)
def test_an_entry_is_a_tuple_of_the_arguments(value: Any) -> None:
    assert "hides is not a tuple (x)" in why_not("hides", value)


def test_a_parameter_that_has_a_default_is_neither_asked_for_nor_refused() -> None:
    hunt = HEADS_HUNT.exercise(2)
    bug = HEADS_HUNT.bug(2)
    assert hunt.task.count("arguments `(x, w_q, w_k, w_v, w_o, n_heads)`") == 2
    assert "`suspect(x, w_q, w_k, w_v, w_o, n_heads, mask)`" in hunt.task
    for mask, points in (((), 4), ((None,), 4), ((np.ones((4, 4), bool),), 2), ((None, None), 2)):
        answer = {"hides": (*bug.hides, *mask), "shows": bug.shows, "mistake": bug.mistake}
        assert evaluate_exercise(hunt, lambda answer=answer: answer, (0,)).points == points


def test_inputs_may_not_be_huge_or_ragged() -> None:
    assert "more than" in why_not("hides", (np.zeros(MAX_NUMBERS + 1),))
    assert "degenerate" in why_not("hides", ([[1], [1, 2]],))


@pytest.mark.parametrize("mistake", [None, 3, "", "Something else.", SQUARES, [LAST], LAST.lower()])
def test_the_mistake_is_one_of_the_five_word_for_word(mistake: Any) -> None:
    assert "mistake" in why_not("mistake", mistake)


@pytest.mark.parametrize("value", [None, 3, [], {}, (1, 2, 3), "hides", {"hides": None}, {1: 2}])
def test_anything_else_is_a_failed_verdict(value: Any) -> None:
    assert judged(value).points == 0


def test_an_answer_that_raises_or_is_still_to_do_scores_nothing() -> None:
    def untouched() -> Any:
        raise NotImplementedError

    def wrong() -> Any:
        raise KeyError("hides")

    for answer in (untouched, wrong):
        assert evaluate_exercise(HUNT.exercise(0), answer, (0,)).points == 0


def test_the_suspect_is_printed_under_another_name() -> None:
    assert HUNT.source(0) == "def suspect(x: Any) -> Any:\n    return np.sum(x[:-1])"


def test_the_right_sentence_stands_anywhere_and_stays_there() -> None:
    places = {hunt.mistakes(n).index(bug.mistake) for hunt, n, bug in every_bug()}
    assert len(places) >= 3
    assert HUNT.mistakes(0) == HUNT.mistakes(0)
    assert sorted(HUNT.mistakes(0)) == sorted((LAST, SQUARES, *OTHERS))


def every_bug() -> list[tuple[BugHunt, int, Bug]]:
    return [(hunt, n, bug) for hunt in (BUG_HUNT, SCALING_HUNT) for n, bug in enumerate(hunt.bugs)]


def test_the_task_says_the_conditions_and_the_sentences_and_no_answer() -> None:
    task = HUNT.task(0)
    for words in (LAST, SQUARES, *OTHERS, "an array of floats", "a number that is not 0"):
        assert words in task
    assert "leaves the last one out" not in task


def test_the_seed_chooses_the_bug_and_every_bug_is_chosen() -> None:
    for hunt in (BUG_HUNT, SCALING_HUNT):
        chosen = [hunt.variant_for(seed) for seed in range(200)]
        assert set(chosen) == set(range(len(hunt.bugs)))
        assert chosen == [hunt.variant_for(seed) for seed in range(200)]
    with pytest.raises(ValueError, match="variant 7 is not within 0 … 1"):
        HUNT.bug(7)


# Inputs on which the weights of any two functions would agree ---------------------------------


DEGENERATE: dict[str, Callable[[Any, Any, Any], tuple[Any, Any, Any]]] = {
    "zeros": lambda q, k, v: (0 * q, 0 * k, 0 * v),
    "equal queries": lambda q, k, v: (q[[0, 0, 0]], k, v),
    "equal keys": lambda q, k, v: (q, k[[0, 0, 0]], v),
    "equal values": lambda q, k, v: (q, k, v[[0, 0, 0]]),
    "tiny scores": lambda q, k, v: (q * 1e-3, k, v),
    "huge scores": lambda q, k, v: (q * 100, k, v),
    "tiny values": lambda q, k, v: (q, k, v * 1e-12),
    "one key": lambda q, k, v: (q, k[:1], v[:1]),
    "one query": lambda q, k, v: (q[:1], k, v),
    "width 1": lambda q, k, v: (q[:, :1], k[:, :1], v),
    "values of width 1": lambda q, k, v: (q, k, v[:, :1]),
    "no queries": lambda q, k, v: (q[:0], k, v),
    "NaN": lambda q, k, v: (q * np.nan, k, v),
    "infinite": lambda q, k, v: (q, k, v + np.inf),
    "float32": lambda q, k, v: (q.astype(np.float32), k, v),
    "integers": lambda q, k, v: (np.rint(q).astype(int), k, v),
    "a batch": lambda q, k, v: (q[None], k[None], v[None]),
    "lists": lambda q, k, v: (q.tolist(), k.tolist(), v.tolist()),
    "sizes that do not fit": lambda q, k, v: (q, k[:, :1], v),
    "a value too few": lambda q, k, v: (q, k, v[1:]),
    "a hundred queries": lambda q, k, v: (np.tile(q, (50, 1)), k, v),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("hunt", [BUG_HUNT, SCALING_HUNT], ids=["03", "04"])
def test_degenerate_inputs_of_attention_are_refused(hunt: BugHunt, name: str) -> None:
    for number, bug in enumerate(hunt.bugs):
        spoilt = DEGENERATE[name](*bug.hides)
        right = {"hides": bug.hides, "shows": bug.shows, "mistake": bug.mistake}
        answer = {**right, "hides": spoilt}
        verdict = evaluate_exercise(hunt.exercise(number), lambda answer=answer: answer, (0,))
        assert verdict.points == 2
        assert "degenerate" in verdict.message
