"""The modules: nothing but the functions with their weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import attend
from attend.masks import causal_mask

B, T, D, H, G, F = 2, 5, 12, 6, 3, 20


def random(module: nn.Module, dtype=torch.float64) -> nn.Module:
    """The module with every parameter drawn at random, so that none is 0 or 1 by chance."""
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
    return module.to(dtype)


def x_of(*shape: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4)).to(dtype)


def test_every_module_is_its_function():
    x = x_of(B, T, D)
    norm, rms, mlp, gated = map(
        random,
        (
            attend.LayerNorm(D, 1e-3),
            attend.RMSNorm(D, 1e-3),
            attend.FeedForward(D, F),
            attend.GatedFeedForward(D, F),
        ),
    )
    same = torch.testing.assert_close
    same(norm(x), attend.layer_norm(x, norm.gain, norm.bias, 1e-3))
    same(rms(x), attend.rms_norm(x, rms.gain, 1e-3))
    same(mlp(x), attend.feed_forward(x, mlp.w_1, mlp.b_1, mlp.w_2, mlp.b_2))
    same(gated(x), attend.swiglu(x, gated.w_gate, gated.w_up, gated.w_down))


@pytest.mark.parametrize("kernel", [attend.explicit_attention, attend.fused_attention])
@pytest.mark.parametrize("groups", [1, G, H])
def test_self_attention_is_grouped_query_attention(groups, kernel):
    attention = random(attend.SelfAttention(D, H, groups, pattern=causal_mask, kernel=kernel))
    x, a = x_of(B, T, D), attention
    expected = attend.grouped_query_attention(
        x, a.w_q, a.w_k, a.w_v, a.w_o, H, groups, mask=causal_mask(T, like=x)
    )
    torch.testing.assert_close(attention(x), expected)


def test_self_attention_with_biases_is_the_one_of_pytorch():
    attention, x = random(attend.SelfAttention(D, H, bias=True)), x_of(B, T, D)
    oracle = nn.MultiheadAttention(D, H, batch_first=True, dtype=x.dtype)
    ws = [getattr(attention, f"w_{name}") for name in "qkv"]
    bs = [getattr(attention, f"b_{name}") for name in "qkv"]
    with torch.no_grad():
        oracle.in_proj_weight.copy_(torch.cat([w.T for w in ws]))
        oracle.in_proj_bias.copy_(torch.cat(bs))
        oracle.out_proj.weight.copy_(attention.w_o.T)
        oracle.out_proj.bias.copy_(attention.b_o)
    lengths = torch.tensor([3, 5])
    mask = attend.padding_mask(lengths, T, like=x)
    expected, _ = oracle(x, x, x, key_padding_mask=~mask, need_weights=False)
    torch.testing.assert_close(attention(x, mask=mask[:, None, None, :]), expected)


def test_a_mask_adds_to_what_the_pattern_forbids():
    attention, x = random(attend.SelfAttention(D, H, G, pattern=causal_mask)), x_of(B, T, D)
    a = attention
    mask = attend.padding_mask([3, 5], T, like=x)[:, None, None, :]
    expected = attend.grouped_query_attention(
        x, a.w_q, a.w_k, a.w_v, a.w_o, H, G, attend.padded_causal_mask([3, 5], T, like=x)
    )
    torch.testing.assert_close(attention(x, mask=mask), expected)


def test_rotary_attention_turns_queries_and_keys_but_not_values():
    rotary = attend.Rotary(D // H, 16, base=50.0)
    attention = random(attend.SelfAttention(D, H, G, rotary=rotary))
    x = x_of(B, T, D)
    angles = attend.rope_angles(torch.arange(T), D // H, 50.0)
    q = attend.apply_rope(attend.split_heads(x @ attention.w_q, H), angles)
    k = attend.apply_rope(attend.split_heads(x @ attention.w_k, G), angles)
    z = attend.explicit_attention(q, k, attend.split_heads(x @ attention.w_v, G))
    expected = attend.merge_heads(z) @ attention.w_o
    torch.testing.assert_close(attention(x), expected, rtol=1e-5, atol=1e-5)


def test_the_table_of_rotations_is_float32_in_a_model_of_any_dtype():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        rotary = attend.Rotary(6, 1100).to(dtype)
        x = x_of(1, 1, 4, 6, dtype=dtype)
        got = rotary(x, torch.arange(1020, 1024))
        assert got.dtype == dtype
        exact = attend.apply_rope(x.double(), attend.rope_angles(torch.arange(1020, 1024), 6))
        limit = 2 * max(torch.finfo(dtype).eps, 1e-7) * x.abs().max()
        assert (got - exact).abs().max() <= limit


def test_sentences_may_stand_at_different_positions():
    rotary, x = attend.Rotary(6, 20), x_of(2, 3, 4, 6)
    positions = torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10]])
    got = rotary(x, positions)
    torch.testing.assert_close(got[0], rotary(x[:1], positions[0])[0])
    torch.testing.assert_close(got[1], rotary(x[1:], positions[1])[0])


def test_blocks_are_their_functions_and_hand_the_mask_to_attention():
    x = x_of(B, T, D)
    mask = causal_mask(T, like=x)
    for block_type, function in (
        (attend.PreNormBlock, attend.pre_norm_block),
        (attend.PostNormBlock, attend.post_norm_block),
    ):
        block = random(
            block_type(
                attend.SelfAttention(D, H),
                attend.FeedForward(D, F),
                attend.LayerNorm(D),
                attend.LayerNorm(D),
            )
        )

        def attention(x, block=block):
            return block.attention(x, mask=mask)

        expected = function(x, attention, block.mlp, block.norm_1, block.norm_2)
        torch.testing.assert_close(block(x, mask=mask), expected)


def test_every_parameter_has_storage_and_a_gradient_of_its_own():
    block = random(
        attend.PreNormBlock(
            attend.SelfAttention(D, H, G, bias=True, pattern=causal_mask),
            attend.FeedForward(D, F),
            attend.LayerNorm(D),
            attend.RMSNorm(D),
        )
    )
    block(x_of(B, T, D)).square().sum().backward()
    parameters = dict(block.named_parameters())
    assert len({p.data_ptr() for p in parameters.values()}) == len(parameters) == 15
    for name, parameter in parameters.items():
        assert parameter.grad.isfinite().all(), name
        # A bias common to all keys shifts each row of scores evenly, and softmax ignores that.
        assert name == "attention.b_k" or parameter.grad.abs().max() > 1e-9, name


def test_sizes_that_do_not_divide_are_refused():
    for heads, groups in ((5, 5), (6, 4)):
        with pytest.raises(ValueError, match=f"n_heads = {heads}"):
            attend.SelfAttention(D, heads, groups)
