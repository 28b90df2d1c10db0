"""Which mistake a wrong answer makes, if the evidence is good enough to say so.

A misconception is a wrong implementation. An answer makes it if the answer gives what that
implementation gives, on inputs on which nothing else that we know gives the same. No name is better
than a wrong one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any

import numpy as np

from coursework import plain, tensors
from coursework.answer import Reply, arrays_of, takes_too_much
from coursework.compare import compare, compare_steps
from coursework.exercise import Call, Exercise, Misconception
from coursework.known import is_small, outcome
from coursework.stubs import Handle

ENOUGH = 3  #: inputs that must tell a misconception from each other one


@dataclass(frozen=True)
class Outcome:
    """What came of one input: of it, that beside the value which two answers are compared by."""

    call: Call
    reply: Reply

    @cached_property
    def changes(self) -> tuple[int, ...]:
        return changed(self.call, self.reply)

    @cached_property
    def takes_too_much(self) -> bool:
        return takes_too_much(self.call, self.reply)

    @cached_property
    def events(self) -> list[Any]:
        """Events as values; which further object was handed back does not matter."""
        return [
            (e.stub, e.method, plain.mapped((e.args, e.kwargs), _without_handles), e.gradients)
            for e in self.reply.events
        ]


@dataclass(frozen=True)
class Evidence(Outcome):
    """What an answer did on one input."""

    edge: bool = False
    seed: int | None = None  #: of the check whose input it is; None for a probe


def name_misconception(
    exercise: Exercise, evidence: Sequence[Evidence], at: Call | None = None
) -> Misconception | None:
    """The misconception that an answer makes, or None.

    A misconception is named if

    - the answer does as it does on every ordinary input, or, where it differs from the reference
      only at the edge, on every edge input on which it does;
    - at least `ENOUGH` of these inputs tell it from the reference, and as many from every other
      misconception of the exercise.

    Args:
        exercise: what was asked.
        evidence: all that is known of the answer.
        at: the input that is shown to the student, which the name must explain. None: any.
    """
    right = _Answers(exercise, exercise.reference, evidence)
    profiles = [
        _Profile(m, _Answers(exercise, function, evidence), right)
        for m in exercise.misconceptions
        for function in (m.function, *m.also)
    ]
    fitting = [p for p in profiles if p.fits and (at is None or p.explains(at))]
    named = {
        p.misconception.name: p.misconception
        for p in fitting
        if all(p.is_told_from(q) for q in profiles if q.misconception is not p.misconception)
    }
    return next(iter(named.values())) if len(named) == 1 else None


class _Answers:
    """What a function of ours gives on each input; found out when it is asked for."""

    def __init__(self, exercise: Exercise, function: Any, evidence: Sequence[Evidence]) -> None:
        self.exercise = exercise
        self.function = function
        self.evidence = evidence

    def __getitem__(self, i: int) -> Outcome:
        return _outcome(self.function, self.evidence[i].call)


class _Profile:
    """How one misconception would have answered, beside how the answer did."""

    def __init__(self, misconception: Misconception, wrong: _Answers, right: _Answers) -> None:
        self.misconception = misconception
        self.wrong = wrong
        self.right = right
        self.evidence = wrong.evidence
        self.ordinary = [i for i, e in enumerate(self.evidence) if not e.edge]
        self.edges = [i for i, e in enumerate(self.evidence) if e.edge]
        self._agrees: dict[int, bool] = {}  # on each input this is asked many times

    def agrees(self, i: int) -> bool:
        """Whether the answer did on input `i` what the misconception does."""
        if i not in self._agrees:
            self._agrees[i] = self._found_to_agree(i)
        return self._agrees[i]

    def _found_to_agree(self, i: int) -> bool:
        e = self.evidence[i]
        if self.misconception.recognises:
            if not e.reply.has_value:
                return False
            values = e.reply.value if e.call.times > 1 else [e.reply.value]
            return all(self.misconception.recognises(e.call, value) for value in values)
        return same_outcome(self.wrong.exercise, self.wrong[i], e)

    def is_faulty(self, i: int) -> bool:
        """Whether the misconception differs from the reference on input `i`."""
        exercise, call = self.wrong.exercise, self.evidence[i].call
        return not _do_the_same(exercise, call, self.right.function, self.wrong.function)

    @cached_property
    def fits(self) -> bool:
        if not all(self.agrees(i) for i in self.ordinary):
            return False
        if not any(self.is_faulty(i) for i in self.ordinary) and not all(
            self.agrees(i) for i in self.edges if self.is_faulty(i)
        ):
            return False
        return _enough(self.tells(i) for i in (*self.ordinary, *self.edges))

    def tells(self, i: int) -> bool:
        """Whether the answer goes wrong as this does; an exception must be so in its very words."""
        reply = self.evidence[i].reply
        return (
            self.agrees(i)
            and self.is_faulty(i)
            and (reply.has_value or _same_words(reply, self.wrong[i].reply))
        )

    def explains(self, call: Call) -> bool:
        places = (i for i, e in enumerate(self.evidence) if e.call is call)
        return any(self.agrees(i) and self.is_faulty(i) for i in places)

    def is_told_from(self, other: _Profile) -> bool:
        """Whether enough inputs on which the answer does as this one does exclude the other."""
        if self.misconception.recognises or other.misconception.recognises:
            return not other.fits
        one, another = self.wrong.function, other.wrong.function
        return _enough(
            self.agrees(i) and not _do_the_same(self.wrong.exercise, e.call, one, another)
            for i, e in enumerate(self.evidence)
        )


def _do_the_same(exercise: Exercise, call: Call, one: Any, other: Any) -> bool:
    """Whether two functions of ours do the same on an input."""
    same = _known_to_do_the_same if is_small(call) else _found_to_do_the_same
    return same(exercise, call, one, other)


def _found_to_do_the_same(exercise: Exercise, call: Call, one: Any, other: Any) -> bool:
    return same_outcome(exercise, _outcome(one, call), _outcome(other, call))


_known_to_do_the_same = lru_cache(maxsize=50_000)(_found_to_do_the_same)


def _outcome(function: Any, call: Call) -> Outcome:
    return (_known_outcome if is_small(call) else _found_outcome)(function, call)


def _found_outcome(function: Any, call: Call) -> Outcome:
    return Outcome(call, outcome(function, call))


_known_outcome = lru_cache(maxsize=5000)(_found_outcome)


def _enough(facts: Iterable[bool]) -> bool:
    """Whether at least `ENOUGH` are true; no more are looked at than that takes."""
    return len(list(islice(filter(None, facts), ENOUGH))) == ENOUGH


def same_outcome(exercise: Exercise, one: Outcome, other: Outcome) -> bool:
    """Whether two answers did the same on an input: equal values, or the same kind of exception."""
    call, a, b = one.call, one.reply, other.reply
    if a.has_value != b.has_value:
        return False
    if a.raised and b.raised:
        return a.raised.kind == b.raised.kind
    if not a.has_value:
        return a.not_plain is not None and a.not_plain == b.not_plain
    if one.changes != other.changes or one.takes_too_much != other.takes_too_much:
        return False
    if (a.gradients is None) != (b.gradients is None):
        return False
    if call.steps is not None:
        differ = compare_steps(call, a.value, b.value, only_whether=True) is not None
    else:
        differ = _differ(call, a.value, b.value, exercise.returns, exercise.keeps_dtype)
    if differ or (a.gradients and _differ(call, a.gradients, b.gradients, ("gradients",))):
        return False
    some_events = one.events or other.events
    return not (some_events and _differ(call, one.events, other.events, ("events",)))


def _differ(
    call: Call, one: Any, other: Any, names: tuple[str, ...], keeps_dtype: bool = False
) -> bool:
    difference = compare(call, one, other, names=names, keeps_dtype=keeps_dtype, only_whether=True)
    return difference is not None


def fingerprint(evidence: Sequence[Evidence]) -> str:
    """What an answer does, as a short text: equal for answers that compute the same.

    Floats count to five digits, so that two ways of computing one thing are one.
    """
    outcomes = repr([_outline(e.reply) for e in evidence])
    return hashlib.sha256(outcomes.encode()).hexdigest()[:12]


def _outline(reply: Reply) -> object:
    if reply.raised:
        return ("raised", reply.raised.kind)
    if not reply.has_value:
        return reply.not_plain or reply.died or "late"
    return plain.mapped(reply.value, _coarse)


def _coarse(value: object) -> object:
    if tensors.is_array(value):
        array = tensors.numbers(value)
        return (array.shape, [_coarse(x) for x in array.ravel().tolist()])
    return f"{value + 0.0:.5g}" if isinstance(value, float) else value


def _without_handles(value: Any) -> Any:
    return "a stub" if type(value) is Handle else value


def _same_words(a: Reply, b: Reply) -> bool:
    return a.raised is not None and b.raised is not None and a.raised.message == b.raised.message


def changed(call: Call, reply: Reply) -> tuple[int, ...]:
    """Which arguments were changed in place, by their place among those that could be."""
    if len(reply.after) != len(arrays_of(call)):
        return ()
    return tuple(
        i
        for i, (before, after) in enumerate(zip(arrays_of(call), reply.after, strict=True))
        if not _equal(before, after)
    )


def _equal(before: object, after: object) -> bool:
    if tensors.is_array(before) and tensors.is_array(after):
        before, after = tensors.numbers(before), tensors.numbers(after)
        if before.shape != after.shape or before.dtype != after.dtype:
            return False
        has_nan = before.dtype.kind in "fc"
        # Nearly always the bytes are the same, which is seen soonest.
        return before.tobytes() == after.tobytes() or np.array_equal(before, after, has_nan)
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(_equal(before[k], after[k]) for k in before)
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        return len(before) == len(after) and all(map(_equal, before, after))
    return type(before) is type(after) and before == after
