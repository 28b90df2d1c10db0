"""The tables of the gallery have the form that pages rely on; with the models, some are remade."""

import base64
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.published import load

_TOOL = Path(__file__).parents[2] / "tools" / "head_gallery.py"
_SPEC = importlib.util.spec_from_file_location("head_gallery", _TOOL)
gallery = sys.modules["head_gallery"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(gallery)

TABLES = gallery.read_tables()
MODELS = ("smollm2", "minilm")
TEXTS = ("tired", "wide", "nurse", "twice")

every_model = pytest.mark.parametrize("model", MODELS)
every_text = pytest.mark.parametrize("text", TEXTS)


def bytes_of(model, text):
    """(L, H, rows or all pairs) of 255ths, and the number of tokens."""
    table, sizes = TABLES["weights"][model][text], TABLES["models"][model]
    raw = np.frombuffer(base64.b64decode(table["bytes"]), np.uint8)
    return raw.reshape(sizes["layers"], sizes["heads"], -1), len(table["tokens"])


def weights(model, text):
    """(L, H, T, T), as the page has them."""
    raw, T = bytes_of(model, text)
    if not TABLES["models"][model]["causal"]:
        return raw.reshape(*raw.shape[:2], T, T) / 255
    full = np.zeros((*raw.shape[:2], T, T))
    full[(..., *np.tril_indices(T))] = raw / 255
    return full


def census(model, score):
    sizes = TABLES["models"][model]
    return np.reshape(TABLES["census"][model][score], (sizes["layers"], sizes["heads"]))


@every_model
@every_text
def test_every_row_of_weights_sums_to_one(model, text):
    np.testing.assert_allclose(weights(model, text).sum(-1), 1, atol=1e-12)


@every_text
def test_nothing_is_kept_of_what_a_causal_model_cannot_see(text):
    raw, T = bytes_of("smollm2", text)
    assert raw.shape[-1] == T * (T + 1) // 2


@every_model
def test_the_animal_sentences_differ_in_one_token(model):
    tired, wide = (TABLES["weights"][model][text]["tokens"] for text in ("tired", "wide"))
    assert [i for i, (a, b) in enumerate(zip(tired, wide, strict=True)) if a != b] == [
        tired.index("tired")
    ]


def test_up_to_the_word_that_differs_a_causal_model_reads_the_same():
    at = TABLES["weights"]["smollm2"]["tired"]["tokens"].index("tired")
    tired, wide = (weights("smollm2", text)[:, :, :at] for text in ("tired", "wide"))
    assert (tired == wide).all()


@every_model
def test_the_ten_words_come_twice(model):
    tokens = TABLES["weights"][model]["twice"]["tokens"]
    inner = tokens if model == "smollm2" else tokens[1:-1]
    assert len(inner) == 20
    assert inner[:10] == inner[10:]


@every_model
def test_the_census_has_a_share_for_every_head(model):
    for name in ("previous", "first", "itself", "induction", "duplicate"):
        assert (census(model, name) >= 0).all() and (census(model, name) <= 1).all()


def test_the_file_is_small_and_a_plain_assignment():
    text = gallery.TABLES.read_text("utf-8")
    assert len(text.encode()) < 1_000_000
    assert text.startswith("/*")
    assert text.endswith("};\n")
    assert "import" not in text.partition("attend.gallery")[0]


def test_rows_become_bytes_that_lose_nothing_of_their_sum():
    rows = np.random.default_rng(0).dirichlet(np.full(13, 0.3), (3, 5))
    amounts = gallery.in_255ths(rows)
    assert (amounts.sum(-1, dtype=int) == 255).all()
    assert np.abs(amounts / 255 - rows).max() < 1 / 255


def test_a_marked_sentence_says_where_its_verb_and_object_are():
    text, verb, object_ = gallery.marked("The chef [cut] the large red (onion) twice.")
    assert text == "The chef cut the large red onion twice."
    assert (verb, object_) == (2, 6)


def test_every_sentence_has_one_verb_and_one_object_and_never_begins_with_either():
    for line in gallery.SENTENCES.read_text("utf-8").splitlines():
        assert line.count("[") == line.count("(") == 1
        _, verb, object_ = gallery.marked(line)
        assert 0 < verb < object_


# With the models ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "model, name, causal", [("smollm2", "smollm2-135m", True), ("minilm", "minilm-l6", False)]
)
def test_the_tables_are_what_the_model_computes(model, name, causal):
    load(name)
    reader = gallery.Reader(model, TABLES["models"][model]["name"], name, causal=causal)
    for text in ("wide", "twice"):
        ids = reader.encode(gallery.TEXTS[text])
        assert reader.names(ids) == TABLES["weights"][model][text]["tokens"]
        computed = reader.weights([ids])[:, 0]
        # A byte may be one off where rounding was a close thing.
        assert np.abs(computed - weights(model, text)).max() < 2 / 255
