"""The executed GTID set as text, updated with each transaction (docs/protocol.md#gtids)."""

from __future__ import annotations

from functools import lru_cache

import canal_ha.decode.kernel.primitives as p


@lru_cache(maxsize=1024)
def uuid_text(raw: bytes) -> str:
    """Format 16 bytes as 8-4-4-4-12 lower-case hex digits."""
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_LAST = "\0"  # placeholder for the last number of the changing interval


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
            self.merge()

    def merge(self) -> None:
        """Sort the spans, and join those that touch."""
        self.spans.sort()
        merged = self.spans[:1]
        for span in self.spans[1:]:
            if span[0] <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], span[1])
            else:
                merged.append(span)
        self.spans = merged

    def text(self) -> str:
        return ":".join(f"{a}-{b}" if a != b else str(a) for a, b in self.spans)


class Gtids:
    """A set that starts as text and grows; `executed`, `field` (Header.gtid) and `props` (curtGtid*) are ready to use.

    MySQL: `uuid:1-5:tag:1-3,uuid:7`, sources in the order of their appearance. MariaDB: `domain-server-sequence`, one
    for each domain. From one transaction to the next usually a single number changes. So the text before and after it
    is kept, and its interval is updated only when something else changes.
    """

    __slots__ = (
        "_after",
        "_before",
        "_domain",
        "_domains",
        "_item",
        "_moves",
        "_moving",
        "_number",
        "_source",
        "_sources",
        "_uuid",
        "executed",
        "field",
        "props",
    )

    def __init__(self, text: str) -> None:
        """Raises ValueError if the text is not a GTID set."""
        self._sources: dict[str, dict[str, _Intervals]] = {}
        self._domains: dict[int, str] = {}
        self._moving: _Intervals | None = None  # the intervals whose last number changes
        self._moves = ("", "")  # their source and tag
        self._source = b""  # their source as in events, without a tag; b"" while no number changes
        self._uuid = b""  # the same as in texts
        self._number = 0
        self._domain = -1  # the domain whose item changes
        self._item = bytearray()
        self._before = self._after = b""
        self.executed = bytearray()
        self.field = bytearray()
        self.props = bytearray()
        for item in text.replace("\n", "").split(","):
            item = item.strip()
            if item.count("-") == 2 and ":" not in item:
                self._domains[int(item.split("-")[0])] = item
            elif item:
                self._parse_source(item)
        for tags in self._sources.values():
            for intervals in tags.values():
                intervals.merge()
        self._render()

    @property
    def text(self) -> str:
        """The set as text."""
        return self.executed.decode()

    def _parse_source(self, item: str) -> None:
        uuid, *parts = item.split(":")
        tags = self._sources.setdefault(uuid.strip().lower(), {})
        tag = ""
        for part in parts:
            first, _, last = part.strip().partition("-")
            if first.isdigit():
                tags.setdefault(tag, _Intervals()).spans.append([int(first), int(last or first)])
            elif last:
                raise ValueError(f"{item!r} is not a GTID set")
            else:
                tag = first.lower()
        if not tags:
            raise ValueError(f"{item!r} is not a GTID set")

    def transaction(self, src: bytes, body: int, stop: int) -> None:
        """Begin a MySQL transaction with this GTID event; it counts as executed from here on. Raises Broken."""
        if stop - body < 25:
            p.broken("a GTID event without its number")
        number = p.u64(src, body + 17)
        committed = sequence = 0
        if stop - body >= 42 and p.u8(src, body + 25) == 2:
            committed = p.u64(src, body + 26)
            sequence = p.u64(src, body + 34)
        if number == self._number + 1 and p.same_bytes(src, body + 1, body + 17, self._source):
            self._number = number
            self._write(number)
        else:
            self._odd(src, body, number)
        self._tell(self._uuid, number, committed, sequence)

    def _odd(self, src: bytes, body: int, number: int) -> None:
        """Handle a number that is not the expected one."""
        source = src[body + 1 : body + 17]
        uuid = uuid_text(source)
        self._add(uuid, "", number)
        self._uuid = uuid.encode()
        if self._moving is not None:
            self._source = source

    def mysql(self, uuid: str, tag: str, number: int, last_committed: int, sequence: int) -> None:
        """Begin a MySQL transaction."""
        if self._moving is not None and self._moves == (uuid, tag) and number == self._number + 1:
            self._number = number
            self._write(number)
        else:
            self._add(uuid, tag, number)
        self._tell((f"{uuid}:{tag}" if tag else uuid).encode(), number, last_committed, sequence)

    def _add(self, uuid: str, tag: str, number: int) -> None:
        self._settle()
        intervals = self._sources.setdefault(uuid, {}).setdefault(tag, _Intervals())
        intervals.add(number, number)
        self._moves = (uuid, tag)
        self._moving = intervals if intervals.spans[-1][0] < intervals.spans[-1][1] else None
        self._number = intervals.spans[-1][1]
        self._render()

    def _settle(self) -> None:
        """Store the changed number in its interval; from here on no number changes."""
        if self._moving is not None:
            self._moving.spans[-1][1] = self._number
        if self._domain >= 0:
            self._domains[self._domain] = self._item.decode()
        self._moving = None
        self._source = b""
        self._domain = -1

    def mariadb(self, domain: int, server_id: int, sequence: int) -> None:
        """Begin a MariaDB transaction."""
        if domain != self._domain:
            self._enter(domain)
        p.truncate(self._item, 0)
        p.put_unsigned(self._item, domain)
        p.put_byte(self._item, 0x2D)
        p.put_unsigned(self._item, server_id)
        p.put_byte(self._item, 0x2D)
        p.put_unsigned(self._item, sequence)
        self._show(self._item)

    def _enter(self, domain: int) -> None:
        """Make this domain's item the changing one."""
        self._settle()
        self._domains[domain] = _LAST
        self._render()
        self._domain = domain

    def _render(self) -> None:
        """Build the whole text again, and the parts around the changing number."""
        parts = [
            uuid
            + "".join(f":{tag}:{self._text(spans)}" if tag else f":{self._text(spans)}" for tag, spans in tags.items())
            for uuid, tags in self._sources.items()
        ]
        parts.extend(self._domains.values())
        before, _, after = ",".join(parts).partition(_LAST)
        self._before = before.encode()
        self._after = after.encode()
        if self._moving is not None:
            self._write(self._number)
        else:
            self._show(bytearray())

    def _text(self, intervals: _Intervals) -> str:
        text = intervals.text()
        return f"{text.rpartition('-')[0]}-{_LAST}" if intervals is self._moving else text

    def _write(self, number: int) -> None:
        p.truncate(self._item, 0)
        p.put_unsigned(self._item, number)
        self._show(self._item)

    def _show(self, moved: bytearray) -> None:
        """Show the text of the set, with `moved` between the unchanged parts."""
        p.truncate(self.executed, 0)
        p.put(self.executed, self._before)
        p.put(self.executed, moved)
        p.put(self.executed, self._after)
        p.truncate(self.field, 0)
        p.put_byte(self.field, 0x6A)
        p.put_varint(self.field, p.size(self.executed))
        p.put(self.field, self.executed)

    def _tell(self, source: bytes, number: int, last_committed: int, sequence: int) -> None:
        """Set the props of a transaction: its GTID, its number within its group, and the one that it waits for."""
        p.truncate(self.props, 0)
        size = p.held(source) + 1 + p.digits_size(number)
        _put_key(self.props, b"\x0a\x08curtGtid", 10, size)
        p.put(self.props, source)
        p.put_byte(self.props, 0x3A)
        p.put_unsigned(self.props, number)
        _put_key(self.props, b"\x0a\x0acurtGtidSn", 12, p.digits_size(sequence))
        p.put_unsigned(self.props, sequence)
        _put_key(self.props, b"\x0a\x0bcurtGtidLct", 13, p.digits_size(last_committed))
        p.put_unsigned(self.props, last_committed)


def _put_key(props: bytearray, key: bytes, length: int, size: int) -> None:
    """Append a Header.props element up to its value of `size` bytes, well below 128. key: encoded, `length` bytes."""
    p.put_byte(props, 0x62)
    p.put_byte(props, length + 2 + size)
    p.put(props, key)
    p.put_byte(props, 0x12)
    p.put_byte(props, size)


def parse_tagged(body: bytes) -> tuple[str, str, int, int, int]:
    """Parse a TAGGED GTID event into (uuid, tag, number, last committed, sequence number). Raises Broken.

    The body is a message of MySQL's serialization library (libs/mysql/serialization): version, size, last mandatory
    field, then fields by ascending id. The trailing ones of an integer's first byte are its number of further bytes.
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
        raise p.Broken("a GTID event without its source")
    if len(tag) > _TAG_CHARACTERS or not all(0 <= value <= _NUMBER_MOST for value in numbers.values()):
        raise p.Broken("a GTID event whose tag or numbers no server writes")
    return uuid_text(uuid), tag, numbers[_NUMBER], numbers[_LAST_COMMITTED], numbers[_SEQUENCE]


_FLAGS, _UUID, _NUMBER, _TAG, _LAST_COMMITTED, _SEQUENCE = range(6)
_TAG_CHARACTERS = 32  # MySQL libs/mysql/gtid/tag.h
_NUMBER_MOST = (1 << 63) - 1


class _Serialized:
    """Reads MySQL's serialization format."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def take(self, size: int) -> bytes:
        if self.pos + size > len(self.data):
            raise p.Broken("a GTID event that ends early")
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
