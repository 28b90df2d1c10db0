"""The bug hunt of chapter 08: four wrong ways from logits to a distribution."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from attend.sampling import next_token_distribution
from coursework.bug_hunt import Bug, BugHunt, Condition
from coursework.exercises.language_model.sampling import NEXT_TOKEN_DISTRIBUTION

_MASS = "After top_k, top_p adds up probabilities that do not sum to 1."
_SINGLE = "top_p compares each probability by itself with p."
_TEMPERATURE = "The tokens that stay are chosen at temperature 1."
_TOO_MANY = "top_p keeps one token more than it takes to reach p."
_ONE_LIST = "The tokens that stay in the first row stay in every row."
_TIES = "Where logits are equal, top_k keeps more than k tokens."
_DROPS = "top_p drops the token that crosses p."
_NOT_ONE = "What stays is not brought to sum 1."


def _logits(*rows: tuple[float, ...]) -> Tensor:
    """Logits whose softmax is these rows."""
    return torch.tensor(rows, dtype=torch.float64).log()


def _is_ordinary(logits: Any, temperature: Any, top_k: Any, top_p: Any) -> bool:
    return bool(
        type(logits) is Tensor
        and logits.dtype == torch.float64
        and logits.ndim == 2
        and 2 <= logits.shape[0] <= 10
        and 4 <= logits.shape[1] <= 50
        and torch.all(logits.abs() <= 20)
    )


def _numbers_are_in_range(logits: Any, temperature: Any, top_k: Any, top_p: Any) -> bool:
    return bool(
        type(temperature) is float
        and 0.5 <= temperature <= 2
        and abs(temperature - 1) >= 0.2
        and type(top_k) is int
        and 2 <= top_k < logits.shape[1]
        and type(top_p) is float
        and 0.3 <= top_p <= 0.95
    )


def _entries_differ(logits: Any, temperature: Any, top_k: Any, top_p: Any) -> bool:
    gaps = logits.sort(-1).values.diff(dim=-1)
    rows = (logits[:, None] - logits[None]).abs().amax(-1)
    apart = rows + torch.eye(len(logits))
    return bool((gaps >= 0.05).all() and (apart >= 0.1).all())


def _something_to_choose(logits: Any, temperature: Any, top_k: Any, top_p: Any) -> bool:
    kept = (next_token_distribution(logits, temperature, top_k, top_p) > 0.02).sum(-1)
    return bool((kept >= 2).all())


_FIRST = (0.4, 0.3, 0.16, 0.09, 0.05)
_SECOND = (0.07, 0.42, 0.27, 0.18, 0.06)
_FLAT = (0.3, 0.25, 0.2, 0.14, 0.11)
_FLAT_2 = (0.11, 0.3, 0.24, 0.19, 0.16)

BUG_HUNT = BugHunt(
    target=NEXT_TOKEN_DISTRIBUTION,
    bugs=(
        Bug(
            "counts the mass of tokens that are gone",
            mistake=_MASS,
            others=(_TEMPERATURE, _TOO_MANY, _NOT_ONE, _ONE_LIST),
            hides=(_logits(_FIRST, _SECOND), 0.7, 4, 0.7),
            shows=(_logits(_FLAT, _FLAT_2), 1.5, 3, 0.65),
        ),
        Bug(
            "cuts before the temperature",
            mistake=_TEMPERATURE,
            others=(_SINGLE, _DROPS, _ONE_LIST, _MASS),
            hides=(_logits(_FIRST, _SECOND), 1.3, 2, 0.95),
            shows=(_logits(_FIRST, _SECOND), 2.0, 4, 0.65),
        ),
        Bug(
            "keeps one token too many",
            mistake=_TOO_MANY,
            others=(_MASS, _DROPS, _TIES, _NOT_ONE),
            hides=(_logits(_FIRST, _SECOND), 1.3, 2, 0.95),
            shows=(_logits(_FIRST, _SECOND), 0.7, 4, 0.6),
        ),
        Bug(
            "uses one list for all rows",
            mistake=_ONE_LIST,
            others=(_NOT_ONE, _TIES, _SINGLE, _TEMPERATURE),
            hides=(_logits(_FIRST, (0.42, 0.27, 0.18, 0.07, 0.06)), 0.7, 3, 0.9),
            shows=(_logits(_FIRST, _SECOND), 0.7, 3, 0.9),
        ),
    ),
    conditions=(
        Condition(
            "`logits` is a float64 tensor (B, V) with 2 to 10 rows, 4 to 50 tokens, and no entry "
            "beyond ±20",
            _is_ordinary,
        ),
        Condition(
            "`temperature` is a float between 0.5 and 2 and at least 0.2 away from 1, `top_k` a "
            "whole number from 2 to V − 1, `top_p` a float between 0.3 and 0.95",
            _numbers_are_in_range,
        ),
        Condition(
            "the logits of a row are at least 0.05 apart, and no two rows are alike: somewhere "
            "they differ by 0.1 or more",
            _entries_differ,
        ),
        Condition(
            "the right function leaves each row at least two tokens with a probability above 0.02",
            _something_to_choose,
        ),
    ),
    hints=(
        "Go through the suspect line by line with four probabilities that you have chosen, and "
        "write down after each line which tokens are left and how much each of them has.",
        "`temperature`, `top_k` and `top_p` each cut in their turn. Which of them has nothing left "
        "to do, if you choose the others so that they decide everything? There the order and the "
        "bookkeeping of that one cannot show.",
        "Start from `torch.tensor([[0.4, 0.3, 0.16, 0.09, 0.05], [0.07, 0.42, 0.27, 0.18, "
        "0.06]]).double().log()`, print both functions for a grid of `temperature`, `top_k` and "
        "`top_p`, and look where they agree.",
    ),
    minutes=15,
)
