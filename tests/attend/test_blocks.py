"""The parts of a block, against PyTorch's own functions and modules."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import attend

from .mistakes import mistakes, must_reject

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def normal(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)


def check_layer_norm(layer_norm):
    x, gain, bias = 3 + normal(2, 5, 4), normal(4, seed=1), normal(4, seed=2)
    for eps in (1e-5, 0.5):
        expected = F.layer_norm(x, (4,), gain, bias, eps)
        torch.testing.assert_close(layer_norm(x, gain, bias, eps=eps), expected)


def check_rms_norm(rms_norm):
    x, gain = 3 + normal(2, 5, 4), normal(4, seed=1)
    for eps in (1e-6, 0.5):
        torch.testing.assert_close(rms_norm(x, gain, eps=eps), F.rms_norm(x, (4,), gain, eps))


def check_gelu(gelu):
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    torch.testing.assert_close(gelu(x), F.gelu(x), rtol=1e-12, atol=1e-12)


def hidden_weights(D=4, F_=7):
    return normal(D, F_, seed=1), normal(F_, seed=2), normal(F_, D, seed=3), normal(D, seed=4)


def check_feed_forward(feed_forward):
    x, (w_1, b_1, w_2, b_2) = normal(2, 5, 4), hidden_weights()
    expected = F.linear(F.gelu(F.linear(x, w_1.T, b_1)), w_2.T, b_2)
    torch.testing.assert_close(feed_forward(x, w_1, b_1, w_2, b_2), expected)


def check_swiglu(swiglu):
    x, w_gate, w_up, w_down = normal(2, 5, 4), normal(4, 7), normal(4, 7, seed=1), normal(7, 4)
    expected = F.linear(F.silu(F.linear(x, w_gate.T)) * F.linear(x, w_up.T), w_down.T)
    torch.testing.assert_close(swiglu(x, w_gate, w_up, w_down), expected)


def parts(calls: list[str]):
    """Four maps that do not commute, and that write down when they are called."""
    maps = {
        "attention": lambda x: x.cumsum(-2),
        "mlp": lambda x: x**2,
        "norm_1": lambda x: 0.5 * x + 1,
        "norm_2": lambda x: 0.25 * x - 2,
    }

    def recorded(name):
        def part(x):
            calls.append(name)
            return maps[name](x)

        return part

    return [recorded(name) for name in maps]


def check_pre_norm(block):
    x, calls = normal(2, 5, 4), []
    got = block(x, *parts(calls))
    assert calls == ["norm_1", "attention", "norm_2", "mlp"]
    middle = x + (0.5 * x + 1).cumsum(-2)
    torch.testing.assert_close(got, middle + (0.25 * middle - 2) ** 2)


def check_post_norm(block):
    x, calls = normal(2, 5, 4), []
    got = block(x, *parts(calls))
    assert calls == ["attention", "norm_1", "mlp", "norm_2"]
    middle = 0.5 * (x + x.cumsum(-2)) + 1
    torch.testing.assert_close(got, 0.25 * (middle + middle**2) - 2)


def check_parameters(parameters):
    assert parameters(768, 3072) == 7_084_800
    assert parameters(768, 3072, 12) == 7_084_800
    assert parameters(576, 1536, 9, 3, gated=True, norm="rms") == 3_540_096
    assert parameters(12, 7, 6, 2) == 2 * 144 + 2 * 12 * 4 + 2 * 84 + 7 + 12 + 48


def _unbiased(x, gain, bias, eps):
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + eps).sqrt() * gain + bias


def _eps_outside(x, gain, bias, eps):
    std = x.std(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / (std + eps) * gain + bias


def _gated(activation, up_first=False):
    def f(x, w_gate, w_up, w_down):
        gate, up = (x @ w_up, x @ w_gate) if up_first else (x @ w_gate, x @ w_up)
        return (activation(gate) * up) @ w_down

    return f


@mistakes(
    {
        check_layer_norm: {
            "unbiased variance": _unbiased,
            "eps outside the root": _eps_outside,
            "over tokens": lambda x, g, b, eps: (
                F.layer_norm(x.mT, (x.shape[-2],), eps=eps).mT * g + b
            ),
            "gain forgotten": lambda x, g, b, eps: F.layer_norm(x, (4,), None, b, eps),
        },
        check_rms_norm: {
            "mean subtracted": lambda x, g, eps: F.layer_norm(x, (4,), g, None, eps),
            "eps outside the root": lambda x, g, eps: (
                x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * g
            ),
            "squared norm without mean": lambda x, g, eps: (
                x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps) * g
            ),
        },
        check_gelu: {
            "ReLU": F.relu,
            "tanh approximation": attend.gelu_tanh,
            "sigmoid form": lambda x: x * torch.sigmoid(1.702 * x),
        },
        check_feed_forward: {
            "activation after the second": lambda x, w_1, b_1, w_2, b_2: F.gelu(
                (x @ w_1 + b_1) @ w_2 + b_2
            ),
            "no activation": lambda x, w_1, b_1, w_2, b_2: (x @ w_1 + b_1) @ w_2 + b_2,
            "ReLU": lambda *args: attend.feed_forward(*args, activation=F.relu),
        },
        check_swiglu: {
            "gate and up exchanged": _gated(F.silu, up_first=True),
            "GELU": _gated(F.gelu),
            "sigmoid only": _gated(torch.sigmoid),
        },
        check_pre_norm: {
            "post-norm": attend.post_norm_block,
            "one norm twice": lambda x, a, m, n_1, n_2: attend.pre_norm_block(x, a, m, n_1, n_1),
            "no second residual": lambda x, a, m, n_1, n_2: m(n_2(x + a(n_1(x)))),
            "norm inside the highway": lambda x, a, m, n_1, n_2: (
                (y := n_1(x)) + a(y) + m(n_2(y + a(y)))
            ),
        },
        check_post_norm: {
            "pre-norm": attend.pre_norm_block,
            "no residual": lambda x, a, m, n_1, n_2: n_2(m(n_1(a(x)))),
            "norms swapped": lambda x, a, m, n_1, n_2: attend.post_norm_block(x, a, m, n_2, n_1),
        },
        check_parameters: {
            "biases forgotten": lambda d, f, *a, **k: (
                attend.block_parameters(d, f, *a, **k) - f - d
            ),
            "W_O forgotten": lambda d, f, *a, **k: attend.block_parameters(d, f, *a, **k) - d * d,
            "8 D² for any F": lambda d, f, *a, **k: attend.block_parameters(d, 4 * d, *a, **k),
            "GQA ignored": lambda d, f, h=1, g=None, **k: attend.block_parameters(d, f, h, **k),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


@pytest.mark.parametrize(
    ("check", "ours"),
    [
        (check_layer_norm, attend.layer_norm),
        (check_rms_norm, attend.rms_norm),
        (check_gelu, attend.gelu),
        (check_feed_forward, attend.feed_forward),
        (check_swiglu, attend.swiglu),
        (check_pre_norm, attend.pre_norm_block),
        (check_post_norm, attend.post_norm_block),
        (check_parameters, attend.block_parameters),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_the_parts_agree_with_pytorch(check, ours):
    check(ours)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_keep_the_dtype_and_do_not_overflow_in_half_precision(dtype):
    x, one = 300 * normal(2, 5, 64, dtype=dtype), torch.ones(64, dtype=dtype)  # 300² > 65504
    for got, exact in (
        (attend.layer_norm(x, one, 0 * one), F.layer_norm(x.double(), (64,))),
        (attend.rms_norm(x, one), F.rms_norm(x.double(), (64,), eps=1e-6)),
    ):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), exact, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_a_token_without_variance_is_divided_by_no_zero():
    x, one = torch.full((1, 4), 2.0, requires_grad=True), torch.ones(4)
    y = attend.layer_norm(x, one, 0 * one)
    y.sum().backward()
    assert (y == 0).all() and x.grad.isfinite().all()


def test_the_tanh_gelu_is_pytorchs():
    x = torch.linspace(-6, 6, 101, dtype=torch.float64)
    torch.testing.assert_close(attend.gelu_tanh(x), F.gelu(x, approximate="tanh"))


@pytest.mark.parametrize("f", [attend.gelu, attend.gelu_tanh])
def test_gelu_is_differentiated_as_autograd_says(f):
    assert torch.autograd.gradcheck(f, normal(7).requires_grad_())


def test_each_token_is_worked_on_alone():
    x, ws = normal(2, 5, 4), hidden_weights()
    whole = attend.feed_forward(x, *ws)
    torch.testing.assert_close(attend.feed_forward(x[:, 2], *ws), whole[:, 2])


def test_parameters_that_cannot_be_divided_are_refused():
    with pytest.raises(ValueError, match="'batch'"):
        attend.block_parameters(12, 48, norm="batch")
    with pytest.raises(ValueError, match="must divide"):
        attend.block_parameters(12, 48, n_heads=5)


def test_the_variance_of_a_layer_norm_matters_most_where_it_is_narrow():
    """The mistake of an unbiased variance is 18 % at width 4 and hides at width 512."""
    for width, off in ((4, 0.1), (512, 0.01)):
        x, one = normal(3, width), torch.ones(width, dtype=torch.float64)
        ratio = attend.layer_norm(x, one, 0 * one) / _unbiased(x, one, 0 * one, 1e-5)
        assert ratio.mean().item() == pytest.approx(math.sqrt(width / (width - 1)), rel=1e-3)
        assert (ratio.mean().item() - 1 > off) == (width == 4)
