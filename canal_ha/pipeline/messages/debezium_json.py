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
from canal_ha.pipeline.messages.debezium_values import in_utc, source_of, value
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.messages.row_changes import RowOperations
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry, Texts

Members = list[tuple[str, Callable[[str], str]]]
"""For each column, how a member of an object begins, and what makes JSON of its texts"""

_NULL = "null"
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
            yield QueueMessage(placement.fixed, None, _encode(body).encode())
            return
        changes = RowOperations(entry, self._keys)
        columns = changes.columns
        place = placement.placing(entry.schema, entry.table, changes.keys)
        new_members, old_members = self._members(columns), self._members(changes.before)
        key_at = [columns.names.index(name) for name in changes.keys]
        old_key_at = [changes.before.names.index(name) for name in changes.keys if name in changes.before.names]
        middle, end = f',"source":{_encode(source)[:-1]},"row":', f',"ts_ms":{origin.now_ms}}}'
        for change in changes:
            deleted = change.after is None
            image = (change.before if deleted else change.after) or []
            image_columns, members = (changes.before, old_members) if deleted else (columns, new_members)
            before = _NULL if change.before is None else _object(old_members, change.before)
            after = _NULL if deleted else _object(members, image)
            partition = place(image_columns.texts(image) if place.needs_values else {})
            places = old_key_at if deleted else key_at
            key = _object([members[at] for at in places], [image[at] for at in places]).encode() if places else None
            text = f'{{"before":{before},"after":{after}{middle}{change.row}}},"op":"{change.op}"{end}'
            yield QueueMessage(partition, key, text.encode())
            if deleted and key is not None and self._tombstones:
                yield QueueMessage(partition, key, None)

    def _members(self, columns: ImageColumns) -> Members:
        found: Members | None = columns.made.get(DebeziumJson)
        if found is None:
            found = [
                (f"{quoted(name)}:", self._writer(kind))
                for name, kind in zip(columns.names, columns.kinds, strict=True)
            ]
            columns.made[DebeziumJson] = found
        return found

    def _writer(self, kind: ColumnType) -> Callable[[str], str]:
        """Return what makes JSON of a column's texts."""
        if kind.name in ("text", "decimal"):
            return quoted
        if kind.name in ("integer", "year"):
            return lambda text: str(int(text))
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


def _object(members: Members, image: Texts) -> str:
    written = [
        label + (_NULL if text is None else write(text)) for (label, write), text in zip(members, image, strict=True)
    ]
    return f"{{{','.join(written)}}}"
