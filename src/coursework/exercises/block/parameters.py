"""`block_parameters`: where the numbers of a block are."""

from __future__ import annotations

import numpy as np

from attend.blocks import block_parameters
from coursework.exercise import Call, Exercise, Misconception, Property

Rng = np.random.Generator

HEADS = (2, 4, 6, 8, 12, 16)


def _plain(rng: Rng) -> tuple[Call, ...]:
    widths = rng.choice(np.arange(3, 700), 3, replace=False)
    return (
        Call((768, 3072)),
        Call((2, 8)),
        *(Call((int(D), 4 * int(D))) for D in widths),
        *(Call((int(H) * 8, int(H) * 32), {"n_heads": int(H)}) for H in rng.choice(HEADS, 2)),
    )


def _any_width(rng: Rng) -> tuple[Call, ...]:
    pairs = [(5, 7), (11, 3), (576, 1536), (640, 1000)]
    random = [(int(D), int(F)) for D, F in rng.integers(3, 900, (3, 2))]
    return tuple(Call(pair) for pair in (*pairs, *random))


def _grouped(rng: Rng) -> tuple[Call, ...]:
    """D, F, H, G with H > G, and G now and then 1."""
    known = [(576, 1536, 9, 3), (12, 5, 6, 2), (4096, 14336, 32, 8), (30, 7, 6, 1)]
    random = [
        (int(H) * int(K), int(F), int(H), int(H) // 2)
        for H, K, F in zip(
            rng.choice(HEADS, 3), rng.integers(2, 40, 3), rng.integers(3, 900, 3), strict=True
        )
    ]
    return tuple(Call((D, F), {"n_heads": H, "n_kv_heads": G}) for D, F, H, G in (*known, *random))


def _llamas(rng: Rng) -> tuple[Call, ...]:
    both = {"gated": True, "norm": "rms"}
    random = [(int(D), int(F)) for D, F in rng.integers(3, 900, (2, 2))]
    return (
        Call((576, 1536), {"n_heads": 9, "n_kv_heads": 3, **both}),
        Call((5, 7), {"gated": True}),
        Call((7, 5), {"norm": "rms"}),
        *(Call(pair, both) for pair in random),
        *(Call(pair[::-1], {"gated": True}) for pair in random),
        *(Call(pair, {"norm": "rms"}) for pair in random),
    )


def _count(
    d_model,
    d_hidden,
    n_heads=1,
    n_kv_heads=None,
    gated=False,
    norm="layer",
    *,
    attention_biases=0,
    attention=None,
    hidden_biases=True,
    gated_biases=False,
    gated_matrices=3,
    norms=2,
    rms=1,
):
    """The right count, of which the wrong ones change one thing."""
    D, F, H, G = d_model, d_hidden, n_heads, n_kv_heads or n_heads
    total = 2 * D * D + 2 * D * G * (D // H) if attention is None else attention(D, H, G)
    total += attention_biases * D
    total += gated_matrices * D * F if gated else 2 * D * F
    if gated_biases if gated else hidden_biases:
        total += F + D
    return total + norms * D * (2 if norm == "layer" else rms)


def _with(**changes):
    def wrong(d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm="layer"):
        return _count(d_model, d_hidden, n_heads, n_kv_heads, gated, norm, **changes)

    return wrong


def _eight_d_squared(d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm="layer"):
    return _count(d_model, 4 * d_model, n_heads, n_kv_heads, gated, norm)


def _as_float(d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm="layer"):
    return _count(d_model, d_hidden, n_heads, n_kv_heads, gated, norm) / 1


BLOCK_PARAMETERS = Exercise(
    chapter=7,
    signature=(
        'block_parameters(d_model, d_hidden, n_heads=1, n_kv_heads=None, gated=False, norm="layer")'
        " -> int"
    ),
    task="""\
How many numbers does one block learn? Count attention, feed-forward part and two norms.

- **Attention** has $W_Q$ and $W_O$, both `(d_model, d_model)`, and $W_K$ and $W_V$, both
  `(d_model, n_kv_heads · d_head)` with d_head = `d_model` / `n_heads`. No biases. `n_kv_heads` is
  a divisor of `n_heads`; None means as many as `n_heads`.
- **The feed-forward part** has two matrices, to `d_hidden` and back, each with a bias. If `gated`
  is true it is a SwiGLU: three matrices of that size, and no biases.
- **Each of the two norms** has a gain and a bias if `norm` is `"layer"`, a gain alone if it is
  `"rms"`.
- All sizes are whole numbers from 1 on that divide where they must. The first two arguments come
  by position, the others by name. Return an int.

With a width of 768 and a hidden width of 3072 it is 7,084,800, the blocks of GPT-2 but for the
biases of its attention.""",
    reference=block_parameters,
    properties=(
        Property("a plain block, four times as wide inside", 1, _plain),
        Property("any hidden width", 1, _any_width),
        Property("fewer key and value heads", 1, _grouped),
        Property("SwiGLU and RMSNorm", 1, _llamas),
    ),
    misconceptions=(
        Misconception(
            "forgets the biases of the feed-forward part",
            "The two biases of the feed-forward part are missing: one number for each hidden "
            "number, and one for each that comes out.",
            _with(hidden_biases=False),
            symptom="a few numbers short",
        ),
        Misconception(
            "counts biases in the attention",
            "You give each of the four matrices of attention a bias. Here they have none.",
            _with(attention_biases=4),
            symptom="a few numbers too many",
        ),
        Misconception(
            "forgets the norms",
            "The two norms are missing. They are small, but they are learned.",
            _with(norms=0),
            symptom="a few numbers short",
        ),
        Misconception(
            "counts one norm",
            "A block has two norms, one for each of its parts.",
            _with(norms=1),
            symptom="a few numbers short",
        ),
        Misconception(
            "forgets W_O",
            "W_O is missing: what the heads return is mixed by a fourth matrix.",
            _with(attention=lambda D, H, G: D * D + 2 * D * G * (D // H)),
            symptom="a quarter of the attention is missing",
        ),
        Misconception(
            "ignores the key and value heads",
            "`n_kv_heads` is not used. With fewer key and value heads W_K and W_V are narrower.",
            _with(attention=lambda D, H, G: 4 * D * D),
            symptom="too many numbers where heads share keys and values",
        ),
        Misconception(
            "counts grouped keys or values only",
            "One of W_K and W_V has kept its full width. Keys *and* values have `n_kv_heads` "
            "heads.",
            _with(attention=lambda D, H, G: 3 * D * D + D * G * (D // H)),
            symptom="too many numbers where heads share keys and values",
        ),
        Misconception(
            "makes queries narrower as well",
            "You give W_Q and W_O the width of the key and value heads. Queries keep all their "
            "heads.",
            _with(attention=lambda D, H, G: 4 * D * G * (D // H)),
            symptom="too few numbers where heads share keys and values",
        ),
        Misconception(
            "multiplies by the heads",
            "Heads share the width, they do not multiply it: each has d_model / n_heads columns.",
            _with(attention=lambda D, H, G: 2 * H * D * D + 2 * D * G * D),
            symptom="too many numbers as soon as there are several heads",
        ),
        Misconception(
            "8 d_model² for any hidden width",
            "You take the hidden width for 4·d_model. It is an argument of its own.",
            _eight_d_squared,
            symptom="the hidden width changes nothing",
        ),
        Misconception(
            "two matrices for SwiGLU",
            "A SwiGLU has three matrices: gate, up and down.",
            _with(gated_matrices=2),
            symptom="a third of the gated part is missing",
        ),
        Misconception(
            "biases in SwiGLU",
            "A SwiGLU has no biases here.",
            _with(gated_biases=True),
            symptom="a few numbers too many in a gated block",
        ),
        Misconception(
            "RMSNorm with a bias",
            "RMSNorm has a gain and no bias: there is no mean to put back.",
            _with(rms=2),
            symptom="a few numbers too many with RMSNorm",
        ),
        Misconception(
            "returns a float",
            "The number is right, but it is a float. Use `//` where you divide: above 2⁵³ floats "
            "skip numbers.",
            _as_float,
            symptom="a count with a decimal point",
        ),
    ),
    hints=(
        "Write down the shape of every tensor of the block, and multiply.",
        "Attention: two matrices D × D and two of D × (G·D/H). Feed-forward: two of D × F with "
        "biases F and D, or three without. Norms: twice 2·D, or twice D.",
        "`kv = n_kv_heads * (d_model // n_heads)` with None replaced first; then a sum of three "
        "terms, two of them with an `if`.",
    ),
    minutes=10,
    returns=("the count",),
)
