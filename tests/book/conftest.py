"""The built book, once for all tests, and a browser that watches what its pages do."""

import fcntl
import re
import shutil
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from coursework import book as builder

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "_build" / "html"
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",  # needed by root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

sys.path.insert(0, str(ROOT / "book" / "_ext"))


def pages():
    """Return the pages of the book, as `book/04-scaling`, from its table of contents."""
    toc = (ROOT / "_toc.yml").read_text("utf-8")
    return re.findall(r"^(?:root|\s*- file): (\S+)", toc, re.MULTILINE)


@pytest.fixture(scope="session")
def built():
    """The folder of the built book. It is built where it is not fresh, by one worker for all."""
    lock = ROOT / "_build" / "tests.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not builder.is_fresh(ROOT):
            builder.build(ROOT)
    return BUILT


@pytest.fixture(scope="session")
def site(built):
    """The address of the book, served on this machine."""
    with builder.server(ROOT) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def chromium():
    if CHROMIUM is None:
        pytest.skip("no Chromium: install it (Debian: apt-get install chromium)")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """Opens an address in a new context, and collects in `page.complaints` what went wrong there:
    errors and warnings of the console, exceptions, requests that failed or went elsewhere."""
    with visits(chromium) as open_page:
        yield open_page


@contextmanager
def visits(chromium):
    """What `visit` gives, for as long as this is open."""
    contexts = []

    def open_page(address, *, width=1280, height=900, **settings):
        viewport = {"width": width, "height": height}
        context = chromium.new_context(viewport=viewport, **settings)
        contexts.append(context)
        page = context.new_page()
        page.complaints = complaints = []
        home = address.split("/book/")[0] if "/book/" in address else address.rsplit("/", 1)[0]
        page.on("console", lambda message: complaints.extend(console_complaint(message)))
        page.on("pageerror", lambda error: complaints.append(f"exception: {error}"))
        page.on("requestfailed", lambda request: complaints.extend(failure(request)))
        page.on("response", lambda r: r.status < 400 or complaints.append(f"{r.status}: {r.url}"))
        page.on(
            "request",
            lambda r: r.url.startswith((home, "data:")) or complaints.append(f"asked: {r.url}"),
        )
        page.goto(address)
        page.evaluate("document.fonts.ready")
        return page

    yield open_page
    for context in contexts:
        context.close()


def violations(page):
    """What axe-core has to complain of in a page, of any severity."""
    page.add_script_tag(path=AXE)
    # Sheets of styles need not be loaded a second time, and what passes need not be told.
    return page.evaluate(
        """async () => {
            const settings = { preload: false, resultTypes: ["violations"] };
            return (await axe.run(document, settings)).violations.map(({ id, impact, nodes }) =>
                `${impact} ${id}: ${nodes[0].html.slice(0, 200)} (${nodes.length} in all)`);
        }"""
    )


def failure(request):
    """Say that a request failed, unless the page was left before it was answered."""
    return [] if request.failure == "net::ERR_ABORTED" else [f"failed: {request.url}"]


def console_complaint(message):
    return [f"console: {message.text}"] if message.type in ("error", "warning") else []
