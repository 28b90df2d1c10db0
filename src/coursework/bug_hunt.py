"""Bug hunts: find the mistake in a wrong function, and prove that you have found it.

One of a chapter's misconceptions is printed. The student returns an input on which it agrees with
the right function although the input is not degenerate, an input on which it differs, and the name
of its mistake among five. Which function is printed depends on the instructor's seed, and nothing
prints the answer.
"""

from __future__ import annotations

import inspect
import random
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from coursework import plain
from coursework.answer import Reply, run_here
from coursework.compare import compare
from coursework.exercise import Call, Exercise, Misconception, Property

PUBLISHED_SEED = 0  #: of the notebooks in the repository; an instructor's own is not published
MAX_NUMBERS = 10_000  #: in one input

CALL = (Call(()),)


def variant_in(sources: Iterable[str]) -> int | None:
    """Which bug a notebook hunts: it stands in its check cell. None: it hunts none."""
    found = (re.search(r"bug_hunt,\s*variant=(\d+)", source) for source in sources)
    return next((int(match[1]) for match in found if match), None)


@dataclass(frozen=True)
class Condition:
    """What keeps an input from being degenerate: a sentence and a test of the arguments."""

    sentence: str  #: "q and k hold no zeros": printed in the notebook
    holds: Callable[..., bool]


@dataclass(frozen=True)
class Bug:
    """A wrong function that can be hunted."""

    misconception: str  #: its name in the target exercise
    mistake: str  #: the right one of the five sentences
    others: tuple[str, str, str, str]  #: the wrong ones, each a plausible guess
    hides: tuple[Any, ...]  #: a solution: arguments on which it agrees
    shows: tuple[Any, ...]  #: a solution: arguments on which it differs


@dataclass(frozen=True)
class BugHunt:
    """A chapter's bug hunt: one exercise for each bug."""

    target: Exercise  #: whose misconceptions are hunted
    bugs: tuple[Bug, ...]
    conditions: tuple[Condition, ...]
    hints: tuple[str, str, str]
    minutes: int

    def variant_for(self, seed: int) -> int:
        """Which bug an instructor's seed chooses."""
        return random.Random(f"{seed}:{self.target.chapter}").randrange(len(self.bugs))

    def bug(self, variant: int | None = None) -> Bug:
        """The bug of a variant; None: the published notebook's.

        Raises:
            ValueError: there is no such variant.
        """
        variant = self.variant_for(PUBLISHED_SEED) if variant is None else variant
        if not 0 <= variant < len(self.bugs):
            raise ValueError(f"variant {variant} is not within 0 … {len(self.bugs) - 1}")
        return self.bugs[variant]

    def misconception(self, variant: int | None = None) -> Misconception:
        name = self.bug(variant).misconception
        return next(m for m in self.target.misconceptions if m.name == name)

    def source(self, variant: int | None = None) -> str:
        """The wrong function as it is printed: without the name and the words that give it away."""
        function = self.misconception(variant).function
        source = textwrap.dedent(inspect.getsource(function))
        return source.replace(f"def {function.__name__}(", "def suspect(", 1).rstrip()

    def mistakes(self, variant: int | None = None) -> tuple[str, ...]:
        """The five sentences, in an order that says nothing."""
        return self.mistakes_of(self.bug(variant))

    def mistakes_of(self, bug: Bug) -> tuple[str, ...]:
        sentences = sorted((bug.mistake, *bug.others))
        random.Random(f"{self.target.id}:{bug.misconception}").shuffle(sentences)
        return tuple(sentences)

    def asked(self, bug: Bug) -> tuple[str, ...]:
        """The parameters that are asked for: what follows them keeps its default."""
        return self.target.parameters[: len(bug.hides)]

    def task(self, variant: int | None = None) -> str:
        """What is asked, in Markdown: the conditions and the five sentences."""
        names = ", ".join(self.target.parameters)
        asked = ", ".join(self.asked(self.bug(variant)))
        conditions = "\n".join(f"- {c.sentence}" for c in self.conditions)
        mistakes = "\n".join(f"- `{m}`" for m in self.mistakes(variant))
        return (
            f"`suspect({names})` above should do what `{self.target.name}` does, and does not "
            "always. Return a dictionary with three entries:\n\n"
            f'- `"hides"`: arguments `({asked})` on which both agree although nothing about them '
            "is degenerate;\n"
            f'- `"shows"`: arguments `({asked})` on which they differ;\n'
            '- `"mistake"`: one of the five sentences below, word for word.\n\n'
            f"Both inputs must keep to this (at most {MAX_NUMBERS:,} numbers each):\n\n"
            f"{conditions}\n\nThe five sentences:\n\n{mistakes}"
        )

    def exercise(self, variant: int | None = None) -> Exercise:
        """The bug hunt as an exercise, judged without a reference answer: many inputs are right."""
        hunt = _Judgement(self, self.bug(variant), self.misconception(variant).function)
        return Exercise(
            chapter=self.target.chapter,
            signature="bug_hunt() -> dict",
            task=self.task(variant),
            reference=None,
            properties=(
                Property(
                    "hides: an input on which the bug does not show", 2, _once, compare=hunt.hides
                ),
                Property("shows: an input on which it does", 1, _once, compare=hunt.shows),
                Property("mistake: its name among the five", 1, _once, compare=hunt.mistake),
            ),
            misconceptions=(),
            hints=self.hints,
            minutes=self.minutes,
            returns=("the dict",),
            variant=self.variant_for(PUBLISHED_SEED) if variant is None else variant,
        )


def _once(rng: np.random.Generator) -> tuple[Call, ...]:
    return CALL


def _typed(sentence: str) -> str:
    """A sentence as a keyboard writes it, with a hyphen for a minus sign."""
    return sentence.strip().replace("−", "-")


@dataclass(frozen=True)
class _Judgement:
    """Judges the three entries of the returned dictionary. The inputs are plain values by now."""

    hunt: BugHunt
    bug: Bug
    suspect: Callable[..., Any]

    def hides(self, call: Call, value: Any) -> str | None:
        problem, right, wrong = self._try(value, "hides")
        if problem:
            return problem
        assert right is not None and wrong is not None
        if not self._same(value["hides"], right, wrong):
            return "on the input in hides, suspect and the right function differ"
        return None

    def shows(self, call: Call, value: Any) -> str | None:
        problem, right, wrong = self._try(value, "shows")
        if problem:
            return problem
        assert right is not None and wrong is not None
        if self._same(value["shows"], right, wrong):
            return "on the input in shows, suspect and the right function agree"
        return None

    def mistake(self, call: Call, value: Any) -> str | None:
        said = value.get("mistake") if type(value) is dict else None
        if type(said) is not str:
            return "mistake is not one of the five sentences, word for word"
        said = _typed(said)
        if said not in map(_typed, self.hunt.mistakes_of(self.bug)):
            return "mistake is not one of the five sentences, word for word"
        return None if said == _typed(self.bug.mistake) else "mistake names another mistake"

    def _try(self, value: Any, entry: str) -> tuple[str | None, Reply | None, Reply | None]:
        """The sentence that refuses an input, or what both functions make of it."""
        if type(value) is not dict or entry not in value:
            return f"the dict has no entry {entry!r}", None, None
        args = self._asked_of(value[entry])
        if args is None:
            names = ", ".join(self.hunt.asked(self.bug))
            return f"{entry} is not a tuple ({names})", None, None
        if sum(plain.size(a) for a in args) > MAX_NUMBERS:
            return f"{entry} has more than {MAX_NUMBERS:,} numbers", None, None
        for condition in self.hunt.conditions:
            try:
                holds = bool(condition.holds(*args))
            except Exception:  # the arguments may be anything: what cannot be tested does not hold
                holds = False
            if not holds:
                return f"{entry} is degenerate: it is asked that {condition.sentence}", None, None
        arguments = Call(tuple(args))
        right = run_here(self.hunt.target.reference, arguments)  # type: ignore[arg-type]
        wrong = run_here(self.suspect, arguments)
        if not right.has_value:
            return f"the right function raises an error on the input in {entry}", None, None
        return None, right, wrong

    def _asked_of(self, args: Any) -> tuple[Any, ...] | None:
        """The arguments that are asked for, without the defaults behind them; None: others are."""
        asked = len(self.hunt.asked(self.bug))
        parameters = inspect.signature(self.hunt.target.reference).parameters  # type: ignore[arg-type]
        defaults = [p.default for p in parameters.values()][asked:]
        if type(args) not in (tuple, list) or not asked <= len(args) <= asked + len(defaults):
            return None
        if any(
            type(a) is not type(d) or a != d for a, d in zip(args[asked:], defaults, strict=False)
        ):
            return None
        return tuple(args[:asked])

    def _same(self, args: Any, right: Reply, wrong: Reply) -> bool:
        target = self.hunt.target
        return wrong.has_value and (
            compare(
                Call(tuple(args)),
                right.value,
                wrong.value,
                names=target.returns,
                keeps_dtype=target.keeps_dtype,
            )
            is None
        )
