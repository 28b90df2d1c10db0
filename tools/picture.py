"""Take the README's picture: chapter 04 as it was built, its instrument answered.

Run after `make book`, where Chromium is installed:  .venv/bin/python tools/picture.py
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "_build" / "html" / "book" / "04-scaling.html"
PICTURE = ROOT / "book" / "_static" / "picture.png"


def main() -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or not PAGE.exists():
        print("This needs Chromium and the built book (make book).", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 850}, device_scale_factor=1.5)
        page.goto(PAGE.as_uri())
        page.locator("attend-scale").get_by_role("button", name="nearly all on one").click()
        heading = page.get_by_role("heading", name="Try it")
        heading.evaluate("element => { element.scrollIntoView(); scrollBy(0, 30); }")
        page.mouse.move(0, 0)
        page.wait_for_timeout(1000)
        page.screenshot(path=PICTURE)
        browser.close()
    print(PICTURE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
