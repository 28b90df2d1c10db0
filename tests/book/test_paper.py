"""`coursework.paper`: what is printed is the pages' text, and its links lead somewhere."""

import re
import shutil

import bs4
import pytest

from coursework import paper
from coursework.errors import CourseError
from tests.book.conftest import CHROMIUM, pages

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def parsed(built):
    return paper.in_order(built)


@pytest.fixture(scope="module")
def whole(built, parsed):
    return bs4.BeautifulSoup(paper.assembled(built, parsed), "html.parser")


def test_the_whole_book_has_every_page_in_the_order_of_its_contents(parsed, whole):
    assert list(parsed) == [f"{page}.html" for page in pages()]
    assert len(whole.select("article.bd-article")) == len(parsed)
    listed = [link["href"] for link in whole.select("article nav a")]
    assert listed == [f"#{article['id']}" for article in whole.select("article")[1:]]


def test_nothing_is_printed_but_text_and_what_stands_in_for_instruments(whole):
    left = whole.select("script, button, dialog, header, footer, form")
    assert {tag.name for tag in left} == set()
    assert len(whole.select(".instrument")) >= 10
    for instrument in whole.select(".instrument"):
        assert instrument.get_text(strip=True) or instrument.select("svg")


def test_links_and_drawings_refer_to_their_own_page_in_the_whole(whole):
    ids = [tag["id"] for tag in whole.select("[id]")]
    assert len(ids) == len(set(ids)), "an id of one page is that of another"
    inside = {link["href"] for link in whole.select("a[href]") if link["href"].startswith("#")}
    parts = {part["xlink:href"] for part in whole.select("use")}
    clips = re.findall(r"url\((#[^)]*)\)", str(whole))
    assert len(inside) > 500 and len(parts) > 100 and clips
    assert {target.removeprefix("#") for target in inside | parts | set(clips)} <= set(ids)


def test_a_link_leads_into_the_sheet_or_to_an_address_of_the_world(whole):
    for link in whole.select("a[href]"):
        assert re.match(r"#|https?://|mailto:", link["href"]), link


def test_a_page_alone_names_other_pages_without_linking_them_unless_the_book_has_an_address(
    built, parsed
):
    page = "book/04-scaling.html"
    alone = bs4.BeautifulSoup(paper.assembled(built, {page: parsed[page]}), "html.parser")
    (chapter_3,) = (a for a in alone.select("article a") if a.get_text() == "chapter 03")
    assert "href" not in chapter_3.attrs
    published = bs4.BeautifulSoup(str(parsed[page]), "html.parser")
    address = "https://attention.example.org/en/book/04-scaling.html"
    published.head.append(published.new_tag("link", rel="canonical", href=address))
    alone = bs4.BeautifulSoup(paper.assembled(built, {page: published}), "html.parser")
    assert alone.find("a", string="chapter 03")["href"] == (
        "https://attention.example.org/en/book/03-qkv.html#qkv"
    )


def test_what_is_missing_is_said_in_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(CourseError, match="no built book"):
        paper.print_book(tmp_path)
    (tmp_path / "_build/html/book").mkdir(parents=True)
    (tmp_path / "_build/html/book/index.html").write_text("<nav class=bd-links></nav>")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(paper, "CHROMIUM", ("chromium",))
    with pytest.raises(CourseError, match="Chromium, which makes the PDF files, is missing"):
        paper.print_book(tmp_path)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: install it")
def test_each_page_and_the_whole_are_printed(built, tmp_path):
    shutil.copytree(built, tmp_path / "_build" / "html")
    for page in ("index", "symbols"):  # two small pages stand for all
        lone = bs4.BeautifulSoup((built / f"book/{page}.html").read_text("utf-8"), "html.parser")
        for other in lone.select("nav.bd-links a"):
            if other["href"] not in ("#", "symbols.html", "index.html"):
                other.parent.decompose()
        (tmp_path / f"_build/html/book/{page}.html").write_text(str(lone), "utf-8")
    said = []
    folder = paper.print_book(tmp_path, say=said.append)
    assert sorted(file.name for file in folder.iterdir()) == [
        "attention-measured.pdf",
        "index.pdf",
        "symbols.pdf",
    ]
    for file in folder.iterdir():
        pdf = file.read_bytes()
        assert pdf.startswith(b"%PDF") and len(pdf) > 10_000
        assert str(tmp_path).encode() not in pdf, "an address of this machine"
    assert b"/Outlines" in (folder / "attention-measured.pdf").read_bytes()
    assert said == [f"      printing {name}.pdf" for name in (paper.WHOLE, "index", "symbols")]
