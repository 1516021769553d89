"""Shortens text from outside before it is logged, sent back or kept."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

EXCERPT_CHARACTERS = 500
NAMES = 5


def excerpt(text: str) -> str:
    """Return the text, or its first 499 characters and an ellipsis."""
    return text if len(text) <= EXCERPT_CHARACTERS else text[: EXCERPT_CHARACTERS - 1] + "…"


def printable(text: str) -> str:
    r"""Return the text with escapes, as `\n`, if a character in it does not print: one could steer a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def some(names: Iterable[str]) -> str:
    """Return the first five names in printable characters, and how many more there are."""
    rest = iter(names)
    shown = ", ".join(excerpt(name.encode("ascii", "backslashreplace").decode()) for name in islice(rest, NAMES))
    more = sum(1 for _ in rest)
    return f"{shown} and {more} more" if more else shown
