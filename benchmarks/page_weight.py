"""What each page of the book weighs and how soon it is there, in Chromium.

    python benchmarks/page_weight.py

The pages come compressed from the server of `course serve`, into an empty cache, on a processor
that is slowed down four times. Each is loaded five times, and the fastest load counts: other work
on the machine can only slow one down. Of layout shifts the largest counts. The result is written
to benchmarks/page_weight.json. The book must be built: `make book`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from coursework import book

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).with_suffix(".json")
SLOWDOWN = 4
LOADS = 5
#: What a program computed for an instrument; the page is complete without it.
OPTIONAL = re.compile(r"/instruments/[\w-]+\.(?:data|example)\.js|/live-model/")

#: Collects from the first moment on what the browser says of painting and of moving.
WATCH = """
    window.watched = { painted: 0, shift: 0, moved: [] };
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) watched.painted = entry.startTime;
    }).observe({ type: "largest-contentful-paint", buffered: true });
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) {
            if (entry.hadRecentInput) continue;
            watched.shift += entry.value;
            watched.moved.push(...entry.sources.map(({ node }) =>
                node?.outerHTML?.slice(0, 120) ?? String(node?.textContent).slice(0, 60)));
        }
    }).observe({ type: "layout-shift", buffered: true });
"""


def load(browser: Any, address: str, *, width: int = 1280, slowdown: int = 1) -> dict[str, Any]:
    """Load one page into an empty cache, scroll to its end, and return what it cost.

    Returns:
        `kilobytes` as sent, headers included, and `requests`, both without what is optional;
        `painted_ms`, the largest contentful paint; `shift`, all layout shifts added up, and
        `moved`, what moved then.
    """
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    devtools = context.new_cdp_session(page)
    addresses: dict[str, str] = {}
    sizes: dict[str, float] = {}
    devtools.on("Network.requestWillBeSent", lambda e: _note(addresses, e))
    devtools.on(
        "Network.loadingFinished", lambda e: sizes.update({e["requestId"]: e["encodedDataLength"]})
    )
    devtools.send("Network.enable")
    devtools.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
    page.add_init_script(WATCH)
    page.goto(address, wait_until="load", timeout=120_000)
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(300 * slowdown)
    painted = page.evaluate("watched.painted")
    page.evaluate(
        """async () => {
            for (let y = 0; y < document.body.scrollHeight; y += innerHeight) {
                scrollTo(0, y);
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    page.wait_for_timeout(100)
    watched = page.evaluate("watched")
    context.close()
    needed = [request for request, url in addresses.items() if not OPTIONAL.search(url)]
    return {
        "kilobytes": round(sum(sizes.get(request, 0) for request in needed) / 1000, 1),
        "requests": len(needed),
        "painted_ms": round(painted),
        "shift": round(watched["shift"], 4),
        "moved": watched["moved"],
    }


def _note(addresses: dict[str, str], event: dict[str, Any]) -> None:
    if not event["request"]["url"].startswith("data:"):
        addresses[event["requestId"]] = event["request"]["url"]


def main() -> int:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or not book.is_fresh(ROOT):
        print("This needs Chromium and the built book (make book).", file=sys.stderr)
        return 2
    toc = (ROOT / "_toc.yml").read_text("utf-8")
    pages = re.findall(r"^(?:root|\s*- file): (\S+)", toc, re.MULTILINE)
    measured = {}
    with sync_playwright() as driver, book.server(ROOT) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page in pages:
            address = f"http://127.0.0.1:{server.server_port}/{page}.html"
            loads = [load(browser, address, slowdown=SLOWDOWN) for _ in range(LOADS)]
            measured[page] = {
                "kilobytes": loads[-1]["kilobytes"],
                "requests": loads[-1]["requests"],
                "painted_ms": min(one["painted_ms"] for one in loads),
                "shift": max(one["shift"] for one in loads),
            }
            print(f"{page:32}", measured[page], flush=True)
        version = browser.version
        server.shutdown()
    result = {
        "command": "python benchmarks/page_weight.py",
        "machine": {
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "chromium": version,
        },
        "slowdown": SLOWDOWN,
        "loads": LOADS,
        "pages": measured,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
