"""Builds dumps by hand: events with headers and checksums, packets around them, and a decoder for them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from canal_ha.config.model import DecodeOptions
from canal_ha.decode import types
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.history.history import TableHistory
from canal_ha.decode.outputs import Output
from canal_ha.decode.plan_cache import PLANS_BYTES
from canal_ha.decode.privacy import NO_PRIVACY, Privacy
from canal_ha.decode.table_map import TableMap
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.model.table import Column, TableSchema

JOURNAL = "mysql-bin.000007"
SOURCE = Source("db", 3306, "uuid")
SECONDS = 1_700_000_000


def packed(value: int) -> bytes:
    """Return MySQL's length-encoded integer."""
    if value < 251:
        return bytes([value])
    if value < 1 << 16:
        return b"\xfc" + struct.pack("<H", value)
    if value < 1 << 24:
        return b"\xfd" + struct.pack("<I", value)[:3]
    return b"\xfe" + struct.pack("<Q", value)


@dataclass
class Dump:
    """A sequence of events. position: offset of the next event; checksum: events end with a CRC32."""

    position: int = 4
    checksum: bool = True
    seconds: int = SECONDS
    server_id: int = 5
    data: bytearray = field(default_factory=bytearray)

    def event(self, kind: int, body: bytes, *, artificial: bool = False, flags: int = 0) -> bytes:
        """Build an event. artificial: it has no position and is not in the journal."""
        size = 19 + len(body) + 4 * self.checksum
        end = 0 if artificial else self.position + size
        if not artificial:
            self.position = end
        raw = struct.pack("<IBIIIH", self.seconds, kind, self.server_id, size, end & 0xFFFFFFFF, flags) + body
        return raw + struct.pack("<I", zlib.crc32(raw)) if self.checksum else raw

    def add(self, kind: int, body: bytes, *, artificial: bool = False) -> Dump:
        """Append an event in packets."""
        self.data += packets(self.event(kind, body, artificial=artificial))
        return self

    def format(self, version: bytes = b"9.7.4") -> Dump:
        """Append FORMAT_DESCRIPTION, which always has a checksum."""
        body = struct.pack("<H", 4) + version.ljust(50, b"\0") + bytes(4) + b"\x13" + bytes(40)
        body += bytes([self.checksum])
        raw = self.event(15, body if self.checksum else body + bytes(4))
        self.data += packets(raw)
        return self

    def rotate(self, journal: str, position: int = 4, *, artificial: bool = False) -> Dump:
        self.add(4, struct.pack("<Q", position) + journal.encode(), artificial=artificial)
        self.position = position
        return self

    def query(self, sql: str, schema: str = "s", thread: int = 9, sql_mode: int | None = None) -> Dump:
        name = schema.encode()
        status = b"" if sql_mode is None else b"\1" + struct.pack("<Q", sql_mode)
        head = struct.pack("<IIBHH", thread, 0, len(name), 0, len(status))
        return self.add(2, head + status + name + b"\0" + sql.encode())

    def begin(self) -> Dump:
        return self.query("BEGIN")

    def xid(self, number: int = 77) -> Dump:
        return self.add(16, struct.pack("<Q", number))

    def table(self, table_id: int = 1, schema: str = "s", name: str = "t", columns: Sequence[ColumnType] = ()) -> Dump:
        return self.add(19, table_map(table_id, schema, name, columns or INTS))

    def rows(self, kind: int, images: bytes, table_id: int = 1, width: int = 1, *, last: bool = True) -> Dump:
        """Append rows with full images. kind: 30 insert, 31 update, 32 delete. last: they end the statement."""
        bitmap = b"\xff" * ((width + 7) // 8) * (2 if kind == 31 else 1)
        head = struct.pack("<Q", table_id)[:6] + bytes([last]) + b"\0\2\0" + packed(width)
        return self.add(kind, head + bitmap + images)

    def insert(self, *numbers: int, table_id: int = 1, last: bool = True) -> Dump:
        """Append inserted rows with one INT column. last: see `rows`."""
        images = b"".join(b"\0" + struct.pack("<i", number) for number in numbers)
        return self.rows(30, images, table_id, last=last)


@dataclass(frozen=True)
class ColumnType:
    """A column in a table map. meta: its metadata bytes."""

    code: int
    meta: bytes = b""


INTS = (ColumnType(types.LONG),)


def table_map(table_id: int, schema: str, name: str, columns: Sequence[ColumnType], optional: bytes = b"") -> bytes:
    """Build the body of a TABLE_MAP event; every column is nullable."""
    metas = b"".join(column.meta for column in columns)
    return (
        struct.pack("<Q", table_id)[:6]
        + b"\1\0"
        + bytes([len(schema.encode())])
        + schema.encode()
        + b"\0"
        + bytes([len(name.encode())])
        + name.encode()
        + b"\0"
        + packed(len(columns))
        + bytes(column.code for column in columns)
        + packed(len(metas))
        + metas
        + b"\xff" * ((len(columns) + 7) // 8)
        + optional
    )


def packets(event: bytes) -> bytes:
    """Return an event as a server sends it: after a zero byte, in packets of at most 0xffffff bytes."""
    payload = b"\0" + event
    out = bytearray()
    sequence = 0
    while True:
        part = payload[:0xFFFFFF]
        out += struct.pack("<I", len(part))[:3] + bytes([sequence & 255]) + part
        payload = payload[0xFFFFFF:]
        sequence += 1
        if len(part) < 0xFFFFFF:
            return bytes(out)


class AnyTable:
    """A history that knows every table: the given columns, or else c0, c1, … without type texts."""

    lowers_names = False

    def __init__(self, *columns: Column) -> None:
        self.columns = columns
        self.asked: list[tuple[str, int]] = []
        self.applied: list[tuple[str, str]] = []

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        self.asked.append((table_map.name, at.offset))
        columns = self.columns or tuple(Column(f"c{i}", "") for i in range(len(table_map.types)))
        return TableSchema(table_map.schema, table_map.name, columns)

    def charset(self, schema: str) -> str:
        return ""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        self.applied.append((default_schema, sql))
        return True


def decoder(
    history: TableHistory | None = None,
    options: DecodeOptions | None = None,
    *,
    position: int = 4,
    tables: TableFilter | None = None,
    fields: FieldFilter | None = None,
    privacy: Privacy = NO_PRIVACY,
    confined: bool = False,
    segment_bytes: int = 262144,
    plans_bytes: int = PLANS_BYTES,
    gtid_set: str | None = None,
    exact: bool = False,
) -> Decoder:
    """Return a decoder of JOURNAL."""
    return Decoder(
        source=SOURCE,
        journal=JOURNAL,
        position=position,
        options=options or DecodeOptions(),
        tables=tables or TableFilter("", ""),
        fields=fields or FieldFilter("", ""),
        privacy=privacy,
        confined=confined,
        history=history or AnyTable(),
        segment_bytes=segment_bytes,
        plans_bytes=plans_bytes,
        gtid_set=gtid_set,
        exact=exact,
    )


def segments(outputs: Iterable[Output]) -> list[Segment]:
    return [output for output in outputs if isinstance(output, Segment)]


def entries(outputs: Iterable[Output]) -> list[bytes]:
    return [entry for segment in segments(outputs) for entry in segment.entries()]
