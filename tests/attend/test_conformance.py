"""One suite for every attention variant (variants.py): what each of them must do, and proof that
the suite sees the mistakes that are known."""

from __future__ import annotations

import math

import pytest
import torch

from .variants import VARIANTS, WRONG, Variant

# Sizes that are all different: a mistake that swaps two of them must show.
B, H, G, K, D_V = 2, 6, 3, 7, 5
WINDOW = 4
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
LENGTHS = ((11, 11), (3, 11), (1, 13), (13, 4), (1, 1))  #: (T, S)
TOLERANCE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-6, torch.float64: 1e-13}


def inputs(variant: Variant, T: int, S: int, dtype=torch.float64, seed=0):
    """Random q, k, v of the sizes that the variant can be asked."""
    rng = torch.Generator().manual_seed(seed)
    heads = G if variant.grouped else H
    width = K if variant.self_attention else D_V
    shapes = (B, H, T, K), (B, heads, S, K), (B, heads, S, width)
    return [torch.randn(s, generator=rng, dtype=torch.float64).to(dtype) for s in shapes]


def lengths_of(variant: Variant):
    return [(T, S) for T, S in LENGTHS if T == S or not variant.self_attention]


def masks_for(variant: Variant, T: int, S: int):
    """The masks that the variant can be asked, for every pair of lengths."""
    causal = torch.ones(T, S, dtype=torch.bool).tril(S - T)
    rng = torch.Generator().manual_seed(T * 100 + S)
    random = torch.rand(B, 1, T, S, generator=rng) < 0.6
    return {
        "none": [None],
        "causal": [causal],
        "window": [causal & torch.ones(T, S, dtype=torch.bool).triu(S - T - WINDOW + 1)],
        "any": [None, causal, random, random[0, 0]],
    }[variant.mask]


def is_causal(variant: Variant) -> bool:
    return variant.mask != "none"


def close(actual, expected, dtype, because: str):
    assert actual.shape == expected.shape, f"{because}: {actual.shape}, not {expected.shape}"
    assert actual.dtype == dtype, f"the result is {actual.dtype}, the inputs are {dtype}"
    limit = TOLERANCE[dtype] * max(1.0, expected.abs().max().item()) if expected.numel() else 0
    error = (actual.double() - expected.double()).abs()
    assert bool((error <= limit).all()), f"{because}: off by {error.max():.2g}, allowed {limit:.2g}"


# The checks. Each takes a variant and raises AssertionError with what should have been.


def check_equals_the_oracle(variant):
    for T, S in lengths_of(variant):
        for mask in masks_for(variant, T, S):
            q, k, v = inputs(variant, T, S)
            expected = variant.oracle(q, k, v, mask)
            close(variant(q, k, v, mask), expected, torch.float64, f"T = {T}, S = {S}")


def check_keeps_every_float_type(variant):
    for dtype in DTYPES:
        if dtype == torch.bfloat16 and variant.library == "numpy":
            continue
        for mask in masks_for(variant, 11, 11):
            q, k, v = inputs(variant, 11, 11, dtype)
            close(variant(q, k, v, mask), variant.oracle(q, k, v, mask), dtype, f"{dtype}")


def check_stays_finite_at_logits_of_1e4(variant):
    if not variant.has_logits:
        return
    for dtype in DTYPES:
        if dtype == torch.bfloat16 and variant.library == "numpy":
            continue
        q, k, v = inputs(variant, 11, 11)
        # Each logit rounds to eps · 1e4, so the queries are one-hot and the keys whole numbers:
        # then every float type holds the scores exactly and the oracle stays an oracle.
        q = torch.nn.functional.one_hot(q.argmax(-1), K) * math.sqrt(K)
        k = torch.where(k > 0, 1e4, -1e4)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        for mask in masks_for(variant, 11, 11):
            close(variant(q, k, v, mask), variant.oracle(q, k, v, mask), dtype, "logits of 1e4")


def check_the_past_ignores_the_future(variant):
    if not is_causal(variant):
        return
    T = 11
    q, k, v = inputs(variant, T, T)
    causal = masks_for(variant, T, T)[-1 if variant.mask != "any" else 1]
    before = variant(q, k, v, causal)
    for t in range(1, T):
        changed = [x.clone() for x in (q, k, v)]
        for x in changed:
            x[..., t:, :] = 50 * torch.randn(x[..., t:, :].shape, dtype=x.dtype)
        after = variant(*changed, causal)
        because = f"changing tokens {t} … {T - 1} must leave the outputs before {t} alone"
        close(after[..., :t, :], before[..., :t, :], torch.float64, because)


def check_a_batch_is_its_rows(variant):
    for T, S in lengths_of(variant):
        for mask in masks_for(variant, T, S):
            q, k, v = inputs(variant, T, S)
            together = variant(q, k, v, mask)
            for b in range(B):
                m = mask if mask is None or mask.ndim == 2 else mask[b : b + 1]
                alone = variant(q[b : b + 1], k[b : b + 1], v[b : b + 1], m)
                close(together[b : b + 1], alone, torch.float64, f"row {b} of the batch, alone")


def check_masked_keys_may_hold_anything(variant):
    if variant.mask != "any":
        return  # what a variant with a fixed mask does not see is the future, checked above
    T, S = (11, 11) if variant.self_attention else (5, 11)
    q, k, v = inputs(variant, T, S)
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[:, [2, 7]] = False
    clean = variant(q, k, v, mask)
    for x in (k, v):
        x[..., [2, 7], :] = torch.tensor([1e6, -1e6], dtype=x.dtype)[:, None]
    close(variant(q, k, v, mask), clean, torch.float64, "garbage in masked keys and values")


def check_empty_texts_are_valid(variant):
    for T, S in [(0, 0), (0, 11), (3, 0)]:
        if T != S and (variant.self_attention or variant.mask == "window"):
            continue
        q, k, v = inputs(variant, T, S)
        z = variant(q, k, v, None if variant.mask == "none" else torch.ones(T, S) > 0)
        assert z.shape == (*q.shape[:-1], v.shape[-1]), f"T = {T}, S = {S} gives {z.shape}"
        assert bool((z == 0).all()), "without keys there is nothing to blend: zeros"


def empty_rows(variant):
    """(T, S, mask, rows that see nothing) for the variant, or None where it has no such rows."""
    if variant.mask == "any":
        mask = torch.ones(11, 11, dtype=torch.bool)
        mask[[0, 4]] = False
        return 11, 11, mask, [0, 4]
    if variant.self_attention or not is_causal(variant):
        return None
    return 13, 4, masks_for(variant, 13, 4)[0], list(range(13 - 4))


def check_rows_that_see_nothing_are_zero(variant):
    case = empty_rows(variant)
    if case is None:
        return
    T, S, mask, rows = case
    for dtype in (torch.float32, torch.float64):
        z = variant(*inputs(variant, T, S, dtype), mask)
        assert bool((z[..., rows, :] == 0).all()), "a row that may attend to nothing must be zeros"


def check_gradients_are_finite(variant):
    if variant.library == "numpy" or not variant.differentiable:
        return
    cases = [(11, 11, mask) for mask in masks_for(variant, 11, 11)]
    cases += [empty_rows(variant)[:3]] if empty_rows(variant) else []
    for T, S, mask in cases:
        for dtype in (torch.float32, torch.float64):
            tensors = [x.requires_grad_() for x in inputs(variant, T, S, dtype)]
            gradients = torch.autograd.grad(variant(*tensors, mask).square().sum(), tensors)
            for name, gradient in zip("qkv", gradients, strict=True):
                assert bool(gradient.isfinite().all()), f"the gradient of {name} is not finite"


def check_inputs_are_unchanged(variant):
    for mask in masks_for(variant, 11, 11):
        given = [*inputs(variant, 11, 11), mask]
        kept = [None if x is None else x.clone() for x in given]
        variant(*given)
        for name, before, after in zip(("q", "k", "v", "mask"), kept, given, strict=True):
            assert before is None or torch.equal(before, after), f"{name} was changed in place"


CHECKS = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_every_attention_variant_conforms(variant, check):
    check(variant)


@pytest.mark.parametrize(("mistaken", "seen_by"), WRONG.items(), ids=lambda x: str(x))
def test_the_suite_catches_every_known_mistake(mistaken, seen_by):
    with pytest.raises(AssertionError):
        CHECKS[seen_by](mistaken)
