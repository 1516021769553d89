"""The known name that somebody meant who wrote another one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from canal_ha.model.excerpt import excerpt

CHARACTERS = 200  # of a name; longer ones are nobody's slip, and the comparison takes quadratic time


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `, did you mean NAME?` with the known name that is most like a word; "" if none is near."""
    names = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), names, n=1) if len(word) <= CHARACTERS else []
    return f", did you mean {excerpt(names[near[0]])}?" if near else ""
