"""The model in the page: what it computes is what `attend` computes from the same weights."""

import importlib.util
import math

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("regex")

import torch

import attend
from attend.tokenizer import Tokenizer
from tests.book import test_instruments as instruments
from tests.book.test_instruments import PHONE, ROOT, SOURCE, reveal, sentence, violations

pytestmark = pytest.mark.browser

visit = instruments.visit  # a fixture is found by this name
TAG = "attend-live-model"
FOLDER = SOURCE.parent / "live-model"
ENGINE = ["attention", "../live-model/transformer"]
WEIGHTS = ["../live-model/model", *(f"../live-model/weights-{i}" for i in range(1, 9))]
CLOSE = 1e-3
TEXT = "Mr. Darcy was surprised, and Elizabeth was not; she"
LONG = TEXT + " had not expected it, and said so to her sister, who was at the window."

OFF = {
    "as trained": {},
    "no mask": {"causal": False},
    "no scale": {"scaled": False},
    "no positions": {"positions": False},
    "one head less": {"removed": [(2, 1)]},
    "three heads less": {"removed": [(0, 0), (0, 3), (3, 2)]},
    "everything off": {
        "causal": False,
        "scaled": False,
        "positions": False,
        "removed": [(1, 1), (1, 2)],
    },
}


@pytest.fixture(scope="module")
def tool():
    """The script that made the model, as a module."""
    path = ROOT / "tools" / "live_model.py"
    spec = importlib.util.spec_from_file_location("live_model", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model_and_tokenizer(tool):
    return tool.read()


@pytest.fixture(scope="module")
def model(model_and_tokenizer):
    return model_and_tokenizer[0]


@pytest.fixture(scope="module")
def tokenizer(model_and_tokenizer) -> Tokenizer:
    return model_and_tokenizer[1]


@torch.inference_mode()
def by_hand(model, ids, *, causal=True, scaled=True, positions=True, removed=()):
    """Logits (T, V) and weights (L, H, T, T) of the model, from the functions of the chapters."""
    T = len(ids)
    x = attend.embed(torch.tensor(ids), model.embedding.tokens)
    if positions:
        x = x + attend.embed(torch.arange(T), model.embedding.positions)
    mask = attend.causal_mask(T, like=x) if causal else None
    everyone = []
    for layer, block in enumerate(model.blocks):
        attention, mlp, norm_1, norm_2 = block.attention, block.mlp, block.norm_1, block.norm_2
        z = attend.layer_norm(x, norm_1.gain, norm_1.bias)
        q, k, v = (
            attend.split_heads(z @ w, attention.n_heads)
            for w in (attention.w_q, attention.w_k, attention.w_v)
        )
        if not scaled:
            q = q * math.sqrt(q.shape[-1])
        heads, weights = attend.scaled_dot_product_attention(q, k, v, mask)
        everyone.append(weights)
        for head in (h for at, h in removed if at == layer):
            heads = attend.ablate_head(heads, head)
        x = x + attend.merge_heads(heads) @ attention.w_o
        z = attend.layer_norm(x, norm_2.gain, norm_2.bias)
        x = x + attend.feed_forward(z, mlp.w_1, mlp.b_1, mlp.w_2, mlp.b_2)
    x = attend.layer_norm(x, model.norm.gain, model.norm.bias)
    return x @ model.embedding.tokens.T, torch.stack(everyone)


def loss(model, ids, **off):
    logits, _ = by_hand(model, ids, **off)
    return attend.next_token_loss(logits, torch.tensor(ids)).item()


# The engine ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(chromium, tmp_path_factory):
    """A page that holds engine and weights; calls of `run(body, argument)` are JavaScript there."""
    file = tmp_path_factory.mktemp("engine") / "page.html"
    file.write_text(instruments.html([], [*ENGINE, *WEIGHTS], "light"), encoding="utf-8")
    page = chromium.new_page()
    page.goto(file.as_uri())
    page.evaluate("() => { globalThis.model = attend.transformer.load(attend.liveModel) }")
    yield lambda body, argument=None: page.evaluate(f"(given) => {{ {body} }}", argument)
    page.close()


FORWARD = """
    const { ids, off, chunks } = given;
    const { Cache, forward } = attend.transformer;
    const options = { ...off, removed: new Set((off.removed ?? []).map((pair) => pair.join(" "))) };
    if (!chunks) {
        const { logits, weights } = forward(model, ids, options);
        return { logits: [...logits], weights: weights.map((heads) => heads.map((w) => [...w])) };
    }
    const cache = new Cache(model.config);
    const logits = [];
    let from = 0;
    for (const n of chunks) {
        const result = forward(model, ids.slice(from, from + n), { ...options, cache });
        logits.push(...result.logits);
        from += n;
    }
    return { logits };
"""


def test_the_reference_is_the_model_where_nothing_is_off(model, tokenizer):
    ids = tokenizer.encode(LONG)
    logits, _ = by_hand(model, ids)
    with torch.inference_mode():
        torch.testing.assert_close(logits, model(torch.tensor([ids]))[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("off", OFF)
def test_logits_and_weights_are_those_of_attend_with_each_switch(engine, model, tokenizer, off):
    ids = tokenizer.encode(LONG)
    logits, weights = by_hand(model, ids, **OFF[off])
    found = engine(FORWARD, {"ids": ids, "off": OFF[off]})
    shown = np.array(found["logits"]).reshape(logits.shape)
    np.testing.assert_allclose(shown, logits.numpy(), rtol=0, atol=CLOSE)
    shown = np.array(found["weights"]).reshape(weights.shape)
    np.testing.assert_allclose(shown, weights.numpy(), rtol=0, atol=CLOSE)


def test_every_switch_changes_the_logits(model, tokenizer):
    ids = tokenizer.encode(LONG)
    whole, _ = by_hand(model, ids)
    for name, off in OFF.items():
        changed = (by_hand(model, ids, **off)[0] - whole).abs().max().item()
        assert (changed > 100 * CLOSE) == (name != "as trained"), name


def test_each_head_can_be_removed_alone(engine, model, tokenizer):
    ids = tokenizer.encode(TEXT)
    for layer in range(4):
        for head in range(4):
            off = {"removed": [(layer, head)]}
            logits, _ = by_hand(model, ids, **off)
            shown = np.array(engine(FORWARD, {"ids": ids, "off": off})["logits"])
            np.testing.assert_allclose(shown.reshape(logits.shape), logits, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("chunks", [[1] * 11, [7, 1, 1, 2], [3, 5, 3]])
@pytest.mark.parametrize("off", ["as trained", "no scale", "no positions", "one head less"])
def test_with_the_cache_the_logits_are_the_same_however_the_text_comes(
    engine, model, tokenizer, chunks, off
):
    ids = tokenizer.encode(LONG)[: sum(chunks)]
    logits, _ = by_hand(model, ids, **OFF[off])
    found = engine(FORWARD, {"ids": ids, "off": OFF[off], "chunks": chunks})
    shown = np.array(found["logits"]).reshape(logits.shape)
    np.testing.assert_allclose(shown, logits.numpy(), rtol=0, atol=CLOSE)


def test_a_whole_context_fits_and_one_token_more_is_refused(engine, model, tokenizer):
    ids = tokenizer.encode(LONG * 9)[: model.context]
    logits, _ = by_hand(model, ids)
    last = engine(
        "return [...attend.transformer.forward(model, given, { last: true }).logits]", ids
    )
    np.testing.assert_allclose(last, logits[-1].numpy(), rtol=0, atol=CLOSE)
    said = engine(
        """try { attend.transformer.forward(model, [...given, 1]); } catch (error) {
            return String(error);
        }""",
        ids,
    )
    assert said == "RangeError: 129 tokens do not fit in 128"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "Elizabeth",
        LONG,
        "Ein  Ärger,\n\n\tund\u2028dann 12345 Mal «ja»",
        "it's we'll THEY'VE 'tis",
        "日本語 🙂🙂 e\u0301",
        "aaaaaaaaaaaaaaa   ",
    ],
)
def test_the_tokens_are_those_of_attend_and_make_the_text_again(engine, tokenizer, text):
    ids, again = engine(
        """const ids = model.tokenizer.encode(given);
        return [ids, model.tokenizer.decode(ids)];""",
        text,
    )
    assert ids == tokenizer.encode(text)
    assert again == text


def test_surprises_average_to_the_loss_of_attend(engine, model, tokenizer):
    ids = tokenizer.encode(LONG)
    surprises = engine(
        """const { logits } = attend.transformer.forward(model, given);
        return attend.attention.surprises(logits, given);""",
        ids,
    )
    assert len(surprises) == len(ids) - 1
    assert np.mean(surprises) == pytest.approx(loss(model, ids), abs=CLOSE)


def test_the_error_function_is_right_to_seven_digits(engine):
    x = np.linspace(-5, 5, 1001)
    shown = engine("return given.map(attend.transformer.erf)", x.tolist())
    np.testing.assert_allclose(shown, [math.erf(entry) for entry in x], rtol=0, atol=2e-7)


def test_damaged_weights_are_refused(engine):
    said = engine(
        """const { load } = attend.transformer;
        const file = { ...attend.liveModel, parts: [...attend.liveModel.parts] };
        file.parts[7] = "";
        try { load(file); } catch (error) { return String(error); }"""
    )
    assert "Error" in said


# Sampling, in attention.js ------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0, 0.3, 1.0, 1.9])
@pytest.mark.parametrize("top_k", [None, 1, 5, 200])
@pytest.mark.parametrize("top_p", [None, 0.05, 0.9])
def test_the_distribution_is_that_of_attend(engine, temperature, top_k, top_p):
    logits = np.random.default_rng(3).standard_normal(41) * 3
    logits[[5, 17]] = logits.max() + 0.5  # equal ones
    shown = engine(
        """const [logits, temperature, topK, topP] = given;
        return attend.attention.nextTokenDistribution(logits, temperature, topK ?? undefined,
            topP ?? undefined);""",
        [logits.tolist(), temperature, top_k, top_p],
    )
    expected = attend.next_token_distribution(torch.tensor(logits), temperature, top_k, top_p)
    np.testing.assert_allclose(shown, expected.numpy(), rtol=1e-9, atol=1e-12)


def test_draws_follow_the_weights_and_never_take_what_has_none(engine):
    p = [0.0, 0.5, 0.0, 0.3, 0.2, 0.0]
    drawn = engine(
        """const { drawFrom, uniforms } = attend.attention;
        const uniform = uniforms(5);
        return Array.from({ length: 20000 }, () => drawFrom(given, uniform()));""",
        p,
    )
    share = np.bincount(drawn, minlength=6) / len(drawn)
    assert set(np.flatnonzero(share)) == {1, 3, 4}
    np.testing.assert_allclose(share, p, atol=0.02)
    # Just below 1, where rounding could leave nothing to fall on.
    assert engine("return attend.attention.drawFrom([0, 0.1, 0.2, 0, 0.6, 0], 0.95)") == 4


# What the page shows before it has the weights ----------------------------------------------------


@pytest.fixture(scope="module")
def example(tool):
    return tool.content_of(tool.EXAMPLE)


def test_the_recorded_example_is_what_the_weights_give(tool, example, model, tokenizer):
    again = tool.record(model, tokenizer, example["sample"])
    for name in ("text", "ids", "names", "head", "shape"):
        assert example[name] == again[name]
    assert [run["name"] for run in example["runs"]] == list(tool.SWITCHES)
    for name, off in tool.SWITCHES.items():
        for text in ("text", "sample"):
            ids = tokenizer.encode(example[text])
            assert example["losses"][name][text] == pytest.approx(loss(model, ids, **off), abs=1e-4)


def test_the_passage_was_held_out(tool, example):
    learned, held_out = tool.learned_and_held_out(tool.novel())
    assert example["sample"] in held_out
    assert example["sample"] not in learned


def test_the_page_shows_the_record_as_attend_computes_it(visit, example, model, tokenizer):
    page = visit(TAG)
    ids = tokenizer.encode(example["text"])
    logits, weights = by_hand(model, ids)
    result = page.locator(TAG).evaluate(
        """host => ({ logits: [...host.result.logits],
            weights: host.result.weights.map((heads) => heads.map((w) => [...w])) })"""
    )
    shown = np.array(result["logits"]).reshape(logits.shape)
    np.testing.assert_allclose(shown, logits, rtol=0, atol=CLOSE)
    shown = np.array(result["weights"]).reshape(weights.shape)
    np.testing.assert_allclose(shown, weights, rtol=0, atol=0.5 / 255 + 1e-4)


def test_each_switch_breaks_the_model_on_a_text_that_it_never_saw(example):
    losses = {name: loss["sample"] for name, loss in example["losses"].items()}
    whole = losses.pop("as trained")
    assert min(losses.values()) > whole + 0.3


def test_folder_and_record_are_small(tool):
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 2_000_000
    assert tool.EXAMPLE.stat().st_size < 60_000


# The instrument -----------------------------------------------------------------------------------


@pytest.fixture
def loaded(visit):
    """Opens the instrument, guesses, loads the model and waits until it has read the passage."""

    def open_page(**settings):
        page = visit(TAG, **settings)
        reveal(page, TAG)
        load(page)
        return page

    return open_page


def load(page):
    page.get_by_role("button", name="Load the model").click()
    page.get_by_text("The model is here").wait_for()
    settle(page)


def settle(page):
    """Until both losses of the present state are there."""
    page.wait_for_function(
        "() => ![...document.querySelectorAll('.instrument-losses td')].some((c) => "
        "c.textContent === '…')"
    )


def losses_of(page):
    """The losses in the table: {your text, passage} × {as trained, as it is now}."""
    cells = page.locator(".instrument-losses td").all_inner_texts()
    return [float(cell.split(" ")[0]) for cell in cells]


def type_text(page, text):
    page.get_by_role("textbox").fill(text)
    tokens = page.locator(".instrument-tokens button")
    page.wait_for_function(
        "(text) => document.querySelector('attend-live-model').told === text", arg=text
    )
    return tokens


def generated(page):
    button = page.get_by_role("button", name="Add 60 tokens")
    button.click()
    button.wait_for()
    run = page.locator(".instrument-runs li").first
    return run.locator("p").evaluate("p => p.lastChild.textContent"), run.inner_text()


def test_nothing_is_loaded_before_the_reader_asks(visit):
    page = visit(TAG)
    asked = []
    page.on("request", lambda request: asked.append(request.url.rsplit("/", 1)[1]))
    reveal(page, TAG)
    page.get_by_label("temperature").press("ArrowLeft")
    assert asked == []
    assert page.get_by_role("textbox").evaluate("node => node.readOnly")
    assert page.get_by_role("button", name="Add 60 tokens").is_disabled()
    load(page)
    assert asked == ["transformer.js", "model.js", *(f"weights-{i}.js" for i in range(1, 9))]
    assert page.get_by_role("button", name="Load the model").is_hidden()
    assert page.get_by_role("progressbar").is_hidden()
    assert not page.get_by_role("textbox").evaluate("node => node.readOnly")


def test_when_the_weights_do_not_come_whole_it_says_so_and_one_can_try_again(visit):
    page = visit(TAG)
    reveal(page, TAG)
    damage = "() => { globalThis.whole = atob; globalThis.atob = (text) => whole(text).slice(1) }"
    page.evaluate(damage)
    page.get_by_role("button", name="Load the model").click()
    page.get_by_text("could not be loaded").wait_for()
    page.evaluate("() => { globalThis.atob = whole }")
    load(page)


def test_the_reader_types_and_sees_tokens_distribution_and_losses_of_attend(
    loaded, model, tokenizer, example
):
    page = loaded()
    tokens = type_text(page, TEXT)
    ids = tokenizer.encode(TEXT)
    visible = [tokenizer.decode([i]).replace(" ", "␣") for i in ids]
    assert tokens.all_inner_texts() == visible
    logits, weights = by_hand(model, ids)
    p = torch.softmax(logits[-1], -1)
    best = p.argsort(descending=True)[:8].tolist()
    shown = page.locator(".instrument-candidate").all_inner_texts()
    assert shown == [tokenizer.decode([i]).replace(" ", "␣") for i in best]
    numbers = page.locator(".instrument-percent").all_inner_texts()
    assert [float(n.split()[0]) for n in numbers] == pytest.approx(
        [100 * p[i].item() for i in best], abs=0.0501
    )
    settle(page)
    passage = loss(model, tokenizer.encode(example["sample"]))
    text = loss(model, ids)
    assert losses_of(page) == pytest.approx([text, text, passage, passage], abs=0.0051)
    # The head of the chosen token, as the labels of the tokens say it.
    page.get_by_role("radio", name="head 2.3:").check()
    tokens.nth(4).click()
    labels = tokens.evaluate_all("nodes => nodes.map((node) => node.ariaLabel)")
    said = [float(label.rsplit(" ", 1)[1]) for label in labels]
    assert said == pytest.approx(weights[1, 2, 4].tolist(), abs=0.0051)
    assert sentence(page).startswith(f"From “{visible[4]}”, token 5 of {len(ids)}")


@pytest.mark.parametrize("name", ["causal mask", "division by √d_k", "positions", "head 3.2"])
def test_each_switch_shows_the_losses_of_attend_and_all_is_put_back(
    loaded, model, tokenizer, example, name
):
    off = {
        "causal mask": {"causal": False},
        "division by √d_k": {"scaled": False},
        "positions": {"positions": False},
        "head 3.2": {"removed": [(2, 1)]},
    }[name]
    page = loaded()
    page.get_by_role("radio", name="head 3.2:").check()
    page.get_by_role("switch", name=name).uncheck()
    settle(page)
    ids, passage = (tokenizer.encode(example[part]) for part in ("text", "sample"))
    expected = [
        loss(model, ids),
        loss(model, ids, **off),
        loss(model, passage),
        loss(model, passage, **off),
    ]
    assert losses_of(page) == pytest.approx(expected, abs=0.0051)
    logits, _ = by_hand(model, ids, **off)
    shown = page.locator(TAG).evaluate("host => [...host.result.logits]")
    np.testing.assert_allclose(np.reshape(shown, logits.shape), logits, rtol=0, atol=CLOSE)
    page.get_by_role("button", name="Put everything back").click()
    settle(page)
    assert losses_of(page)[1] == losses_of(page)[0]
    assert page.get_by_role("switch", name=name).is_checked()


def test_at_temperature_0_it_says_what_attend_says_with_the_cache_and_without(
    loaded, model, tokenizer
):
    page = loaded()
    type_text(page, "Mr. Bennet")
    page.get_by_label("temperature").press("Home")
    ids = torch.tensor([tokenizer.encode("Mr. Bennet")])
    said = attend.generate(model, ids, 60, temperature=0)[0, ids.shape[1] :]
    expected = tokenizer.decode(said.tolist())
    for on in (True, False):
        page.get_by_role("switch", name="KV cache").set_checked(on)
        text, run = generated(page)
        assert text == expected
        assert ("with the cache" if on else "without a cache") in run
    page.get_by_role("img", name="Time for each token").wait_for()


def test_the_same_dice_give_the_same_text_and_others_another(loaded):
    page = loaded()
    first, _ = generated(page)
    assert generated(page)[0] == first
    page.get_by_role("button", name="Throw other dice").click()
    page.get_by_role("button", name="Add 60 tokens").wait_for()
    assert (
        page.locator(".instrument-runs p").first.evaluate("p => p.lastChild.textContent") != first
    )


def test_without_the_mask_there_is_no_cache(loaded):
    page = loaded()
    page.get_by_role("switch", name="causal mask").uncheck()
    assert page.get_by_role("switch", name="KV cache").is_disabled()
    assert not page.get_by_role("switch", name="KV cache").is_checked()
    assert "No causal mask" in generated(page)[1]
    page.get_by_role("switch", name="causal mask").check()
    assert page.get_by_role("switch", name="KV cache").is_checked()


def test_a_long_text_keeps_its_last_tokens_and_none_is_fine(loaded, tokenizer):
    page = loaded()
    tokens = type_text(page, LONG * 4)
    assert tokens.count() == 64
    left = len(tokenizer.encode(LONG * 4)) - 64
    assert page.get_by_text(f"Only the last 64 tokens are read; {left} are left out.").is_visible()
    generated(page)
    tokens = type_text(page, "")
    assert tokens.all_inner_texts() == ["↵"]
    assert page.locator(".instrument-losses td").first.inner_text() == "–"
    assert generated(page)[0]


def test_tokens_and_heads_work_by_keyboard_with_one_stop_each(loaded):
    page = loaded()
    page.locator(".instrument-tokens [tabindex='0']").focus()
    page.keyboard.press("Home")
    focused = page.locator(":focus")
    assert focused.get_attribute("aria-pressed") == "true"
    assert sentence(page).split(",")[1].startswith(" token 1 of")
    page.keyboard.press("ArrowRight")
    assert sentence(page).split(",")[1].startswith(" token 2 of")
    assert page.locator(".instrument-tokens [tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.locator(":focus").get_attribute("type") == "radio"
    before = page.locator(":focus").get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert page.locator(":focus").get_attribute("aria-label") != before
    page.keyboard.press("Tab")
    assert page.locator(":focus").get_attribute("type") == "range"


def test_generating_is_announced_once_at_its_end(loaded):
    page = loaded()
    page.evaluate(
        """() => {
            globalThis.announced = [];
            const live = document.querySelector(".instrument-live");
            const hear = new MutationObserver(() => announced.push(live.textContent));
            hear.observe(live, { childList: true });
        }"""
    )
    page.wait_for_timeout(instruments.QUIET_MS + 100)  # what the loading had to say
    page.evaluate("() => { announced.length = 0 }")
    text, _ = generated(page)
    page.wait_for_function("() => announced.length > 0")
    (words,) = page.evaluate("() => announced")
    assert words.startswith("60 tokens added, as trained, with the cache, ")
    assert words.endswith(text)


@pytest.mark.parametrize("settings", [{}, {"theme": "dark"}, {"forced_colors": "active"}, PHONE])
def test_axe_finds_nothing_and_nothing_overflows_with_everything_in_view(loaded, settings):
    page = loaded(**settings)
    generated(page)
    page.get_by_role("switch", name="positions").uncheck()
    page.get_by_role("switch", name="head ").uncheck()
    settle(page)
    generated(page)
    assert violations(page) == []
    width = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert width <= 0
    targets = page.locator(f"{TAG} :is(button, input, textarea, summary)")
    boxes = [(node.get_attribute("aria-label"), node.bounding_box()) for node in targets.all()]
    assert [(n, b) for n, b in boxes if b and min(b["width"], b["height"]) < 24] == []


def test_a_token_is_filled_by_its_weight_and_underlined_by_its_surprise(visit):
    page = visit(TAG)
    reveal(page, TAG)
    page.add_style_tag(content="* { transition: none !important }")
    looks = page.locator(".instrument-token").last.evaluate(
        """token => [[0, 0], [1, 0], [0, 1]].map(([weight, surprise]) => {
            token.style.setProperty("--weight", weight);
            token.style.setProperty("--surprise", surprise);
            const { backgroundColor, backgroundSize, backgroundImage } = getComputedStyle(token);
            return { backgroundColor, backgroundSize, backgroundImage };
        })"""
    )
    plain, heavy, surprising = looks
    assert heavy["backgroundColor"] != plain["backgroundColor"]
    assert "gradient" in plain["backgroundImage"]
    assert (plain["backgroundSize"], surprising["backgroundSize"]) == ("0% 3px", "100% 3px")


def test_the_row_of_tokens_is_no_taller_than_a_token(visit):
    page = visit(TAG)
    reveal(page, TAG)
    heights = page.locator(".instrument-tokens").evaluate(
        "row => [row.offsetHeight, ...[...row.children].map((token) => token.offsetHeight)]"
    )
    assert max(heights[1:]) <= 34
    tops = len(
        set(page.locator(".instrument-token").evaluate_all("all => all.map(t => t.offsetTop)"))
    )
    assert heights[0] <= tops * (max(heights[1:]) + 5)


@pytest.mark.parametrize("settings", [{}, {"theme": "dark"}, {"forced_colors": "active"}])
def test_the_maps_are_painted_in_the_colour_of_their_canvas(visit, settings):
    page = visit(TAG, **settings)
    painted, colour = page.locator("canvas").first.evaluate(
        """canvas => [
            [...canvas.getContext("2d").getImageData(0, 0, 1, 1).data],
            getComputedStyle(canvas).color,
        ]"""
    )
    assert painted[3] == 255, "the first token has nowhere else to look"
    ask = "colour => { const c = document.createElement('canvas').getContext('2d');"
    ask += "c.fillStyle = colour; c.fillRect(0, 0, 1, 1);"
    ask += "return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3) }"
    assert painted[:3] == page.evaluate(ask, colour)


def test_the_maps_follow_the_theme_of_the_page(visit):
    page = visit(TAG)

    def picture():
        return page.locator("canvas").first.evaluate("canvas => canvas.toDataURL()")

    light = picture()
    page.evaluate("() => { document.documentElement.dataset.theme = 'dark' }")
    page.wait_for_timeout(100)
    assert picture() != light
