"""Markdown tables from plain texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"(`+[^`]+`+(?:\{#[^}]+\})?)")
_SPECIAL = re.compile(r"([\\*_<>\[\]$~#])")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. The cells are Markdown; see prose() and code()."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines) + "\n"


def prose(text: str) -> str:
    """Return a sentence from the code as Markdown: one line, `code` stays, everything else is literal."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _SPECIAL.sub(r"\\\1", part) for part in parts)


def code(text: str, anchor: str = "") -> str:
    """Return a literal. anchor: the id that links lead to."""
    if not text:
        return ""
    return f"`{text}`" + (f"{{#{anchor}}}" if anchor else "")
