"""Judging an answer: run an exercise's properties, and say in words what came of it."""

from __future__ import annotations

import builtins
import secrets
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coursework import plain, private, tensors
from coursework.answer import (
    Answer,
    LocalAnswer,
    Raised,
    Reply,
    arrays_of,
    is_forbidden,
    is_withheld,
    quiet,
    rehearsal,
    takes_too_much,
)
from coursework.chapters import Chapter, by_number
from coursework.compare import Difference, compare, compare_gradients, compare_steps
from coursework.diagnose import Evidence, changed, fingerprint, name_misconception
from coursework.exercise import Call, Exercise, Property, Seed
from coursework.exercises import asked_from, get
from coursework.known import inputs, outcome
from coursework.memory import MIB
from coursework.plain import short
from coursework.steps import arguments_of, warm_up
from coursework.withhold import from_chapter, functions_of

VISIBLE_SEED = 0  #: inputs of the visible check, the same for everybody
MOST_OF_A_LINE = 100  #: characters of a student's line that a message quotes
#: Exceptions that an exercise may ask for. Any other one of a reference is a fault of ours.
ASKED_FOR = ("ValueError", "IndexError", "KeyError", "TypeError")
WHOLE = ("withheld", "forbidden")  #: failures for which the whole answer counts nothing


@dataclass(frozen=True)
class Failure:
    """Why a property does not hold."""

    what: str  #: "weights is not right": may stand in feedback
    detail: str = ""  #: numbers of the input and of the right answer: never in feedback
    kind: str = "value"  #: "missing", "error", "late", "type", "shape", "dtype", "value", …
    call: Call | None = None


WITHHELD = Failure(
    "it uses a part of attend that this chapter's exercises, or later ones, ask for. Write yours",
    kind="withheld",
)


@dataclass(frozen=True)
class Result:
    """One property of an answer."""

    property: str
    points: int
    max_points: int
    failure: Failure | None = None


@dataclass(frozen=True)
class Verdict:
    """What an answer is worth, and why."""

    exercise: str
    passed: bool
    points: float
    max_points: float
    message: str  #: for the student's notebook: it may show inputs and right values
    feedback: str  #: for graded work: the same without them
    misconception: str | None
    results: tuple[Result, ...]
    #: Equal for wrong answers without a name that do the same on the visible inputs.
    fingerprint: str = ""


def evaluate(id: str, answer: Any, *, seed: int | None = None) -> Verdict:
    """Run the visible and the graded check of an answer in this process.

    Args:
        id: an exercise's id, such as "04.row_entropy".
        answer: the function (or the class) that was asked for.
        seed: makes the graded inputs; None draws one.

    Raises:
        ValueError: there is no exercise of that id. The message names those that are near.
    """
    seed = secrets.randbits(32) if seed is None else seed
    return evaluate_exercise(get(id), answer, (VISIBLE_SEED, seed))


def check(
    id: str,
    answer: Any,
    *,
    variant: int | None = None,
    graded: bool = False,
    seed: int | None = None,
) -> float:
    """Check an answer in a notebook: print what is right and what is wrong, and return the points.

    An instructor's own exercise is not declared on a student's machine. Its check says that and
    gives 0.0, so that the cells below it run.

    Args:
        id: an exercise's id.
        answer: the function (or the class) that was asked for.
        variant: for a bug hunt, the number that the notebook gives.
        graded: use fresh inputs and show none of their numbers.
        seed: makes those inputs; None draws one.

    Raises:
        ValueError: there is no exercise of that id.
    """
    if not graded and type(id) is str and private.is_elsewhere(id):
        print(f"· {id.partition('.')[2]}: checked when your notebook is graded.")
        return 0.0
    exercise = get(id, variant)
    if graded:
        seed = secrets.randbits(32) if seed is None else seed
    verdict = evaluate_exercise(exercise, answer, (seed if graded else VISIBLE_SEED,))  # type: ignore[arg-type]
    print(verdict.feedback if graded else verdict.message)
    return verdict.points


def evaluate_exercise(exercise: Exercise, answer: Any, seeds: Sequence[int]) -> Verdict:
    """Judge an object of this process by the checks with these seeds."""
    if not callable(answer):
        noun = "class" if exercise.is_class else "function"
        failure = Failure(f"there is no {noun}, but {short_type(answer)}", kind="missing")
        return verdict_of(exercise, all_failed(exercise, failure), None)
    if chapter(exercise).needs_torch:
        warm_up()
    local = LocalAnswer(answer, _withholding(exercise), forbids_fused=exercise.forbids_fused)
    with quiet():
        return judge(exercise, local, seeds)


def _withholding(exercise: Exercise) -> Any:
    later = (exercise, *asked_from(exercise.chapter))
    references = (functions_of(e.reference) for e in later)
    return from_chapter(exercise.chapter, set().union(*references))


def judge(exercise: Exercise, answer: Answer, seeds: Sequence[int]) -> Verdict:
    """Judge an answer, wherever it runs.

    Every property is checked with every seed and holds only if it holds with all. What the answer
    did on the way is the evidence from which a mistake is named.
    """
    evidence: list[Evidence] = []
    results: list[Result] = []
    for prop in exercise.properties:
        failure = None
        for seed in seeds:
            failure = failure or check_property(exercise, prop, answer, seed, evidence)
        if _is_untouched(evidence[0].reply):
            failure = Failure("still to do", kind="todo")
        if failure and failure.kind in ("todo", *WHOLE):
            return verdict_of(exercise, all_failed(exercise, failure), None)
        results.append(Result(prop.name, 0 if failure else prop.points, prop.points, failure))
    misconception = None
    first = next((r.failure for r in results if r.failure), None)
    if first and exercise.misconceptions:
        misconception = _diagnose(exercise, answer, evidence, first)
    verdict = verdict_of(exercise, results, misconception)
    if first and not misconception and exercise.reference:
        seen = [e for e in evidence if e.seed == VISIBLE_SEED]
        return replace(verdict, fingerprint=fingerprint(seen))
    return verdict


def _is_untouched(reply: Reply) -> bool:
    return reply.raised is not None and reply.raised.kind == NotImplementedError.__name__


def _diagnose(exercise: Exercise, answer: Answer, evidence: list[Evidence], first: Failure) -> Any:
    if any(e.reply.late or e.reply.died for e in evidence):
        return None
    if exercise.probes:
        probes = inputs(exercise.probes, VISIBLE_SEED)
        evidence = [*evidence, *map(Evidence, probes, answer.ask_all(probes))]
    return name_misconception(exercise, evidence, first.call)


def check_property(
    exercise: Exercise, prop: Property, answer: Answer, seed: int, evidence: list[Evidence]
) -> Failure | None:
    """Why one property does not hold for the inputs of one seed; None if it holds.

    Every call is made, and the failure reported is the one on the smallest input.
    """
    calls = inputs(prop.calls, abs(seed), zlib.crc32(prop.name.encode()))
    failures: list[Failure] = []
    replies: list[Reply] = []
    for call, reply in zip(calls, answer.ask_all(calls), strict=False):
        failure = check_reply(exercise, prop, call, reply)
        if failure and failure.kind == "memory":
            # It may have loaded a library, or made a work space that it keeps: once more, and with
            # other numbers, so that no result that was kept will do.
            call = rehearsal(call)
            reply = answer.ask(call)
            failure = check_reply(exercise, prop, call, reply)
        replies.append(reply)
        evidence.append(Evidence(call, reply, prop.edge, seed))
        if failure and failure.kind in WHOLE:
            return failure
        if failure:
            failures.append(replace(failure, call=call))
    if failures:
        return min(failures, key=lambda f: _size(f.call))
    if prop.together and all(r.has_value for r in replies):
        sentence = prop.together(calls, [r.value for r in replies])
        if sentence:
            return Failure(sentence, call=calls[0])
    return None


def check_reply(exercise: Exercise, prop: Property, call: Call, reply: Reply) -> Failure | None:
    """Why one reply is not right; None if it is."""
    expected = None
    if exercise.reference:
        unlimited = call if call.memory is None else replace(call, memory=None)
        expected = outcome(exercise.reference, unlimited)
        if expected.raised and expected.raised.kind not in ASKED_FOR:
            raise RuntimeError(f"the reference of {exercise.id} fails: {expected.raised}")
    expects_error = expected is not None and expected.raised is not None
    failure = _no_value(reply, expected.raised if expected and expects_error else None)
    if failure or not reply.has_value:
        return failure
    if expects_error:
        assert expected is not None and expected.raised is not None
        return Failure(
            f"it accepts an input that calls for a {expected.raised.kind}",
            f"{_on(exercise, call)} it returned a value; it should raise {expected.raised.kind}: "
            f"{expected.raised.message}.",
            "error",
        )
    if changes := changed(call, reply):
        return Failure(_changed_what(exercise, call, changes), kind="side effect")
    if exercise.new_arrays and reply.shares:
        return Failure("it returns an array that it was given: return new ones", kind="side effect")
    if reply.stirred and chapter(exercise).needs_torch:
        return Failure(
            "it leaves a global random generator, or PyTorch's gradient mode, changed",
            kind="side effect",
        )
    difference: str | Difference | None
    if prop.compare:
        difference = prop.compare(call, reply.value)
    elif call.steps is not None:
        assert expected is not None
        difference = compare_steps(call, expected.value, reply.value)
    else:
        assert expected is not None
        difference = compare(
            call,
            expected.value,
            reply.value,
            names=exercise.returns,
            only=prop.outputs,
            look_first=exercise.look_first,
            keeps_dtype=exercise.keeps_dtype,
        )
    if difference is None and call.gradient:
        assert expected is not None
        names = [f"the gradient of {n}" for n, v in _named(exercise, call) if tensors.has_floats(v)]
        difference = compare_gradients(call, expected.gradients, reply.gradients, names)
    if difference is None and prop.watch:
        difference = prop.watch(call, reply.events)
    if difference is None and takes_too_much(call, reply):
        return Failure(
            "it needs too much memory",
            f"{_on(exercise, call)} it needed {reply.memory / MIB:.1f} MiB at its peak; it should "
            f"need less than {call.memory / MIB:.1f} MiB.",
            "memory",
        )
    if difference is None or isinstance(difference, str):
        return Failure(difference) if difference else None
    return Failure(difference.what, f"{_on(exercise, call)} {difference.detail}", difference.kind)


def _no_value(reply: Reply, expected: Any) -> Failure | None:
    """Why there is no value, unless an exception of the right type was expected and came."""
    if is_withheld(reply):
        return WITHHELD
    if is_forbidden(reply):
        return Failure(
            "it calls PyTorch's fused attention, which this exercise asks you to do without",
            kind="forbidden",
        )
    if reply.late:
        return Failure("it took too long: is there a loop that does not end?", kind="late")
    if reply.died:
        return Failure(reply.died, kind="died")
    if reply.not_plain:
        return Failure(f"it returns {reply.not_plain}", kind="type")
    if reply.raised is None:
        return None
    if expected and expected.kind in reply.raised.kinds:
        return None
    source = reply.raised.line or ""
    if len(source) > MOST_OF_A_LINE:  # a cell may be one line
        source = f"{source[: MOST_OF_A_LINE - 1]}…"
    line = f"\n  In your line: {source}" if source else ""
    wanted = f" It should raise {expected.kind}." if expected else ""
    message = f": {reply.raised.message.rstrip('.')}" if reply.raised.message else ""
    return Failure(
        f"it raised {_known(reply.raised)}",
        f"{reply.raised.kind}{message}.{wanted}{line}",
        "error",
    )


def _known(raised: Raised) -> str:
    """The exception, or what it is made from: a class of the student's may be named anything."""
    return next((kind for kind in raised.kinds if hasattr(builtins, kind)), "an exception")


def _changed_what(exercise: Exercise, call: Call, changes: tuple[int, ...]) -> str:
    named = [
        name
        for name, value in _named(exercise, call)
        if any(value is a for i, a in enumerate(arrays_of(call)) if i in changes)
    ]
    return f"it changes its input {', '.join(named)}: work on a copy"


def _named(exercise: Exercise, call: Call) -> Iterator[tuple[str, Any]]:
    yield from zip(exercise.parameters, call.args, strict=False)
    yield from call.kwargs.items()


def _on(exercise: Exercise, call: Call) -> str:
    """The input in words: shapes of arrays, and everything that is small enough to be shown."""
    parts = []
    for name, value in _named(exercise, call):
        if tensors.is_array(value):
            small = plain.size(value) <= 6 and value.ndim < 3
            shape = tuple(value.shape)
            parts.append(f"{name} = {short(value)}" if small else f"{name} {shape}")
        elif isinstance(value, Seed):
            parts.append(f"{name} = {value}")
        else:
            parts.append(f"{name} = {getattr(value, 'name', None) or short(value)}")
    return f"On {', '.join(parts)}" if parts else "There"


def _size(call: Call | None) -> int:
    if call is None:
        return 0
    return sum(map(plain.size, arguments_of(call)))


def all_failed(exercise: Exercise, failure: Failure) -> list[Result]:
    return [Result(p.name, 0, p.points, failure) for p in exercise.properties]


def verdict_of(exercise: Exercise, results: Sequence[Result], misconception: Any) -> Verdict:
    """Put results into words."""
    points = float(sum(r.points for r in results))
    failed = [r for r in results if r.failure]

    def words(show_numbers: bool) -> str:
        # An exception's message is the student's, and may hold anything.
        return plain.readable(_words(exercise, results, misconception, show_numbers))

    return Verdict(
        exercise=exercise.id,
        passed=not failed,
        points=points,
        max_points=float(exercise.max_points),
        message=words(True),
        feedback=words(False),
        misconception=misconception.name if misconception else None,
        results=tuple(results),
    )


def _words(
    exercise: Exercise, results: Sequence[Result], misconception: Any, show_numbers: bool
) -> str:
    points = sum(r.points for r in results)
    score = f"{points} of {exercise.max_points} points"
    failed = [r for r in results if r.failure]
    if not failed:
        lines = [f"✓ {exercise.name}: right ({score})."]
        return "\n".join([*lines, *(f"  ✓ {r.property}" for r in results)])
    first = failed[0].failure
    assert first is not None
    if first.kind == "todo":
        return f"· {exercise.name}: still to do ({score})."
    what = (misconception and misconception.symptom) or first.what
    lines = [f"✗ {exercise.name}: {what.rstrip('.')} ({score})."]
    if show_numbers and first.detail:
        lines.append(f"  {first.detail}")
    if misconception:
        lines.append(f"  {misconception.sentence}")
    if first.kind not in ("withheld", "forbidden"):
        lines += [f"  {'✗' if r.failure else '✓'} {r.property}" for r in results]
        slug = chapter(exercise).slug
        if not private.is_private(slug):  # whose hints a student has in the notebook alone
            lines.append(f"  A hint: course check {slug} --hint {exercise.name}")
    return "\n".join(lines)


def chapter(exercise: Exercise) -> Chapter:
    """The chapter of an exercise."""
    return by_number(exercise.chapter)


def short_type(value: Any) -> str:
    return "None" if value is None else plain.article(plain.name_of(type(value)))
