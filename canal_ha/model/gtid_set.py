"""GTID sets in the text forms of MySQL and MariaDB (docs/protocol.md#gtids)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

Spans = list[tuple[int, int]]
_LARGER = 1 << 64  # than any number of a transaction


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


class KnownTransactions:
    """Tells which transactions a GTID set certainly has.

    Two servers of MariaDB can give one number of a domain to different transactions: a standby that lacked the last
    transactions of a failed master goes on with their numbers. So only numbers of the same server are compared.
    """

    def __init__(self, text: str) -> None:
        """text: of the set; raises ValueError for another text."""
        self._set = GtidSet(text)
        self._last = {(domain, server): number for domain, server, number in _of_mariadb(text)}

    def has(self, executed: str, own: str) -> bool:
        """Return whether the set certainly has a transaction.

        executed: the set that includes the transaction, as its entries carry it.
        own: its GTID; "" of MariaDB, whose entries do not carry it, and of an anonymous transaction of MySQL.
        """
        if own:
            return self._set.has(own)
        gtids = _of_mariadb(executed)
        return bool(gtids) and all(number <= self._last.get((domain, server), -1) for domain, server, number in gtids)

    def lacks(self, executed: str, own: str) -> bool:
        """Return whether the set certainly lacks a transaction. The arguments are those of `has`."""
        if own:
            return not self._set.has(own)
        return any(
            number > self._last.get((domain, server), number) for domain, server, number in _of_mariadb(executed)
        )


def _of_mariadb(text: str) -> list[tuple[str, str, int]]:
    """Return domain, server id and number of each GTID of MariaDB in a set; [] for a set of MySQL."""
    parts = [item.strip().split("-") for item in text.split(",") if ":" not in item]
    return [(part[0], part[1], int(part[2])) for part in parts if len(part) == 3]


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
