"""Speaking: from scores for the next token to text (chapter 08).

A model gives a score to every token. Temperature, top-k and top-p turn the scores into a
distribution; a token is drawn from it, put at the end of the text, and the model is asked again.

Sources: Fan et al., "Hierarchical Neural Story Generation" (2018) for top-k; Holtzman et al., "The
Curious Case of Neural Text Degeneration" (2019) for top-p.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor


def next_token_distribution(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    """Probabilities to draw the next token from.

    The temperature divides the logits. Then only the k most probable tokens stay, then, of what is
    left, the shortest list of the most probable ones whose mass reaches p: the token that crosses p
    belongs to it. Among equal logits the lower id counts as the more probable one.

    Args:
        logits: (..., V).
        temperature: 0 puts everything on the largest logit; 1 takes the logits as they are.
        top_k: how many tokens stay, exactly; None or V and more keeps all.
        top_p: mass that has to be reached, above 0; None or 1 and more keeps all.

    Returns:
        (..., V), each row sums to 1.

    Raises:
        ValueError: a negative temperature, a top_k below 1 or between whole numbers, or a top_p
            not above 0.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}: it must be 0 or above")
    if top_k is not None and not (top_k >= 1 and top_k % 1 == 0):
        raise ValueError(f"top_k is {top_k}: it must be a whole number, and one token must stay")
    if top_p is not None and not top_p > 0:
        raise ValueError(f"top_p is {top_p}: it must be above 0")
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, most_likely(logits)[..., None], 1)
    # The largest is subtracted before the division: near temperature 0 the quotient overflows.
    p = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, dim=-1)
    if top_k is None and (top_p is None or top_p >= 1):
        return p
    p, order = p.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        p = p * (torch.arange(p.shape[-1], device=p.device) < top_k)
        p = p / p.sum(-1, keepdim=True)
    if top_p is not None and top_p < 1:
        before = p.cumsum(-1) - p  # mass of the more probable tokens
        p = p * (before < top_p)
        p = p / p.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, order, p)


def most_likely(logits: Tensor) -> Tensor:
    """The id of the largest logit; of equal ones the lowest, which `argmax` does not promise.

    Args:
        logits: (..., V).

    Returns:
        int64 (...).
    """
    ids = torch.arange(logits.shape[-1], device=logits.device)
    is_largest = logits == logits.amax(-1, keepdim=True)
    return torch.where(is_largest, ids, logits.shape[-1] - 1).amin(-1)


def pick(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """One token for each row, drawn from `next_token_distribution`.

    Args:
        logits: (B, V).
        temperature, top_k, top_p: as there. At temperature 0 nothing is drawn.
        generator: where the draw comes from; None means PyTorch's global one.

    Returns:
        int64 (B, 1).

    Raises:
        ValueError: as `next_token_distribution`.
    """
    # In float32 at least: 49,152 probabilities in half precision do not sum to 1.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    p = next_token_distribution(logits, temperature, top_k, top_p)
    if temperature == 0:
        return most_likely(p)[:, None]
    return torch.multinomial(p, 1, generator=generator)


def generate(
    model: Callable[[Tensor], Tensor],
    ids: Tensor,
    n_new: int,
    *,
    context: int | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    stop: Collection[int] = (),
) -> Tensor:
    """The prompt and what the model says after it, the whole text read again for each token.

    Args:
        model: (B, T) ids → (B, T, V) logits. It is called with gradients off.
        ids: (B, T) prompts of one length, T > 0.
        n_new: tokens to add.
        context: how many of the last tokens the model is shown; None shows all.
        temperature, top_k, top_p, generator: as in `pick`.
        stop: ids that end a text. A row that said one repeats it until all rows have.

    Returns:
        (B, T + n_new), or shorter if every row has stopped; a new tensor.

    Raises:
        ValueError: there is no prompt, or a number is out of range.
    """
    check_prompt(ids, n_new)
    if context is not None and context < 1:
        raise ValueError(f"context is {context}: the model must be shown at least one token")
    prompt = ids.shape[1]
    ids = ids.clone()
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(ids if context is None else ids[:, -context:])[:, -1]
        new = pick(logits, temperature, top_k, top_p, generator)  # (B, 1)
        new, ended = hold(new, ids[:, prompt:], stop)
        ids = torch.cat([ids, new], dim=1)
        if ended:
            break
    return ids


def hold(new: Tensor, said: Tensor, stop: Collection[int]) -> tuple[Tensor, bool]:
    """The next tokens (B, 1), with the stop token again in rows that said (B, n) one before.

    Returns:
        the tokens (B, 1), and whether every row has now stopped.
    """
    if not stop:
        return new, False
    stops = torch.tensor(sorted(stop), device=new.device)
    if said.shape[1]:
        last = said[:, -1:]  # a row that stopped repeats its stop token, so the last one tells
        new = torch.where(torch.isin(last, stops), last, new)
    return new, bool(torch.isin(new, stops).all())


def check_prompt(ids: Tensor, n_new: int) -> None:
    """Raises ValueError unless there is something to go on from and a number of tokens to add."""
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise ValueError(f"ids have shape {tuple(ids.shape)}: a prompt (B, T) with T > 0 is needed")
    if n_new < 0:
        raise ValueError(f"n_new is {n_new}: it must be 0 or above")
