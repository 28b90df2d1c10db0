/* <attend-tiles> (chapter 10): one query's row of scores, seen tile by tile: the running maximum, sum
 * and output of the online softmax, and what becomes of them if the old part is not rescaled. */
(() => {
  "use strict";

  const { blend, mergeSoftmaxBlocks, normals, softmax, softmaxBlock } = globalThis.attend.attention;
  const { Instrument, button, fixed, h, oneOf, set, slider, toggle } = globalThis.attend.instrument;

  const KEYS = 6;
  const SCORES = [0, 2, 5, 1, 4, 0.5]; // not those of the page's example
  const VALUES = [1, -1, 2, 0.5, -2, 3];
  const EMPTY = { max: -Infinity, sum: 0, output: [0] };
  const STATES = ["kept so far", "this tile", "together"];
  const PARTS = ["max", "sum", "output", "times"];

  /** The first `n` scores and their values, as one block. */
  const blockOf = (scores, from, to) =>
    softmaxBlock(
      scores.slice(from, to),
      VALUES.slice(from, to).map((value) => [value]),
    );

  /** Two blocks as one, the old one left as it is: the mistake that the switch makes. */
  function addWithoutRescaling(old, tile) {
    const right = mergeSoftmaxBlocks({ ...old, sum: 0, output: [0] }, tile);
    return { ...right, sum: old.sum + right.sum, output: [old.output[0] + right.output[0]] };
  }

  /** What is known before, of, and after the last of the tiles up to `seen`. */
  function walk(scores, size, seen, rescale) {
    const merge = rescale ? mergeSoftmaxBlocks : addWithoutRescaling;
    let step = { old: EMPTY, tile: EMPTY, now: EMPTY };
    for (let from = 0; from < seen; from += size) {
      const tile = blockOf(scores, from, from + size);
      step = { old: step.now, tile, now: merge(step.now, tile) };
    }
    return step;
  }

  const factor = (from, to) => (from === -Infinity ? 0 : Math.exp(from - to));
  const short = (x) => fixed(x, Number.isInteger(x) ? 0 : 1);
  /** e to the difference of two scores, as formulas set it. */
  const power = (x, from) => [h("i", {}, "e"), h("sup", {}, `${x}−${from}`)];
  const level = (x) => (x === -Infinity ? "−∞" : fixed(x, 1));

  class Tiles extends Instrument {
    heading = "The online softmax, tile by tile";
    advice =
      "move to the end and compare with the whole softmax. Then switch the rescaling off, and look " +
      "for scores on which that makes no difference.";

    ask() {
      const { old, tile, now } = walk(SCORES, 2, 4, true);
      const [drop, rise] = [factor(old.max, now.max), factor(now.max, old.max)];
      const added = now.sum - tile.sum * factor(tile.max, now.max); // what the old part comes to
      const is = (x) => () => Math.abs(added - x) < 1e-9;
      const reason =
        `it was counted from ${short(old.max)}, and everything is now counted from ` +
        `${short(now.max)}. Each of its terms is too large by the same factor, so all of them ` +
        `together are: ${fixed(old.sum, 3)} becomes ${fixed(added, 3)}.`;
      const [a, b, c, d] = SCORES.map(short);
      return {
        question: [
          `The first tile held the scores ${a} and ${b}: its maximum is ${short(old.max)}, its sum `,
          [power(a, old.max), " + ", power(b, old.max), ` = ${fixed(old.sum, 3)}. `],
          `The next one holds ${c} and ${d}. What happens to the old sum?`,
        ],
        choices: [
          {
            label: "it stays, and the new terms are added",
            right: is(old.sum),
            reply: () => `The old sum cannot stay: ${reason}`,
          },
          {
            label: ["it is multiplied by ", power(old.max, now.max)],
            right: is(old.sum * drop),
            reply: () => `The old sum shrinks: ${reason}`,
          },
          {
            label: ["it is multiplied by ", power(now.max, old.max)],
            right: is(old.sum * rise),
            reply: () => `The old sum shrinks and does not grow: ${reason}`,
          },
        ],
      };
    }

    build() {
      this.scores = SCORES;
      this.seed = 0;
      this.size = 2;
      this.seen = 2;
      this.rescale = true;
      return [
        this.buildControls(),
        this.buildKeys(),
        this.buildStates(),
        (this.sentence = h("p", { class: "instrument-sentence" })),
      ];
    }

    buildControls() {
      const seen = slider({
        label: "keys seen",
        min: 0,
        max: KEYS,
        step: this.size,
        value: this.seen,
        text: (n) => `${n} of ${KEYS}`,
        input: (n) => {
          this.seen = n;
          this.changed();
        },
      });
      this.range = seen.querySelector("input");
      return h(
        "div",
        { class: "instrument-controls" },
        seen,
        oneOf(
          "keys in a tile",
          [1, 2, 3, 6].map((n) => ({ value: n, label: String(n) })),
          this.size,
          (size) => {
            this.size = size;
            this.move(Math.ceil(this.seen / size) * size);
          },
        ),
        toggle("rescale the old part", this.rescale, (on) => {
          this.rescale = on;
          this.changed();
        }),
        button("Draw other scores", () => {
          this.seed += 1;
          const normal = normals(this.seed);
          this.scores = SCORES.map(() => Math.round(4 * normal()) / 2);
          this.changed();
        }),
      );
    }

    /** Puts the slider to a number of keys, which tells everything else. */
    move(seen) {
      set(this.range, "step", this.size);
      this.range.value = seen;
      this.range.dispatchEvent(new Event("input"));
    }

    /** The row: score and value of each key, and what its term counts in the running sum now. */
    buildKeys() {
      const cells = () => Array.from({ length: KEYS }, () => h("td", {}));
      this.rows = { score: cells(), value: cells(), term: cells() };
      this.rows.term.forEach((cell) => set(cell, "class", "instrument-weight"));
      const row = (name, label) => h("tr", {}, h("th", { scope: "row" }, label), this.rows[name]);
      return h(
        "table",
        { class: "instrument-table instrument-tiles" },
        h(
          "caption",
          {},
          "The keys of one query",
          h("small", {}, "a tile is outlined; a term is ", h("i", {}, "e"), h("sup", {}, "score − max")),
        ),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "key"),
            SCORES.map((_, j) => h("th", { scope: "col" }, String(j + 1))),
          ),
        ),
        h("tbody", {}, row("score", "score"), row("value", "value"), row("term", "term")),
      );
    }

    /** What is kept, what the tile brings, and both together. */
    buildStates() {
      const cell = () => h("td", { class: "instrument-weight" });
      this.states = STATES.map((_, i) => PARTS.slice(0, i < 2 ? 4 : 3).map(cell));
      return h(
        "table",
        { class: "instrument-table instrument-tiles" },
        h("caption", {}, "What is remembered", h("small", {}, "three numbers, however many keys")),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "part"),
            PARTS.map((part) => h("th", { scope: "col" }, part)),
          ),
        ),
        h(
          "tbody",
          {},
          STATES.map((name, i) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, name),
              this.states[i],
              i < 2 ? [] : h("td", {}), // both together are multiplied with nothing
            ),
          ),
        ),
      );
    }

    onReveal() {
      this.move(4); // the tile that the question was about
    }

    update() {
      const { old, tile, now } = walk(this.scores, this.size, this.seen, this.rescale);
      this.scores.forEach((score, j) => {
        const seen = j < this.seen;
        const term = seen ? factor(score, now.max) : 0;
        this.rows.score[j].textContent = fixed(score, 1);
        this.rows.value[j].textContent = fixed(VALUES[j], 1);
        this.rows.term[j].textContent = this.revealed ? (seen ? fixed(term) : "–") : "?";
        this.rows.term[j].style.setProperty("--weight", this.revealed ? term : 0);
        const inTile = seen && j >= this.seen - this.size;
        for (const row of Object.values(this.rows))
          row[j].classList.toggle("instrument-tile", inTile);
      });
      const drop = this.rescale ? factor(old.max, now.max) : Number(this.seen > this.size);
      const times = [drop, factor(tile.max, now.max), 1];
      [old, tile, now].forEach((block, i) => {
        const numbers = [block.sum, block.output[0], times[i]].map((x) => fixed(x, 3));
        const shown = [level(block.max), ...numbers];
        this.states[i].forEach((cell, part) => {
          cell.textContent = this.revealed ? shown[part] : "?";
        });
      });
      this.sentence.textContent = this.revealed ? this.tell(now) : "Nothing is computed yet.";
    }

    /** The result so far beside that of the whole softmax over the same keys. */
    tell(now) {
      if (this.seen === 0) return `${this.summary()} There is nothing to divide yet.`;
      const seen = this.scores.slice(0, this.seen);
      const whole = blend(
        [softmax(seen)],
        VALUES.slice(0, this.seen).map((value) => [value]),
      )[0][0];
      const result = now.output[0] / now.sum;
      const verdict = Math.abs(result - whole) < 1e-9 ? "the same" : "not the same";
      return (
        `${this.summary()} Output divided by sum: ${fixed(result, 4)}. All ${this.seen} at once ` +
        `give ${fixed(whole, 4)}: ${verdict}.`
      );
    }

    summary() {
      const { now } = walk(this.scores, this.size, this.seen, this.rescale);
      return (
        `${this.seen} of ${KEYS} keys seen: maximum ${level(now.max)}, sum ${fixed(now.sum, 3)}, ` +
        `output ${fixed(now.output[0], 3)}.`
      );
    }
  }

  Object.assign(Tiles, { walk });
  customElements.define("attend-tiles", Tiles);
})();
