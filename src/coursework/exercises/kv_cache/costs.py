"""`kv_cache_bytes` and `decode_flops`: what a token in the context costs."""

from __future__ import annotations

import numpy as np

from attend.cache import decode_flops, kv_cache_bytes
from coursework.exercise import Call, Exercise, Misconception, Property, calls

# Bytes ---------------------------------------------------------------------------------------


def _some_caches(rng: np.random.Generator) -> tuple[Call, ...]:
    n = int(rng.integers(1000, 9000))
    return calls((2, 3, 5, 7), (3, 1, 4, 11), (30, 3, 64, n), (32, 8, 128, 2 * n + 1))


def _other_widths(rng: np.random.Generator) -> tuple[Call, ...]:
    n = int(rng.integers(100, 900))
    return (
        Call((2, 3, 5, 7), {"bytes_per_value": 4}),
        Call((3, 5, 2, 11), {"batch": 7}),
        Call((30, 3, 64, n), {"bytes_per_value": 1, "batch": 3}),
        Call((24, 2, 64, n + 1), {"bytes_per_value": 4, "batch": 5}),
    )


def _very_large(rng: np.random.Generator) -> tuple[Call, ...]:
    n = 2 * int(rng.integers(10**8, 10**9)) + 1
    return (
        Call((5, 2, 3, 0)),
        Call((1, 1, 1, 1), {"bytes_per_value": 1}),
        Call((127, 129, 257, n), {"bytes_per_value": 1, "batch": 1009}),  # more than a float counts
        Call((7, 3, 5, 1), {"batch": 1}),
    )


def _one_of_two(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value * batch


def _no_heads(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 2 * n_layers * d_head * n_tokens * bytes_per_value * batch


def _square_of_heads(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    width = n_kv_heads * d_head  # taken for the width of one head
    return 2 * n_layers * n_kv_heads * width * n_tokens * bytes_per_value * batch


def _with_queries(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 3 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value * batch


def _in_bits(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 8 * 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value * batch


def _values_for_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * batch


def _always_two_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * 2 * batch


def _one_text(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value


def _one_layer(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 2 * n_kv_heads * d_head * n_tokens * bytes_per_value * batch


def _scores(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return n_layers * n_kv_heads * n_tokens * n_tokens * bytes_per_value * batch


def _kibibytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value * batch // 1024


KV_CACHE_BYTES = Exercise(
    chapter=9,
    signature=(
        "kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value=2, batch=1) -> int"
    ),
    task="""\
How many bytes do the keys and values of a whole model take? It has `n_layers` layers with
`n_kv_heads` key/value heads of width `d_head` each; `n_tokens` tokens of each of `batch` texts are
in the cache; a number takes `bytes_per_value` bytes (2 for float16 and bfloat16, 4 for float32).

- Count what is stored, and nothing else: no weights, no scores.
- All arguments are whole numbers, `n_tokens` from 0 on, the others from 1 on. Return a Python
  `int`, exact also where a float could not count so far.""",
    reference=kv_cache_bytes,
    properties=(
        Property("keys and values of all layers, heads and tokens", 2, _some_caches),
        Property("other numbers of bytes, several texts", 1, _other_widths),
        Property("no token, one token, and very many", 1, _very_large, edge=True),
    ),
    misconceptions=(
        Misconception(
            "counts keys or values",
            "For each token both are stored, a key and a value. You have one of the two.",
            _one_of_two,
            symptom="it is half of what it should be",
        ),
        Misconception(
            "leaves the heads out",
            "Each key/value head has a key and a value of its own, `d_head` wide. Multiply by "
            "their number.",
            _no_heads,
            symptom="the number of key/value heads makes no difference",
        ),
        Misconception(
            "counts the heads twice",
            "You take the width of all heads together and multiply by the heads once more. A token "
            "has n_kv_heads · d_head numbers in its keys.",
            _square_of_heads,
            symptom="twice the heads cost four times as much",
        ),
        Misconception(
            "stores the queries too",
            "Queries are not kept. That of a token is used once, when it is new.",
            _with_queries,
            symptom="it is half as much again as it should be",
        ),
        Misconception(
            "counts bits",
            "You count bits. `bytes_per_value` is in bytes already; nothing is multiplied by 8.",
            _in_bits,
            symptom="it is eight times too large",
        ),
        Misconception(
            "counts numbers for bytes",
            "This is how many numbers are stored. Each of them takes bytes_per_value bytes.",
            _values_for_bytes,
            symptom="it does not depend on bytes_per_value",
        ),
        Misconception(
            "takes 2 bytes for every number",
            "2 is only the default. Multiply by bytes_per_value: float32 takes 4.",
            _always_two_bytes,
            symptom="right at 2 bytes a number, wrong at any other",
        ),
        Misconception(
            "counts one text",
            "Every text of the batch has keys and values of its own. Weights are shared by a "
            "batch, caches are not.",
            _one_text,
            symptom="the batch makes no difference",
        ),
        Misconception(
            "counts one layer",
            "Every layer has its own keys and values. Multiply by their number.",
            _one_layer,
            symptom="the number of layers makes no difference",
        ),
        Misconception(
            "counts the scores",
            "n² are the scores, which nobody keeps. A key and a value are kept for each token: the "
            "cache grows in proportion to n.",
            _scores,
            symptom="twice the tokens take four times the bytes",
        ),
        Misconception(
            "counts kibibytes",
            "You divide by 1024. Asked for are bytes.",
            _kibibytes,
            symptom="it is about a thousand times too small",
        ),
    ),
    hints=(
        "How many numbers are stored for one token in one layer?",
        "One token, one layer: a key and a value, each of n_kv_heads · d_head numbers. Then all "
        "layers, all tokens, all texts, and the bytes of a number.",
        "A product of six arguments and a 2. Keep to whole numbers: no division, no float.",
    ),
    minutes=5,
    returns=("the number of bytes",),
)

# Operations ----------------------------------------------------------------------------------

#: n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab
SMALL = (2, 6, 5, 3, 1, 7)
OTHER = (3, 8, 11, 4, 2, 13)
SMOLLM2 = (30, 576, 1536, 9, 3, 49152)
LLAMA_2 = (32, 4096, 11008, 32, 32, 32000)
LLAMA_3 = (80, 8192, 28672, 64, 8, 128256)
ODD = (127, 1155, 3001, 11, 1, 50021)  #: no power of two in it, so that no float counts so far


def _cached(rng: np.random.Generator) -> tuple[Call, ...]:
    n = int(rng.integers(100, 5000))
    return calls((*SMALL, 5), (*OTHER, 7), (*SMOLLM2, n), (*LLAMA_3, n + 17))


def _not_cached(rng: np.random.Generator) -> tuple[Call, ...]:
    n = int(rng.integers(100, 5000))
    models = ((*SMALL, 5), (*OTHER, 7), (*SMOLLM2, n), (*LLAMA_3, n + 17))
    return tuple(Call(model, {"cached": False}) for model in models)


def _edges(rng: np.random.Generator) -> tuple[Call, ...]:
    n = 2 * int(rng.integers(10**5, 10**6)) + 1
    return (
        Call((*SMALL, 1)),
        Call((*OTHER, 1), {"cached": False}),
        Call((*LLAMA_2, 4096)),
        Call((*ODD, n), {"cached": False}),
        Call((*LLAMA_3, n), {"cached": True}),
    )


def _counted(
    per_weight=2,
    head=lambda D, V, n: 2 * D * V,
    scores=lambda D, H, n: 4 * D * n,
    weights=lambda D, F, H, G: 2 * D * D + 2 * D * G * (D // H) + 3 * D * F,
    rows=lambda cached, n: 1 if cached else n,
    score_rows=lambda cached, n: 1 if cached else n,
    layers=lambda L: L,
):
    """A wrong version: everything right but what an argument changes."""

    def flops(n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True):
        P = weights(d_model, d_hidden, n_heads, n_kv_heads)
        of_weights = per_weight * P * rows(cached, n_tokens)
        of_scores = scores(d_model, n_heads, n_tokens) * score_rows(cached, n_tokens)
        return layers(n_layers) * (of_weights + of_scores) + head(d_model, vocab, n_tokens)

    return flops


def _one_a_multiply_add(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    d_head = d_model // n_heads
    P = 2 * d_model**2 + 2 * d_model * n_kv_heads * d_head + 3 * d_model * d_hidden
    rows = 1 if cached else n_tokens
    return n_layers * (P + 2 * d_model * n_tokens) * rows + d_model * vocab


def _scores_of_groups(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    kv_width = n_kv_heads * (d_model // n_heads)
    P = 2 * d_model**2 + 2 * d_model * kv_width + 3 * d_model * d_hidden
    rows = 1 if cached else n_tokens
    return n_layers * (2 * P + 4 * kv_width * n_tokens) * rows + 2 * d_model * vocab


def _head_in_each_layer(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    kv_width = n_kv_heads * (d_model // n_heads)
    P = 2 * d_model**2 + 2 * d_model * kv_width + 3 * d_model * d_hidden
    rows = 1 if cached else n_tokens
    return n_layers * ((2 * P + 4 * d_model * n_tokens) * rows + 2 * d_model * vocab)


def _head_for_every_token(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    kv_width = n_kv_heads * (d_model // n_heads)
    P = 2 * d_model**2 + 2 * d_model * kv_width + 3 * d_model * d_hidden
    rows = 1 if cached else n_tokens
    return (n_layers * (2 * P + 4 * d_model * n_tokens) + 2 * d_model * vocab) * rows


def _half_for_the_mask(
    n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, cached=True
):
    kv_width = n_kv_heads * (d_model // n_heads)
    P = 2 * d_model**2 + 2 * d_model * kv_width + 3 * d_model * d_hidden
    rows = 1 if cached else n_tokens
    pairs = n_tokens if cached else n_tokens * (n_tokens + 1) // 2
    return n_layers * (2 * P * rows + 4 * d_model * pairs) + 2 * d_model * vocab


DECODE_FLOPS = Exercise(
    chapter=9,
    signature=(
        "decode_flops(n_layers, d_model, d_hidden, n_heads, n_kv_heads, vocab, n_tokens, "
        "cached=True) -> int"
    ),
    task="""\
How many floating-point operations does a Llama need for **one** new token? Count the matrix
products only (no norms, no softmax, no rotation), 2 operations for a multiplication with its
addition. In letters: L = `n_layers`, D = `d_model`, F = `d_hidden`, H = `n_heads`,
G = `n_kv_heads`, V = `vocab`, and heads are K = D/H wide.

- Each layer projects to queries (D × D), to keys and to values (D × G·K each) and back (D × D), and
  has three matrices of D × F (SwiGLU).
- Each layer compares the query of every head with the keys of all tokens so far, and blends as many
  values. `n_tokens` is the length of the text **with** the new token.
- The last product, D × V, makes the logits. It is needed for the new token alone.
- With the cache (`cached` is True) only the new token goes through the layers. Without it all
  `n_tokens` do, each of them compared with all (no saving for the mask).

All arguments are whole numbers from 1 on, H divides D and G divides H. Return a Python `int`,
exact also where a float could not count so far.""",
    reference=decode_flops,
    properties=(
        Property("with the cache", 2, _cached),
        Property("without the cache", 2, _not_cached),
        Property("a text of one token, and of a million", 1, _edges, edge=True),
    ),
    misconceptions=(
        Misconception(
            "counts one flop per multiply-add",
            "A product of matrices multiplies and adds: 2 operations for each pair of numbers. You "
            "count 1.",
            _one_a_multiply_add,
            symptom="it is half of what it should be",
        ),
        Misconception(
            "forgets the output head",
            "The last vector is still to be multiplied with D × V numbers to give the logits. In a "
            "small model that is a large part of the work.",
            _counted(head=lambda D, V, n: 0),
            symptom="the vocabulary makes no difference",
        ),
        Misconception(
            "compares all with all despite the cache",
            "With the cache there is one new query in each head, and it is compared with n keys. "
            "The n² comes back only without the cache.",
            _counted(score_rows=lambda cached, n: n),
            symptom="with the cache it still grows with the square of the text",
        ),
        Misconception(
            "ignores the cache",
            "You count all tokens of the text in either case. With the cache only the new token "
            "goes through the layers.",
            _counted(rows=lambda cached, n: n, score_rows=lambda cached, n: n),
            symptom="cached makes no difference",
        ),
        Misconception(
            "always has the cache",
            "`cached=False` changes nothing in your count. Without the cache every token of the "
            "text goes through every layer.",
            _counted(rows=lambda cached, n: 1, score_rows=lambda cached, n: 1),
            symptom="cached makes no difference",
        ),
        Misconception(
            "forgets the square without the cache",
            "Without the cache n queries are compared with n keys each: the scores take 4·D·n² in "
            "each layer.",
            _counted(score_rows=lambda cached, n: 1),
            symptom="without the cache it grows too slowly with the text",
        ),
        Misconception(
            "makes logits for the whole text",
            "Without the cache you multiply all n tokens with D × V. Only the last one's logits "
            "are needed.",
            _head_for_every_token,
            symptom="the head counts once for every token",
        ),
        Misconception(
            "projects to all heads",
            "Your keys and values are as wide as the queries. With grouped queries they are G·K "
            "wide, and so are their matrices.",
            _counted(weights=lambda D, F, H, G: 4 * D * D + 3 * D * F),
            symptom="the number of key/value heads makes no difference",
        ),
        Misconception(
            "saves scores with fewer key/value heads",
            "Sharing keys saves memory, not comparisons: each of the H query heads still asks all "
            "n keys. G plays no part in the scores.",
            _scores_of_groups,
            symptom="the scores cost less with fewer key/value heads",
        ),
        Misconception(
            "counts two matrices of the feed-forward part",
            "SwiGLU has three matrices of D × F: gate, up and down. You have two.",
            _counted(
                weights=lambda D, F, H, G: 2 * D * D + 2 * D * G * (D // H) + 2 * D * F,
            ),
            symptom="the feed-forward part is a third too small",
        ),
        Misconception(
            "forgets the way back",
            "After the blend the heads go through one more D × D matrix, W_O. With the queries' "
            "that makes 2·D².",
            _counted(weights=lambda D, F, H, G: D * D + 2 * D * G * (D // H) + 3 * D * F),
            symptom="one matrix of D × D is missing in each layer",
        ),
        Misconception(
            "counts the scores and not the blend",
            "Comparing takes 2·D·n, and blending the values as much again. You have one of the "
            "two.",
            _counted(scores=lambda D, H, n: 2 * D * n),
            symptom="what grows with the text is half of what it should be",
        ),
        Misconception(
            "gives every head the whole width",
            "Each head compares over K = D/H features, and all H together over D. You count D for "
            "each of them.",
            _counted(scores=lambda D, H, n: 4 * D * H * n),
            symptom="more heads cost more comparisons",
        ),
        Misconception(
            "counts one layer",
            "All of this happens in each layer. Multiply by their number, all but the head.",
            _counted(layers=lambda L: 1),
            symptom="the number of layers makes no difference",
        ),
        Misconception(
            "counts only what the mask allows",
            "Without the cache you count the pairs that the causal mask leaves, about half of "
            "them. Here each of the n tokens is compared with all n: a plain product computes "
            "them before anything is masked.",
            _half_for_the_mask,
            symptom="without the cache, half of the comparisons are missing",
        ),
        Misconception(
            "has a head in each layer",
            "The logits are made once, after the last layer, and not in each of them.",
            _head_in_each_layer,
            symptom="the head counts once for every layer",
        ),
    ),
    hints=(
        "A vector of D numbers times a matrix of D × M takes 2·D·M operations. Which matrices does "
        "the new token meet?",
        "Sum the weights of a layer first, P = 2·D² + 2·D·G·(D/H) + 3·D·F: a token costs 2·P "
        "there. Scores: 2·D·n for a query in all heads together, and as much for the blend. With "
        "the cache one token does that, without it n tokens do. The head once: 2·D·V.",
        "`rows = 1 if cached else n_tokens`, then n_layers times (2·P + 4·D·n)·rows, and the head. "
        "`//` for D/H keeps everything whole.",
    ),
    minutes=10,
    returns=("the number of operations",),
)
