"use strict";
// Two small things that the theme leaves to do. Everything can be read without them.

// From a folder a browser will not fetch other pages, so search results come without excerpts there.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS === "object") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
}

// A box that scrolls sideways can be reached by the keyboard, and only while it does scroll.
const BOXES = [
  [".math-scroll", "Formula"],
  [".figure-svg", "Figure"],
  [".pst-scrollable-table-container", "Table"],
  [".highlight pre", "Code"],
];

function markScrollable(box, label) {
  if (box.scrollWidth > box.clientWidth + 1) {
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${label}, scrolls sideways`);
  } else {
    for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
  }
}

const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) markScrollable(target, target.dataset.scrollLabel);
});
for (const [selector, label] of BOXES) {
  for (const box of document.querySelectorAll(selector)) {
    box.dataset.scrollLabel = label;
    watcher.observe(box);
  }
}
