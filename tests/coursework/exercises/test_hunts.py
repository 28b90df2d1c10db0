"""What holds for every bug of every bug hunt."""

from __future__ import annotations

import numpy as np
import pytest

from coursework.evaluate import evaluate_exercise
from coursework.exercises import bug_hunt_of, declared_chapters

from .declared import every_hunt


def _hunted(chapter, variant, **changes):
    hunt = bug_hunt_of(chapter)
    bug = hunt.bugs[variant]
    right = {"hides": bug.hides, "shows": bug.shows, "mistake": bug.mistake}
    return evaluate_exercise(hunt.exercise(variant), lambda: {**right, **changes}, (0, 1))


@every_hunt
def test_a_hunted_bug_can_hide_and_show(chapter, variant):
    verdict = _hunted(chapter, variant)
    assert verdict.passed, verdict.message
    assert verdict.max_points == 4


@every_hunt
def test_the_arguments_that_the_task_asks_for_are_those_that_are_taken(chapter, variant):
    hunt = bug_hunt_of(chapter)
    asked = hunt.target.parameters[: len(hunt.bugs[variant].hides)]
    names = ", ".join(asked)
    assert f'`"hides"`: arguments `({names})`' in hunt.task(variant)
    assert f'`"shows"`: arguments `({names})`' in hunt.task(variant)


@every_hunt
def test_what_hides_does_not_show_and_what_shows_does_not_hide(chapter, variant):
    bug = bug_hunt_of(chapter).bugs[variant]
    assert _hunted(chapter, variant, hides=bug.shows).points == 2
    assert _hunted(chapter, variant, shows=bug.hides).points == 3


@every_hunt
@pytest.mark.slow
def test_each_of_the_other_sentences_is_wrong(chapter, variant):
    hunt = bug_hunt_of(chapter)
    bug = hunt.bugs[variant]
    assert len(set(hunt.mistakes(variant))) == 5
    for sentence in bug.others:
        assert _hunted(chapter, variant, mistake=sentence).points == 3


@every_hunt
def test_the_printed_source_stands_alone_and_gives_nothing_away(chapter, variant):
    hunt = bug_hunt_of(chapter)
    source = hunt.source(variant)
    namespace = {"np": np}
    # Calls NumPy only, and is not spared its annotations, as it would be with this file's own.
    exec(compile(source, "suspect", "exec", dont_inherit=True), namespace)
    assert callable(namespace["suspect"])
    assert "#" not in source
    assert '"""' not in source
    assert hunt.bugs[variant].misconception not in source


def test_a_chapter_has_a_bug_hunt_of_at_least_three_bugs():
    for chapter in declared_chapters():
        assert len(bug_hunt_of(chapter).bugs) >= 3, chapter.slug
