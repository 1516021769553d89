"""The values of Debezium's messages. Pure.

Value types are Debezium's defaults, except that decimals are strings (`decimal.handling.mode=string`).

    date                    days since 1970            io.debezium.time.Date
    datetime(0..3), (4..6)  ms, µs since 1970          io.debezium.time.Timestamp, MicroTimestamp
    timestamp               ISO 8601 with Z            io.debezium.time.ZonedTimestamp
    time                    µs since midnight          io.debezium.time.MicroTime
    bit(1), bit(n), binary  boolean, base64, base64
    dates that are no day   null

Source: Debezium documentation, connector for MySQL, "Data type mappings".
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from canal_ha.client.arrow_types import ColumnType, plain
from canal_ha.version import VERSION

_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_EPOCH = datetime(1970, 1, 1)


def source_of(
    destination: str,
    *,
    time_ms: int,
    snapshot: bool,
    schema: str,
    table: str,
    server_id: int,
    gtid: str,
    journal: str,
    offset: int,
) -> dict[str, Any]:
    """Return the source of an entry's rows, without the number of the row.

    destination: its name.
    time_ms: of the event, ms since 1970.
    snapshot: the rows are of a snapshot.
    schema, table: of the rows.
    server_id, journal, offset: of the event.
    gtid: of its transaction; "" without.
    """
    return {
        "version": VERSION,
        "connector": "mysql",
        "name": destination,
        "ts_ms": time_ms,
        "snapshot": "incremental" if snapshot else "false",
        "db": schema,
        "table": table,
        "server_id": server_id,
        "gtid": gtid or None,
        "file": journal,
        "pos": offset,
    }


def bits_of(column: ColumnType) -> int:
    """Return n of a column of type bit(n)."""
    return int((re.findall(r"\d+", column.text) or ["1"])[0])


def value(text: str | None, column: ColumnType) -> Any:
    """Return one value as Debezium writes it. Raises SinkRefused for a partial JSON update."""
    if text is None:
        return None
    name = column.name
    if name == "bit":
        bits = int(text)
        size = bits_of(column)
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


def in_utc(text: str, time_zone: str) -> str:
    """Return a TIMESTAMP text in UTC; a date that no calendar has stays as it is."""
    if time_zone == "UTC":
        return text
    try:
        moment = datetime.fromisoformat(text[:19]).replace(tzinfo=ZoneInfo(time_zone)).astimezone(UTC)
    except ValueError:
        return text
    return moment.strftime("%Y-%m-%d %H:%M:%S") + text[19:]


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
