"""ExistingRows: folds a snapshot and the changes beside it into each existing row once. Pure but for a file.

A snapshot's row is the newest value at the place where it stands in the stream; a change behind it replaces it. A row
of the result is either a snapshot's row without a later change, or the last image of a changed row. The result is what
the tables held where the snapshot ended. The snapshot's rows wait in the file, the keys and last images of changed rows
in memory.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import zstandard

import canal_ha.decode.kernel.codes as k
from canal_ha.client.message import parse
from canal_ha.client.rows import row_change
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError, SchemaChanged, SinkRefused
from canal_ha.model.entry import DDL_TYPES, SNAPSHOT_PROP
from canal_ha.wire.messages import varint
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from canal_ha.wire.proto.canal_protocol_pb2 import Messages

BLOCK_BYTES = 1 << 20  # of changed rows in a block
_HEAD = struct.Struct(">II")  # bytes in the file, bytes of the block

Key = tuple[str | None, ...]


class ExistingRows:
    """See the module.

    tables: `schema.table`, those of the snapshot.
    snapshot: its id.
    file: empty; takes the snapshot's rows.
    """

    def __init__(self, tables: Iterable[str], snapshot: str, file: BinaryIO) -> None:
        self._snapshot = snapshot
        self._changed: dict[str, dict[Key, bytes | None]] = {table: {} for table in tables}  # None: deleted
        self._file = file

    def add(self, frames: bytes) -> None:
        """Take entries, in the order of the stream.

        Raises SchemaChanged for a statement about one of the tables, SinkRefused for a change without all columns, and
        RemoteProtocolError for an invalid entry.
        """
        kept = []
        for entry, frame in _rows_of(frames):
            table = _table(entry)
            rows = entry.change()
            if entry.is_ddl or entry.event_type in DDL_TYPES:
                self._check_statement(table, entry.text(entry.sql_start, entry.sql_stop))
                continue
            changed = self._changed.get(table)
            if changed is None or not rows:
                continue
            if entry.snapshot_stop > entry.snapshot_start:
                kept.append(frame)
                if changed:
                    for row in row_change(_entry(frame)).rowDatas:
                        changed.pop(_key(row.afterColumns), None)
            else:
                self._take_changes(table, changed, _entry(frame))
        if kept:
            block = b"".join(kept)
            data = zstandard.ZstdCompressor(level=1).compress(block)
            self._file.write(_HEAD.pack(len(data), len(block)) + data)

    def frames(self) -> Iterator[bytes]:
        """Yield blocks of entries with each row once, as rows of the snapshot."""
        self._file.seek(0)
        while head := self._file.read(_HEAD.size):
            size, whole = _HEAD.unpack(head)
            block = zstandard.ZstdDecompressor().decompress(self._file.read(size), max_output_size=whole)
            if left := self._unchanged(block):
                yield left
        images = bytearray()
        for changed in self._changed.values():
            for frame in changed.values():
                images += frame or b""
                if len(images) >= BLOCK_BYTES:
                    yield bytes(images)
                    images.clear()
        if images:
            yield bytes(images)

    def _check_statement(self, table: str, sql: str) -> None:
        for name in self._changed:
            word = rf"(?<!\w){re.escape(name.partition('.')[2])}(?!\w)"
            if table == name or not sql or re.search(word, sql, re.IGNORECASE):
                raise SchemaChanged(f"canal: a statement changed {name} while its rows were read: read it again: {sql}")

    def _take_changes(self, table: str, changed: dict[Key, bytes | None], entry: pb.Entry) -> None:
        for row in row_change(entry).rowDatas:
            before, after = row.beforeColumns, row.afterColumns
            if before:
                changed[_key(before)] = None
            if after:
                if (before and len(before) != len(after)) or any(each.index != n for n, each in enumerate(after)):
                    raise SinkRefused(
                        f"canal: the binlog lacks columns of a changed row of {table}, so its value is unknown."
                        " Run: SET GLOBAL binlog_row_image = FULL"
                    )
                made = pb.Entry(header=entry.header, entryType=pb.ROWDATA)
                made.header.eventType = pb.INSERT
                del made.header.props[:]
                made.header.props.add(key="rowsCount", value="1")
                made.header.props.add(key=SNAPSHOT_PROP, value=self._snapshot)
                change = pb.RowChange(eventType=pb.INSERT, isDdl=False, rowDatas=[pb.RowData(afterColumns=after)])
                made.storeValue = change.SerializeToString()
                changed[_key(after)] = _frame(made)

    def _unchanged(self, block: bytes) -> bytes:
        """Return the block without rows that have changed later."""
        if not any(self._changed.values()):
            return block
        kept = []
        for each, frame in _rows_of(block):
            changed = self._changed[_table(each)]
            if not changed:
                kept.append(frame)
                continue
            entry = _entry(frame)
            change = row_change(entry)
            rows = [row for row in change.rowDatas if _key(row.afterColumns) not in changed]
            if len(rows) == len(change.rowDatas):
                kept.append(frame)
            elif rows:
                del change.rowDatas[:]
                change.rowDatas.extend(rows)
                for prop in entry.header.props:
                    if prop.key == "rowsCount":
                        prop.value = str(len(rows))
                entry.storeValue = change.SerializeToString()
                kept.append(_frame(entry))
        return b"".join(kept)


def _rows_of(frames: bytes) -> Iterator[tuple[Entries, bytes]]:
    """Yield the reader at each entry with rows or a statement, and the entry's frame."""
    entries = Entries(frames, 0, len(frames))
    start = 0
    try:
        while entries.next():
            if entries.kind == k.ROWDATA:
                yield entries, frames[start : entries.pos]
            start = entries.pos
    except Broken as error:
        raise RemoteProtocolError(f"invalid entry: {error}") from error


def _table(entry: Entries) -> str:
    schema = entry.text(entry.schema_start, entry.schema_stop)
    return f"{schema}.{entry.text(entry.table_start, entry.table_stop)}"


def _entry(frame: bytes) -> pb.Entry:
    return parse(Messages.FromString(frame).messages[0])


def _frame(entry: pb.Entry) -> bytes:
    raw = entry.SerializeToString()
    return b"\x12" + varint(len(raw)) + raw


def _key(columns: Iterable[pb.Column]) -> Key:
    """Return the texts of the primary key; without one, those of all columns."""
    columns = tuple(columns)
    return tuple(None if each.isNull else each.value for each in [c for c in columns if c.isKey] or columns)
