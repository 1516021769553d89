"""The executed GTID set as text, kept up to date by one transaction at a time (specification 7.3)."""

from __future__ import annotations

from functools import lru_cache

from canal_ha.decode.kernel.primitives import Broken, varint


@lru_cache(maxsize=1024)
def uuid_text(raw: bytes) -> str:
    """16 bytes -> 8-4-4-4-12 lower-case hex digits."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_LAST = "\0"  # stands for the last number of the set that moves


def _pair(key: bytes, value: bytes) -> bytes:
    """One element of Header.props; together well below 128 bytes."""
    return b"\x62%c\x0a%c%b\x12%c%b" % (4 + len(key) + len(value), len(key), key, len(value), value)


class _Intervals:
    """The transaction numbers of one source (and tag): ascending, closed, never touching."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[list[int]] = []

    def add(self, first: int, last: int) -> None:
        spans = self.spans
        if spans and spans[-1][1] + 1 == first:  # the usual case: the next number
            spans[-1][1] = last
        else:
            spans.append([first, last])
            spans.sort()
            merged = [spans[0]]
            for span in spans[1:]:
                if span[0] <= merged[-1][1] + 1:
                    merged[-1][1] = max(merged[-1][1], span[1])
                else:
                    merged.append(span)
            self.spans = merged

    def text(self) -> str:
        return ":".join(f"{a}-{b}" if a != b else str(a) for a, b in self.spans)


class Gtids:
    """A set that starts as text and grows; `text`, `field` (Header.gtid) and `props` (curtGtid*) are ready to use.

    MySQL: `uuid:1-5:tag:1-3,uuid:7`, sources in the order of their appearance. MariaDB: `domain-server-sequence`, one
    per domain. From one transaction to the next usually a single number changes: the text before and after it is kept.
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError when the text is no GTID set."""
        self._sources: dict[str, dict[str, _Intervals]] = {}
        self._domains: dict[int, str] = {}
        self._moving: _Intervals | None = None  # whose last span ends in the number that moves
        self._moves = ("", "")  # it is of this source and tag
        self._before = self._after = ""
        for item in text.replace("\n", "").split(","):
            item = item.strip()
            if item.count("-") == 2 and ":" not in item:
                self._domains[int(item.split("-")[0])] = item
            elif item:
                self._parse_source(item)
        self.text = ""
        self.field = b""
        self.props = b""
        self._render()

    def _parse_source(self, item: str) -> None:
        uuid, *parts = item.split(":")
        tags = self._sources.setdefault(uuid.strip().lower(), {})
        tag = ""
        for part in parts:
            first, _, last = part.strip().partition("-")
            if first.isdigit():
                tags.setdefault(tag, _Intervals()).add(int(first), int(last or first))
            elif last:
                raise ValueError(f"{item!r} is not a GTID set")
            else:
                tag = first.lower()
        if not tags:
            raise ValueError(f"{item!r} is not a GTID set")

    def mysql(self, uuid: str, tag: str, number: int, last_committed: int, sequence: int) -> None:
        """A MySQL transaction begins; it counts as executed from here on."""
        moving = self._moving if (uuid, tag) == self._moves else None
        if moving is not None and moving.spans[-1][1] + 1 == number:
            moving.spans[-1][1] = number
            self._set_text(f"{self._before}{number}{self._after}")
        else:
            intervals = self._sources.setdefault(uuid, {}).setdefault(tag, _Intervals())
            intervals.add(number, number)
            self._moves = (uuid, tag)
            self._moving = intervals if intervals.spans[-1][0] < intervals.spans[-1][1] else None
            self._render()
        current = f"{uuid}:{tag}:{number}" if tag else f"{uuid}:{number}"
        self.props = (
            _pair(b"curtGtid", current.encode())
            + _pair(b"curtGtidSn", b"%d" % sequence)
            + _pair(b"curtGtidLct", b"%d" % last_committed)
        )

    def mariadb(self, domain: int, server_id: int, sequence: int) -> None:
        """A MariaDB transaction begins."""
        self._domains[domain] = f"{domain}-{server_id}-{sequence}"
        self._render()

    def _render(self) -> None:
        """The whole text anew, and what stands around the number that moves."""
        parts = [
            uuid
            + "".join(f":{tag}:{self._text(spans)}" if tag else f":{self._text(spans)}" for tag, spans in tags.items())
            for uuid, tags in self._sources.items()
        ]
        parts.extend(self._domains.values())
        text = ",".join(parts)
        if self._moving is not None:
            self._before, _, self._after = text.partition(_LAST)
            text = f"{self._before}{self._moving.spans[-1][1]}{self._after}"
        self._set_text(text)

    def _text(self, intervals: _Intervals) -> str:
        text = intervals.text()
        return f"{text.rpartition('-')[0]}-{_LAST}" if intervals is self._moving else text

    def _set_text(self, text: str) -> None:
        self.text = text
        raw = text.encode()
        self.field = b"\x6a" + varint(len(raw)) + raw


def parse_tagged(body: bytes) -> tuple[str, str, int, int, int]:
    """A TAGGED GTID event -> (uuid, tag, number, last committed, sequence number). Raises Broken.

    The body is a message of MySQL's serialization library (libs/mysql/serialization): version, size, last mandatory
    field, then fields by ascending id. Integers take as many bytes more as their first one has trailing ones.
    """
    cursor = _Serialized(body)
    cursor.unsigned()
    cursor.unsigned()
    cursor.unsigned()
    uuid = b""
    tag = ""
    numbers = {_NUMBER: 0, _LAST_COMMITTED: 0, _SEQUENCE: 0}
    while cursor.pos < len(body):
        field = cursor.unsigned()
        if field == _FLAGS:
            cursor.take(1)
        elif field == _UUID:
            uuid = bytes(cursor.unsigned() & 255 for _ in range(16))
        elif field == _TAG:
            tag = cursor.take(cursor.unsigned()).decode("ascii", "replace")
        elif field in numbers:
            numbers[field] = cursor.signed()
        else:
            break
    if not uuid:
        raise Broken("a GTID event without its source")
    return uuid_text(uuid), tag, numbers[_NUMBER], numbers[_LAST_COMMITTED], numbers[_SEQUENCE]


_FLAGS, _UUID, _NUMBER, _TAG, _LAST_COMMITTED, _SEQUENCE = range(6)


class _Serialized:
    """Reading of MySQL's serialization format."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def take(self, size: int) -> bytes:
        if self.pos + size > len(self.data):
            raise Broken("a GTID event that ends early")
        self.pos += size
        return self.data[self.pos - size : self.pos]

    def unsigned(self) -> int:
        first = self.take(1)[0]
        extra = 0
        while first >> extra & 1:
            extra += 1
        rest = self.take(extra)
        if extra >= 8:
            return int.from_bytes(rest, "little")
        return (first | int.from_bytes(rest, "little") << 8) >> (extra + 1)

    def signed(self) -> int:
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)
