"""Shortens text from outside before it is logged, sent back or kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice

STEERING = r"\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what JSON leaves as it is, and terminals obey
_STEERS = re.compile(f"[{STEERING}\ud800-\udfff]")  # and surrogates, which nobody can print

EXCERPT_CHARACTERS = 500
NAMES = 5


def excerpt(text: str) -> str:
    """Return the text, or its first 499 characters and an ellipsis."""
    return text if len(text) <= EXCERPT_CHARACTERS else text[: EXCERPT_CHARACTERS - 1] + "…"


def printable(text: str) -> str:
    r"""Return the text with escapes, as `\n`, if a character in it does not print: one could steer a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON in readable characters, with escapes for those that steer a terminal."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def some(names: Iterable[str]) -> str:
    """Return the first five names in printable characters, and how many more there are."""
    rest = iter(names)
    shown = ", ".join(excerpt(name.encode("ascii", "backslashreplace").decode()) for name in islice(rest, NAMES))
    more = sum(1 for _ in rest)
    return f"{shown} and {more} more" if more else shown
