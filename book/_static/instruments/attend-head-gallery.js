/* <attend-head-gallery> (chapters 06 and 11): what every head of two published models looked at, in a
 * few short texts, and a map of all heads shaded by what they do. The tables are in
 * attend-head-gallery.data.js, made by tools/head_gallery.py.
 *
 * Attributes, all optional: model (smollm2, minilm), text (tired, wide, nurse, twice), layer, head,
 * token (a word of the text), score (a key of SCORES), ask (a key of QUESTIONS). */
(() => {
  "use strict";

  const { Instrument, fixed, h, oneOf, s, set, slider, unique } = globalThis.attend.instrument;
  const { models, texts, census, weights: tables } = globalThis.attend.gallery;

  const SCORES = {
    previous: "to the token before",
    first: "to the first token",
    itself: "to the token itself",
    next: "to the token after",
    last: "to the last token",
    induction: "to what came next the last time",
    duplicate: "to the same token, earlier",
  };
  const TITLES = {
    tired: "The animal … too tired.",
    wide: "The animal … too wide.",
    nurse: "The nurse gave the child …",
    twice: "ten words, twice",
  };
  const MAP = { width: 300, left: 30, top: 14 };
  const MOST = 5; // keys in the table
  const CLEARLY = 0.1; // by how much a weight moves that has moved

  const headName = (layer, head) => `L${layer}H${head}`;
  const bytes = new Map();

  /** The table of a model and a text: tokens, and all weights in 255ths. */
  function tableOf(model, text) {
    const name = `${model} ${text}`;
    if (!bytes.has(name)) {
      const raw = atob(tables[model][text].bytes);
      bytes.set(
        name,
        Uint8Array.from(raw, (c) => c.charCodeAt(0)),
      );
    }
    return { tokens: tables[model][text].tokens, amounts: bytes.get(name) };
  }

  /** One row of weights over all tokens; those that a causal model cannot see are 0. */
  function rowOf(model, text, layer, head, query) {
    const { tokens, amounts } = tableOf(model, text);
    const { causal, heads } = models[model];
    const T = tokens.length;
    const size = causal ? (T * (T + 1)) / 2 : T * T;
    const start = (layer * heads + head) * size + (causal ? (query * (query + 1)) / 2 : query * T);
    const length = causal ? query + 1 : T;
    return tokens.map((_, j) => (j < length ? amounts[start + j] / 255 : 0));
  }

  const placeOf = (model, text, word) => Math.max(0, tables[model][text].tokens.indexOf(word));

  /** How many heads of a model give more than half of their weight to what a score looks at. */
  const specialists = (model, score) => census[model][score].filter((x) => x > 0.5).length;

  /** The head with the largest score. */
  function best(model, score) {
    const scores = census[model][score];
    const place = scores.indexOf(Math.max(...scores));
    const { heads } = models[model];
    return { layer: Math.floor(place / heads), head: place % heads, score: scores[place] };
  }

  /** In how many heads of a model some weight in the row of "it" differs by more than `least` between
   *  the two animal sentences. */
  function changedRows(model, least) {
    const { layers, heads } = models[model];
    const at = placeOf(model, "tired", "it");
    let changed = 0;
    for (let layer = 0; layer < layers; layer += 1)
      for (let head = 0; head < heads; head += 1) {
        const [a, b] = ["tired", "wide"].map((text) => rowOf(model, text, layer, head, at));
        if (a.some((weight, j) => Math.abs(weight - b[j]) > least)) changed += 1;
      }
    return changed;
  }

  function howMany(score, where, advice) {
    const all = models.smollm2.layers * models.smollm2.heads;
    const count = specialists("smollm2", score);
    const { layer, head, score: most } = best("smollm2", score);
    const reply = () =>
      `It is ${count} of ${all}. The largest is ${headName(layer, head)}, with ${fixed(most)}.`;
    return {
      question:
        `${models.smollm2.name} has ${all} heads. On pages of a novel, how many of them give more ` +
        `than half of their weight ${where}?`,
      choices: [
        { label: "fewer than 20", right: () => count < 20, reply },
        { label: "20 to 135", right: () => count >= 20 && count <= 135, reply },
        { label: "more than 135", right: () => count > 135, reply },
      ],
      advice,
    };
  }

  const QUESTIONS = {
    previous: () =>
      howMany(
        "previous",
        "to the token just before the one that asks",
        "point at words and see where they look. Then shade the map by the first token, and count " +
          "again.",
      ),
    first: () =>
      howMany(
        "first",
        "to the first token of the text, whatever it is",
        "go through the layers of one head, and see where the first token begins to get most.",
      ),
    itself: () =>
      howMany(
        "itself",
        "to the token itself",
        "point at words and see where they look. Then shade the map by the first token, and count " +
          "again.",
      ),
    ending: () => {
      const { layers, heads, name } = models.minilm;
      const all = layers * heads;
      const moved = changedRows("minilm", CLEARLY);
      const reply = () =>
        `It is ${moved} of ${all}. In ${models.smollm2.name}, which reads “it” before it has seen the ` +
        `last word, a weight of “it” moves in ${changedRows("smollm2", 0)} of ` +
        `${models.smollm2.layers * models.smollm2.heads}.`;
      return {
        question:
          `The last word of the sentence changes from “tired” to “wide”. ${name} sees both ways. In ` +
          `how many of its ${all} heads does any weight in the row of “it” move by more than ${CLEARLY}?`,
        choices: [
          { label: "nearly all, more than 60", right: () => moved > 60, reply },
          { label: "20 to 60", right: () => moved >= 20 && moved <= 60, reply },
          { label: "fewer than 20", right: () => moved < 20, reply },
        ],
        advice:
          "change the text from tired to wide and back with “it” chosen, in this model and in the " +
          "other.",
      };
    },
  };

  /** A labelled list of which one is chosen. */
  function choose(label, options, value, change) {
    const id = unique("select");
    return h(
      "label",
      { class: "instrument-choose", for: id },
      h("span", {}, label),
      h(
        "select",
        { id, change: (event) => change(event.target.value) },
        options.map(([key, words]) =>
          h("option", { value: key, selected: key === value }, words),
        ),
      ),
    );
  }

  class HeadGallery extends Instrument {
    heading = "A gallery of heads";

    get advice() {
      return this.asked.advice;
    }

    ask() {
      this.asked = QUESTIONS[this.given("ask", QUESTIONS, "previous")]();
      return this.asked;
    }

    /** An attribute, if its value is known. */
    given(name, known, otherwise) {
      const value = this.getAttribute(name);
      return value !== null && value in known ? value : otherwise;
    }

    build() {
      this.model = this.given("model", models, "smollm2");
      this.text = this.given("text", texts, "tired");
      this.score = this.given("score", census[this.model], this.given("ask", SCORES, "previous"));
      const first = best(this.model, this.score);
      const number = (name, otherwise, end) =>
        Math.min(Math.max(Number(this.getAttribute(name) ?? otherwise) || 0, 0), end - 1);
      this.layer = number("layer", first.layer, models[this.model].layers);
      this.head = number("head", first.head, models[this.model].heads);
      this.query = placeOf(this.model, this.text, this.getAttribute("token") ?? "it");
      return [
        h(
          "div",
          { class: "instrument-controls" },
          oneOf(
            "Model",
            Object.entries(models).map(([value, { name, causal }]) => ({
              value,
              label: `${name}, ${causal ? "causal" : "sees both ways"}`,
            })),
            this.model,
            (model) => this.changeModel(model),
          ),
          h(
            "div",
            { class: "instrument-pair" },
            choose("Text", Object.entries(TITLES), this.text, (text) => {
              this.moveTo(text);
              this.changed();
            }),
            (this.scoreBox = h("div", { class: "instrument-choose" })),
          ),
          h(
            "div",
            { class: "instrument-pair" },
            (this.layerBox = h("div", { class: "instrument-slider" })),
            (this.headBox = h("div", { class: "instrument-slider" })),
          ),
        ),
        h(
          "div",
          {},
          (this.mapCaption = h("p", { class: "instrument-caption" })),
          (this.map = s("svg", {
            class: "instrument-heads",
            role: "img",
            click: (event) => this.pick(event),
          })),
        ),
        h(
          "div",
          {},
          (this.lineCaption = h("p", { class: "instrument-caption" })),
          (this.line = h("div", { class: "instrument-words", role: "group" })),
        ),
        h(
          "div",
          { class: "instrument-split" },
          h(
            "div",
            {},
            h(
              "p",
              { class: "instrument-caption" },
              "All rows of this head",
              h("small", {}, "queries down, keys across"),
            ),
            (this.matrix = s("svg", {
              class: "instrument-matrix",
              role: "img",
              pointermove: (event) => this.hover(event),
              click: (event) => this.hover(event),
            })),
          ),
          this.buildTable(),
        ),
        (this.sentence = h("p", { class: "instrument-sentence" })),
        h(
          "p",
          { class: "instrument-note" },
          "Weights are rounded to 255ths. Layers and heads are counted from 0. The map is measured on " +
            "other texts than the one that is shown. SmolLM2-135M is the Instruct version, " +
            "quantised (Q4_1).",
        ),
        this.fitControls(),
        this.fitText(),
      ];
    }

    buildTable() {
      this.rows = Array.from({ length: MOST }, () => ({
        token: h("th", { scope: "row" }),
        weight: h("td", { class: "instrument-weight" }),
      }));
      this.tableCaption = h("caption", {});
      return h(
        "table",
        { class: "instrument-table" },
        this.tableCaption,
        h(
          "thead",
          {},
          h("tr", {}, h("th", { scope: "col" }, "token"), h("th", { scope: "col" }, "weight")),
        ),
        h(
          "tbody",
          {},
          this.rows.map(({ token, weight }) => h("tr", {}, token, weight)),
        ),
      );
    }

    /** Controls whose range depends on the model. */
    fitControls() {
      const { layers, heads } = models[this.model];
      const range = (label, max, value, input) =>
        slider({ label, min: 0, max, value, text: String, input }).childNodes;
      const relabel = (box, label, max, value, input) => {
        const parts = h("label", {}, ...range(label, max, value, input));
        parts.htmlFor = parts.querySelector("input").id;
        parts.className = "instrument-slider";
        box.replaceChildren(parts);
      };
      relabel(this.layerBox, "layer", layers - 1, this.layer, (layer) => {
        this.layer = layer;
        this.changed();
      });
      relabel(this.headBox, "head", heads - 1, this.head, (head) => {
        this.head = head;
        this.changed();
      });
      const options = Object.entries(SCORES).filter(([key]) => key in census[this.model]);
      this.scoreBox.replaceChildren(
        choose("Map: mean weight …", options, this.score, (score) => {
          this.score = score;
          this.changed();
        }),
      );
      return [];
    }

    /** The tokens as buttons, and the cells of both pictures, made anew for a model and a text. */
    fitText() {
      const { tokens } = tableOf(this.model, this.text);
      this.buttons = tokens.map((token, i) =>
        h(
          "button",
          {
            type: "button",
            class: "instrument-word",
            pointerenter: () => this.look(i),
            focus: () => this.look(i),
            click: () => this.look(i),
            keydown: (event) => this.steer(event, i),
          },
          token,
        ),
      );
      this.line.replaceChildren(...this.buttons);
      set(this.matrix, "viewBox", `0 0 ${tokens.length} ${tokens.length}`);
      this.squares = tokens.map((_, i) =>
        tokens.map((_, j) =>
          s("rect", { x: j, y: i, width: 1, height: 1, class: "instrument-square" }),
        ),
      );
      this.bar = s("rect", { x: 0, width: tokens.length, height: 1, class: "instrument-row" });
      this.matrix.replaceChildren(...this.squares.flat(), this.bar);
      return [];
    }

    changeModel(model) {
      const word = tableOf(this.model, this.text).tokens[this.query];
      this.model = model;
      if (!(this.score in census[model])) this.score = "previous";
      Object.assign(this, best(model, this.score), { score: this.score });
      this.fitControls();
      this.moveTo(this.text, word);
      this.changed();
    }

    /** Shows another text; the same word goes on asking, if it is there. */
    moveTo(text, word = tableOf(this.model, this.text).tokens[this.query]) {
      this.text = text;
      const place = tableOf(this.model, text).tokens.findIndex(
        (token) => token.toLowerCase() === word.toLowerCase(),
      );
      const last = tableOf(this.model, text).tokens.length - 1;
      this.query = place < 0 ? Math.min(this.query, last) : place;
      this.fitText();
    }

    look(i) {
      if (i === this.query) return;
      this.query = i;
      this.changed();
    }

    /** Only one token is a stop of the Tab key; arrow keys go from token to token. */
    steer(event, i) {
      const last = this.buttons.length - 1;
      const target = {
        ArrowLeft: Math.max(0, i - 1),
        ArrowRight: Math.min(last, i + 1),
        ArrowUp: Math.max(0, i - 1),
        ArrowDown: Math.min(last, i + 1),
        Home: 0,
        End: last,
      }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      this.buttons[target].focus();
    }

    /** The row of the large picture under the pointer. */
    hover(event) {
      const box = this.matrix.getBoundingClientRect();
      const T = this.buttons.length;
      const i = Math.floor(((event.clientY - box.top) / box.height) * T);
      this.look(Math.min(Math.max(i, 0), T - 1));
    }

    /** The head of the map that was pressed; the sliders are its equal for the keyboard. */
    pick(event) {
      const { layers, heads } = models[this.model];
      const box = this.map.getBoundingClientRect();
      const unit = box.width / MAP.width;
      const { cell } = this.mapSize();
      const at = (offset, start) => Math.floor((offset / unit - start) / cell);
      const layer = at(event.clientX - box.left, MAP.left);
      const head = at(event.clientY - box.top, MAP.top);
      if (layer < 0 || layer >= layers || head < 0 || head >= heads) return;
      Object.assign(this, { layer, head });
      this.fitControls();
      this.changed();
    }

    mapSize() {
      const { layers, heads } = models[this.model];
      const cell = Math.min((MAP.width - MAP.left) / layers, 11);
      return { cell, height: MAP.top + heads * cell + 1 };
    }

    drawMap() {
      const { layers, heads, name } = models[this.model];
      const { cell, height } = this.mapSize();
      const scores = census[this.model][this.score];
      const cells = scores.map((score, n) => {
        const [layer, head] = [Math.floor(n / heads), n % heads];
        return s("rect", {
          class: "instrument-head-cell",
          x: MAP.left + layer * cell + 0.4,
          y: MAP.top + head * cell + 0.4,
          width: cell - 0.8,
          height: cell - 0.8,
          "fill-opacity": this.revealed ? score : 0,
        });
      });
      const chosen = s("rect", {
        class: "instrument-head-chosen",
        x: MAP.left + this.layer * cell - 0.3,
        y: MAP.top + this.head * cell - 0.3,
        width: cell + 0.6,
        height: cell + 0.6,
      });
      const label = (x, y, text, anchor) =>
        s("text", { x, y, "text-anchor": anchor, class: "instrument-map-label" }, text);
      const middle = (n) => (n + 0.5) * cell;
      const count = specialists(this.model, this.score);
      set(this.map, "viewBox", `0 0 ${MAP.width} ${height}`);
      set(
        this.map,
        "aria-label",
        `Map of ${layers} layers, left to right, by ${heads} heads, top to bottom. ` +
          (this.revealed
            ? `${count} heads give more than half of their weight ${SCORES[this.score]}.`
            : "Not shaded yet."),
      );
      this.map.replaceChildren(
        label(MAP.left + middle(0), MAP.top - 4, "0", "middle"),
        label(MAP.left + middle(layers - 1), MAP.top - 4, String(layers - 1), "middle"),
        label(MAP.left + middle((layers - 1) / 2), MAP.top - 4, "layer", "middle"),
        label(MAP.left - 4, MAP.top + middle(0) + 3, "0", "end"),
        label(MAP.left - 4, MAP.top + middle(heads - 1) + 3, String(heads - 1), "end"),
        label(0, MAP.top + middle((heads - 1) / 2) + 3, "head", "start"),
        ...cells,
        chosen,
      );
      this.mapCaption.replaceChildren(
        `All ${layers * heads} heads of ${name}`,
        h("small", {}, `fuller: more weight ${SCORES[this.score]}`),
        this.revealed
          ? h("small", {}, `${count} of ${layers * heads} give it more than half`)
          : "",
      );
    }

    row(query = this.query) {
      return rowOf(this.model, this.text, this.layer, this.head, query);
    }

    /** The keys with the largest weights, and these. */
    largest() {
      const row = this.row();
      const { tokens } = tableOf(this.model, this.text);
      return row
        .map((weight, j) => ({ weight, token: tokens[j], j }))
        .sort((a, b) => b.weight - a.weight || a.j - b.j)
        .slice(0, MOST)
        .filter(({ weight }) => weight > 0);
    }

    update() {
      const { tokens } = tableOf(this.model, this.text);
      const name = headName(this.layer, this.head);
      this.drawMap();
      const row = this.row();
      this.buttons.forEach((button, j) => {
        const weight = this.revealed ? row[j] : 0;
        const asks = j === this.query;
        button.style.setProperty("--weight", weight);
        button.classList.toggle("instrument-seen", weight >= 0.1);
        set(button, "aria-pressed", String(asks));
        button.tabIndex = asks ? 0 : -1;
      });
      this.lineCaption.replaceChildren(
        `Where “${tokens[this.query]}” looks`,
        h("small", {}, "point at a word, or go to it with the arrow keys"),
      );
      set(this.line, "aria-label", "Words of the text: the pressed one asks");
      this.squares.forEach((squares, i) => {
        const weights = this.row(i);
        squares.forEach((square, j) =>
          set(square, "fill-opacity", this.revealed ? weights[j] : 0),
        );
      });
      set(this.bar, "y", this.query);
      set(
        this.matrix,
        "aria-label",
        `${tokens.length} by ${tokens.length} weights of ${name}; rows ask, columns are looked at.`,
      );
      this.tableCaption.textContent = `${name}, row “${tokens[this.query]}”`;
      const shown = this.largest();
      this.rows.forEach(({ token, weight }, n) => {
        const entry = shown[n];
        token.textContent = this.revealed ? (entry?.token ?? "–") : "?";
        weight.textContent = this.revealed ? (entry ? fixed(entry.weight) : "–") : "?";
        weight.style.setProperty("--weight", this.revealed ? (entry?.weight ?? 0) : 0);
      });
      this.sentence.textContent = this.revealed ? this.summary() : "Nothing is shown yet.";
    }

    summary() {
      const { tokens } = tableOf(this.model, this.text);
      const { name, heads, layers } = models[this.model];
      const scores = census[this.model][this.score];
      const mine = scores[this.layer * heads + this.head];
      const rank = scores.filter((score) => score > mine).length + 1;
      const keys = this.largest()
        .slice(0, 3)
        .map(({ token, weight }) => `${token} ${fixed(weight)}`)
        .join(", ");
      return (
        `${name}, layer ${this.layer}, head ${this.head}: “${tokens[this.query]}” looks at ${keys}. ` +
        `In other texts this head gives ${fixed(mine)} of its weight ${SCORES[this.score]}: ` +
        `rank ${rank} of ${layers * heads}.`
      );
    }
  }

  Object.assign(HeadGallery, { best, changedRows, rowOf, specialists });
  customElements.define("attend-head-gallery", HeadGallery);
})();
