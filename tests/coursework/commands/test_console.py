"""Numbers and names in sentences."""

from coursework.commands.console import counted, listed


def test_one_is_not_many():
    assert [counted(n, "student") for n in (0, 1, 2)] == ["0 students", "1 student", "2 students"]


def test_names_with_commas_are_told_apart():
    assert listed(["ada", "emmy"]) == "ada, emmy"
    assert listed(["Ghost, Gil", "Student, Test"]) == "Ghost, Gil; Student, Test"
