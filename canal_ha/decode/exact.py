"""The exact form of columns (docs/protocol.md#exact): cells give what SELECT gives in utf8mb4, for readers that ask.

canal reads every text in one charset, and loses or changes values that are not in it. The exact form takes character
sets from the event, or else from the declarations of column and table, or else from the schema as it is now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from canal_ha.decode import column_text, types
from canal_ha.decode.charsets import BINARY, charset_of, in_doubt
from canal_ha.decode.kernel import kinds
from canal_ha.decode.kernel.layouts import UTC_TYPE
from canal_ha.decode.table_map import TableMap
from canal_ha.decode.types import CellType
from canal_ha.decode.values import column_codec
from canal_ha.errors import TableUnknown
from canal_ha.model.table import Column

_UTF8 = frozenset({"", "utf8", "utf8mb3", "utf8mb4", "ascii"})
_BLOB_NAMES = {1: "tinyblob", 2: "blob", 3: "mediumblob", 4: "longblob"}
_STRINGS = frozenset({types.STRING, types.VARCHAR, types.VAR_STRING, types.VARCHAR_COMPRESSED})
_BLOBS = frozenset({types.TINY_BLOB, types.BLOB, types.MEDIUM_BLOB, types.LONG_BLOB, types.BLOB_COMPRESSED})
_TEXT_CODES = _STRINGS | _BLOBS
_COMPRESSED = frozenset({types.VARCHAR_COMPRESSED, types.BLOB_COMPRESSED})


@dataclass(frozen=True, slots=True)
class ExactType:
    """How to read one column.

    read: see CellType.
    codec: see values.recoded; "" where the text needs none.
    mysql_type: the type that the values have, which is the declared one in canal's spelling unless the declaration
        hides it: a text of CHARACTER SET binary is a binary type.
    """

    read: CellType
    codec: str
    mysql_type: str


def lacks_charsets(columns: tuple[Column, ...], table_map: TableMap) -> bool:
    """Return whether neither the event nor the declarations tell the charset of some column."""
    if table_map.default_collation or table_map.each_collation:
        return False
    return any(
        code in _TEXT_CODES and _is_open(column) for column, code in zip(columns, table_map.real_types, strict=False)
    )


def with_charset(columns: tuple[Column, ...], charset: str) -> tuple[Column, ...]:
    """Return the columns with this charset where their declarations tell none."""
    return tuple(column if column.charset else replace(column, charset=charset) for column in columns)


def _is_open(column: Column) -> bool:
    """Return whether the declaration leaves the charset open."""
    name = types.type_name(column.mysql_type)
    return not column.charset and name not in types.BINARIES and name not in column_text.ADDRESSES


def exact_types(table_map: TableMap, columns: tuple[Column, ...]) -> tuple[ExactType, ...]:
    """Return how to read the columns of an event.

    table_map: the event.
    columns: the table's columns, one for each of the event at least.
    Raises TableUnknown for an unknown type, and for a charset in doubt.
    """
    each = zip(columns, table_map.collations(), strict=False)
    return tuple(exact_type(table_map, index, column, collation) for index, (column, collation) in enumerate(each))


def exact_type(table_map: TableMap, index: int, column: Column, collation: int) -> ExactType:
    """Return how to read one column of an event.

    table_map: the event.
    index: of the column in it.
    column: its definition.
    collation: of the event; see TableMap.collations.
    Raises TableUnknown; see exact_types.
    """
    code, meta = table_map.real_types[index], table_map.metas[index]
    read = types.reading(table_map.types[index], meta, column.mysql_type, utf8=True)
    charset = charset_of(collation) or column.charset
    if code in _TEXT_CODES:
        if in_doubt(charset):
            raise TableUnknown(
                f"charset of {table_map.schema}.{table_map.name}.{column.name} is not known: it depends on the"
                " server's version whether CONVERT TO CHARACTER SET changed the default of the table, and the"
                " server's current definition may be a later one. Start this stream after the position"
                " (canal-ha cursor set), or exclude the table (canal.instance.filter.black.regex)"
            )
        return _text(code, meta, read, column, charset)
    if code in (types.TIMESTAMP, types.TIMESTAMP2):
        kind = kinds.UTC_TIMESTAMP2 if code == types.TIMESTAMP2 else kinds.UTC_TIMESTAMP
        utc = replace(read, kind=kind, sql_type=UTC_TYPE, null_sql_type=UTC_TYPE)
        return ExactType(utc, "", column.mysql_type)
    if code == types.JSON:
        return ExactType(replace(read, text=kinds.EXACT_JSON), "", column.mysql_type)
    return ExactType(read, "", column.mysql_type)


def _text(code: int, meta: int, read: CellType, column: Column, charset: str) -> ExactType:
    """Return how to read a text, or bytes, or one of MariaDB's addresses."""
    name = types.type_name(column.mysql_type)
    if name in column_text.ADDRESSES:
        return ExactType(replace(read, text=kinds.CHARSET), column_codec(name), column.mysql_type)
    binary = name in types.BINARIES or (charset == BINARY if charset else not name and code in _BLOBS)
    if binary:
        sql_type = types.SQL_BLOB
        text = kinds.COMPRESSED if code in _COMPRESSED else kinds.LATIN1
        codec = ""
    else:
        sql_type = types.SQL_CLOB if code in _BLOBS else types.SQL_CHAR if code == types.STRING else types.SQL_VARCHAR
        utf8 = charset in _UTF8
        codec = column_codec(charset) if charset in column_text.READERS else "utf-8"
        text = kinds.COMPRESSED_UTF8 if code in _COMPRESSED else kinds.UTF8 if utf8 else kinds.CHARSET
    declared = column.mysql_type
    if binary and name and name not in types.BINARIES:
        declared = _binary_type(code, meta)
    return ExactType(replace(read, text=text, sql_type=sql_type, null_sql_type=sql_type), codec, declared)


def _binary_type(code: int, meta: int) -> str:
    """Return the binary type that a text of CHARACTER SET binary is."""
    if code in _BLOBS:
        return _BLOB_NAMES[meta]
    if code == types.STRING:
        return f"binary({types.split_string(meta)[1]})"
    return f"varbinary({meta - (code == types.VARCHAR_COMPRESSED)})"
