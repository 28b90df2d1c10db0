"""Right answers to the exercises of chapter 05."""

import numpy as np
import torch

# causal_mask ---------------------------------------------------------------------------------


def mask_by_positions(T, S=None):
    S = S or T
    return np.arange(S)[None, :] <= np.arange(S - T, S)[:, None]


def mask_by_tril(T, S=None):
    S = T if S is None else S
    return np.tril(np.ones((T, S), dtype=bool), k=S - T)


def mask_entry_by_entry(T, S=None):
    S = T if S is None else S
    return np.array([[j <= i + S - T for j in range(S)] for i in range(T)])


def mask_without_the_upper_triangle(T, S=None):
    S = T if S is None else S
    return np.logical_not(np.triu(np.ones((T, S)), 1 + S - T))


def mask_from_a_larger_one(T, S=None):
    S = T if S is None else S
    n = max(T, S)
    square = np.greater.outer(np.arange(1, n + 1), np.arange(n))
    return (
        square[n - T :, :S]
        if S >= T
        else np.vstack([np.zeros((T - S, S), dtype=bool), square[:S, :S]])
    )


# masked_softmax ------------------------------------------------------------------------------


def softmax_with_minus_infinity(scores, mask):
    scores = np.where(mask, scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    e = np.exp(scores - largest)
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def softmax_row_by_row(scores, mask):
    dtype = scores.dtype if scores.dtype.kind == "f" else float
    weights = np.zeros(scores.shape, dtype=dtype)
    mask = np.broadcast_to(mask, scores.shape)
    for row in np.ndindex(scores.shape[:-1]):
        allowed = scores[row][mask[row]]
        if allowed.size:
            e = np.exp(allowed - allowed.max())
            weights[row][mask[row]] = e / e.sum()
    return weights


def softmax_with_warnings(scores, mask):
    """0 / 0 on the way, which NumPy complains about, and NaN mended at the end."""
    scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.nan_to_num(e / e.sum(axis=-1, keepdims=True), nan=0.0)


def softmax_by_logarithms(scores, mask):
    scores = np.where(mask, scores, -np.inf)
    total = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    return np.exp(scores - np.where(np.isneginf(total), 0, total)).astype(scores.dtype)


def softmax_with_where_arguments(scores, mask):
    single = scores.dtype == np.float32
    scores = scores.astype(float)
    mask = np.broadcast_to(mask, scores.shape)
    largest = np.max(scores, axis=-1, keepdims=True, where=mask, initial=-np.inf)
    shifted = np.subtract(scores, largest, where=mask, out=np.full(scores.shape, -np.inf))
    e = np.exp(shifted) * mask
    total = e.sum(axis=-1, keepdims=True)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return weights.astype(np.float32) if single else weights


def softmax_with_torch(scores, mask):
    s = torch.from_numpy(scores)
    s = s if s.is_floating_point() else s.double()
    s = s.masked_fill(~torch.from_numpy(mask), -torch.inf)
    return torch.softmax(s, dim=-1).nan_to_num(0.0).numpy()


def softmax_of_a_copy(scores, mask):
    s = np.array(
        scores, dtype=np.result_type(scores, np.float32 if scores.dtype == np.float32 else float)
    )
    s[~np.broadcast_to(mask, s.shape)] = -np.inf
    empty = ~np.any(np.broadcast_to(mask, s.shape), axis=-1)
    s[empty] = 0
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    s[empty] = 0
    return s


# causal_attention ----------------------------------------------------------------------------


def attention_in_steps(q, k, v):
    T, S = q.shape[-2], k.shape[-2]
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = softmax_with_minus_infinity(scores, mask_by_tril(T, S))
    return weights @ v, weights


def attention_with_einsum(q, k, v):
    scores = np.einsum("...tk,...sk->...ts", q, k) * q.shape[-1] ** -0.5
    mask = mask_by_positions(q.shape[-2], k.shape[-2])
    weights = softmax_row_by_row(scores, mask)
    return np.einsum("...ts,...sd->...td", weights, v), weights


def attention_query_by_query(q, k, v):
    T, S, K = q.shape[-2], k.shape[-2], q.shape[-1]
    z = np.zeros((*q.shape[:-1], v.shape[-1]))
    weights = np.zeros((*q.shape[:-1], S))
    for i in range(T):
        seen = max(S - T + i + 1, 0)
        if seen:
            scores = (k[..., :seen, :] @ q[..., i, :, None])[..., 0] / K**0.5
            e = np.exp(scores - scores.max(-1, keepdims=True))
            weights[..., i, :seen] = e / e.sum(-1, keepdims=True)
            z[..., i, :] = (weights[..., i, None, :seen] @ v[..., :seen, :])[..., 0, :]
    return z, weights


def attention_that_returns_a_list(q, k, v):
    scores = q / np.sqrt(k.shape[-1]) @ np.moveaxis(k, -1, -2)
    additive = np.where(mask_by_tril(q.shape[-2], k.shape[-2]), 0.0, -np.inf)
    scores = scores + additive
    weights = np.nan_to_num(
        np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)), nan=0.0
    )
    return [weights @ v, weights]


# leaks_future --------------------------------------------------------------------------------


def leak_by_random_tokens(f, x, t):
    changed = x.copy()
    changed[..., t + 1 :, :] = np.random.default_rng(1).normal(size=x[..., t + 1 :, :].shape)
    return bool(np.any(f(x)[..., : t + 1, :] != f(changed)[..., : t + 1, :]))


def leak_by_noise(f, x, t):
    before = f(x)
    for seed in range(3):
        noise = np.random.default_rng(seed).uniform(-2, 2, x.shape)
        noise[..., : t + 1, :] = 0
        after = f(x + noise)
        if not np.allclose(after[..., : t + 1, :], before[..., : t + 1, :], rtol=0, atol=1e-12):
            return True
    return False


def leak_token_by_token(f, x, t):
    rng = np.random.default_rng(5)
    before = f(x.copy())[..., : t + 1, :]
    return np.any(
        [
            np.abs(f(_with_token(x, s, rng))[..., : t + 1, :] - before).max() > 1e-13
            for s in range(t + 1, x.shape[-2])
        ]
    )


def _with_token(x, s, rng):
    changed = np.array(x)
    changed[..., s, :] += rng.standard_normal(changed[..., s, :].shape)
    return changed


def leak_between_two_futures(f, x, t):
    """Two random futures compared with each other; x's own is not asked for."""
    rng = np.random.default_rng(7)
    outputs = []
    for _ in range(2):
        future = rng.standard_normal(x[..., t + 1 :, :].shape)
        outputs.append(f(np.concatenate([x[..., : t + 1, :], future], axis=-2))[..., : t + 1, :])
    return not np.array_equal(*outputs)


# padding_mask --------------------------------------------------------------------------------


def padding_by_comparing(lengths, S):
    if np.any((lengths < 0) | (lengths > S)):
        raise ValueError
    return np.arange(S) < lengths[:, None]


def padding_row_by_row(lengths, S):
    rows = []
    for length in lengths.tolist():
        if length not in range(S + 1):
            raise ValueError(f"{length} is not within 0 … {S}")
        rows.append([True] * length + [False] * (S - length))
    return np.array(rows, dtype=bool).reshape(len(rows), S)


def padding_by_filling(lengths, S):
    class LengthError(ValueError):
        pass

    mask = np.zeros((len(lengths), S), dtype=bool)
    for row, length in zip(mask, lengths, strict=True):
        if length < 0 or length > S:
            raise LengthError("a length that cannot be")
        row[:length] = True
    return mask


def padding_by_counting_down(lengths, S):
    if lengths.size and (lengths.min() < 0 or lengths.max() > S):
        raise ValueError("length")
    return np.subtract.outer(lengths, np.arange(S)) > 0


# padded_causal_mask --------------------------------------------------------------------------


def padded_by_and(lengths, T):
    return padding_by_comparing(lengths, T)[:, None, None, :] & mask_by_tril(T)


def padded_entry_by_entry(lengths, T):
    mask = np.zeros((len(lengths), 1, T, T), dtype=bool)
    for b, i, j in np.ndindex(len(lengths), T, T):
        mask[b, 0, i, j] = j <= i and j < lengths[b]
    return mask


def padded_by_a_product(lengths, T):
    real = (np.arange(T)[None] < lengths[:, None]).astype(float)
    return np.einsum("bj,ij->bij", real, np.tri(T))[:, np.newaxis] > 0


def padded_by_the_smaller_limit(lengths, T):
    """Keys below the smaller one of the two limits."""
    limit = np.minimum(np.arange(1, T + 1)[None, :], lengths[:, None])  # (B, T)
    return np.arange(T) < limit[:, None, :, None]


# next_token_pairs ----------------------------------------------------------------------------


def pairs_by_stacking(ids, context):
    if len(ids) <= context:
        raise ValueError("too short")
    windows = np.stack([ids[i : i + context + 1] for i in range(len(ids) - context)])
    return windows[:, :-1], windows[:, 1:]


def pairs_by_indices(ids, context):
    n = len(ids) - context
    if n < 1:
        raise ValueError(n)
    at = np.add.outer(np.arange(n), np.arange(context))
    return ids[at], ids[at + 1]


def pairs_by_sliding_windows(ids, context):
    windows = np.lib.stride_tricks.sliding_window_view(ids, context + 1)  # raises ValueError
    return windows[:, :-1], windows[:, 1:]


def pairs_from_lists(ids, context):
    ids = [int(i) for i in ids]
    if not ids[context:]:
        raise ValueError("no next token")
    starts = range(len(ids) - context)
    inputs = np.array([[ids[i + t] for t in range(context)] for i in starts], dtype=np.int32)
    targets = np.array([[ids[i + t + 1] for t in range(context)] for i in starts], dtype=np.int32)
    return inputs, targets


RIGHT_ANSWERS = {
    "05.causal_mask": [
        mask_by_positions,
        mask_by_tril,
        mask_entry_by_entry,
        mask_without_the_upper_triangle,
        mask_from_a_larger_one,
    ],
    "05.masked_softmax": [
        softmax_with_minus_infinity,
        softmax_row_by_row,
        softmax_with_warnings,
        softmax_by_logarithms,
        softmax_with_where_arguments,
        softmax_with_torch,
        softmax_of_a_copy,
    ],
    "05.causal_attention": [
        attention_in_steps,
        attention_with_einsum,
        attention_query_by_query,
        attention_that_returns_a_list,
    ],
    "05.leaks_future": [
        leak_by_random_tokens,
        leak_by_noise,
        leak_token_by_token,
        leak_between_two_futures,
    ],
    "05.padding_mask": [
        padding_by_comparing,
        padding_row_by_row,
        padding_by_filling,
        padding_by_counting_down,
    ],
    "05.padded_causal_mask": [
        padded_by_and,
        padded_entry_by_entry,
        padded_by_a_product,
        padded_by_the_smaller_limit,
    ],
    "05.next_token_pairs": [
        pairs_by_stacking,
        pairs_by_indices,
        pairs_by_sliding_windows,
        pairs_from_lists,
    ],
}
