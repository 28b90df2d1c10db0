"""Training: from random numbers to a model that speaks, in about a minute on a CPU (chapter 08).

Every position of a text is an exercise with its answer behind it. The loss is the surprise at the
answers, AdamW lowers it, a schedule warms the learning rate up and lets it fade, and clipping keeps
one odd batch from throwing the model off.

Sources: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2017) and "SGDR" (2016);
Pascanu et al., "On the difficulty of training recurrent neural networks" (2012) for clipping.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def next_token_loss(logits: Tensor, ids: Tensor) -> Tensor:
    """Mean surprise at the next token, in nats: -ln of the probability that it got.

    Args:
        logits: (..., T, V), where position t predicts token t + 1.
        ids: (..., T).

    Returns:
        a single number: one mean over all leading dimensions and the T - 1 positions that have a
        next token.

    Raises:
        ValueError: there is no next token.
    """
    if ids.shape[-1] < 2:
        raise ValueError(f"a text of {ids.shape[-1]} tokens has no next token to predict")
    logits, targets = logits[..., :-1, :], ids[..., 1:]
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def warmup_cosine(step: int, warmup: int, total: int, peak: float, floor: float) -> float:
    """The learning rate of a step: up in a straight line, then down along a cosine.

    Args:
        step: 0, 1, …
        warmup: steps until the peak; the first one is already above 0.
        total: steps until the floor, where it stays.
        peak, floor: learning rates.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if step >= total:
        return floor
    done = (step - warmup) / (total - warmup)
    return floor + (peak - floor) / 2 * (1 + math.cos(math.pi * done))


def sample_windows(ids: Tensor, context: int, batch: int, generator: torch.Generator) -> Tensor:
    """Windows of a text, each begun at a random place.

    Args:
        ids: (n,) a text of more than `context` tokens.
        context: T.
        batch: B.
        generator: where the places come from.

    Returns:
        (B, T + 1): T inputs and, one place on, their T targets.

    Raises:
        ValueError: the text is too short.
    """
    if len(ids) <= context:
        raise ValueError(f"{len(ids)} tokens make no window of {context} with its next token")
    starts = torch.randint(0, len(ids) - context, (batch, 1), generator=generator)
    return ids[starts + torch.arange(context + 1)]


@torch.no_grad()
def evaluate(model: nn.Module, ids: Tensor, context: int, batch: int = 64) -> float:
    """Mean loss over a text, cut into windows one after the other.

    Args:
        model: (B, T) ids → (B, T, V) logits.
        ids: (n,) more than `context` tokens. What is left after the last whole window is not used.
        context: T, how much the model sees at once.
        batch: windows computed at a time; it changes nothing in the result.

    Returns:
        nats per token.

    Raises:
        ValueError: the text is too short.
    """
    n = (len(ids) - 1) // context
    if n < 1:
        raise ValueError(f"{len(ids)} tokens make no window of {context} with its next token")
    # Each window begins with the last target of the one before, so that no target is left out.
    windows = ids.as_strided((n, context + 1), (context, 1))
    total = 0.0
    for part in windows.split(batch):
        logits = model(part[:, :-1])
        targets = part[:, 1:].reshape(-1)
        total += F.cross_entropy(logits.flatten(0, 1), targets, reduction="sum").item()
    return total / (n * context)


@dataclass(frozen=True)
class Recipe:
    """How a model is trained. The defaults suit the small character model of chapter 08.

    Raises:
        ValueError: a number is out of range.
    """

    steps: int = 1000
    batch: int = 12
    context: int = 64
    peak: float = 4e-3
    floor: float = 4e-4
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0  #: the largest length of the gradient
    evaluate_every: int = 250
    seed: int = 0

    def __post_init__(self):
        for name in ("steps", "batch", "context", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not self.peak >= self.floor >= 0:
            raise ValueError(f"floor = {self.floor} must lie between 0 and peak = {self.peak}")


@dataclass
class History:
    """What happened: the loss of every step, and (step, loss) on text that is not trained on."""

    losses: list[float]
    evaluations: list[tuple[int, float]]


def adamw(model: nn.Module, weight_decay: float) -> torch.optim.AdamW:
    """AdamW whose decay pulls at matrices only: a gain that decays would silence its feature."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [
        {"params": matrices, "weight_decay": weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), fused=True)


def train(
    model: nn.Module,
    ids: Tensor,
    held_out: Tensor,
    recipe: Recipe | None = None,
    *,
    checkpoint: str | os.PathLike | None = None,
    watch: Callable[[int, nn.Module], None] | None = None,
    progress: bool = True,
) -> History:
    """Trains a model in place.

    Args:
        model: (B, T) ids → (B, T, V) logits.
        ids: (n,) the text to learn from.
        held_out: (m,) text to be judged by.
        recipe: how; None takes the defaults.
        checkpoint: a file that is written at every evaluation. If it is there already, training
            goes on from it and comes to the same losses as without the break; an interruption loses
            what came after the last evaluation and nothing else.
        watch: called with the step and the model at every evaluation, to look at samples.
        progress: whether to show a bar with the loss and the speed.

    Returns:
        losses in nats per token.

    Raises:
        ValueError: a text is too short, or the checkpoint is damaged or of another recipe or model.
        OSError: the checkpoint cannot be written; said before the first step.
    """
    recipe = Recipe() if recipe is None else recipe
    optimizer = adamw(model, recipe.weight_decay)
    generator = torch.Generator().manual_seed(recipe.seed)
    history, first = History([], []), 0
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None:
        _beside(path).touch()  # better known now than at the first evaluation
        _beside(path).unlink()
        if path.exists():
            first = _resume(path, model, optimizer, generator, history, recipe)
    with _bar(recipe, first, progress) as show:
        for step in range(first, recipe.steps):
            batch = sample_windows(ids, recipe.context, recipe.batch, generator)
            history.losses.append(_step(model, optimizer, batch, step, recipe))
            show(step, history.losses[-1])
            if (step + 1) % recipe.evaluate_every == 0 or step + 1 == recipe.steps:
                history.evaluations.append((step + 1, evaluate(model, held_out, recipe.context)))
                if path is not None:
                    _save(path, model, optimizer, generator, history, recipe)
                if watch is not None:
                    watch(step + 1, model)
    return history


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor, step: int, recipe: Recipe
) -> float:
    for group in optimizer.param_groups:
        group["lr"] = warmup_cosine(step, recipe.warmup, recipe.steps, recipe.peak, recipe.floor)
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].reshape(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    optimizer.step()
    return loss.item()


def _save(path: Path, model, optimizer, generator, history: History, recipe: Recipe) -> None:
    """Written beside its place and then moved there, so that the file is always a whole one."""
    torch.save(
        {
            "recipe": asdict(recipe),
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "generator": generator.get_state(),
            "losses": history.losses,
            "evaluations": history.evaluations,
        },
        _beside(path),
    )
    os.replace(_beside(path), path)


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _resume(path: Path, model, optimizer, generator, history: History, recipe: Recipe) -> int:
    """Brings everything to where the checkpoint was written, and gives the next step."""
    try:
        state = torch.load(path, weights_only=True)
        state["recipe"]
    except Exception as error:  # which one depends on where the file was cut
        raise ValueError(
            f"{path} is no whole checkpoint: delete it to start anew, or name another file"
        ) from error
    if state["recipe"] != asdict(recipe):
        changed = [name for name, value in asdict(recipe).items() if state["recipe"][name] != value]
        raise ValueError(
            f"{path} was trained with another {', '.join(changed)}: go on with the same recipe, or "
            "name another file"
        )
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise ValueError(f"{path} holds another model: {error}") from error
    optimizer.load_state_dict(state["optimizer"])
    generator.set_state(state["generator"])
    history.losses[:] = state["losses"]
    history.evaluations[:] = [tuple(pair) for pair in state["evaluations"]]
    return len(history.losses)


class _bar:
    """A progress bar with loss and tokens per second; nothing where it is not wanted."""

    def __init__(self, recipe: Recipe, first: int, wanted: bool):
        self.recipe, self.first, self.wanted = recipe, first, wanted

    def __enter__(self) -> Callable[[int, float], None]:
        if not self.wanted:
            return lambda step, loss: None
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.bar = Progress(
            TextColumn("step {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("loss {task.fields[loss]:.3f}"),
            TextColumn("{task.fields[speed]:,.0f} tokens/s"),
            TimeRemainingColumn(),
        )
        self.bar.start()
        task = self.bar.add_task(
            "", total=self.recipe.steps, completed=self.first, loss=math.nan, speed=0.0
        )
        start, tokens = time.perf_counter(), self.recipe.batch * self.recipe.context

        def show(step: int, loss: float) -> None:
            seconds = time.perf_counter() - start
            speed = (step + 1 - self.first) * tokens / seconds
            self.bar.update(task, completed=step + 1, loss=loss, speed=speed)

        return show

    def __exit__(self, *error) -> None:
        if self.wanted:
            self.bar.stop()
