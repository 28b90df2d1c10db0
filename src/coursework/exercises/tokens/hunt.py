"""The bug hunt of chapter 01: five wrong encoders, each right on some texts."""

from __future__ import annotations

from typing import Any

from attend.tokens import encode, token_bytes
from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.tokens.encoding import ENCODE

_LONGEST = "At each place it takes the longest token that fits."
_LEFTMOST = "It applies the merge that stands furthest left, not the one that was learned first."
_ONE_PLACE = "It applies each merge at one place only."
_FREQUENT = "It applies first the merge that is most frequent in the text."
_CHARACTERS = "It starts from characters, not from bytes."
_LATEST = "It begins with the merges that were learned last."
_NUMBERS = "The numbers of the merged ids are wrong by one."

#: ab, abc, cd, bc, abcd: (a, b) and (b, c) compete for b, and so do (b, c) and (c, d) for c.
_MERGES = [(97, 98), (256, 99), (99, 100), (98, 99), (257, 100)]
#: bc is learned before ab.
_BC_FIRST = [(98, 99), (97, 98), (256, 100), (257, 99)]


def _are_text_and_merges(text: Any, merges: Any) -> bool:
    return (
        type(text) is str
        and 6 <= len(text) <= 60
        and type(merges) is list
        and 3 <= len(merges) <= 20
        and len(set(merges)) == len(merges)
        and all(
            type(pair) is tuple
            and len(pair) == 2
            and all(type(i) is int and 0 <= i < 256 + rank for i in pair)
            for rank, pair in enumerate(merges)
        )
    )


def _merges_are_used(text: str, merges: list[tuple[int, int]]) -> bool:
    return len({i for i in encode(text, merges) if i >= 256}) >= 2


def _a_merge_is_merged(text: str, merges: list[tuple[int, int]]) -> bool:
    tokens = token_bytes(merges)
    return any(len(tokens[i]) > 2 for i in encode(text, merges))


def _merges_compete(text: str, merges: list[tuple[int, int]]) -> bool:
    data = text.encode("utf-8")
    places = [i for i in range(len(data) - 1) if (data[i], data[i + 1]) in merges]
    return any(i + 1 in places and data[i : i + 2] != data[i + 1 : i + 3] for i in places)


BUG_HUNT = BugHunt(
    target=ENCODE,
    bugs=(
        Bug(
            "longest match",
            mistake=_LONGEST,
            others=(_LEFTMOST, _ONE_PLACE, _FREQUENT, _LATEST),
            hides=("abcxabcdbc", _MERGES),
            shows=("abcdxabcbcd", _BC_FIRST),
        ),
        Bug(
            "leftmost merge first",
            mistake=_LEFTMOST,
            others=(_LONGEST, _ONE_PLACE, _LATEST, _NUMBERS),
            hides=("abcxabcdbc", _MERGES),
            shows=("abcdxabcbcd", _BC_FIRST),
        ),
        Bug(
            "first place only",
            mistake=_ONE_PLACE,
            others=(_LONGEST, _LEFTMOST, _FREQUENT, _CHARACTERS),
            hides=("xabcyzcd", _MERGES),
            shows=("abcxabcdbc", _MERGES),
        ),
        Bug(
            "most frequent first",
            mistake=_FREQUENT,
            others=(_LONGEST, _LEFTMOST, _LATEST, _ONE_PLACE),
            hides=("abcxabcdab", _MERGES),
            shows=("abcxbcybczbcd", _MERGES),
        ),
        Bug(
            "characters instead of bytes",
            mistake=_CHARACTERS,
            others=(_LONGEST, _FREQUENT, _NUMBERS, _ONE_PLACE),
            hides=("abcxabcdbc", _MERGES),
            shows=("abcéxabcdbc", _MERGES),
        ),
    ),
    conditions=(
        Condition(
            "`text` is a `str` of 6 to 60 characters; `merges` is a list of 3 to 20 pairs, no two "
            "alike: tuples of two whole numbers, each of them a byte or the id of an earlier pair",
            _are_text_and_merges,
        ),
        Condition(
            "the right ids of the text hold at least two different ones from 256 on",
            _merges_are_used,
        ),
        Condition(
            "one of them stands for three bytes or more: it is a merge of a merge",
            _a_merge_is_merged,
        ),
        Condition(
            "somewhere in the bytes of the text two merges compete: of three bytes in a row the "
            "first two are a pair of `merges`, and so are the last two, and these are different "
            "pairs",
            _merges_compete,
        ),
    ),
    hints=(
        "Put the suspect beside your own function, line by line. In which order does each of them "
        "look at places and at merges?",
        "Take `merges = [(97, 98), (98, 99), (256, 99)]`, which is ab, bc and abc. Run both "
        "functions on short texts of a, b, c and some other letter, by hand. Then change the order "
        "of the merges.",
        "Begin with the text *abcxabc* and these merges. Its right ids are 258, x, 258, and two "
        "different ones from 256 on are asked for: add a few letters. Print what both functions "
        "return, and change one thing at a time: how often a letter comes, the order of the "
        "merges, a letter that is not English.",
    ),
    minutes=15,
)
