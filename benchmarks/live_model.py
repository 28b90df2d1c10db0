"""Speed of the language model that runs in the page of chapter 08, measured in Chromium.

    python benchmarks/live_model.py
    python benchmarks/live_model.py --quick

Ten tokens are generated after a short and after a long prompt by
book/_static/live-model/transformer.js in a page on disk, with the KV cache and without, in turns;
the best turn counts, since other work on the machine can only slow a turn down. Results go to
benchmarks/live_model.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("live_model.json")
STATIC = Path(__file__).resolve().parent.parent / "book" / "_static"
SCRIPTS = [
    STATIC / "instruments" / "attention.js",
    *(STATIC / "live-model" / f"{name}.js" for name in ("transformer", "model")),
    *(STATIC / "live-model" / f"weights-{i}.js" for i in range(1, 9)),
]

PROMPTS = (16, 100)
TOKENS = 10

#: Reads a prompt, then generates; returns milliseconds a token, that of the prompt left out.
MEASURE = """async ({ prompt, tokens, cached }) => {
    const { Cache, forward } = attend.transformer;
    const { drawFrom, nextTokenDistribution, uniforms } = attend.attention;
    globalThis.model ??= attend.transformer.load(attend.liveModel);
    const cache = cached ? new Cache(model.config) : null;
    const ids = model.tokenizer.encode("It is a truth universally acknowledged, that ".repeat(20));
    ids.length = prompt;
    const uniform = uniforms(1);
    const next = () => {
        const fresh = cache ? ids.slice(cache.length) : ids;
        const { logits } = forward(model, fresh, { cache, last: true });
        ids.push(drawFrom(nextTokenDistribution(logits, 0.8), uniform()));
    };
    next(); // reads the prompt
    const start = performance.now();
    for (let i = 0; i < tokens; i += 1) next();
    return (performance.now() - start) / tokens;
}"""


def measure(quick: bool) -> tuple[dict[str, dict[str, float]], str]:
    """Speed after each prompt, with the cache and without, and the version of the browser."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    scripts = "".join(f'<script src="{path.as_uri()}"></script>' for path in SCRIPTS)
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = Path(folder) / "page.html"
        file.write_text(f"<!doctype html><meta charset=utf-8>{scripts}", "utf-8")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(file.as_uri())
        for prompt in PROMPTS:
            for name, turns in (("with the cache", 12), ("without", 3)):
                given = {"prompt": prompt, "tokens": TOKENS, "cached": name == "with the cache"}
                times = [page.evaluate(MEASURE, given) for _ in range(2 if quick else turns)]
                best = min(times)
                rows[f"after {prompt}, {name}"] = {"ms a token": best, "tokens/s": 1000 / best}
        version = browser.version
        browser.close()
    return rows, version


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few tokens; nothing is written")
    given = parser.parse_args()
    results, version = measure(given.quick)
    table = Table("", *results, title="The language model in the page")
    for figure in next(iter(results.values())):
        table.add_row(figure, *(f"{row[figure]:,.3g}" for row in results.values()))
    Console().print(table)
    if not given.quick:
        machine = {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "chromium": version,
        }
        text = json.dumps({"live model": results, "machine": machine}, indent=1)
        RESULTS.write_text(text + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
