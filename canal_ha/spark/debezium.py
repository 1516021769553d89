"""Writes Debezium's envelope as JSON. Pure.

Value types are Debezium's defaults, except that decimals are strings (`decimal.handling.mode=string`).

    date                    days since 1970            io.debezium.time.Date
    datetime(0..3), (4..6)  ms, µs since 1970          io.debezium.time.Timestamp, MicroTimestamp
    timestamp               ISO 8601 with Z            io.debezium.time.ZonedTimestamp
    time                    µs since midnight          io.debezium.time.MicroTime
    bit(1), bit(n), binary  boolean, base64, base64
    dates that are no day   null

A statement has no key; its value is that of Debezium's schema change topic: source, databaseName, ddl.
Source: Debezium documentation, connector for MySQL, "Data type mappings".
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from canal_ha.spark.entries import DDL, DELETE, INSERT, READ, EntryRows, RowLayout, Texts
from canal_ha.spark.mysql_types import ColumnType, column_type, plain
from canal_ha.version import VERSION

_OPS = {INSERT: "c", DELETE: "d", READ: "r"}
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_EPOCH = datetime(1970, 1, 1)


def texts(change: EntryRows, destination: str) -> tuple[list[str | None], list[str]]:
    """Return the keys and values of an entry's rows.

    change: the entry, with TIMESTAMP texts in UTC.
    destination: name of the destination.
    """
    source = _source(change, destination)
    ts_ms = change.header.executeTime
    if change.op == DDL:
        body = {"source": source, "databaseName": change.header.schemaName, "ddl": change.ddl, "ts_ms": ts_ms}
        return [None], [_json(body)]
    before = _images(change.before_layout, change.before)
    after = _images(change.after_layout, change.after)
    names = [change.layout.names[at] for at in change.layout.keys]
    keys: list[str | None] = []
    values = []
    for row in range(change.count):
        old, new = before[row] if before else None, after[row] if after else None
        image = new or old or {}
        keys.append(_json({name: image.get(name) for name in names}) if names else None)
        op = _OPS.get(change.op, "u")
        values.append(_json({"before": old, "after": new, "source": {**source, "row": row}, "op": op, "ts_ms": ts_ms}))
    return keys, values


def _source(change: EntryRows, destination: str) -> dict[str, Any]:
    header = change.header
    return {
        "version": VERSION,
        "connector": "mysql",
        "name": destination,
        "ts_ms": header.executeTime,
        "snapshot": "incremental" if change.op == READ else "false",
        "db": header.schemaName,
        "table": header.tableName,
        "server_id": header.serverId,
        "gtid": next((prop.value for prop in header.props if prop.key == "curtGtid"), None),
        "file": header.logfileName,
        "pos": header.logfileOffset,
    }


def _images(layout: RowLayout, rows: Sequence[Texts]) -> list[dict[str, Any]]:
    columns = [(name, column_type(kind, code)) for name, kind, code in layout.columns]
    return [{name: value(text, column) for (name, column), text in zip(columns, row, strict=True)} for row in rows]


def value(text: str | None, column: ColumnType) -> Any:
    """Return one value as Debezium writes it. Raises SinkRefused for a partial JSON update."""
    if text is None:
        return None
    name = column.name
    if name == "bit":
        bits = int(text)
        size = int((re.findall(r"\d+", column.text) or ["1"])[0])
        return bool(bits) if size == 1 else b64encode(bits.to_bytes((size + 7) // 8, "little")).decode()
    if name in ("integer", "year"):
        return int(text)
    if name in ("float", "double"):
        return float(text)
    if name in _TEMPORAL:
        try:
            return _TEMPORAL[name](text)
        except ValueError:  # a date that no calendar has
            return None
    found = plain(text, column)
    return b64encode(found).decode() if isinstance(found, bytes) else found


def _date(text: str) -> int:
    return (date.fromisoformat(text) - _EPOCH.date()).days


def _datetime(text: str) -> int:
    digits = len(text.partition(".")[2])
    delta = datetime.fromisoformat(text.ljust(26, "0") if digits else text) - _EPOCH
    micros = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return micros if digits > 3 else micros // 1000


def _timestamp(text: str) -> str:
    moment = datetime.fromisoformat(text.ljust(26, "0") if "." in text else text).replace(tzinfo=UTC)
    return moment.isoformat().replace("+00:00", "Z")


def _time(text: str) -> int:
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(text)
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "0").ljust(6, "0"))
    return -micros if sign else micros


_TEMPORAL = {"date": _date, "datetime": _datetime, "time": _time, "timestamp": _timestamp}


def _json(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)
