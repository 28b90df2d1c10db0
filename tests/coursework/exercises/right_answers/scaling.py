"""Right answers to the exercises of chapter 04."""

import math
import statistics
from collections import namedtuple

import numpy as np
import torch


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


# score_variance ------------------------------------------------------------------------------


def variance_by_einsum(d_k, n_pairs, rng):
    k = rng.standard_normal((n_pairs, d_k))
    q = rng.standard_normal((n_pairs, d_k))
    return np.var(np.einsum("nd,nd->n", q, k))


def variance_pair_by_pair(d_k, n_pairs, rng):
    scores = []
    for _ in range(n_pairs):
        q = rng.standard_normal(d_k)
        k = rng.standard_normal(d_k)
        scores.append(q @ k)
    return statistics.pvariance(scores)


def variance_of_moments(d_k, n_pairs, rng):
    pairs = rng.normal(size=(2, n_pairs, d_k))
    scores = np.prod(pairs, axis=0).sum(axis=-1)
    return (scores**2).mean() - scores.mean() ** 2


def variance_in_float32(d_k, n_pairs, rng):
    q = rng.standard_normal((d_k, n_pairs), dtype=np.float32)
    k = rng.standard_normal((d_k, n_pairs), dtype=np.float32)
    return np.array(np.var((q * k).sum(axis=0)))  # a 0-d array


def variance_by_welford(d_k, n_pairs, rng):
    mean = total = 0.0
    for n in range(1, n_pairs + 1):
        score = float(np.dot(rng.standard_normal(d_k), rng.standard_normal(d_k)))
        step = score - mean
        mean += step / n
        total += step * (score - mean)
    return total / n_pairs


# scaled_dot_product_attention ----------------------------------------------------------------


def attention_with_matmul(q, k, v):
    weights = softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    return weights @ v, weights


def attention_by_einsum(q, k, v):
    scores = np.einsum("...td,...sd->...ts", q, k) * k.shape[-1] ** -0.5
    scores = scores - scores.max(-1)[..., None]
    weights = np.exp(scores) / np.exp(scores).sum(-1)[..., None]
    return [np.einsum("...ts,...sd->...td", weights, v), weights]  # a list for a tuple


def attention_in_loops(q, k, v):
    weights = np.zeros((*q.shape[:-1], k.shape[-2]))
    z = np.zeros((*q.shape[:-1], v.shape[-1]))
    for at in np.ndindex(q.shape[:-1]):
        keys, values = k[at[:-1]], v[at[:-1]]
        scores = [sum(map(float, q[at] * key)) / math.sqrt(len(key)) for key in keys]
        largest = max(scores)
        e = [math.exp(score - largest) for score in scores]
        for j, weight in enumerate(e):
            weights[at][j] = weight / sum(e)
            z[at] += weights[at][j] * values[j]
    return z, weights


def attention_by_logarithms(q, k, v):
    q = q / q.shape[-1] ** 0.25
    k = k / k.shape[-1] ** 0.25
    scores = np.matmul(q, k.swapaxes(-1, -2))
    log_sum = np.logaddexp.reduce(scores, axis=-1, keepdims=True)
    weights = np.exp(scores - log_sum)
    return np.matmul(weights, v), weights


def attention_with_torch_inside(q, k, v):
    q, k, v = (torch.from_numpy(np.array(a, dtype=np.float64)) for a in (q, k, v))
    weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
    return (weights @ v).numpy(), weights.numpy()


def attention_without_a_maximum(q, k, v):
    """1 / Σ exp(s_j - s_i), for which the differences of the keys are enough."""
    k = k.astype(float)
    differences = k[..., None, :, :] - k[..., :, None, :]  # (..., S, S, d_k): [i, j] = k_j - k_i
    exponents = np.einsum("...td,...ijd->...tij", q, differences) / np.sqrt(q.shape[-1])
    weights = np.exp(-np.logaddexp.reduce(exponents, axis=-1))
    return weights @ v, weights


def attention_in_the_floats_given(q, k, v):
    if q.dtype == np.float32:
        weights = softmax(q @ k.swapaxes(-1, -2) / np.float32(math.sqrt(q.shape[-1])))
        assert weights.dtype == np.float32
        return weights @ v, weights
    return attention_with_matmul(q, k, v)


Attention = namedtuple("Attention", "z weights")


def attention_as_a_named_tuple(q, k, v):
    return Attention(*attention_with_matmul(q, k, v))


# softmax_jacobian ----------------------------------------------------------------------------


def jacobian_of_diag_and_outer(p):
    return np.diag(p) - np.outer(p, p)


def jacobian_in_loops(p):
    n = len(p)
    return np.array([[p[i] * ((i == j) - p[j]) for j in range(n)] for i in range(n)])


def jacobian_by_broadcasting(p):
    return p[:, None] * (np.eye(p.size) - p)


def jacobian_by_einsum(p):
    p = p.astype(np.float64)
    J = -np.einsum("i,j->ij", p, p)
    J[np.diag_indices_from(J)] = p * (1 - p)
    return J


def jacobian_without_its_own_score(p):
    J = -np.multiply.outer(p, p)
    np.fill_diagonal(J, 0)
    return J - np.diag(J.sum(axis=1))


# row_entropy ---------------------------------------------------------------------------------


def entropy_with_where(weights):
    logs = np.log(np.where(weights > 0, weights, 1.0))
    return -np.sum(weights * logs, axis=-1)


def entropy_of_masked_logs(weights):
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -np.einsum("...s,...s->...", weights, logs)


def entropy_with_warnings(weights):
    return np.nansum(-weights * np.log(weights), axis=-1)


def entropy_in_loops(weights):
    if weights.ndim == 1:
        return -math.fsum(float(p) * math.log(p) for p in weights if p > 0)
    return np.array([entropy_in_loops(row) for row in weights])


def entropy_in_bits_first(weights):
    wide = weights.astype(np.float64)
    bits = np.where(wide == 0, 0.0, wide * np.log2(wide + (wide == 0)))
    return np.log(2) * -bits.sum(-1)


def entropy_with_a_tiny_number(weights):
    return -(weights * np.log(np.maximum(weights, 1e-300 if weights.itemsize == 8 else 1e-30))).sum(
        axis=weights.ndim - 1
    )


# gradient_through_softmax --------------------------------------------------------------------


def gradient_with_the_weighted_mean(scores, upstream):
    p = softmax(scores)
    return p * (upstream - np.sum(p * upstream, axis=-1, keepdims=True))


def gradient_with_the_jacobian(scores, upstream):
    p = softmax(scores)
    J = np.einsum("...i,ij->...ij", p, np.eye(p.shape[-1])) - p[..., :, None] * p[..., None, :]
    return np.squeeze(J @ upstream[..., None], axis=-1)


def gradient_row_by_row(scores, upstream):
    result = np.empty(scores.shape)
    for at in np.ndindex(scores.shape[:-1]):
        e = [math.exp(x - max(scores[at])) for x in scores[at].tolist()]
        p = np.array(e) / sum(e)
        result[at] = (np.diag(p) - np.outer(p, p)) @ upstream[at]
    return result


def gradient_of_pairs(scores, upstream):
    p = softmax(scores)
    difference = upstream[..., :, None] - upstream[..., None, :]
    return p * (p[..., None, :] * difference).sum(axis=-1)


def gradient_by_automatic_differentiation(scores, upstream):
    x = torch.tensor(np.array(scores, dtype=np.float64), requires_grad=True)
    torch.softmax(x, dim=-1).backward(torch.from_numpy(np.array(upstream, dtype=np.float64)))
    return x.grad.numpy()


RIGHT_ANSWERS = {
    "04.score_variance": [
        variance_by_einsum,
        variance_pair_by_pair,
        variance_of_moments,
        variance_in_float32,
        variance_by_welford,
    ],
    "04.scaled_dot_product_attention": [
        attention_with_matmul,
        attention_by_einsum,
        attention_in_loops,
        attention_by_logarithms,
        attention_with_torch_inside,
        attention_without_a_maximum,
        attention_in_the_floats_given,
        attention_as_a_named_tuple,
    ],
    "04.softmax_jacobian": [
        jacobian_of_diag_and_outer,
        jacobian_in_loops,
        jacobian_by_broadcasting,
        jacobian_by_einsum,
        jacobian_without_its_own_score,
    ],
    "04.row_entropy": [
        entropy_with_where,
        entropy_of_masked_logs,
        entropy_with_warnings,
        entropy_in_loops,
        entropy_in_bits_first,
        entropy_with_a_tiny_number,
    ],
    "04.gradient_through_softmax": [
        gradient_with_the_weighted_mean,
        gradient_with_the_jacobian,
        gradient_row_by_row,
        gradient_of_pairs,
        gradient_by_automatic_differentiation,
    ],
}
