"""Text from SmolLM2, as it is generated: python -m attend "The capital of France is"."""

from __future__ import annotations

import argparse
import sys
import time

import torch

from attend.pretrained import chat_prompt, load, stream_text


def main(arguments: list[str] | None = None) -> int:
    """Streams a continuation to standard output, and its speed to standard error.

    Returns:
        0; or 2 where the model is not on this machine or a number is out of range.
    """
    parser = argparse.ArgumentParser(
        prog="python -m attend",
        description="Text from SmolLM2-135M-Instruct (quantised to Q4_1), computed by the "
        "transformer of this course.",
    )
    parser.add_argument("prompt", help="the text to go on from")
    parser.add_argument("-n", type=int, default=64, metavar="N", help="tokens at most (64)")
    parser.add_argument("--chat", action="store_true", help="ask the prompt as a question")
    parser.add_argument("--temperature", type=float, default=0, metavar="T", help="0 is greedy (0)")
    parser.add_argument("--top-k", type=int, metavar="K", help="of the K likeliest tokens only")
    parser.add_argument("--top-p", type=float, metavar="P", help="of the likeliest of mass P only")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the draws (0)")
    given = parser.parse_args(arguments)
    try:
        model, tokenizer = load("smollm2-135m")
        prompt = chat_prompt(given.prompt) if given.chat else given.prompt
        ids = tokenizer.encode(prompt, special=given.chat)
        how = {
            "temperature": given.temperature,
            "top_k": given.top_k,
            "top_p": given.top_p,
            "generator": torch.Generator().manual_seed(given.seed),
        }
        if not given.chat:
            print(given.prompt, end="", flush=True)
        start, first, tokens = time.perf_counter(), 0.0, 0
        for piece in stream_text(model, tokenizer, ids, given.n, **how):
            print(piece, end="", flush=True)
            first = first or time.perf_counter()
            tokens += 1
        print()
    except (FileNotFoundError, RuntimeError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if tokens > 1:
        prefill, decode = first - start, time.perf_counter() - first
        speed = f"{(tokens - 1) / decode:.1f} a second"
        print(f"[{len(ids)} tokens read in {prefill:.2f} s, then {speed}]", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
