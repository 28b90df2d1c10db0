/* <attend-scale seed="12"> (chapter 04): the softmax of one query's scores with six keys, against the
 * width d_k, with and without the factor 1/√d_k; its entropy, and how much gradient it lets through. */
(() => {
  "use strict";

  const { norm, normals, rowEntropy, softmax, softmaxJacobian } = globalThis.attend.attention;
  const {
    Instrument,
    button,
    drawnSymbol,
    fixed,
    h,
    linear,
    s,
    set,
    slider,
    symbol,
    tiny,
    toggle,
  } = globalThis.attend.instrument;

  const KEYS = 6;
  const POWERS = Array.from({ length: 13 }, (_, power) => power); // d_k = 1, 2, 4, … 4096
  const START_POWER = 9;
  const FIRST_SEED = 12; // a usual draw: its scores spread by about √512
  const DRAWS = 48; // for the curves
  const EVEN = norm(softmaxJacobian(Array(KEYS).fill(1 / KEYS)));

  /** A query (4096,) and six keys (6, 4096) with standard normal entries; narrower ones are their
   *  beginnings, so that moving the slider adds to the same vectors. */
  function draw(seed) {
    const normal = normals(seed);
    const vector = () => Array.from({ length: 2 ** POWERS.at(-1) }, normal);
    const query = vector();
    return { query, keys: Array.from({ length: KEYS }, vector) };
  }

  /** Unscaled scores of the first 2^power entries, for every power at once: (13, 6). */
  function scoresByPower({ query, keys }) {
    const table = POWERS.map(() => Array(KEYS).fill(0));
    keys.forEach((key, j) => {
      let score = 0;
      let d = 0;
      for (const power of POWERS) {
        for (; d < 2 ** power; d += 1) score += query[d] * key[d];
        table[power][j] = score;
      }
    });
    return table;
  }

  /** What the softmax makes of `scores`, divided by √d_k or not. */
  function measure(scores, d, scaled) {
    const input = scores.map((score) => (scaled ? score / Math.sqrt(d) : score));
    const weights = softmax(input);
    const mean = input.reduce((a, b) => a + b) / KEYS;
    const spread = Math.sqrt(input.reduce((total, x) => total + (x - mean) ** 2, 0) / KEYS);
    return {
      scores: input,
      spread,
      weights,
      entropy: rowEntropy(weights),
      gradient: norm(softmaxJacobian(weights)),
    };
  }

  /** Mean gradient norm for every d_k, over many draws: { scaled: (13,), unscaled: (13,) }. */
  function meanGradients() {
    const tables = Array.from({ length: DRAWS }, (_, i) => scoresByPower(draw(i + 1)));
    const mean = (scaled) =>
      POWERS.map(
        (power) =>
          tables.reduce(
            (sum, table) => sum + measure(table[power], 2 ** power, scaled).gradient,
            0,
          ) / DRAWS,
      );
    return { scaled: mean(true), unscaled: mean(false) };
  }

  class Scale extends Instrument {
    heading = "One softmax, from narrow to wide";
    advice = [
      "switch the division on and off, and move ",
      symbol("d_k"),
      " from 1 to 4096 both ways. Watch the gradient, not only the bars.",
    ];

    ask() {
      const { spread, weights, gradient } = this.measured();
      const top = Math.max(...weights);
      const largest = `the largest weight is ${fixed(top, 3)}`;
      return {
        question:
          `A query and six keys, each of ${2 ** this.power} standard normal entries; the scores ` +
          "are not divided. How will the softmax share out its weight?",
        choices: [
          {
            label: "about a sixth each",
            right: () => top < 1 / 3,
            reply: () =>
              `The entries are around 1, but a score is a sum of ${2 ** this.power} products, and ` +
              `these scores spread by ${fixed(spread, 1)}: ${largest}.`,
          },
          {
            label: "mostly on two or three",
            right: () => top >= 1 / 3 && top < 0.9,
            reply: () =>
              `That needs scores within a unit or two of each other. These spread by ` +
              `${fixed(spread, 1)}, and the softmax turns differences into ratios: ${largest}.`,
          },
          {
            label: "nearly all on one",
            right: () => top >= 0.9,
            reply: () =>
              `The scores spread by ${fixed(spread, 1)}, so ${largest}. Of a gradient that comes ` +
              `back through the softmax, at most a share of ${tiny(gradient)} gets to the scores.`,
          },
        ],
      };
    }

    build() {
      this.seed = Number.parseInt(this.getAttribute("seed") ?? FIRST_SEED, 10) || FIRST_SEED;
      this.table = scoresByPower(draw(this.seed));
      this.power = START_POWER;
      this.scaled = false;
      return [
        this.buildControls(),
        h("div", { class: "instrument-split" }, this.buildBars(), this.buildCurves()),
        (this.sentence = h("p", { class: "instrument-sentence" })),
      ];
    }

    buildControls() {
      return h(
        "div",
        { class: "instrument-controls" },
        slider({
          label: ["width ", symbol("d_k")],
          min: 0,
          max: POWERS.at(-1),
          value: this.power,
          text: (power) => String(2 ** power),
          input: (power) => {
            this.power = power;
            this.changed();
          },
        }),
        toggle(["divide by √", symbol("d_k")], this.scaled, (on) => {
          this.scaled = on;
          this.changed();
        }),
        button("Draw other vectors", () => {
          this.seed += 1;
          this.table = scoresByPower(draw(this.seed));
          this.changed();
        }),
      );
    }

    /** Six bars. Score and weight of each key stand beside its bar as text. */
    buildBars() {
      this.bars = Array.from({ length: KEYS }, (_, j) => {
        const weight = h("span", { class: "instrument-weight" });
        const score = h("span", { class: "instrument-score" });
        const node = h(
          "li",
          {},
          h("span", { class: "instrument-spoken" }, "weight "),
          weight,
          h("span", { class: "instrument-bar" }),
          symbol(`k_${j + 1}`),
          h("span", { class: "instrument-spoken" }, " score "),
          score,
        );
        return { node, weight, score };
      });
      return h(
        "div",
        {},
        h(
          "p",
          { class: "instrument-caption" },
          "Weight of each key",
          h("small", {}, "score below"),
        ),
        h(
          "ul",
          { class: "instrument-bars" },
          this.bars.map((bar) => bar.node),
        ),
      );
    }

    /** The gradient norm against d_k: mean curves of many draws, and a dot for this draw. */
    buildCurves() {
      this.x = linear([0, POWERS.at(-1)], [34, 286]);
      this.y = linear([0, 0.5], [160, 14]);
      const tick = (power) =>
        s(
          "text",
          { class: "instrument-tick", x: this.x(power), y: 178, "text-anchor": "middle" },
          `${2 ** power}`,
        );
      const level = (value) => [
        s("line", {
          class: "instrument-axis",
          x1: 34,
          x2: 286,
          y1: this.y(value),
          y2: this.y(value),
        }),
        s(
          "text",
          { class: "instrument-tick", x: 28, y: this.y(value) + 4, "text-anchor": "end" },
          `${value}`,
        ),
      ];
      this.curves = {
        scaled: s("path", { class: "instrument-curve instrument-scaled" }),
        unscaled: s("path", { class: "instrument-curve instrument-unscaled" }),
      };
      this.now = s("line", { class: "instrument-guide", y1: 14, y2: 160 });
      this.dot = s("circle", { class: "instrument-dot", r: 6 });
      this.curveLabels = [
        s("text", { x: this.x(2), y: this.y(0.44) }, "divided"),
        s("text", { x: this.x(4.6), y: this.y(0.1), "text-anchor": "end" }, "not divided"),
      ];
      this.curveLabels.forEach((label) => set(label, "class", "instrument-tick instrument-hidden"));
      this.picture = s(
        "svg",
        { viewBox: "0 0 300 200", role: "img", "aria-label": "Gradient norm against the width" },
        [0, 0.25, 0.5].map(level),
        [0, 3, 6, 9, 12].map(tick),
        s("text", { class: "instrument-label", x: 160, y: 195 }, drawnSymbol("d_k")),
        this.now,
        this.curves.unscaled,
        this.curves.scaled,
        this.curveLabels,
        this.dot,
      );
      return h(
        "div",
        {},
        h(
          "p",
          { class: "instrument-caption" },
          "Gradient norm ‖diag(p) − p pᵀ‖",
          h("small", {}, `lines: mean of ${DRAWS} draws; dot: this one`),
        ),
        this.picture,
      );
    }

    /** The curves take a tenth of a second or more: the verdict is painted first. */
    onReveal() {
      requestAnimationFrame(() => setTimeout(() => this.drawCurves()));
    }

    drawCurves() {
      const means = meanGradients();
      for (const [name, curve] of Object.entries(this.curves)) {
        const points = means[name].map((value, power) => `${this.x(power)} ${this.y(value)}`);
        set(curve, "d", `M${points.join("L")}`);
      }
      set(
        this.picture,
        "aria-label",
        `Mean gradient norm. Divided: ${tiny(means.scaled[0])} at a width of 1, ` +
          `${tiny(means.scaled.at(-1))} at 4096. Not divided: ${tiny(means.unscaled[0])} and ` +
          `${tiny(means.unscaled.at(-1))}.`,
      );
      this.curveLabels.forEach((label) => label.classList.remove("instrument-hidden"));
    }

    measured(power = this.power, scaled = this.scaled) {
      return measure(this.table[power], 2 ** power, scaled);
    }

    update() {
      const { scores, spread, weights, entropy, gradient } = this.measured();
      this.bars.forEach((bar, j) => {
        bar.weight.textContent = this.revealed ? fixed(weights[j]) : "?";
        bar.score.textContent = fixed(scores[j], Math.abs(scores[j]) < 100 ? 1 : 0);
        bar.node.style.setProperty("--weight", this.revealed ? weights[j] : 0);
      });
      set(this.now, "x1", this.x(this.power));
      set(this.now, "x2", this.x(this.power));
      set(this.dot, "cx", this.x(this.power));
      set(this.dot, "cy", this.y(gradient));
      this.dot.classList.toggle("instrument-hidden", !this.revealed);
      this.dot.classList.toggle("instrument-plain", !this.scaled);
      const start = [
        symbol("d_k"),
        ` = ${2 ** this.power}, ${this.scaled ? "" : "not "}divided: the scores spread by ${fixed(spread)} (standard deviation)`,
      ];
      this.sentence.replaceChildren(
        ...start,
        this.revealed
          ? `; entropy ${tiny(entropy)} of at most ln 6 = ${fixed(Math.log(KEYS))} nats; ` +
              `gradient norm ${tiny(gradient)}, where even weights give ${fixed(EVEN, 3)}.`
          : ".",
      );
    }

    summary() {
      const { weights, entropy, gradient } = this.measured();
      return (
        `Width ${2 ** this.power}, ${this.scaled ? "" : "not "}divided by its root: ` +
        `largest weight ${fixed(Math.max(...weights))}, entropy ${tiny(entropy)} nats, ` +
        `gradient norm ${tiny(gradient)}.`
      );
    }
  }

  Object.assign(Scale, { draw, measure, scoresByPower, meanGradients });
  customElements.define("attend-scale", Scale);
})();
