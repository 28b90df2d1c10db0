// Reads one formula a line, as JSON {tex, display}, and answers one line: {html} or {error}.
// The build keeps one such process, so that KaTeX is loaded once and not once a formula.
"use strict";
const readline = require("node:readline");
const katex = require(process.argv[2]);
const macros = JSON.parse(process.argv[3]);

function answer({ tex, display }) {
  try {
    const html = katex.renderToString(tex, {
      displayMode: display,
      output: "htmlAndMathml", // MathML for screen readers; the visible half is aria-hidden
      throwOnError: true,
      // Everything doubtful is an error, except the class names that our own macros use.
      strict: (code) => (code === "htmlExtension" ? "ignore" : "error"),
      trust: (context) => context.command === "\\htmlClass",
      macros: { ...macros }, // a copy: \gdef in one formula must not reach the next
    });
    return { html };
  } catch (error) {
    return { error: error.message };
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  process.stdout.write(JSON.stringify(answer(JSON.parse(line))) + "\n");
});
