"""`decode`: from ids back to the text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attend.tokens import decode, encode, train_bpe
from coursework.exercise import Call, Exercise, Misconception, Property, calls
from coursework.exercises.tokens.texts import letters, wide, words

Rng = np.random.Generator


def _round_trip(text: str, learned_from: str, n: int) -> tuple[list[int], list[tuple[int, int]]]:
    merges = train_bpe(learned_from, n)
    return encode(text, merges), merges


def _plain_texts(rng: Rng) -> Sequence[Call]:
    a = words(rng, 30)
    ascii_ids = [int(i) for i in rng.integers(32, 127, 13)]
    nested = [(97, 98), (256, 99), (257, 257)]
    return calls(
        ([257, 100, 256], nested),
        _round_trip("banana band", "banana bandana", 4),
        ([*ascii_ids, 258, 257], nested),
        _round_trip(words(rng, 5) + a[:20], a, 12),
        _round_trip(letters(rng, 37), letters(rng, 60), 17),
    )


def _cut_characters(rng: Rng) -> Sequence[Call]:
    text = wide(rng, 30, 5)
    return calls(
        ([195, 169], [(97, 98)]),
        ([240, 159, 256, 97], [(153, 130)]),  # 🙂, cut in the middle
        _round_trip("naïve 🙂 café", "ee", 1),
        _round_trip(text[:11], text, 5),
        _round_trip(wide(rng, 17), text, 3),
    )


def _invalid(rng: Rng) -> Sequence[Call]:
    merges = train_bpe("éaébé🙂🙂", 4)
    lone = [int(i) for i in rng.integers(128, 192, 5)]
    some = [int(i) for i in rng.integers(0, 260, 19)]
    return calls(
        ([195, 40], merges),
        ([97, 255, 98], []),
        ([*lone, 97], merges),
        ([240, 159, 153, 97, 195], merges),
        (some, merges),
    )


def _unknown(rng: Rng) -> Sequence[Call]:
    merges = [(97, 98), (256, 99), (98, 99)]
    far = int(rng.integers(300, 9000))
    return calls(
        ([-1], merges),
        ([97, 98, 259], merges),
        ([257, far, 97], merges),
        ([97, -3, 257, 98], merges),
        ([98, 256], []),
        ([-256, 97, 97, 97, 98], []),
        ([97, 97, 258, 257, 98, -259], merges),
    )


def _edges(rng: Rng) -> Sequence[Call]:
    merges = [(97, 98), (256, 256)]
    return calls(
        ([], merges),
        ([], []),
        ([0, 13, 10, 27, 257], merges),
        ([255 + len(merges)], merges),
        ([int(i) for i in rng.integers(0, 128, 9)], []),
    )


def _tokens(merges):
    tokens = [bytes([i]) for i in range(256)]
    for a, b in merges:
        tokens.append(tokens[a] + tokens[b])
    return tokens


def _look_up(ids, merges):
    """The bytes of the ids; an id that is negative or unknown raises IndexError."""
    tokens = _tokens(merges)
    if any(i < 0 for i in ids):
        raise IndexError("negative id")
    return [tokens[i] for i in ids]


def _strict(ids, merges):
    return b"".join(_look_up(ids, merges)).decode("utf-8")


def _ignored(ids, merges):
    return b"".join(_look_up(ids, merges)).decode("utf-8", errors="ignore")


def _ignored_and_wraps(ids, merges):
    tokens = _tokens(merges)
    return b"".join(tokens[i] for i in ids).decode("utf-8", errors="ignore")


def _negative_wraps(ids, merges):
    tokens = _tokens(merges)
    return b"".join(tokens[i] for i in ids).decode("utf-8", errors="replace")


def _key_error(ids, merges):
    tokens = dict(enumerate(_tokens(merges)))
    return b"".join(tokens[i] for i in ids).decode("utf-8", errors="replace")


def _skips_unknown(ids, merges):
    tokens = dict(enumerate(_tokens(merges)))
    return b"".join(tokens[i] for i in ids if i in tokens).decode("utf-8", errors="replace")


def _marks_unknown(ids, merges):
    tokens = dict(enumerate(_tokens(merges)))
    parts = [tokens.get(i, "\ufffd".encode()) for i in ids]
    return b"".join(parts).decode("utf-8", errors="replace")


def _token_by_token(ids, merges):
    return "".join(part.decode("utf-8", errors="replace") for part in _look_up(ids, merges))


def _strictly_token_by_token(ids, merges):
    return "".join(part.decode("utf-8") for part in _look_up(ids, merges))


def _characters(ids, merges):
    return "".join(chr(byte) for part in _look_up(ids, merges) for byte in part)


def _characters_and_wraps(ids, merges):
    tokens = _tokens(merges)
    return "".join(chr(byte) for i in ids for byte in tokens[i])


def _exchanged(ids, merges):
    tokens = [bytes([i]) for i in range(256)]
    for a, b in merges:
        tokens.append(tokens[b] + tokens[a])
    if any(i < 0 for i in ids):
        raise IndexError("negative id")
    return b"".join(tokens[i] for i in ids).decode("utf-8", errors="replace")


def _spaces_between(ids, merges):
    return b" ".join(_look_up(ids, merges)).decode("utf-8", errors="replace")


def _bytes_returned(ids, merges):
    return b"".join(_look_up(ids, merges))


DECODE = Exercise(
    chapter=1,
    signature="decode(ids, merges) -> str",
    task="""\
Turn ids back into the text that they stand for.

- `ids` is a list of whole numbers, perhaps an empty one. They need not come from `encode`: a model
  may write any ids in any order.
- `merges` is a list of pairs as `train_bpe` returns it. Ids 0 to 255 stand for a byte each, id
  256 + r for the bytes of both ids of pair number r, one after the other.
- Return the text of all these bytes together. Bytes that are not valid UTF-8 become U+FFFD, the
  replacement character �, as with Python's `errors="replace"`.
- An id that is negative, or that lies beyond the last merge, is an `IndexError`.""",
    reference=decode,
    properties=(
        Property("the bytes of each id, those of merges of merges too", 2, _plain_texts),
        Property("characters whose bytes lie in several tokens", 1, _cut_characters),
        Property("bytes that are not valid UTF-8 become U+FFFD", 1, _invalid),
        Property("an unknown or a negative id is an IndexError", 1, _unknown),
        Property("no ids, control characters, the last id", 1, _edges, edge=True),
    ),
    misconceptions=(
        Misconception(
            "crashes on invalid UTF-8",
            "Not every row of bytes is UTF-8, and a model that has learned little writes many that "
            "are not. `bytes.decode` is strict unless its argument `errors` says otherwise.",
            _strict,
            symptom="it raises UnicodeDecodeError",
        ),
        Misconception(
            "drops invalid bytes",
            "You drop bytes that are not valid UTF-8. Then nobody sees that something was wrong: "
            "put U+FFFD in their place.",
            _ignored,
            symptom="invalid bytes vanish",
            also=(_ignored_and_wraps,),
        ),
        Misconception(
            "negative id wraps",
            "A negative index counts from the end of a list, so id −1 gives you the last merge, "
            "without a word. Look whether each id is in range.",
            _negative_wraps,
            symptom="a negative id is taken from the end of the list",
        ),
        Misconception(
            "KeyError for IndexError",
            "An unknown id raises KeyError, because you look it up in a dictionary. Asked for is "
            "an IndexError.",
            _key_error,
            symptom="it raises KeyError",
        ),
        Misconception(
            "skips unknown ids",
            "You leave out ids that are unknown. A wrong id is a mistake in somebody's code, and "
            "should be heard of: raise an IndexError.",
            _skips_unknown,
            symptom="unknown ids vanish",
        ),
        Misconception(
            "replaces unknown ids",
            "You put U+FFFD in the place of an unknown id. That sign is for *bytes* that are no "
            "text; an id without bytes is a mistake in somebody's code: raise an IndexError.",
            _marks_unknown,
            symptom="unknown ids become U+FFFD",
        ),
        Misconception(
            "token by token",
            "You decode each token by itself. The bytes of one character may lie in two tokens, "
            "and neither of them is valid alone: join the bytes first.",
            _token_by_token,
            symptom="characters that lie in two tokens break",
            also=(_strictly_token_by_token,),
        ),
        Misconception(
            "bytes as characters",
            "You make a character of each byte, which turns é into Ã©. Join the bytes, and decode "
            "them as UTF-8.",
            _characters,
            symptom="é becomes Ã©",
            also=(_characters_and_wraps,),
        ),
        Misconception(
            "halves exchanged",
            "You put the second half of a merged token before the first.",
            _exchanged,
            symptom="the letters of merged tokens are in the wrong order",
        ),
        Misconception(
            "spaces between tokens",
            "You join the tokens with spaces. Spaces are bytes like others: where one belongs, a "
            "token has it.",
            _spaces_between,
            symptom="there are spaces between the tokens",
        ),
        Misconception(
            "bytes returned",
            "These are the right bytes. Asked for is the text, a `str`.",
            _bytes_returned,
            symptom="it returns bytes",
        ),
    ),
    hints=(
        "Which bytes does id 256 stand for? And 257, if its pair is (256, 99)? Could you write a "
        "table that answers this for every id?",
        "Make a list of the bytes of each id: 256 single bytes first, then for each pair the bytes "
        "of its first id and of its second. Check each id, look its bytes up, join them all, and "
        "decode once.",
        '`tokens.append(tokens[a] + tokens[b])` for each pair. `b"".join(...)` joins, and '
        '`.decode("utf-8", errors="replace")` decodes. `0 <= i < len(tokens)` says whether an '
        "id is known.",
    ),
    minutes=10,
    returns=("the text",),
)
