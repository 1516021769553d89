"""Entries as plain typed rows, and rows as JSON.

    sqlType (java.sql.Types)                        Python
    BIT -7, TINYINT -6, BIGINT -5, INTEGER 4, ...   int       ENUM: 1-based index; SET: bit mask
    DECIMAL 3                                       Decimal; int for a bigint beyond 2^63
    REAL 7, DOUBLE 8                                float
    BLOB 2004 and other binary types                bytes     canal carries each byte as one Latin-1 character
    everything else, dates and times too            str       as canal wrote it; JSON as its text
    NULL of any type                                None

A value that does not look like its type is kept as text: nothing is lost, nothing is guessed.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from google.protobuf.message import DecodeError

from canal_ha.client.message import parse
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.position import LogPosition
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Column, Entry, EventType, RowChange, RowData

Value = int | float | Decimal | str | bytes | None

BINARY_TYPES = frozenset({-4, -3, -2, 2004})
_DECIMAL = 3


@dataclass(frozen=True, slots=True)
class Row:
    """One changed row, or one statement.

    type: INSERT, UPDATE, DELETE, or a statement's: CREATE, ALTER, QUERY, ...; before, after: column name -> value, in
    table order, None where the change has no such side; columns left out of the binlog are left out here; row: index
    within its event; ts: ms of the source; gtid: set including this transaction, "" outside GTID mode; sql: a
    statement's text.
    """

    schema: str
    table: str
    type: str
    before: dict[str, Value] | None
    after: dict[str, Value] | None
    journal: str
    offset: int
    row: int
    ts: int
    gtid: str
    sql: str
    position: LogPosition

    def to_json(self) -> str:
        """One JSON object without the position, which its other fields tell.

        Loses nothing: a Decimal becomes its text, bytes become {"$bytes": "<base64>"}; no other value is an object.
        """
        fields = {name: getattr(self, name) for name in _JSON_FIELDS}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=_to_json)


_JSON_FIELDS = ("schema", "table", "type", "before", "after", "journal", "offset", "row", "ts", "gtid", "sql")


def rows_of(entries: Iterable[Entry | bytes]) -> Iterator[Row]:
    """The rows and statements of entries, in order; begins and ends of transactions have none.

    Raises RemoteProtocolError for bytes that are no entry.
    """
    for given in entries:
        entry = parse(given) if isinstance(given, bytes) else given
        if entry.entryType == ROWDATA:
            yield from _rows(entry, row_change(entry))


def row_change(entry: Entry) -> RowChange:
    """What a ROWDATA entry stores. Raises RemoteProtocolError."""
    try:
        return RowChange.FromString(entry.storeValue)
    except DecodeError as error:
        raise RemoteProtocolError(f"a row change that cannot be read: {error}") from error


def value_of(column: Column) -> Value:
    """A column's typed value; see the module."""
    if column.isNull or not column.HasField("value"):
        return None
    convert = _CONVERT.get(column.sqlType)
    if convert is None:
        return column.value
    try:
        return convert(column)
    except (ValueError, InvalidOperation):
        return column.value


def _rows(entry: Entry, change: RowChange) -> Iterator[Row]:
    header = entry.header
    position = LogPosition(
        journal=header.logfileName,
        offset=header.logfileOffset,
        timestamp_ms=header.executeTime,
        server_id=header.serverId,
        gtid=header.gtid,
    )
    kind = EventType.Name(change.eventType)
    datas: Iterable[RowData | None] = change.rowDatas or (None,)  # a statement has none
    for index, data in enumerate(datas):
        yield Row(
            schema=header.schemaName,
            table=header.tableName,
            type=kind,
            before=None if data is None else _columns(data.beforeColumns),
            after=None if data is None else _columns(data.afterColumns),
            journal=header.logfileName,
            offset=header.logfileOffset,
            row=index,
            ts=header.executeTime,
            gtid=header.gtid,
            sql=change.sql,
            position=position,
        )


def _columns(columns: Iterable[Column]) -> dict[str, Value] | None:
    return {column.name: value_of(column) for column in columns} or None


def _integer(column: Column) -> Value:
    return int(column.value)


def _float(column: Column) -> Value:
    return float(column.value)


def _decimal(column: Column) -> Value:
    return int(column.value) if column.mysqlType.lower().startswith("bigint") else Decimal(column.value)


def _bytes(column: Column) -> Value:
    """MariaDB's JSON columns come as binary too when canal takes their type from the statement: they are text."""
    data = column.value.encode("latin-1")
    return data.decode() if column.mysqlType.lower() == "json" else data


_CONVERT: Mapping[int, Callable[[Column], Value]] = {
    **dict.fromkeys((-7, -6, -5, 4, 5), _integer),
    **dict.fromkeys((7, 8), _float),
    **dict.fromkeys(BINARY_TYPES, _bytes),
    _DECIMAL: _decimal,
}


def _to_json(value: object) -> object:
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    return str(value)  # Decimal
