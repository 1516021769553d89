"""Cutting text that a stranger chose, before it is logged, sent back or kept."""

from __future__ import annotations

EXCERPT_CHARACTERS = 500


def excerpt(text: str) -> str:
    """The text, or its first 499 characters and an ellipsis."""
    return text if len(text) <= EXCERPT_CHARACTERS else text[: EXCERPT_CHARACTERS - 1] + "…"
