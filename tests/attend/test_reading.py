"""Reading heads: scores in loops, and tools that look without touching."""

from __future__ import annotations

import pytest
import torch

import attend

from .mistakes import mistakes, must_reject
from .test_model import BERT, GPT, LLAMA, ids_of, make

B, H, T = 2, 3, 11


def weights_of(T: int = T) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.softmax(3 * torch.randn(B, H, T, T, generator=rng, dtype=torch.float64), -1)


def mean_of(w, places) -> torch.Tensor:
    return torch.stack([w[..., t, s] for t, s in places]).mean(0)


def raises(error, f, *args) -> None:
    try:
        f(*args)
    except error:
        return
    raise AssertionError(f"{error.__name__} expected")


def check_previous(score):
    w = weights_of()
    torch.testing.assert_close(score(w), mean_of(w, [(t, t - 1) for t in range(1, T)]))
    raises(ValueError, score, weights_of(1))


def check_sink(score):
    w = weights_of()
    torch.testing.assert_close(score(w), mean_of(w, [(t, 0) for t in range(1, T)]))


def check_induction(score):
    w = weights_of()
    for period in (1, 3, 5):
        expected = mean_of(w, [(t, t - period + 1) for t in range(period, T)])
        torch.testing.assert_close(score(w, period), expected)


def check_duplicate(score):
    w = weights_of()
    expected = mean_of(w, [(t, t - 3) for t in range(3, T)])
    torch.testing.assert_close(score(w, 3), expected)


def check_preference(preference):
    w = weights_of()
    w[0, 1, 7, [2, 4, 9]] = 0
    got = preference(w, 7, [2, 4, 9])
    assert got.shape == (B, H, 3)
    for b in range(B):
        for h in range(H):
            chosen = [w[b, h, 7, c] for c in (2, 4, 9)]
            total = sum(chosen)
            for n in range(3):
                expected = chosen[n] / total if total else 0.0
                assert abs(got[b, h, n] - expected) < 1e-12


def check_ablate(ablate):
    heads = torch.randn(B, H, T, 4, dtype=torch.float64)
    heads[:, 1, 0] = float("inf")
    kept = heads.clone()
    got = ablate(heads, 1)
    assert torch.equal(heads, kept), "the given heads were changed"
    assert (got[:, 1] == 0).all() and torch.equal(got[:, [0, 2]], heads[:, [0, 2]])
    for index in (-1, H):
        raises(IndexError, ablate, heads, index)


def _mean_of(places):
    return lambda w, *period: mean_of(w, places(w.shape[-1], *period)) if w.shape[-1] > 1 else _no()


def _no():
    raise ValueError


def _in_place(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError
    heads[..., index, :, :] = 0
    return heads


def _wrong_axis(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError
    heads = heads.clone()
    heads[..., index, :] = 0
    return heads


def _any_index(heads, index):
    heads = heads.clone()
    heads[..., index % heads.shape[-3], :, :] = 0
    return heads


@mistakes(
    {
        check_previous: {
            "off by one": _mean_of(lambda T: [(t, t) for t in range(1, T)]),
            "the next token": _mean_of(lambda T: [(t - 1, t) for t in range(1, T)]),
            "row 0 counted": _mean_of(lambda T: [(t, max(t - 1, 0)) for t in range(T)]),
            "wrong axis": lambda w: (
                attend.previous_token_score(w).mean(-1) if len(w[0, 0]) > 1 else _no()
            ),
        },
        check_sink: {
            "row 0 counted": _mean_of(lambda T: [(t, 0) for t in range(T)]),
            "last key": _mean_of(lambda T: [(t, T - 1) for t in range(1, T)]),
        },
        check_induction: {
            "the same token": attend.duplicate_token_score,
            "one too far": _mean_of(lambda T, P: [(t, max(t - P - 1, 0)) for t in range(P, T)]),
            "first copy counted": _mean_of(lambda T, P: [(t, max(t - P + 1, 0)) for t in range(T)]),
        },
        check_duplicate: {"what came next": attend.induction_score},
        check_preference: {
            "raw weights": lambda w, at, c: w[..., at, c],
            "column for row": lambda w, at, c: attend.antecedent_preference(w.mT, at, c),
            "NaN for nothing": lambda w, at, c: w[..., at, c] / w[..., at, c].sum(-1, keepdim=True),
        },
        check_ablate: {
            "wrong axis": _wrong_axis,
            "in place": _in_place,
            "negative indices": _any_index,
            "multiplied by 0": lambda heads, i: (
                heads * (torch.arange(H) != i)[:, None, None] if 0 <= i < H else heads[i + 9]
            ),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_previous, attend.previous_token_score),
        (check_sink, attend.sink_score),
        (check_induction, attend.induction_score),
        (check_duplicate, attend.duplicate_token_score),
        (check_preference, attend.antecedent_preference),
        (check_ablate, attend.ablate_head),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_scores_are_means_over_the_right_places(check, ours):
    check(ours)


@pytest.mark.parametrize("score", [attend.induction_score, attend.duplicate_token_score])
def test_a_text_that_does_not_repeat_has_no_such_score(score):
    with pytest.raises(ValueError, match="11 tokens: this score needs more than 11"):
        score(weights_of(), 11)


models = pytest.mark.parametrize(
    "model",
    [make(attend.gpt, GPT), make(attend.llama, LLAMA), make(attend.bert, BERT)],
    ids=["gpt", "llama", "bert"],
)


@models
def test_looking_at_the_weights_changes_nothing(model):
    ids = ids_of(2, 11)
    before = model(ids)
    kernels = [block.attention.kernel for block in model.blocks]
    with attend.captured_weights(model) as weights:
        during = model(ids)
    assert torch.equal(before, during) and torch.equal(model(ids), before)
    assert [block.attention.kernel for block in model.blocks] == kernels
    assert len(weights) == 3 and all(w.shape == (2, 6, 11, 11) for w in weights)
    for w in weights:
        torch.testing.assert_close(w.sum(-1), torch.ones(2, 6, 11, dtype=w.dtype))


@models
def test_the_captured_weights_are_those_that_blend(model):
    """Rebuilding a layer's output from its captured weights gives the layer's output."""
    x = torch.randn(2, 11, 12, dtype=torch.float64)
    attention = model.blocks[1].attention
    with attend.captured_weights(model) as weights:
        got = attention(x)
    v = attend.repeat_kv(
        attend.split_heads(
            x @ attention.w_v + (0 if attention.b_v is None else attention.b_v),
            attention.n_kv_heads,
        ),
        attention.n_heads // attention.n_kv_heads,
    )
    z = attend.merge_heads(weights[0] @ v) @ attention.w_o
    torch.testing.assert_close(got, z if attention.b_o is None else z + attention.b_o)


def test_weights_are_captured_while_a_cache_is_used():
    model, ids = make(attend.llama, LLAMA), ids_of(1, 7)
    with attend.captured_weights(model) as weights, torch.no_grad():
        model(ids)
        whole = [w.clone() for w in weights]
        weights.clear()
        caches = attend.new_caches(model, 1)
        for t in range(7):
            model(ids[:, t : t + 1], caches)
    for layer in range(3):
        for t in range(7):
            row = weights[3 * t + layer][0, :, 0]
            torch.testing.assert_close(row, whole[layer][0, :, t, : t + 1])


@models
def test_an_ablated_head_hands_on_nothing_and_comes_back(model):
    ids = ids_of(2, 11)
    before = model(ids)
    with attend.ablated(model, [(1, 2), (2, 0)]):
        without = model(ids)
    assert (without - before).abs().max() > 1e-6
    assert torch.equal(model(ids), before)
    # The same by hand: rows h·K … of W_O read that head.
    for layer, head in ((1, 2), (2, 0)):
        with torch.no_grad():
            model.blocks[layer].attention.w_o[2 * head : 2 * head + 2] *= 0
    torch.testing.assert_close(model(ids), without)


def test_the_kernels_come_back_after_an_error():
    model = make(attend.gpt, GPT)
    kernel = model.blocks[0].attention.kernel
    with pytest.raises(ZeroDivisionError), attend.captured_weights(model):
        1 / 0  # noqa: B018
    assert model.blocks[0].attention.kernel is kernel


@pytest.mark.parametrize(
    ("head", "words"), [((3, 0), "layer 3"), ((0, 6), "head 6"), ((0, -1), "head -1")]
)
def test_a_head_that_is_not_there_is_refused(head, words):
    with pytest.raises(IndexError, match=words), attend.ablated(make(attend.gpt, GPT), [head]):
        pass


def test_repeated_texts_repeat_with_their_period():
    rng = torch.Generator().manual_seed(0)
    ids, period = attend.repeated_sequences(50, 20, 32, (3, 9), rng)
    assert ids.shape == (50, 20) and set(period.tolist()) == set(range(3, 10))
    for row, P in zip(ids, period.tolist(), strict=True):
        assert torch.equal(row[P:], row[:-P])


@pytest.mark.slow
def test_induction_appears_in_two_layers_and_not_in_one():
    state = torch.get_rng_state()
    model, looks = attend.learn_induction(2, steps=200, batch=32, every=50)
    assert torch.equal(torch.get_rng_state(), state)
    steps, accuracy, score, previous = zip(*looks, strict=True)
    assert steps == (50, 100, 150, 200)
    assert accuracy[0] < 0.2 and accuracy[-1] > 0.8 and score[-1] > 0.5
    assert previous[0] < previous[-1] and previous[-1] > 0.3, "the first layer looks back by one"
    _, looks = attend.learn_induction(1, steps=100, batch=32, every=100)
    assert looks[-1].accuracy < 0.3 and looks[-1].induction < 0.2
    # Without the heads that do it, the model no longer knows what comes next.
    ids, _ = attend.repeated_sequences(64, 48, 32, (24, 24), torch.Generator().manual_seed(9))

    def right_answers():
        with torch.no_grad():
            return (model(ids)[:, 24:-1].argmax(-1) == ids[:, 25:]).float().mean()

    with attend.captured_weights(model) as weights:
        before = right_answers()
    scores = torch.stack([attend.induction_score(w, 24).mean(0) for w in weights])
    found = (scores > 0.3).nonzero().tolist()
    assert found and all(layer == 1 for layer, _ in found), "the second layer reads the first"
    with attend.ablated(model, found):
        assert right_answers() < before / 2
