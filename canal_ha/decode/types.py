"""MySQL column types: how to read their cells, and their java.sql.Types codes in canal (docs/protocol.md#types)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from canal_ha.decode.kernel import kinds, numbers, temporal
from canal_ha.errors import TableUnknown

# Type codes of the TABLE_MAP event (include/field_types.h; 140 and 141 are MariaDB's).
(
    TINY,
    SHORT,
    LONG,
    FLOAT,
    DOUBLE,
    NULL,
    TIMESTAMP,
    LONGLONG,
    INT24,
    DATE,
    TIME,
    DATETIME,
    YEAR,
    NEWDATE,
    VARCHAR,
    BIT,
) = range(1, 17)
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET = 242, 245, 246, 247, 248
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING, GEOMETRY = range(249, 256)

# java.sql.Types
_BIT, _TINYINT, _BIGINT, SQL_CHAR, _DECIMAL, _INTEGER, _SMALLINT, _REAL, _DOUBLE, SQL_VARCHAR = (
    -7,
    -6,
    -5,
    1,
    3,
    4,
    5,
    7,
    8,
    12,
)
_DATE, _TIME, _TIMESTAMP, _OTHER, SQL_BLOB, SQL_CLOB = 91, 92, 93, 1111, 2004, 2005

BINARIES = frozenset({"binary", "varbinary", "raw", "tinyblob", "blob", "mediumblob", "longblob", "vector"})
_NAME = re.compile(r"\s*([a-z_]\w*)", re.IGNORECASE)
# MariaDB's JSON is a LONGTEXT; canal reads it as binary when the statement declares JSON, and garbles it.
_TEXTS = frozenset({"tinytext", "text", "mediumtext", "longtext", "json"})


@dataclass(frozen=True, slots=True)
class CellType:
    """How one column's cells are read and typed.

    kind, size, text, precision, decimals: see cells.Cell.
    sql_type: of a value.
    wide_sql_type: of an unsigned integer whose top bit is set.
    null_sql_type: of NULL.
    """

    kind: int
    size: int
    sql_type: int
    null_sql_type: int
    wide_sql_type: int = 0
    text: int = 0
    precision: int = 0
    decimals: int = 0


_INTEGERS = {
    TINY: CellType(kinds.INTEGER, 1, _TINYINT, _TINYINT, _SMALLINT),
    SHORT: CellType(kinds.INTEGER, 2, _SMALLINT, _SMALLINT, _INTEGER),
    INT24: CellType(kinds.INTEGER, 3, _INTEGER, _INTEGER, _INTEGER),
    LONG: CellType(kinds.INTEGER, 4, _INTEGER, _INTEGER, _BIGINT),
    LONGLONG: CellType(kinds.INTEGER, 8, _BIGINT, _BIGINT, _DECIMAL),
}

_FIXED = {
    **_INTEGERS,
    FLOAT: CellType(kinds.FLOAT, 4, _REAL, _REAL),
    DOUBLE: CellType(kinds.DOUBLE, 8, _DOUBLE, _DOUBLE),
    NULL: CellType(kinds.NOTHING, 0, _OTHER, _OTHER),
    TIMESTAMP: CellType(kinds.TIMESTAMP, 4, _TIMESTAMP, _TIMESTAMP),
    DATE: CellType(kinds.DATE, 3, _DATE, _DATE),
    NEWDATE: CellType(kinds.DATE, 3, _DATE, _DATE),
    TIME: CellType(kinds.TIME, 3, _TIME, _TIME),
    DATETIME: CellType(kinds.DATETIME, 8, _TIMESTAMP, _TIMESTAMP),
    YEAR: CellType(kinds.YEAR, 1, SQL_VARCHAR, SQL_VARCHAR),
}


def type_name(mysql_type: str) -> str:
    """Return the first word of a type text in lower case; "" if there is none."""
    named = _NAME.match(mysql_type)
    return named[1].lower() if named else ""


def split_string(meta: int) -> tuple[int, int]:
    """Return the real type and the length in bytes of a STRING column. Its type byte has two inverted length bits."""
    first, second = meta >> 8, meta & 255
    if first and first & 0x30 != 0x30:
        return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    return first or STRING, second


def reading(code: int, meta: int, mysql_type: str, utf8: bool) -> CellType:
    """Return how to read a column.

    code, meta: from the table map.
    mysql_type: canal's text; "" when unknown.
    utf8: whether the connection charset is UTF-8.
    Raises TableUnknown for an unknown type.
    """
    fixed = _FIXED.get(code)
    if fixed is not None:
        return fixed
    if code == STRING:
        code, length = split_string(meta)
        if code == STRING:
            return _characters(SQL_CHAR, 2 if length > 255 else 1, mysql_type, utf8)
        meta = length
    elif code in (ENUM, SET):
        meta &= 255
    if code in (VARCHAR, VAR_STRING):
        return _characters(SQL_VARCHAR, 2 if meta > 255 else 1, mysql_type, utf8)
    if code == VARCHAR_COMPRESSED:
        plain = _characters(SQL_VARCHAR, 2 if meta > 255 else 1, mysql_type, utf8)
        return _compressed(plain)
    if code == ENUM and meta in (1, 2):
        return CellType(kinds.ENUM, meta, _INTEGER, _INTEGER)
    if code == SET and 1 <= meta <= 8:
        return CellType(kinds.SET, meta, _BIT, SQL_BLOB)
    if code == NEWDECIMAL:
        precision, decimals = meta >> 8, meta & 255
        if decimals <= precision > 0:
            size = numbers.decimal_size(precision, decimals)
            return CellType(kinds.DECIMAL, size, _DECIMAL, _DECIMAL, precision=precision, decimals=decimals)
    if code == BIT:
        bits = (meta >> 8) * 8 + (meta & 255)
        if 0 < bits <= 64:
            return CellType(kinds.BIT, (bits + 7) // 8, _BIT, _BIT)
    if code in (TIMESTAMP2, DATETIME2, TIME2) and meta <= 6:
        return _temporal(code, meta)
    if code in (TINY_BLOB, BLOB, MEDIUM_BLOB, LONG_BLOB, GEOMETRY, VECTOR, BLOB_COMPRESSED, JSON) and 1 <= meta <= 4:
        if code == JSON:
            return CellType(kinds.PREFIXED, meta, SQL_VARCHAR, _OTHER, text=kinds.JSON)
        if code not in (GEOMETRY, VECTOR) and mysql_type.lower() in _TEXTS:
            plain = CellType(kinds.PREFIXED, meta, SQL_CLOB, SQL_CLOB, text=kinds.UTF8 if utf8 else kinds.CHARSET)
        else:
            plain = CellType(kinds.PREFIXED, meta, SQL_BLOB, SQL_BLOB, text=kinds.LATIN1)
        return _compressed(plain) if code == BLOB_COMPRESSED else plain
    raise TableUnknown(f"cannot read a column of type {code} (metadata {meta:#x}, {mysql_type or 'undeclared'})")


def _characters(sql_type: int, size: int, mysql_type: str, utf8: bool) -> CellType:
    """Return how to read CHAR and VARCHAR; only the type text reveals BINARY and VARBINARY."""
    if re.search("binary", mysql_type, re.IGNORECASE):
        return CellType(kinds.PREFIXED, size, SQL_BLOB, SQL_BLOB, text=kinds.LATIN1)
    return CellType(kinds.PREFIXED, size, sql_type, sql_type, text=kinds.UTF8 if utf8 else kinds.CHARSET)


def _compressed(plain: CellType) -> CellType:
    text = kinds.COMPRESSED if plain.text == kinds.LATIN1 else kinds.COMPRESSED_UTF8
    return CellType(plain.kind, plain.size, plain.sql_type, plain.null_sql_type, text=text)


def _temporal(code: int, decimals: int) -> CellType:
    extra = temporal.fraction_size(decimals)
    if code == TIMESTAMP2:
        return CellType(kinds.TIMESTAMP2, 4 + extra, _TIMESTAMP, _TIMESTAMP, decimals=decimals)
    if code == DATETIME2:
        return CellType(kinds.DATETIME2, 5 + extra, _TIMESTAMP, _TIMESTAMP, decimals=decimals)
    return CellType(kinds.TIME2, 3 + extra, _TIME, _TIME, decimals=decimals)
