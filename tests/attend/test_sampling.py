"""Sampling: the distributions spelled out in plain Python, and how generation treats the model."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attend

from .mistakes import mistakes, must_reject


def by_hand(logits: list[float], temperature=1.0, top_k=None, top_p=None) -> list[float]:
    """The definition in a loop: temperature, top-k, renormalise, top-p, renormalise."""
    V = len(logits)
    ranked = sorted(range(V), key=lambda i: (-logits[i], i))
    if temperature == 0:
        return [float(i == ranked[0]) for i in range(V)]
    e = [math.exp((x - max(logits)) / temperature) for x in logits]
    kept = ranked if top_k is None else ranked[:top_k]
    total, mass, shortest = sum(e[i] for i in kept), 0.0, []
    for i in kept:
        shortest.append(i)
        mass += e[i] / total
        if top_p is not None and mass >= top_p:
            break
    total = sum(e[i] for i in shortest)
    return [e[i] / total if i in shortest else 0.0 for i in range(V)]


CASES = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"temperature": 0},
    {"temperature": 1e-30},
    {"top_k": 1},
    {"top_k": 3},
    {"top_k": 99},
    {"top_p": 0.05},
    {"top_p": 0.66},
    {"top_p": 1.0},
    {"top_k": 4, "top_p": 0.66},
    {"temperature": 2.0, "top_k": 4, "top_p": 0.85},
]
LOGITS = [[1.0, 3.0, 2.0, 3.0, -4.0, 0.5, 2.0], [0.0] * 7, [1e4, -1e4, 0.0, 1e4, 5.0, 1.0, 1.0]]


def check_distribution(distribution):
    logits = torch.tensor(LOGITS, dtype=torch.float64)
    for case in CASES:
        expected = torch.tensor([by_hand(row, **case) for row in LOGITS], dtype=torch.float64)
        for x, y in ((logits, expected), (logits[None, :, None], expected[None, :, None])):
            got = distribution(x, **case)
            torch.testing.assert_close(got, y, rtol=1e-9, atol=1e-12, msg=f"{case}: {got}, not {y}")


def _distribution(change):
    """The right distribution of a wrong question."""

    def f(logits, temperature=1.0, top_k=None, top_p=None):
        return change(logits, temperature, top_k, top_p)

    return f


def _without_crossing(logits, temperature, top_k, top_p):
    p = attend.next_token_distribution(logits, temperature, top_k)
    if top_p is None or top_p >= 1 or temperature == 0:
        return p
    ranked, order = p.sort(dim=-1, descending=True, stable=True)
    keep = ranked.cumsum(-1) <= top_p
    keep[..., 0] = True
    ranked = ranked * keep
    return torch.zeros_like(p).scatter(-1, order, ranked / ranked.sum(-1, keepdim=True))


def _ties_kept(logits, temperature, top_k, top_p):
    if top_k is not None and temperature:
        least = logits.topk(min(top_k, logits.shape[-1])).values[..., -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    return attend.next_token_distribution(logits, temperature, None, top_p)


def _not_renormalised(logits, temperature, top_k, top_p):
    p = attend.next_token_distribution(logits, temperature)
    return p * (attend.next_token_distribution(logits, temperature, top_k, top_p) > 0)


@mistakes(
    {
        check_distribution: {
            "temperature multiplied": _distribution(
                lambda x, t, k, p: attend.next_token_distribution(x, 1 / t if t else 0, k, p)
            ),
            "crossing token dropped": _distribution(_without_crossing),
            "ties keep too many": _distribution(_ties_kept),
            "not renormalised": _distribution(_not_renormalised),
            "temperature 0 not greedy": _distribution(
                lambda x, t, k, p: attend.next_token_distribution(x, t or 1, k, p)
            ),
            "a batch is one row": _distribution(
                lambda x, t, k, p: attend.next_token_distribution(x.flatten(), t, k, p).reshape(
                    x.shape
                )
            ),
            "top-k is always argmax": _distribution(
                lambda x, t, k, p: attend.next_token_distribution(x, t, k and 1, p)
            ),
            "top-p ignored": _distribution(
                lambda x, t, k, p: attend.next_token_distribution(x, t, k)
            ),
            "top-p before top-k": _distribution(
                lambda x, t, k, p: attend.next_token_distribution(
                    attend.next_token_distribution(x, t, None, p).log(), 1.0, k
                )
            ),
        }
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


def test_the_distribution_is_the_one_of_the_definition():
    check_distribution(attend.next_token_distribution)


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=9),
    st.floats(0.1, 5),
    st.integers(1, 12),
    st.floats(0.01, 1.5),
)
def test_exactly_k_tokens_stay_and_the_likeliest_is_among_them(logits, temperature, k, p):
    x = torch.tensor(logits, dtype=torch.float64)
    left = attend.next_token_distribution(x, temperature, top_k=k)
    assert int((left > 0).sum()) == min(k, len(logits))
    both = attend.next_token_distribution(x, temperature, k, p)
    assert both.sum().item() == pytest.approx(1)
    assert both[attend.most_likely(x)] == both.max()
    assert ((both > 0) <= (left > 0)).all()


def test_of_equal_logits_the_lowest_id_is_the_most_likely():
    x = torch.tensor([[0.0, 2.0, 1.0, 2.0], [-math.inf, -1.0, -1.0, -1.0]])
    assert attend.most_likely(x).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": 0, "temperature": 0}, "top_k is 0"),
        ({"top_p": 0.0, "temperature": 0}, "top_p is 0.0"),
    ],
)
def test_numbers_out_of_range_are_refused_even_when_greedy(wrong, words):
    with pytest.raises(ValueError, match=words):
        attend.next_token_distribution(torch.zeros(3), **wrong)


def test_tokens_are_drawn_as_often_as_their_probability_says():
    logits = torch.tensor([[0.0, 1.0, 2.0]]).expand(30_000, 3)
    drawn = attend.pick(logits, generator=torch.Generator().manual_seed(0))
    share = torch.bincount(drawn[:, 0], minlength=3) / 30_000
    torch.testing.assert_close(share, torch.softmax(logits[0], -1), rtol=0, atol=0.01)


# generate


class Recorder:
    """A model whose best next token is a function of the last id, and that keeps what it is fed."""

    def __init__(self, vocab: int = 11):
        self.vocab, self.fed, self.gradients = vocab, [], []

    def __call__(self, ids):
        self.fed.append(ids.clone())
        self.gradients.append(torch.is_grad_enabled())
        logits = torch.zeros(*ids.shape, self.vocab)
        return logits.scatter(-1, ((3 * ids + 1) % self.vocab)[..., None], 5.0)


PROMPT = torch.tensor([[1, 2, 3], [4, 5, 6]])


def check_generate(generate):
    for context in (None, 2, 99):
        model = Recorder()
        got = generate(model, PROMPT, 4, context=context, temperature=0)
        text = PROMPT
        for fed in model.fed:
            assert torch.equal(fed, text if context is None else text[:, -context:])
            text = torch.cat([text, (3 * text[:, -1:] + 1) % 11], dim=1)
        assert len(model.fed) == 4 and torch.equal(got, text)
        assert not any(model.gradients)
    assert torch.is_grad_enabled()
    model = Recorder()
    assert torch.equal(generate(model, PROMPT, 0, temperature=0), PROMPT) and not model.fed


def _generate(*, crop=True, at=-1, gradients=False, prompt=True):
    def f(model, ids, n_new, *, context=None, temperature=1.0):
        start = ids.shape[1]
        for _ in range(n_new):
            with torch.set_grad_enabled(gradients):
                logits = model(ids[:, -context:] if crop and context else ids)[:, at]
            ids = torch.cat([ids, attend.pick(logits, temperature)], dim=1)
        return ids if prompt else ids[:, start:]

    return f


@mistakes(
    {
        check_generate: {
            "context not cropped": _generate(crop=False),
            "first position used": _generate(at=0),
            "gradients on": _generate(gradients=True),
            "prompt lost": _generate(prompt=False),
        }
    }
)
def test_mistakes_of_generate_are_caught(check, wrong):
    must_reject(check, wrong)


def test_generate_feeds_the_last_tokens_and_keeps_the_prompt():
    check_generate(attend.generate)
    check_generate(_generate())


def test_a_seed_gives_a_text_and_leaves_the_global_random_numbers_alone():
    def text(seed):
        rng = torch.Generator().manual_seed(seed)
        return attend.generate(lambda ids: torch.zeros(*ids.shape, 50), PROMPT, 9, generator=rng)

    state = torch.get_rng_state()
    assert torch.equal(text(1), text(1)) and not torch.equal(text(1), text(2))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_row_that_has_stopped_waits_for_the_others():
    # 1 → 4 → 2 → 7 → 0 and 6 → 8 → 3 → 10 → 9
    prompt = torch.tensor([[1], [6]])
    got = attend.generate(Recorder(), prompt, 9, temperature=0, stop=[2, 10])
    assert got.tolist() == [[1, 4, 2, 2], [6, 8, 3, 10]]


def test_a_stop_token_in_the_prompt_stops_nothing():
    got = attend.generate(Recorder(), torch.tensor([[1]]), 2, temperature=0, stop=[1])
    assert got.tolist() == [[1, 4, 2]]


@pytest.mark.parametrize(
    ("ids", "n_new", "more", "words"),
    [
        (PROMPT[:, :0], 1, {}, "a prompt"),
        (PROMPT[0], 1, {}, "a prompt"),
        (PROMPT, -1, {}, "n_new is -1"),
        (PROMPT, 1, {"context": 0}, "context is 0"),
    ],
)
def test_what_cannot_be_continued_is_refused(ids, n_new, more, words):
    with pytest.raises(ValueError, match=words):
        attend.generate(Recorder(), ids, n_new, **more)
