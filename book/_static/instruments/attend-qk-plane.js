/* <attend-qk-plane tokens="animal cross street"> (chapter 03): three queries and three keys in the
 * plane. Drag their tips; see scores, weights, and the value that the weights blend. */
(() => {
  "use strict";

  const { attention, attentionScores } = globalThis.attend.attention;
  const { Instrument, button, drawnSymbol, fixed, h, linear, s, set, symbol, unique } =
    globalThis.attend.instrument;

  const WEIGHTS = [
    [0.7, 0.2, 0.1],
    [0.1, 0.8, 0.1],
    [0.2, 0.3, 0.5],
  ];
  const VALUES = [
    [0, 2],
    [-2, -1],
    [2, -1],
  ];
  const EDGE = 2.6; // the plane shows −EDGE … EDGE in both directions
  const REACH = 2.4; // and a tip may go from −REACH to REACH
  const GRASP = 18; // radius round a tip that counts as touching it, of 320 across the picture
  const NAME = 25; // from a tip to the middle of its name
  const ROOM = 19; // between the middle of a name and what else is drawn
  const TURNS = [0, 0.9, -0.9, 1.8, -1.8, 2.5, -2.5]; // of a name about its tip, the best first
  const SHAFT = [0.2, 0.4, 0.6, 0.8, 1]; // places along an arrow that a name keeps clear of
  const STEP = 0.1;
  const BIG_STEP = 0.5;

  /** Queries and keys in the plane whose unscaled attention weights are the 3 × 3 table `weights`.
   *
   *  A row of scores is the log of its weights, up to a constant that the softmax drops: choose it
   *  so that the row sums to zero. Such rows lie in a plane of three-dimensional space, so two
   *  numbers each are enough. `basis` (3, 2) spans that plane; its columns have length 1 and a right
   *  angle between them, so that scores · basis · basisᵀ = scores. The factor 2 makes the keys long
   *  and the queries short, to keep their tips apart. */
  function planeFromWeights(weights) {
    const basis = [
      [1 / Math.sqrt(2), 1 / Math.sqrt(6)],
      [-1 / Math.sqrt(2), 1 / Math.sqrt(6)],
      [0, -2 / Math.sqrt(6)],
    ];
    const queries = weights.map((row) => {
      const logs = row.map(Math.log);
      const mean = logs.reduce((a, b) => a + b) / logs.length;
      return [0, 1].map((axis) =>
        logs.reduce((t, x, j) => t + ((x - mean) * basis[j][axis]) / 2, 0),
      );
    });
    return { queries, keys: basis.map((row) => row.map((x) => 2 * x)) };
  }

  const pair = (point) => `(${fixed(point[0])}, ${fixed(point[1])})`;

  class QKPlane extends Instrument {
    heading = "Queries and keys in the plane";
    advice =
      "stretch the chosen query without turning it, and the weights harden; shrink it to nothing, " +
      "and they are even. Then turn it towards another key.";

    get tokens() {
      const words = (this.getAttribute("tokens") ?? "").split(/\s+/).filter(Boolean);
      return words.length === 3 ? words : ["animal", "cross", "street"];
    }

    ask() {
      const weights = this.result().weights[this.chosen];
      const largest = weights.indexOf(Math.max(...weights));
      const even = Math.max(...weights) - Math.min(...weights) < 0.1;
      const share = (j) => fixed(weights[j]);
      const row = weights.map((weight) => fixed(weight)).join(", ");
      return {
        question: [
          symbol(`q_${this.chosen + 1}`),
          " is the query of ",
          h("em", {}, this.tokens[this.chosen]),
          ", the orange arrows are the keys. Which token will get the largest weight?",
        ],
        choices: [
          ...this.tokens.map((token, j) => ({
            label: token,
            right: () => largest === j && !even,
            reply: () =>
              largest === j
                ? `Its key lies most along the query and gets ${share(j)} of the row ${row}. ` +
                  "The query is short, so the others keep the rest."
                : `Its key gets ${share(j)}. The key of ${this.tokens[largest]} lies more along ` +
                  `the query and gets ${share(largest)}.`,
          })),
          {
            label: "about a third each",
            right: () => even,
            reply: () =>
              `The query is the shortest of the three, which makes its weights the flattest; ` +
              `still they are ${row}.`,
          },
        ],
      };
    }

    build() {
      Object.assign(this, planeFromWeights(WEIGHTS));
      this.chosen = 2;
      this.help = unique("help");
      return [
        h("div", { class: "instrument-split" }, this.buildPlane(), this.buildSide()),
        (this.sentence = h("p", { class: "instrument-sentence" })),
        h(
          "div",
          { class: "instrument-buttons" },
          button("Put the arrows back", () => {
            Object.assign(this, planeFromWeights(WEIGHTS), { chosen: 2 });
            this.changed();
          }),
        ),
      ];
    }

    /** The plane with six arrows. Its y axis points up, so the picture's coordinates are turned. */
    buildPlane() {
      this.x = linear([-EDGE, EDGE], [0, 320]);
      this.y = linear([-EDGE, EDGE], [320, 0]);
      const numbers = [-2, -1, 1, 2].map((at) =>
        s(
          "text",
          { class: "instrument-tick", x: this.x(at), y: this.y(0) + 13, "text-anchor": "middle" },
          fixed(at, 0),
        ),
      );
      const grid = [-2, -1, 0, 1, 2].map((at) => {
        const style = { class: at ? "instrument-gridline" : "instrument-axis" };
        return [
          s("line", { ...style, x1: 0, x2: 320, y1: this.y(at), y2: this.y(at) }),
          s("line", { ...style, y1: 0, y2: 320, x1: this.x(at), x2: this.x(at) }),
        ];
      });
      this.reach = s("line", { class: "instrument-guide" });
      this.drops = this.keys.map(() => s("line", { class: "instrument-guide" }));
      this.feet = this.keys.map(() => s("circle", { class: "instrument-foot", r: 3 }));
      this.arrows = [
        ...this.keys.map((_, index) => this.buildArrow("key", index)),
        ...this.queries.map((_, index) => this.buildArrow("query", index)),
      ];
      this.plane = s(
        "svg",
        {
          class: "instrument-plane",
          viewBox: "0 0 320 320",
          role: "group",
          "aria-label": "Arrows of three keys and three queries",
        },
        grid,
        numbers,
        this.reach,
        this.drops,
        this.arrows.map((arrow) => arrow.node),
        this.feet,
      );
      this.plane.addEventListener("pointerdown", (event) => this.grab(event));
      // A finger on a tip drags it, a finger beside it scrolls the page.
      const hold = (event) => this.arrowAt(event.touches[0]) && event.preventDefault();
      this.plane.addEventListener("touchstart", hold, { passive: false });
      return h(
        "div",
        {},
        this.plane,
        h(
          "p",
          { class: "instrument-legend" },
          h("span", { class: "instrument-query" }, "● query"),
          h("span", { class: "instrument-key" }, "■ key"),
          h("span", {}, "┄ where each key falls along the query"),
        ),
        h(
          "p",
          { class: "instrument-note", id: this.help },
          "Drag a tip. Or go to it with the Tab key: arrow keys move it by 0.1, with Shift by 0.5, and " +
            "Home puts it back.",
        ),
      );
    }

    /** One arrow: shaft, head, label, and round its tip the handle, which has the focus. */
    buildArrow(kind, index) {
      const start = [...this.vectors(kind)[index]];
      const shaft = s("line", { class: "instrument-shaft" });
      const head = s("path", { class: "instrument-head", d: "M 0 0 L -11 -5 L -11 5 Z" });
      const grip =
        kind === "query"
          ? s("circle", { class: "instrument-grip", r: 10 })
          : s("rect", { class: "instrument-grip", x: -9, y: -9, width: 18, height: 18, rx: 2 });
      const handle = s(
        "g",
        {
          class: "instrument-handle",
          role: "slider",
          tabindex: 0,
          "aria-label": `${kind} of ${this.tokens[index]}`,
          "aria-roledescription": "movable arrow",
          "aria-valuemin": -REACH,
          "aria-valuemax": REACH,
          "aria-describedby": this.help,
          keydown: (event) => this.nudge(event, kind, index, start),
          focus: () => kind === "query" && this.choose(index),
        },
        s("circle", { class: "instrument-touch", r: GRASP }),
        grip,
      );
      const name = `${kind === "query" ? "q" : "k"}_${index + 1}`;
      const label = s("text", { class: "instrument-label" }, drawnSymbol(name));
      const node = s(
        "g",
        { class: `instrument-arrow instrument-${kind}` },
        shaft,
        head,
        label,
        handle,
      );
      return { kind, index, node, shaft, head, label, handle };
    }

    /** The weights as a table (rows are queries, columns are keys) and the values they blend. */
    buildSide() {
      const header = (j) =>
        h(
          "th",
          { scope: "col", class: "instrument-key" },
          symbol(`k_${j + 1}`),
          h("br"),
          this.tokens[j],
        );
      this.rows = this.tokens.map((token, i) => {
        const pick = h(
          "button",
          {
            type: "button",
            class: "instrument-pick instrument-query",
            click: () => this.choose(i, true),
          },
          symbol(`q_${i + 1}`),
          h("br"),
          token,
        );
        const cells = this.tokens.map(() => ({
          weight: h("span", { class: "instrument-weight" }),
          score: h("span", { class: "instrument-score" }),
        }));
        const columns = cells.map(({ weight, score }) => h("td", {}, weight, score));
        return {
          pick,
          cells,
          columns,
          node: h("tr", {}, h("th", { scope: "row" }, pick), columns),
        };
      });
      return h(
        "div",
        {},
        h(
          "table",
          { class: "instrument-table" },
          h("caption", {}, "Weights by row", h("small", {}, "scores below")),
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "query"), [0, 1, 2].map(header))),
          h(
            "tbody",
            {},
            this.rows.map((row) => row.node),
          ),
        ),
        this.buildValues(),
      );
    }

    /** The triangle of the values. Weights that sum to 1 can only reach points inside it. */
    buildValues() {
      const x = (this.vx = linear([-2.5, 2.5], [0, 240]));
      const y = (this.vy = linear([-1.7, 2.5], [150, 0]));
      this.pulls = VALUES.map((v) =>
        s("line", { class: "instrument-pull", x1: x(v[0]), y1: y(v[1]) }),
      );
      this.blends = VALUES.map(() => s("circle", { class: "instrument-blend", r: 5 }));
      const label = (v, i) =>
        s(
          "text",
          { class: "instrument-label", x: x(v[0] * 1.13), y: y(v[1] * 1.13) + (i ? 10 : -2) },
          drawnSymbol(`v_${i + 1}`),
        );
      return h(
        "div",
        { class: "instrument-value" },
        h("p", { class: "instrument-caption" }, "Values and their blend"),
        s(
          "svg",
          {
            viewBox: "0 -14 240 172",
            role: "img",
            "aria-label": "Blended values inside the triangle of the values",
          },
          s("path", {
            class: "instrument-hull",
            d: `M${VALUES.map((v) => `${x(v[0])} ${y(v[1])}`).join("L")}Z`,
          }),
          this.pulls,
          VALUES.map((v) =>
            s("circle", { class: "instrument-point", cx: x(v[0]), cy: y(v[1]), r: 4 }),
          ),
          VALUES.map(label),
          this.blends,
          (this.blendLabel = s("text", { class: "instrument-label" })),
        ),
      );
    }

    vectors(kind) {
      return kind === "query" ? this.queries : this.keys;
    }

    result() {
      const scores = attentionScores(this.queries, this.keys);
      return { scores, ...attention(this.queries, this.keys, VALUES) };
    }

    choose(index, announce = false) {
      if (this.chosen === index && !announce) return;
      this.chosen = index;
      this.changed();
    }

    move(kind, index, [x, y]) {
      const within = (u) => Math.min(REACH, Math.max(-REACH, u));
      this.vectors(kind)[index] = [within(x), within(y)];
      if (kind === "query") this.chosen = index;
      this.changed();
    }

    nudge(event, kind, index, start) {
      const direction = {
        ArrowLeft: [-1, 0],
        ArrowRight: [1, 0],
        ArrowUp: [0, 1],
        ArrowDown: [0, -1],
      }[event.key];
      if (!direction && event.key !== "Home") return;
      event.preventDefault();
      const step = event.shiftKey ? BIG_STEP : STEP;
      const here = this.vectors(kind)[index];
      this.move(kind, index, direction ? here.map((u, axis) => u + step * direction[axis]) : start);
    }

    /** The arrow whose tip is nearest to the pointer, if it is within grasp. */
    arrowAt(event) {
      const point = this.pointer(event);
      const distance = ({ kind, index }) => {
        const [x, y] = this.vectors(kind)[index];
        return Math.hypot(this.x(x) - this.x(point[0]), this.y(y) - this.y(point[1]));
      };
      const nearest = this.arrows.reduce((a, b) => (distance(b) < distance(a) ? b : a));
      return distance(nearest) <= GRASP ? nearest : null;
    }

    /** Takes the arrow under the pointer, and follows the pointer until it lifts. */
    grab(event) {
      const arrow = event.button === 0 && this.arrowAt(event);
      if (!arrow) return;
      event.preventDefault();
      arrow.handle.focus({ preventScroll: true });
      this.plane.setPointerCapture(event.pointerId);
      const follow = (moved) => {
        if (moved.pointerId === event.pointerId) {
          this.move(arrow.kind, arrow.index, this.pointer(moved));
        }
      };
      const release = () => this.plane.removeEventListener("pointermove", follow);
      this.plane.addEventListener("pointermove", follow);
      this.plane.addEventListener("lostpointercapture", release, { once: true });
    }

    /** Where the pointer is, in the coordinates of the arrows. */
    pointer(event) {
      const box = this.plane.getBoundingClientRect();
      const across = linear([box.left, box.right], [-EDGE, EDGE]);
      const up = linear([box.bottom, box.top], [-EDGE, EDGE]);
      return [across(event.clientX), up(event.clientY)];
    }

    update() {
      const result = this.result();
      this.drawArrows(result);
      this.drawTable(result);
      this.drawBlend(result);
      this.sentence.replaceChildren(...this.inWords(result));
    }

    drawArrows({ scores, weights }) {
      for (const { kind, index, node, shaft, head, label, handle } of this.arrows) {
        const [x, y] = this.vectors(kind)[index];
        const [px, py] = [this.x(x), this.y(y)];
        const angle = Math.atan2(py - 160, px - 160);
        const thickness =
          kind === "key" && this.revealed ? 1.5 + 7 * weights[this.chosen][index] : 2.5;
        set(shaft, "x1", 160);
        set(shaft, "y1", 160);
        set(shaft, "x2", px - 8 * Math.cos(angle));
        set(shaft, "y2", py - 8 * Math.sin(angle));
        set(shaft, "stroke-width", thickness);
        set(head, "transform", `translate(${px} ${py}) rotate(${(angle * 180) / Math.PI})`);
        set(handle, "transform", `translate(${px} ${py})`);
        set(handle, "aria-valuenow", x.toFixed(2));
        set(handle, "aria-valuetext", `x ${fixed(x)}, y ${fixed(y)}`);
        node.classList.toggle("instrument-faint", kind === "query" && index !== this.chosen);
      }
      this.drawReach(scores[this.chosen]);
      this.placeNames();
    }

    /** Puts each name beside its tip, first beyond it and else round it, where nothing is beneath. */
    placeNames() {
      const tips = this.arrows.map(({ kind, index }) => {
        const [x, y] = this.vectors(kind)[index];
        return [this.x(x), this.y(y)];
      });
      const along = (tip) => SHAFT.map((t) => tip.map((u) => 160 + t * (u - 160)));
      const occupied = tips.flatMap(along);
      this.arrows.forEach(({ label }, i) => {
        const [px, py] = tips[i];
        const beyond = Math.atan2(py - 160, px - 160);
        const within = (u) => Math.min(306, Math.max(14, u));
        const places = TURNS.map((turn) => [
          within(px + NAME * Math.cos(beyond + turn)),
          within(py + NAME * Math.sin(beyond + turn)),
        ]);
        const room = ([x, y]) => Math.min(...occupied.map(([u, v]) => Math.hypot(u - x, v - y)));
        const most = Math.max(...places.map(room));
        const place = places.find((one) => room(one) >= Math.min(ROOM, most));
        occupied.push(place);
        set(label, "x", place[0]);
        set(label, "y", place[1] + 4); // the text stands on its y, its middle is higher
      });
    }

    /** Where each key falls on the line of the chosen query: score = that length × the query's. */
    drawReach(scores) {
      const query = this.queries[this.chosen];
      const square = query[0] ** 2 + query[1] ** 2;
      const line = (node, from, to) => {
        set(node, "x1", this.x(from[0]));
        set(node, "y1", this.y(from[1]));
        set(node, "x2", this.x(to[0]));
        set(node, "y2", this.y(to[1]));
      };
      const hidden = square < 1e-6;
      const along = (t) => query.map((u) => u * t);
      const reaches = hidden ? [0, 0, 0] : scores.map((score) => score / square);
      line(this.reach, along(Math.min(0, ...reaches)), along(Math.max(1, ...reaches)));
      this.drops.forEach((drop, j) =>
        line(drop, hidden ? [0, 0] : this.keys[j], along(reaches[j])),
      );
      this.feet.forEach((foot, j) => {
        set(foot, "cx", this.x(along(reaches[j])[0]));
        set(foot, "cy", this.y(along(reaches[j])[1]));
      });
    }

    drawTable({ scores, weights }) {
      this.rows.forEach(({ node, pick, cells, columns }, i) => {
        node.classList.toggle("instrument-chosen", i === this.chosen);
        set(pick, "aria-pressed", String(i === this.chosen));
        cells.forEach(({ weight, score }, j) => {
          weight.textContent = this.revealed ? fixed(weights[i][j]) : "?";
          score.textContent = this.revealed ? fixed(scores[i][j]) : "?";
          columns[j].style.setProperty("--weight", this.revealed ? weights[i][j] : 0);
        });
      });
    }

    drawBlend({ weights, z }) {
      this.blends.forEach((dot, i) => {
        set(dot, "cx", this.vx(z[i][0]));
        set(dot, "cy", this.vy(z[i][1]));
        dot.classList.toggle("instrument-faint", i !== this.chosen);
        dot.classList.toggle("instrument-hidden", !this.revealed);
      });
      const [x, y] = [this.vx(z[this.chosen][0]), this.vy(z[this.chosen][1])];
      this.pulls.forEach((pull, j) => {
        set(pull, "x2", x);
        set(pull, "y2", y);
        set(pull, "stroke-width", this.revealed ? 7 * weights[this.chosen][j] : 0);
      });
      this.blendLabel.replaceChildren(...drawnSymbol(`z_${this.chosen + 1}`));
      set(this.blendLabel, "x", x + 14);
      set(this.blendLabel, "y", y - 8);
      this.blendLabel.classList.toggle("instrument-hidden", !this.revealed);
    }

    inWords({ scores, weights, z }) {
      const i = this.chosen;
      const list = (row) => row.map((x) => fixed(x)).join(", ");
      const start = [symbol(`q_${i + 1}`), ` = ${pair(this.queries[i])}`];
      if (!this.revealed) return [...start, "."];
      return [
        ...start,
        ` scores ${list(scores[i])}; softmax ${list(weights[i])}; blend `,
        symbol(`z_${i + 1}`),
        ` = ${pair(z[i])}.`,
      ];
    }

    summary() {
      const { weights, z } = this.result();
      const shares = this.tokens.map((token, j) => `${token} ${fixed(weights[this.chosen][j])}`);
      return (
        `Query of ${this.tokens[this.chosen]}: weights ${shares.join(", ")}. ` +
        `Blended value ${pair(z[this.chosen])}.`
      );
    }
  }

  QKPlane.planeFromWeights = planeFromWeights;
  customElements.define("attend-qk-plane", QKPlane);
})();
