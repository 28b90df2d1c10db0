/* What every instrument of the book shares: making elements, controls, scales, numbers as text, the
 * prediction that comes first, and one polite live region. An instrument is a custom element that
 * extends `Instrument`; what the page's author put between its tags is the figure for readers
 * without JavaScript and for paper, and the style sheet hides it elsewhere. */
(() => {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const QUIET_MS = 600; // a screen reader hears of a change once the reader's hand rests

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) set(node, name, value);
    node.append(...children.flat(Infinity));
    return node;
  }

  /** Sets one attribute: a function becomes a listener, `true` an empty attribute, `false` none. */
  function set(node, name, value) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value === false || value == null) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : value);
  }

  /** An HTML element: h("p", { class: "x", click: f }, "text", child). */
  const h = (tag, attributes = {}, ...children) =>
    fill(document.createElement(tag), attributes, children);

  /** The same for SVG. */
  const s = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  /** A symbol with its index, as formulas set it: letters italic, digits upright. */
  function symbol(text) {
    const [base, index] = text.split("_");
    const upright = /^\d/.test(index) && "instrument-upright";
    return h("span", { class: "instrument-symbol" }, base, h("sub", { class: upright }, index));
  }

  /** The same inside a picture. */
  function drawnSymbol(text) {
    const [base, index] = text.split("_");
    const upright = /^\d/.test(index) && "instrument-upright";
    return [base, s("tspan", { dy: 4, "font-size": "0.72em", class: upright }, index)];
  }

  /** A number as text, with a true minus sign: −0.40. */
  function fixed(x, digits = 2) {
    const text = Math.abs(x).toFixed(digits);
    return x < 0 && Number(text) !== 0 ? `−${text}` : text;
  }

  /** A number that may be tiny: 0.213, or 3.1 × 10⁻⁹ where three decimals would show none of it. */
  function tiny(x) {
    if (x === 0 || Math.abs(x) >= 0.001) return fixed(x, 3);
    const [mantissa, exponent] = x.toExponential(1).split("e-");
    const superscript = [...exponent].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");
    return `${mantissa}\u00a0×\u00a010⁻${superscript}`; // which keeps to one line
  }

  /** A scale that carries the interval [a, b] to [c, d] in a straight line. */
  const linear =
    ([a, b], [c, d]) =>
    (x) =>
      c + ((x - a) / (b - a)) * (d - c);

  const button = (label, click) =>
    h("button", { type: "button", class: "instrument-button", click }, label);

  /** A labelled slider. `text(value)` is what is shown beside it and spoken for it. */
  function slider({ label, min, max, step = 1, value, text, input }) {
    const output = h("output", { class: "instrument-output" });
    const id = unique("range");
    const range = h("input", { type: "range", id, min, max, step, value });
    const show = () => {
      output.value = text(Number(range.value));
      range.setAttribute("aria-valuetext", output.value);
    };
    range.addEventListener("input", () => {
      show();
      input(Number(range.value));
    });
    show();
    // By its id: a label without one names what comes first in it, and that is the output.
    return h(
      "label",
      { class: "instrument-slider", for: id },
      h("span", {}, label, " ", output),
      range,
    );
  }

  /** A labelled switch that is on or off. */
  const toggle = (label, checked, change) =>
    h(
      "label",
      { class: "instrument-toggle" },
      h("input", {
        type: "checkbox",
        role: "switch",
        checked,
        change: (event) => change(event.target.checked),
      }),
      h("span", {}, label),
    );

  /** One of several: radio buttons that stand side by side under a legend. */
  function oneOf(legend, options, value, change) {
    const name = unique("choice");
    return h(
      "fieldset",
      { class: "instrument-one-of" },
      h("legend", {}, legend),
      options.map((option) =>
        h(
          "label",
          {},
          h("input", {
            type: "radio",
            name,
            value: option.value,
            checked: option.value === value,
            change: () => change(option.value),
          }),
          h("span", {}, option.label),
        ),
      ),
    );
  }

  /** The same words once more: a node can stand in one place only. */
  const copies = (words) =>
    [words].flat().map((part) => (part instanceof Node ? part.cloneNode(true) : part));

  let serial = 0;
  const unique = (stem) => `instrument-${stem}-${(serial += 1)}`;

  /** Base of all instruments. A subclass gives
   *    heading     its title; screen readers hear the page's aria-label in its place, if there is one
   *    advice      one line (text or nodes) that says what to try first
   *    ask()       returns { question, choices: [{ label, right(), reply() }] }, what the reader is
   *                to guess; `right` and `reply` compute, so that no answer is typed in; all words
   *                may be a text or a list of texts and nodes
   *    build()     returns the stage, an element with controls and pictures
   *    update()    draws the present state; `this.revealed` says whether the guess has been made
   *    summary()   the present state in one sentence, for the live region */
  class Instrument extends HTMLElement {
    connectedCallback() {
      if (this.app) return; // moved within the page: it keeps its state
      const title = unique("title");
      // A name that the page gives goes to the group, which has a role to bear it.
      const name = this.getAttribute("aria-label");
      this.removeAttribute("aria-label");
      this.revealed = false;
      this.live = h("p", { class: "instrument-live instrument-spoken", role: "status" });
      this.stage = h("div", { class: "instrument-stage", inert: true }, this.build());
      this.guess = this.askFirst();
      this.app = h(
        "div",
        {
          class: "instrument-app",
          role: "group",
          "aria-label": name,
          "aria-labelledby": name ? null : title,
        },
        h("p", { class: "instrument-title", id: title }, this.heading),
        this.guess,
        this.stage,
        this.live,
      );
      this.classList.add("instrument-host");
      this.prepend(this.app);
      this.update();
    }

    disconnectedCallback() {
      clearTimeout(this.quiet);
    }

    /** The question with its choices; the stage stays shut until one of them is taken. */
    askFirst() {
      const { question, choices } = this.ask();
      this.choices = choices;
      const take = (choice) => button(copies(choice.label), () => this.reveal(choice));
      return h(
        "fieldset",
        { class: "instrument-prediction" },
        h("legend", {}, h("span", { class: "instrument-eyebrow" }, "Predict first"), question),
        h(
          "div",
          { class: "instrument-choices" },
          choices.map(take),
          h(
            "button",
            { type: "button", class: "instrument-skip", click: () => this.reveal(null) },
            "Just show me",
          ),
        ),
      );
    }

    /** Opens the stage and says what the guess was worth. */
    reveal(choice) {
      const right = this.choices.find((candidate) => candidate.right());
      this.revealed = true;
      this.stage.inert = false;
      this.onReveal?.();
      this.update();
      const verdict = choice
        ? [
            h("strong", {}, choice === right ? "Yes: " : "Not so: "),
            h("span", {}, "you said “", copies(choice.label), "”. "),
            choice.reply(),
          ]
        : [h("strong", {}, "No guess made. "), right.reply()];
      const answer = h(
        "div",
        { class: "instrument-verdict", tabindex: -1 },
        h("p", {}, verdict),
        h("p", { class: "instrument-advice" }, h("strong", {}, "Try: "), this.advice),
      );
      this.guess.replaceWith(answer);
      // The button that had the focus is gone: the verdict takes it, and is read out.
      answer.focus({ preventScroll: true });
    }

    /** After each change by the reader: draw, and tell the live region once things are quiet. */
    changed() {
      this.update();
      clearTimeout(this.quiet);
      this.quiet = setTimeout(() => {
        this.live.textContent = this.summary();
      }, QUIET_MS);
    }
  }

  const api = {
    Instrument,
    button,
    drawnSymbol,
    fixed,
    h,
    linear,
    oneOf,
    s,
    set,
    slider,
    symbol,
    tiny,
    toggle,
    unique,
  };
  globalThis.attend = Object.assign(globalThis.attend ?? {}, { instrument: api });
})();
