"""Heads, against PyTorch's MultiheadAttention and its grouped fused attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import attend

from .mistakes import mistakes, must_reject

B, T, D, H, G = 2, 5, 12, 6, 3
K = D // H


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng, dtype=torch.float64)


def weights(d: int = D, q_width: int = D, kv_width: int = D) -> list[torch.Tensor]:
    shapes = (d, q_width), (d, kv_width), (d, kv_width), (q_width, d)
    return [normal(*shape, seed=i) for i, shape in enumerate(shapes, 1)]


def check_split(split):
    x = normal(B, T, D)
    got = split(x, H)
    assert got.shape == (B, H, T, K)
    for h in range(H):
        torch.testing.assert_close(got[:, h], x[:, :, h * K : (h + 1) * K])
    try:
        split(x, 5)
    except ValueError:
        return
    raise AssertionError("5 heads cannot share 12 columns")


def check_merge(merge):
    x = normal(B, H, T, K)
    got = merge(x)
    assert got.shape == (B, T, D)
    for h in range(H):
        torch.testing.assert_close(got[:, :, h * K : (h + 1) * K], x[:, h])


def check_repeat(repeat):
    x = normal(B, G, T, K)
    torch.testing.assert_close(repeat(x, 4), x.repeat_interleave(4, dim=-3), rtol=0, atol=0)


def masks():
    random = torch.rand(B, H, T, T, generator=torch.Generator().manual_seed(0)) < 0.7
    random |= torch.eye(T, dtype=torch.bool)  # nn.MultiheadAttention gives NaN for empty rows
    return [None, torch.ones(T, T, dtype=torch.bool).tril(), random[:, :1], random]


def check_multi_head(multi_head):
    """nn.MultiheadAttention: its matrices are (out, in) and its mask says True = ignore."""
    x, ws = normal(B, T, D), weights()
    oracle = torch.nn.MultiheadAttention(D, H, bias=False, batch_first=True, dtype=x.dtype)
    with torch.no_grad():
        oracle.in_proj_weight.copy_(torch.cat([w.T for w in ws[:3]]))
        oracle.out_proj.weight.copy_(ws[3].T)
    for mask in masks():
        ignore = None
        if mask is not None:
            ignore = ~mask.expand(B, H, T, T).reshape(B * H, T, T)
        expected, _ = oracle(x, x, x, attn_mask=ignore, need_weights=False)
        torch.testing.assert_close(multi_head(x, *ws, H, mask=mask), expected.detach())


def check_grouped(grouped):
    x, ws = normal(B, T, D), weights(kv_width=G * K)
    q = (x @ ws[0]).view(B, T, H, K).transpose(1, 2)
    k, v = ((x @ w).view(B, T, G, K).transpose(1, 2) for w in ws[1:3])
    for mask in masks():
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        expected = z.transpose(1, 2).reshape(B, T, D) @ ws[3]
        torch.testing.assert_close(grouped(x, *ws, H, G, mask=mask), expected)


def check_parameters(parameters):
    assert parameters(768, 12) == 4 * 768**2
    assert parameters(768, 1) == 4 * 768**2
    assert parameters(576, 9, 3) == 2 * 576 * 576 + 2 * 576 * 192
    assert parameters(12, 6, 1) == sum(w.numel() for w in weights(kv_width=2))


def _multi_head(change):
    """multi_head_attention with its (q, k, v) in heads, or its merged heads, changed."""

    def f(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads=None, mask=None):
        n_kv = n_kv_heads or n_heads
        q = attend.split_heads(x @ w_q, n_heads)
        k, v = (attend.split_heads(x @ w, n_kv) for w in (w_k, w_v))
        return change(q, k, v, mask, w_o, n_heads // n_kv)

    return f


def _finish(q, k, v, mask, w_o, n_rep):
    k, v = attend.repeat_kv(k, n_rep), attend.repeat_kv(v, n_rep)
    return attend.merge_heads(attend.scaled_dot_product_attention(q, k, v, mask)[0]) @ w_o


def _v_of_the_wrong_group(q, k, v, mask, w_o, n_rep):
    k, v = attend.repeat_kv(k, n_rep), v.repeat(1, n_rep, 1, 1)
    return attend.merge_heads(attend.scaled_dot_product_attention(q, k, v, mask)[0]) @ w_o


def _tiled(q, k, v, mask, w_o, n_rep):
    return _finish(q, k.repeat(1, n_rep, 1, 1), v.repeat(1, n_rep, 1, 1), mask, w_o, 1)


def _heads_averaged(q, k, v, mask, w_o, n_rep):
    z = attend.scaled_dot_product_attention(q, k, v, mask)[0]
    return attend.merge_heads(z.mean(1, keepdim=True).expand(z.shape)) @ w_o


def _no_merge(q, k, v, mask, w_o, n_rep):
    z = attend.scaled_dot_product_attention(q, k, v, mask)[0]
    return z.reshape(B, T, D) @ w_o


def _full_width_scale(q, k, v, mask, w_o, n_rep):
    return _finish(q * math.sqrt(K / D), k, v, mask, w_o, n_rep)


@mistakes(
    {
        check_split: {
            "reshape without transpose": lambda x, n: x.reshape(B, n, T, -1),
            "heads interleaved": lambda x, n: x.reshape(B, T, -1, n).permute(0, 3, 1, 2),
            "no error": lambda x, n: (
                x[..., : x.shape[-1] // n * n].reshape(B, T, n, -1).transpose(1, 2)
            ),
        },
        check_merge: {"no transpose back": lambda x: x.reshape(B, T, D)},
        check_repeat: {
            "tiled": lambda x, n: x.repeat(1, n, 1, 1),
            "wrong axis": lambda x, n: x.repeat_interleave(n, dim=-2),
        },
        check_multi_head: {
            "√D as scale": _multi_head(_full_width_scale),
            "no scale": _multi_head(lambda q, k, v, *rest: _finish(q * math.sqrt(K), k, v, *rest)),
            "W_O missing": _multi_head(
                lambda q, k, v, m, w_o, n: _finish(q, k, v, m, _eye(w_o), n)
            ),
            "mask ignored": _multi_head(lambda q, k, v, m, *rest: _finish(q, k, v, None, *rest)),
            "one head's mask for all": _multi_head(
                lambda q, k, v, m, *rest: (
                    _finish(q, k, v, m if m is None else m[..., :1, :, :], *rest)
                    if m is None or m.ndim == 4
                    else _finish(q, k, v, m, *rest)
                )
            ),
            "heads averaged": _multi_head(_heads_averaged),
            "merged without transpose": _multi_head(_no_merge),
        },
        check_grouped: {
            "group order": _multi_head(_tiled),
            "V of the wrong group": _multi_head(_v_of_the_wrong_group),
            "first group for all": _multi_head(
                lambda q, k, v, *rest: _finish(q, k[:, :1].expand(k.shape), v, *rest)
            ),
        },
        check_parameters: {
            "W_O forgotten": lambda d, h, g=None: attend.attention_parameters(d, h, g) - d * d,
            "times H": lambda d, h, g=None: h * attend.attention_parameters(d, h, g),
            "GQA ignored": lambda d, h, g=None: 4 * d * d,
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


def _eye(w):
    return torch.eye(*w.shape, dtype=w.dtype)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_split, attend.split_heads),
        (check_merge, attend.merge_heads),
        (check_repeat, attend.repeat_kv),
        (check_multi_head, attend.multi_head_attention),
        (check_grouped, attend.grouped_query_attention),
        (check_grouped, _multi_head(_finish)),
        (check_parameters, attend.attention_parameters),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_heads_agree_with_pytorch(check, ours):
    check(ours)


@given(st.integers(1, 4), st.integers(0, 5), st.integers(1, 5), st.integers(1, 4))
def test_merging_undoes_splitting_for_numpy_and_torch(batch, tokens, heads, width):
    x = np.random.default_rng(0).standard_normal((batch, tokens, heads * width))
    for of in (np.asarray, torch.from_numpy):
        split = attend.split_heads(of(x), heads)
        assert split.shape == (batch, heads, tokens, width)
        np.testing.assert_array_equal(attend.merge_heads(split), x)


def test_numpy_and_torch_give_the_same_numbers():
    x, ws = normal(B, T, D), weights(kv_width=G * K)
    mask = torch.ones(T, T, dtype=torch.bool).tril()
    arrays = attend.grouped_query_attention(
        x.numpy(), *(w.numpy() for w in ws), H, G, mask=mask.numpy()
    )
    np.testing.assert_allclose(arrays, attend.grouped_query_attention(x, *ws, H, G, mask=mask))


def test_the_heads_and_their_weights_can_be_looked_at():
    x, (w_q, w_k, w_v, w_o) = normal(B, T, D), weights(kv_width=G * K)
    heads, w = attend.attention_heads(x, w_q, w_k, w_v, H, G)
    assert heads.shape == (B, H, T, K) and w.shape == (B, H, T, T)
    torch.testing.assert_close(w.sum(-1), torch.ones(B, H, T, dtype=w.dtype))
    merged = attend.merge_heads(heads) @ w_o
    torch.testing.assert_close(merged, attend.grouped_query_attention(x, w_q, w_k, w_v, w_o, H, G))


def test_one_group_is_multi_query_attention():
    x, ws = normal(B, T, D), weights(kv_width=K)
    heads, _ = attend.attention_heads(x, *ws[:3], H, 1)
    alone, _ = attend.scaled_dot_product_attention(
        (x @ ws[0])[..., 4 * K : 5 * K], x @ ws[1], x @ ws[2]
    )
    torch.testing.assert_close(heads[:, 4], alone)


def test_heads_that_do_not_divide_are_refused_with_the_numbers():
    x, ws = normal(T, D), weights()
    with pytest.raises(ValueError, match="6 query heads cannot share 4"):
        attend.grouped_query_attention(x, *ws, 6, 4)
    with pytest.raises(ValueError, match="5 heads cannot share 12"):
        attend.multi_head_attention(x, *ws, 5)
    with pytest.raises(ValueError, match="n_heads = 5 must divide d_model = 12"):
        attend.attention_parameters(12, 5)
