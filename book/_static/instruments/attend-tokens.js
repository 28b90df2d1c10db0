/* <attend-tokens> (chapter 01): a text that one types, cut into tokens by as many merges as one chooses.
 * The merges are those that the page has learned; they stand in the page as JSON. */
(() => {
  "use strict";

  const { Instrument, button, h, set, slider, unique } = globalThis.attend.instrument;

  const TEXT = "the café is here 🙂";
  const EXAMPLES = {
    "a sentence": "It is a truth universally acknowledged, that a single man must be in want of a wife.",
    "numbers": "1813, 18134 and 181,300",
    "accents and emoji": TEXT,
    "other languages": "Das Café ist zu. Το καφέ. 喫茶店",
    "spaces": "truth  truth\n truth",
  };
  const LONGEST = 200; // characters that one may type
  const BYTES = 256;
  const utf8 = new TextEncoder();
  const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

  /** The ids of a text: its bytes, with the first `n` merges applied in the order of training. */
  function encode(text, merges, n = merges.length) {
    const ranks = ranksOf(merges.slice(0, n));
    let ids = [...utf8.encode(text)];
    for (;;) {
      const rank = lowestRank(ids, ranks);
      if (rank === Infinity) return ids;
      ids = mergePair(ids, merges[rank], BYTES + rank);
    }
  }

  /** When each pair was learned. */
  const ranksOf = (merges) => new Map(merges.map(([a, b], rank) => [`${a} ${b}`, rank]));

  /** The first merge that finds its pair in a row of ids. */
  function lowestRank(ids, ranks) {
    let lowest = Infinity;
    for (let i = 0; i + 1 < ids.length; i += 1)
      lowest = Math.min(lowest, ranks.get(`${ids[i]} ${ids[i + 1]}`) ?? Infinity);
    return lowest;
  }

  /** The row with each pair replaced by `id`, from left to right. */
  function mergePair(ids, [a, b], id) {
    const merged = [];
    for (let i = 0; i < ids.length; i += 1) {
      if (ids[i] === a && ids[i + 1] === b) {
        merged.push(id);
        i += 1;
      } else merged.push(ids[i]);
    }
    return merged;
  }

  /** The bytes that each id stands for. */
  function tokenBytes(merges) {
    const tokens = Array.from({ length: BYTES }, (_, i) => [i]);
    for (const [a, b] of merges) tokens.push([...tokens[a], ...tokens[b]]);
    return tokens;
  }

  const hex = (bytes) => bytes.map((b) => b.toString(16).toUpperCase().padStart(2, "0")).join(" ");
  const NAMES = { " ": ["␣", "space"], "\n": ["↵", "line end"], "\t": ["⇥", "tab"] };

  /** One character as it is shown and as it is spoken; what would be invisible gets a sign. */
  function sign(character) {
    if (NAMES[character]) return NAMES[character];
    const point = `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
    if (/[\p{C}\p{Z}]/u.test(character)) return [point, point];
    return [/\p{M}/u.test(character) ? `◌${character}` : character, character];
  }

  /** Bytes as they are shown, and as they are spoken: as text where they are text, else as numbers. */
  function spell(bytes) {
    let text;
    try {
      text = strict.decode(Uint8Array.from(bytes));
    } catch {
      return { shown: hex(bytes), spoken: `byte ${hex(bytes)}`, raw: true };
    }
    const signs = [...text].map(sign);
    const spoken = signs.map(([, name]) => (name.length > 1 ? ` ${name} ` : name)).join("");
    return { shown: signs.map(([shape]) => shape).join(""), spoken: spoken.trim(), raw: false };
  }

  const quoted = (bytes) => `“${spell(bytes).shown}”`;
  const several = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

  class Tokens extends Instrument {
    heading = "A text in tokens";
    advice =
      "press “next that joins here” again and again, and see which letters join. " +
      "Then type a name, a number or an emoji, and press a token to see what it is made of.";

    ask() {
      const [words, characters] = [TEXT.split(" ").length, [...TEXT].length];
      const bytes = utf8.encode(TEXT).length;
      const tokens = encode(TEXT, [], 0).length;
      const because =
        `It is ${several(bytes, "byte")}, and before any merge each byte is a token. The é is two of ` +
        "them, the face four.";
      const choice = (n, what) => ({
        label: `${n}, one a ${what}`,
        right: () => n === tokens,
        reply: () => because,
      });
      return {
        question: [
          "How many tokens is ",
          h("em", {}, TEXT),
          ` (${words} words, ${characters} characters) before any merge has been made?`,
        ],
        choices: [choice(words, "word"), choice(characters, "character"), choice(bytes, "byte")],
      };
    }

    build() {
      const data = document.querySelector("script.attend-tokens-merges");
      this.merges = data ? JSON.parse(data.textContent) : [];
      this.tokens = tokenBytes(this.merges);
      this.ranks = ranksOf(this.merges);
      this.text = TEXT;
      this.n = 0; // what the question is about
      this.active = 0; // the one token that Tab reaches
      return [
        this.buildText(),
        this.buildControls(),
        (this.list = h("ol", { class: "instrument-tokens", "aria-label": "Tokens" })),
        h(
          "p",
          { class: "instrument-legend" },
          "Dashed: no whole character, so its bytes are shown. Below each token is its id.",
        ),
        (this.sentence = h("p", { class: "instrument-sentence" })),
        (this.made = h("p", { class: "instrument-note" })),
      ];
    }

    buildText() {
      const id = unique("text");
      this.field = h("textarea", {
        id,
        rows: 2,
        maxlength: LONGEST,
        spellcheck: "false",
        autocomplete: "off",
        input: () => this.take(this.field.value),
      });
      this.field.value = this.text;
      return h(
        "div",
        { class: "instrument-text" },
        h("label", { for: id }, "your text"),
        this.field,
        h(
          "div",
          { class: "instrument-buttons" },
          Object.entries(EXAMPLES).map(([name, text]) =>
            button(name, () => {
              this.field.value = text;
              this.take(text);
            }),
          ),
        ),
      );
    }

    buildControls() {
      const control = slider({
        label: "merges",
        min: 0,
        max: this.merges.length,
        value: this.n,
        text: (n) => `${n} of ${this.merges.length}`,
        input: (n) => {
          this.n = n;
          this.active = 0;
          this.changed();
        },
      });
      this.range = control.querySelector("input");
      return h(
        "div",
        { class: "instrument-controls" },
        control,
        h(
          "div",
          { class: "instrument-buttons" },
          button("one less", () => this.move(this.n - 1)),
          button("one more", () => this.move(this.n + 1)),
          button("next that joins here", () => this.moveToNext()),
        ),
      );
    }

    /** Puts the slider to a number of merges, which tells everything else. */
    move(n) {
      this.range.value = n;
      this.range.dispatchEvent(new Event("input"));
    }

    /** Past the merges that change nothing in this text; to the end if there is no other. All that
     *  come before have been made, so the next is the first that still finds its pair. */
    moveToNext() {
      this.move(Math.min(lowestRank(this.ids, this.ranks) + 1, this.merges.length));
    }

    take(text) {
      this.text = text;
      this.active = 0;
      this.changed();
    }

    update() {
      this.ids = this.revealed ? encode(this.text, this.merges, this.n) : [];
      this.chips = this.ids.map((id, i) => this.chip(id, i));
      const hidden = h("li", { class: "instrument-weight" }, "?");
      this.list.replaceChildren(
        ...(this.revealed ? this.chips.map((chip) => h("li", {}, chip)) : [hidden]),
      );
      this.sentence.textContent = this.revealed ? this.tell() : "Nothing is cut yet.";
      this.choose(this.active);
    }

    /** One token: what it spells above its id. The merge that was made last is marked. */
    chip(id, i) {
      const { shown, spoken, raw } = spell(this.tokens[id]);
      const latest = this.n > 0 && id === BYTES + this.n - 1;
      const look = `instrument-token${raw ? " instrument-raw" : ""}${latest ? " instrument-latest" : ""}`;
      return h(
        "button",
        {
          type: "button",
          class: look,
          tabindex: i === this.active ? 0 : -1,
          click: () => this.choose(i),
          focus: () => this.choose(i),
          keydown: (event) => this.steer(event, i),
        },
        // Its name is made of what it holds: signs such as ␣ are for the eye, words for the ear.
        h("span", { "aria-hidden": "true" }, shown),
        h("span", { class: "instrument-spoken" }, `${spoken}, id `),
        h("span", { class: "instrument-id" }, String(id)),
        latest ? h("span", { class: "instrument-spoken" }, ", latest merge") : [],
      );
    }

    /** Only one token is a stop of the Tab key; arrow keys go from token to token. */
    steer(event, i) {
      const last = this.chips.length - 1;
      const target = {
        ArrowLeft: Math.max(0, i - 1),
        ArrowRight: Math.min(last, i + 1),
        Home: 0,
        End: last,
      }[event.key];
      if (target === undefined) return;
      event.preventDefault();
      this.chips[target].focus();
    }

    choose(i) {
      this.active = i;
      this.chips.forEach((chip, j) => {
        chip.tabIndex = j === i ? 0 : -1;
        set(chip, "aria-current", j === i ? "true" : null);
      });
      this.made.textContent = this.chips.length ? this.explain(this.ids[i]) : "";
    }

    /** What a token is made of. */
    explain(id) {
      const bytes = this.tokens[id];
      if (id >= BYTES) {
        const [a, b] = this.merges[id - BYTES];
        const parts = `${quoted(this.tokens[a])} (${a}) and ${quoted(this.tokens[b])} (${b})`;
        return `${quoted(bytes)} is id ${id}: merge ${id - BYTES + 1} made it of ${parts}. Bytes: ${hex(bytes)}.`;
      }
      const alone = spell(bytes).raw ? "part of a longer character" : quoted(bytes);
      return `Id ${id} is the byte ${hex(bytes)}: ${alone}.`;
    }

    tell() {
      const n = utf8.encode(this.text).length;
      const count =
        `${several([...this.text].length, "character")}, ${several(n, "byte")}, ` +
        `${several(this.ids.length, "token")}. The vocabulary has ${BYTES + this.n} ids.`;
      if (this.n === 0) return `${count} No merge yet: each byte is a token.`;
      const [a, b] = this.merges[this.n - 1];
      const latest = `Merge ${this.n} joins ${quoted(this.tokens[a])} and ${quoted(this.tokens[b])}`;
      const places = this.ids.filter((id) => id === BYTES + this.n - 1).length;
      return `${count} ${latest}, here ${places === 1 ? "once" : `${places} times`}.`;
    }

    summary() {
      const most = 30;
      const spoken = this.ids.slice(0, most).map((id) => spell(this.tokens[id]).spoken);
      const more = this.ids.length > most ? ", and so on" : "";
      return `${several(this.n, "merge")}: ${several(this.ids.length, "token")}: ${spoken.join(", ")}${more}.`;
    }
  }

  Object.assign(Tokens, { encode, mergePair, spell, tokenBytes });
  customElements.define("attend-tokens", Tokens);
})();
