/* <attend-live-model> (chapter 08): a small trained model in the page. What it shows at first was
 * recorded (attend-live-model.example.js). Engine and weights are in ../live-model/ and come when
 * the reader asks for them; they come as scripts, so that this works from a file as well. */
(() => {
  "use strict";

  const { drawFrom, nextTokenDistribution, rowEntropy, surprises, uniforms } =
    globalThis.attend.attention;
  const { Instrument, button, fixed, h, linear, s, set, slider, toggle, unique } =
    globalThis.attend.instrument;

  const EXAMPLE = globalThis.attend.liveExample;
  const HOME = new URL("../live-model/", document.currentScript?.src || document.baseURI);
  const [LAYERS, HEADS] = EXAMPLE.shape;
  const MEGABYTES = "1.9 MB";
  const MOST_READ = 64; // tokens of the reader's text; with the new ones they fit in the context
  const MOST_NEW = 60;
  const SHOWN = 8; // candidates for the next token
  const PATIENCE_MS = 250; // after the last key, before the text is read again
  const FULL_NATS = 8; // a surprise that underlines the whole token
  const FRAME_MS = 40; // how long tokens are made before the page may draw
  const TOP_K = [1, 2, 3, 5, 10, 20, 50, Infinity];
  const SWITCHES = { causal: "causal mask", scaled: "division by √d_k", positions: "positions" };

  // The words of the instrument -------------------------------------------------------------------

  const percent = (p) =>
    p > 0 && p < 0.0005 ? "under 0.1 %" : `${(100 * p).toFixed(1)} %`;
  const nats = (loss) => `${fixed(loss)} nats`;
  const milliseconds = (ms) => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const mean = (x) => x.reduce((sum, entry) => sum + entry, 0) / x.length;
  const nameOf = ([layer, head]) => `${layer + 1}.${head + 1}`;

  /** A token as it can be seen: ␣ for a space at its start, ↵ for the end of a line. */
  const visible = (token) => token.replaceAll("\n", "↵").replaceAll(" ", "␣");

  /** A token in a sentence that is read. */
  const written = (token) => `“${visible(token)}”`;

  /** A token as it can be said. */
  const spoken = (token) => `“${token.replaceAll("\n", "end of line")}”`;

  const pause = () => new Promise((resolve) => setTimeout(resolve));

  // What was read ---------------------------------------------------------------------------------

  /** The recorded example, in the form of what a model reads. */
  function recorded() {
    const bytesOf = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
    const { ids, names, shape, low, high } = EXAMPLE;
    const T = ids.length;
    const whole = new Uint16Array(bytesOf(EXAMPLE.logits).buffer);
    const logits = Float32Array.from(whole, (x) => low + (x / 65535) * (high - low));
    const all = Float32Array.from(bytesOf(EXAMPLE.weights), (x) => x / 255);
    const [L, H] = shape;
    const weights = Array.from({ length: L }, (_, layer) =>
      Array.from({ length: H }, (_, head) =>
        all.subarray((layer * H + head) * T * T, (layer * H + head + 1) * T * T),
      ),
    );
    return { ids, logits, weights, surprises: surprises(logits, ids), name: (id) => names[id] };
  }

  /** What the model makes of a text: its last tokens, logits and every head's weights. */
  function read(model, text, options) {
    const all = model.tokenizer.encode(text);
    const ids = all.slice(-MOST_READ);
    const { logits, weights } = globalThis.attend.transformer.forward(model, ids, options);
    const name = (id) => model.tokenizer.decode([id]);
    const cut = all.length - ids.length;
    return { text, ids, logits, weights, surprises: surprises(logits, ids), name, cut };
  }

  /** The logits of the token after token t. */
  function rowOf({ ids, logits }, t) {
    const V = logits.length / ids.length;
    return logits.subarray(t * V, (t + 1) * V);
  }

  /** Asks for one script; resolves when it has run. */
  const script = (name) =>
    new Promise((resolve, reject) => {
      const node = h("script", { src: new URL(name, HOME).href, load: resolve, error: reject });
      document.head.append(node);
    });

  class LiveModel extends Instrument {
    heading = "A language model in this page";
    advice =
      "choose a token and a head to see where it looks, and move the temperature. Then load the " +
      "model, type a text of your own, and switch the positions off.";

    ask() {
      const loss = (name) => EXAMPLE.losses[name].sample;
      const [whole, open] = [loss("as trained"), loss("no causal mask")];
      const close = Math.abs(open - whole) < 0.1;
      const numbers = `${fixed(whole)} nats per token with the mask, ${fixed(open)} without`;
      return {
        question:
          "The model below learned behind a causal mask. Take the mask away, and each token may " +
          "look at the tokens after it, also at the one that it is asked to predict. What " +
          "happens to the loss on a text that it never saw?",
        choices: [
          {
            label: "it falls: the answer can be copied",
            right: () => open < whole && !close,
            reply: () =>
              "The answer is in view, but while the mask was on no head had a reason to learn " +
              `where it stands: ${numbers}.`,
          },
          {
            label: "it hardly moves",
            right: () => close,
            reply: () =>
              "Keys that were never in view now take weight from those that always were, in " +
              `every layer: ${numbers}.`,
          },
          {
            label: "it rises",
            right: () => open > whole && !close,
            reply: () =>
              "The answer is in view, but no head has learned to use it, and the weight that now " +
              `goes to later tokens is missing where it was needed: ${numbers}.`,
          },
        ],
      };
    }

    build() {
      this.model = null;
      this.result = this.intact = recorded();
      this.at = this.result.ids.length - 1;
      this.head = EXAMPLE.head;
      this.sampling = { temperature: 1, topK: Infinity, topP: 1 };
      this.switches = { causal: true, scaled: true, positions: true };
      this.removed = new Set();
      this.cached = true;
      this.dice = 1;
      // Of the passage, for each state of the switches that was asked for.
      this.losses = new Map([["as trained", EXAMPLE.losses["as trained"].sample]]);
      this.runs = EXAMPLE.runs.slice(0, 2).map((run) => ({
        ...run,
        prompt: EXAMPLE.text,
        note: `recorded, at temperature ${run.temperature}`,
      }));
      this.speeds = {};
      this.followTheme();
      return [
        this.buildSource(),
        this.buildText(),
        this.buildSplit(),
        (this.sentence = h("p", { class: "instrument-sentence" })),
        this.buildSwitches(),
        this.buildGeneration(),
      ];
    }

    /** A picture does not change its colours with the page by itself, as everything else does. */
    followTheme() {
      const redraw = () => this.drawMaps();
      const theme = { attributeFilter: ["data-theme"] };
      new MutationObserver(redraw).observe(document.documentElement, theme);
      for (const query of ["(forced-colors: active)", "(prefers-color-scheme: dark)"])
        matchMedia(query).addEventListener("change", redraw);
    }

    // Building ------------------------------------------------------------------------------------

    /** Where what is shown comes from: a record, or the model once it is here. */
    buildSource() {
      this.loader = button(`Load the model (${MEGABYTES})`, () => this.load());
      const id = unique("progress");
      this.progress = h("progress", { id, max: 1, value: 0 });
      this.bar = h("label", { for: id, hidden: true }, "Loading ", this.progress);
      this.origin = h(
        "p",
        { tabindex: -1 },
        "What you see now is recorded. The model itself comes when you ask for it, and stays in " +
          "this page.",
      );
      return h("div", { class: "instrument-source" }, this.origin, this.loader, this.bar);
    }

    buildText() {
      const id = unique("text");
      const limits = { rows: 2, maxlength: 600, spellcheck: "false", readonly: true };
      this.text = h("textarea", { id, ...limits });
      this.text.value = EXAMPLE.text;
      this.text.addEventListener("input", () => {
        clearTimeout(this.typing);
        this.typing = setTimeout(() => this.readAgain({ toEnd: true }), PATIENCE_MS);
      });
      this.tokens = h("div", { class: "instrument-tokens", role: "group", "aria-label": "Tokens" });
      this.tokens.addEventListener("keydown", (event) => this.steer(event));
      this.cutNote = h("p", { class: "instrument-note", hidden: true });
      return h(
        "div",
        { class: "instrument-reading" },
        h("label", { class: "instrument-caption", for: id }, "Text"),
        this.text,
        this.cutNote,
        h("p", { class: "instrument-caption" }, "Its tokens", (this.hue = h("small", {}))),
        this.tokens,
      );
    }

    buildSplit() {
      return h(
        "div",
        { class: "instrument-split" },
        h("div", { class: "instrument-reading" }, this.buildHeads()),
        h("div", { class: "instrument-reading" }, this.buildNext()),
      );
    }

    /** A map for each head, of which one is chosen: radio buttons, so that arrow keys move. */
    buildHeads() {
      const name = unique("head");
      this.maps = Array.from({ length: LAYERS }, (_, layer) =>
        Array.from({ length: HEADS }, (_, head) => {
          const input = h("input", {
            type: "radio",
            name,
            checked: layer === this.head[0] && head === this.head[1],
            change: () => {
              this.head = [layer, head];
              this.changed();
            },
          });
          const canvas = h("canvas", { "aria-hidden": "true" });
          const row = h("span", { class: "instrument-row" });
          const words = h("span", { class: "instrument-map-name" });
          const label = h(
            "label",
            { class: "instrument-map" },
            input,
            h("span", { class: "instrument-square" }, canvas, row),
            words,
          );
          return { input, canvas, row, words, label };
        }),
      );
      this.headToggle = toggle("", true, (on) => {
        const key = this.head.join(" ");
        this.removed[on ? "delete" : "add"](key);
        this.readAgain();
      });
      this.headInWords = h("p", { class: "instrument-note" });
      return [
        h(
          "fieldset",
          { class: "instrument-maps" },
          h(
            "legend",
            { class: "instrument-caption" },
            "Every head’s weights",
            h("small", {}, "layer.head; queries down, keys across"),
          ),
          this.maps.flat().map(({ label }) => label),
        ),
        this.headInWords,
      ];
    }

    buildNext() {
      this.next = Array.from({ length: SHOWN }, () => {
        const token = h("span", { class: "instrument-candidate" });
        const bar = h("span", { class: "instrument-meter" });
        const number = h("span", { class: "instrument-percent" });
        return { token, bar, number, item: h("li", {}, token, bar, number) };
      });
      this.nextCaption = h("p", { class: "instrument-caption" });
      const move = (name) => (value) => {
        this.sampling[name] = name === "topK" ? TOP_K[value] : value;
        this.changed();
      };
      return [
        this.nextCaption,
        h("ol", { class: "instrument-next" }, this.next.map(({ item }) => item)),
        (this.openNote = h("p", { class: "instrument-note" })),
        slider({
          label: "temperature",
          min: 0,
          max: 2,
          step: 0.1,
          value: 1,
          text: (t) => (t === 0 ? "0, always the first" : t.toFixed(1)),
          input: move("temperature"),
        }),
        slider({
          label: "top-k",
          min: 0,
          max: TOP_K.length - 1,
          value: TOP_K.length - 1,
          text: (i) => (TOP_K[i] === Infinity ? "all" : String(TOP_K[i])),
          input: move("topK"),
        }),
        slider({
          label: "top-p",
          min: 0.05,
          max: 1,
          step: 0.05,
          value: 1,
          text: (p) => (p === 1 ? "1, all" : p.toFixed(2)),
          input: move("topP"),
        }),
      ];
    }

    /** What can be switched off, and what that costs on two texts. */
    buildSwitches() {
      this.toggles = Object.entries(SWITCHES).map(([key, label]) =>
        toggle(label, true, (on) => {
          this.switches[key] = on;
          this.readAgain();
        }),
      );
      this.restore = button("Put everything back", () => this.putBack());
      const cells = () => [0, 1].map(() => h("td", { class: "instrument-weight" }));
      this.cells = { text: cells(), sample: cells() };
      const head = (words) => h("th", { scope: "col" }, words);
      const row = (name, words) => h("tr", {}, h("th", { scope: "row" }, words), this.cells[name]);
      this.breakage = h(
        "fieldset",
        { class: "instrument-breakage", disabled: true },
        h("legend", { class: "instrument-caption" }, "Switch off, and see what breaks"),
        h(
          "div",
          { class: "instrument-controls" },
          this.toggles,
          this.headToggle,
          this.restore,
        ),
        h(
          "table",
          { class: "instrument-table instrument-losses" },
          h(
            "caption",
            {},
            "Loss in nats per token",
            h("small", {}, `guessing blindly costs ${fixed(Math.log(this.vocabulary))}`),
          ),
          h("thead", {}, h("tr", {}, head("loss on"), head("as trained"), head("as it is now"))),
          h("tbody", {}, row("text", "your text"), row("sample", "a passage kept from training")),
        ),
        h(
          "details",
          { class: "instrument-note" },
          h("summary", {}, "Read the passage"),
          h("p", {}, EXAMPLE.sample),
        ),
      );
      return this.breakage;
    }

    buildGeneration() {
      this.go = button("", () => (this.running ? this.stop() : this.generate()));
      this.other = button("Throw other dice", () => {
        this.dice += 1;
        this.generate();
      });
      this.cacheToggle = toggle("KV cache", true, (on) => {
        this.cached = on;
        this.changed();
      });
      this.cacheNote = h("p", { class: "instrument-note" });
      this.list = h("ol", { class: "instrument-runs", "aria-label": "Generated texts" });
      this.chart = h("figure", { class: "instrument-speed", hidden: true });
      this.generation = h(
        "fieldset",
        { class: "instrument-breakage", disabled: true },
        h("legend", { class: "instrument-caption" }, "Let it go on"),
        h("div", { class: "instrument-controls" }, this.go, this.other, this.cacheToggle),
        this.cacheNote,
      );
      return h("div", { class: "instrument-reading" }, this.generation, this.list, this.chart);
    }

    // Loading -------------------------------------------------------------------------------------

    async load() {
      this.loader.hidden = true;
      this.bar.hidden = false;
      const start = performance.now();
      try {
        await script("transformer.js");
        await script("model.js");
        const file = globalThis.attend.liveModel;
        for (const [i] of file.parts.entries()) {
          await script(`weights-${i + 1}.js`);
          this.progress.value = (i + 1) / file.parts.length;
        }
        this.model = globalThis.attend.transformer.load(file);
        file.parts.fill(null); // the text of the weights is not needed any more
      } catch {
        this.bar.hidden = true;
        this.loader.hidden = false;
        this.origin.textContent =
          "The model could not be loaded. What you see is recorded. You can try again.";
        this.origin.focus({ preventScroll: true });
        return;
      }
      this.bar.hidden = true;
      this.welcome((performance.now() - start) / 1000);
    }

    /** The model is here: everything that waited for it opens. */
    welcome(seconds) {
      const { tensors } = this.model;
      const size = Object.values(tensors).reduce((n, tensor) => n + tensor.length, 0);
      const engine = h("a", { href: new URL("transformer.js", HOME).href }, "Read its engine");
      this.origin.replaceChildren(
        `The model is here: ${(size / 1e6).toFixed(2)} million numbers that learned from Pride and ` +
          `Prejudice, ready after ${seconds.toFixed(1)} seconds. Type below. `,
        engine,
        ".",
      );
      this.text.readOnly = false;
      this.breakage.disabled = false;
      this.generation.disabled = false;
      this.origin.focus({ preventScroll: true });
      this.readAgain();
    }

    // Reading -------------------------------------------------------------------------------------

    get vocabulary() {
      return this.result.logits.length / this.result.ids.length;
    }

    /** What to hand to the engine. */
    get options() {
      return { ...this.switches, removed: this.removed };
    }

    get whole() {
      return Object.values(this.switches).every(Boolean) && this.removed.size === 0;
    }

    /** What is switched off, in words. */
    get state() {
      const off = Object.keys(SWITCHES).filter((key) => !this.switches[key]);
      const words = off.map((key) => `no ${SWITCHES[key]}`);
      const heads = [...this.removed].map((key) => nameOf(key.split(" ").map(Number)));
      if (heads.length) words.push(`no head ${heads.join(", ")}`);
      return words.length ? words.join(", ") : "as trained";
    }

    /** Reads the text anew, after it or a switch has changed. */
    readAgain({ toEnd = false } = {}) {
      clearTimeout(this.typing);
      this.told = this.text.value;
      const text = this.told || "\n"; // something to go on from
      this.result = read(this.model, text, this.options);
      if (this.whole) this.intact = this.result;
      else if (this.intact.text !== text) this.intact = read(this.model, text, {});
      if (toEnd || this.at >= this.result.ids.length) this.at = this.result.ids.length - 1;
      this.changed();
      // The passage is longer than most texts: the reader's own comes first.
      clearTimeout(this.measuring);
      if (!this.losses.has(this.state)) this.measuring = setTimeout(() => this.measure());
    }

    /** The loss on the passage, with the switches as they are. */
    measure() {
      const { forward } = globalThis.attend.transformer;
      const ids = this.model.tokenizer.encode(EXAMPLE.sample);
      const { logits } = forward(this.model, ids, this.options);
      this.losses.set(this.state, mean(surprises(logits, ids)));
      this.changed();
    }

    putBack() {
      for (const key of Object.keys(SWITCHES)) this.switches[key] = true;
      this.removed.clear();
      for (const label of this.toggles) label.querySelector("input").checked = true;
      this.readAgain();
    }

    choose(t) {
      this.at = t;
      this.changed();
      this.tokens.children[t].focus();
    }

    /** Tab reaches one token; arrow keys go on from there. */
    steer(event) {
      const last = this.result.ids.length - 1;
      const target = {
        ArrowLeft: Math.max(0, this.at - 1),
        ArrowRight: Math.min(last, this.at + 1),
        Home: 0,
        End: last,
      }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      this.choose(target);
    }

    // Generating ----------------------------------------------------------------------------------

    stop() {
      this.running = false;
    }

    /** Adds tokens to the text one by one, and takes the time that each of them needs. */
    async generate() {
      if (this.running) return;
      const { Cache, forward } = globalThis.attend.transformer;
      const { temperature, topK, topP } = this.sampling;
      const options = { ...this.switches, removed: new Set(this.removed) }; // as they are now
      const cached = this.cached && options.causal;
      const run = { name: this.state, prompt: this.text.value, text: "", times: [], lengths: [] };
      run.note = cached ? "with the cache" : "without a cache";
      this.runs = [run, ...this.runs].slice(0, 3);
      this.running = true;
      this.update();
      const cache = cached ? new Cache(this.model.config) : null;
      const uniform = uniforms(this.dice);
      const ids = this.result.ids.slice();
      const prompt = ids.length;
      let drawn = performance.now();
      while (this.running && ids.length < prompt + MOST_NEW) {
        const start = performance.now();
        const fresh = cache ? ids.slice(cache.length) : ids;
        const { logits } = forward(this.model, fresh, { ...options, cache, last: true });
        ids.push(drawFrom(nextTokenDistribution(logits, temperature, topK, topP), uniform()));
        run.times.push(performance.now() - start);
        run.lengths.push(ids.length - 1); // tokens that had been read for it
        run.text = this.model.tokenizer.decode(ids.slice(prompt));
        if (performance.now() - drawn > FRAME_MS) {
          this.drawRuns();
          await pause();
          drawn = performance.now();
        }
      }
      this.running = false;
      this.speeds[cached ? "with" : "without"] = run;
      this.news =
        `${run.times.length} tokens added, ${run.name}, ${run.note}, ` +
        `${milliseconds(mean(run.times))} each: ${run.text}`;
      this.changed();
    }

    // Drawing -------------------------------------------------------------------------------------

    update() {
      this.drawTokens();
      this.drawMaps();
      this.drawNext();
      this.drawLosses();
      this.drawRuns();
      this.drawSpeed();
      this.sentence.textContent = this.tell();
    }

    /** The chosen head's weights from the chosen token, one for each token. */
    weightsFrom(t, [layer, head] = this.head) {
      const T = this.result.ids.length;
      return this.result.weights[layer][head].subarray(t * T, (t + 1) * T);
    }

    drawTokens() {
      const { ids, name, cut } = this.result;
      const weights = this.weightsFrom(this.at);
      const focused = this.tokens.contains(document.activeElement);
      while (this.tokens.children.length > ids.length) this.tokens.lastChild.remove();
      ids.forEach((id, t) => {
        let token = this.tokens.children[t];
        if (!token) {
          token = button("", () => this.choose(t));
          this.tokens.append(token);
        }
        const chosen = t === this.at;
        token.className = "instrument-token";
        token.textContent = visible(name(id));
        token.tabIndex = chosen ? 0 : -1;
        set(token, "aria-pressed", String(chosen));
        const surprise = this.result.surprises[t - 1]; // nobody predicted the first
        const words = surprise === undefined ? "" : `, surprise ${nats(surprise)}`;
        set(token, "aria-label", `${spoken(name(id))}${words}, weight ${fixed(weights[t])}`);
        token.style.setProperty("--weight", weights[t]);
        token.style.setProperty("--surprise", Math.min(1, (surprise ?? 0) / FULL_NATS));
      });
      if (focused) this.tokens.children[this.at].focus();
      this.hue.textContent =
        `filled by the weight that head ${nameOf(this.head)} gives them from the chosen one; ` +
        `underlined by the surprise at them, in full from ${FULL_NATS} nats`;
      this.cutNote.hidden = !cut;
      this.cutNote.textContent = `Only the last ${MOST_READ} tokens are read; ${cut} are left out.`;
    }

    drawMaps() {
      const T = this.result.ids.length;
      const colour = getComputedStyle(this.maps[0][0].canvas).color;
      const fresh = this.painted?.result !== this.result || this.painted.colour !== colour;
      this.painted = { result: this.result, colour };
      this.maps.forEach((heads, layer) =>
        heads.forEach(({ input, canvas, row, words, label }, head) => {
          const gone = this.removed.has(`${layer} ${head}`);
          const chosen = layer === this.head[0] && head === this.head[1];
          if (chosen) input.checked = true;
          label.classList.toggle("instrument-gone", gone);
          words.textContent = gone ? `${nameOf([layer, head])} off` : nameOf([layer, head]);
          set(input, "aria-label", `head ${nameOf([layer, head])}: ${this.habit([layer, head])}`);
          row.style.setProperty("--row", this.at / T);
          row.style.setProperty("--rows", 1 / T);
          if (fresh) paint(canvas, this.result.weights[layer][head], T, colour);
        }),
      );
      const name = `head ${nameOf(this.head)}`;
      this.headInWords.textContent = `On average ${name} gives ${this.habit(this.head)}.`;
      this.headToggle.querySelector("span").textContent = `${name}, chosen above`;
      this.headToggle.querySelector("input").checked = !this.removed.has(this.head.join(" "));
    }

    /** Where a head's weight goes on average, in words with numbers. */
    habit(head) {
      const T = this.result.ids.length;
      const rows = Array.from({ length: T }, (_, t) => this.weightsFrom(t, head));
      const later = rows.slice(1); // the first token has nothing to choose from
      if (later.length === 0) return "there is only one token";
      const share = (of) => percent(mean(later.map((row, i) => of(row, i + 1))));
      return (
        `${share((row, t) => row[t])} to the token itself, ` +
        `${share((row, t) => row[t - 1])} to the one before it, ` +
        `${share((row) => row[0])} to the first`
      );
    }

    drawNext() {
      const { name, ids } = this.result;
      const row = rowOf(this.result, this.at);
      const { temperature, topK, topP } = this.sampling;
      this.p = nextTokenDistribution(row, temperature, topK, topP);
      const intact = nextTokenDistribution(rowOf(this.intact, this.at), temperature, topK, topP);
      this.order = [...row.keys()].sort((a, b) => row[b] - row[a] || a - b);
      this.nextCaption.replaceChildren("After ", h("em", {}, visible(name(ids[this.at]))));
      this.next.forEach(({ token, bar, number, item }, rank) => {
        const id = this.order[rank];
        const p = this.p[id];
        token.textContent = visible(name(id));
        number.textContent = p > 0 ? percent(p) : "never";
        bar.style.setProperty("--weight", p);
        bar.style.setProperty("--intact", intact[id]);
        bar.classList.toggle("instrument-compared", !this.whole);
        item.classList.toggle("instrument-out", p === 0);
      });
      const rest = this.order.slice(SHOWN).reduce((mass, id) => mass + this.p[id], 0);
      const open = this.p.filter((p) => p > 0).length;
      this.openNote.textContent =
        `All others together ${percent(rest)}. ${open} of ${this.vocabulary} tokens can be ` +
        `drawn; their entropy is ${fixed(rowEntropy(this.p))} nats.` +
        (this.whole ? "" : " The line in a bar is where the model as trained ends.");
    }

    drawLosses() {
      const now = { text: mean(this.result.surprises), sample: this.losses.get(this.state) };
      const whole = {
        text: mean(this.intact.surprises),
        sample: this.losses.get("as trained"),
      };
      for (const name of ["text", "sample"]) {
        [whole[name], now[name]].forEach((loss, i) => {
          const cell = this.cells[name][i];
          const known = this.revealed && loss > 0;
          const unknown = Number.isNaN(loss) ? "–" : "…"; // one token has nothing to predict
          cell.textContent = known ? fixed(loss) : this.revealed ? unknown : "?";
          if (known && i === 1 && !this.whole && whole[name] !== undefined) {
            const rise = loss - whole[name];
            cell.textContent += ` (${rise < 0 ? "" : "+"}${fixed(rise)})`;
          }
          cell.style.setProperty("--weight", known ? Math.min(1, loss / 10) : 0);
        });
      }
      this.restore.disabled = this.whole;
    }

    drawRuns() {
      const on = this.switches.causal;
      this.go.textContent = this.running ? "Stop" : `Add ${MOST_NEW} tokens`;
      this.other.disabled = Boolean(this.running);
      const cache = this.cacheToggle.querySelector("input");
      cache.disabled = !on;
      cache.checked = this.cached && on;
      this.cacheNote.textContent = on
        ? "The dice are the same each time: with the cache or without, the text is the same."
        : "Without the mask, a new token changes the keys and values of all earlier ones. " +
          "Nothing can be kept, so there is no cache.";
      this.list.replaceChildren(
        ...this.runs.map(({ name, prompt, text, note, times }) =>
          h(
            "li",
            {},
            h("strong", {}, `${name[0].toUpperCase()}${name.slice(1)}`),
            h("small", {}, times?.length ? `${note}, ${milliseconds(mean(times))} a token` : note),
            h("p", {}, h("span", { class: "instrument-prompt" }, prompt), text),
          ),
        ),
      );
      if (!this.revealed) this.list.replaceChildren();
    }

    /** Milliseconds of each token against the number of tokens before it, for both ways. */
    drawSpeed() {
      const runs = Object.entries(this.speeds).filter(([, run]) => run.times.length > 1);
      this.chart.hidden = runs.length === 0;
      if (runs.length === 0) return;
      const highest = Math.max(...runs.flatMap(([, run]) => run.times));
      const furthest = Math.max(...runs.flatMap(([, run]) => run.lengths));
      const x = linear([0, furthest], [44, 372]);
      const y = linear([0, highest], [150, 14]);
      const path = ({ lengths, times }) =>
        `M${lengths.map((n, i) => `${x(n).toFixed(1)} ${y(times[i]).toFixed(1)}`).join("L")}`;
      const looks = { with: "instrument-scaled", without: "instrument-unscaled" };
      const words = this.speedInWords();
      const tick = (anchor, px, py, text) =>
        s("text", { class: "instrument-tick", x: px, y: py, "text-anchor": anchor }, text);
      this.chart.replaceChildren(
        h(
          "figcaption",
          { class: "instrument-caption" },
          "Time for each token",
          h("small", {}, words),
        ),
        s(
          "svg",
          { viewBox: "0 0 380 180", role: "img", "aria-label": `Time for each token. ${words}` },
          s("path", { class: "instrument-axis", d: "M44 14V150H372", fill: "none" }),
          tick("end", 40, 154, "0"),
          tick("end", 40, 20, milliseconds(highest)),
          tick("start", 44, 168, "0"),
          tick("end", 372, 168, `${furthest} tokens before it`),
          runs.map(([way, run]) =>
            s("path", { class: `instrument-curve ${looks[way]}`, d: path(run) }),
          ),
        ),
        h(
          "p",
          { class: "instrument-legend" },
          runs.map(([way]) =>
            h(
              "span",
              {},
              s(
                "svg",
                { class: "instrument-key-line", viewBox: "0 0 28 8", "aria-hidden": "true" },
                s("path", { class: `instrument-curve ${looks[way]}`, d: "M1 4H27" }),
              ),
              ` ${way === "with" ? "with the cache" : "without"}`,
            ),
          ),
        ),
      );
    }

    /** The last token's time both ways. The first is left out: it reads the whole prompt. */
    speedInWords() {
      const late = ({ times }) => mean(times.slice(1).slice(-10));
      const { with: kept, without } = this.speeds;
      const told = (run, way) => `${milliseconds(late(run))} ${way}`;
      const parts = [];
      if (kept?.times.length > 1) parts.push(told(kept, "with the cache"));
      if (without?.times.length > 1) parts.push(told(without, "without"));
      const ratio = () => `, ${fixed(late(without) / late(kept), 0)} times as long`;
      return `the last tokens took ${parts.join(", ")}${parts.length === 2 ? ratio() : ""}.`;
    }

    // Words ---------------------------------------------------------------------------------------

    /** The present state in words; `quote` writes a token, for the eye or for the ear. */
    tell(quote = written) {
      const { ids, name } = this.result;
      const chosen = name(ids[this.at]);
      const weights = this.weightsFrom(this.at);
      const most = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, 3);
      const looks = most
        .filter((t) => weights[t] >= 0.005)
        .map((t) => `${quote(name(ids[t]))} (token ${t + 1}) ${fixed(weights[t])}`)
        .join(", ");
      const best = this.order[0];
      const follows = ids[this.at + 1];
      const truth =
        follows === undefined
          ? ""
          : ` In the text ${quote(name(follows))} follows; it has ${percent(this.p[follows])}.`;
      const place = `From ${quote(chosen)}, token ${this.at + 1} of ${ids.length}`;
      return (
        `${place}, head ${nameOf(this.head)} looks at ${looks}. The next token is most likely ` +
        `${quote(name(best))}, with ${percent(this.p[best])}.${truth}`
      );
    }

    summary() {
      const news = this.news;
      this.news = null;
      if (news) return news;
      const sample = this.losses.get(this.state);
      const loss =
        this.model && !this.whole
          ? `Model ${this.state}: loss on your text ${nats(mean(this.result.surprises))}` +
            `${sample === undefined ? "" : `, on the passage ${nats(sample)}`}. `
          : "";
      return loss + this.tell(spoken);
    }
  }

  const swatch = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  /** Red, green and blue of a colour, however it is written: a pixel that is painted with it. */
  function channels(colour) {
    swatch.fillStyle = colour;
    swatch.clearRect(0, 0, 1, 1);
    swatch.fillRect(0, 0, 1, 1);
    return swatch.getImageData(0, 0, 1, 1).data;
  }

  /** A map of weights: pixel (s, t) is as dark as token t's weight on token s. */
  function paint(canvas, weights, T, colour) {
    canvas.width = canvas.height = T;
    const context = canvas.getContext("2d");
    const [red, green, blue] = channels(colour);
    const image = context.createImageData(T, T);
    weights.forEach((weight, i) => {
      // The root lets small weights be seen; the numbers in the text are the weights themselves.
      image.data.set([red, green, blue, 255 * Math.sqrt(weight)], 4 * i);
    });
    context.putImageData(image, 0, 0);
  }

  Object.assign(LiveModel, { EXAMPLE });
  customElements.define("attend-live-model", LiveModel);
})();
