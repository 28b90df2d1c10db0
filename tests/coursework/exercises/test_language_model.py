"""Chapter 08: wrong answers that pass elsewhere, and what students read."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from coursework import check, evaluate

from .right_answers.language_model import (
    Block,
    ModelWithFusedAttention,
    distribution_by_sorting,
    generate_by_concatenating,
    loss_by_cross_entropy,
    schedule_as_written,
)

LOSS = "08.next_token_loss"
DISTRIBUTION = "08.next_token_distribution"
GENERATE = "08.generate"
SCHEDULE = "08.warmup_cosine"
MODEL = "08.LanguageModel"


# Wrong answers -------------------------------------------------------------------------------


def loss_of_one_batch_only(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError
    _, _, V = logits.shape
    return F.cross_entropy(logits[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1))


def loss_in_half_of_the_batch(logits, ids):
    return (
        loss_by_cross_entropy(logits[:1], ids[:1])
        if ids.ndim > 1
        else F.cross_entropy(logits[:-1], ids[1:])
    )


def loss_as_a_number(logits, ids):
    return loss_by_cross_entropy(logits, ids).item()


def loss_with_smoothed_labels(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError
    flat = logits[..., :-1, :].flatten(0, -2)
    return F.cross_entropy(flat, ids[..., 1:].flatten(), label_smoothing=0.1)


def loss_without_token_0(logits, ids):
    """Token 0 taken for padding."""
    if ids.shape[-1] < 2:
        raise ValueError
    flat = logits[..., :-1, :].flatten(0, -2)
    return F.cross_entropy(flat, ids[..., 1:].flatten(), ignore_index=0)


def loss_in_float64(logits, ids):
    return loss_by_cross_entropy(logits.double(), ids)


def distribution_of_float64(logits, **how):
    return distribution_by_sorting(logits.double(), **how)


def distribution_without_top_p(logits, temperature=1.0, top_k=None, top_p=None):
    return distribution_by_sorting(logits, temperature=temperature, top_k=top_k)


def distribution_without_top_k(logits, temperature=1.0, top_k=None, top_p=None):
    return distribution_by_sorting(logits, temperature=temperature, top_p=top_p)


def distribution_always_greedy(logits, temperature=1.0, top_k=None, top_p=None):
    return distribution_by_sorting(logits, temperature=0.0, top_k=top_k, top_p=top_p)


def distribution_in_place(logits, temperature=1.0, top_k=None, top_p=None):
    p = distribution_by_sorting(logits, temperature, top_k, top_p)
    if temperature:
        logits /= temperature
    return p


def distribution_by_the_legacy_filter(logits, temperature=1.0, top_k=None, top_p=None):
    """The nucleus as it is often copied, right but for ties and a top_k of 0."""
    if temperature < 0 or (top_k or 1) < 1 or (1 if top_p is None else top_p) <= 0:
        raise ValueError
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    x = logits / temperature
    if top_k is not None:
        kth = x.topk(min(top_k, x.shape[-1])).values[..., -1:]
        x = x.masked_fill(x < kth, -torch.inf)
    if top_p is not None:
        ordered, order = x.sort(descending=True)
        gone = ordered.softmax(-1).cumsum(-1) > top_p
        gone[..., 1:], gone[..., 0] = gone[..., :-1].clone(), False
        x = x.masked_fill(gone.scatter(-1, order, gone), -torch.inf)
    return x.softmax(-1)


def generate_that_draws(
    model, ids, n_new, *, context=None, temperature=1.0, top_k=None, top_p=None, generator=None
):
    """Right at temperature 0, but it spends a random number for each token."""
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        p = distribution_by_sorting(logits, temperature)
        ids = torch.cat([ids, torch.multinomial(p, 1, generator=generator)], dim=1)
    return ids


def generate_that_asks_twice(model, ids, n_new, *, context=None, **how):
    for _ in range(n_new):
        shown = ids if context is None else ids[:, -context:]
        with torch.no_grad():
            model(shown)
            ids = torch.cat([ids, model(shown)[:, -1].argmax(-1, keepdim=True)], dim=1)
    return ids


def generate_row_by_row(model, ids, n_new, *, context=None, **how):
    rows = [generate_by_concatenating(model, row[None], n_new, context=context, temperature=0)
            for row in ids]  # fmt: skip
    return torch.cat(rows)


def schedule_in_whole_numbers(step, warmup, total, peak, floor):
    return round(schedule_as_written(step, warmup, total, peak, floor), 4)


class ModelWithDropout(ModelWithFusedAttention):
    def forward(self, ids):
        return F.dropout(super().forward(ids), 0.1)  # also in evaluation


class ModelWithOneMore(ModelWithFusedAttention):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("steps", torch.zeros(1))


class ModelOfLinears(nn.Module):
    """Right numbers under other names."""

    def __init__(self, vocab, context, d_model, n_layers, n_heads, d_hidden=None, tied=True):
        super().__init__()
        self.tok = nn.Embedding(vocab, d_model)
        self.pos = nn.Embedding(context, d_model)
        self.blocks = nn.ModuleList(
            Block(d_model, n_heads, d_hidden or 4 * d_model) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ModelThatDropsOutInTraining(ModelWithFusedAttention):
    def forward(self, ids):
        return F.dropout(super().forward(ids), 0.1, self.training)


WRONG_ANSWERS = {
    LOSS: (
        loss_of_one_batch_only,
        loss_in_half_of_the_batch,
        loss_as_a_number,
        loss_with_smoothed_labels,
        loss_without_token_0,
        loss_in_float64,
    ),
    DISTRIBUTION: (
        distribution_of_float64,
        distribution_without_top_p,
        distribution_without_top_k,
        distribution_always_greedy,
        distribution_in_place,
    ),
    GENERATE: (generate_that_draws, generate_that_asks_twice, generate_row_by_row),
    SCHEDULE: (schedule_in_whole_numbers,),
    MODEL: (
        ModelWithDropout,
        ModelThatDropsOutInTraining,
        ModelWithOneMore,
        ModelOfLinears,
    ),
}


@pytest.mark.parametrize(
    ("id", "answer"),
    [pytest.param(id, f, id=f.__name__) for id, fs in WRONG_ANSWERS.items() for f in fs],
)
@pytest.mark.slow
def test_a_wrong_answer_fails_and_gets_no_name_that_is_not_its_own(id, answer):
    verdict = evaluate(id, answer, seed=5)
    assert not verdict.passed
    assert verdict.misconception is None


def test_the_filter_that_everybody_copies_fails_for_ties_and_lets_k_0_pass():
    verdict = evaluate(DISTRIBUTION, distribution_by_the_legacy_filter, seed=5)
    assert not verdict.passed
    assert verdict.points == verdict.max_points - 2


def test_a_mistake_is_named_however_it_is_spelt():
    def unshifted(logits, ids):
        if ids.shape[-1] < 2:
            raise ValueError("short")
        return F.cross_entropy(logits.flatten(0, -2), ids.flatten())

    def below_p(logits, temperature=1.0, top_k=None, top_p=None):
        right = distribution_by_sorting(logits, temperature, top_k)
        if top_p is None or top_p >= 1 or temperature == 0:
            return distribution_by_sorting(logits, temperature, top_k, top_p)
        if top_p <= 0:
            raise ValueError("top_p")
        p, order = right.sort(dim=-1, descending=True, stable=True)
        p[..., 1:] = torch.where(p.cumsum(-1)[..., 1:] > top_p, 0, p[..., 1:])
        return torch.zeros_like(p).scatter(-1, order, p / p.sum(-1, keepdim=True))

    def without_no_grad(model, ids, n_new, *, context=None, temperature=1.0, **how):
        text = ids
        while text.shape[1] < ids.shape[1] + n_new:
            logits = model(text[:, -(context or 10**6) :])
            text = torch.hstack([text, logits[:, -1:].argmax(-1)])
        return text

    assert evaluate(LOSS, unshifted).misconception == "does not shift"

    def flat(logits, ids):
        if ids.shape[-1] < 2:
            raise ValueError
        return F.cross_entropy(logits.flatten(0, -2)[:-1], ids.flatten()[1:])

    assert evaluate(LOSS, flat).misconception == "flattens before it shifts"
    assert evaluate(DISTRIBUTION, below_p).misconception == "drops the token that crosses"
    assert evaluate(GENERATE, without_no_grad).misconception == "records gradients"


def drawing_by(draw):
    """A right `generate` but for its draws, which `draw` makes of (logits, generator, **how)."""

    def generate(model, ids, n_new, *, context=None, generator=None, **how):
        for _ in range(n_new):
            with torch.no_grad():
                logits = model(ids if context is None else ids[:, -context:])[:, -1]
            greedy = how["temperature"] == 0
            new = logits.argmax(-1, keepdim=True) if greedy else draw(logits, generator, **how)
            ids = torch.cat([ids, new], dim=1)
        return ids

    return generate


def without(name):
    """Draws with `name` left at its default."""

    def draw(logits, generator, **how):
        p = distribution_by_sorting(logits, **{k: v for k, v in how.items() if k != name})
        return torch.multinomial(p, 1, generator=generator)

    return draw


def of_one_number(logits, generator, **how):
    u = torch.rand(1, 1, generator=generator, dtype=logits.dtype)
    return (distribution_by_sorting(logits, **how).cumsum(-1) < u).sum(-1, keepdim=True)


def of_even_shares(logits, generator, **how):
    stay = (distribution_by_sorting(logits, **how) > 0).double()
    return torch.multinomial(stay, 1, generator=generator)


def of_the_global_state(logits, generator, **how):
    return torch.multinomial(distribution_by_sorting(logits, **how), 1)


def of_a_seed_of_its_own(logits, generator, **how):
    own = torch.Generator().manual_seed(3)
    return torch.multinomial(distribution_by_sorting(logits, **how), 1, generator=own)


@pytest.mark.parametrize(
    ("draw", "complaint"),
    [
        (without("temperature"), "ruled out"),
        (without("top_k"), "ruled out"),
        (without("top_p"), "ruled out"),
        (of_one_number, "as often as their probabilities say"),
        (of_even_shares, "as often as their probabilities say"),
        (of_the_global_state, "leaves a global random generator"),
        (of_a_seed_of_its_own, "another generator gives the same text"),
    ],
)
@pytest.mark.slow
def test_other_draws_are_refused_and_cost_the_draws_alone(draw, complaint):
    verdict = evaluate(GENERATE, drawing_by(draw), seed=5)
    assert complaint in verdict.message
    assert verdict.points == verdict.max_points - 2


@pytest.mark.slow
def test_chance_never_refuses_a_right_draw():
    def by_inversion(logits, generator, **how):
        u = torch.rand(len(logits), 1, generator=generator, dtype=logits.dtype)
        return (distribution_by_sorting(logits, **how).cumsum(-1) < u).sum(-1, keepdim=True)

    for seed in range(100, 120):
        assert evaluate(GENERATE, drawing_by(by_inversion), seed=seed).passed


def test_a_model_without_a_mask_is_told_what_it_will_do():
    class Peeking(ModelWithFusedAttention):
        def forward(self, ids):
            if ids.shape[1] > len(self.positions):
                raise ValueError
            x = self.tokens[ids] + self.positions[: ids.shape[1]]
            for block in self.blocks:
                x = _sees_all(block, x)
            z = F.layer_norm(x, self.gain.shape, self.gain, self.bias)
            return z @ (self.w_vocab if hasattr(self, "w_vocab") else self.tokens.T)

    verdict = evaluate(MODEL, Peeking, seed=2)
    assert verdict.misconception == "no causal mask"
    assert "its loss falls towards 0" in verdict.message


def _sees_all(block, x):
    B, T, D = x.shape
    y = F.layer_norm(x, (D,), block.gain_1, block.bias_1)
    q, k, v = (
        (y @ w).reshape(B, T, block.n_heads, -1).transpose(1, 2)
        for w in (block.w_q, block.w_k, block.w_v)
    )
    z = F.scaled_dot_product_attention(q, k, v)
    x = x + z.transpose(1, 2).reshape(B, T, D) @ block.w_o
    y = F.layer_norm(x, (D,), block.gain_2, block.bias_2)
    return x + F.gelu(y @ block.w_1 + block.b_1) @ block.w_2 + block.b_2


# What a student reads ------------------------------------------------------------------------


def _printed(id, answer, **kwargs):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        points = check(id, answer, **kwargs)
    assert err.getvalue() == ""
    return points, out.getvalue()


def test_forgetting_the_shift_is_explained():
    def answer(logits, ids):
        if ids.shape[-1] < 2:
            raise ValueError("short")
        return F.cross_entropy(logits.flatten(0, -2), ids.flatten())

    points, text = _printed(LOSS, answer)
    assert points < 7
    assert "your loss is about the token that was read, not the next one" in text
    assert "Row t is an opinion on token t + 1." in text


def test_drawing_at_temperature_0_is_told_as_what_it_is():
    _, text = _printed(GENERATE, generate_that_draws)
    assert "a global random generator" in text


def test_points_are_plain_floats():
    points, _ = _printed(SCHEDULE, schedule_as_written, graded=True)
    assert type(points) is float
    assert points == 5.0
