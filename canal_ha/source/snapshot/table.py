"""What a SELECT asks of a table, so that its rows can be written as the binlog has them."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.decode import types
from canal_ha.decode.binary_json import document
from canal_ha.decode.charsets import BINARY, beyond_doubt, collation_of, longest_character
from canal_ha.decode.column_text import ADDRESSES
from canal_ha.decode.ddl.create_table import quoted
from canal_ha.decode.kernel import images
from canal_ha.decode.table_map import TableMap, with_collation
from canal_ha.decode.type_codes import written
from canal_ha.errors import SnapshotRefused, TableUnknown
from canal_ha.model.table import Column, TableSchema
from canal_ha.source.connection.flavor import Flavor

# Texts without conversion, TIMESTAMP in UTC, CHAR without padding. MySQL compares a key with a date of no calendar only
# in a mode that may store such dates. If a server sorts by fewer bytes than keys have, their order is not complete.
SESSION = (
    "SET SESSION character_set_results = NULL, time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES',"
    " max_sort_length = 8388608"
)
TABLE_ID = 1  # in synthetic events


class SnapshotTable:
    """One version of a table, and how its rows are asked for.

    schema: the table's columns.
    key: names of the columns that identify a row, in the order of the key.
    expressions: what a SELECT asks for, for each column of row events. Their texts in a session with SESSION are what
        `images` takes.
    table_map: the event that announces the table.
    images: turns rows of that SELECT into events.
    """

    __slots__ = ("expressions", "images", "key", "schema", "table_map")

    def __init__(self, schema: TableSchema, server: Flavor, key: Sequence[str] | None = ()) -> None:
        """Prepare for a table.

        schema: its columns, with type texts as SHOW CREATE TABLE prints them.
        server: the server, as it is now.
        key: the columns of a key over NOT NULL columns, in its order; by default the primary key's in table order.
            None for a table without one.
        Raises SnapshotRefused if the table has no key, or a column of a type that is unknown.
        """
        self.schema = schema
        self.key = () if key is None else _key(schema, key)
        columns = [_EventColumn(schema, column, server.mariadb) for column in schema.columns]
        self.expressions = tuple(column.expression for column in columns)
        counted = with_collation(server.mariadb)
        self.table_map = TableMap(
            table_id=TABLE_ID,
            schema=schema.schema,
            name=schema.name,
            types=bytes(column.code for column in columns),
            metas=tuple(column.meta for column in columns),
            nullable=tuple(column.nullable or column.hidden for column in schema.columns),
            unsigned=tuple(column.unsigned for column in columns),
            each_collation=tuple(column.collation for column in columns if column.real_type in counted),
            primary_key=_told_key(schema) if server.row_metadata == "FULL" else None,
            mariadb=server.mariadb,
        )
        self.images = images.RowImages(
            kinds=bytes(column.kind for column in columns),
            sizes=bytes(column.read.size for column in columns),
            precisions=bytes(column.read.precision for column in columns),
            decimals=bytes(column.read.decimals for column in columns),
            stripped=bytes(column.stripped for column in columns),
            documents=document,
        )

    @property
    def select_list(self) -> str:
        """The expressions with commas between them."""
        return ", ".join(self.expressions)


class _EventColumn:
    """One column of an event. The attributes are those of TableMap, cells.Cell and images.RowImages."""

    __slots__ = ("code", "collation", "expression", "kind", "meta", "read", "real_type", "stripped", "unsigned")

    def __init__(self, schema: TableSchema, column: Column, mariadb: bool) -> None:
        name = types.type_name(column.mysql_type)
        charset = beyond_doubt(column.charset)
        is_bytes = name in types.BINARIES or name in ADDRESSES or charset == BINARY
        character_bytes = 1 if is_bytes else longest_character(charset)
        written_as = written(column.mysql_type, character_bytes, mariadb=mariadb)
        try:
            if written_as is None:
                raise TableUnknown("its type is unknown")
            self.code, self.meta = written_as
            self.read = types.reading(self.code, self.meta, column.mysql_type, utf8=True)
        except TableUnknown as error:
            raise SnapshotRefused(
                f"{schema.schema}.{schema.name}: column {column.name} of type {column.mysql_type or 'unknown'} cannot"
                f" be read for a snapshot: {error}. Leave the table out"
            ) from error
        self.real_type = types.split_string(self.meta)[0] if self.code == types.STRING else self.code
        self.unsigned = column.unsigned or self.code == types.YEAR
        is_text = not is_bytes and self.real_type not in (types.GEOMETRY, types.VECTOR) and name != "vector"
        self.collation = collation_of(charset if is_text else BINARY)
        self.kind = images.DOCUMENT if self.code == types.JSON else self.read.kind
        self.stripped = is_bytes and self.real_type == types.STRING
        self.expression = _expression(column, name, self.real_type)


def _expression(column: Column, name: str, real_type: int) -> str:
    selected = quoted(column.name)
    if column.hidden:  # nobody can ask for it, and no client sees it
        return "NULL"
    if real_type in (types.FLOAT, types.DOUBLE):
        return f"{selected} * 1e0"  # all digits, also of a FLOAT
    if real_type in (types.ENUM, types.SET, types.BIT):
        return f"CAST({selected} AS UNSIGNED)"
    if name in ADDRESSES:
        return f"CAST({selected} AS BINARY({4 if name == 'inet4' else 16}))"
    return selected


def _told_key(schema: TableSchema) -> tuple[int, ...] | None:
    """Return the ordinals of the primary key as full metadata tells it, with the end of a version in MariaDB."""
    key = [index for index, column in enumerate(schema.columns) if column.key]
    if key and schema.columns[-1].versioning and len(schema.columns) - 1 not in key:
        key.append(len(schema.columns) - 1)
    return tuple(key) or None


def _key(schema: TableSchema, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the key's columns as the table spells them."""
    known = {column.name.lower(): column for column in schema.columns}
    table = f"{schema.schema}.{schema.name}"
    chosen = [known.get(name.lower()) for name in names] or [column for column in schema.columns if column.key]
    if not chosen:
        raise SnapshotRefused(f"{table} has no primary key, and no other key was named: leave the table out")
    for name, column in zip(names, chosen, strict=False):
        if column is None:
            raise SnapshotRefused(f"{table} has no column {name}, which its key names")
    return tuple(column.name for column in chosen if column is not None)
