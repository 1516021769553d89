"""Applies the diffs of a partial JSON update to the document before it (binlog_row_value_options=PARTIAL_JSON).

A document is a tree of dict, list and leaf; a number is a leaf that keeps its text. Source: MySQL sql/json_diff.cc,
apply_json_diffs. Raises Broken when a diff does not fit its document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode.kernel.documents import document_text

REPLACE, INSERT, REMOVE = range(3)

Diff = tuple[int, str, bytes]  # operation, path, stored value (b"" of REMOVE)

_LEG: Final = re.compile(r"\.([^\s.\[\"]+)|\.(\"(?:[^\"\\]|\\.)*\")|\[(?:(last)(?:-(\d+))?|(\d+))\]")


class _Number(str):
    """A number as the document spells it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _FromEnd:
    """An array's element, counted from its last one, which is 0."""

    back: int


Leg = str | int | _FromEnd


def updated(document: bytes, diffs: Sequence[Diff]) -> bytes:
    """Return the text of a document after its diffs, in the exact form. document: as stored."""
    root = _tree(document)
    grown: dict[int, dict[str, Any]] = {}  # objects whose new keys stand last
    for operation, path, value in diffs:
        legs = _legs(path)
        if not legs:
            if operation != REPLACE:
                raise _unfit(path)
            root = _tree(value)
            continue
        parent = root
        for leg in legs[:-1]:
            parent = _child(parent, leg, path)
        if operation == INSERT:
            _insert(parent, legs[-1], _tree(value), path, grown)
        else:
            _child(parent, legs[-1], path)
            place = _place(parent, legs[-1])
            if operation == REPLACE:
                parent[place] = _tree(value)
            else:
                del parent[place]
    for each in grown.values():
        _sort(each)
    return _text(root).encode("utf-8", "replace")


def _tree(stored: bytes) -> Any:
    text = document_text(stored, True).decode()
    return json.loads(text, parse_int=_Number, parse_float=_Number, strict=False)


def _legs(path: str) -> list[Leg]:
    """Return the steps of a path such as $.a."b c"[3]."""
    legs: list[Leg] = []
    at = 1
    while at < len(path):
        leg = _LEG.match(path, at)
        if leg is None:
            raise _unfit(path)
        plain, quoted, last, back, index = leg.groups()
        if last:
            legs.append(_FromEnd(int(back or 0)))
        else:
            legs.append(int(index) if index else json.loads(quoted, strict=False) if quoted else plain)
        at = leg.end()
    return legs


def _place(parent: Any, leg: Leg) -> str | int:
    """Return the key or the index that a leg means in this parent; -1 for an index before the first one."""
    if isinstance(leg, _FromEnd):
        return max(-1, len(parent) - 1 - leg.back) if isinstance(parent, list) else -1
    return leg


def _child(parent: Any, leg: Leg, path: str) -> Any:
    place = _place(parent, leg)
    fits = isinstance(parent, dict) if isinstance(place, str) else isinstance(parent, list)
    if fits and (place in parent if isinstance(place, str) else 0 <= place < len(parent)):
        return parent[place]
    raise _unfit(path)


def _insert(parent: Any, leg: Leg, value: Any, path: str, grown: dict[int, dict[str, Any]]) -> None:
    place = _place(parent, leg)
    if isinstance(place, int) and isinstance(parent, list):
        parent.insert(max(0, place), value)
    elif isinstance(place, str) and isinstance(parent, dict) and place not in parent:
        parent[place] = value
        grown[id(parent)] = parent
    else:
        raise _unfit(path)


def _sort(grown: dict[str, Any]) -> None:
    ordered = sorted(grown.items(), key=lambda item: _key_order(item[0]))
    grown.clear()
    grown.update(ordered)


def _key_order(key: str) -> tuple[int, bytes]:
    """Return MySQL's sort key for an object's key."""
    raw = key.encode("utf-8", "replace")
    return len(raw), raw


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(key)}: {_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, _Number):
        return str(value)
    return _quoted(value) if isinstance(value, str) else _WORDS[value]


_quoted: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode
_WORDS = {None: "null", True: "true", False: "false"}


def _unfit(path: str) -> p.Broken:
    return p.Broken(f"a JSON diff at {path} does not fit the document before it")
