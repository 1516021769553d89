"""The columns of an Iceberg table: what a statement or new rows change, and rows with the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import ResolveError, ValidationError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction

from canal_ha.client.arrow_types import column_type, to_arrow
from canal_ha.decode.ddl.statements import SetColumn
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.conversions import converted
from canal_ha.pipeline.description import Evolve
from canal_ha.pipeline.kept_columns import asides, drops_of, new_names, possible, renames_of
from canal_ha.pipeline.statements import effects


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a table as Arrow fields without metadata."""
    found = schema_to_pyarrow(schema, include_field_ids=False)
    return pa.schema([pa.field(each.name, _small(each.type)) for each in found])


def fitted(rows: pa.Table, wanted: pa.Schema, name: str) -> pa.Table:
    """Return rows with these columns; a column that they do not have is NULL.

    rows: any columns, in any order and case.
    wanted: the columns of the table.
    name: of the table.
    Raises SinkRefused for a value that does not fit.
    """
    places = {own.lower(): at for at, own in enumerate(rows.schema.names)}
    columns = []
    for each in wanted:
        at = places.get(each.name.lower())
        if at is None:
            columns.append(pa.nulls(len(rows), each.type))
            continue
        try:
            columns.append(converted(rows.column(at), each.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SinkRefused(f"iceberg: values of {name}.{each.name} do not fit into {each.type}: {error}") from error
    return pa.Table.from_arrays(columns, schema=wanted)


@dataclass(slots=True)
class ColumnChanges:
    """Changes the columns of one table within a transaction.

    transaction: of the table.
    name: schema.table, for messages.
    evolve: the policy. `ignore` keeps the columns that the table has.
    renames: whether columns that the source renames are renamed here; else they stay, and new ones are added.
    drops: whether columns that the source drops are dropped here.
    defaults: by name: the value that existing rows get, other than NULL.
    """

    transaction: Transaction
    name: str
    evolve: Evolve
    renames: bool
    drops: bool
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def arrow(self) -> pa.Schema:
        """The columns now."""
        return arrow_schema(self.transaction.table_metadata.schema())

    def follow(self, statements: Iterable[str], schema: str, table: str) -> None:
        """Take over what statements do to the columns.

        statements: texts.
        schema: of names without one.
        table: the source's table.
        Raises SinkRefused.
        """
        for sql in statements:
            for effect in effects(sql, schema):
                if (effect.schema, effect.table) != (schema, table) or effect.alter is None:
                    continue
                for name in drops_of(effect.alter):
                    self._drop(name, sql)
                self._rename_all(renames_of(effect.alter), sql)
                for change in effect.alter.changes:
                    if isinstance(change, SetColumn) and change.old is not None:
                        made = change.definition.column
                        self._widen(pa.field(made.name, _declared(made.mysql_type)), sql)
                for added in added_columns(sql):
                    self._make_room(pa.field(added.name, added.column.arrow), sql)
                    known = self._find(added.name) is not None
                    self._add(pa.field(added.name, added.column.arrow), sql)
                    if not known and self._find(added.name) is not None and added.default is not None:
                        [value] = to_arrow([added.default], added.column, added.column.arrow, "UTC")
                        self.defaults[added.name] = value

    def take(self, rows: pa.Schema, *, replaced: bool = False) -> None:
        """Make room for rows.

        rows: their columns.
        replaced: the table keeps no other row, so its other columns go.
        Raises SinkRefused.
        """
        for each in rows:
            if self._find(each.name) is None:
                self._add(each, "")
            else:
                self._widen(each, "")
        if replaced and len(rows):
            names = {name.lower() for name in rows.names}
            for name in [own for own in self.arrow.names if own.lower() not in names]:
                self._drop(name, "")

    @property
    def _keeps(self) -> bool:
        """Whether the table is a history, which has columns that the source has dropped."""
        return self.renames and not self.drops

    def _find(self, name: str) -> pa.Field | None:
        return next((each for each in self.arrow if each.name.lower() == name.lower()), None)

    def _may(self, what: str, sql: str) -> bool:
        if self.evolve == "stop":
            raise SinkRefused(
                f"iceberg: {self.name}: the source {what}{f' ({sql[:200]})' if sql else ''}, and the pipeline's"
                " `evolve: stop` keeps columns as they are. Change the Iceberg table by hand, or set `evolve: evolve`"
            )
        return self.evolve == "evolve"

    def _add(self, new: pa.Field, sql: str) -> None:
        if self._find(new.name) is None and self._may(f"has a new column {new.name}", sql):
            self._unite(new)

    def _make_room(self, new: pa.Field, sql: str) -> None:
        """Put a column of a history aside that the source has dropped, if an added one cannot have its values."""
        found = self._find(new.name)
        if self._keeps and found is not None and not (_holds(found.type, new.type) or _holds(new.type, found.type)):
            self._rename(found.name, next(name for name in asides(found.name) if self._find(name) is None), sql)

    def _drop(self, name: str, sql: str) -> None:
        found = self._find(name)
        if self.drops and found is not None and self._may(f"has dropped the column {name}", sql):
            self.defaults.pop(found.name, None)
            with self.transaction.update_schema() as update:
                update.delete_column((found.name,))

    def _rename_all(self, renames: list[tuple[str, str]], sql: str) -> None:
        """Carry the renames of a statement out, also of columns that swap their names. Raises SinkRefused."""
        names = self.arrow.names
        if not self.renames:
            return
        wanted = [(old, new) for old, new in renames if self._find(old) is not None]
        blocked = () if self._keeps else set(wanted) - set(possible(names, wanted))
        for old, new in blocked:
            raise SinkRefused(
                f"iceberg: {self.name}: {sql[:200]} gives the column {old} the name {new}, which another column of the"
                " Iceberg table has, although the source has none of that name: rename that one by hand, and start the"
                " pipeline again"
            )
        for before, after in new_names(names, wanted):
            self._rename(before, after, sql)

    def _rename(self, old: str, new: str, sql: str) -> None:
        found = self._find(old)
        if found is None or not self._may(f"has renamed the column {old} to {new}", sql):
            return
        if found.name in self.defaults:
            self.defaults[new] = self.defaults.pop(found.name)
        with self.transaction.update_schema() as update:
            update.rename_column((found.name,), new)

    def _widen(self, new: pa.Field, sql: str) -> None:
        found = self._find(new.name)
        if found is None or found.type == new.type or _holds(found.type, new.type):
            return
        if not self._may(f"has changed the type of {new.name} from {found.type} to {new.type}", sql):
            return
        try:
            if not _holds(new.type, found.type):
                raise ValidationError("it is not wider")
            self._unite(pa.field(found.name, new.type))
        except (ValidationError, ResolveError) as error:
            way = (
                "drop the Iceberg table, and read the table again with a snapshot"
                if self.drops
                else "rename this column of the Iceberg table, and start the pipeline again: it adds a new one"
            )
            raise SinkRefused(
                f"iceberg: {self.name}: Iceberg cannot change {new.name} from {found.type} to {new.type} ({error}):"
                f" {way}"
            ) from error

    def _unite(self, column: pa.Field) -> None:
        with self.transaction.update_schema() as update:
            update.union_by_name(pa.schema([pa.field(column.name, column.type)]))


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Return whether a type of Iceberg has every value of another, and may follow it."""
    if pa.types.is_signed_integer(wide) and pa.types.is_signed_integer(narrow):
        return bool(_bits(wide) >= _bits(narrow))
    if pa.types.is_floating(wide) and pa.types.is_floating(narrow):
        return bool(wide.bit_width >= narrow.bit_width)
    if pa.types.is_decimal128(wide) and pa.types.is_decimal128(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return bool(wide == narrow)


def _bits(kind: pa.DataType) -> int:
    return max(int(kind.bit_width), 32)  # Iceberg has int and long


def _declared(mysql_type: str) -> pa.DataType:
    """Return the Arrow type of a declared column."""
    name = mysql_type.partition("(")[0].strip().lower()
    return column_type(mysql_type, 2004 if name.endswith(("blob", "binary")) else 0).arrow


def _small(kind: pa.DataType) -> pa.DataType:
    """Return a type without the large variants that pyiceberg writes and reads."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _small(each.type)) for each in kind])
    return kind


def filled(rows: pa.Table, defaults: dict[str, Any]) -> pa.Table:
    """Return rows of a table with the defaults of columns that were added to it."""
    for name, value in defaults.items():
        at = rows.schema.get_field_index(name)
        kind = rows.schema.field(at)
        rows = rows.set_column(at, kind, pc.fill_null(rows.column(at), value.cast(kind.type)))
    return rows
