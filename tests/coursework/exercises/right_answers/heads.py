"""Right answers to the exercises of chapter 06."""

import math

import numpy as np
import torch


def softmax(scores, mask=None):
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    largest = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    total = np.sum(e, axis=-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


# split_heads ----------------------------------------------------------------------------------


def split_by_reshape(x, n_heads):
    *lead, T, D = x.shape
    if D % n_heads:
        raise ValueError(f"{n_heads} heads do not divide {D} columns")
    return np.swapaxes(x.reshape(*lead, T, n_heads, D // n_heads), -2, -3)


def split_by_slices(x, n_heads):
    K, rest = divmod(x.shape[-1], n_heads)
    if rest:
        raise ValueError("columns are left over")
    return np.stack([x[..., h * K : (h + 1) * K] for h in range(n_heads)], axis=-3)


def split_by_numpy(x, n_heads):
    """np.split raises the ValueError by itself."""
    return np.stack(np.split(x, n_heads, axis=-1), axis=-3)


def split_by_index(x, n_heads):
    D = x.shape[-1]
    if D % n_heads != 0:
        raise ValueError
    columns = np.arange(D).reshape(n_heads, 1, -1)
    tokens = np.arange(x.shape[-2])[:, None]
    return x[..., tokens, columns]


def split_in_loops(x, n_heads):
    *lead, T, D = x.shape
    if D % n_heads:
        raise ValueError("no")
    K = D // n_heads
    out = np.empty((*lead, n_heads, T, K), dtype=x.dtype)
    for t in range(T):
        for d in range(D):
            out[..., d // K, t, d % K] = x[..., t, d]
    return out


def split_by_torch(x, n_heads):
    try:
        parts = torch.from_numpy(np.ascontiguousarray(x)).unflatten(-1, (n_heads, -1))
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return parts.transpose(-2, -3).numpy()


# merge_heads ----------------------------------------------------------------------------------


def merge_by_reshape(x):
    *lead, H, T, K = x.shape
    return np.swapaxes(x, -2, -3).reshape(*lead, T, H * K)


def merge_by_concatenation(x):
    return np.concatenate([x[..., h, :, :] for h in range(x.shape[-3])], axis=-1)


def merge_by_einsum(x):
    moved = np.einsum("...htk->...thk", x)
    return moved.reshape(*moved.shape[:-2], -1)


def merge_in_place(x):
    *lead, H, T, K = x.shape
    out = np.zeros((*lead, T, H * K), dtype=x.dtype)
    for h in range(H):
        out[..., h * K : (h + 1) * K] = x[..., h, :, :]
    return out


# multi_head_attention -------------------------------------------------------------------------


def heads_with_split_and_merge(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    q, k, v = (split_by_reshape(x @ w, n_heads) for w in (w_q, w_k, w_v))
    weights = softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), mask)
    return merge_by_reshape(weights @ v) @ w_o


def heads_by_einsum(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    D = x.shape[-1]
    if D % n_heads:
        raise ValueError("heads do not divide")
    K = D // n_heads
    q, k, v = (np.einsum("...td,dhk->...htk", x, w.reshape(D, n_heads, K)) for w in (w_q, w_k, w_v))
    weights = softmax(np.einsum("...htk,...hsk->...hts", q, k) * K**-0.5, mask)
    return np.einsum("...hts,...hsk,hkd->...td", weights, v, w_o.reshape(n_heads, K, D))


def heads_one_after_another(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    """A sum over heads, each through its own rows of W_O: nothing is put side by side."""
    D = x.shape[-1]
    if D % n_heads:
        raise ValueError("heads do not divide")
    K = D // n_heads
    z = np.zeros(x.shape)
    for h in range(n_heads):
        own = slice(h * K, (h + 1) * K)
        q, k, v = x @ w_q[:, own], x @ w_k[:, own], x @ w_v[:, own]
        one = mask
        if mask is not None and mask.ndim > 2:
            one = mask[..., min(h, mask.shape[-3] - 1), :, :]
        z += softmax(q @ k.swapaxes(-1, -2) / math.sqrt(K), one) @ v @ w_o[own]
    return z


def heads_with_torch_inside(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    D = x.shape[-1]
    if D % n_heads:
        raise ValueError("heads do not divide")
    x, *matrices = (torch.from_numpy(a.astype(np.float64)) for a in (x, w_q, w_k, w_v, w_o))
    q, k, v = ((x @ w).unflatten(-1, (n_heads, -1)).transpose(-2, -3) for w in matrices[:3])
    scores = q @ k.mT / math.sqrt(D // n_heads)
    if mask is not None:
        scores = scores.masked_fill(~torch.from_numpy(mask), -torch.inf)
    weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
    return ((weights @ v).transpose(-2, -3).flatten(-2) @ matrices[3]).numpy()


def heads_with_an_additive_mask(x, w_q, w_k, w_v, w_o, n_heads, mask=None):
    q, k, v = (split_by_slices(np.matmul(x, w), n_heads) for w in (w_q, w_k, w_v))
    scores = np.matmul(q / math.sqrt(q.shape[-1]), np.moveaxis(k, -1, -2))
    if mask is not None:
        scores = scores + np.where(mask, 0.0, -np.inf)
    with np.errstate(invalid="ignore"):
        log = scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    weights = np.where(np.isnan(log), 0, np.exp(log))
    return np.matmul(merge_by_concatenation(np.matmul(weights, v)), w_o)


# repeat_kv ------------------------------------------------------------------------------------


def repeat_by_repeat(x, n_rep):
    return np.repeat(x, n_rep, axis=-3)


def repeat_by_index(x, n_rep):
    G = x.shape[-3]
    return x[..., np.arange(G * n_rep) // n_rep, :, :]


def repeat_by_broadcasting(x, n_rep):
    *lead, G, S, K = x.shape
    wide = np.broadcast_to(x[..., None, :, :], (*lead, G, n_rep, S, K))
    return wide.reshape(*lead, G * n_rep, S, K)


def repeat_by_torch(x, n_rep):
    return torch.from_numpy(x).repeat_interleave(n_rep, dim=-3).numpy()


# grouped_query_attention ----------------------------------------------------------------------


def groups_with_repetition(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    if n_heads % n_kv_heads:
        raise ValueError("groups are uneven")
    q = split_by_reshape(x @ w_q, n_heads)
    k, v = (
        repeat_by_repeat(split_by_reshape(x @ w, n_kv_heads), n_heads // n_kv_heads)
        for w in (w_k, w_v)
    )
    weights = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), mask)
    return merge_by_reshape(weights @ v) @ w_o


def groups_without_copies(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    """Queries get an axis for their group; keys and values broadcast."""
    if n_heads % n_kv_heads:
        raise ValueError("groups are uneven")
    *lead, T, D = x.shape
    G, R, K = n_kv_heads, n_heads // n_kv_heads, D // n_heads
    q = np.moveaxis((x @ w_q).reshape(*lead, T, G, R, K), -4, -2)  # (..., G, R, T, K)
    k, v = (
        np.swapaxes((x @ w).reshape(*lead, T, G, K), -2, -3)[..., None, :, :] for w in (w_k, w_v)
    )
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(K)  # (..., G, R, T, T)
    if mask is not None:
        mask = np.broadcast_to(mask, (*lead, n_heads, T, T)).reshape(*lead, G, R, T, T)
    z = softmax(scores, mask) @ v
    return np.moveaxis(z, -2, -4).reshape(*lead, T, D) @ w_o


def groups_by_wider_matrices(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    """Sharing keys is the same as having the columns of W_K several times."""
    if n_heads % n_kv_heads != 0:
        raise ValueError("groups are uneven")
    K = x.shape[-1] // n_heads
    head = np.arange(n_heads)[:, None] // (n_heads // n_kv_heads)
    columns = (head * K + np.arange(K)).ravel()
    return heads_by_einsum(x, w_q, w_k[:, columns], w_v[:, columns], w_o, n_heads, mask)


def groups_head_by_head(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads, mask=None):
    if n_heads % n_kv_heads:
        raise ValueError("groups are uneven")
    D = x.shape[-1]
    K = D // n_heads
    heads = []
    for h in range(n_heads):
        g = h // (n_heads // n_kv_heads)
        shared = slice(g * K, (g + 1) * K)
        q, k, v = x @ w_q[:, h * K : (h + 1) * K], x @ w_k[:, shared], x @ w_v[:, shared]
        one = mask
        if mask is not None and mask.ndim > 2:
            one = mask[..., h if mask.shape[-3] > 1 else 0, :, :]
        heads.append(softmax(q @ k.swapaxes(-1, -2) / np.sqrt(K), one) @ v)
    return np.concatenate(heads, axis=-1) @ w_o


# attention_parameters -------------------------------------------------------------------------


def parameters_by_formula(d_model, n_heads, n_kv_heads=None):
    G = n_heads if n_kv_heads is None else n_kv_heads
    return 2 * d_model * d_model + 2 * d_model * G * (d_model // n_heads)


def parameters_by_shapes(d_model, n_heads, n_kv_heads=None):
    K = d_model // n_heads
    kv = (n_kv_heads or n_heads) * K
    shapes = [(d_model, d_model), (d_model, kv), (d_model, kv), (n_heads * K, d_model)]
    return sum(math.prod(shape) for shape in shapes)


def parameters_head_by_head(d_model, n_heads, n_kv_heads=None):
    one = d_model * (d_model // n_heads)
    return 2 * n_heads * one + 2 * (n_kv_heads or n_heads) * one


def parameters_as_a_share(d_model, n_heads, n_kv_heads=None):
    if n_kv_heads is None:
        n_kv_heads = n_heads
    return 2 * d_model**2 * (n_heads + n_kv_heads) // n_heads


RIGHT_ANSWERS = {
    "06.split_heads": (
        split_by_reshape,
        split_by_slices,
        split_by_numpy,
        split_by_index,
        split_in_loops,
        split_by_torch,
    ),
    "06.merge_heads": (merge_by_reshape, merge_by_concatenation, merge_by_einsum, merge_in_place),
    "06.multi_head_attention": (
        heads_with_split_and_merge,
        heads_by_einsum,
        heads_one_after_another,
        heads_with_torch_inside,
        heads_with_an_additive_mask,
    ),
    "06.repeat_kv": (
        repeat_by_repeat,
        repeat_by_index,
        repeat_by_broadcasting,
        repeat_by_torch,
    ),
    "06.grouped_query_attention": (
        groups_with_repetition,
        groups_without_copies,
        groups_by_wider_matrices,
        groups_head_by_head,
    ),
    "06.attention_parameters": (
        parameters_by_formula,
        parameters_by_shapes,
        parameters_head_by_head,
        parameters_as_a_share,
    ),
}
