"""Debezium's messages written value by value by Python's and fastavro's writers, to compare the kernel's with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any, NamedTuple

from fastavro import parse_schema, schemaless_writer

from canal_ha.client.arrow_types import ColumnType, plain
from canal_ha.model.entry import EventType
from canal_ha.pipeline.messages.debezium_json import debezium_source
from canal_ha.pipeline.messages.debezium_values import bits_of, in_utc, value
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.messages.row_changes import RowOperations
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry, Texts

encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Change(NamedTuple):
    """A change of one row. op, row: its letter and number. before, after: texts; None for a side that it has not."""

    op: str
    row: int
    before: Texts | None
    after: Texts | None


def changes_of(entry: RowEntry, found: RowOperations) -> Iterator[Change]:
    """Yield the changes of an entry."""
    then_at = found.columns.places_of(entry.before)
    now_at = found.columns.places_of(entry.after)
    key_at = [place for place, name in enumerate(found.columns.names) if name in found.keys]
    for number, (before, after) in enumerate(entry.rows):
        if entry.event == EventType.INSERT:
            yield Change("r" if entry.snapshot else "c", number, None, after)
        elif entry.event == EventType.DELETE:
            yield Change("d", number, before, None)
        else:
            new = [
                after[now] if now is not None else None if then is None else before[then]
                for now, then in zip(now_at, then_at, strict=True)
            ]
            if any((then := then_at[place]) is not None and before[then] != new[place] for place in key_at):
                yield Change("d", number, before, None)
                yield Change("c", number, None, new)
            else:
                yield Change("u", number, before, new)


def debezium_json(
    entry: RowEntry,
    keys: Mapping[str, Sequence[str]],
    zone: str,
    placement: Placement,
    origin: MessageOrigin,
    *,
    tombstones: bool,
) -> Iterator[QueueMessage]:
    """Yield the messages of an entry with rows; see DebeziumJson."""
    found = RowOperations(entry, keys)
    place = placement.placing(entry.schema, entry.table, found.keys)
    for change in changes_of(entry, found):
        columns = found.before if change.after is None else found.columns
        image = (change.before if change.after is None else change.after) or []
        body = {
            "before": None if change.before is None else _object(found.before, change.before, zone),
            "after": None if change.after is None else _object(found.columns, change.after, zone),
            "source": {**debezium_source(entry, origin), "row": change.row},
            "op": change.op,
            "ts_ms": origin.now_ms,
        }
        made = _object(columns, image, zone)
        key = {name: made[name] for name in found.keys if name in made}
        partition = place(columns.texts(image) if place.needs_values else {})
        written = encode(key).encode() if key else None
        yield QueueMessage(partition, written, encode(body).encode())
        if change.op == "d" and written is not None and tombstones:
            yield QueueMessage(partition, written, None)


def avro(
    entry: RowEntry,
    keys: Mapping[str, Sequence[str]],
    zone: str,
    schemas: Mapping[str, str],
    placement: Placement,
    origin: MessageOrigin,
    *,
    tombstones: bool,
) -> Iterator[QueueMessage]:
    """Yield the messages of an entry with rows; see Avro. schemas: `key` and `value`, with the ids 1 and 2."""
    found = RowOperations(entry, keys)
    place = placement.placing(entry.schema, entry.table, found.keys)
    value_schema: Any = json.loads(schemas["value"])
    key_schema: Any = json.loads(schemas.get("key", "null"))
    fields = value_schema["fields"][0]["type"][1]["fields"]
    for change in changes_of(entry, found):
        columns = found.before if change.after is None else found.columns
        image = (change.before if change.after is None else change.after) or []
        made = _record(fields, columns, image, zone)
        body = {
            "before": None if change.before is None else _record(fields, found.before, change.before, zone),
            "after": None if change.after is None else made,
            "source": {**debezium_source(entry, origin), "row": change.row},
            "op": change.op,
            "ts_ms": origin.now_ms,
        }
        partition = place(columns.texts(image) if place.needs_values else {})
        written = None
        if key_schema is not None:
            written = _datum(1, key_schema, {field["name"]: made[field["name"]] for field in key_schema["fields"]})
        yield QueueMessage(partition, written, _datum(2, value_schema, body))
        if change.op == "d" and written is not None and tombstones:
            yield QueueMessage(partition, written, None)


def _datum(number: int, schema: Any, body: Any) -> bytes:
    out = BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(5)
    schemaless_writer(out, parse_schema(schema), body)
    return out.getvalue()


def _record(fields: Sequence[Any], columns: ImageColumns, image: Texts, zone: str) -> dict[str, Any]:
    return {
        field["name"]: None if text is None else _datum_value(text, kind, field["type"][1], zone)
        for field, text, kind in zip(fields, image, columns.kinds, strict=True)
    }


def _datum_value(text: str, kind: ColumnType, kind_in_avro: Any, zone: str) -> Any:
    if isinstance(kind_in_avro, dict) and "logicalType" in kind_in_avro:
        return Decimal(text)
    if kind_in_avro == "bytes":
        size = (bits_of(kind) + 7) // 8
        return int(text).to_bytes(size, "little") if kind.name == "bit" else plain(text, kind)
    return _value(text, kind, zone)


def _object(columns: ImageColumns, image: Texts, zone: str) -> dict[str, Any]:
    return {
        name: _value(text, kind, zone) for name, text, kind in zip(columns.names, image, columns.kinds, strict=True)
    }


def _value(text: str | None, kind: ColumnType, zone: str) -> Any:
    if text is not None and kind.name == "timestamp" and not kind.utc:
        text = in_utc(text, zone)
    return value(text, kind)
