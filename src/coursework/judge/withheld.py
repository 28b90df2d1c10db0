"""In the worker: `attend` without what the chapter being graded asks for.

Modules of this chapter and later ones are not among the worker's files, and importing one is
answered as calling one of their functions is elsewhere. Functions of these chapters that live in an
earlier chapter's module are cut out of its source (see `sandbox.Site`).
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from coursework.withhold import Withheld


class Finder(MetaPathFinder):
    """Refuses withheld modules."""

    def __init__(self, modules: Collection[str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name in self.modules:
            raise Withheld
        return None


def install(modules: Collection[str]) -> None:
    """Withhold these modules from here on, in this process."""
    sys.meta_path.insert(0, Finder(modules))
