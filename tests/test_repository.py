"""The repository keeps its promises: pins, licences, documents, words."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import coursework
from coursework import check
from coursework.exercises import get

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WHAT_IS_COMMITTED = subprocess.run(
    ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
).stdout.split("\0")[:-1]


def text_files():
    """Yield path and text of each committed file that is text and still there."""
    for name in WHAT_IS_COMMITTED:
        try:
            yield name, (ROOT / name).read_text("utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue


def lines_that_match(pattern):
    """Return `file:line: text` for each line of a committed text file where the pattern occurs."""
    return [
        f"{name}:{number}: {line.strip()[:120]}"
        for name, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


def locked():
    """Return the lock as {name: requirements}; a package may be pinned once per Python."""
    pins = {}
    for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines():
        line = re.split(r"(?:^|\s)#", line)[0].strip()
        if line:
            requirement = Requirement(line)
            pins.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return pins


def stated():
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(text) for text in sum(extras, PROJECT["dependencies"])]


@pytest.mark.parametrize("need", stated(), ids=lambda need: need.name)
def test_the_lock_pins_what_the_project_states_within_its_range(need):
    pins = locked().get(canonicalize_name(need.name), [])
    assert pins, f"{need.name} is in pyproject.toml but not in requirements.txt: run tools/lock"
    for pin in pins:
        (version,) = (part.version for part in pin.specifier)
        assert need.specifier.contains(version), f"{pin} is outside {need}: run tools/lock"


def test_the_locks_are_nothing_but_pins_and_name_no_host():
    loose = [
        str(pin)
        for pins in locked().values()
        for pin in pins
        if [part.operator for part in pin.specifier] != ["=="] or pin.url
    ]
    assert not loose
    assert "://" not in (ROOT / "requirements.txt").read_text("utf-8")
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text("utf-8")


def test_a_student_needs_five_packages_and_no_tools_of_the_book():
    names = {Requirement(text).name for text in PROJECT["dependencies"]}
    assert names == {"array-api-compat", "nbformat", "numpy", "rich", "typer"}


@pytest.fixture(scope="module")
def packages_of_a_student(tmp_path_factory):
    """A folder with nothing in it but what the base dependencies bring."""
    folder = tmp_path_factory.mktemp("site-packages")
    for name in closure(PROJECT["dependencies"]):
        files = distribution(name).files
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (folder / top).symlink_to(distribution(name).locate_file(top))
    return folder


def closure(requirements):
    """Return the names of all distributions that these requirements bring."""
    names, waiting = set(), list(requirements)
    while waiting:
        need = Requirement(waiting.pop())
        applies = need.marker is None or need.marker.evaluate({"extra": ""})
        if applies and need.name not in names:
            names.add(need.name)
            waiting += distribution(need.name).requires or []
    return names


def test_a_student_can_check_a_notebook_with_the_base_alone(packages_of_a_student):
    python = [sys.executable, "-S", "-c", "from coursework.commands import main; main()"]
    run = subprocess.run(
        [*python, "check", ROOT / "notebooks" / "04-scaling" / "04-scaling.ipynb"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{packages_of_a_student}"},
        capture_output=True,
        text=True,
    )
    assert "still to do" in run.stdout, run.stderr
    assert run.returncode == 1


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = re.search(r"^## (\d\S*)", changelog, re.MULTILINE)
    assert newest, "CHANGELOG.md names no version"
    assert PROJECT["version"] == str(citation["version"]) == newest[1] == coursework.__version__


def test_make_without_a_target_lists_every_target():
    # Under `make test` this is a make within a make, which would also say where it is.
    make = ["make", "--no-print-directory"]
    listed = subprocess.run(make, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    assert targets >= {"course", "test", "check", "book", "serve", "notebooks"}
    assert {line.split()[1] for line in listed.splitlines()} == targets


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_file_and_target_that_a_document_names_is_there(name):
    text = (ROOT / name).read_text("utf-8")
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    paths = re.findall(r"`((?:book|src|tests|tools|solutions|notebooks)/[\w./-]*)`", text)
    assert not [path for path in {*links, *paths} if not (ROOT / path).exists()]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    unknown = [
        target
        for target in re.findall(r"`?make ([a-z]+)", "\n".join(code_in(text)))
        if not re.search(rf"^{target}:", makefile, re.MULTILINE)
    ]
    assert not unknown, f"{name} names make targets that do not exist"


def code_in(markdown):
    """Return what stands in backticks or fences."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    return fenced + re.findall(r"`([^`\n]+)`", markdown)


def test_the_readme_shows_what_a_check_really_says(capsys):
    exercise = get("04.scaled_dot_product_attention")
    (answer,) = (m.function for m in exercise.misconceptions if m.name == "divides by d_k")
    check(exercise.id, answer)
    assert f"```\n{capsys.readouterr().out}```" in (ROOT / "README.md").read_text("utf-8")


def test_the_readme_names_every_chapter_of_the_book():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    listed = [Path(chapter["file"]).name for part in toc["parts"] for chapter in part["chapters"]]
    here = {name[:2] for name in listed if name[:2].isdigit()}
    assert set(re.findall(r"\((\d\d)\)", (ROOT / "README.md").read_text("utf-8"))) == here


def test_both_licences_are_there_and_the_readme_says_which_is_for_what():
    assert "BSD 3-Clause" in (ROOT / "LICENSE").read_text("utf-8")
    assert "Attribution 4.0" in (ROOT / "LICENSE-text").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "BSD-3-Clause" in readme
    assert "Creative Commons Attribution 4.0 International" in readme


def test_nothing_is_left_half_done():
    marks = "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X\\b"])
    assert not lines_that_match(rf"\b(?:{marks})")


def test_no_file_names_the_folder_it_was_written_in():
    """Above all the stored outputs of notebooks, where a warning brings the path of its module."""
    assert not lines_that_match(re.escape(f"{ROOT}/"))
    assert not lines_that_match(re.escape(f"{Path(sys.prefix)}/"))


def test_nothing_about_students_is_committed():
    assert not [name for name in WHAT_IS_COMMITTED if name.startswith("classroom/")]
    assert not [name for name in WHAT_IS_COMMITTED if name.endswith((".db", ".sqlite"))]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of what it is made of, with the pinned setuptools."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("notebooks", "solutions"):
        shutil.copytree(ROOT / name, source / name)
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", source, source], check=True)
    (built,) = source.glob("*.whl")
    return built


def test_the_wheel_holds_the_packages_the_students_notebooks_and_no_solutions(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        notebooks = {n: archive.read(n).decode("utf-8") for n in names if n.endswith(".ipynb")}
    assert {name.split("/")[0] for name in names} == {"attend", "coursework"}
    assert not [name for name in names if "solution" in name]
    released = {p.name: p.read_text("utf-8") for p in ROOT.glob("notebooks/*/*.ipynb")}
    assert notebooks == {f"coursework/notebooks/{name}": text for name, text in released.items()}


def test_the_wheel_brings_the_course_command(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (entries,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "course = coursework.commands:main" in archive.read(entries).decode()


def test_a_skip_fails_where_nothing_may_be_skipped(tmp_path):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_one.py").write_text(
        "import pytest\ndef test_one():\n    pytest.skip('why')\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path,
        env={**os.environ, "CI": "true"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert "nothing may be skipped where CI=true. Skipped: why" in run.stdout
