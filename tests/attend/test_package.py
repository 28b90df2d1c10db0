"""How the package hangs together: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import attend

PACKAGE = Path(attend.__file__).parent

#: Modules of `attend` by the chapter that first needs them; 0 is for what all of them share.
CHAPTER = {
    "arrays": 0,
    "texts": 0,
    "tokens": 1,
    "tokenizer": 1,
    "wordpiece": 1,
    "embeddings": 1,
    "positions": 2,
    "dot_product": 4,
    "masks": 5,
    "heads": 6,
    "blocks": 7,
    "layers": 7,
    "model": 8,
    "training": 8,
    "sampling": 8,
    "cache": 9,
    "long_context": 10,
    "reading": 11,
    "checkpoints": 12,
    "pretrained": 12,
}
NUMPY_ONLY = [name for name, chapter in CHAPTER.items() if chapter <= 6 or chapter == 10]
#: Needed by all chapters, and by no module.
APART = {"__init__", "__main__", "figures"}


def imported_by(module: str) -> set[str]:
    """Names of the `attend` modules that a module imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = node.module.split(".")
            assert node.level == 0, "imports name the module in full"
            if parts[0] == "attend":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("attend.")}
    return found


def test_every_module_belongs_to_a_chapter():
    assert {path.stem for path in PACKAGE.glob("*.py")} - APART == set(CHAPTER)


@pytest.mark.parametrize("module", CHAPTER)
def test_a_module_imports_only_from_chapters_before_its_own(module):
    order = list(CHAPTER)
    for other in imported_by(module):
        assert other in CHAPTER, f"{module} imports {other}, which belongs to no chapter"
        earlier = CHAPTER[other], order.index(other)
        assert earlier < (CHAPTER[module], order.index(module)), f"{module} imports {other}"


@pytest.mark.parametrize("module", ["coursework", *(f"attend.{name}" for name in NUMPY_ONLY)])
def test_chapters_1_to_6_and_10_do_not_need_pytorch(module):
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_importing_the_package_imports_no_library():
    code = "import attend, sys; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_is_there_and_documented():
    for name in attend.__all__:
        thing = getattr(attend, name)
        assert name in dir(attend)
        if callable(thing):
            assert thing.__doc__, f"{name} has no docstring"


def test_an_unknown_name_is_an_attribute_error_that_says_what_there_is():
    with pytest.raises(AttributeError, match=r"no 'sofmax'.*softmax"):
        attend.sofmax  # noqa: B018
