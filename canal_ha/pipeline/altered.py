"""Gives rows the columns that they have behind an ALTER TABLE. Names match in any case, as at the source. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from canal_ha.client.arrow_types import to_arrow
from canal_ha.decode.ddl.statements import AlterTable, SetColumn
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.kept_columns import drops_of, renames_of
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
    gone = {name.lower() for name in drops_of(statement)}
    rows = rows.select([at for at, name in enumerate(rows.schema.names) if name.lower() not in gone])
    new = {old.lower(): name for old, name in renames_of(statement)}
    fields = [each.with_name(new.get(each.name.lower(), each.name)) for each in rows.schema]
    rows = pa.Table.from_arrays(rows.columns, schema=pa.schema(fields, rows.schema.metadata))
    for change in statement.changes:
        if isinstance(change, SetColumn) and change.old is not None:
            made = change.definition.column
            at = find(rows.schema, made.name)
            rows = rows if at < 0 else retyped(rows, at, made.mysql_type)
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
