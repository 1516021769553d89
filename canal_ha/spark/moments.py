"""Puts the TIMESTAMP texts of canal's form into UTC, so that rows of both forms mean the same. Pure.

In canal's form such a text is in the time zone of the node's process; in the exact form it is in UTC and says so
(docs/protocol.md#exact). A spool can hold both: after an upgrade, or while nodes of two versions take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from canal_ha.decode.kernel.layouts import UTC_TYPE
from canal_ha.spark.entries import EntryRows, RowLayout, Texts
from canal_ha.spark.mysql_types import column_type


def in_utc(change: EntryRows, time_zone: str) -> EntryRows:
    """Return an entry whose TIMESTAMP columns are in UTC. time_zone: of the texts that are not."""
    before = _local_columns(change.before_layout)
    after = _local_columns(change.after_layout)
    if not before and not after:
        return change
    zone = ZoneInfo(time_zone)
    return replace(
        change,
        before_layout=_declared(change.before_layout, before),
        after_layout=_declared(change.after_layout, after),
        before=[_converted(row, before, zone) for row in change.before],
        after=[_converted(row, after, zone) for row in change.after],
    )


def _local_columns(layout: RowLayout) -> list[int]:
    types = [column_type(mysql_type, sql_type) for _, mysql_type, sql_type in layout.columns]
    return [at for at, column in enumerate(types) if column.name == "timestamp" and not column.utc]


def _declared(layout: RowLayout, columns: Sequence[int]) -> RowLayout:
    declared = list(layout.columns)
    for at in columns:
        name, mysql_type, _ = declared[at]
        declared[at] = (name, mysql_type, UTC_TYPE)
    return replace(layout, columns=tuple(declared))


def _converted(row: Texts, columns: Sequence[int], zone: ZoneInfo) -> Texts:
    converted = list(row)
    for at in columns:
        text = row[at]
        if text is not None:
            with suppress(ValueError):  # a zero date has no time zone
                converted[at] = _utc(text, zone)
    return converted


def _utc(text: str, zone: ZoneInfo) -> str:
    whole, point, fraction = text.partition(".")
    moment = datetime.fromisoformat(whole).replace(tzinfo=zone).astimezone(UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + point + fraction
