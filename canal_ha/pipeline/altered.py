"""Gives rows the columns that they have behind an ALTER TABLE. Names match in any case, as at the source. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from canal_ha.client.arrow_types import to_arrow
from canal_ha.decode.ddl.statements import AlterTable, DropColumn, RenameColumn, SetColumn
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.reading import KEY, TYPE

Retyping = Callable[[pa.Table, int, str], pa.Table]
"""Returns rows whose column at a place has the type of a mysqlType."""


def altered(rows: pa.Table, sql: str, statement: AlterTable, retyped: Retyping) -> pa.Table:
    """Return rows with the columns that they have behind a statement.

    rows: with or without metadata of their fields; an added column has it.
    sql, statement: its text, and what it means.
    retyped: called for each column that it declares again.
    Raises the errors of `retyped`.
    """
    for change in statement.changes:
        match change:
            case DropColumn(name):
                at = find(rows.schema, name)
                rows = rows if at < 0 else rows.remove_column(at)
            case RenameColumn(old, new):
                rows = _renamed(rows, old, new)
            case SetColumn(definition, old) if old is not None:
                made = definition.column
                rows = _renamed(rows, old, made.name)
                at = find(rows.schema, made.name)
                rows = rows if at < 0 else retyped(rows, at, made.mysql_type)
            case _:
                pass
    for added in added_columns(sql):
        if find(rows.schema, added.name) < 0:
            [value] = to_arrow([added.default], added.column, added.column.arrow, "UTC")
            metadata = {KEY: b"0", TYPE: added.column.text.encode()}
            field = pa.field(added.name, added.column.arrow, metadata=metadata)
            rows = rows.append_column(field, pa.repeat(value, len(rows)))
    return rows


def find(schema: pa.Schema, name: str) -> int:
    """Return the place of a column, in any case of its name; -1 if it is missing."""
    return next((at for at, own in enumerate(schema.names) if own.lower() == name.lower()), -1)


def _renamed(rows: pa.Table, old: str, new: str) -> pa.Table:
    at = find(rows.schema, old)
    if at < 0 or rows.schema.names[at] == new:
        return rows
    return rows.set_column(at, rows.schema.field(at).with_name(new), rows.column(at))
