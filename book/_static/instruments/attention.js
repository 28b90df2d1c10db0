/* Attention in plain JavaScript, for the instruments: the same functions as the Python package
 * `attend`, under the same names in camel case. A vector is an array of numbers, a matrix an array
 * of rows; queries are rows, keys are columns of the scores. Nothing is changed in place. */
(() => {
  "use strict";

  const sum = (x) => x.reduce((total, entry) => total + entry, 0);
  const dot = (a, b) => a.reduce((total, entry, i) => total + entry * b[i], 0);

  /** Dot product of every query with every key, unscaled: q (T, K), k (S, K) → (T, S). */
  const attentionScores = (q, k) => q.map((query) => k.map((key) => dot(query, key)));

  /** Softmax of one row over the entries that `allowed` lets through; the others get exactly 0.
   *  A row that allows nothing is all zeros. */
  function maskedSoftmax(row, allowed) {
    const open = row.map((score, j) => (allowed[j] ? score : -Infinity));
    const largest = Math.max(...open);
    if (largest === -Infinity) return row.map(() => 0);
    // exp(-largest) cancels in the quotient; without it a score of 1000 would overflow.
    const e = open.map((score) => Math.exp(score - largest));
    const total = sum(e);
    return e.map((entry) => entry / total);
  }

  /** Softmax of one row: positive weights in proportion to exp(score) that sum to 1. */
  const softmax = (row) =>
    maskedSoftmax(
      row,
      row.map(() => true),
    );

  /** Rows of `weights` (T, S) blend the rows of `v` (S, d_v) → (T, d_v). */
  const blend = (weights, v) =>
    weights.map((row) =>
      v[0].map((_, column) =>
        dot(
          row,
          v.map((value) => value[column]),
        ),
      ),
    );

  /** Unscaled attention (chapter 03): softmax(Q Kᵀ) V. */
  function attention(q, k, v) {
    const weights = attentionScores(q, k).map(softmax);
    return { z: blend(weights, v), weights };
  }

  /** softmax(Q Kᵀ / √d_k) V over the pairs that `mask` (T, S) allows; without a mask, over all. */
  function scaledDotProductAttention(q, k, v, mask) {
    const scale = Math.sqrt(q[0].length);
    const scores = attentionScores(q, k).map((row) => row.map((score) => score / scale));
    const weights = scores.map((row, i) => (mask ? maskedSoftmax(row, mask[i]) : softmax(row)));
    return { z: blend(weights, v), weights };
  }

  /** Each query sees the keys up to its own position; queries are the last T of S tokens. */
  const causalMask = (T, S = T) =>
    Array.from({ length: T }, (_, i) => Array.from({ length: S }, (_, j) => j <= i + S - T));

  /** Entropy of one row of weights in nats: 0 for one-hot, ln S for uniform. */
  const rowEntropy = (p) => -sum(p.map((weight) => (weight > 0 ? weight * Math.log(weight) : 0)));

  /** diag(p) − p pᵀ: the derivative of weight i with respect to score j. */
  const softmaxJacobian = (p) => p.map((pi, i) => p.map((pj, j) => pi * ((i === j ? 1 : 0) - pj)));

  /** Gradient with respect to the scores, from the one with respect to the weights: p ∘ (g − p·g). */
  function gradientThroughSoftmax(scores, upstream) {
    const p = softmax(scores);
    const mean = dot(p, upstream);
    return p.map((pi, i) => pi * (upstream[i] - mean));
  }

  /** Root of the sum of the squares of all entries of a matrix (Frobenius norm). */
  const norm = (matrix) => Math.sqrt(sum(matrix.map((row) => dot(row, row))));

  /** The wrong way of chapter 05: softmax over all keys, and only then the mask. */
  const maskAfterSoftmax = (row, allowed) => softmax(row).map((p, j) => (allowed[j] ? p : 0));

  /** Pairs [i, j] with j > i in which token j, a later one, changes what comes out at token i.
   *
   *  It is measured, not read off the mask: the scores of column j and value j are changed, and
   *  outputs before and after are compared. `weigh(row, allowed)` makes weights of scores. */
  function leaks(weigh, scores, v, mask) {
    const outputs = (s, values) =>
      blend(
        s.map((row, i) => weigh(row, mask[i])),
        values,
      );
    const before = outputs(scores, v);
    const pairs = [];
    for (let j = 1; j < v.length; j += 1) {
      const changed = scores.map((row) =>
        row.map((score, column) => score + (column === j ? 1 : 0)),
      );
      const after = outputs(
        changed,
        v.map((value, row) => value.map((x) => (row === j ? x + 1 : x))),
      );
      for (let i = 0; i < j; i += 1) {
        if (after[i].some((x, column) => Math.abs(x - before[i][column]) > 1e-9))
          pairs.push([i, j]);
      }
    }
    return pairs;
  }

  /** By how much RoPE turns each pair at each position: positions (T,) → (T, dHead / 2). */
  const ropeAngles = (positions, dHead, base = 10000) =>
    positions.map((position) =>
      Array.from({ length: dHead / 2 }, (_, i) => position * base ** ((-2 * i) / dHead)),
    );

  /** Rows of x (T, K) with each pair (i, i + K/2) turned by its angle (T, K / 2), half-split. */
  const applyRope = (x, angles) =>
    x.map((row, t) => {
      const half = row.length / 2;
      const [a, b] = [row.slice(0, half), row.slice(half)];
      const [c, s] = [angles[t].map(Math.cos), angles[t].map(Math.sin)];
      return [
        ...a.map((_, i) => a[i] * c[i] - b[i] * s[i]),
        ...a.map((_, i) => a[i] * s[i] + b[i] * c[i]),
      ];
    });

  /** What one block of keys gives to a row: scores (S,), v (S, d_v) → its largest score, the sum of
   *  exp(score − largest), and the values weighted by these, not divided. */
  function softmaxBlock(scores, v) {
    const max = Math.max(...scores);
    const e = scores.map((score) => (max === -Infinity ? 0 : Math.exp(score - max)));
    return { max, sum: sum(e), output: blend([e], v)[0] };
  }

  /** Two blocks as one: each is rescaled to the larger of the two maxima. */
  function mergeSoftmaxBlocks(a, b) {
    const max = Math.max(a.max, b.max);
    const scale = (block) => (block.max === -Infinity ? 0 : Math.exp(block.max - max));
    return {
      max,
      sum: scale(a) * a.sum + scale(b) * b.sum,
      output: a.output.map((x, i) => scale(a) * x + scale(b) * b.output[i]),
    };
  }

  /** A generator of even numbers between 0 and 1 that a seed determines: mulberry32. */
  function uniforms(seed) {
    let state = seed >>> 0;
    return () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), state | 1);
      t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
  }

  /** A generator of standard normal numbers that a seed determines: Box–Muller makes two normal ones
   *  of two even ones. */
  function normals(seed) {
    const uniform = uniforms(seed);
    let spare = null;
    return () => {
      if (spare !== null) {
        const second = spare;
        spare = null;
        return second;
      }
      // 1 − uniform lies in (0, 1], so that the logarithm is finite.
      const radius = Math.sqrt(-2 * Math.log(1 - uniform()));
      const angle = 2 * Math.PI * uniform();
      spare = radius * Math.sin(angle);
      return radius * Math.cos(angle);
    };
  }

  /** Probabilities to draw the next token from (chapter 08): the temperature divides the logits, then
   *  the k most probable stay, then the fewest of these whose mass reaches p. At temperature 0 all
   *  goes to the largest logit; among equal ones the first counts as larger. */
  function nextTokenDistribution(logits, temperature, topK = Infinity, topP = 1) {
    const order = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);
    const only = (p, stays) => {
      const total = sum(p.filter((_, rank) => stays(rank)));
      return p.map((weight, rank) => (stays(rank) ? weight / total : 0));
    };
    const sorted = order.map((id) => logits[id]); // the most probable first
    let p = sorted.map((_, rank) => (rank === 0 ? 1 : 0));
    if (temperature > 0) {
      p = softmax(sorted.map((logit) => (logit - sorted[0]) / temperature));
      if (topK < p.length) p = only(p, (rank) => rank < topK);
      if (topP < 1) {
        let mass = 0;
        const before = p.map((weight) => (mass += weight) - weight);
        p = only(p, (rank) => before[rank] < topP);
      }
    }
    const byId = new Array(p.length);
    order.forEach((id, rank) => {
      byId[id] = p[rank];
    });
    return byId;
  }

  /** The surprise at each token after the first, in nats: −ln of the probability that it got. The
   *  logits (T, V) are one typed array, row after row. */
  function surprises(logits, ids) {
    const V = logits.length / ids.length;
    return ids.slice(1).map((id, t) => {
      const row = logits.subarray(t * V, (t + 1) * V);
      const largest = row.reduce((a, b) => Math.max(a, b));
      const total = row.reduce((mass, logit) => mass + Math.exp(logit - largest), 0);
      return Math.log(total) + largest - row[id];
    });
  }

  /** The entry on which `u`, a number between 0 and 1, falls when weights are laid end to end. */
  function drawFrom(p, u) {
    let mass = 0;
    const drawn = p.findIndex((weight) => (mass += weight) > u);
    // Rounding may leave the whole a hair below 1, and u above it: the last that can be drawn then.
    return drawn >= 0 ? drawn : p.findLastIndex((weight) => weight > 0);
  }

  const api = {
    applyRope,
    attention,
    attentionScores,
    blend,
    causalMask,
    drawFrom,
    gradientThroughSoftmax,
    leaks,
    maskAfterSoftmax,
    maskedSoftmax,
    mergeSoftmaxBlocks,
    nextTokenDistribution,
    norm,
    normals,
    ropeAngles,
    rowEntropy,
    scaledDotProductAttention,
    softmax,
    softmaxBlock,
    softmaxJacobian,
    surprises,
    uniforms,
  };
  globalThis.attend = Object.assign(globalThis.attend ?? {}, { attention: api });
  if (typeof module === "object") module.exports = api;
})();
