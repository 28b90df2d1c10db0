"""What a reader meets: every page in a real browser, light and dark, wide and narrow."""

import pytest

from tests.book.conftest import pages, violations, visits

pytestmark = pytest.mark.browser

PAGES = [*pages(), "search", "genindex"]
SCHEMES = ("light", "dark")
A4 = 672  #: pixels between the margins of the sheet

LUMINANCE = """
    function luminance(colour) {
        const context = document.createElement("canvas").getContext("2d");
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        const linear = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
            .map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    }
    function contrast(one, other) {
        const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
        return (light + 0.05) / (dark + 0.05);
    }
"""


@pytest.fixture(params=("http", "file"))
def home(request, site, built):
    """The book's address, once on a server and once in a folder."""
    return site if request.param == "http" else built.as_uri()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_loads_in_silence_and_asks_for_nothing_elsewhere(visit, home, page):
    opened = visit(f"{home}/{page}.html")
    opened.evaluate("scrollTo(0, document.body.scrollHeight)")
    opened.wait_for_timeout(200)
    assert opened.complaints == []


@pytest.mark.parametrize("page", pages())
def test_formulas_are_set_and_read_out_once(visit, site, page):
    opened = visit(f"{site}/{page}.html")
    unset = opened.evaluate(
        """() => [...document.querySelectorAll(".math, .math-row")]
            .filter((box) => !box.closest("details:not([open]), .instrument"))
            .filter((box) => !box.querySelector(".katex-html")?.getBoundingClientRect().width)
            .map((box) => box.outerHTML.slice(0, 200))"""
    )
    assert unset == [], "these formulas show nothing"
    assert opened.locator(".katex-error").count() == 0
    raw = opened.evaluate(
        r"""() => {
            const text = document.querySelector("article").cloneNode(true);
            text.querySelectorAll("pre, code, math").forEach((part) => part.remove());
            return text.textContent.match(/\$[^$\n]+\$|\\(?:frac|sqrt|operatorname|begin)\b.*/g);
        }"""
    )
    assert raw is None, "TeX that was not set"
    for half, hidden in ((".katex-html", True), (".katex-mathml", False)):
        count = opened.locator(half).count()
        assert count == opened.locator(".katex").count()
        hides = opened.locator(f'{half}[aria-hidden="true"]').count()
        assert hides == (count if hidden else 0), "a formula has one half for eyes, one for ears"


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (320, "dark")])
@pytest.mark.parametrize("page", [*PAGES, "404"])
def test_axe_finds_nothing_to_complain_of(visit, site, page, width, scheme):
    opened = visit(f"{site}/{page}.html", width=width, color_scheme=scheme)
    # Most of a page is boxes within formulas and strokes within figures, which no screen reader
    # sees and whose colours are tested below. They would take most of the time.
    opened.evaluate(
        """() => {
            for (const inside of document.querySelectorAll(".katex-html, .figure-svg svg")) {
                inside.replaceChildren();
            }
        }"""
    )
    assert violations(opened) == []


@pytest.fixture(scope="module", params=[*PAGES, "404"])
def narrow(request, chromium, site):
    """Each page once, on a screen of 320 pixels and with all its folds open."""
    with visits(chromium) as visit:
        opened = visit(f"{site}/{request.param}.html", width=320)
        opened.evaluate("document.querySelectorAll('details').forEach((f) => (f.open = true))")
        opened.wait_for_timeout(200)  # for what is measured after it has been laid out
        yield opened


def test_nothing_overflows_at_320_pixels(narrow):
    outside = narrow.evaluate(
        """() => {
            const scrolls = (e) => getComputedStyle(e).overflowX !== "visible";
            const boxed = (e) => e && e !== document.body && (scrolls(e) || boxed(e.parentElement));
            return [...document.querySelectorAll("body *")]
                .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
                .filter((e) => getComputedStyle(e).visibility === "visible")
                .filter((e) => !boxed(e.parentElement))
                .map((e) => `${e.tagName} ${e.className}: ${e.textContent.trim().slice(0, 60)}`);
        }"""
    )
    assert outside == []
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 320


def test_where_colours_are_forced_nothing_overflows_and_nothing_is_lost(narrow):
    narrow.emulate_media(forced_colors="active")
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 320
    faint = narrow.evaluate(
        f"""() => {{ {LUMINANCE}
            const ground = getComputedStyle(document.body).backgroundColor;
            return [...document.querySelectorAll("article :is(h1, h2, p, li, td, pre, summary)")]
                .filter((e) => e.checkVisibility() && e.textContent.trim())
                .filter((e) => contrast(getComputedStyle(e).color, ground) < 4.5)
                .map((e) => e.outerHTML.slice(0, 120));
        }}"""
    )
    narrow.emulate_media(forced_colors="none")
    assert faint == []


def test_what_scrolls_sideways_can_be_reached_by_the_keyboard(narrow):
    unreachable = narrow.evaluate(
        """() => [...document.querySelectorAll(".bd-article *")]
            .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX))
            .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
            .filter((e) => e.tabIndex < 0 && !e.querySelector("a, button, [tabindex='0']"))
            .map((e) => `${e.tagName} ${e.className}`)"""
    )
    assert unreachable == []


@pytest.mark.parametrize("page", PAGES)
def test_nothing_overflows_on_paper_and_a_dark_page_is_printed_light(visit, site, page):
    opened = visit(f"{site}/{page}.html", width=A4, color_scheme="dark")
    opened.emulate_media(media="print")
    outside = opened.evaluate(
        """() => [...document.querySelectorAll("body *")]
            .filter((e) => !e.closest("svg, .katex"))
            .filter((e) => e.checkVisibility({ visibilityProperty: true }))
            .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
            .map((e) => `${e.tagName} ${e.className}: ${e.textContent.trim().slice(0, 60)}`)"""
    )
    assert outside == []
    ground, ink = opened.evaluate(
        f"""() => {{ {LUMINANCE}
            const style = getComputedStyle(document.body);
            return [luminance(style.backgroundColor), luminance(style.color)];
        }}"""
    )
    assert ground > 0.9 and ink < 0.1, "paper is white"
    for instrument in opened.locator(".instrument-app").all():
        assert not instrument.is_visible(), "nobody can turn a knob on paper"


@pytest.mark.parametrize("page", pages())
def test_prose_formulas_and_figures_need_no_javascript(visit, built, page):
    opened = visit(f"{built.as_uri()}/{page}.html", java_script_enabled=False)
    assert opened.locator("article h1").is_visible()
    for selector in (".katex-html", ".figure-svg svg", ".math-row"):
        for shown in opened.locator(f"article {selector}").all():
            folded = shown.evaluate("e => e.closest('details:not([open])') !== null")
            assert folded or shown.is_visible(), f"{selector} is not shown"
    for useless in opened.locator(".pst-js-only").all():
        assert not useless.is_visible(), "a button that does nothing without JavaScript"
    for stand_in in opened.locator(".instrument > *").all():
        assert stand_in.is_visible(), "what stands in for an instrument"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_courses_colours_stand_out_from_the_page(visit, site, scheme):
    opened = visit(f"{site}/book/index.html", color_scheme=scheme)
    ratios = opened.evaluate(
        f"""() => {{ {LUMINANCE}
            const style = getComputedStyle(document.documentElement);
            const value = (name) => style.getPropertyValue(`--course-${{name}}`);
            const names = ["query", "key", "value", "masked", "residual", "accent", "ink",
                "ink-soft", "key-text", "masked-text"];
            return Object.fromEntries(names.map((name) =>
                [name, Math.min(contrast(value(name), value("ground")),
                                contrast(value(name), value("surface")))]));
        }}"""
    )
    needed = dict.fromkeys(ratios, 4.5) | {"key": 3, "masked": 3}  # these two only draw
    too_faint = {name: ratio for name, ratio in ratios.items() if ratio < needed[name]}
    assert too_faint == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_figures_take_on_the_pages_colours(visit, site, scheme):
    opened = visit(f"{site}/book/04-scaling.html", color_scheme=scheme)
    assert opened.locator(".figure-svg svg").count() > 0
    labels = opened.evaluate(
        f"""() => {{ {LUMINANCE}
            const ground = getComputedStyle(document.body).backgroundColor;
            return [...document.querySelectorAll('.figure-svg [id*="text_"] g')]
                .map((text) => getComputedStyle(text.querySelector("use, path") ?? text).fill)
                .map((fill) => contrast(fill, ground));
        }}"""
    )
    assert len(labels) > 20
    assert min(labels) >= 3, "text of a figure that cannot be read on the page's ground"
    assert sorted(labels)[len(labels) // 2] >= 7, "most of it has the colour of the page's text"


def test_the_mode_is_chosen_with_a_button_and_remembered(visit, site):
    opened = visit(f"{site}/book/index.html", color_scheme="light")
    theme = "document.documentElement.dataset.theme"
    assert opened.evaluate(theme) == "light"
    opened.get_by_role("button", name="Light, dark or as the system").click()
    assert opened.evaluate(theme) == "dark"
    opened.goto(f"{site}/book/glossary.html")
    assert opened.evaluate(theme) == "dark"
    assert opened.complaints == []


def test_search_finds_words_and_names_of_functions(visit, home):
    opened = visit(f"{home}/book/index.html")
    opened.keyboard.press("Control+k")
    opened.keyboard.type("saturation")
    opened.keyboard.press("Enter")
    opened.wait_for_url("**/search.html?q=saturation")
    results = opened.locator("#search-results")
    results.get_by_role("link", name="Glossary").first.wait_for()
    opened.goto(f"{home}/search.html?q=softmax_jacobian")
    results.get_by_role("link", name="√").first.click()
    assert "/book/04-scaling.html" in opened.url
    assert opened.complaints == []


def test_search_finds_a_symbol_and_a_function_of_another_page(visit, home):
    opened = visit(f"{home}/search.html?q=d_k")
    results = opened.locator("#search-results")
    results.get_by_role("link", name="Symbols and shapes").first.wait_for()
    opened.goto(f"{home}/search.html?q=scaled_dot_product_attention")
    results.get_by_role("link", name="√").first.wait_for()
    assert opened.complaints == []


def test_a_click_copies_the_code_of_a_cell(visit, site):
    opened = visit(
        f"{site}/book/04-scaling.html", permissions=["clipboard-read", "clipboard-write"]
    )
    code = opened.locator("div.highlight:has(> pre):visible").first
    code.hover()
    code.get_by_role("button", name="Copy").click()
    copied = opened.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == code.locator("pre").inner_text().strip()


def test_a_chapter_leads_to_the_one_before_and_the_next(visit, home):
    opened = visit(f"{home}/book/04-scaling.html")
    opened.get_by_title("next page").click()
    assert opened.url.endswith("/book/05-masking.html")
    for page in ("04-scaling", "03-qkv"):
        opened.get_by_title("previous page").click()
        assert opened.url.endswith(f"/book/{page}.html")
    assert opened.complaints == []


def test_a_missing_address_shows_a_page_that_leads_to_the_book(visit, site):
    opened = visit(f"{site}/book/no-such-page.html")
    assert opened.get_by_role("heading", name="There is no page at this address").is_visible()
    opened.get_by_role("link", name="first page of the book").click()
    opened.wait_for_url("**/book/index.html")


@pytest.mark.parametrize("width", [320, 375, 768, 1280])
def test_the_bar_shows_the_whole_name_of_the_course(visit, site, width):
    name = visit(f"{site}/book/04-scaling.html", width=width).locator(".course-name")
    assert name.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_on_a_narrow_screen_the_chapters_open_from_the_bar_and_close_with_escape(visit, site):
    opened = visit(f"{site}/book/04-scaling.html", width=320)
    chapter = opened.get_by_role("link", name="Causal masking").first
    for button, link in (("Chapters", chapter), ("On this page", None)):
        opened.get_by_role("button", name=button, exact=True).click()
        dialog = opened.locator("dialog[open]")
        assert dialog.is_visible()
        assert link is None or link.is_visible()
        opened.keyboard.press("Escape")
        assert dialog.count() == 0
    assert opened.complaints == []


def test_on_paper_there_is_the_text_and_no_bar(visit, site):
    opened = visit(f"{site}/book/04-scaling.html", width=700)
    opened.emulate_media(media="print")
    for screen_only in (".course-bar", ".bd-sidebar-primary", ".prev-next-footer"):
        assert not opened.locator(screen_only).first.is_visible(), f"{screen_only} on paper"
    assert opened.evaluate("document.documentElement.scrollWidth") <= 700
    wrapped = opened.evaluate("getComputedStyle(document.querySelector('pre')).whiteSpace")
    assert wrapped == "pre-wrap", "code beyond the margin would be lost on paper"
    pdf = opened.pdf(format="A4")
    assert pdf.startswith(b"%PDF") and pdf.count(b"/Type /Page\n") >= 5
