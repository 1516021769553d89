"""Reads entries as protobuf objects, for the shapes `debezium` and `changes` and for a table's columns.

The kernel builds the other shapes; see canal_ha.spark.arrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from google.protobuf.message import DecodeError

from canal_ha.client.message import parse
from canal_ha.client.rows import row_change
from canal_ha.errors import SpoolUnusable
from canal_ha.model.entry import DDL_TYPES, PARTIAL_PROP, SNAPSHOT_PROP, EventType
from canal_ha.wire.proto.canal_protocol_pb2 import Messages
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Column, Header, RowData

INSERT, UPDATE, DELETE, DDL, READ = "insert", "update", "delete", "ddl", "read"
NEW_ROWS = frozenset({INSERT, READ})  # operations without an old image
_OPS = {EventType.INSERT: INSERT, EventType.UPDATE: UPDATE, EventType.DELETE: DELETE}

Texts = list[str | None]


@dataclass(frozen=True)
class RowLayout:
    """The columns of an entry's rows, in table order.

    columns: name, mysqlType, sqlType of each column.
    keys: indexes of the primary key's columns.
    partial: the binlog omits some columns.
    """

    columns: tuple[tuple[str, str, int], ...]
    keys: tuple[int, ...]
    partial: bool

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(name for name, _, _ in self.columns)

    def to_json(self) -> str:
        """Return the layout as a JSON text that Spark can parse; all rows of the entry share it."""
        body = {
            "names": self.names,
            "types": [text for _, text, _ in self.columns],
            "codes": [code for _, _, code in self.columns],
            "keys": self.keys,
            "partial": self.partial,
        }
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RowLayout:
        """Parse the text of `to_json`."""
        body = json.loads(text)
        columns = tuple(zip(body["names"], body["types"], body["codes"], strict=True))
        return cls(columns, tuple(body["keys"]), body["partial"])


@dataclass(frozen=True, slots=True)
class EntryRows:
    """One entry: rows of one table, or one statement.

    entry: number within the segment.
    sub: number among the entries that share an offset.
    header: the entry's header.
    op: insert, update, delete or ddl; read: rows of a snapshot, inserted or replaced.
    before_layout, after_layout: one layout for each side, because images may be partial.
    before, after: rows as canal's texts; empty if the operation has no such image.
    ddl: the statement's text; None for rows.
    """

    entry: int
    sub: int
    header: Header
    op: str
    before_layout: RowLayout
    after_layout: RowLayout
    before: Sequence[Texts]
    after: Sequence[Texts]
    ddl: str | None = None

    @property
    def layout(self) -> RowLayout:
        """The layout of the current image, or of the old image for a deleted row."""
        return self.before_layout if self.op == DELETE else self.after_layout

    @property
    def count(self) -> int:
        """The number of rows; a statement counts as one."""
        return 1 if self.op == DDL else max(len(self.before), len(self.after))


_NO_LAYOUT = RowLayout((), (), partial=False)


def changes_of(frames: bytes, name: str) -> Iterator[EntryRows]:
    """Yield the rows and statements of a segment, in order. name: its name, for messages. Raises SpoolUnusable."""
    try:
        entries = Messages.FromString(frames).messages
    except DecodeError as error:
        raise SpoolUnusable(f"{name} holds invalid entries: {error}") from error
    place: tuple[str, int] = ("", -1)
    sub = 0
    for number, raw in enumerate(entries):
        entry = parse(raw)
        header = entry.header
        here = (header.logfileName, header.logfileOffset)
        sub = sub + 1 if here == place else 0
        place = here
        if entry.entryType != ROWDATA:
            continue
        change = row_change(entry)
        event = EventType(change.eventType)
        op = _OPS.get(event) if change.rowDatas else None
        if op == INSERT and snapshot_of(header):
            op = READ
        if op is not None:
            yield _rows(number, sub, header, op, change.rowDatas)
        elif change.isDdl or event in DDL_TYPES:
            yield EntryRows(number, sub, header, DDL, _NO_LAYOUT, _NO_LAYOUT, (), (), change.sql)


def snapshot_of(header: Header) -> str:
    """Return the id of the snapshot that read an entry's rows; "" for an entry of the binlog."""
    values = [prop.value for prop in header.props if prop.key == SNAPSHOT_PROP]
    return values[-1] if values else ""


def _rows(number: int, sub: int, header: Header, op: str, rows: Sequence[RowData]) -> EntryRows:
    first = rows[0]
    before = [_texts(row.beforeColumns) for row in rows] if op not in NEW_ROWS else []
    after = [_texts(row.afterColumns) for row in rows] if op != DELETE else []
    before_layout = _layout(first.beforeColumns) if before else _NO_LAYOUT
    after_layout = _layout(first.afterColumns) if after else _NO_LAYOUT
    lacking = any(prop.key == PARTIAL_PROP for prop in header.props)
    if lacking or (op == UPDATE and before_layout.names != after_layout.names):
        before_layout = RowLayout(before_layout.columns, before_layout.keys, partial=True)
        after_layout = RowLayout(after_layout.columns, after_layout.keys, partial=True)
    return EntryRows(number, sub, header, op, before_layout, after_layout, before, after)


def _texts(columns: Sequence[Column]) -> Texts:
    return [None if column.isNull else column.value for column in columns]


def _layout(columns: Sequence[Column]) -> RowLayout:
    return RowLayout(
        tuple((column.name, column.mysqlType, column.sqlType) for column in columns),
        tuple(place for place, column in enumerate(columns) if column.isKey),
        partial=any(column.index != place for place, column in enumerate(columns)),
    )
