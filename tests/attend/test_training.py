"""Training: loss and schedule by hand, a model that learns, and a break that is not felt."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import attend
from attend.training import _step

from .mistakes import mistakes, must_reject

CONFIG = attend.GPTConfig(vocab=29, context=16, d_model=12, n_layers=2, n_heads=3, d_hidden=24)
RECIPE = attend.Recipe(steps=12, batch=4, context=8, evaluate_every=4, warmup=3)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_loss(loss):
    logits, ids = normal(2, 3, 5, 7), torch.arange(30).reshape(2, 3, 5) % 7
    p = torch.softmax(logits, -1)
    surprise = [
        -math.log(p[a, b, t, ids[a, b, t + 1]])
        for a in range(2)
        for b in range(3)
        for t in range(4)
    ]
    got = loss(logits, ids)
    assert got.ndim == 0 and abs(got.item() - sum(surprise) / 24) < 1e-12
    assert abs(loss(logits[0, 0], ids[0, 0]).item() - sum(surprise[:4]) / 4) < 1e-12
    try:
        loss(logits[..., :1, :], ids[..., :1])
    except ValueError:
        return
    raise AssertionError("one token has no next one")


def check_schedule(schedule):
    assert schedule(0, 10, 110, 1.0, 0.1) == pytest.approx(0.1)
    assert schedule(9, 10, 110, 1.0, 0.1) == pytest.approx(1.0)
    assert schedule(10, 10, 110, 1.0, 0.1) == pytest.approx(1.0)
    assert schedule(60, 10, 110, 1.0, 0.1) == pytest.approx(0.55)
    assert schedule(35, 10, 110, 1.0, 0.1) == pytest.approx(0.1 + 0.45 * (1 + math.sqrt(0.5)))
    for after in (110, 111, 10_000):
        assert schedule(after, 10, 110, 1.0, 0.1) == pytest.approx(0.1)
    assert schedule(0, 0, 10, 1.0, 0.1) == pytest.approx(1.0), "no warm-up"
    assert schedule(4, 5, 5, 1.0, 0.1) == pytest.approx(1.0), "warm-up to the very end"
    assert schedule(5, 5, 5, 1.0, 0.1) == pytest.approx(0.1)


def _loss(shift=1, softmax=False, reduction="mean"):
    def f(logits, ids):
        if ids.shape[-1] < 2:
            raise ValueError
        logits = torch.softmax(logits, -1) if softmax else logits
        logits = logits[..., : logits.shape[-2] - shift, :]
        targets = ids[..., shift:]
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction=reduction)

    return f


def _last_logit_kept(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError
    return F.cross_entropy(logits.flatten(0, -2), ids.roll(-1, -1).flatten())


def _no_error(logits, ids):
    return attend.next_token_loss(logits, ids) if ids.shape[-1] > 1 else logits.sum() * 0


def _schedule(step, warmup, total, peak, floor, first=1, clamp=True, safe=True):
    if step < warmup:
        return peak * (step + first) / warmup
    if step >= total and clamp:
        return floor
    done = (step - warmup) / ((total - warmup) if safe else max(total - warmup, 1))
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


@mistakes(
    {
        check_loss: {
            "no shift": _loss(shift=0),
            "shift by two": _loss(shift=2),
            "softmax twice": _loss(softmax=True),
            "sum": _loss(reduction="sum"),
            "last logit kept": _last_logit_kept,
            "no error": _no_error,
        },
        check_schedule: {
            "step 0 gives 0": lambda *a: _schedule(*a, first=0),
            "rises again after the end": lambda *a: (
                _schedule(*a[:2], a[2] or 1, *a[3:], clamp=False) if a[1] != a[2] else a[4]
            ),
            "a line for the cosine": lambda step, w, total, peak, floor: (
                _schedule(step, w, total, peak, floor)
                if not w <= step < total
                else peak + (floor - peak) * (step - w) / (total - w)
            ),
            "down to 0": lambda step, w, total, peak, floor: _schedule(step, w, total, peak, 0.0),
        },
    }
)
def test_mistakes_are_caught(check, wrong):
    must_reject(check, wrong)


def test_the_loss_is_the_mean_surprise_at_the_next_token():
    check_loss(attend.next_token_loss)
    check_loss(_loss())


def test_the_learning_rate_rises_and_fades():
    check_schedule(attend.warmup_cosine)
    check_schedule(_schedule)


def test_windows_are_pieces_of_the_text_from_everywhere():
    ids = torch.arange(20)
    windows = attend.sample_windows(ids, 4, 500, torch.Generator().manual_seed(0))
    assert windows.shape == (500, 5)
    assert (windows.diff(dim=1) == 1).all()
    assert set(windows[:, 0].tolist()) == set(range(16))
    with pytest.raises(ValueError, match="4 tokens make no window of 4"):
        attend.sample_windows(ids[:4], 4, 1, torch.Generator())


def test_evaluation_is_the_mean_over_every_target_once():
    torch.manual_seed(0)
    model, ids = attend.gpt(CONFIG), torch.arange(60) * 7 % 29
    losses = [
        attend.next_token_loss(model(ids[None, a : a + 9]), ids[None, a : a + 9]).item()
        for a in range(0, 56, 8)
    ]
    for batch in (1, 3, 64):
        got = attend.evaluate(model, ids, 8, batch)
        assert got == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert all(p.grad is None for p in model.parameters())
    with pytest.raises(ValueError, match="8 tokens"):
        attend.evaluate(model, ids[:8], 8)


def text() -> tuple[torch.Tensor, torch.Tensor]:
    """Each token follows from the one before, so that there is something to learn."""
    ids = [1]
    for _ in range(400):
        ids.append((ids[-1] * 5 + 3) % 29)
    return torch.tensor(ids[:300]), torch.tensor(ids[300:])


def fresh() -> attend.Transformer:
    torch.manual_seed(1)
    return attend.gpt(CONFIG)


def test_a_model_learns_what_can_be_learnt():
    model = fresh()
    recipe = attend.Recipe(steps=150, batch=8, context=8, warmup=10, peak=1e-2, evaluate_every=50)
    history = attend.train(model, *text(), recipe, progress=False)
    assert len(history.losses) == 150
    assert [step for step, _ in history.evaluations] == [50, 100, 150]
    assert history.losses[0] == pytest.approx(math.log(29), abs=0.2), "it starts without a clue"
    assert history.evaluations[-1][1] < 0.2


class Interrupted(KeyboardInterrupt):
    pass


def test_training_that_was_interrupted_comes_to_the_same_losses_and_weights(tmp_path):
    whole = fresh()
    expected = attend.train(whole, *text(), RECIPE, progress=False)

    def stop(step, model):
        if step == 8:
            raise Interrupted

    path = tmp_path / "model.pt"
    with pytest.raises(Interrupted):
        attend.train(fresh(), *text(), RECIPE, checkpoint=path, watch=stop, progress=False)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt"], (
        "nothing half-written is left"
    )
    model = fresh()
    got = attend.train(model, *text(), RECIPE, checkpoint=path, progress=False)
    assert got == expected
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.equal(a, b)
    assert attend.train(fresh(), *text(), RECIPE, checkpoint=path, progress=False) == expected


def test_an_interruption_in_the_middle_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    calls, save = [], torch.save

    def save_then_die(state, path):
        save(state, path)
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt  # the second checkpoint is written but not yet in its place

    monkeypatch.setattr(torch, "save", save_then_die)
    path = tmp_path / "model.pt"
    with pytest.raises(KeyboardInterrupt):
        attend.train(fresh(), *text(), RECIPE, checkpoint=path, progress=False)
    assert len(torch.load(path, weights_only=True)["losses"]) == 4
    monkeypatch.undo()
    got = attend.train(fresh(), *text(), RECIPE, checkpoint=path, progress=False)
    assert got == attend.train(fresh(), *text(), RECIPE, progress=False)


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "model.pt"
    attend.train(fresh(), *text(), RECIPE, checkpoint=path, progress=False)
    other = attend.Recipe(**{**RECIPE.__dict__, "peak": 1e-2, "seed": 3})
    with pytest.raises(ValueError, match="another peak, seed"):
        attend.train(fresh(), *text(), other, checkpoint=path, progress=False)
    wider = attend.GPTConfig(**{**CONFIG.__dict__, "d_hidden": 30})
    with pytest.raises(ValueError, match="holds another model"):
        attend.train(attend.gpt(wider), *text(), RECIPE, checkpoint=path, progress=False)


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_a_damaged_checkpoint_is_refused_in_a_sentence(tmp_path, damage):
    path = tmp_path / "model.pt"
    attend.train(fresh(), *text(), RECIPE, checkpoint=path, progress=False)
    path.write_bytes(path.read_bytes()[:-200] if damage is None else damage)
    with pytest.raises(ValueError, match="no whole checkpoint: delete it"):
        attend.train(fresh(), *text(), RECIPE, checkpoint=path, progress=False)


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_step(tmp_path):
    model = fresh()
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(OSError):
        path = tmp_path / "nowhere" / "model.pt"
        attend.train(model, *text(), RECIPE, checkpoint=path, progress=False)
    assert all(map(torch.equal, before, model.parameters()))


def test_training_leaves_the_global_random_numbers_alone():
    model = fresh()
    state = torch.get_rng_state()
    attend.train(model, *text(), RECIPE, progress=False)
    assert torch.equal(torch.get_rng_state(), state)


def test_only_matrices_decay():
    model = fresh()
    decaying, others = attend.adamw(model, 0.1).param_groups
    assert decaying["weight_decay"] == 0.1 and others["weight_decay"] == 0
    assert {p.ndim for p in decaying["params"]} == {2} and {p.ndim for p in others["params"]} == {1}
    assert len(decaying["params"]) + len(others["params"]) == len(list(model.parameters()))


def test_a_large_gradient_is_clipped():
    """With a loss scaled up a thousandfold by its weights, the first step stays as small."""
    model = fresh()
    with torch.no_grad():
        model.embedding.tokens *= 300
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = [p.clone() for p in model.parameters()]
    recipe = attend.Recipe(peak=1.0, floor=1.0, warmup=0, clip=0.5)
    _step(model, optimizer, text()[0][None, :9], 5, recipe)
    pairs = zip(model.parameters(), before, strict=True)
    moved = math.sqrt(sum((a - b).square().sum().item() for a, b in pairs))
    assert moved == pytest.approx(0.5, rel=1e-3)


def test_the_bar_shows_loss_and_speed(capsys):
    attend.train(fresh(), *text(), RECIPE, progress=True)
    shown = capsys.readouterr().out
    assert "12/12" in shown and "loss" in shown and "tokens/s" in shown


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"floor": 1.0}, "floor = 1.0"),
        ({"context": -3}, "context is -3"),
    ],
)
def test_a_recipe_that_cannot_work_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        attend.Recipe(**wrong)
