/* <attend-rope> (chapter 02): a head of four pairs, its query and its key turned by RoPE on four
 * dials; what each pair contributes to the score, and the score, against their distance. */
(() => {
  "use strict";

  const { applyRope, ropeAngles } = globalThis.attend.attention;
  const { Instrument, fixed, h, linear, oneOf, s, set, slider, toggle } =
    globalThis.attend.instrument;

  const PAIRS = 4;
  const LAST = 40; // positions 0 … 40
  const MEET = 3; // the distance at which all pairs agree
  const KEY = [1, 1, 1, 1, 0, 0, 0, 0]; // half-split: (1, 0) in each pair
  const STEP = 0.25; // of the curves; a distance between whole numbers is an angle all the same
  const HIGH = 0.9; // of the highest score: "again"

  /** A query that meets KEY at distance MEET: the key, turned back by that many positions. */
  const queryFor = (base) => applyRope([KEY], ropeAngles([-MEET], 2 * PAIRS, base))[0];

  /** Query and key at positions m and n: how they are turned, what each pair gives, the score. */
  function measure(m, n, base) {
    const at = (vector, position) =>
      applyRope([vector], ropeAngles([position], 2 * PAIRS, base))[0];
    const query = at(queryFor(base), m);
    const key = at(KEY, n);
    const pairs = Array.from(
      { length: PAIRS },
      (_, i) => query[i] * key[i] + query[i + PAIRS] * key[i + PAIRS],
    );
    return { query, key, pairs, score: pairs.reduce((total, x) => total + x) };
  }

  /** The highest score beyond the peak: where it stops falling and rises again; null if it never
   *  does up to the last distance. */
  function secondPeak(base) {
    const scores = Array.from({ length: LAST + 1 }, (_, d) => measure(d, 0, base).score);
    let foot = MEET;
    while (foot < LAST && scores[foot + 1] < scores[foot]) foot += 1;
    if (foot === LAST) return null;
    const beyond = scores.slice(foot);
    const height = Math.max(...beyond);
    return { at: foot + beyond.indexOf(height), height, foot, low: scores[foot] };
  }

  class Rope extends Instrument {
    heading = "One head on four dials";
    advice =
      "move the key alone and watch the dot run along the curve. Then choose the base of 100, and “move " +
      "both together”: the arrows turn, and nothing else happens.";

    ask() {
      const top = measure(MEET, 0, this.base).score;
      const peak = secondPeak(this.base);
      const facts = peak
        ? `The score falls to ${fixed(peak.low)} at distance ${peak.foot}, and the highest that it ` +
          `gets beyond is ${fixed(peak.height)}, at ${peak.at}.`
        : `From distance ${MEET} on it only falls.`;
      return {
        question:
          `With a base of ${this.base} the slow pairs are slower. At distance ${MEET} all four agree, ` +
          `and the score is ${fixed(top, 0)}. How high does it get at other distances, up to ${LAST}, ` +
          "once it has fallen from this peak?",
        choices: [
          {
            label: "as high again",
            right: () => peak !== null && peak.height >= HIGH * top,
            reply: () =>
              "The fast pair comes round every six places, and by then the others have hardly moved: " +
              `nothing tells one round from the next. ${facts}`,
          },
          {
            label: "part of the way",
            right: () => peak !== null && peak.height < HIGH * top,
            reply: () =>
              "That is so where the slower pairs are elsewhere by the time that the fast one has " +
              `come round. Here they have hardly moved. ${facts}`,
          },
          {
            label: "it only falls",
            right: () => peak === null,
            reply: () =>
              `The slow pairs alone would do that. The fast ones come round and lift it again. ${facts}`,
          },
        ],
      };
    }

    build() {
      this.m = 12;
      this.n = this.m - MEET;
      this.base = 10000; // the page draws the curve of 100
      this.together = false;
      return [
        this.buildControls(),
        h("div", { class: "instrument-split" }, this.buildDials(), this.buildCurves()),
        (this.sentence = h("p", { class: "instrument-sentence" })),
      ];
    }

    buildControls() {
      const place = (label, name, other) =>
        slider({
          label,
          min: 0,
          max: LAST,
          value: this[name],
          text: (position) => `at ${position}`,
          input: (position) => this.move(name, position, other),
        });
      this.sliders = { m: place("query", "m", "n"), n: place("key", "n", "m") };
      return h(
        "div",
        { class: "instrument-controls" },
        this.sliders.m,
        this.sliders.n,
        toggle("move both together", false, (on) => {
          this.together = on;
          this.changed();
        }),
        oneOf(
          "base",
          [
            { value: "100", label: "100" },
            { value: "10000", label: "10000" },
          ],
          String(this.base),
          (base) => {
            this.base = Number(base);
            this.drawCurves();
            this.changed();
          },
        ),
      );
    }

    /** Moves one of the two; the other goes along if asked to, and both stop where either must. */
    move(name, position, other) {
      if (this.together && !this.following) {
        const step = position - this[name];
        const there = Math.min(Math.max(this[other] + step, 0), LAST);
        const here = this[name] + there - this[other];
        this.following = true; // the events below must not move anything in their turn
        this.place(other, there);
        if (here !== position) this.place(name, here);
        this.following = false;
        position = here;
      }
      this[name] = position;
      this.changed();
    }

    /** Puts a slider somewhere, as a hand would. */
    place(name, position) {
      const range = this.sliders[name].querySelector("input");
      range.value = position;
      range.dispatchEvent(new Event("input"));
    }

    buildDials() {
      this.dials = Array.from({ length: PAIRS }, (_, i) => {
        const arrow = (kind, tip) =>
          s(
            "g",
            { class: `instrument-arrow instrument-${kind}` },
            s("line", { class: "instrument-shaft", x2: 40, "stroke-width": 3 }),
            tip,
          );
        const key = arrow(
          "key",
          s("rect", { class: "instrument-head", x: 33, y: -7, width: 14, height: 14 }),
        );
        const query = arrow("query", s("circle", { class: "instrument-head", cx: 40, r: 5 }));
        const weight = h("span", { class: "instrument-weight" });
        const node = h(
          "li",
          {},
          s(
            "svg",
            { viewBox: "-50 -50 100 100", "aria-hidden": "true" },
            s("circle", { class: "instrument-rim", r: 40 }),
            key,
            query,
          ),
          h("span", {}, `pair ${i}`),
          h("span", { class: "instrument-spoken" }, " contributes "),
          weight,
        );
        return { node, key, query, weight };
      });
      return h(
        "div",
        {},
        h(
          "p",
          { class: "instrument-caption" },
          "Each pair on its dial",
          h("small", {}, "and what it contributes"),
        ),
        h(
          "ul",
          { class: "instrument-dials" },
          this.dials.map((dial) => dial.node),
        ),
        h(
          "p",
          { class: "instrument-legend" },
          h("span", { class: "instrument-query" }, "● query"),
          h("span", { class: "instrument-key" }, "■ key"),
        ),
      );
    }

    buildCurves() {
      this.x = linear([-LAST, LAST], [34, 306]);
      this.y = linear([-PAIRS, PAIRS], [172, 12]);
      const level = (score) => [
        s("line", {
          class: score ? "instrument-gridline" : "instrument-axis",
          x1: 34,
          x2: 306,
          y1: this.y(score),
          y2: this.y(score),
        }),
        s(
          "text",
          { class: "instrument-tick", x: 28, y: this.y(score) + 4, "text-anchor": "end" },
          fixed(score, 0),
        ),
      ];
      const tick = (d) =>
        s(
          "text",
          { class: "instrument-tick", x: this.x(d), y: 190, "text-anchor": "middle" },
          fixed(d, 0),
        );
      this.thin = Array.from({ length: PAIRS }, () => s("path", { class: "instrument-thin" }));
      this.sum = s("path", { class: "instrument-curve instrument-scaled" });
      this.now = s("line", { class: "instrument-guide", y1: 12, y2: 172 });
      this.dot = s("circle", { class: "instrument-dot", r: 6 });
      this.picture = s(
        "svg",
        { viewBox: "0 0 320 210", role: "img", "aria-label": "Score against the distance" },
        [-4, -2, 0, 2, 4].map(level),
        [-40, -20, 0, 20, 40].map(tick),
        s(
          "text",
          { class: "instrument-tick", x: 170, y: 207, "text-anchor": "middle" },
          "distance: query minus key",
        ),
        this.thin,
        this.now,
        this.sum,
        this.dot,
      );
      this.drawCurves();
      return h(
        "div",
        {},
        h(
          "p",
          { class: "instrument-caption" },
          "Score against distance",
          h("small", {}, "thin: each pair"),
        ),
        this.picture,
      );
    }

    drawCurves() {
      const distances = Array.from(
        { length: (2 * LAST) / STEP + 1 },
        (_, step) => step * STEP - LAST,
      );
      const measured = distances.map((d) => measure(d, 0, this.base));
      const draw = (curve, values) => {
        const points = values.map((y, j) => `${this.x(distances[j])} ${this.y(y).toFixed(2)}`);
        set(curve, "d", `M${points.join("L")}`);
      };
      this.thin.forEach((curve, i) =>
        draw(
          curve,
          measured.map(({ pairs }) => pairs[i]),
        ),
      );
      draw(
        this.sum,
        measured.map(({ score }) => score),
      );
    }

    update() {
      const { query, key, pairs, score } = measure(this.m, this.n, this.base);
      const degrees = (vector, i) => (-180 / Math.PI) * Math.atan2(vector[i + PAIRS], vector[i]);
      this.dials.forEach((dial, i) => {
        // The y axis of a picture points down, so that counter-clockwise is negative.
        set(dial.query, "transform", `rotate(${degrees(query, i).toFixed(2)})`);
        set(dial.key, "transform", `rotate(${degrees(key, i).toFixed(2)})`);
        dial.weight.textContent = this.revealed ? fixed(pairs[i]) : "?";
      });
      const d = this.m - this.n;
      for (const end of ["x1", "x2"]) set(this.now, end, this.x(d));
      set(this.dot, "cx", this.x(d));
      set(this.dot, "cy", this.y(score));
      for (const part of [this.sum, this.dot])
        part.classList.toggle("instrument-hidden", !this.revealed);
      const places = `Query at ${this.m}, key at ${this.n}: distance ${fixed(d, 0)}`;
      this.sentence.textContent = this.revealed
        ? `${places}. The pairs contribute ${pairs.map((x) => fixed(x)).join(", ")}; ` +
          `score ${fixed(score)}.`
        : `${places}.`;
      if (this.revealed)
        set(
          this.picture,
          "aria-label",
          `Score against the distance, base ${this.base}: ${fixed(measure(MEET, 0, this.base).score)} ` +
            `at ${MEET}, ${fixed(score)} at ${fixed(d, 0)}.`,
        );
    }

    summary() {
      const { score } = measure(this.m, this.n, this.base);
      return (
        `Query at ${this.m}, key at ${this.n}, distance ${fixed(this.m - this.n, 0)}: ` +
        `score ${fixed(score)}.`
      );
    }
  }

  Object.assign(Rope, { measure, queryFor, secondPeak });
  customElements.define("attend-rope", Rope);
})();
