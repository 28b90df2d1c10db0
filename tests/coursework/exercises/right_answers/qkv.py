"""Right answers to the exercises of chapter 03."""

import math

import numpy as np
import torch

# project_qkv ---------------------------------------------------------------------------------


def projections_by_matmul(x, w_q, w_k, w_v):
    return x @ w_q, x @ w_k, x @ w_v


def projections_by_einsum(x, w_q, w_k, w_v):
    return [np.einsum("...td,dk->...tk", x, w) for w in (w_q, w_k, w_v)]  # a list for a tuple


def projections_in_one_product(x, w_q, w_k, w_v):
    everything = x @ np.concatenate([w_q, w_k, w_v], axis=1)
    K = w_q.shape[1]
    return tuple(np.split(everything, [K, 2 * K], axis=-1))


def projections_row_by_row(x, w_q, w_k, w_v):
    def project(w):
        result = np.zeros((*x.shape[:-1], w.shape[1]))
        for at in np.ndindex(x.shape[:-1]):
            for j in range(w.shape[1]):
                result[at][j] = math.fsum(
                    float(a) * float(b) for a, b in zip(x[at], w[:, j], strict=True)
                )
        return result

    return project(w_q), project(w_k), project(w_v)


def projections_by_tensordot(x, w_q, w_k, w_v):
    return tuple(np.tensordot(x, w, axes=1) for w in (w_q, w_k, w_v))


# attention_scores ----------------------------------------------------------------------------


def scores_by_matmul(q, k):
    return q @ np.swapaxes(k, -1, -2)


def scores_by_einsum(q, k):
    return np.einsum("...td,...sd->...ts", q, k)


def scores_by_broadcasting(q, k):
    return np.sum(q[..., :, None, :] * k[..., None, :, :], axis=-1)


def scores_pair_by_pair(q, k):
    scores = np.empty((*q.shape[:-1], k.shape[-2]))
    for *at, i, j in np.ndindex(scores.shape):
        scores[(*at, i, j)] = np.dot(q[(*at, i)], k[(*at, j)])
    return scores


def scores_turned_round_twice(q, k):
    return np.swapaxes(np.matmul(k, np.moveaxis(q, -1, -2)), -1, -2)


def scores_in_float64(q, k):
    return np.matmul(q.astype(float), k.astype(float).mT)


# softmax -------------------------------------------------------------------------------------


def softmax_with_keepdims(x, axis=-1):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def softmax_by_logarithms(x, axis=-1):
    x = x - x.max(axis=axis, keepdims=True)
    return np.exp(x - np.log(np.exp(x).sum(axis=axis, keepdims=True)))


def softmax_by_logaddexp(x, axis=-1):
    return np.exp(x - np.logaddexp.reduce(x, axis=axis, keepdims=True))


def softmax_with_the_axis_moved(x, axis=-1):
    moved = np.moveaxis(x, axis, -1)
    e = np.exp(moved - moved.max(-1)[..., None])
    return np.moveaxis(e / e.sum(-1)[..., None], -1, axis)


def softmax_in_float64_inside(x, axis=-1):
    wide = np.array(x, dtype=np.float64)  # a copy: what follows happens in place
    wide -= np.expand_dims(wide.max(axis), axis)
    np.exp(wide, out=wide)
    wide /= np.expand_dims(wide.sum(axis), axis)
    return wide.astype(x.dtype if x.dtype.kind == "f" else np.float64)


def softmax_row_by_row(x, axis=-1):
    def row(scores):
        e = [math.exp(s - max(scores)) for s in scores.tolist()]
        return np.array(e) / math.fsum(e)

    dtype = np.float32 if x.dtype == np.float32 else np.float64
    return np.apply_along_axis(row, axis, x).astype(dtype)


def softmax_of_torch(x, axis=-1):
    x = torch.from_numpy(np.array(x if x.dtype.kind == "f" else x.astype(float)))
    return torch.softmax(x, dim=axis).numpy()


# attention -----------------------------------------------------------------------------------


def attention_with_matmul(q, k, v):
    weights = softmax_with_keepdims(q @ np.swapaxes(k, -1, -2))
    return weights @ v, weights


def attention_by_einsum(q, k, v):
    scores = np.einsum("...td,...sd->...ts", q, k)
    weights = softmax_by_logaddexp(scores)
    return [np.einsum("...ts,...sd->...td", weights, v), weights]


def attention_query_by_query(q, k, v):
    z = np.zeros((*q.shape[:-1], v.shape[-1]))
    weights = np.zeros((*q.shape[:-1], k.shape[-2]))
    for at in np.ndindex(q.shape[:-1]):
        keys, values = k[at[:-1]], v[at[:-1]]
        weights[at] = softmax_with_keepdims(keys @ q[at])
        for j, value in enumerate(values):
            z[at] = z[at] + weights[at][j] * value
    return z, weights


def attention_with_one_division_at_the_end(q, k, v):
    scores = q @ k.swapaxes(-1, -2)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = e.sum(axis=-1, keepdims=True)
    return (e @ v) / total, e / total


def attention_with_torch_inside(q, k, v):
    q, k, v = (torch.from_numpy(np.array(a, dtype=np.float64)) for a in (q, k, v))
    weights = torch.softmax(q @ k.mT, dim=-1)
    return (weights @ v).numpy(), weights.numpy()


# soft_lookup ---------------------------------------------------------------------------------


def lookup_in_one_line(query, keys, values, temperature):
    return softmax_with_keepdims(keys @ query / temperature) @ values


def lookup_by_einsum(query, keys, values, temperature):
    scores = np.einsum("sd,d->s", keys, query) / temperature
    return np.einsum("s,sv->v", softmax_by_logaddexp(scores), values)


def lookup_entry_by_entry(query, keys, values, temperature):
    scores = [sum(float(a) * float(b) for a, b in zip(query, key, strict=True)) for key in keys]
    e = [math.exp((score - max(scores)) / temperature) for score in scores]
    result = np.zeros(values.shape[1])
    for weight, value in zip(e, values, strict=True):
        result += weight / sum(e) * value
    return result


def lookup_with_the_query_cooled(query, keys, values, temperature):
    scores = np.dot(keys, np.asarray(query, dtype=float) / temperature)
    return np.average(values, axis=0, weights=np.exp(scores - scores.max()))


def lookup_as_attention_of_one(query, keys, values, temperature):
    z, _ = attention_with_matmul(query[None] / temperature, keys, values)
    return np.ravel(z)


RIGHT_ANSWERS = {
    "03.project_qkv": [
        projections_by_matmul,
        projections_by_einsum,
        projections_in_one_product,
        projections_row_by_row,
        projections_by_tensordot,
    ],
    "03.attention_scores": [
        scores_by_matmul,
        scores_by_einsum,
        scores_by_broadcasting,
        scores_pair_by_pair,
        scores_turned_round_twice,
        scores_in_float64,
    ],
    "03.softmax": [
        softmax_with_keepdims,
        softmax_by_logarithms,
        softmax_by_logaddexp,
        softmax_with_the_axis_moved,
        softmax_in_float64_inside,
        softmax_row_by_row,
        softmax_of_torch,
    ],
    "03.attention": [
        attention_with_matmul,
        attention_by_einsum,
        attention_query_by_query,
        attention_with_one_division_at_the_end,
        attention_with_torch_inside,
    ],
    "03.soft_lookup": [
        lookup_in_one_line,
        lookup_by_einsum,
        lookup_entry_by_entry,
        lookup_with_the_query_cooled,
        lookup_as_attention_of_one,
    ],
}
