"""`next_token_loss`: how surprised a model is at what comes next."""

from __future__ import annotations

import numpy as np
import torch

from attend.training import next_token_loss
from coursework.exercise import Call, Exercise, Misconception, Property, differentiated

Rng = np.random.Generator


def _call(
    rng: Rng, T: int, V: int, *leading: int, scale: float = 1.5, dtype: torch.dtype = torch.float64
) -> Call:
    logits = torch.from_numpy(scale * rng.standard_normal((*leading, T, V))).to(dtype)
    return Call((logits, torch.from_numpy(rng.integers(V, size=(*leading, T)))))


def _batches(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 5, 2),
        _call(rng, 2, 3, 5),
        _call(rng, 5, 2, 3),
        _call(rng, 7, 11, 1),
        _call(rng, 11, 7, 3, scale=4.0),
        _call(rng, 4, 13, 7),
    )


def _any_leading(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 4),
        _call(rng, 2, 7),
        _call(rng, 7, 3),
        _call(rng, 5, 4, 3, 2),
        _call(rng, 3, 5, 2, 1, 4),
        _call(rng, 2, 3, 1, 5),
    )


def _loud(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 4, 2, scale=1e4),
        _call(rng, 5, 3, 2, scale=1e4),
        _call(rng, 2, 7, 3, scale=3e3),
    )


def _other_precision(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 3, 5, 2, dtype=torch.float32),
        _call(rng, 5, 3, dtype=torch.float32),
        _call(rng, 2, 7, 3, 4, dtype=torch.float32),
    )


def _too_short(rng: Rng) -> tuple[Call, ...]:
    return (
        _call(rng, 1, 3),
        _call(rng, 1, 5, 2),
        _call(rng, 0, 4, 3),
        _call(rng, 2, 5, 3),
        _call(rng, 0, 2),
        _call(rng, 1, 4, 2, 3),
    )


def _for_gradients(rng: Rng) -> tuple[Call, ...]:
    return differentiated((_call(rng, 3, 5, 2), _call(rng, 4, 3), _call(rng, 5, 2, 3, 2)))


def _not_shifted(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits, dim=-1)
    return -log_p.gather(-1, ids[..., None]).mean()


def _not_shifted_and_short(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return -log_p.gather(-1, ids[..., :-1, None]).mean()


def _shifted_backwards(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., 1:, :], dim=-1)
    return -log_p.gather(-1, ids[..., :-1, None]).mean()


def _last_kept(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    targets = torch.roll(ids, -1, dims=-1)
    log_p = torch.log_softmax(logits, dim=-1)
    return -log_p.gather(-1, targets[..., None]).mean()


def _flattened_first(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits.flatten(0, -2)[:-1], dim=-1)
    return -log_p.gather(-1, ids.flatten()[1:, None]).mean()


def _divided_by_T(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    surprise = -log_p.gather(-1, ids[..., 1:, None])
    return surprise.sum() / ids.numel()


def _summed(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return -log_p.gather(-1, ids[..., 1:, None]).sum()


def _summed_over_positions(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    surprise = -log_p.gather(-1, ids[..., 1:, None])[..., 0]
    return surprise.sum(-1).mean()


def _softmax_twice(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    p = torch.softmax(logits[..., :-1, :], dim=-1)
    log_p = torch.log_softmax(p, dim=-1)
    return -log_p.gather(-1, ids[..., 1:, None]).mean()


def _bits(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return -log_p.gather(-1, ids[..., 1:, None]).mean() / np.log(2)


def _perplexity(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return torch.exp(-log_p.gather(-1, ids[..., 1:, None]).mean())


def _likelihood(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return log_p.gather(-1, ids[..., 1:, None]).mean()


def _log_of_mean(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    right = log_p.gather(-1, ids[..., 1:, None])
    return np.log(right.numel()) - torch.logsumexp(right.flatten(), dim=0)


def _over_all_targets(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    one_hot = torch.zeros_like(log_p).scatter(-1, ids[..., 1:, None], 1)
    return -(one_hot * log_p).mean()


def _only_the_last(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., -2, :], dim=-1)
    return -log_p.gather(-1, ids[..., -1:]).mean()


def _softmax_over_positions(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-2)
    return -log_p.gather(-1, ids[..., 1:, None]).mean()


def _one_loss_a_text(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return -log_p.gather(-1, ids[..., 1:, None])[..., 0].mean(-1)


def _overflows(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    e = torch.exp(logits[..., :-1, :])
    p = e / e.sum(-1, keepdim=True)
    return -torch.log(p.gather(-1, ids[..., 1:, None])).mean()


def _underflows(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    p = torch.softmax(logits[..., :-1, :], dim=-1)
    return -torch.log(p.gather(-1, ids[..., 1:, None])).mean()


def _epsilon(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    p = torch.softmax(logits[..., :-1, :], dim=-1)
    return -torch.log(p.gather(-1, ids[..., 1:, None]) + 1e-6).mean()


def _takes_any_length(logits, ids):
    log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)
    return -log_p.gather(-1, ids[..., 1:, None]).mean()


def _detached(logits, ids):
    if ids.shape[-1] < 2:
        raise ValueError("no next token")
    log_p = torch.log_softmax(logits.detach()[..., :-1, :], dim=-1)
    return -log_p.gather(-1, ids[..., 1:, None]).mean()


NEXT_TOKEN_LOSS = Exercise(
    chapter=8,
    signature="next_token_loss(logits, ids)",
    task="""\
How surprised a model is, on average, at what comes next.

- `logits` is a float tensor `(..., T, V)`, as they come out of the model: before any softmax. The
  row at position t is the model's opinion on token t **+ 1**. `ids`, int64 `(..., T)`, are the
  tokens of the text. There may be no leading axes, or one, or several; both have the same.
- The surprise at a token is $-\\ln p$, in nats, where $p$ is what the softmax of the right row of
  logits gives to this token. Return the **mean** surprise over all positions that have a next
  token, T − 1 a text, and over all leading axes: one 0-d tensor in the dtype of `logits`.
- Logits of ±10,000 must do no harm.
- A text of fewer than two tokens has nothing to predict: `ValueError`.
- Training differentiates this number: gradients must flow back to `logits`. Leave both tensors as
  they are. `torch` functions may be used, `torch.nn.functional.cross_entropy` among them; `attend`
  may not.""",
    reference=next_token_loss,
    properties=(
        Property("the mean surprise at the next token", 2, _batches),
        Property("any leading axes: none, one, several", 1, _any_leading),
        Property("it can be differentiated", 1, _for_gradients),
        Property("logits of ±10,000 do no harm", 1, _loud, edge=True),
        Property("float32 logits give a float32 loss", 1, _other_precision, edge=True),
        Property("a text without a next token is refused", 1, _too_short, edge=True),
    ),
    misconceptions=(
        Misconception(
            "does not shift",
            "Each row of logits is compared with the token that it has just read. A model learns "
            "to copy its input within minutes, the loss goes to 0, and it can predict nothing. "
            "Row t is an opinion on token t + 1.",
            _not_shifted,
            symptom="your loss is about the token that was read, not the next one",
            also=(_not_shifted_and_short,),
        ),
        Misconception(
            "shifts backwards",
            "Row t is compared with token t − 1, which the model has read long ago. It is the "
            "*first* token that nobody predicts, and the *last* row that predicts nothing you "
            "have.",
            _shifted_backwards,
            symptom="your loss is about the token before",
        ),
        Misconception(
            "keeps the last row",
            "The last row of logits predicts a token that is not in the text. You compare it with "
            "the first one (`roll` brings it round): leave the row away.",
            _last_kept,
            symptom="the last position predicts the first token",
        ),
        Misconception(
            "flattens before it shifts",
            "You put all texts in one row before you shift, so that the end of one text predicts "
            "the beginning of the next. Shift within each text, then flatten.",
            _flattened_first,
            symptom="right for one text, wrong for several",
        ),
        Misconception(
            "divides by T",
            "You sum over T − 1 positions and divide by T. The mean is over what was predicted: "
            "a text of T tokens has T − 1 next tokens.",
            _divided_by_T,
            symptom="your loss is too small, the more so the shorter the text",
        ),
        Misconception(
            "sums",
            "This is the sum of the surprises. Its size, and that of every gradient, depends on "
            "how much text there is; a mean can be compared from batch to batch.",
            _summed,
            symptom="your loss grows with the size of the batch",
        ),
        Misconception(
            "sums over the positions of a text",
            "You sum along the text and take the mean over the batch only. Then a long text costs "
            "more than a short one. One mean, over batch and positions together.",
            _summed_over_positions,
            symptom="your loss grows with the length of the text",
        ),
        Misconception(
            "takes the softmax twice",
            "The softmax is taken of probabilities, which lie between 0 and 1: the second one "
            "finds them all nearly equal. `cross_entropy` and `log_softmax` want raw logits.",
            _softmax_twice,
            symptom="your loss can hardly move away from ln V",
        ),
        Misconception(
            "counts in bits",
            "This is the loss in bits. Asked for are nats: the natural logarithm.",
            _bits,
            symptom="your loss is too large by a constant factor",
        ),
        Misconception(
            "returns the perplexity",
            "This is e to the loss, the perplexity. It is how one reports a loss; what training "
            "lowers is the mean surprise itself.",
            _perplexity,
            symptom="your loss is its own exponential",
        ),
        Misconception(
            "forgets the sign",
            "This is the mean log-probability: it is largest for the best model. Training lowers "
            "a loss, so it would make the right tokens *less* likely. Change the sign.",
            _likelihood,
            symptom="your loss is negative",
        ),
        Misconception(
            "takes the logarithm of the mean",
            "You take the mean of the probabilities first and then the logarithm. A token that "
            "was thought impossible then hardly counts. First the logarithm, then the mean.",
            _log_of_mean,
            symptom="a few good guesses hide the bad ones",
        ),
        Misconception(
            "divides by V as well",
            "The mean runs over the whole one-hot array, V numbers a position of which V − 1 are "
            "zeros. Sum over the vocabulary, then take the mean over the positions.",
            _over_all_targets,
            symptom="your loss is too small by the factor V",
        ),
        Misconception(
            "counts the last position only",
            "You look at the last prediction alone. A causal model makes one at each position, "
            "and all of them are exercises with a known answer: take the mean over T − 1.",
            _only_the_last,
            symptom="only the end of the text counts",
        ),
        Misconception(
            "takes the softmax over the positions",
            "Your softmax runs along the text. At each position the V tokens compete with each "
            "other: the softmax belongs on the last axis.",
            _softmax_over_positions,
            symptom="the probabilities of a position do not sum to 1",
        ),
        Misconception(
            "returns a loss for each text",
            "You return a loss for each text. `backward()` wants a single number: take the mean "
            "over the leading axes as well.",
            _one_loss_a_text,
            symptom="your loss is not a single number",
        ),
        Misconception(
            "overflows",
            "exp(10000) is infinite, and ∞/∞ is not a number. Use `log_softmax`, or subtract the "
            "largest logit of each row first.",
            _overflows,
            symptom="large logits make NaN",
        ),
        Misconception(
            "takes the logarithm of a vanished probability",
            "The softmax is right, but a probability of e^−10000 is stored as 0, and its logarithm "
            "is −∞. Compute the logarithm of the softmax in one go: x − logsumexp(x).",
            _underflows,
            symptom="large logits make an infinite loss",
        ),
        Misconception(
            "adds a small number inside the logarithm",
            "The small number inside the logarithm keeps it finite, and changes every loss a "
            "little. `log_softmax` needs no such help.",
            _epsilon,
            symptom="your loss is slightly too small everywhere",
        ),
        Misconception(
            "takes a text without a next token",
            "For T = 1 there is nothing to take the mean of, and you return NaN. One such text "
            "in a training run makes every parameter NaN. Raise a ValueError.",
            _takes_any_length,
            symptom="a text of one token gives NaN",
        ),
        Misconception(
            "cuts the gradient",
            "The number is right, but it is cut off from `logits`: nothing can be learned from "
            "it. No `detach`, no `.item()`, no NumPy on the way.",
            _detached,
            symptom="no gradient reaches the logits",
        ),
    ),
    hints=(
        "Write down a text of three tokens and its three rows of logits. Which row speaks of which "
        "token? Which row has nobody to speak of?",
        "Drop the last row of `logits` and the first token of `ids`: now row and target stand at "
        "the same index. Take the logarithm of the softmax along V, pick the target's entry in "
        "each row, and average the negatives. Before all that, look at T.",
        "`log_p = torch.log_softmax(logits[..., :-1, :], dim=-1)` and `targets = ids[..., 1:]`; "
        "`log_p.gather(-1, targets[..., None])` holds what each target got. Or flatten both and "
        "hand them to `cross_entropy`.",
    ),
    minutes=12,
    returns=("the loss",),
    keeps_dtype=True,
)
