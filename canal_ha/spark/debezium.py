"""Writes Debezium's envelope as JSON, with the values of canal_ha.pipeline.messages.debezium_values. Pure.

A statement has no key; its value is that of Debezium's schema change topic: source, databaseName, ddl.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from canal_ha.pipeline.messages.debezium_values import source_of, value
from canal_ha.spark.entries import DDL, DELETE, INSERT, READ, EntryRows, RowLayout, Texts
from canal_ha.spark.mysql_types import column_type

_OPS = {INSERT: "c", DELETE: "d", READ: "r"}


class DebeziumRow(NamedTuple):
    """One message: key and value as JSON, and the index of its row in the entry."""

    key: str | None
    value: str
    row: int


def messages(change: EntryRows, destination: str) -> list[DebeziumRow]:
    """Return the messages of an entry's rows. An update of the key is a delete and a create, as Debezium sends it.

    change: the entry, with TIMESTAMP texts in UTC.
    destination: name of the destination.
    """
    header = change.header
    source = source_of(
        destination,
        time_ms=header.executeTime,
        snapshot=change.op == READ,
        schema=header.schemaName,
        table=header.tableName,
        server_id=header.serverId,
        gtid=next((prop.value for prop in header.props if prop.key == "curtGtid"), ""),
        journal=header.logfileName,
        offset=header.logfileOffset,
    )
    ts_ms = change.header.executeTime
    if change.op == DDL:
        body = {"source": source, "databaseName": change.header.schemaName, "ddl": change.ddl, "ts_ms": ts_ms}
        return [DebeziumRow(None, _json(body), 0)]
    before = _images(change.before_layout, change.before)
    after = _images(change.after_layout, change.after)
    layouts = (change.before_layout, change.after_layout)
    names = list(dict.fromkeys(layout.names[at] for layout in layouts for at in layout.keys))
    made = []

    def add(row: int, op: str, image: dict[str, Any], old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        key = _json({name: image.get(name) for name in names}) if names else None
        body = {"before": old, "after": new, "source": {**source, "row": row}, "op": op, "ts_ms": ts_ms}
        made.append(DebeziumRow(key, _json(body), row))

    for row in range(change.count):
        old, new = before[row] if before else None, after[row] if after else None
        was = old or {}
        image = {**was, **(new or {})}  # an image may lack columns, also those of the key
        if old is not None and new is not None and any(image.get(name) != was.get(name) for name in names):
            add(row, "d", was, old, None)
            add(row, "c", image, None, new)
        else:
            add(row, _OPS.get(change.op, "u"), image, old, new)
    return made


def _images(layout: RowLayout, rows: Sequence[Texts]) -> list[dict[str, Any]]:
    columns = [(name, column_type(kind, code)) for name, kind, code in layout.columns]
    return [{name: value(text, column) for (name, column), text in zip(columns, row, strict=True)} for row in rows]


def _json(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
