"""Makes the plan that the kernel executes for a table's rows, from a table version and the filters."""

from __future__ import annotations

from dataclasses import replace

from canal_ha.decode import types
from canal_ha.decode.exact import ExactType, exact_type, exact_types
from canal_ha.decode.filters import FieldFilter
from canal_ha.decode.kernel import cells, kinds
from canal_ha.decode.kernel.primitives import varint
from canal_ha.decode.privacy import PROTECTED_TYPE, Privacy, Protection
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import TableUnknown
from canal_ha.model.table import Column, TableSchema

_BEFORE = b"\x0a"  # RowData.beforeColumns
_AFTER = b"\x12"  # RowData.afterColumns


def signed_varint(value: int) -> bytes:
    """Encode a protobuf int32 or int64: negative numbers take ten bytes."""
    return varint(value if value >= 0 else value + (1 << 64))


def text_field(tag: int, text: str | bytes) -> bytes:
    """Encode a length-delimited field. tag: its one byte."""
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return bytes([tag]) + varint(len(raw)) + raw


def table_names(schema: str | None, table: str | None) -> bytes:
    """Encode Header.schemaName and tableName; None leaves the field out."""
    return (b"" if schema is None else text_field(0x42, schema)) + (b"" if table is None else text_field(0x4A, table))


class Columns:
    """The cells of one table version, which plans of the same table under different ids share."""

    def __init__(
        self,
        table_map: TableMap,
        schema: TableSchema,
        fields: FieldFilter,
        privacy: Privacy,
        charset: str,
        *,
        exact: bool = False,
    ) -> None:
        """Build the cells of each column.

        table_map: the event.
        schema: the table's columns.
        fields: which columns to drop.
        privacy: which columns to protect.
        charset: canal.instance.connectionCharset.
        exact: whether values are in the exact form.
        Raises TableUnknown if a column of the event has no definition.
        """
        count = len(table_map.types)
        if len(schema.columns) < count:
            raise TableUnknown(
                f"column size is not match for table:{table_map.schema}.{table_map.name},"
                f"{count} vs {len(schema.columns)}"
            )
        self.before: list[cells.Cell] = []
        self.after: list[cells.Cell] = []
        self.json_columns = 0
        readings = exact_types(table_map, schema.columns) if exact else None
        touched = fields.touches(table_map.schema, table_map.name)
        protected = privacy.columns_of(table_map.schema, table_map.name)
        for index in range(count):
            column = schema.columns[index]
            code = table_map.types[index]
            unsigned = column.unsigned
            if not column.mysql_type and table_map.unsigned is not None:
                unsigned = table_map.unsigned[index]
            protection = protected.get(column.name.lower(), Protection.NONE)
            dropped = touched and not fields.keeps(table_map.schema, table_map.name, column.name)
            if readings is not None:
                reading = readings[index]
            elif protection is Protection.HASH:  # equal values have equal hashes, whatever form a reader asks for
                reading = exact_type(table_map, index, column, table_map.collations()[index])
            else:
                read = types.reading(code, table_map.metas[index], column.mysql_type, is_utf8(charset))
                reading = ExactType(read, charset, column.mysql_type)
            column = replace(column, mysql_type=reading.mysql_type)
            for side, tag, updated in ((self.before, _BEFORE, False), (self.after, _AFTER, True)):
                cell = _cell(index, column, reading.read, unsigned, tag, updated)
                cell.codec = reading.codec
                cell.json_index = self.json_columns
                if protection in (Protection.HASH, Protection.MASK):
                    cell = _protected(cell, column, tag, updated)
                    cell.protect = privacy.protect(protection)
                cell.skip = dropped or column.hidden or protection is Protection.DROP
                side.append(cell)
            if code == types.JSON:
                self.json_columns += 1


def is_utf8(charset: str) -> bool:
    """Return whether a Python codec name means UTF-8."""
    return charset.lower().replace("-", "").replace("_", "") in ("utf8", "utf8mb4")


def plan_of(columns: Columns, table_map: TableMap, body: bytes) -> cells.TablePlan:
    """Return the plan of one table id. body: the TABLE_MAP event's."""
    change = b"\x08" + varint(table_map.table_id)
    plan = cells.TablePlan(body, table_names(table_map.schema, table_map.name), change, columns.before, columns.after)
    plan.json_columns = columns.json_columns
    return plan


def _protected(clear: cells.Cell, column: Column, tag: bytes, updated: bool) -> cells.Cell:
    """Return the cell of a hashed or masked column. clear: how to read its value."""
    read = types.CellType(kinds.PREFIXED, 0, types.SQL_VARCHAR, types.SQL_VARCHAR, text=kinds.PROTECTED)
    cell = _cell(clear.index, replace(column, mysql_type=PROTECTED_TYPE), read, False, tag, updated)
    cell.clear = clear
    return cell


def _cell(index: int, column: Column, read: types.CellType, unsigned: bool, tag: bytes, updated: bool) -> cells.Cell:
    """Encode one Column message up to its value: index 1, sqlType 2, name 3, isKey 4, updated 5, isNull 6."""
    name = text_field(0x1A, column.name) + (b"\x20\x01" if column.key else b"\x20\x00")
    suffix = text_field(0x52, column.mysql_type) if column.mysql_type else b""

    def fixed(sql_type: int, updated: bool, null: bool) -> bytes:
        flags = (b"\x28\x01" if updated else b"\x28\x00") + (b"\x30\x01" if null else b"\x30\x00")
        return b"\x08" + varint(index) + b"\x10" + signed_varint(sql_type) + name + flags

    wide = fixed(read.wide_sql_type, updated, False) if unsigned and read.kind == kinds.INTEGER else b""
    cell = cells.Cell(index, read.kind, tag, fixed(read.sql_type, updated, False), wide, suffix)
    null = fixed(read.null_sql_type, updated, True) + suffix
    null_same = fixed(read.null_sql_type, False, True) + suffix
    cell.null = tag + varint(len(null)) + null
    cell.null_same = tag + varint(len(null_same)) + null_same
    cell.name = column.name.encode("utf-8", "replace")
    cell.size = read.size
    cell.text = read.text
    cell.precision = read.precision
    cell.decimals = read.decimals
    cell.unsigned = bool(wide)
    return cell
