"""Right answers to the exercises of chapter 11."""

import numpy as np
import torch

# previous_token_score ------------------------------------------------------------------------


def previous_by_diagonal(weights):
    if weights.shape[-1] < 2:
        raise ValueError("at least two tokens")
    return weights.diagonal(-1, dim1=-2, dim2=-1).mean(dim=-1)


def previous_in_a_loop(weights):
    T = weights.shape[-2]
    if T < 2:
        raise ValueError
    total = torch.zeros_like(weights[..., 0, 0])
    for t in range(1, T):
        total = total + weights[..., t, t - 1]
    return total / (T - 1)


def previous_by_index(weights):
    t = torch.arange(1, weights.size(-1))
    if not len(t):
        raise ValueError(f"{weights.size(-1)} token")
    return torch.mean(weights[..., t, t - 1], -1)


def previous_by_a_mask(weights):
    T = weights.shape[-1]
    if T <= 1:
        raise ValueError("too short")
    below = torch.eye(T, dtype=weights.dtype).roll(1, 0).tril()
    return torch.einsum("...ts,ts->...", weights, below) / (T - 1)


def previous_in_float64(weights):
    if weights.shape[-1] < 2:
        raise ValueError
    w = weights.double()
    shifted = torch.stack([w[..., t, t - 1] for t in range(1, w.shape[-1])], dim=-1)
    return (shifted.sum(-1) / shifted.shape[-1]).to(weights.dtype)


def previous_with_numpy_inside(weights):
    if weights.shape[-1] < 2:
        raise ValueError
    diagonal = np.diagonal(weights.numpy(), -1, -2, -1)
    return torch.from_numpy(np.asarray(diagonal.mean(-1), dtype=diagonal.dtype))


# sink_score ----------------------------------------------------------------------------------


def sink_of_a_column(weights):
    return weights[..., 1:, 0].mean(-1)


def sink_by_subtraction(weights):
    first = weights.select(-1, 0)
    return (first.sum(-1) - first[..., 0]) / (first.shape[-1] - 1)


def sink_in_a_loop(weights):
    T = weights.shape[-1]
    return torch.stack([weights[..., t, 0] for t in range(1, T)]).sum(0) / (T - 1)


def sink_by_a_product(weights):
    T = weights.shape[-1]
    rows = torch.full((T,), 1 / (T - 1), dtype=weights.dtype)
    rows[0] = 0
    return torch.einsum("...t,t->...", weights[..., 0], rows)


# induction_score -----------------------------------------------------------------------------


def induction_of_cut_rows(weights, period):
    return weights[..., period:, :].diagonal(1, dim1=-2, dim2=-1).mean(-1)


def induction_of_a_cut_diagonal(weights, period):
    diagonal = weights.diagonal(1 - period, dim1=-2, dim2=-1)  # from row P - 1 on
    return diagonal[..., 1:].mean(-1)


def induction_in_a_loop(weights, period):
    T, total = weights.shape[-1], 0
    for t in range(period, T):
        total = total + weights[..., t, t - period + 1]
    return total / (T - period)


def induction_by_index(weights, period):
    t = torch.arange(period, weights.shape[-2])
    return weights[..., t, t + 1 - period].sum(-1) / t.numel()


def induction_by_gathering(weights, period):
    T = weights.shape[-1]
    rows = weights[..., period:, :]
    where = torch.arange(1, T - period + 1)[:, None].expand(*rows.shape[:-1], 1)
    return rows.gather(-1, where).squeeze(-1).mean(-1)


# antecedent_preference -----------------------------------------------------------------------


def preference_with_a_safe_divisor(weights, at, candidates):
    chosen = weights[..., at, candidates]
    total = chosen.sum(-1, keepdim=True)
    return chosen / torch.where(total == 0, torch.ones_like(total), total)


def preference_without_nan(weights, at, candidates):
    chosen = weights[..., at, :].index_select(-1, torch.tensor(candidates))
    return torch.nan_to_num(chosen / chosen.sum(-1, keepdim=True), nan=0.0)


def preference_candidate_by_candidate(weights, at, candidates):
    total = sum(weights[..., at, c] for c in candidates)
    shares = [
        torch.where(total > 0, weights[..., at, c] / total.masked_fill(total == 0, 1), 0)
        for c in candidates
    ]
    return torch.stack(shares, dim=-1)


def preference_by_one_hot(weights, at, candidates):
    pick = torch.zeros(weights.shape[-1], len(candidates), dtype=weights.dtype)
    pick[torch.tensor(candidates), torch.arange(len(candidates))] = 1
    chosen = weights[..., at, :] @ pick
    total = chosen.sum(-1, keepdim=True)
    return torch.where(total.expand_as(chosen) == 0, torch.zeros_like(chosen), chosen / total)


def preference_by_scaling_first(weights, at, candidates):
    chosen = weights[..., at, list(candidates)]
    largest = chosen.amax(-1, keepdim=True)
    scaled = torch.where(largest > 0, chosen / largest, 0)
    return scaled / scaled.sum(-1, keepdim=True).clamp(min=1)


# ablate_head ---------------------------------------------------------------------------------


def ablation_of_a_copy(heads, index):
    if not 0 <= index < heads.shape[-3]:
        raise IndexError(f"there is no head {index}")
    result = heads.clone()
    result[..., index, :, :] = 0
    return result


def ablation_by_a_mask(heads, index):
    H = heads.size(-3)
    if index < 0 or index >= H:
        raise IndexError
    keep = torch.ones(H, 1, 1, dtype=heads.dtype)
    keep[index] = 0
    return heads * keep


def ablation_by_choosing(heads, index):
    numbers = torch.arange(heads.shape[-3])
    if index not in numbers:
        raise IndexError
    return torch.where((numbers == index)[:, None, None], 0, heads)


def ablation_head_by_head(heads, index):
    parts = list(heads.unbind(-3))
    if index < 0:
        raise IndexError
    parts[index] = torch.zeros_like(parts[index])  # a list is as strict at its upper end
    return torch.stack(parts, dim=-3)


def ablation_by_index_fill(heads, index):
    if index not in range(heads.shape[-3]):
        raise IndexError(index)
    return heads.index_fill(-3, torch.tensor([index]), 0)


RIGHT_ANSWERS = {
    "11.previous_token_score": (
        previous_by_diagonal,
        previous_in_a_loop,
        previous_by_index,
        previous_by_a_mask,
        previous_in_float64,
        previous_with_numpy_inside,
    ),
    "11.sink_score": (
        sink_of_a_column,
        sink_by_subtraction,
        sink_in_a_loop,
        sink_by_a_product,
    ),
    "11.induction_score": (
        induction_of_cut_rows,
        induction_of_a_cut_diagonal,
        induction_in_a_loop,
        induction_by_index,
        induction_by_gathering,
    ),
    "11.antecedent_preference": (
        preference_with_a_safe_divisor,
        preference_without_nan,
        preference_candidate_by_candidate,
        preference_by_one_hot,
        preference_by_scaling_first,
    ),
    "11.ablate_head": (
        ablation_of_a_copy,
        ablation_by_a_mask,
        ablation_by_choosing,
        ablation_head_by_head,
        ablation_by_index_fill,
    ),
}
