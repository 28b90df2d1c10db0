"""Numbers and names in sentences, and how far a command is."""

from coursework.commands import console
from coursework.commands.console import counted, listed


def test_one_is_not_many():
    assert [counted(n, "student") for n in (0, 1, 2)] == ["0 students", "1 student", "2 students"]


def test_names_with_commas_are_told_apart():
    assert listed(["ada", "emmy"]) == "ada, emmy"
    assert listed(["Ghost, Gil", "Student, Test"]) == "Ghost, Gil; Student, Test"


def test_where_there_is_no_terminal_a_line_says_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(console, "EVERY", -1.0)
    monkeypatch.setattr(console, "err", console.Console(stderr=True))  # of the captured stream
    with console.progress() as bar:
        task = bar.add_task("Grading", total=3)
        for _ in range(3):
            bar.advance(task)
    assert capsys.readouterr().err.splitlines() == ["Grading: 1 of 3", "Grading: 2 of 3"]
