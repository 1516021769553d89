"""Compares GTID sets in the text forms of MySQL and MariaDB (docs/protocol.md#gtids)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

Spans = list[tuple[int, int]]
_LARGER = 1 << 64  # than any number of a transaction


def covers(whole: str, part: str) -> bool:
    """Return whether every transaction of `part` is in `whole`. A set without transactions covers nothing.

    Of MariaDB's sets, which have one GTID for each domain, all earlier numbers of the domain are members.
    Raises ValueError for another text.
    """
    mine, theirs = _parse(whole), _parse(part)
    return bool(theirs) and all(_contain(mine.get(source, []), spans) for source, spans in theirs.items())


class GtidSet:
    """A set of MySQL, to ask often. text: of the set; raises ValueError for another text."""

    def __init__(self, text: str) -> None:
        self._spans = _parse(text)

    def has(self, gtid: str) -> bool:
        """Return whether it has one transaction, `uuid:number` or `uuid:tag:number`; False for another text."""
        source, _, number = gtid.rpartition(":")
        spans = self._spans.get(source if ":" in source else f"{source}:")
        if not spans or not number.isdecimal():
            return False
        at = bisect_right(spans, (int(number), _LARGER))
        return at > 0 and int(number) <= spans[at - 1][1]

    def meets(self, ranges: Mapping[str, tuple[int, int]]) -> bool:
        """Return whether it has a transaction of a range. ranges: `uuid` or `uuid:tag` -> least and greatest number."""
        for source, (least, greatest) in ranges.items():
            spans = self._spans.get(source if ":" in source else f"{source}:", [])
            at = bisect_right(spans, (greatest, _LARGER))
            if at > 0 and least <= spans[at - 1][1]:
                return True
        return False


def _contain(mine: Spans, theirs: Spans) -> bool:
    return all(any(low <= first and last <= high for low, high in mine) for first, last in theirs)


def _parse(text: str) -> dict[str, Spans]:
    """Return the merged intervals of each source and tag, or of each domain."""
    found: dict[str, Spans] = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        if item.count("-") == 2 and ":" not in item:
            domain, _, number = item.split("-")
            found.setdefault(domain, []).append((0, int(number)))
            continue
        source, *parts = (each.strip().lower() for each in item.split(":"))
        tag = ""
        for part in parts:
            first, _, last = part.partition("-")
            if first.isdigit():
                found.setdefault(f"{source}:{tag}", []).append((int(first), int(last or first)))
            else:
                tag = part
    return {source: _merged(sorted(spans)) for source, spans in found.items()}


def _merged(spans: Spans) -> Spans:
    merged: Spans = []
    for first, last in spans:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
