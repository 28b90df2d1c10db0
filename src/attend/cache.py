"""The KV cache: why nothing has to be computed twice (chapter 09).

When a text grows by a token, the keys and values of all earlier tokens stay as they were. A cache
keeps them. The prompt is read in one go (prefill); then each step computes one token only (decode).

Keys are stored already rotated to their positions, and only G heads of them. A cache belongs to its
caller, who hands it to the model with the *new* tokens.

Source: Shazeer, "Fast Transformer Decoding" (2019); Pope et al., "Efficiently Scaling Transformer
Inference" (2022).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from attend.dot_product import scaled_dot_product_attention
from attend.heads import merge_heads, repeat_kv, split_heads
from attend.masks import causal_mask
from attend.positions import apply_rope, rope_angles
from attend.sampling import check_prompt, hold, pick


class KVCache:
    """Keys and values of the tokens so far, in memory that is taken once.

    Args:
        batch: B, number of texts.
        n_kv_heads: G.
        max_tokens: the most tokens a text may have. At the limit `append` raises; it never drops a
            token by itself, since a text whose start is gone is another text.
        d_head: K.
        dtype, device: of the keys and values.
    """

    def __init__(
        self,
        batch: int,
        n_kv_heads: int,
        max_tokens: int,
        d_head: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ):
        shape = (batch, n_kv_heads, max_tokens, d_head)
        self._k = torch.empty(shape, dtype=dtype, device=device)
        self._v = torch.empty(shape, dtype=dtype, device=device)
        self._len = 0

    def __len__(self) -> int:
        """Tokens of each text in the cache; the next token has this position."""
        return self._len

    @property
    def max_tokens(self) -> int:
        """The most tokens that fit."""
        return self._k.shape[2]

    @property
    def nbytes(self) -> int:
        """Memory taken, full or not."""
        return self._k.nbytes + self._v.nbytes

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Takes the keys and values of new tokens, and gives those of all tokens.

        Args:
            k, v: (B, G, T_new, K). They are copied.

        Returns:
            keys and values (B, G, len, K), oldest first: views that hold until the next `append` or
            `reset`.

        Raises:
            ValueError: the tokens do not fit, or a shape or dtype is not the cache's. The cache is
                then as it was.
        """
        B, G, max_tokens, K = self._k.shape
        for name, x in (("k", k), ("v", v)):
            if x.ndim != 4 or (x.shape[0], x.shape[1], x.shape[3]) != (B, G, K):
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}, but the cache holds {B} texts, {G} "
                    f"key/value heads and width {K}: it must be ({B}, {G}, T_new, {K})"
                )
            if x.dtype != self._k.dtype:
                raise ValueError(f"{name} is {x.dtype}, but the cache holds {self._k.dtype}")
        if k.shape != v.shape:
            raise ValueError(f"{k.shape[2]} new keys but {v.shape[2]} new values")
        start, end = self._len, self._len + k.shape[2]
        if end > max_tokens:
            raise ValueError(
                f"{k.shape[2]} new tokens after {start} make {end}, but the cache holds "
                f"{max_tokens}"
            )
        with torch.no_grad():  # a cache is for generating; gradients do not run through it
            self._k[:, :, start:end] = k
            self._v[:, :, start:end] = v
        self._len = end
        return self._k[:, :, :end], self._v[:, :, :end]

    def reset(self) -> None:
        """Forgets all tokens; the memory stays."""
        self._len = 0


def attend_with_cache(
    x_new: Tensor,
    weights: dict[str, Tensor],
    cache: KVCache,
    n_heads: int,
    n_kv_heads: int | None = None,
    base: float = 10000.0,
) -> Tensor:
    """Causal self-attention with RoPE of new tokens, over themselves and all tokens in the cache.

    Args:
        x_new: (B, T_new, D), one token or many.
        weights: w_q (D, H·K), w_k and w_v (D, G·K), w_o (H·K, D).
        cache: what came before; it is extended.
        n_heads: H.
        n_kv_heads: G, a divisor of H; None means H.
        base: of the rotation.

    Returns:
        (B, T_new, D): what attention over the whole text gives for these tokens.

    Raises:
        ValueError: the cache says no, or the heads do not divide.
    """
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    q = split_heads(x_new @ weights["w_q"], n_heads)  # (B, H, T_new, K)
    k = split_heads(x_new @ weights["w_k"], n_kv_heads)  # (B, G, T_new, K)
    v = split_heads(x_new @ weights["w_v"], n_kv_heads)
    start, T = len(cache), x_new.shape[1]
    positions = torch.arange(start, start + T, device=x_new.device)
    angles = rope_angles(positions, q.shape[-1], base)
    # Keys are rotated once, before they are stored: position 7 stays position 7.
    k, v = cache.append(apply_rope(k, angles), v)  # (B, G, S, K)
    n_rep = n_heads // n_kv_heads
    z, _ = scaled_dot_product_attention(
        apply_rope(q, angles),
        repeat_kv(k, n_rep),
        repeat_kv(v, n_rep),
        causal_mask(T, start + T, like=x_new),  # lined up at the end: queries are the last T
    )
    return merge_heads(z) @ weights["w_o"]


def new_caches(
    model: torch.nn.Module, batch: int, max_tokens: int | None = None, make: type = KVCache
) -> list[KVCache]:
    """An empty cache for each block of a `Transformer`, of the sizes that its attention needs.

    Args:
        model: whose blocks will fill the caches.
        batch: B.
        max_tokens: the most tokens of a text; None means the model's context.
        make: the kind of cache, called as `KVCache`.

    Raises:
        ValueError: more tokens than the model's context.
    """
    max_tokens = model.context if max_tokens is None else max_tokens
    if model.context is not None and max_tokens > model.context:
        raise ValueError(f"{max_tokens} tokens do not fit in a context of {model.context}")
    weight = next(model.parameters())
    return [
        make(
            batch,
            block.attention.n_kv_heads,
            max_tokens,
            block.attention.d_head,
            dtype=weight.dtype,
            device=weight.device,
        )
        for block in model.blocks
    ]


def stream(
    model: torch.nn.Module,
    ids: Tensor,
    n_new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    stop: Collection[int] = (),
    padding: Tensor | None = None,
    caches: Sequence | None = None,
) -> Iterator[Tensor]:
    """New tokens (B, 1), each as soon as it is known. Arguments as for `generate_cached`."""
    check_prompt(ids, n_new)
    if n_new and caches is None:
        # The last token is never fed: nothing is asked after it.
        caches = new_caches(model, ids.shape[0], ids.shape[1] + n_new - 1)
    extra = {} if padding is None else {"padding": padding}
    feed, said = ids, ids[:, :0]
    for _ in range(n_new):
        with torch.no_grad():
            logits = model(feed, caches, **extra)[:, -1]  # first the prompt, then token by token
        feed, ended = hold(pick(logits, temperature, top_k, top_p, generator), said, stop)
        said = feed
        yield feed
        if ended:
            return


def generate_cached(
    model: torch.nn.Module,
    ids: Tensor,
    n_new: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    stop: Collection[int] = (),
    padding: Tensor | None = None,
    caches: Sequence | None = None,
) -> Tensor:
    """`generate`, with every token computed once: the same tokens, sooner.

    Args:
        model: `model(ids, caches)` → logits (B, T, V).
        ids: (B, T) prompts, T > 0.
        n_new: tokens to add.
        temperature, top_k, top_p, generator: as in `pick`; the default is greedy.
        stop: ids that end a text. A row that said one repeats it until all rows have.
        padding: (B,) how many tokens at the start of each prompt are padding.
        caches: empty caches of the caller's, one a block; None makes them.

    Returns:
        (B, T + n_new), or shorter if every row has stopped; a new tensor.

    Raises:
        ValueError: no prompt, a number out of range, or T + n_new - 1 tokens do not fit.
    """
    new = stream(
        model,
        ids,
        n_new,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        generator=generator,
        stop=stop,
        padding=padding,
        caches=caches,
    )
    return torch.cat([ids, *new], dim=1)


def kv_cache_bytes(
    n_layers: int,
    n_kv_heads: int,
    d_head: int,
    n_tokens: int,
    bytes_per_value: int = 2,
    batch: int = 1,
) -> int:
    """Memory of a model's caches: keys and values, hence the 2.

    Args:
        n_layers: L.
        n_kv_heads: G.
        d_head: K.
        n_tokens: n, of each text.
        bytes_per_value: 2 for float16 and bfloat16, 4 for float32.
        batch: B.

    Returns:
        2·L·G·K·n·bytes·B.
    """
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value * batch


def decode_flops(
    n_layers: int,
    d_model: int,
    d_hidden: int,
    n_heads: int,
    n_kv_heads: int,
    vocab: int,
    n_tokens: int,
    cached: bool = True,
) -> int:
    """Floating-point operations for one more token of a Llama; matrix products only.

    A multiply-add counts 2. Without a cache the whole text runs through the blocks again; the head
    is needed for the last token alone either way.

    Args:
        n_layers: L.
        d_model: D.
        d_hidden: F.
        n_heads: H.
        n_kv_heads: G.
        vocab: V.
        n_tokens: n, the text with the new token.
        cached: whether the earlier tokens are in a cache.

    Returns:
        L·(2·P + 4·D·n) + 2·D·V with a cache and L·(2·P·n + 4·D·n²) + 2·D·V without one, where
        P = 2·D² + 2·D·G·(D/H) + 3·D·F are the weights of a block.
    """
    d_head = d_model // n_heads
    weights = 2 * d_model**2 + 2 * d_model * n_kv_heads * d_head + 3 * d_model * d_hidden
    tokens = 1 if cached else n_tokens
    block = 2 * weights * tokens + 4 * d_model * n_tokens * tokens
    return n_layers * block + 2 * d_model * vocab
