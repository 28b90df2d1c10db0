/* <attend-mask> (chapter 05): a 5 × 5 mask whose cells one switches; the weights renormalise, a light
 * says whether a later word can change what an earlier one gets, and the wrong way is one click away. */
(() => {
  "use strict";

  const { causalMask, leaks, maskAfterSoftmax, maskedSoftmax } = globalThis.attend.attention;
  const { Instrument, button, fixed, h, oneOf, set } = globalThis.attend.instrument;

  const TOKENS = ["because", "it", "was", "too", "tired"];
  const T = TOKENS.length;
  // Made up for the picture, and already divided by √d_k. "it" looks for the word that explains it.
  const SCORES = [
    [1.2, 0.4, 0.1, 0.2, 0.9],
    [0.3, 0.8, 0.2, 0.1, 1.9],
    [0.2, 1.3, 0.6, 0.3, 1.1],
    [0.1, 0.2, 0.9, 0.5, 1.4],
    [0.4, 1.6, 0.7, 1.0, 0.8],
  ];
  // Any values would do: the leak test looks at whether outputs change, not at what they are.
  const VALUES = TOKENS.map((_, i) => [Math.cos(i), Math.sin(i)]);

  const WAYS = {
    before: { weigh: maskedSoftmax, label: "before the softmax" },
    after: { weigh: maskAfterSoftmax, label: "after it (wrong)" },
  };
  const everything = () => TOKENS.map(() => TOKENS.map(() => true));
  const sum = (row) => row.reduce((a, b) => a + b, 0);

  class Mask extends Instrument {
    heading = "Who may see whom";
    advice =
      "press cells to open and shut them. Keep the causal mask, put it after the softmax, " +
      "and watch the sums and the light.";

    ask() {
      const full = maskedSoftmax(SCORES[1], everything()[1]);
      const causal = maskedSoftmax(SCORES[1], causalMask(T)[1]);
      const left = fixed(full[0] + full[1]);
      const equal = (a, b) => Math.abs(a - b) < 1e-9;
      const result = `${TOKENS[0]} ${fixed(full[0])} → ${fixed(causal[0])}, ${TOKENS[1]} ${fixed(full[1])} → ${fixed(causal[1])}`;
      return {
        question: [
          "Row ",
          h("em", {}, "it"),
          ` gives ${fixed(full[4])} to `,
          h("em", {}, "tired"),
          ", which comes later. The causal mask shuts all later words. What becomes of their share?",
        ],
        choices: [
          {
            label: "it is lost",
            right: () => equal(causal[0], full[0]) && equal(causal[1], full[1]),
            reply: () =>
              `The row would then sum to ${left}. That is the mistake of masking after the softmax; ` +
              `before it, the row sums to 1 again: ${result}.`,
          },
          {
            label: "split evenly over the words left",
            right: () => equal(causal[0] - full[0], causal[1] - full[1]),
            reply: () =>
              `The words left keep their ratio, exp(score) to exp(score), so the larger one gains more: ${result}.`,
          },
          {
            label: "split in proportion to their weights",
            right: () => equal(causal[0] / causal[1], full[0] / full[1]),
            reply: () =>
              `A shut score counts exp(−∞) = 0, and the others keep their ratio: ${result}.`,
          },
        ],
      };
    }

    build() {
      this.mask = everything();
      this.way = "before";
      this.active = [1, 4]; // the one cell of the grid that Tab reaches
      return [
        h(
          "div",
          { class: "instrument-controls" },
          oneOf(
            "Mask applied",
            Object.entries(WAYS).map(([value, { label }]) => ({ value, label })),
            this.way,
            (way) => {
              this.way = way;
              this.changed();
            },
          ),
          h(
            "div",
            { class: "instrument-buttons" },
            button("Causal", () => this.apply(causalMask(T))),
            button("All open", () => this.apply(everything())),
          ),
        ),
        this.buildGrid(),
        (this.light = h("p", { class: "instrument-light" })),
        (this.sentence = h("p", { class: "instrument-sentence" })),
        h(
          "p",
          { class: "instrument-note" },
          "Rows are queries, columns are keys. The scores are made up; the arithmetic is that of the chapter.",
        ),
      ];
    }

    buildGrid() {
      this.sums = TOKENS.map(() => h("td", { role: "gridcell", class: "instrument-sum" }));
      this.cells = TOKENS.map((query, i) =>
        TOKENS.map((key, j) =>
          h("button", {
            type: "button",
            class: `instrument-cell${j > i ? " instrument-later" : ""}`,
            click: () => this.press(i, j),
            keydown: (event) => this.steer(event, i, j),
            focus: () => this.rove(i, j),
          }),
        ),
      );
      const cell = (node) => h("td", { role: "gridcell" }, node);
      const header = (scope, look, ...words) =>
        h(
          "th",
          { scope, role: scope === "col" ? "columnheader" : "rowheader", class: look },
          h("span", {}, words),
        );
      this.rows = TOKENS.map((word, i) =>
        h(
          "tr",
          { role: "row" },
          header("row", "instrument-query", word),
          this.cells[i].map(cell),
          this.sums[i],
        ),
      );
      return h(
        "table",
        { class: "instrument-grid", role: "grid", "aria-label": "Weights and mask" },
        h(
          "thead",
          { role: "rowgroup" },
          h(
            "tr",
            { role: "row" },
            header(
              "col",
              "instrument-corner",
              h("span", {}, "query ↓"),
              " ",
              h("span", {}, "key →"),
            ),
            TOKENS.map((word) => header("col", "instrument-key", word)),
            header("col", "instrument-corner", "sum"),
          ),
        ),
        h("tbody", { role: "rowgroup" }, this.rows),
      );
    }

    onReveal() {
      this.mask = causalMask(T);
    }

    apply(mask) {
      this.mask = mask;
      this.changed();
    }

    press(i, j) {
      this.mask = this.mask.map((row, r) =>
        row.map((open, c) => (r === i && c === j ? !open : open)),
      );
      this.rove(i, j);
      this.changed();
    }

    /** Only one cell is a stop of the Tab key; arrow keys go from cell to cell. */
    rove(i, j) {
      this.active = [i, j];
      this.cells.forEach((row, r) =>
        row.forEach((cell, c) => {
          cell.tabIndex = r === i && c === j ? 0 : -1;
        }),
      );
      this.rows.forEach((row, r) => row.classList.toggle("instrument-chosen", r === i));
      this.sentence.replaceChildren(...this.inWords(this.result().weights));
    }

    steer(event, i, j) {
      const last = T - 1;
      const target = {
        ArrowLeft: [i, Math.max(0, j - 1)],
        ArrowRight: [i, Math.min(last, j + 1)],
        ArrowUp: [Math.max(0, i - 1), j],
        ArrowDown: [Math.min(last, i + 1), j],
        Home: [i, 0],
        End: [i, last],
      }[event.key];
      if (!target) return;
      event.preventDefault();
      this.cells[target[0]][target[1]].focus();
    }

    result() {
      const { weigh } = WAYS[this.way];
      return {
        weights: SCORES.map((row, i) => weigh(row, this.mask[i])),
        pairs: leaks(weigh, SCORES, VALUES, this.mask),
      };
    }

    update() {
      const { weights, pairs } = this.result();
      const leaking = new Set(pairs.map(([i, j]) => `${i} ${j}`));
      weights.forEach((row, i) => {
        row.forEach((weight, j) => {
          this.drawCell(i, j, weight, this.revealed && leaking.has(`${i} ${j}`));
        });
        this.sums[i].textContent = fixed(sum(row));
        this.sums[i].classList.toggle("instrument-wrong", Math.abs(sum(row) - 1) > 1e-9);
      });
      this.rove(...this.active);
      this.drawLight(pairs);
    }

    drawCell(i, j, weight, leak) {
      const cell = this.cells[i][j];
      const open = this.mask[i][j];
      cell.textContent = open ? fixed(weight) : "0";
      cell.style.setProperty("--weight", weight);
      cell.classList.toggle("instrument-shut", !open);
      cell.classList.toggle("instrument-leak", leak);
      set(cell, "aria-pressed", String(open));
      set(
        cell,
        "aria-label",
        `${TOKENS[i]} sees ${TOKENS[j]}: weight ${open ? fixed(weight) : "0"}${leak ? ", leak" : ""}`,
      );
    }

    drawLight(pairs) {
      this.light.hidden = !this.revealed;
      set(this.light, "data-leak", pairs.length > 0);
      this.light.replaceChildren(
        h("strong", {}, pairs.length ? "Leak" : "No leak"),
        h("span", {}, this.leakInWords(pairs)),
      );
    }

    leakInWords(pairs) {
      if (!pairs.length) return "Changing a later word changes nothing at an earlier one.";
      const open = pairs.filter(([i, j]) => this.mask[i][j]);
      const [i, j] = open[0] ?? pairs[0];
      const which = `Changing “${TOKENS[j]}” changes what “${TOKENS[i]}” gets`;
      const rest = pairs.length > 1 ? `, and ${pairs.length - 1} more such pairs` : "";
      return open.length
        ? `${which}${rest}.`
        : `${which}${rest}: shut scores are still in the sum that the softmax divides by.`;
    }

    inWords(weights) {
      const [i] = this.active;
      const empty = this.mask[i].every((open) => !open);
      const off = weights.map(sum).filter((total) => Math.abs(total - 1) > 1e-9).length;
      const row = TOKENS.map((word, j) => `${word} ${fixed(weights[i][j])}`).join(", ");
      const text = [h("em", {}, TOKENS[i]), `: ${row}; sum ${fixed(sum(weights[i]))}.`];
      if (empty) text.push(" A row that may see nothing is all zeros, by agreement.");
      if (this.way === "after" && off) text.push(` ${off} of ${T} rows no longer sum to 1.`);
      return text;
    }

    summary() {
      const { weights, pairs } = this.result();
      const [i] = this.active;
      const row = TOKENS.map((word, j) => `${word} ${fixed(weights[i][j])}`).join(", ");
      return `Row ${TOKENS[i]}: ${row}, sum ${fixed(sum(weights[i]))}. ${pairs.length ? "Leak" : "No leak"}.`;
    }
  }

  Object.assign(Mask, { SCORES, TOKENS, VALUES });
  customElements.define("attend-mask", Mask);
})();
