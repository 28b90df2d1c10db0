"""Right answers to the exercises of chapter 10."""

import math
from functools import reduce

import numpy as np
import torch

# attention_cost ------------------------------------------------------------------------------


def cost_in_one_line(T, D, bytes_per_value=4):
    return 4 * T**2 * D, T**2 * bytes_per_value


def cost_product_by_product(T, D, bytes_per_value=4):
    def product(rows, inner, columns):
        return 2 * rows * inner * columns

    return [product(T, D, T) + product(T, T, D), T * T * bytes_per_value]  # a list for a tuple


def cost_of_arrays(T, D, bytes_per_value=4):
    """As NumPy counts: 64-bit integers are wide enough."""
    scores = np.int64(T) * np.int64(T)
    return scores * 4 * D, scores * bytes_per_value


def cost_row_by_row(T, D, bytes_per_value=4):
    row = sum((2 * D * T, 2 * T * D))
    return int(row * T), int(T * T * bytes_per_value)


# merge_softmax_blocks ------------------------------------------------------------------------


def merge_with_where(a, b):
    new = np.maximum(a[0], b[0])
    safe = np.where(np.isneginf(new), np.zeros_like(new), new)
    x, y = np.exp(a[0] - safe), np.exp(b[0] - safe)
    return new, x * a[1] + y * b[1], x[..., None] * a[2] + y[..., None] * b[2]


def merge_with_one_exponential(a, b):
    """exp of minus the distance of the maxima is the one factor that is not 1."""
    (m_a, l_a, o_a), (m_b, l_b, o_b) = a, b
    with np.errstate(invalid="ignore"):
        shrink = np.nan_to_num(np.exp(-np.abs(m_a - m_b)))
    a_leads = m_a >= m_b
    one = np.ones_like(shrink)
    x, y = np.where(a_leads, one, shrink), np.where(a_leads, shrink, one)
    output = x[..., np.newaxis] * o_a + y[..., np.newaxis] * o_b
    return [np.where(a_leads, m_a, m_b), x * l_a + y * l_b, output]


def merge_in_loops(a, b):
    largest, total, output = (np.zeros_like(x) for x in a)
    for at in np.ndindex(a[0].shape):
        m = max(a[0][at], b[0][at])
        largest[at] = m
        if m == -math.inf:
            continue
        for block in (a, b):
            factor = math.exp(block[0][at] - m)
            total[at] += factor * block[1][at]
            output[at] += factor * block[2][at]
    return largest, total, output


def merge_by_masks(a, b):
    new = np.fmax(a[0], b[0])
    there = np.isfinite(new)
    sums, outputs = np.zeros_like(a[1]), np.zeros_like(a[2])
    for m, part_sum, part_output in (a, b):
        scale = np.zeros_like(new)
        np.exp(np.subtract(m, new, where=there, out=scale), where=there, out=scale)
        sums += scale * part_sum
        outputs += np.expand_dims(scale, -1) * part_output
    return new, sums, outputs


def merge_in_torch(a, b):
    (m_a, l_a, o_a), (m_b, l_b, o_b) = (tuple(map(torch.from_numpy, block)) for block in (a, b))
    new = torch.maximum(m_a, m_b)
    safe = new.masked_fill(new == -torch.inf, 0)
    x, y = (m_a - safe).exp(), (m_b - safe).exp()
    output = x.unsqueeze(-1) * o_a + y.unsqueeze(-1) * o_b
    return new.numpy(), (x * l_a + y * l_b).numpy(), output.numpy()


# flash_attention -----------------------------------------------------------------------------


def flash_with_merges(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    q = q / np.sqrt(q.shape[-1])
    empty = np.full(q.shape[:-1], -np.inf), np.zeros(q.shape[:-1])
    state = (*empty, np.zeros((*q.shape[:-1], v.shape[-1])))
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        scores = q @ np.swapaxes(k[..., keys, :], -1, -2)
        if causal:
            places = start + np.arange(scores.shape[-1])
            scores = np.where(places > np.arange(T)[:, None] + S - T, -np.inf, scores)
        largest = scores.max(-1)
        e = np.exp(scores - np.where(np.isneginf(largest), 0, largest)[..., None])
        state = merge_with_where(state, (largest, e.sum(-1), e @ v[..., keys, :]))
    _, total, output = state
    return output / np.where(total > 0, total, 1)[..., None]


def flash_in_place(q, k, v, block_size, causal=False):
    """The same arrays, written over and over."""
    q, k, v = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    T, S = q.shape[-2], k.shape[-2]
    largest = np.full((*q.shape[:-1], 1), -np.inf)
    total, z = np.zeros_like(largest), np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, S, block_size):
        stop = min(start + block_size, S)
        scores = q @ k[..., start:stop, :].swapaxes(-1, -2)
        scores /= math.sqrt(q.shape[-1])
        if causal:
            shut = np.triu(np.ones((T, stop - start), dtype=bool), k=S - T + 1 - start)
            scores[..., shut] = -np.inf
        new = np.maximum(largest, scores.max(axis=-1, keepdims=True))
        new[np.isneginf(new)] = 0
        scores -= new
        np.exp(scores, out=scores)
        shrink = np.exp(largest - new)
        total *= shrink
        total += scores.sum(axis=-1, keepdims=True)
        z *= shrink
        z += scores @ v[..., start:stop, :]
        largest = np.where(total > 0, new, -np.inf)
    total[total == 0] = 1
    z /= total
    return z


def flash_in_two_passes(q, k, v, block_size, causal=False):
    """First the maxima of all blocks, then the sums: each block of scores is made twice."""
    T, S = q.shape[-2], k.shape[-2]
    blocks = [np.arange(s, min(s + block_size, S)) for s in range(0, S, block_size)]

    def scores(block):
        x = np.einsum("...td,...sd->...ts", q, k[..., block, :]) * q.shape[-1] ** -0.5
        return np.where(block <= np.arange(S - T, S)[:, None], x, -np.inf) if causal else x

    largest = reduce(np.maximum, (scores(block).max(-1) for block in blocks))[..., None]
    largest = np.where(largest == -np.inf, 0.0, largest)
    total = output = 0.0
    for block in blocks:
        e = np.exp(scores(block) - largest)
        total = total + e.sum(-1, keepdims=True)
        output = output + e @ v[..., block, :]
    return np.divide(output, total, out=np.zeros_like(output), where=total > 0)


def flash_in_tiles(q, k, v, block_size, causal=False):
    """Blocks of queries as well, each of which sees all keys, as the kernel does it."""
    T, S = q.shape[-2], k.shape[-2]
    z = np.zeros((*q.shape[:-1], v.shape[-1]))
    for top in range(0, T, 256):
        rows = slice(top, top + 256)
        tile_q = q[..., rows, :] / np.sqrt(q.shape[-1])
        logs = np.full((*tile_q.shape[:-1], 1), -np.inf)  # log of the running sum
        out = np.zeros((*tile_q.shape[:-1], v.shape[-1]))
        for start in range(0, S, block_size):
            columns = slice(start, start + block_size)
            x = tile_q @ np.moveaxis(k[..., columns, :], -1, -2)
            if causal:
                i, j = np.arange(T)[rows, None] + S - T, np.arange(S)[columns]
                x = np.where(j <= i, x, -np.inf)
            high = np.max(x, axis=-1, keepdims=True)
            high = np.where(np.isneginf(high), 0.0, high)
            e = np.exp(x - high)
            total = e.sum(-1, keepdims=True)
            with np.errstate(divide="ignore"):
                log = high + np.log(total)
            new = np.logaddexp(logs, log)
            safe = np.where(np.isneginf(new), 0.0, new)
            block = e @ v[..., columns, :] / np.where(total > 0, total, 1)
            out = out * np.exp(logs - safe) + block * np.exp(log - safe)
            logs = new
        z[..., rows, :] = out
    return z


def flash_in_torch(q, k, v, block_size, causal=False):
    q, k, v = (torch.from_numpy(np.array(x, dtype=np.float64)) for x in (q, k, v))
    T, S = q.shape[-2], k.shape[-2]
    q = q / q.shape[-1] ** 0.5
    m = torch.full((*q.shape[:-1], 1), -torch.inf, dtype=q.dtype)
    total, z = torch.zeros_like(m), torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    for start in range(0, S, block_size):
        x = q @ k[..., start : start + block_size, :].mT
        if causal:
            x = x.masked_fill(~torch.ones_like(x, dtype=torch.bool).tril(S - T - start), -torch.inf)
        new = torch.maximum(m, x.amax(-1, keepdim=True))
        safe = new.nan_to_num(neginf=0.0)
        e, shrink = (x - safe).exp(), (m - safe).exp()
        total = total * shrink + e.sum(-1, keepdim=True)
        z = z * shrink + e @ v[..., start : start + block_size, :]
        m = new
    return (z / total.where(total > 0, 1.0)).numpy()


# sliding_window_mask -------------------------------------------------------------------------


def window_by_distance(T, window):
    if window < 1:
        raise ValueError(f"window {window} is below 1")
    behind = np.subtract.outer(np.arange(T), np.arange(T))
    return (behind >= 0) & (behind < window)


def window_of_two_triangles(T, window):
    if window < 1:
        raise ValueError("no window")
    return np.tri(T, dtype=bool) & ~np.tri(T, k=-window, dtype=bool)


def window_row_by_row(T, window):
    if not window >= 1:
        raise ValueError
    mask = np.zeros((T, T), dtype=bool)
    for i in range(T):
        mask[i, max(0, i - window + 1) : i + 1] = True
    return mask


def window_of_diagonals(T, window):
    class TooNarrow(ValueError):
        pass

    if window < 1:
        raise TooNarrow
    mask = np.zeros((T, T), dtype=np.bool_)
    for back in range(min(window, T)):
        mask |= np.eye(T, k=-back, dtype=bool)
    return mask


def window_in_torch(T, window):
    if window < 1:
        raise ValueError
    return torch.ones(T, T, dtype=torch.bool).tril().triu(1 - window).numpy()


# linear_attention ----------------------------------------------------------------------------


def phi(x):
    return np.where(x > 0, x + 1.0, np.exp(np.minimum(x, 0.0)))


def linear_with_the_matrix(q, k, v, causal=False):
    weights = phi(q) @ np.swapaxes(phi(k), -1, -2)
    if causal:
        T, S = weights.shape[-2:]
        weights = np.tril(weights, S - T)
    total = weights.sum(axis=-1, keepdims=True)
    return weights @ v / np.where(total == 0, 1, total)


def linear_without_the_matrix(q, k, v, causal=False):
    """The sum over keys first: all of it, or up to each key."""
    q, k = phi(q), phi(k)
    if not causal:
        state, total = np.einsum("...sk,...sv->...kv", k, v), k.sum(-2)
        return (q @ state) / (q @ total[..., None])
    T, S = q.shape[-2], k.shape[-2]
    states = np.cumsum(k[..., :, None] * v[..., None, :], axis=-3)
    totals = np.cumsum(k, axis=-2)
    z = np.zeros((*q.shape[:-1], v.shape[-1]))
    for i in range(max(0, T - S), T):
        j = i + S - T
        query = q[..., i, :]
        numerator = np.einsum("...k,...kv->...v", query, states[..., j, :, :])
        z[..., i, :] = numerator / np.sum(query * totals[..., j, :], axis=-1)[..., None]
    return z


def linear_as_a_recurrence(q, k, v, causal=False):
    if not causal:
        return linear_without_the_matrix(q, k, v)
    T, S = q.shape[-2], k.shape[-2]
    state = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]))
    total = np.zeros((*k.shape[:-2], k.shape[-1]))
    rows = [np.zeros((*k.shape[:-2], v.shape[-1])) for _ in range(max(0, T - S))]
    for j in range(S):
        key = phi(k[..., j, :])
        state = state + key[..., :, None] * v[..., j, None, :]
        total = total + key
        i = j - (S - T)
        if i >= 0:
            query = phi(q[..., i, :])
            blend = (query[..., None, :] @ state)[..., 0, :]
            rows.append(blend / (query * total).sum(-1, keepdims=True))
    return np.stack(rows, axis=-2)


def linear_in_torch(q, k, v, causal=False):
    q, k, v = (torch.from_numpy(np.array(x, dtype=np.float64)) for x in (q, k, v))
    q, k = torch.nn.functional.elu(q) + 1, torch.nn.functional.elu(k) + 1
    weights = torch.einsum("...tk,...sk->...ts", q, k)
    if causal:
        weights = weights.tril(k.shape[-2] - q.shape[-2])
    weights = torch.nan_to_num(weights / weights.sum(-1, keepdim=True))
    return (weights @ v).numpy()


def linear_in_loops(q, k, v, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    z = np.zeros((*q.shape[:-1], v.shape[-1]))
    features = np.vectorize(lambda x: x + 1.0 if x > 0 else math.exp(x), otypes=[float])
    for at in np.ndindex(q.shape[:-1]):
        *batch, i = at
        n = min(S, max(0, i + S - T + 1)) if causal else S
        weights = [float(features(q[at]) @ features(key)) for key in k[tuple(batch)][:n]]
        for w, value in zip(weights, v[tuple(batch)], strict=False):
            z[at] += w / sum(weights) * value
    return z


RIGHT_ANSWERS = {
    "10.attention_cost": (
        cost_in_one_line,
        cost_product_by_product,
        cost_of_arrays,
        cost_row_by_row,
    ),
    "10.merge_softmax_blocks": (
        merge_with_where,
        merge_with_one_exponential,
        merge_in_loops,
        merge_by_masks,
        merge_in_torch,
    ),
    "10.flash_attention": (
        flash_with_merges,
        flash_in_place,
        flash_in_two_passes,
        flash_in_tiles,
        flash_in_torch,
    ),
    "10.sliding_window_mask": (
        window_by_distance,
        window_of_two_triangles,
        window_row_by_row,
        window_of_diagonals,
        window_in_torch,
    ),
    "10.linear_attention": (
        linear_with_the_matrix,
        linear_without_the_matrix,
        linear_as_a_recurrence,
        linear_in_torch,
        linear_in_loops,
    ),
}
