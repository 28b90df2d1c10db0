"""Chapter 06: wrong layers of heads that pass elsewhere, and what each earns."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from coursework import evaluate

from .right_answers.heads import (
    groups_with_repetition,
    heads_with_split_and_merge,
    merge_by_reshape,
    parameters_by_formula,
    repeat_by_repeat,
    softmax,
    split_by_reshape,
)

SPLIT, MERGE, HEADS = "06.split_heads", "06.merge_heads", "06.multi_head_attention"
REPEAT, GROUPS, PARAMETERS = (
    "06.repeat_kv",
    "06.grouped_query_attention",
    "06.attention_parameters",
)


# Wrong answers -------------------------------------------------------------------------------


def split_for_matrices(x, n_heads):
    return split_by_reshape(x, n_heads) if x.ndim == 2 else x


def split_as_a_list(x, n_heads):
    return list(split_by_reshape(x, n_heads))


def split_with_zeros(x, n_heads):
    return np.zeros_like(split_by_reshape(x, n_heads))


def split_rows(x, n_heads):
    return split_by_reshape(np.swapaxes(x, -1, -2), n_heads)


def merge_of_two(x):
    if x.shape[-3] != 2:
        return merge_by_reshape(x[..., :1, :, :])
    return merge_by_reshape(x)


def merge_with_an_axis_left(x):
    return merge_by_reshape(x)[..., None, :, :]


def heads_of_zeros(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return np.zeros(x.shape)


def heads_of_queries_with_queries(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return heads_with_split_and_merge(x, w_q, w_q, w_v, w_o, n_heads, mask)


def heads_that_attend_to_themselves(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return x @ w_v @ w_o


def heads_with_a_causal_mask_always(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    causal = np.tri(x.shape[-2], dtype=bool)
    mask = causal if mask is None else mask & causal
    return heads_with_split_and_merge(x, w_q, w_k, w_v, w_o, n_heads, mask)


def heads_with_even_weights(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return heads_with_split_and_merge(x, 0 * w_q, w_k, w_v, w_o, n_heads, mask)


def heads_with_w_o_first(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    return heads_with_split_and_merge(x @ w_o, w_q, w_k, w_v, np.eye(len(w_o)), n_heads, mask)


def heads_in_the_wrong_order(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    q, k, v = (split_by_reshape(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), mask)
    return merge_by_reshape((weights @ v)[..., ::-1, :, :]) @ w_o


def heads_by_fused_attention(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    q, k, v = (torch.from_numpy(split_by_reshape(x @ w, n_heads)) for w in (w_q, w_k, w_v))
    mask = None if mask is None else torch.from_numpy(mask)
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return merge_by_reshape(z.numpy()) @ w_o


def repeat_twice_at_least(x, n_rep):
    return repeat_by_repeat(x, max(n_rep, 2))


def groups_for_one_or_all(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    """Right for G = 1 and G = H, the sizes that most tests have."""
    if n_heads % n_kv_heads:
        raise ValueError("uneven")
    if n_kv_heads in (1, n_heads):
        return groups_with_repetition(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask)
    return np.zeros(x.shape)


def groups_scaled_by_their_number(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    w_q = w_q / np.sqrt(n_heads / n_kv_heads)
    return groups_with_repetition(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask)


def parameters_of_two_matrices(d_model, n_heads, n_kv_heads=None):
    return parameters_by_formula(d_model, n_heads, n_kv_heads) // 2


WRONG_ANSWERS = {
    SPLIT: (split_for_matrices, split_as_a_list, split_with_zeros, split_rows),
    MERGE: (merge_of_two, merge_with_an_axis_left),
    HEADS: (
        heads_of_zeros,
        heads_of_queries_with_queries,
        heads_that_attend_to_themselves,
        heads_with_a_causal_mask_always,
        heads_with_even_weights,
        heads_with_w_o_first,
        heads_in_the_wrong_order,
        heads_by_fused_attention,
    ),
    REPEAT: (repeat_twice_at_least,),
    GROUPS: (groups_for_one_or_all, groups_scaled_by_their_number),
    PARAMETERS: (parameters_of_two_matrices,),
}


@pytest.mark.parametrize(
    ("id", "answer"),
    [pytest.param(id, f, id=f.__name__) for id, fs in WRONG_ANSWERS.items() for f in fs],
)
def test_a_wrong_answer_is_rejected(id, answer):
    verdict = evaluate(id, answer, seed=1)
    assert not verdict.passed
    assert verdict.points < verdict.max_points


# What is earned ------------------------------------------------------------------------------


def failed(verdict):
    return [r.property for r in verdict.results if r.failure]


def test_a_split_without_a_batch_earns_what_it_can_do():
    def answer(x, n_heads):
        return np.stack(np.split(x, n_heads, axis=-1))

    verdict = evaluate(SPLIT, answer, seed=2)
    assert failed(verdict) == ["leading axes stay in front"]
    assert verdict.misconception == "puts the heads before the batch"


def test_nan_in_an_empty_row_costs_one_point_and_is_named():
    def answer(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
        q, k, v = (split_by_reshape(x @ w, n_heads) for w in (w_q, w_k, w_v))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        if mask is not None:
            scores = np.where(mask, scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return merge_by_reshape(e / e.sum(-1, keepdims=True) @ v) @ w_o

    verdict = evaluate(HEADS, answer, seed=2)
    assert failed(verdict) == ["a query that may see nothing gets zeros"]
    assert verdict.misconception == "NaN where nothing may be seen"


def test_tiled_groups_keep_the_points_of_the_sizes_that_hide_them():
    def answer(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
        if n_heads % n_kv_heads:
            raise ValueError("uneven")
        q = split_by_reshape(x @ w_q, n_heads)
        k, v = (split_by_reshape(x @ w, n_kv_heads) for w in (w_k, w_v))
        n_rep = n_heads // n_kv_heads
        k, v = (np.concatenate([a] * n_rep, axis=-3) for a in (k, v))
        weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), mask)
        return merge_by_reshape(weights @ v) @ w_o

    verdict = evaluate(GROUPS, answer, seed=2)
    assert "one key/value head, and as many as query heads" not in failed(verdict)
    assert "neighbouring query heads share keys and values" in failed(verdict)
    assert verdict.misconception == "tiles the groups"


def test_a_quotient_gives_a_float_and_is_told_so():
    def answer(d_model, n_heads, n_kv_heads=None):
        return parameters_by_formula(d_model, n_heads, n_kv_heads) / 1

    verdict = evaluate(PARAMETERS, answer, seed=2)
    assert not verdict.passed
    assert "float" in verdict.message
