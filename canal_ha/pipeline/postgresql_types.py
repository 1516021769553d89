"""Maps a column's mysqlType to a type of PostgreSQL, as format_type() shows it. Pure.

tinyint, smallint                     smallint; smallint unsigned: integer
mediumint, int                        integer; int unsigned: bigint
bigint                                bigint; bigint unsigned: numeric(20,0)
decimal(p,s)                          numeric(p,s)
float, double                         real, double precision
bit(1)                                boolean
bit(n)                                bigint; bit(64): numeric(20,0)
date                                  date
datetime(n)                           timestamp(n) without time zone
timestamp(n)                          timestamp(n) with time zone
time(n)                               interval(n), because it can be negative or longer than a day
year                                  smallint
json                                  jsonb, json or text
char, varchar, text, enum, set        text
binary, varbinary, blob, geometry     bytea; geometry has four bytes of the SRID before the WKB
vector                                bytea
uuid; inet4, inet6                    uuid; inet
"""

from __future__ import annotations

import re

import pyarrow as pa

from canal_ha.client.arrow_types import ColumnType, precision_of

_ARROW = {
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.string(): "text",
    pa.binary(): "bytea",
}
_TIMES = {
    "datetime": "timestamp({}) without time zone",
    "timestamp": "timestamp({}) with time zone",
    "time": "interval({})",
}
_NAMED = {"year": "smallint", "uuid": "uuid", "inet4": "inet", "inet6": "inet"}
_NUMBERS = re.compile(r"\d+")
_FAMILY = re.compile(r"\([\d,]+\)")
_EXACT = frozenset({"smallint", "integer", "bigint", "numeric"})
_INTO_TEXT = _EXACT | {"date", "uuid", "jsonb", "json"}


def postgresql_type(kind: ColumnType, json: str) -> str:
    """Return the type. json: type of JSON documents."""
    name = kind.text.partition("(")[0].strip().lower()
    if kind.name == "json":
        return json
    if kind.name in _TIMES:
        digits = _NUMBERS.search(kind.text)
        return _TIMES[kind.name].format(digits[0] if digits else 0)
    if name in _NAMED:
        return _NAMED[name]
    if kind.name == "decimal":
        precision, scale = precision_of([int(number) for number in _NUMBERS.findall(kind.text)])
        return f"numeric({precision},{scale})"
    if pa.types.is_decimal(kind.arrow):
        return f"numeric({kind.arrow.precision},{kind.arrow.scale})"
    return _ARROW[kind.arrow]


def conversion(before: str, after: str) -> str | None:
    """Return how existing values become those of another type, as a template of SQL; None if only the source can tell.

    The binlog does not have the values that ALTER TABLE makes. These conversions give the same ones, or fail.
    """
    old, new = _FAMILY.sub("", before), _FAMILY.sub("", after)
    same = old == new or (old in _EXACT and new in _EXACT) or (old == "real" and new == "double precision")
    if same or (new == "text" and old in _INTO_TEXT):
        return "{}::" + after
    if old == "boolean" and new in _EXACT:
        return "{}::integer::" + after
    return None
