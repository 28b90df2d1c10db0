/* A transformer in plain JavaScript: the GPT of the Python package `attend` (gpt in model.py), with
 * the same names in camel case. It reads 8-bit weights, computes logits and every head's weights,
 * keeps keys and values in a cache, and can leave out what chapter 08 lets the reader switch off.
 *
 * A matrix is a Float32Array with one row after the other: x of T tokens and width D has T * D
 * numbers, and token t begins at t * D. Letters: T new tokens, S tokens seen (with those in the
 * cache), D model width, H heads, K = D / H head width, V vocabulary.
 *
 * The order of the file: numbers from text, tokens, layers, attention, the whole model, its use. */
(() => {
  "use strict";

  // Weights ---------------------------------------------------------------------------------------

  /** The bytes that a base64 text stands for. */
  function bytesOf(base64) {
    const signs = atob(base64);
    const bytes = new Uint8Array(signs.length);
    for (let i = 0; i < bytes.length; i += 1) bytes[i] = signs.charCodeAt(i);
    return bytes;
  }

  /** The tensors of a file, by name.
   *
   *  A matrix is stored as rows of whole numbers -127 ... 127, each row with a scale of its own; a
   *  row makes one output, or is the vector of one token or position. What has one dimension
   *  (norms, biases) is stored as it is. `tensors` says what is there, in order: { name, shape }. */
  function readTensors(bytes, tensors) {
    let at = 0;
    const take = (Kind, n) => {
      const end = at + n * Kind.BYTES_PER_ELEMENT;
      const taken = new Kind(bytes.slice(at, end).buffer); // a copy begins at a whole multiple
      at = end;
      return taken;
    };
    const byName = {};
    for (const { name, shape } of tensors) {
      const [rows, columns] = shape;
      if (columns === undefined) {
        byName[name] = take(Float32Array, rows);
        continue;
      }
      const scales = take(Float32Array, rows);
      byName[name] = Float32Array.from(take(Int8Array, rows * columns));
      byName[name].forEach((whole, i, all) => {
        all[i] = whole * scales[Math.floor(i / columns)];
      });
    }
    if (at !== bytes.length) throw new Error(`${bytes.length - at} bytes of weights are left over`);
    return byName;
  }

  // Tokens ----------------------------------------------------------------------------------------

  /** A word, a number or signs with the space before them, or space: merges stay within a piece. */
  const PIECES = /'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

  /** Byte-pair encoding: ids 0 ... 255 are bytes, merge number r makes id 256 + r. */
  class Tokenizer {
    constructor(merges) {
      this.ranks = new Map(merges.map(([a, b], rank) => [`${a} ${b}`, rank]));
      this.bytes = Array.from({ length: 256 }, (_, byte) => [byte]);
      for (const [a, b] of merges) this.bytes.push([...this.bytes[a], ...this.bytes[b]]);
    }

    encode(text) {
      return (text.match(PIECES) ?? []).flatMap((piece) =>
        this.merge([...new TextEncoder().encode(piece)]),
      );
    }

    /** The earliest merge that fits anywhere is made everywhere, until none fits. */
    merge(ids) {
      const rankAt = (i) => this.ranks.get(`${ids[i]} ${ids[i + 1]}`) ?? Infinity;
      for (;;) {
        const first = Math.min(...ids.slice(1).map((_, i) => rankAt(i)));
        if (first === Infinity) return ids;
        const merged = [];
        for (let i = 0; i < ids.length; i += 1) {
          const fits = rankAt(i) === first;
          merged.push(fits ? 256 + first : ids[i]);
          if (fits) i += 1;
        }
        ids = merged;
      }
    }

    /** The text of ids; bytes that are no UTF-8 become U+FFFD. */
    decode(ids) {
      return new TextDecoder().decode(new Uint8Array(ids.flatMap((id) => this.bytes[id])));
    }
  }

  // Layers ----------------------------------------------------------------------------------------

  /** x W + b: rows of x (T, nIn) times a matrix of which we hold the transpose, `rows` (nOut, nIn).
   *
   *  Here nearly all time is spent. Four outputs are summed up at once, so that each number of x is
   *  fetched once for four products (nOut must be a multiple of 4), and a row of weights is read in
   *  the order of memory. */
  function linear(x, rows, nOut, bias) {
    const nIn = rows.length / nOut;
    const T = x.length / nIn;
    const y = new Float32Array(T * nOut);
    for (let j = 0; j < nOut; j += 4) {
      const a = j * nIn; // where the four rows of weights begin
      const b = a + nIn;
      const c = b + nIn;
      const d = c + nIn;
      for (let t = 0; t < T; t += 1) {
        const from = t * nIn;
        const to = t * nOut + j;
        let sumA = 0;
        let sumB = 0;
        let sumC = 0;
        let sumD = 0;
        for (let i = 0; i < nIn; i += 1) {
          const entry = x[from + i];
          sumA += entry * rows[a + i];
          sumB += entry * rows[b + i];
          sumC += entry * rows[c + i];
          sumD += entry * rows[d + i];
        }
        y[to] = sumA;
        y[to + 1] = sumB;
        y[to + 2] = sumC;
        y[to + 3] = sumD;
      }
    }
    return bias ? y.map((entry, i) => entry + bias[i % nOut]) : y;
  }

  const add = (x, y) => x.map((entry, i) => entry + y[i]);

  /** Each token brought to mean 0 and variance 1, then stretched by `gain`, shifted by `bias`. */
  function layerNorm(x, gain, bias) {
    const D = gain.length;
    const y = new Float32Array(x.length);
    for (let from = 0; from < x.length; from += D) {
      let mean = 0;
      for (let i = 0; i < D; i += 1) mean += x[from + i] / D;
      let variance = 0;
      for (let i = 0; i < D; i += 1) variance += (x[from + i] - mean) ** 2 / D;
      const scale = 1 / Math.sqrt(variance + 1e-5);
      for (let i = 0; i < D; i += 1) y[from + i] = (x[from + i] - mean) * scale * gain[i] + bias[i];
    }
    return y;
  }

  /** The error function to 1.5e-7 (Abramowitz and Stegun, Handbook, 7.1.26): Math has none. */
  function erf(x) {
    const t = 1 / (1 + 0.3275911 * Math.abs(x));
    const polynomial =
      t *
      (0.254829592 +
        t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return Math.sign(x) * (1 - polynomial * Math.exp(-x * x));
  }

  const gelu = (x) => (x / 2) * (1 + erf(x / Math.SQRT2));

  // Attention -------------------------------------------------------------------------------------

  /** Keys and values of the tokens so far, a row a token, for each layer. */
  class Cache {
    constructor({ nLayers, context, dModel }) {
      const room = () => Array.from({ length: nLayers }, () => new Float32Array(context * dModel));
      this.keys = room();
      this.values = room();
      this.length = 0; // the next token has this position
    }
  }

  /** softmax(Q K^T / sqrt(K)) V of one head, whose columns begin at `first` in rows of width D.
   *
   *  Fills the head's columns of `z` (T, D), and returns its weights (T, S). The queries are the
   *  last T of S tokens. */
  function attendOneHead(z, q, keys, values, { T, S, D, K, first, causal, scaled }) {
    const weights = new Float32Array(T * S);
    const divisor = scaled ? Math.sqrt(K) : 1;
    for (let t = 0; t < T; t += 1) {
      const seen = causal ? S - T + t + 1 : S; // the others keep their weight of 0
      const row = weights.subarray(t * S, t * S + seen);
      let largest = -Infinity;
      for (let s = 0; s < seen; s += 1) {
        let score = 0;
        for (let i = first; i < first + K; i += 1) score += q[t * D + i] * keys[s * D + i];
        row[s] = score / divisor;
        largest = Math.max(largest, row[s]);
      }
      let total = 0;
      for (let s = 0; s < seen; s += 1) {
        row[s] = Math.exp(row[s] - largest); // a score of 100 would else overflow
        total += row[s];
      }
      for (let s = 0; s < seen; s += 1) {
        row[s] /= total;
        for (let i = first; i < first + K; i += 1) z[t * D + i] += row[s] * values[s * D + i];
      }
    }
    return weights;
  }

  /** What the heads of one layer add to the stream x (T, D), and their weights.
   *
   *  The new keys and values are put behind those in the cache, so only new tokens are computed. */
  function selfAttention(x, model, layer, cache, { causal, scaled, removed }) {
    const { dModel: D, nHeads: H } = model.config;
    const weight = (name) => model.tensors[`blocks.${layer}.attention.${name}`];
    const [T, K] = [x.length / D, D / H];
    const [keys, values] = [cache.keys[layer], cache.values[layer]];
    const q = linear(x, weight("w_q"), D);
    keys.set(linear(x, weight("w_k"), D), cache.length * D);
    values.set(linear(x, weight("w_v"), D), cache.length * D);
    const z = new Float32Array(T * D);
    const S = cache.length + T;
    const weights = [];
    for (let head = 0; head < H; head += 1) {
      // A removed head still looks, but what it hands over is lost.
      const target = removed.has(`${layer} ${head}`) ? new Float32Array(T * D) : z;
      const sizes = { T, S, D, K, first: head * K, causal, scaled };
      weights.push(attendOneHead(target, q, keys, values, sizes));
    }
    return { added: linear(z, weight("w_o"), D), weights };
  }

  /** What the feed-forward part adds to the stream. */
  function feedForward(x, model, layer) {
    const weight = (name) => model.tensors[`blocks.${layer}.mlp.${name}`];
    const hidden = linear(x, weight("w_1"), model.config.dHidden, weight("b_1")).map(gelu);
    return linear(hidden, weight("w_2"), model.config.dModel, weight("b_2"));
  }

  // The model -------------------------------------------------------------------------------------

  /** What the reader can switch off; as it stands here, the model is as it was trained. */
  const AS_TRAINED = { causal: true, scaled: true, positions: true, removed: new Set() };

  /** A vector for each token, plus one for its position. */
  function embed(ids, model, start, withPositions) {
    const D = model.config.dModel;
    const row = (table, i) => model.tensors[`embedding.${table}`].subarray(i * D, (i + 1) * D);
    const x = new Float32Array(ids.length * D);
    ids.forEach((id, t) => {
      const token = row("tokens", id);
      x.set(withPositions ? add(token, row("positions", start + t)) : token, t * D);
    });
    return x;
  }

  /** Logits of the next token and the weights of all heads.
   *
   *  ids      the new tokens; with a cache, those that are not in it yet
   *  cache    is extended by them; without one, an empty one serves for this call
   *  last     whether only the last token needs logits, as when a text is continued
   *  causal, scaled, positions, removed  as in AS_TRAINED; `removed` holds "layer head"
   *
   *  Returns logits (T, V), or (1, V) for `last`, and weights[layer][head] (T, S). */
  function forward(model, ids, { cache = null, last = false, ...switches } = {}) {
    const { context, nLayers, vocab, dModel } = model.config;
    const { positions, ...attention } = { ...AS_TRAINED, ...switches };
    const kept = cache ?? new Cache(model.config);
    if (kept.length + ids.length > context)
      throw new RangeError(`${kept.length + ids.length} tokens do not fit in ${context}`);
    const norm = (x, name) =>
      layerNorm(x, model.tensors[`${name}.gain`], model.tensors[`${name}.bias`]);
    const weights = [];
    let x = embed(ids, model, kept.length, positions);
    for (let layer = 0; layer < nLayers; layer += 1) {
      const block = `blocks.${layer}`;
      const heads = selfAttention(norm(x, `${block}.norm_1`), model, layer, kept, attention);
      weights.push(heads.weights);
      x = add(x, heads.added);
      x = add(x, feedForward(norm(x, `${block}.norm_2`), model, layer));
    }
    kept.length += ids.length;
    if (last) x = x.slice(-dModel);
    // The head is the embedding's own table: a token scores high where the stream points its way.
    return { logits: linear(norm(x, "norm"), model.tensors["embedding.tokens"], vocab), weights };
  }

  // Its use ---------------------------------------------------------------------------------------

  /** A model out of the parts of its file: { config, merges, tensors, parts: [base64, ...] }. */
  function load({ config, merges, tensors, parts }) {
    const pieces = parts.map(bytesOf);
    const bytes = new Uint8Array(pieces.reduce((n, piece) => n + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      bytes.set(piece, at);
      at += piece.length;
    }
    return { config, tokenizer: new Tokenizer(merges), tensors: readTensors(bytes, tensors) };
  }

  const api = { AS_TRAINED, Cache, Tokenizer, bytesOf, erf, forward, linear, load };
  globalThis.attend = Object.assign(globalThis.attend ?? {}, { transformer: api });
  if (typeof module === "object") module.exports = api;
})();
