"""Converts entries to typed rows, and rows to JSON.

    sqlType (java.sql.Types)                        Python
    BIT -7, TINYINT -6, BIGINT -5, INTEGER 4, ...   int
    ENUM and SET of either type                     str       labels, separated by commas
    DECIMAL 3                                       Decimal; int for a bigint beyond 2^63
    REAL 7, DOUBLE 8                                float
    BLOB 2004 and other binary types                bytes     BINARY(n) with its padding
    everything else, dates and times too            str       JSON as its text; dates as stored, valid or not
    NULL of any type                                None

TIMESTAMP is in UTC in the exact form (docs/protocol.md#exact), which connectors ask for; in canal's form it is in the
time zone of the server process.

A value that does not fit its type stays text, so nothing is lost or guessed.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache

from google.protobuf.message import DecodeError

from canal_ha.client.message import Message
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.changes import entry_rows
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import BINARY_TYPES, Images
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.decode.labels import labelled, labels_of
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.entry import EventType
from canal_ha.model.position import LogPosition
from canal_ha.wire.proto.entry_protocol_pb2 import Column, Entry, RowChange

Value = int | float | Decimal | str | bytes | None

_INTEGERS = frozenset({-7, -6, -5, 4, 5})
_FLOATS = frozenset({7, 8})
_DECIMAL = 3
_TYPES = ("", *(EventType(number).name for number in range(1, len(EventType) + 1)))


class Event:
    """The values that the rows of one entry share; see the attributes of Row."""

    __slots__ = ("gtid", "journal", "offset", "schema", "server_id", "snapshot", "sql", "table", "ts", "type")

    def __init__(self, entry: Entries) -> None:
        self.schema, self.table, self.journal, self.gtid, self.sql, self.snapshot = entry.texts()
        self.type = _TYPES[entry.event_type]
        self.offset = entry.offset
        self.ts = entry.time_ms
        self.server_id = entry.server_id


class Row:
    """One changed row, or one statement.

    before, after: column name -> value, in table order; None if the change has no such side. Columns that the binlog
        omits are missing.
    row: index within its event.
    """

    __slots__ = ("_event", "after", "before", "row")

    def __init__(self, event: Event, row: int, before: dict[str, Value] | None, after: dict[str, Value] | None) -> None:
        self._event = event
        self.row = row
        self.before = before
        self.after = after

    @property
    def schema(self) -> str:
        """The table's schema; for a statement, the schema in which it ran."""
        return self._event.schema

    @property
    def table(self) -> str:
        """The table's name; "" for a statement without a table."""
        return self._event.table

    @property
    def type(self) -> str:
        """INSERT, UPDATE, DELETE, or for a statement CREATE, ALTER, QUERY, ..."""
        return self._event.type

    @property
    def journal(self) -> str:
        """The binlog file."""
        return self._event.journal

    @property
    def offset(self) -> int:
        """The offset of the event in the journal, bytes."""
        return self._event.offset

    @property
    def ts(self) -> int:
        """Time of the event on the source, ms since 1970."""
        return self._event.ts

    @property
    def gtid(self) -> str:
        """GTID set up to and including this transaction; "" without GTIDs."""
        return self._event.gtid

    @property
    def sql(self) -> str:
        """The statement's text."""
        return self._event.sql

    @property
    def snapshot(self) -> str:
        """Id of the snapshot that read this row; "" for a row of the binlog.

        A row of a snapshot is an INSERT, and the copy may have it already: insert or replace it.
        For a table without a key it is `ID.ATTEMPT.PIECE`, see docs/protocol.md#snapshot-rows.
        """
        return self._event.snapshot

    @property
    def position(self) -> LogPosition:
        """The position of the event, with its time and source."""
        event = self._event
        return LogPosition(event.journal, event.offset, event.ts, event.server_id, event.gtid)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        return self.position == other.position and all(getattr(self, name) == getattr(other, name) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]  # its values are dictionaries

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={getattr(self, name)!r}' for name in _FIELDS)})"

    def to_json(self) -> str:
        """Return the row as one JSON object.

        No value is lost: a Decimal becomes a string, bytes become {"$bytes": "<base64>"}; no other value is an object.
        Rows of the binlog have no `snapshot`.
        """
        fields = {name: getattr(self, name) for name in _FIELDS}
        if not self.snapshot:
            del fields["snapshot"]
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=_to_json)


_FIELDS = ("schema", "table", "type", "before", "after", "journal", "offset", "row", "ts", "gtid", "sql", "snapshot")


def rows_of(entries: Message | Iterable[Entry | bytes]) -> Iterator[Row]:
    """Yield the rows and statements of a message or of entries, in order. Transaction begins and ends have no rows.

    Raises RemoteProtocolError for invalid entries.
    """
    images = _learnt()
    walk = _frames(entries) if isinstance(entries, Message) else _one_by_one(entries)
    try:
        for entry in walk:
            if entry.kind != codes.ROWDATA:
                continue
            count = entry.change()
            event = Event(entry)
            if not count:
                yield Row(event, 0, None, None)
                continue
            key = (event.schema, event.table, event.type)
            known = images.get(key)
            if known is None:
                known = images[key] = Images({})
            for index, (before, after) in enumerate(entry_rows(entry, known, converted)):
                yield Row(event, index, before, after)  # type: ignore[arg-type]  # `converted` makes Values
    except Broken as error:
        raise RemoteProtocolError(f"invalid entry: {error}") from error
    finally:
        _keep(images)


_Images = dict[tuple[str, str, str], Images]
_spare: list[_Images] = []  # of iterations that are over: the next ones know the columns of their tables
_SPARES, _LAYOUTS = 4, 256  # most of them, and most layouts of rows in each


def _learnt() -> _Images:
    """Return what an iteration that is over has learnt, for one more alone; nothing if others have all of it."""
    try:
        return _spare.pop()
    except IndexError:
        return {}


def _keep(images: _Images) -> None:
    """Keep what an iteration has learnt for another one, on any thread, but not the bytes that it has read."""
    known = 0
    for each in images.values():
        known += len(each.known_before) + len(each.known_after)
        each.src = b""
    if known <= _LAYOUTS and len(_spare) < _SPARES:
        _spare.append(images)


def _frames(message: Message) -> Iterator[Entries]:
    entry = message.walk()
    while entry.next():
        yield entry


def _one_by_one(given: Iterable[Entry | bytes]) -> Iterator[Entries]:
    entry = Entries(b"", 0, 0)
    for one in given:
        entry.only(one if isinstance(one, bytes) else one.SerializeToString())
        yield entry


def row_change(entry: Entry) -> RowChange:
    """Parse the content of a ROWDATA entry. Raises RemoteProtocolError."""
    try:
        return RowChange.FromString(entry.storeValue)
    except DecodeError as error:
        raise RemoteProtocolError(f"invalid row change: {error}") from error


def value_of(column: Column) -> Value:
    """Return a column's typed value; see the module."""
    if column.isNull or not column.HasField("value"):
        return None
    return converted(column.value, column.sqlType, column.mysqlType)


def converted(text: str, sql_type: int, mysql_type: str) -> Value:
    """Convert a value's text to its Python type."""
    try:
        labels = labels_of(mysql_type)
        if labels:
            return labelled(int(text), labels, several=mysql_type.lstrip()[:3].lower() == "set")
        if sql_type in _INTEGERS:
            return int(text)
        if sql_type in _FLOATS:
            return float(text)
        if sql_type == _DECIMAL:
            return int(text) if mysql_type.lower().startswith("bigint") else Decimal(text)
        if sql_type in BINARY_TYPES:
            data = text.encode("latin-1")
            # canal sends some texts as binary: MariaDB's JSON if the statement says JSON, and text(n)
            size = _padding(mysql_type)
            return data.decode() if size is None else data.ljust(size, b"\0")
    except (ValueError, InvalidOperation):
        pass
    return text


_TEXT_TYPE = re.compile(r"\s*(?:json|(?:tiny|medium|long)?text)\b", re.IGNORECASE).match
_BINARY_TYPE = re.compile(r"\s*binary(?:\s*\((\d+)\))?", re.IGNORECASE)


@lru_cache(maxsize=1024)
def _padding(mysql_type: str) -> int | None:
    """Return n of BINARY(n), whose trailing zeros the binlog omits; 0 for other types of bytes; None for texts."""
    if _TEXT_TYPE(mysql_type):
        return None
    found = _BINARY_TYPE.match(mysql_type)
    return int(found[1] or 1) if found else 0


def _to_json(value: object) -> object:
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    return str(value)  # Decimal
