/* <attend-cache-calculator> (chapter 09): bytes of a KV cache, operations of a decoding step, and the
 * least time that memory and arithmetic leave for it, for models whose sizes have been published. */
(() => {
  "use strict";

  const { Instrument, button, fixed, h, oneOf, set, slider, toggle } = globalThis.attend.instrument;

  /* Llama 2: Touvron et al. (2023); Mistral 7B: Jiang et al. (2023); Llama 3.1: Grattafiori et al.
   * (2024), table 3, with the vocabulary of the released tokenizer; SmolLM2: its published file. */
  const published = (name, layers, dModel, dHidden, heads, kvHeads, vocab) => ({
    name,
    layers,
    dModel,
    dHidden,
    heads,
    kvHeads,
    vocab,
  });
  const MODELS = [
    published("SmolLM2 135M", 30, 576, 1536, 9, 3, 49152),
    published("Llama 2 7B", 32, 4096, 11008, 32, 32, 32000),
    published("Mistral 7B", 32, 4096, 14336, 32, 8, 32000),
    published("Llama 3.1 8B", 32, 4096, 14336, 32, 8, 128256),
    published("Llama 3.1 70B", 80, 8192, 28672, 64, 8, 128256),
    published("Llama 3.1 405B", 126, 16384, 53248, 128, 8, 128256),
  ];
  /* The H100: NVIDIA's data sheet, SXM, dense bfloat16. The desktop: two channels of DDR5-5600, eight
   * bytes wide each, 64 GB, and a tera-operation a second, which is an assumption. */
  const MACHINES = [
    { name: "desktop", bandwidth: 2 * 8 * 5.6e9, flops: 1e12, memory: 64e9 },
    { name: "H100", bandwidth: 3.35e12, flops: 989e12, memory: 80e9 },
  ];
  const START = {
    model: 2, // the page computes the cache of another
    power: 14,
    batch: 0,
    bytes: 2,
    kvHeads: null,
    cached: true,
    machine: 1,
  };
  const FROM = 7; // 2⁷ = 128 tokens, up to
  const TO = 17; // 131,072

  /** `kv_cache_bytes` of attend. */
  const kvCacheBytes = (layers, kvHeads, dHead, tokens, bytesPerValue = 2, batch = 1) =>
    2 * layers * kvHeads * dHead * tokens * bytesPerValue * batch;

  /** Numbers in the matrices of one block. */
  const blockWeights = ({ dModel, dHidden, heads, kvHeads }) =>
    2 * dModel ** 2 + 2 * dModel * kvHeads * (dModel / heads) + 3 * dModel * dHidden;

  /** `decode_flops` of attend. */
  function decodeFlops(model, tokens, cached = true) {
    const { layers, dModel, vocab } = model;
    const rows = cached ? 1 : tokens;
    const block = 2 * blockWeights(model) * rows + 4 * dModel * tokens * rows;
    return layers * block + 2 * dModel * vocab;
  }

  /** Bytes of the matrices that a step reads: the blocks and the head. Of the embedding table it
   *  looks up a row. */
  const weightBytes = (model, bytesPerValue) =>
    (model.layers * blockWeights(model) + model.dModel * model.vocab) * bytesPerValue;

  /** One step for `batch` texts: bytes, operations, and the seconds that each of them takes at least.
   *  Without a cache the keys and values are made anew in each step, and none are fetched. */
  function step(model, { tokens, batch, bytes, cached, machine }) {
    const dHead = model.dModel / model.heads;
    const cache = cached
      ? kvCacheBytes(model.layers, model.kvHeads, dHead, tokens, bytes, batch)
      : 0;
    const weights = weightBytes(model, bytes);
    const flops = batch * decodeFlops(model, tokens, cached);
    const fetching = (weights + cache) / machine.bandwidth;
    const computing = flops / machine.flops;
    return { cache, weights, flops, fetching, computing, seconds: Math.max(fetching, computing) };
  }

  /** A number with its unit, three digits: "2.15 GB", "640 µs". */
  function withUnit(x, units, base) {
    let i = 0;
    let value = x / base;
    while (i < units.length - 1 && value >= 999.5) {
      value /= 1000;
      i += 1;
    }
    return `${threeDigits(value)}\u00a0${units[i]}`;
  }

  /** A number with three digits, or with all before the point: "2.15", "640", "1,730". */
  function threeDigits(value) {
    if (value >= 999.5) return grouped(Math.round(value));
    return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
  }

  const TIMES = [
    ["µs", 1e-6],
    ["ms", 1e-3],
    ["s", 1],
    ["minutes", 60],
    ["hours", 3600],
    ["days", 86_400],
    ["years", 365.25 * 86_400],
  ];

  /** A time in the largest unit of which there is one; none at all is a dash. */
  function time(seconds) {
    if (seconds === 0) return "–";
    const [unit, length] = TIMES.findLast(([, x]) => seconds >= 0.9995 * x) ?? TIMES[0];
    return `${threeDigits(seconds / length)} ${unit}`;
  }
  const size = (bytes) => withUnit(bytes, ["kB", "MB", "GB", "TB", "PB"], 1e3);
  const operations = (flops) => withUnit(flops, ["Mflop", "Gflop", "Tflop", "Pflop", "Eflop"], 1e6);
  const grouped = (n) => n.toLocaleString("en-US");

  class CacheCalculator extends Instrument {
    heading = "What a cache costs, and what it saves";
    advice =
      "switch the cache off and on at 131,072 tokens. Then raise the number of texts and see when " +
      "the caches outweigh the model, and how many key/value heads change that.";

    ask() {
      const model = MODELS[START.model];
      const { cache, weights } = this.measured(START);
      const ratio = weights / cache;
      return {
        question:
          `${model.name} reads ${size(weights)} of weights in each step, at two bytes a number, and ` +
          `shares a key/value head among ${model.heads / model.kvHeads} query heads. How large is the ` +
          `cache of one text of ${grouped(2 ** START.power)} tokens?`,
        choices: [
          {
            label: "about a thousandth of the weights",
            right: () => ratio > 300,
            reply: () => this.reason(cache, ratio),
          },
          {
            label: "about a seventh of the weights",
            right: () => ratio > 3 && ratio <= 300,
            reply: () => this.reason(cache, ratio),
          },
          {
            label: "ten times the weights",
            right: () => ratio <= 3,
            reply: () => this.reason(cache, ratio),
          },
        ],
      };
    }

    reason(cache, ratio) {
      const { layers, kvHeads, dModel, heads } = MODELS[START.model];
      return (
        `2 · ${layers} layers · ${kvHeads} heads · ${dModel / heads} numbers · ` +
        `${grouped(2 ** START.power)} tokens · 2 bytes are ${size(cache)}. The weights are ` +
        `${fixed(ratio, 1)} times that: so many texts weigh as much as the model.`
      );
    }

    build() {
      this.state = { ...START };
      return [
        this.buildControls(),
        this.buildTable(),
        this.buildBars(),
        (this.sentence = h("p", { class: "instrument-sentence" })),
      ];
    }

    get model() {
      const model = MODELS[this.state.model];
      return { ...model, kvHeads: this.state.kvHeads ?? model.kvHeads };
    }

    measured(state = this.state) {
      const model = MODELS[state.model];
      return step(
        { ...model, kvHeads: state.kvHeads ?? model.kvHeads },
        {
          tokens: 2 ** state.power,
          batch: 2 ** state.batch,
          bytes: state.bytes,
          cached: state.cached,
          machine: MACHINES[state.machine],
        },
      );
    }

    /** Divisors of the number of query heads, most first: what grouped queries allow. */
    divisors() {
      const { heads } = MODELS[this.state.model];
      return Array.from({ length: heads }, (_, i) => heads - i).filter((g) => heads % g === 0);
    }

    buildControls() {
      const change = (name) => (value) => {
        this.state[name] = value;
        this.changed();
      };
      const heads = slider({
        label: "key/value heads",
        min: 0,
        max: this.divisors().length - 1,
        value: this.divisors().indexOf(this.model.kvHeads),
        text: (i) => `${this.divisors()[i]} for ${this.model.heads} query heads`,
        input: (i) => change("kvHeads")(this.divisors()[i]),
      });
      this.heads = heads.querySelector("input");
      return h(
        "div",
        { class: "instrument-controls" },
        slider({
          label: "model",
          min: 0,
          max: MODELS.length - 1,
          value: this.state.model,
          text: (i) => MODELS[i].name,
          input: (i) => {
            this.state.model = i;
            this.state.kvHeads = null;
            this.publishedHeads();
            this.changed();
          },
        }),
        heads,
        slider({
          label: "tokens of each text",
          min: FROM,
          max: TO,
          value: this.state.power,
          text: (power) => grouped(2 ** power),
          input: change("power"),
        }),
        slider({
          label: "texts at once",
          min: 0,
          max: 10,
          value: this.state.batch,
          text: (power) => grouped(2 ** power),
          input: change("batch"),
        }),
        oneOf(
          "bytes a number",
          [1, 2, 4].map((n) => ({ value: n, label: String(n) })),
          this.state.bytes,
          change("bytes"),
        ),
        oneOf(
          "machine",
          MACHINES.map((machine, i) => ({ value: i, label: machine.name })),
          this.state.machine,
          change("machine"),
        ),
        toggle("keep a cache", this.state.cached, change("cached")),
        button("As published", () => {
          this.state.kvHeads = null;
          this.publishedHeads();
          this.changed();
        }),
      );
    }

    /** Puts the slider of the heads to what the model was published with. */
    publishedHeads() {
      set(this.heads, "max", this.divisors().length - 1);
      this.heads.value = this.divisors().indexOf(MODELS[this.state.model].kvHeads);
      this.heads.dispatchEvent(new Event("input"));
    }

    /** What is in memory and what a step does, with the time that each of them takes at least. */
    buildTable() {
      const names = ["weights", "caches", "operations"];
      this.cells = names.map((_, i) =>
        [0, 1].map((j) => h("td", { class: i + j === 0 ? null : "instrument-weight" })),
      );
      return h(
        "table",
        { class: "instrument-table instrument-costs" },
        h("caption", {}, "One step", h("small", {}, "one more token for each text")),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["part", "amount", "takes at least"].map((name) => h("th", { scope: "col" }, name)),
          ),
        ),
        h(
          "tbody",
          {},
          names.map((name, i) =>
            h("tr", {}, h("th", { scope: "row" }, name), this.cells[i]),
          ),
        ),
      );
    }

    /** How the time is made up, as bars. They say nothing that the table does not. */
    buildBars() {
      const bar = (kind) => h("span", { class: `instrument-part instrument-part-${kind}` });
      this.parts = { weights: bar("weights"), caches: bar("caches"), operations: bar("operations") };
      const swatch = (kind) =>
        h("span", { class: `instrument-part instrument-part-${kind} instrument-swatch` });
      const row = (label, ...bars) =>
        h("div", { class: "instrument-lane" }, h("span", {}, label), h("span", {}, bars));
      return h(
        "div",
        { class: "instrument-lanes", "aria-hidden": "true" },
        row("fetch", this.parts.weights, this.parts.caches),
        row("compute", this.parts.operations),
        h(
          "p",
          { class: "instrument-legend" },
          Object.keys(this.parts).map((kind) => h("span", {}, swatch(kind), ` ${kind}`)),
          h("span", {}, "the longer bar is the limit"),
        ),
      );
    }

    update() {
      const { cache, weights, flops, fetching, computing, seconds } = this.measured();
      const { bandwidth } = MACHINES[this.state.machine];
      const rows = [
        [size(weights), time(weights / bandwidth)],
        [this.state.cached ? size(cache) : "none", time(cache / bandwidth)],
        [operations(flops), time(computing)],
      ];
      rows.forEach((row, i) => {
        row.forEach((text, j) => {
          this.cells[i][j].textContent = this.revealed || (i === 0 && j === 0) ? text : "?";
        });
      });
      const most = Math.max(fetching, computing);
      const width = (x) => `${this.revealed ? (100 * x) / most : 0}%`;
      this.parts.weights.style.setProperty("--width", width(weights / bandwidth));
      this.parts.caches.style.setProperty("--width", width(cache / bandwidth));
      this.parts.operations.style.setProperty("--width", width(computing));
      this.sentence.textContent = this.revealed
        ? this.tell(seconds, fetching, computing)
        : "Nothing is computed yet.";
    }

    tell(seconds, fetching, computing) {
      const batch = 2 ** this.state.batch;
      const limit =
        fetching >= computing ? "Fetching from memory is the limit" : "Arithmetic is the limit";
      const each = batch > 1 ? `, ${time(seconds / batch)} for each text` : "";
      const other = this.measured({ ...this.state, cached: !this.state.cached }).seconds;
      const compared = this.state.cached
        ? `Without a cache it would be ${time(other)}`
        : `With a cache it would be ${time(other)}`;
      return `${limit}: a step takes at least ${time(seconds)}${each}. ${compared}.${this.overflow()}`;
    }

    /** What to say when the machine cannot hold all that a step reads. */
    overflow() {
      const { cache, weights } = this.measured();
      const { memory, name } = MACHINES[this.state.machine];
      if (weights + cache <= memory) return "";
      const what = cache > 0 ? "Weights and caches" : "The weights";
      return (
        ` ${what} are ${size(weights + cache)} and do not fit into the ${size(memory)} of one ${name}: ` +
        "it would take several."
      );
    }

    summary() {
      const { cache, seconds, fetching, computing } = this.measured();
      const held = this.state.cached ? `Caches ${size(cache)}` : "No cache";
      return `${this.model.name}. ${held}. ${this.tell(seconds, fetching, computing)}`;
    }
  }

  Object.assign(CacheCalculator, { MODELS, MACHINES, kvCacheBytes, decodeFlops, weightBytes, step });
  customElements.define("attend-cache-calculator", CacheCalculator);
})();
