"""The calculator of the cache: what it shows is what `attend` counts."""

import re

import pytest

import attend
from tests.book import test_instruments as instruments
from tests.book.test_instruments import PHONE, QUIET_MS, reveal, sentence, words

pytestmark = pytest.mark.browser

visit = instruments.visit  # a fixture is found by its name
TAG = "attend-cache-calculator"
LLAMA_2, MISTRAL, LLAMA_3, LARGEST = 1, 2, 3, 5  #: places in the list of models


def of_the_page(page, expression, *arguments):
    return page.evaluate(
        "([e, a]) => new Function('api', 'a', `return ${e}`)"
        "(customElements.get('attend-cache-calculator'), a)",
        [expression, arguments],
    )


def cells(page):
    return page.locator(f"{TAG} td").all_inner_texts()


def control(page, name):
    return page.get_by_role("slider", name=name)


def choose(page, name, value):
    control(page, name).fill(str(value))


def amount(text):
    """A number with a unit, in bytes, operations or seconds."""
    if text == "\N{EN DASH}":
        return 0.0
    number, unit = text.replace(",", "").split()
    sizes = {
        "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15,
        "Mflop": 1e6, "Gflop": 1e9, "Tflop": 1e12, "Pflop": 1e15, "Eflop": 1e18,
        "µs": 1e-6, "ms": 1e-3, "s": 1, "minutes": 60, "hours": 3600, "days": 86_400,
        "years": 365.25 * 86_400,
    }  # fmt: skip
    return float(number) * sizes[unit]


@pytest.fixture
def models(visit):
    return of_the_page(visit(TAG), "api.MODELS")


def test_bytes_and_operations_in_the_page_equal_those_of_attend(visit):
    page = visit(TAG)
    models = of_the_page(page, "api.MODELS")
    assert len(models) >= 5
    for m in models:
        d_head = m["dModel"] // m["heads"]
        for n in (1, 4096, 131_072):
            got = of_the_page(
                page,
                "api.kvCacheBytes(...a)",
                *(m["layers"], m["kvHeads"], d_head, n, 4, 7),
            )
            assert got == attend.kv_cache_bytes(m["layers"], m["kvHeads"], d_head, n, 4, 7)
            sizes = [
                m[name] for name in ("layers", "dModel", "dHidden", "heads", "kvHeads", "vocab")
            ]
            for cached in (True, False):
                got = of_the_page(page, "api.decodeFlops(...a)", m, n, cached)
                right = attend.decode_flops(*sizes, n, cached=cached)
                assert got == pytest.approx(right, rel=1e-15), "a double holds 16 digits"


def test_the_weights_are_those_of_a_model_with_these_sizes(visit):
    """Counted on a Llama of attend, without its gains and its embedding table."""
    config = attend.LlamaConfig(
        vocab=37, context=8, d_model=24, n_layers=2, n_heads=6, n_kv_heads=2, d_hidden=17,
        tied=False,
    )  # fmt: skip
    counts = attend.count_parameters(attend.llama(config))
    read = counts["attention"] + counts["feed-forward"] + counts["head"]
    model = {"layers": 2, "dModel": 24, "dHidden": 17, "heads": 6, "kvHeads": 2, "vocab": 37}
    assert of_the_page(visit(TAG), "api.weightBytes(...a)", model, 2) == 2 * read


def test_the_published_sizes_come_to_the_published_numbers_of_parameters(models):
    """135M, 7B, 7B, 8B, 70B, 405B, with a table of embeddings of its own where it is not tied."""
    for m, published in zip(models, (0.135, 6.7, 7.2, 8.0, 70.6, 405.9), strict=True):
        d, f, kv = m["dModel"], m["dHidden"], m["kvHeads"] * m["dModel"] // m["heads"]
        block = 2 * d * d + 2 * d * kv + 3 * d * f
        tables = 1 if m["name"].startswith("SmolLM2") else 2
        total = m["layers"] * block + tables * d * m["vocab"]
        assert total / 1e9 == pytest.approx(published, rel=0.01), m["name"]


@pytest.mark.parametrize("model", range(6))
@pytest.mark.parametrize("cached", [True, False])
def test_the_table_shows_what_attend_counts(visit, models, model, cached):
    page, m = visit(TAG), models[model]
    reveal(page, TAG)
    choose(page, "model", model)
    choose(page, "tokens", 14)
    choose(page, "texts", 3)
    page.get_by_label("4", exact=True).check()
    page.get_by_label("desktop").check()
    if not cached:
        page.get_by_role("switch").uncheck()
    n, batch, bandwidth, speed = 2**14, 8, 2 * 8 * 5.6e9, 1e12
    d_head = m["dModel"] // m["heads"]
    cache = cached * attend.kv_cache_bytes(m["layers"], m["kvHeads"], d_head, n, 4, batch)
    sizes = [m[name] for name in ("layers", "dModel", "dHidden", "heads", "kvHeads", "vocab")]
    flops = batch * attend.decode_flops(*sizes, n, cached=cached)
    weights, weights_time, cache_shown, cache_time, flops_shown, flops_time = cells(page)
    close = {"rel": 0.006}  # three digits
    if cached:
        assert amount(cache_shown) == pytest.approx(cache, **close)
    else:
        assert cache_shown == "none"
    assert amount(cache_time) == pytest.approx(cache / bandwidth, **close)
    assert amount(flops_shown) == pytest.approx(flops, **close)
    assert amount(flops_time) == pytest.approx(flops / speed, **close)
    assert amount(weights_time) == pytest.approx(amount(weights) / bandwidth, **close)
    fetching = amount(weights_time) + amount(cache_time)
    least = re.search(r"at least ([\d.,]+ \w+),", sentence(page))[1]
    assert amount(least) == pytest.approx(max(fetching, flops / speed), rel=0.012)


def test_fewer_key_value_heads_shrink_the_cache_in_proportion(visit):
    page = visit(TAG)
    reveal(page, TAG)
    before = amount(cells(page)[2])
    choose(page, "key/value heads", 4)  # 32, 16, 8, 4, 2
    assert amount(cells(page)[2]) == pytest.approx(before / 4, rel=0.006)
    page.get_by_role("button", name="As published").click()
    assert amount(cells(page)[2]) == before


def test_another_model_comes_with_the_heads_that_it_was_published_with(visit):
    page = visit(TAG)
    reveal(page, TAG)
    choose(page, "key/value heads", 5)
    choose(page, "model", LLAMA_3)
    spoken = control(page, "key/value heads").get_attribute("aria-valuetext")
    assert spoken == "8 for 32 query heads"
    for model, heads in ((0, "3 for 9"), (LLAMA_2, "32 for 32"), (5, "8 for 128")):
        choose(page, "model", model)
        spoken = control(page, "key/value heads").get_attribute("aria-valuetext")
        assert spoken == f"{heads} query heads"


def test_the_right_guess_is_the_one_that_attend_says(visit):
    page = visit(TAG)
    verdict = words(reveal(page, TAG, choice=1).locator(".instrument-verdict p").first)
    assert verdict.startswith("Yes:")
    assert f"{attend.kv_cache_bytes(32, 8, 128, 16_384) / 1e9:.2f} GB" in verdict


def test_no_time_is_a_dash_and_a_long_one_is_told_in_units_that_people_use(visit):
    page = visit(TAG)
    reveal(page, TAG)
    choose(page, "model", LARGEST)
    choose(page, "tokens", 17)
    choose(page, "texts", 10)
    page.get_by_label("desktop").check()
    page.get_by_role("switch").uncheck()
    assert "thousand" not in sentence(page)
    assert re.search(r"at least [\d.,]+ years", sentence(page))
    assert cells(page)[3] == "\N{EN DASH}"


def test_it_says_when_weights_and_caches_do_not_fit_into_the_memory(visit):
    page = visit(TAG)
    reveal(page, TAG)
    for texts in range(11):
        choose(page, "texts", texts)
        needed = amount(cells(page)[0]) + amount(cells(page)[2])
        assert ("do not fit into the 80.0 GB of one H100" in sentence(page)) == (needed > 80e9)


def test_every_colour_of_the_bars_has_a_name(visit):
    page = visit(TAG)
    legend = page.locator(".instrument-lanes .instrument-legend")
    for kind in ("weights", "caches", "operations"):
        swatch = legend.locator(f".instrument-part-{kind}")
        assert swatch.bounding_box()["width"] > 8
        colours = page.locator(f".instrument-part-{kind}").evaluate_all(
            "all => all.map((part) => getComputedStyle(part).backgroundColor)"
        )
        assert len(colours) == 2
        assert len(set(colours)) == 1
    assert "weights caches operations" in " ".join(legend.inner_text().split())


def test_it_works_by_keyboard_alone_and_says_what_changed(visit):
    page = visit(TAG)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".instrument-verdict").inner_text().startswith("Yes:")
    control(page, "tokens").press("End")
    assert "131,072" in control(page, "tokens").get_attribute("aria-valuetext")
    page.get_by_role("switch").focus()
    page.keyboard.press("Space")
    assert "With a cache it would be" in sentence(page)
    assert "Arithmetic is the limit" in sentence(page)
    page.wait_for_timeout(QUIET_MS + 200)
    assert page.locator(".instrument-live").inner_text().startswith("Mistral 7B. No cache.")


def test_it_answers_to_taps(visit):
    page = visit(TAG, **PHONE)
    page.locator(".instrument-choices button").nth(0).tap()
    assert page.locator(".instrument-verdict").inner_text().startswith("Not so:")
    page.get_by_text("keep a cache").tap()
    assert cells(page)[2] == "none"


# What every instrument has to do -----------------------------------------------------------------


def test_it_asks_first_and_gives_nothing_away(visit):
    instruments.test_exactly_one_guess_is_right_and_each_gets_a_sentence_of_its_own(visit, TAG)
    instruments.test_nothing_answers_before_the_guess_and_no_weight_is_given_away(visit, TAG)


def test_without_scripts_and_on_paper_its_stand_in_shows(visit):
    instruments.test_what_stands_between_the_tags_shows_without_scripts_and_on_paper_only(
        visit, TAG
    )


def test_it_takes_its_name_from_the_page(visit):
    instruments.test_an_instrument_takes_its_name_from_the_page(visit, TAG)


@pytest.mark.parametrize("settings", [{}, {"theme": "dark"}, {"forced_colors": "active"}, PHONE])
def test_axe_finds_nothing(visit, settings):
    instruments.test_axe_finds_nothing_before_and_after_the_guess(visit, TAG, settings)


def test_it_fits_a_narrow_page_and_follows_the_theme(visit):
    instruments.test_nothing_overflows_at_a_width_of_320(visit, TAG)
    instruments.test_colours_follow_the_theme_of_the_page(visit, TAG)
