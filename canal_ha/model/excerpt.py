"""Shortens text from outside before it is logged, sent back or kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice

STEERING = r"\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what JSON leaves as it is, and terminals obey
_STEERS = re.compile(f"[{STEERING}\ud800-\udfff]")  # and surrogates, which nobody can print
_CONTROLS = re.compile(f"[\x00-\x1f{STEERING}\ud800-\udfff]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

EXCERPT_CHARACTERS = 500
MESSAGE_CHARACTERS = 4000
NAMES = 5


def excerpt(text: str) -> str:
    """Return the text, or its first 499 characters and an ellipsis."""
    return text if len(text) <= EXCERPT_CHARACTERS else text[: EXCERPT_CHARACTERS - 1] + "…"


def printable(text: str) -> str:
    r"""Return the text with escapes, as `\n`, if a character in it does not print: one could steer a terminal."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def message(text: str, *, lines: bool = False) -> str:
    r"""Return a text for a terminal: escapes as `\n` for the characters that steer it, and at most 4,000 characters.

    lines: the text has several lines, which stay.
    """
    shown = _CONTROLS.sub(
        lambda found: found[0] if lines and found[0] == "\n" else _escape(found), text[:MESSAGE_CHARACTERS]
    )
    return shown if len(text) <= MESSAGE_CHARACTERS else f"{shown}…"


def one_line(error: Exception) -> str:
    """Return what an exception of another library says, on one line: it may have several, and colours."""
    return " ".join(_COLOURS.sub("", str(error)).split())


def json_text(value: object, indent: int | None = None) -> str:
    """Return a value as JSON in readable characters, with escapes for those that steer a terminal."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def some(names: Iterable[str]) -> str:
    """Return the first five names in printable characters of ASCII, and how many more there are."""
    rest = iter(names)
    plain = (_CONTROLS.sub(_escape, name).encode("ascii", "backslashreplace").decode() for name in islice(rest, NAMES))
    shown = ", ".join(map(excerpt, plain))
    more = sum(1 for _ in rest)
    return f"{shown} and {more} more" if more else shown


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
