"""Chapter 07: wrong answers that pass elsewhere, and what students read."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from coursework import evaluate
from coursework.exercises import get

from .right_answers.block import BlockByHand, gelu_by_erf, layer_norm_by_hand

LAYER, RMS, GELU, FORWARD = "07.layer_norm", "07.rms_norm", "07.gelu", "07.feed_forward"
PRE, POST, BLOCK = "07.pre_norm_block", "07.post_norm_block", "07.TransformerBlock"
COUNT = "07.block_parameters"


def layer_norm_in_float32(x, gain, bias, eps=1e-5):
    return layer_norm_by_hand(x.float(), gain.float(), bias.float(), eps).to(x.dtype)


def layer_norm_in_numpy(x, gain, bias, eps=1e-5):
    x, gain, bias = (a.detach().numpy() for a in (x, gain, bias))
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return torch.from_numpy(centred / (variance + eps) ** 0.5 * gain + bias)


def layer_norm_of_matrices(x, gain, bias, eps=1e-5):
    return layer_norm_by_hand(x, gain, bias, eps) if x.ndim == 2 else x


def layer_norm_with_a_threshold(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    return centred / deviation.clamp(min=eps) * gain + bias


def layer_norm_that_centres_in_place(x, gain, bias, eps=1e-5):
    x.data.sub_(x.data.mean(-1, keepdim=True))
    return layer_norm_by_hand(x, gain, bias, eps)


def rms_norm_with_a_bias(x, gain, eps=1e-6):
    return F.rms_norm(x, x.shape[-1:], gain, eps) + 1e-3


def rms_norm_as_layer_norm_with_the_mean_put_back(x, gain, eps=1e-6):
    mean = x.mean(-1, keepdim=True)
    return F.layer_norm(x, x.shape[-1:], gain, None, eps) + mean


def gelu_of_the_length(x):
    return x * 0.5 * (1 + torch.erf(x.abs().mean() / math.sqrt(2)))


def gelu_clipped(x):
    return gelu_by_erf(x.clamp(-30, 30))


def gelu_rounded(x):
    return torch.round(gelu_by_erf(x), decimals=7)


def feed_forward_for_wide_ones(x, w_1, b_1, w_2, b_2):
    if w_1.shape[1] < w_1.shape[0]:
        return x
    return gelu_by_erf(x @ w_1 + b_1) @ w_2 + b_2


def feed_forward_with_dropout(x, w_1, b_1, w_2, b_2):
    return F.dropout(gelu_by_erf(x @ w_1 + b_1), 0.1) @ w_2 + b_2


def pre_norm_that_rounds_the_gradient(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_1(x.detach()))
    return x + mlp(norm_2(x))


def pre_norm_scaled(x, attention, mlp, norm_1, norm_2):
    x = x + attention(norm_1(x)) / math.sqrt(2)
    return x + mlp(norm_2(x)) / math.sqrt(2)


def post_norm_with_one_more(x, attention, mlp, norm_1, norm_2):
    x = norm_1(x + attention(x))
    return norm_2(x + mlp(x)) + 0 * norm_1(x)


class BlockOfLinears(nn.Module):
    """What nn.Linear would make of it: other names, and (out, in)."""

    def __init__(self, d_model, n_heads, d_hidden=None):
        super().__init__()
        if d_model % n_heads:
            raise ValueError
        self.up = nn.Linear(d_model, d_hidden or 4 * d_model)
        self.down = nn.Linear(d_hidden or 4 * d_model, d_model)

    def forward(self, x, mask=None):
        return x + self.down(F.gelu(self.up(x)))


class BlockForCausalMasks(BlockByHand):
    def forward(self, x, mask=None):
        if mask is not None and mask.ndim > 2:
            mask = mask[..., 0, :, :] if mask.shape[-3] > 1 else mask
            mask = mask[:1].reshape(1, 1, *mask.shape[-2:]).expand(len(x), 1, -1, -1)
        return super().forward(x, mask)


class BlockThatLearnsNothingBelow(BlockByHand):
    def forward(self, x, mask=None):
        return super().forward(x.detach(), mask)


class BlockInTraining(BlockByHand):
    def forward(self, x, mask=None):
        return super().forward(x, mask) * (1 if self.training else 0.9)


class BlockThatDropsOutInTraining(BlockByHand):
    def forward(self, x, mask=None):
        return F.dropout(super().forward(x, mask), 0.1, self.training)


def parameters_in_thousands(d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm=""):
    return 12 * d_model**2


WRONG_ANSWERS = {
    LAYER: (
        layer_norm_in_float32,
        layer_norm_in_numpy,
        layer_norm_of_matrices,
        layer_norm_with_a_threshold,
        layer_norm_that_centres_in_place,
    ),
    RMS: (rms_norm_with_a_bias, rms_norm_as_layer_norm_with_the_mean_put_back),
    GELU: (gelu_of_the_length, gelu_clipped, gelu_rounded),
    FORWARD: (feed_forward_for_wide_ones, feed_forward_with_dropout),
    PRE: (pre_norm_that_rounds_the_gradient, pre_norm_scaled),
    POST: (post_norm_with_one_more,),
    BLOCK: (
        BlockOfLinears,
        BlockForCausalMasks,
        BlockThatLearnsNothingBelow,
        BlockInTraining,
        BlockThatDropsOutInTraining,
    ),
    COUNT: (parameters_in_thousands,),
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


def test_right_values_without_their_gradient_earn_what_they_are_worth():
    verdict = evaluate(LAYER, layer_norm_in_numpy, seed=1)
    assert verdict.points == verdict.max_points - 1
    assert "no gradient flows through it" in verdict.message


def test_a_part_that_is_called_twice_costs_the_point_for_that_alone():
    def answer(x, attention, mlp, norm_1, norm_2):
        attention(norm_1(x))
        x = x + attention(norm_1(x))
        return x + mlp(norm_2(x))

    verdict = evaluate(PRE, answer, seed=1)
    assert verdict.points == verdict.max_points - 1
    assert verdict.misconception == "calls a part twice"


def test_parts_may_not_be_called_in_another_order_though_the_result_is_right():
    """With two residuals a part could be asked early, on what it will read anyway."""

    def answer(x, attention, mlp, norm_1, norm_2):
        y = norm_1(x)
        return x + (a := attention(y)) + mlp(norm_2(x + a))

    assert evaluate(PRE, answer, seed=1).passed


def test_a_block_that_refuses_with_another_error_loses_that_point():
    class Refuses(BlockByHand):
        def __init__(self, d_model, n_heads, d_hidden=None):
            if d_model % n_heads:
                raise TypeError("no")
            super().__init__(d_model, n_heads, d_hidden)

    verdict = evaluate(BLOCK, Refuses, seed=1)
    assert verdict.points == verdict.max_points - 1


def test_heads_that_are_split_but_joined_rightly_are_told_where_the_mistake_is():
    class Split(BlockByHand):
        def forward(self, x, mask=None):
            B, T, D = x.shape
            y = F.layer_norm(x, (D,), self.gain_1, self.bias_1)
            q, k, v = ((y @ w).view(B, self.n_heads, T, -1) for w in (self.w_q, self.w_k, self.w_v))
            z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + z.transpose(1, 2).reshape(B, T, D) @ self.w_o
            y = F.layer_norm(x, (D,), self.gain_2, self.bias_2)
            return x + F.gelu(y @ self.w_1 + self.b_1) @ self.w_2 + self.b_2

    verdict = evaluate(BLOCK, Split, seed=1)
    assert verdict.misconception == "splits heads without a transpose"


def test_a_block_may_hold_helpers_that_have_no_parameters():
    class Helped(BlockByHand):
        def __init__(self, d_model, n_heads, d_hidden=None):
            super().__init__(d_model, n_heads, d_hidden)
            self.bend = nn.GELU()
            self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    assert evaluate(BLOCK, Helped, seed=1).passed


def test_the_count_of_the_task_is_right():
    assert get(COUNT).reference(768, 3072) == 7_084_800
    assert "7,084,800" in get(COUNT).task


def test_an_answer_that_calls_attend_is_told_to_write_its_own():
    def answer(x, gain, bias, eps=1e-5):
        from attend.blocks import layer_norm

        return layer_norm(x, gain, bias, eps)

    verdict = evaluate(LAYER, answer, seed=1)
    assert verdict.points == 0
    assert "Write yours" in verdict.message


def test_a_block_out_of_modules_of_attend_is_refused():
    from attend.layers import FeedForward, LayerNorm, PreNormBlock, SelfAttention

    def block(d_model, n_heads, d_hidden=None):
        hidden = d_hidden or 4 * d_model
        parts = SelfAttention(d_model, n_heads), FeedForward(d_model, hidden)
        return PreNormBlock(*parts, LayerNorm(d_model), LayerNorm(d_model))

    assert not evaluate(BLOCK, block, seed=1).passed


def test_in_float32_a_right_answer_may_compute_in_float64():
    def answer(x, gain, bias, eps=1e-5):
        wide = layer_norm_by_hand(x.double(), gain.double(), bias.double(), eps)
        return wide.to(x.dtype)

    assert evaluate(LAYER, answer, seed=1).passed
