"""The book on paper: a PDF of each page, and one of the whole book.

What is printed is put together from the built pages: their text, without the bars around it and
without scripts, so that an instrument shows the figure that stands in for it. Chromium sets it by
the rules that `course.css` has for paper.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from bs4 import BeautifulSoup, Tag

from coursework.book import BUILT, _say
from coursework.errors import CourseError

CHROMIUM = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
WHOLE = "attention-measured"
FIRST = "book/index.html"
SECONDS = 300  # the whole book takes a quarter of a minute

SHEET = """<!doctype html>
<html lang="en" data-theme="light">
<head><meta charset="utf-8"><title>{title}</title>{styles}
<style>
@page {{ size: A4; @bottom-center {{ content: counter(page); font: 9pt sans-serif; }} }}
</style>
</head>
<body><div class="bd-main"><div class="bd-content"><div class="bd-article-container">
{articles}
</div></div></div></body>
</html>
"""


def print_book(root: Path | str = ".", *, say: Callable[[str], None] = _say) -> Path:
    """Print the built book in `root`, and return the folder with the PDF files.

    Raises:
        CourseError: there is no built book, or Chromium is missing or fails.
    """
    built = Path(root).resolve() / BUILT / "html"
    if not (built / FIRST).is_file():
        raise CourseError("There is no built book here: run `course build` first.")
    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if chromium is None:
        raise CourseError("Chromium, which makes the PDF files, is missing: install it.")
    pages = in_order(built)
    folder = built.with_name("pdf")
    shutil.rmtree(folder, ignore_errors=True)
    sheets = {Path(address).stem: {address: page} for address, page in pages.items()}
    for name, sheet in ({WHOLE: pages} | sheets).items():
        say(f"      printing {name}.pdf")
        _print(chromium, assembled(built, sheet), folder / f"{name}.pdf")
    return folder


def in_order(built: Path) -> dict[str, BeautifulSoup]:
    """Return the pages of the built book by their addresses, in the order of its contents."""
    first = _parsed(built / FIRST)
    links = [link["href"] for link in contents(first).select("a[href]")]
    addresses = [urlsplit(urljoin(FIRST, link)).path for link in links]
    others = [address for address in dict.fromkeys(addresses) if address != FIRST]
    return {FIRST: first} | {address: _parsed(built / address) for address in others}


def contents(page: BeautifulSoup) -> Tag:
    """Return the list of all pages that stands beside each."""
    return page.select_one("nav.bd-links")


def _table_of_contents(first: BeautifulSoup) -> Tag:
    """Return the list of pages as a part of the first, which need not name itself."""
    table = copy.copy(contents(first))
    for home in table.select(".bd-sidenav__home-link"):
        home.decompose()
    return table


def assembled(built: Path, pages: Mapping[str, BeautifulSoup]) -> str:
    """Return one page of HTML with the text of `pages`; several begin with the list of them.

    Links among them lead to their places here. A link to what is not here needs the book's public
    address; if it has none, the link's text stays.
    """
    styles: dict[str, str] = {}
    articles = []
    for address, page in pages.items():
        for link in page.select("link[rel=stylesheet]"):
            file = built / urlsplit(urljoin(address, link["href"])).path
            styles[file.as_uri()] = f'<link rel="stylesheet" href="{file.as_uri()}">'
        public = page.select_one("link[rel=canonical]")
        article = copy.copy(page.select_one("article.bd-article"))
        for script in article.find_all("script"):  # data of an instrument
            script.decompose()
        if address == FIRST and len(pages) > 1:
            article.append(_table_of_contents(page))
        _rename(article, address, pages, public["href"] if public else None)
        articles.append(str(article))
    title = next(iter(pages.values())).title.get_text(strip=True)
    return SHEET.format(title=title, styles="".join(styles.values()), articles="\n".join(articles))


def _rename(article: Tag, address: str, pages: Mapping[str, object], public: str | None) -> None:
    """Make each id in `article` unique among all pages, and let what refers to it follow."""
    article["id"] = own = _name(address)
    for tag in article.find_all(True):
        if "id" in tag.attrs:
            tag["id"] = f"{own}--{tag['id']}"
        for attribute in ("clip-path", "style", "xlink:href"):
            if "#" in tag.get(attribute, ""):
                tag[attribute] = re.sub(r"(url\(#|^#)", rf"\g<1>{own}--", tag[attribute])
    for link in article.find_all("a", href=True):
        target = urlsplit(urljoin(address, link["href"]))
        if target.scheme:
            continue
        path, anchor = unquote(target.path) or address, target.fragment
        if path in pages:
            link["href"] = f"#{_name(path)}" + (f"--{anchor}" if anchor else "")
        elif public:
            link["href"] = urljoin(public, link["href"])
        else:
            del link["href"]


def _name(address: str) -> str:
    return address.removesuffix(".html").replace("/", "-")


def _parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text("utf-8"), "html.parser")


def _print(chromium: str, html: str, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        page.write_text(html, "utf-8")
        command = [chromium, "--headless", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update"]
        command += [f"--user-data-dir={folder}/profile", "--no-pdf-header-footer"]
        command += ["--generate-pdf-document-outline", f"--print-to-pdf={to}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--no-sandbox")  # Chromium has none for root
        try:
            run = subprocess.run(
                [*command, page.as_uri()], capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise CourseError(f"Chromium did not finish {to.name} in {SECONDS} s.") from error
    if run.returncode or not to.is_file():
        said = run.stderr.strip().splitlines() or ["it said nothing"]
        raise CourseError(f"Chromium could not print {to.name}: {said[-1]}")
