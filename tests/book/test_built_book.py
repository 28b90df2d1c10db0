"""What is in the files of the built book, whichever page they belong to."""

import re
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import bs4
import pytest

from coursework.chapters import CHAPTERS
from tests.book.conftest import ROOT

pytestmark = pytest.mark.slow

MARKERS = re.compile(
    r"###\s*(?:BEGIN|END)\s+(?:SOLUTION|HIDDEN TESTS|MARK SCHEME)|\bgrade_id\b", re.IGNORECASE
)


@pytest.fixture(scope="module")
def html(built):
    """Every page of the built book, parsed, by its path."""
    files = [path for path in built.rglob("*.html") if "_static" not in path.parts]
    return {
        path.relative_to(built).as_posix(): bs4.BeautifulSoup(
            path.read_text("utf-8"), "html.parser"
        )
        for path in files
    }


def test_every_image_says_in_words_what_it_shows_and_every_figure_has_a_caption(html):
    silent = [
        f"{page}: {str(image)[:120]}"
        for page, soup in html.items()
        for image in soup.select("article img, article svg[role=img]")
        if not (image.get("alt") or image.get("aria-label") or "").strip()
    ]
    bare = [
        f"{page}: {str(figure)[:120]}"
        for page, soup in html.items()
        for figure in soup.select("article figure")
        if figure.figcaption is None or not figure.figcaption.get_text(strip=True)
    ]
    assert silent + bare == []
    assert sum(len(soup.select("article figure svg[role=img]")) for soup in html.values()) > 10


def test_every_id_occurs_once_in_its_page(html):
    twice = []
    for page, soup in html.items():
        ids = [tag["id"] for tag in soup.select("[id]")]
        twice += [f"{page}: {one}" for one in set(ids) if ids.count(one) > 1]
    assert twice == []


def test_links_and_anchors_within_the_book_lead_somewhere(html, built):
    ids = {page: {tag["id"] for tag in soup.select("[id]")} for page, soup in html.items()}
    dead = []
    for page, soup in html.items():
        if page == "404.html":  # is shown at any address: its one link is to the server's root
            continue
        for link in soup.select("a[href], link[href], script[src], img[src], source[src]"):
            target = link.get("href") or link["src"]
            if urlsplit(target).scheme or target.startswith("data:"):
                continue
            parts = urlsplit(urljoin(page, target))
            path, anchor = unquote(parts.path) or page, unquote(parts.fragment)
            if not (built / path).is_file() or (anchor and anchor not in ids.get(path, {anchor})):
                dead.append(f"{page}: {target}")
    assert dead == []


def test_nothing_that_a_page_loads_comes_from_elsewhere(html, built):
    loaded = "script[src], link[rel~=stylesheet], link[rel~=preload], img[src], iframe, source"
    outside = [
        f"{page}: {tag}"
        for page, soup in html.items()
        for tag in soup.select(loaded)
        if re.match(r"(?:https?:)?//", tag.get("src") or tag.get("href") or "")
    ]
    for css in built.rglob("*.css"):
        outside += re.findall(
            r"""url\(["']?(?:https?:)?//[^)]*|@import[^;]*//[^;]*""", css.read_text()
        )
    assert outside == []


def test_the_style_sheets_ask_only_for_files_that_are_there(html, built):
    linked = {
        built / urljoin(page, urlsplit(tag["href"]).path)
        for page, soup in html.items()
        for tag in soup.select("link[rel~=stylesheet]")
    }
    missing = [
        f"{css.name}: {address}"
        for css in linked
        for address in re.findall(r"""url\(["']?([^"')]+)""", css.read_text("utf-8"))
        if not address.startswith(("data:", "#"))
        if not (css.parent / urlsplit(address).path).is_file()
    ]
    assert missing == []


def test_no_answer_no_graded_test_and_no_marker_of_nbgrader_is_in_the_book(built):
    """A notebook to download is the released one, byte for byte; nothing else speaks of grading."""
    released = {path.read_bytes() for path in (ROOT / "notebooks").rglob("*.ipynb")}
    leaks = []
    for path in filter(Path.is_file, built.rglob("*")):
        if path.suffix == ".ipynb":
            leaks += [] if path.read_bytes() in released else [f"{path}: is not in notebooks/"]
        elif path.suffix in (".html", ".js", ".txt", ".md", ".json", ".py", ".inv"):
            found = MARKERS.search(path.read_text("utf-8", errors="replace"))
            leaks += [f"{path}: {found[0]}"] if found else []
    assert leaks == []


def test_every_chapter_says_how_long_it_takes_to_read(html):
    chapters = {page: soup for page, soup in html.items() if re.match(r"book/\d\d-", page)}
    assert len(chapters) >= 4
    for page, soup in chapters.items():
        told = soup.select_one("article p.reading-time").get_text()
        minutes = int(re.match(r"About (\d+) minutes to read", told)[1])
        assert 5 <= minutes <= 60, page


def test_every_chapter_with_exercises_hands_out_its_notebook_below_its_title(html, built):
    for chapter in CHAPTERS[1:]:
        page = f"book/{chapter.slug}.html"
        link = html[page].select_one("p.reading-time a.download")
        handed_out = built / urljoin(page, link["href"])
        released = ROOT / "notebooks" / chapter.slug / f"{chapter.slug}.ipynb"
        assert handed_out.read_bytes() == released.read_bytes()
        assert handed_out.name == released.name


def test_every_page_has_the_favicon(html, built):
    for page, soup in html.items():
        if page not in ("index.html", "404.html"):  # one leads on, one lies at any depth
            icon = soup.select_one("link[rel=icon]")["href"]
            assert (built / urljoin(page, icon)).is_file(), page


def test_figures_and_equations_carry_the_number_of_their_chapter(html):
    for page, soup in html.items():
        chapter = re.match(r"book/(\d\d)-", page)
        numbers = [tag.get_text() for tag in soup.select("article .caption-number, article .eqno")]
        for number in numbers if chapter else []:
            assert re.search(rf"\b{int(chapter[1])}\.\d+", number), f"{page}: {number}"


def test_the_list_of_chapters_names_each_by_its_number(html):
    shown = [tag.get_text() for tag in html["book/glossary.html"].select("nav .chapter-number")]
    chapters = sorted(re.findall(r"book/(\d\d)-", " ".join(html)))
    assert [number.strip() for number in shown] == chapters
