"""Writes Debezium's envelope as JSON without schemas, as its converter does with schemas.enable=false. Pure.

The key of a message is an object with the key's columns; the value has before, after, source, op and ts_ms. Values:
debezium_values. A delete is followed by a tombstone: the key without a value, which lets Kafka compact the key away.
A statement is an object with source, databaseName, ddl and ts_ms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring as quoted
from typing import Any

from canal_ha.client.arrow_types import ColumnType
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.envelopes import ColumnForm, Envelopes, Pieces
from canal_ha.pipeline.messages.debezium_values import bits_of, in_utc, source_of, value
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.messages.row_changes import RowOperations
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry

_PIECES = Pieces(
    avro=False,
    start=b'{"before":',
    absent=b"null",
    image=b"{",
    image_end=b"}",
    between=b',"after":',
    row_end=b'},"op":"',
    key=b"{",
    key_end=b"}",
)
_FORMS = {
    "text": codes.TEXT,
    "decimal": codes.TEXT,
    "json": codes.DOCUMENT,
    "integer": codes.INTEGER,
    "year": codes.INTEGER,
    "float": codes.DOUBLE,
    "double": codes.DOUBLE,
    "date": codes.DAY,
    "datetime": codes.INSTANT,
    "time": codes.CLOCK,
}
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class DebeziumJson:
    """The format `debezium-json`."""

    statements_apart = True
    exact = True

    def __init__(self, keys: Mapping[str, Sequence[str]], time_zone: str, *, tombstones: bool) -> None:
        """Begin.

        keys: `schema.table` -> key columns of tables without a primary key.
        time_zone: of TIMESTAMP texts that are not in UTC.
        tombstones: whether one follows a delete.
        """
        self._keys = keys
        self._time_zone = time_zone
        self._tombstones = tombstones

    def records(
        self, entry: RowEntry, topic: str, placement: Placement, origin: MessageOrigin
    ) -> Iterator[QueueMessage]:
        """See MessageFormat."""
        source = debezium_source(entry, origin)
        if entry.is_ddl:
            body = {"source": source, "databaseName": entry.schema, "ddl": entry.sql, "ts_ms": origin.now_ms}
            return iter([QueueMessage(placement.fixed, None, _encode(body).encode())])
        changes = RowOperations(entry, self._keys)
        middle, end = f',"source":{_encode(source)[:-1]},"row":', f'","ts_ms":{origin.now_ms}}}'
        shape = changes.shape(_PIECES, self._forms)
        made = Envelopes(shape, middle.encode(), end.encode(), self._tombstones)
        return changes.messages(made, placement.placing(entry.schema, entry.table, changes.keys))

    def _forms(self, columns: ImageColumns) -> list[ColumnForm]:
        found: list[ColumnForm] | None = columns.made.get(DebeziumJson)
        if found is None:
            found = columns.made[DebeziumJson] = [
                self._form(f",{quoted(name)}:", kind) for name, kind in zip(columns.names, columns.kinds, strict=True)
            ]
        return found

    def _form(self, label: str, kind: ColumnType) -> ColumnForm:
        write = self._writer(kind)
        form = _FORMS.get(kind.name, codes.OTHER)
        if kind.name == "timestamp" and (kind.utc or self._time_zone == "UTC"):
            form = codes.ZONED
        elif kind.name == "bit" and bits_of(kind) == 1:
            form = codes.BOOLEAN
        return ColumnForm(form, label.encode(), f"{label}null".encode(), lambda text: f"{label}{write(text)}".encode())

    def _writer(self, kind: ColumnType) -> Callable[[str], str]:
        """Return what makes JSON of a column's texts."""
        if kind.name == "timestamp" and not kind.utc:
            return lambda text: _encode(value(in_utc(text, self._time_zone), kind))
        return lambda text: _encode(value(text, kind))


def debezium_source(entry: RowEntry, origin: MessageOrigin) -> dict[str, Any]:
    """Return the source of an entry's rows, without the number of the row."""
    return source_of(
        origin.destination,
        time_ms=entry.time_ms,
        snapshot=bool(entry.snapshot),
        schema=entry.schema,
        table=entry.table,
        server_id=entry.server_id,
        gtid=entry.own_gtid,
        journal=entry.journal,
        offset=entry.offset,
    )
