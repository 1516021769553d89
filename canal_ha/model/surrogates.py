r"""Finds surrogates: halves of characters, which a text of Python can have and UTF-8 cannot. Pure.

They come from `\ud800` in JSON and in properties, and from bytes of a command line that are no UTF-8. A text with one
can be stored nowhere.
"""

from __future__ import annotations

import json
from typing import Any

REASON = "half a surrogate pair, which UTF-8 does not have"


def has_surrogate(text: str) -> bool:
    """Return whether a text has one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def check_json(value: Any) -> None:
    """Raise ValueError if a text in a JSON value, or a key, has one. RecursionError: it is nested too deeply."""
    if has_surrogate(json.dumps(value, ensure_ascii=False)):
        raise ValueError(f"a text in it has {REASON}")
