"""Shortens text from outside before it is logged, sent back or kept."""

from __future__ import annotations

EXCERPT_CHARACTERS = 500


def excerpt(text: str) -> str:
    """Return the text, or its first 499 characters and an ellipsis."""
    return text if len(text) <= EXCERPT_CHARACTERS else text[: EXCERPT_CHARACTERS - 1] + "…"
