"""Chapter 12: wrong models that speak, messages that a student reads, and the parts together."""

from __future__ import annotations

import io
import json
import math
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import attend
from coursework import check, evaluate
from coursework.exercises import bug_hunt_of, get
from coursework.exercises.real_model import EXERCISES
from coursework.exercises.real_model.generation import Reciter, Speller
from tests.coursework.exercises.right_answers.real_model import (
    BlockByHand,
    BlockWithFusedAttention,
    greedy_in_a_list,
    load_line_by_line,
    swiglu_with_silu,
    unpermute_by_slices,
)

SWIGLU = "12.swiglu"
UNPERMUTE = "12.unpermute_rope"
LOAD = "12.load_block"
BLOCK = "12.DecoderBlock"
GREEDY = "12.greedy"


def swiglu_that_returns_zeros(x, w_gate, w_up, w_down):
    return torch.zeros_like(x)


def swiglu_cut_off(x, w_gate, w_up, w_down):
    return swiglu_with_silu(x, w_gate, w_up, w_down).detach()


def swiglu_with_random_noise(x, w_gate, w_up, w_down):
    return swiglu_with_silu(x, w_gate, w_up, w_down) + 0 * torch.rand(1, dtype=x.dtype)


def swiglu_in_place(x, w_gate, w_up, w_down):
    y = swiglu_with_silu(x, w_gate, w_up, w_down)
    with torch.no_grad():
        x.mul_(2)
    return y


def unpermute_of_rope_permutation(w, n_heads):
    """Right for heads of one width only."""
    order = [0, 2, 4, 1, 3, 5]
    return w.reshape(n_heads, -1, w.shape[1])[:, order].reshape(w.shape)


def unpermute_as_an_array(w, n_heads):
    return unpermute_by_slices(w, n_heads).numpy()


def load_with_a_tenth_name(weights, i, n_heads, n_kv_heads):
    block = load_line_by_line(weights, i, n_heads, n_kv_heads)
    return block | {"w_vocab": block["w_q"]}


def load_as_a_tuple(weights, i, n_heads, n_kv_heads):
    return tuple(load_line_by_line(weights, i, n_heads, n_kv_heads).values())


def load_that_takes_out(weights, i, n_heads, n_kv_heads):
    """Changes what it was handed."""
    return load_line_by_line(
        {name: weights.pop(name) for name in [*weights]}, i, n_heads, n_kv_heads
    )


class BlockThatLinesUpByIsCausal(BlockByHand):
    """PyTorch's `is_causal` lines queries up with the first keys: right without a cache."""

    def forward(self, x, cache=None):
        B, T, D = x.shape
        a = self.norm(x, self.gain_1)
        q, k, v = (
            (a @ w).reshape(B, T, n, self.K).transpose(1, 2)
            for w, n in ((self.w_q, self.H), (self.w_k, self.G), (self.w_v, self.G))
        )
        start = 0 if cache is None else len(cache)
        q, k = self.rope(q, start), self.rope(k, start)
        if cache is not None:
            k, v = cache.append(k, v)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + z.transpose(1, 2).reshape(B, T, D) @ self.w_o
        a = self.norm(x, self.gain_2)
        return x + swiglu_with_silu(a, self.w_gate, self.w_up, self.w_down)


class BlockThatAsksTooLate(BlockByHand):
    """Positions counted after the cache has grown."""

    def rope(self, x, start):
        return super().rope(x, start + x.shape[2] if start else 0)


class BlockThatStoresPlainKeys(BlockByHand):
    """Turns all keys anew when they come out of the cache: the same output, another cache."""

    def forward(self, x, cache=None):
        before = 0 if cache is None else len(cache)
        late = None if cache is None else _TurnedOnTheWayOut(self, cache, before)
        self.stores_plain = cache is not None
        return super().forward(x, late)

    def rope(self, x, start):
        if self.stores_plain and x.shape[1] == self.G:
            return x
        return super().rope(x, start)


class _TurnedOnTheWayOut:
    def __init__(self, block, cache, before):
        self.block, self.cache, self.before = block, cache, before

    def __len__(self):
        return self.before

    def append(self, k, v):
        k, v = self.cache.append(k, v)
        return BlockByHand.rope(self.block, k, 0), v


class BlockWithHiddenState(BlockByHand):
    """A tenth tensor in the state."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("mask", torch.ones(3))


class BlockWithLinears(torch.nn.Module):
    """nn.Linear has other names, and matrices (out, in)."""

    def __init__(self, d_model, n_heads, n_kv_heads, d_hidden, base=10000.0, eps=1e-6):
        super().__init__()
        self.w_q = torch.nn.Linear(d_model, d_model, bias=False)

    def forward(self, x, cache=None):
        return x


class BlockOfZeros(BlockByHand):
    def forward(self, x, cache=None):
        if cache is not None:
            zeros = x.new_zeros(x.shape[0], self.G, x.shape[1], self.K)
            cache.append(zeros, zeros)
        return x


class BlockThatDropsOutInTraining(BlockByHand):
    def forward(self, x, cache=None):
        return F.dropout(super().forward(x, cache), 0.1, self.training)


class BlockInFloat32(BlockByHand):
    def forward(self, x, cache=None):
        return super().forward(x.float().double(), cache).float().double()


def greedy_by_logits_of_any_position(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    start = len(ids)
    for _ in range(n):
        ids = [*ids, int(model(torch.tensor([ids]))[0].max(0).values.argmax())]
    return tokenizer.decode(ids[start:])


def greedy_that_says_nothing(model, tokenizer, prompt, n):
    return ""


def greedy_with_global_sampling(model, tokenizer, prompt, n):
    ids = tokenizer.encode(prompt)
    start = len(ids)
    for _ in range(n):
        p = torch.softmax(model(torch.tensor([ids]))[0, -1], -1)
        ids.append(int(torch.multinomial(p, 1)))
    return tokenizer.decode(ids[start:])


WRONG_ANSWERS = {
    SWIGLU: (
        swiglu_that_returns_zeros,
        swiglu_cut_off,
        swiglu_with_random_noise,
        swiglu_in_place,
    ),
    UNPERMUTE: (unpermute_of_rope_permutation, unpermute_as_an_array),
    LOAD: (load_with_a_tenth_name, load_as_a_tuple, load_that_takes_out),
    BLOCK: (
        BlockThatLinesUpByIsCausal,
        BlockThatAsksTooLate,
        BlockThatStoresPlainKeys,
        BlockWithHiddenState,
        BlockWithLinears,
        BlockOfZeros,
        BlockThatDropsOutInTraining,
        BlockInFloat32,
    ),
    GREEDY: (
        greedy_by_logits_of_any_position,
        greedy_that_says_nothing,
        greedy_with_global_sampling,
    ),
}


@pytest.mark.parametrize(
    ("id", "answer"),
    [pytest.param(id, f, id=f.__name__) for id, fs in WRONG_ANSWERS.items() for f in fs],
)
@pytest.mark.slow
def test_a_wrong_answer_is_refused(id, answer):
    verdict = evaluate(id, answer, seed=1)
    assert not verdict.passed
    assert verdict.points < verdict.max_points


# What a student reads ------------------------------------------------------------------------


def printed(id, answer):
    out = io.StringIO()
    with redirect_stdout(out):
        points = check(id, answer)
    return points, out.getvalue()


def test_which_of_the_nine_tensors_is_wrong_is_said():
    def answer(weights, i, n_heads, n_kv_heads):
        block = load_line_by_line(weights, i, n_heads, n_kv_heads)
        return block | {"w_down": 2 * block["w_down"]}

    assert "w_down is not right" in printed(LOAD, answer)[1]


def test_a_name_that_is_missing_is_said():
    def answer(weights, i, n_heads, n_kv_heads):
        block = load_line_by_line(weights, i, n_heads, n_kv_heads)
        return {name: w for name, w in block.items() if name != "gain_2"}

    assert "the dict has no gain_2" in printed(LOAD, answer)[1]


def test_what_is_right_without_a_cache_earns_its_points():
    points, text = printed(BLOCK, BlockThatLinesUpByIsCausal)
    most = get(BLOCK).max_points
    assert points == most - 3, text
    assert "✗ with a cache, in chunks" in text


def test_keys_that_are_stored_before_they_are_turned_are_seen():
    points, text = printed(BLOCK, BlockThatStoresPlainKeys)
    assert points == get(BLOCK).max_points - 3, text
    assert "keys are put into the cache before they are turned" in text


def test_positions_may_be_counted_from_1():
    class FromOne(BlockByHand):
        def rope(self, x, start):
            return super().rope(x, start + 1)

    assert evaluate(BLOCK, FromOne, seed=1).passed


def test_a_block_of_the_file_is_not_taken_for_another_that_begins_alike():
    def by_the_beginning(weights, i, n_heads, n_kv_heads):
        """Takes every name that begins so, the first or the last of them."""
        names = [name for name in weights if name.startswith(f"blk.{i}")]
        for order in (names, names[::-1]):
            own = {f"blk.{i}." + name.split(".", 2)[2]: weights[name] for name in order}
            yield load_line_by_line(own, i, n_heads, n_kv_heads)

    for which in (0, 1):
        verdict = evaluate(LOAD, lambda *args, n=which: [*by_the_beginning(*args)][n], seed=1)
        assert verdict.points == verdict.max_points - 1, verdict.message


def test_a_mask_that_is_left_out_with_a_cache_is_named():
    class NoMaskWithACache(BlockByHand):
        def forward(self, x, cache=None):
            if cache is None:
                return super().forward(x)
            B, T, D = x.shape
            a = self.norm(x, self.gain_1)
            q, k, v = (
                (a @ w).reshape(B, T, n, self.K).transpose(1, 2)
                for w, n in ((self.w_q, self.H), (self.w_k, self.G), (self.w_v, self.G))
            )
            start = len(cache)
            k, v = cache.append(self.rope(k, start), v)
            q = self.rope(q, start)
            z = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            x = x + z.transpose(1, 2).reshape(B, T, D) @ self.w_o
            return x + swiglu_with_silu(
                self.norm(x, self.gain_2), self.w_gate, self.w_up, self.w_down
            )

    assert evaluate(BLOCK, NoMaskWithACache, seed=1).misconception == (
        "lets a chunk see its own future"
    )


def test_two_appends_a_call_are_seen():
    class Twice(BlockByHand):
        def forward(self, x, cache=None):
            if cache is not None:
                cache.append(x.new_zeros(1, 1, 0, 1), x.new_zeros(1, 1, 0, 1))
            return super().forward(x, cache)

    assert not evaluate(BLOCK, Twice, seed=1).passed


def test_a_draw_from_the_global_generator_is_said():
    assert "a global random generator" in printed(GREEDY, greedy_with_global_sampling)[1]


# What the exercises are made of --------------------------------------------------------------


def test_the_minutes_are_those_of_a_notebook():
    hunt = get("12.bug_hunt")
    assert 45 <= sum(e.minutes for e in EXERCISES) + hunt.minutes <= 90


def test_the_small_model_answers_otherwise_where_the_text_is_another():
    tokenizer = Speller()
    known = tokenizer.encode("abcdef")
    model = Reciter(known, len(tokenizer), seed=1)
    logits = model(torch.tensor([known[:4]]))
    assert logits.shape == (1, 4, len(tokenizer))
    assert logits[0].argmax(-1).tolist() == known[1:5]
    alone = model(torch.tensor([known[3:4]]))
    assert not torch.equal(alone[0, -1], logits[0, -1])
    with pytest.raises(TypeError):
        model(torch.tensor([known[:2]], dtype=torch.int32))


def test_an_end_of_id_0_is_an_end():
    tokenizer = Speller(end=0)
    assert tokenizer.eos_id == 0 and tokenizer.decode([0]) == "<end>"
    assert tokenizer.decode(tokenizer.encode("a é €")) == "a é €"
    assert not hasattr(Speller(), "eos_id")


def test_the_bugs_of_the_hunt_hide_and_show_where_it_is_said():
    from coursework.chapters import by_slug

    hunt = bug_hunt_of(by_slug("12-real-model"))
    for bug in hunt.bugs:
        wrong = next(m.function for m in hunt.target.misconceptions if m.name == bug.misconception)
        for args in (bug.hides, bug.shows):
            assert all(condition.holds(*args) for condition in hunt.conditions)
        assert torch.equal(wrong(*bug.hides), attend.unpermute_rope(*bug.hides))
        try:
            assert not torch.equal(wrong(*bug.shows), attend.unpermute_rope(*bug.shows))
        except RuntimeError:
            pytest.fail(f"{bug.misconception} raises where it should differ")


# All of it together --------------------------------------------------------------------------


def _cell_of_the_whole_model():
    """The cell of the student's notebook that builds a model out of its parts."""
    path = Path(__file__).parents[3] / "notebooks" / "12-real-model" / "12-real-model.ipynb"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return next(source for source in code if "class YourModel" in source)


class BlockWithAnotherEps(BlockByHand):
    def __init__(self, *args, eps=1e-6, **kwargs):
        super().__init__(*args, eps=eps / 10, **kwargs)


@pytest.mark.parametrize(
    ("Block", "says"),
    [
        (BlockByHand, "the same, up to rounding."),
        (BlockWithFusedAttention, "the same, up to rounding."),
        (BlockWithAnotherEps, "not the same yet."),
    ],
)
def test_without_the_weights_the_notebook_calls_a_right_model_right(monkeypatch, Block, says):
    monkeypatch.setattr(attend, "is_fetched", lambda name: False)
    names = {
        "torch": torch,
        "nn": torch.nn,
        "DecoderBlock": Block,
        "load_block": load_line_by_line,
    }
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(_cell_of_the_whole_model(), "cell", "exec"), names)
    assert says in out.getvalue(), out.getvalue()


@pytest.mark.parametrize("Block", [BlockByHand, BlockWithFusedAttention])
def test_right_answers_make_a_model_that_computes_what_ours_does(Block):
    """Two answers, put in place of ours, give the logits and the text of a whole model."""
    config = attend.LlamaConfig(
        len(Speller(end=3)), 40, 24, 3, 6, 20, n_kv_heads=2, rope_base=500.0, norm_eps=1e-3
    )
    torch.manual_seed(0)
    model = attend.llama(config).double().requires_grad_(False)
    for p in model.parameters():
        p.copy_(torch.randn_like(p) / math.sqrt(p.shape[0]) if p.ndim == 2 else 1 + 0.1 * p)
    blocks = []
    for i in range(3):
        block = Block(24, 6, 2, 20, base=500.0, eps=1e-3).double()
        block.load_state_dict(load_line_by_line(attend.published_block(model, i), i, 6, 2))
        blocks.append(block.requires_grad_(False))

    def theirs(ids, caches=(None, None, None)):
        x = model.embedding.tokens[ids]
        for block, cache in zip(blocks, caches, strict=True):
            x = block(x, cache)
        return model.head(model.norm(x))

    # Ours takes its angles from a table in float32; an answer may compute them in float64.
    near = {"rtol": 0, "atol": 1e-6}
    ids = torch.arange(2 * 11).reshape(2, 11) % config.vocab
    torch.testing.assert_close(theirs(ids), model(ids), **near)
    caches = attend.new_caches(model, 2, 11)
    parts = [theirs(part, caches) for part in ids.split([4, 1, 6], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), model(ids), **near)
    tokenizer = Speller(end=3)
    ours = attend.greedy(model, tokenizer, "abc", 9)
    assert greedy_in_a_list(theirs, tokenizer, "abc", 9) == ours
