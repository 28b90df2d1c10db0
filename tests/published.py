"""The published models, for tests that need one."""

import os

import pytest

import attend


def load(name):
    """A published model and its tokenizer. CI fetches it; elsewhere a test that lacks it skips."""
    if not attend.is_fetched(name) and os.environ.get("CI") == "true":
        attend.fetch([name])
    if not attend.is_fetched(name):
        pytest.skip(f"{name} is not on this machine: run `course fetch-models`")
    return attend.load(name)
