"""TableMap: what a TABLE_MAP event says of a table, optional metadata included."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableMap:
    """One TABLE_MAP event, parsed.

    types: MySQL type code per column; metas: type metadata per column, as the event's little-endian integers (two-byte
    metadata of STRING/ENUM/SET/DECIMAL kept as the two raw bytes, first byte in the high half); nullable per column.
    The rest is None when the source does not send it (binlog_row_metadata=MINIMAL sends only signedness and charsets).
    """

    table_id: int
    schema: str
    name: str
    types: bytes
    metas: tuple[int, ...]
    nullable: tuple[bool, ...]
    unsigned: tuple[bool, ...] | None = None  # per column; False for non-numeric ones
    names: tuple[str, ...] | None = None
    primary_key: tuple[int, ...] | None = None  # ordinals, () is a table without one; None unknown
    enum_values: tuple[tuple[str, ...], ...] | None = None
    set_values: tuple[tuple[str, ...], ...] | None = None
    geometry_types: tuple[int, ...] | None = None
    charsets: tuple[int, ...] | None = None  # collation id per column, 0 for none
