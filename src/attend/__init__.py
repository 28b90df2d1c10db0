"""The transformer, one idea a file, in the order of the course's chapters.

    from attend import scaled_dot_product_attention, causal_mask

Names are loaded when they are first used, so that `import attend` costs nothing and the chapters
that need NumPy alone never import PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Which module each public name lives in, in the order of the chapters.
_HOME = {
    name: module
    for module, names in {
        "texts": ("pride_and_prejudice",),
        "tokens": (
            "count_pairs",
            "merge_pair",
            "train_bpe",
            "train_bpe_plainly",
            "train_on_words",
            "apply_merges",
            "encode",
            "token_bytes",
            "decode",
        ),
        "tokenizer": ("Tokenizer", "Characters"),
        "wordpiece": ("WordPiece",),
        "embeddings": ("one_hot", "embed"),
        "positions": (
            "is_order_blind",
            "frequencies",
            "sinusoidal_positions",
            "rope_angles",
            "apply_rope",
            "rotate",
            "rope_permutation",
        ),
        "dot_product": (
            "project_qkv",
            "attention_scores",
            "softmax",
            "masked_softmax",
            "attention",
            "soft_lookup",
            "scaled_dot_product_attention",
            "score_variance",
            "row_entropy",
            "softmax_jacobian",
            "gradient_through_softmax",
        ),
        "masks": (
            "causal_mask",
            "padding_mask",
            "padded_causal_mask",
            "additive_mask",
            "causal_attention",
            "leaks_future",
            "next_token_pairs",
        ),
        "heads": (
            "split_heads",
            "merge_heads",
            "repeat_kv",
            "attention_heads",
            "grouped_query_attention",
            "multi_head_attention",
            "attention_parameters",
        ),
        "blocks": (
            "layer_norm",
            "rms_norm",
            "gelu",
            "gelu_tanh",
            "feed_forward",
            "swiglu",
            "pre_norm_block",
            "post_norm_block",
            "block_parameters",
        ),
        "layers": (
            "LayerNorm",
            "RMSNorm",
            "FeedForward",
            "GatedFeedForward",
            "Rotary",
            "explicit_attention",
            "fused_attention",
            "SelfAttention",
            "PreNormBlock",
            "PostNormBlock",
        ),
        "model": (
            "TokenEmbedding",
            "PositionedEmbedding",
            "Head",
            "TiedHead",
            "Transformer",
            "Config",
            "GPTConfig",
            "LlamaConfig",
            "BertConfig",
            "gpt",
            "llama",
            "bert",
            "count_parameters",
        ),
        "training": (
            "next_token_loss",
            "warmup_cosine",
            "sample_windows",
            "evaluate",
            "Recipe",
            "History",
            "adamw",
            "train",
        ),
        "sampling": ("next_token_distribution", "most_likely", "pick", "generate"),
        "cache": (
            "KVCache",
            "attend_with_cache",
            "new_caches",
            "stream",
            "generate_cached",
            "kv_cache_bytes",
            "decode_flops",
        ),
        "long_context": (
            "attention_cost",
            "softmax_block",
            "merge_softmax_blocks",
            "flash_attention",
            "sliding_window_mask",
            "sliding_window_attention",
            "WindowCache",
            "feature_map",
            "linear_attention",
            "linear_attention_recurrent",
        ),
        "reading": (
            "previous_token_score",
            "sink_score",
            "induction_score",
            "duplicate_token_score",
            "antecedent_preference",
            "ablate_head",
            "captured_weights",
            "ablated",
            "attention_only",
            "repeated_sequences",
            "learn_induction",
        ),
        "checkpoints": ("load_folder", "unpermute_rope", "load_block", "published_block"),
        "pretrained": (
            "Pretrained",
            "cache_folder",
            "is_fetched",
            "fetch",
            "load",
            "greedy",
            "chat_prompt",
            "stream_text",
        ),
    }.items()
    for name in names
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"attend has no {name!r}; it has {', '.join(sorted(_HOME))}")
    return getattr(import_module(f"attend.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
