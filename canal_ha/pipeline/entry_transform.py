"""Applies the transforms of a pipeline to an entry, for targets that write canal's own messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from canal_ha.client.arrow_types import ColumnType
from canal_ha.client.rows import Value, row_change
from canal_ha.decode.kernel.layouts import ColumnLayout
from canal_ha.decode.privacy import PROTECTED_TYPE, Protection
from canal_ha.pipeline.column_transform import VARCHAR, ColumnTransform
from canal_ha.pipeline.transforms import TableTransform
from canal_ha.wire.proto.entry_protocol_pb2 import Column, Entry

_BLOB = 2004
_SQL_TYPES = {  # java.sql.Types of what a column can be cast to
    "int8": -6,
    "int16": 5,
    "int32": 4,
    "int64": -5,
    "decimal": 3,
    "float": 7,
    "double": 8,
    "date": 91,
    "time": 92,
    "datetime": 93,
    "timestamp": 93,
    "year": VARCHAR,
    "text": VARCHAR,
    "json": VARCHAR,
}


def transformed(entry: Entry, table: TableTransform, time_zone: str) -> Entry:
    """Return an entry with rows or a statement as the target gets it.

    entry: of the table; it is changed.
    table: what happens to it.
    time_zone: of the server process.
    Raises SinkRefused.
    """
    if not table.changes:
        return entry
    change = row_change(entry)
    change.sql = table.statement(change.sql)
    if change.ddlSchemaName:
        change.ddlSchemaName = table.schema
    for row in change.rowDatas:
        images = (row.beforeColumns, row.afterColumns)
        dropped: set[int] = set()
        for image in images:
            kept = _columns(image, table, time_zone, dropped)
            del image[:]
            image.extend(kept)
        for column in (column for image in images for column in image):
            column.index -= sum(place < column.index for place in dropped)
    entry.header.schemaName, entry.header.tableName = table.schema, table.table
    entry.storeValue = change.SerializeToString()
    return entry


def _columns(image: Iterable[Column], table: TableTransform, time_zone: str, dropped: set[int]) -> Sequence[Column]:
    """Return the columns that the target gets; add the places of the others to `dropped`.

    The columns keep their places: those of one image of a row are found in the other one by them.
    """
    given = [(column, _layout(column)) for column in image]
    plans = {layout.name: plan for layout, plan in table.names([layout for _, layout in given])}
    kept: list[Column] = []
    for column, layout in given:
        plan = plans.get(layout.name)
        if plan is None:
            dropped.add(column.index)
        else:
            _change(column, layout, plan, time_zone)
            kept.append(column)
    return kept


def _change(column: Column, layout: ColumnLayout, plan: ColumnTransform, time_zone: str) -> None:
    column.name = plan.name
    if not plan.changes_values:
        return
    if not column.isNull and column.HasField("value"):
        value = plan.value_of(layout, time_zone)((column.value, column.sqlType, column.mysqlType))
        if value is None:  # a date that is no day
            column.isNull = True
            column.ClearField("value")
        else:
            column.value = _text(value)
            if plan.cast is not None and plan.cast.name == "timestamp" and time_zone != "UTC":
                column.value = _local(column.value, time_zone)
    hidden = plan.protection is not Protection.NONE
    column.mysqlType = PROTECTED_TYPE if hidden or plan.cast is None else plan.cast.text
    column.sqlType = VARCHAR if hidden or plan.cast is None else _sql_type(plan.cast)
    if plan.protection is Protection.MASK:
        column.updated = False


def _local(text: str, time_zone: str) -> str:
    """Return a text in UTC in the zone of the server process, as those of its timestamps are."""
    moment = datetime.fromisoformat(text[:19]).replace(tzinfo=UTC).astimezone(ZoneInfo(time_zone))
    return moment.strftime("%Y-%m-%d %H:%M:%S") + text[19:]


def _layout(column: Column) -> ColumnLayout:
    return ColumnLayout(column.name.encode(), column.mysqlType.encode(), column.index, column.isKey, column.sqlType)


def _sql_type(cast: ColumnType) -> int:
    kind: Any = cast.arrow
    return _SQL_TYPES.get(str(kind) if cast.name == "integer" else cast.name, _BLOB)


def _text(value: Value) -> str:
    """Return canal's text of a value."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return format(value, "f") if isinstance(value, Decimal) else str(value)
