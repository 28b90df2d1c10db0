"""The text that the course learns from: Jane Austen, Pride and Prejudice (1813), public domain."""

from __future__ import annotations

from importlib.resources import files


def pride_and_prejudice() -> str:
    """The whole novel: 684,767 bytes of UTF-8, 75 different characters."""
    return files("attend").joinpath("data", "pride_and_prejudice.txt").read_text("utf-8")
