"""Attention in blocks of keys: exactly the same result, without the T × S matrix."""

from __future__ import annotations

import numpy as np

from attend.long_context import flash_attention
from coursework.exercise import Call, Exercise, Misconception, Property
from coursework.exercises.inputs import in_columns, loud_qkv, normal, qkv


def _blocked(call: Call, block_size: int, *, causal: bool = False) -> Call:
    return Call((*call.args, block_size), {"causal": True} if causal else {})


def _all_keys(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _blocked(qkv(rng, 3, 5, 4, 2), 2),
        _blocked(qkv(rng, 2, 7, 3, 5), 3),
        _blocked(qkv(rng, 5, 12, 2, 3), 4),
        _blocked(qkv(rng, 7, 3, 5, 2), 1),
        _blocked(qkv(rng, 3, 11, 7, 5), 16),
        _blocked(qkv(rng, 13, 29, 11, 7), 5),
    )


def _the_past(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _blocked(qkv(rng, 5, 5, 4, 2), 2, causal=True),
        _blocked(qkv(rng, 3, 7, 2, 5), 3, causal=True),
        _blocked(qkv(rng, 7, 7, 3, 2), 1, causal=True),
        _blocked(qkv(rng, 1, 11, 5, 3), 4, causal=True),
        _blocked(qkv(rng, 8, 8, 2, 7), 4, causal=True),
        _blocked(qkv(rng, 11, 23, 7, 5), 5, causal=True),
    )


def _batches(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _blocked(qkv(rng, 3, 5, 7, 4, 2), 2),
        _blocked(qkv(rng, 5, 7, 3, 2, 3), 3, causal=True),
        _blocked(qkv(rng, 5, 11, 3, 7, 2, 13), 4),
        _blocked(qkv(rng, 7, 7, 5, 2, 4, 1, 2), 3, causal=True),
    )


def _loud(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _blocked(loud_qkv(rng, 2, 5, 3, 4), 2),
        _blocked(loud_qkv(rng, 5, 7, 2, 3, level=-1e4), 3),
        _blocked(loud_qkv(rng, 5, 5, 3, 2), 2, causal=True),
        _blocked(_rising(rng, 3, 8, 2, 5), 2),
        _blocked(_rising(rng, 5, 7, 3, 2), 3),
        _blocked(_rising(rng, 5, 11, 2, 3), 4, causal=True),
    )


def _rising(rng: np.random.Generator, T: int, S: int, d_k: int, d_v: int) -> Call:
    """Scores that rise by thousands from one block to the next."""
    q, k, v = qkv(rng, T, S, d_k, d_v).args
    q[:, 0], k[:, 0] = np.sqrt(d_k), 1e4 * np.arange(S) // 3
    return Call((q, k, v))


def _more_queries(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _blocked(qkv(rng, 5, 3, 4, 2), 2, causal=True),
        _blocked(qkv(rng, 7, 2, 3, 5), 1, causal=True),
        _blocked(qkv(rng, 11, 7, 2, 3), 3, causal=True),
        _blocked(qkv(rng, 7, 5, 2, 3, 2), 8, causal=True),
    )


def _other_arrays(rng: np.random.Generator) -> tuple[Call, ...]:
    return (
        _blocked(qkv(rng, 3, 5, 4, 2, dtype=np.int64), 2),
        _blocked(qkv(rng, 5, 5, 2, 3, dtype=np.int64), 3, causal=True),
        _blocked(qkv(rng, 2, 7, 3, 5, 4, dtype=np.int64), 2),
        _blocked(qkv(rng, 7, 11, 3, 5, dtype=np.float32), 4),
        _blocked(qkv(rng, 5, 7, 3, 2, 3, dtype=np.float32), 3, causal=True),
        _blocked(in_columns(qkv(rng, 5, 7, 3, 2)), 2),
    )


def _long(rng: np.random.Generator) -> tuple[Call, ...]:
    """Texts whose scores, taken together, need four times as much memory as is allowed.

    They are long enough that what the allocator keeps in reserve, a few MiB, decides nothing.
    """

    def call(T: int, S: int, block_size: int) -> Call:
        arrays = normal(rng, T, 8), normal(rng, S, 8), normal(rng, S, 8)
        return Call((*arrays, block_size), memory=T * S * 8 // 4)

    return call(1409, 2999, 29), call(2053, 2039, 32), call(2048, 2048, 64)


def _scores(q, k, causal, scale=True):
    """All scores at once, those of the future at −∞."""
    scores = q @ np.swapaxes(k, -1, -2) / (np.sqrt(q.shape[-1]) if scale else 1)
    if causal:
        T, S = scores.shape[-2:]
        scores = np.where(np.tri(T, S, S - T, dtype=bool), scores, -np.inf)
    return scores


def _blend_of(scores, v):
    """A softmax in which a row without keys gives zeros."""
    largest = np.max(scores, axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
    total = np.sum(e, axis=-1, keepdims=True)
    return (e @ v) / np.where(total == 0, 1, total)


def _whole_matrix(q, k, v, block_size, causal=False):
    return _blend_of(_scores(q, k, causal), v)


def _blocks_kept(q, k, v, block_size, causal=False):
    starts = range(0, k.shape[-2], block_size)
    scores = _scores(q, k, causal)
    kept = [scores[..., s : s + block_size] for s in starts]
    return _blend_of(np.concatenate(kept, axis=-1), v)


def _old_part_as_it_was(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    largest = np.full((*q.shape[:-1], 1), -np.inf)
    total, output = np.zeros(largest.shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, S, block_size):
        scores = q @ np.swapaxes(k[..., start : start + block_size, :], -1, -2)
        scores = scores / np.sqrt(q.shape[-1])
        if causal:
            at = np.arange(start, min(start + block_size, S))
            scores = np.where(at <= np.arange(T)[:, None] + S - T, scores, -np.inf)
        largest = np.maximum(largest, np.max(scores, axis=-1, keepdims=True))
        e = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
        total = total + np.sum(e, axis=-1, keepdims=True)
        output = output + e @ v[..., start : start + block_size, :]
    return output / np.where(total == 0, 1, total)


def _sum_as_it_was(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    largest = np.full((*q.shape[:-1], 1), -np.inf)
    total, output = np.zeros(largest.shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, S, block_size):
        scores = q @ np.swapaxes(k[..., start : start + block_size, :], -1, -2)
        scores = scores / np.sqrt(q.shape[-1])
        if causal:
            at = np.arange(start, min(start + block_size, S))
            scores = np.where(at <= np.arange(T)[:, None] + S - T, scores, -np.inf)
        new = np.maximum(largest, np.max(scores, axis=-1, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new)
        e, shrink = np.exp(scores - safe), np.exp(largest - safe)
        total = total + np.sum(e, axis=-1, keepdims=True)
        output = output * shrink + e @ v[..., start : start + block_size, :]
        largest = new
    return output / np.where(total == 0, 1, total)


def _rest_dropped(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    largest = np.full((*q.shape[:-1], 1), -np.inf)
    total, output = np.zeros(largest.shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for n in range(S // block_size):
        keys = slice(n * block_size, (n + 1) * block_size)
        scores = q @ np.swapaxes(k[..., keys, :], -1, -2) / np.sqrt(q.shape[-1])
        if causal:
            at = np.arange(S)[keys]
            scores = np.where(at <= np.arange(T)[:, None] + S - T, scores, -np.inf)
        new = np.maximum(largest, np.max(scores, axis=-1, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new)
        e, shrink = np.exp(scores - safe), np.exp(largest - safe)
        total = total * shrink + np.sum(e, axis=-1, keepdims=True)
        output = output * shrink + e @ v[..., keys, :]
        largest = new
    return output / np.where(total == 0, 1, total)


def _rest_cut_off_before(q, k, v, block_size, causal=False):
    whole = k.shape[-2] // block_size * block_size
    if not whole:
        return np.zeros((*q.shape[:-1], v.shape[-1]))
    return _blend_of(_scores(q, k[..., :whole, :], causal), v[..., :whole, :])


def _lined_up_at_the_start(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    largest = np.full((*q.shape[:-1], 1), -np.inf)
    total, output = np.zeros(largest.shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        scores = q @ np.swapaxes(k[..., keys, :], -1, -2) / np.sqrt(q.shape[-1])
        if causal:
            scores = np.where(np.arange(S)[keys] <= np.arange(T)[:, None], scores, -np.inf)
        new = np.maximum(largest, np.max(scores, axis=-1, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new)
        e, shrink = np.exp(scores - safe), np.exp(largest - safe)
        total = total * shrink + np.sum(e, axis=-1, keepdims=True)
        output = output * shrink + e @ v[..., keys, :]
        largest = new
    return output / np.where(total == 0, 1, total)


def _counted_within_the_block(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    largest = np.full((*q.shape[:-1], 1), -np.inf)
    total, output = np.zeros(largest.shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        scores = q @ np.swapaxes(k[..., keys, :], -1, -2) / np.sqrt(q.shape[-1])
        if causal:
            at = np.arange(scores.shape[-1])
            scores = np.where(at <= np.arange(T)[:, None] + S - T, scores, -np.inf)
        new = np.maximum(largest, np.max(scores, axis=-1, keepdims=True))
        safe = np.where(np.isneginf(new), 0, new)
        e, shrink = np.exp(scores - safe), np.exp(largest - safe)
        total = total * shrink + np.sum(e, axis=-1, keepdims=True)
        output = output * shrink + e @ v[..., keys, :]
        largest = new
    return output / np.where(total == 0, 1, total)


def _mean_of_blocks(q, k, v, block_size, causal=False):
    T, S = q.shape[-2], k.shape[-2]
    output, blocks = 0, 0
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        scores = q @ np.swapaxes(k[..., keys, :], -1, -2) / np.sqrt(q.shape[-1])
        if causal:
            at = np.arange(S)[keys]
            scores = np.where(at <= np.arange(T)[:, None] + S - T, scores, -np.inf)
        largest = np.max(scores, axis=-1, keepdims=True)
        e = np.exp(scores - np.where(np.isneginf(largest), 0, largest))
        total = np.sum(e, axis=-1, keepdims=True)
        output = output + e @ v[..., keys, :] / np.where(total == 0, 1, total)
        blocks = blocks + (total > 0)
    return output / np.maximum(blocks, 1)


def _sum_of_blocks(q, k, v, block_size, causal=False):
    scores = _scores(q, k, causal)
    starts = range(0, k.shape[-2], block_size)
    parts = (slice(s, s + block_size) for s in starts)
    return sum(_blend_of(scores[..., p], v[..., p, :]) for p in parts)


def _last_block_only(q, k, v, block_size, causal=False):
    S = k.shape[-2]
    last = slice((S - 1) // block_size * block_size, S)
    return _blend_of(_scores(q, k, causal)[..., last], v[..., last, :])


def _future_seen(q, k, v, block_size, causal=False):
    return _blend_of(_scores(q, k, False), v)


def _itself_shut_out(q, k, v, block_size, causal=False):
    scores = _scores(q, k, False)
    if causal:
        T, S = scores.shape[-2:]
        scores = np.where(np.tri(T, S, S - T - 1, dtype=bool), scores, -np.inf)
    return _blend_of(scores, v)


def _unscaled(q, k, v, block_size, causal=False):
    return _blend_of(_scores(q, k, causal, scale=False), v)


def _scaled_by_the_block(q, k, v, block_size, causal=False):
    scores = _scores(q, k, causal, scale=False) / np.sqrt(min(block_size, k.shape[-2]))
    return _blend_of(scores, v)


def _not_divided(q, k, v, block_size, causal=False):
    scores = _scores(q, k, causal)
    largest = np.max(scores, axis=-1, keepdims=True)
    return np.exp(scores - np.where(np.isneginf(largest), 0, largest)) @ v


def _blocks(q, k, block_size, causal):
    """The scores of one block after the other, and where its keys lie."""
    T, S = q.shape[-2], k.shape[-2]
    for start in range(0, S, block_size):
        keys = slice(start, start + block_size)
        scores = q @ np.swapaxes(k[..., keys, :], -1, -2) / np.sqrt(q.shape[-1])
        if causal:
            at = np.arange(S)[keys]
            scores = np.where(at <= np.arange(T)[:, None] + S - T, scores, -np.inf)
        yield scores, keys


def _online(blocks, v):
    """Maximum, sum and output, renewed with each block, without care for rows without keys."""
    largest = total = output = None
    for scores, keys in blocks:
        new = np.max(scores, axis=-1, keepdims=True)
        new = new if largest is None else np.maximum(largest, new)
        e = np.exp(scores - new)
        shrink = 0 if largest is None else np.exp(largest - new)
        total = np.sum(e, axis=-1, keepdims=True) + (0 if total is None else shrink * total)
        output = e @ v[..., keys, :] + (0 if output is None else shrink * output)
        largest = new
    return output / total


def _overflows(q, k, v, block_size, causal=False):
    total = output = 0
    for scores, keys in _blocks(q, k, block_size, causal):
        e = np.exp(scores)
        total = total + np.sum(e, axis=-1, keepdims=True)
        output = output + e @ v[..., keys, :]
    return output / np.where(total == 0, 1, total)


def _first_maximum(q, k, v, block_size, causal=False):
    largest, total, output = None, 0, 0
    for scores, keys in _blocks(q, k, block_size, causal):
        if largest is None:
            largest = np.max(scores, axis=-1, keepdims=True)
            largest = np.where(np.isneginf(largest), 0, largest)
        e = np.exp(scores - largest)
        total = total + np.sum(e, axis=-1, keepdims=True)
        output = output + e @ v[..., keys, :]
    return output / np.where(total == 0, 1, total)


def _not_a_number(q, k, v, block_size, causal=False):
    return _online(_blocks(q, k, block_size, causal), v)


def _mean_where_no_key(q, k, v, block_size, causal=False):
    blocks = _blocks(q, k, block_size, causal)
    return _online(((np.maximum(scores, -1e9), keys) for scores, keys in blocks), v)


def _integers(q, k, v, block_size, causal=False):
    z = _online(_blocks(q, k, block_size, causal), v)
    return np.nan_to_num(z).astype(v.dtype)


FLASH_ATTENTION = Exercise(
    chapter=10,
    signature="flash_attention(q, k, v, block_size, causal=False) -> (..., T, d_v)",
    task="""\
Scaled dot-product attention, exactly, without ever holding its `T` × `S` matrix: look at
`block_size` keys at a time and merge what they give.

- `q` is `(..., T, d_k)`, `k` is `(..., S, d_k)`, `v` is `(..., S, d_v)`, with the same leading axes
  (none, one or several). Return the blended values, `(..., T, d_v)`. Scores are divided by √d_k.
- `block_size` is any whole number from 1 on. It need not divide `S`, and may be larger.
- With `causal=True` the queries are the **last** `T` of the `S` tokens: query `i` sees the keys up
  to `i + S − T`. If there are more queries than keys, the first ones see nothing: their rows are
  zeros.
- Scores of 10,000 and −10,000 must do no harm, also side by side. Inputs are float64, float32 or
  integers, in any memory order; floats come back. Compute in the input's precision (integers: in
  float64); whether what you return is wider is up to you. Leave `q`, `k` and `v` as they are.
- **Memory is measured**, NumPy's and PyTorch's: at its peak the call must need less than a quarter
  of the `T` × `S` scores, that is ¼ · T · S · 8 bytes in float64. It is tried at T = S = 2048,
  d_k = d_v = 8 and blocks of 64, and at two smaller sizes, without `causal`. An array of
  `T` × `block_size` is fine, even half a dozen of them; blocks that are kept are not. Let NumPy
  work on all queries at once: a loop over single queries takes too long.
- PyTorch's fused attention (`F.scaled_dot_product_attention`, `F.multi_head_attention_forward`,
  `nn.MultiheadAttention`) and `attend` do not count as your answer.""",
    reference=flash_attention,
    properties=(
        Property("blocks of any size give what the whole softmax gives", 2, _all_keys),
        Property("causal, lined up at the end", 2, _the_past),
        Property("any leading axes: batches, heads", 1, _batches),
        Property("scores of ±10,000 do no harm", 1, _loud, edge=True),
        Property("queries that see no key get zeros", 1, _more_queries, edge=True),
        Property("float32, integers and any memory order will do", 1, _other_arrays, edge=True),
        Property("less memory than a quarter of the scores", 2, _long, edge=True),
    ),
    misconceptions=(
        Misconception(
            "forms the T × S matrix",
            "The result is right, but all scores are in memory at once, whole or in pieces. Add up "
            "a running maximum, sum and output, and let each block go before the next is made.",
            _whole_matrix,
            symptom="your memory grows with T · S",
            also=(_blocks_kept,),
        ),
        Misconception(
            "does not rescale the old part",
            "When a block brings a larger maximum, what was added up before counts from the old "
            "one. Multiply sum and output by exp(old max − new max) first.",
            _old_part_as_it_was,
            symptom="early blocks weigh too much",
        ),
        Misconception(
            "rescales the output only",
            "The output shrinks when a larger maximum comes, but the sum does not. Both count from "
            "the same maximum: multiply both by exp(old max − new max).",
            _sum_as_it_was,
            symptom="your weights sum to less than 1",
        ),
        Misconception(
            "drops the last, shorter block",
            "You take S // block_size blocks. If that leaves a rest, these keys are never looked "
            "at: `range(0, S, block_size)` starts a block for them too.",
            _rest_dropped,
            symptom="right only if the block size divides the number of keys",
            also=(_rest_cut_off_before,),
        ),
        Misconception(
            "lines the mask up at the start",
            "The queries are the *last* T tokens: query i stands at position i + S − T. You line "
            "them up with the first T keys.",
            _lined_up_at_the_start,
            symptom="causal is right only if T = S",
        ),
        Misconception(
            "counts keys within the block",
            "The causal mask compares positions in the text. The keys of a block begin at `start`, "
            "not at 0.",
            _counted_within_the_block,
            symptom="causal is right in the first block only",
        ),
        Misconception(
            "averages the blocks",
            "You take a softmax in each block and average the results. A block of far smaller "
            "scores must count less: carry maximum and sum along, and divide once, at the end.",
            _mean_of_blocks,
            symptom="every block weighs the same",
        ),
        Misconception(
            "adds the blocks up",
            "You take a softmax in each block and add the results: the weights of each block sum "
            "to 1. Carry maximum and sum along, and divide once, at the end.",
            _sum_of_blocks,
            symptom="your weights sum to the number of blocks",
        ),
        Misconception(
            "keeps the last block only",
            "Each block overwrites what the ones before have given. Add to the running sum and "
            "output.",
            _last_block_only,
            symptom="only the last block counts",
        ),
        Misconception(
            "ignores causal",
            "With `causal=True` you give what you give without. Scores of later keys become −∞ "
            "before the softmax.",
            _future_seen,
            symptom="queries see the future",
        ),
        Misconception(
            "shuts out the token itself",
            "A token may attend to itself: query i sees the keys up to and including i + S − T.",
            _itself_shut_out,
            symptom="no token sees itself",
        ),
        Misconception(
            "does not scale",
            "The scores are q · k as they are. Divide them by √d_k, as in chapter 04; dividing q "
            "once, before the loop, costs least.",
            _unscaled,
            symptom="your weights are too sharp",
        ),
        Misconception(
            "scales by the block size",
            "You divide by the root of the number of keys in a block. A score is a sum of d_k "
            "products, however long the blocks are.",
            _scaled_by_the_block,
            symptom="the result depends on the block size",
        ),
        Misconception(
            "forgets to divide",
            "What you return is the running output. After the last block it must be divided by the "
            "running sum.",
            _not_divided,
            symptom="your weights do not sum to 1",
        ),
        Misconception(
            "has no running maximum",
            "exp(10000) is infinite, and ∞/∞ is not a number; exp(−10000) is 0. Subtract the "
            "largest score seen so far, and rescale when it grows.",
            _overflows,
            symptom="large scores make NaN or zeros",
        ),
        Misconception(
            "keeps the first block's maximum",
            "You subtract the maximum of the first block from all of them. When a later block has "
            "far larger scores, exp overflows: renew the maximum in each block.",
            _first_maximum,
            symptom="scores that rise from block to block make NaN",
        ),
        Misconception(
            "makes NaN where a query sees no key",
            "Where a query has seen no key yet, the running maximum is −∞, and −∞ − (−∞) is not a "
            "number; nor is 0/0 at the end. Subtract 0 there, and divide by 1.",
            _not_a_number,
            symptom="a query that sees no key makes NaN",
        ),
        Misconception(
            "lets a query without keys see all",
            "You mask with a large negative number. A row of nothing but that number has equal "
            "weights: the query that may see nothing gets the mean of everything. Use −∞.",
            _mean_where_no_key,
            symptom="a query that sees no key gets a mean of values",
        ),
        Misconception(
            "cuts to the integers of the input",
            "You store the result in the dtype of v, which cuts it to integers where v holds "
            "integers. A blend is a float: do not fill arrays made with `zeros_like(v)`.",
            _integers,
            symptom="integer inputs give integers",
        ),
    ),
    hints=(
        "You have written the step already: `merge_softmax_blocks`. What does one block of keys "
        "contribute, and what do you start from before the first?",
        "Start with a maximum of −∞, a sum and an output of 0 for each query. For each block: its "
        "scores, those of the future at −∞; the new maximum; shrink sum and output by exp(old max "
        "− new max); add what the block brings. Divide at the end, where the sum is not 0.",
        "`for start in range(0, S, block_size):` with `keys = slice(start, start + block_size)` "
        "and `scores = q @ np.swapaxes(k[..., keys, :], -1, -2)`, where `q` was divided by √d_k "
        "before. The keys' positions are `start + np.arange(scores.shape[-1])`, the queries' "
        "`np.arange(T)[:, None] + S - T`. Where the new maximum is −∞, subtract 0.",
    ),
    minutes=25,
    returns=("z",),
    forbids_fused=True,
)
