"""Column types of the script: random values as literals, and how SELECT and a node spell the same value."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from random import Random
from typing import Any

from lab.differential.dialect import Dialect
from lab.differential.world import Column, literal, quoted

_WORDS = ("alpha", "βήτα", "гамма", "数据", "", "it's", 'say "hi"', "tab\tline\n", "😀", "back\\slash", "x")
_TYPES = (
    *("int", "int", "int", "bigint unsigned", "smallint", "tinyint unsigned", "mediumint", "int zerofill"),
    *("varchar(20)", "varchar(20)", "varchar(300)", "char(12)", "text", "tinytext", "mediumtext"),
    *("decimal(12,3)", "decimal(30,10)", "double", "float", "bit(5)", "bit(40)", "year"),
    *("date", "datetime", "datetime(3)", "timestamp NULL", "time", "time(2)"),
    *("enum('a','b','c')", "enum('c','a','')", "set('x','y','z')", "varbinary(40)", "blob", "json"),
)
# No labels outside ASCII: the servers break those in CONVERT TO CHARACTER SET, and SELECT sends invalid UTF-8 then.
_CHARSETS = (
    *("varchar(20) CHARACTER SET latin1", "text CHARACTER SET gbk", "varchar(20) CHARACTER SET utf16"),
    *(
        "char(9) CHARACTER SET latin1",
        "char(9) CHARACTER SET binary",
        "varchar(20) CHARACTER SET binary",
        "tinytext CHARACTER SET ucs2",
    ),
    *("text CHARACTER SET sjis", "varchar(300) CHARACTER SET cp1251"),
)


def types(dialect: Dialect) -> tuple[str, ...]:
    """Return the column types that a server has, frequent ones several times."""
    found = tuple(kind for kind in _TYPES if not (dialect.old and kind == "json"))
    if dialect.has("charsets"):
        found += _CHARSETS
    if dialect.has("binary"):
        found += ("binary(8)", "binary(8)")
    if dialect.has("network_types") and dialect.mariadb:
        found += ("uuid", "inet4", "inet6")
    return found


def value(column: Column, random: Random) -> str:
    """Return a literal that the column takes in a mode that is not strict."""
    if column.nullable and random.random() < 0.08:
        return "NULL"
    make = _LITERALS.get(column.kind)
    if column.kind == "enum" or column.kind == "set":
        return str(random.randint(1, 1 + column.definition.count(",")))
    if column.kind == "bit":
        return str(random.randrange(32))
    return make(random) if make else str(random.randrange(100))


def _word(random: Random) -> str:
    return literal(f"{random.choice(_WORDS)}{random.randrange(1000)}")


def _hex(random: Random) -> str:
    return f"x'{random.randbytes(random.randrange(1, 9)).hex()}{random.randrange(1, 255):02x}'"


def _moment(random: Random) -> str:
    return (
        f"'{random.randrange(1990, 2030)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
        f" {random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}.{random.randrange(1000):03}'"
    )


def _time(random: Random) -> str:
    return f"'{random.choice(('', '-'))}{random.randrange(838)}:{random.randrange(60):02}:{random.randrange(60):02}.25'"


def _json(random: Random) -> str:
    number = random.randrange(1000)
    return literal(
        random.choice((f"{number}", f'{{"a": {number}, "b": [1, null, true]}}', f'["{number}", -1.5]', f'"数{number}"'))
    )


def _address(random: Random) -> str:
    return f"'10.0.{random.randrange(256)}.{random.randrange(256)}'"


_LITERALS: dict[str, Callable[[Random], str]] = {
    "tinyint": lambda random: str(random.randrange(100)),
    "smallint": lambda random: str(random.randrange(30000)),
    "mediumint": lambda random: str(random.randrange(8000000)),
    "int": lambda random: str(random.randrange(2000000000)),
    "bigint": lambda random: str(random.choice((0, 2**63 - 1, random.randrange(2**50)))),
    "decimal": lambda random: str(Decimal(random.randrange(10**9)) / 1000),
    "double": lambda random: str(random.randrange(-4000000, 4000000) / 4),
    "float": lambda random: str(random.randrange(-40000, 40000) / 4),
    "year": lambda random: str(random.randrange(1901, 2155)),
    "date": _moment,
    "datetime": _moment,
    "timestamp": _moment,
    "time": _time,
    "json": _json,
    "varbinary": _hex,
    "binary": _hex,
    "tinyblob": _hex,
    "blob": _hex,
    "mediumblob": _hex,
    "longblob": _hex,
    "inet4": _address,
    "inet6": lambda random: f"'fe80::{random.randrange(1, 65535):x}'",
    "uuid": lambda random: f"'123e4567-e89b-12d3-a456-{random.randrange(16**12):012x}'",
    "longtext": _json,  # MariaDB's JSON is this type with a check
    **dict.fromkeys(("varchar", "char", "text", "tinytext", "mediumtext"), _word),
}

# ---- the same value as SELECT and as a node spell it

_TEXTS = ("date", "datetime", "timestamp", "time", "year", "json", "inet4", "inet6", "uuid")
_STRINGS = ("varchar", "char", "text", "tinytext", "mediumtext", "longtext")
_BYTES = ("varbinary", "binary", "tinyblob", "blob", "mediumblob", "longblob")


def selected(column: Column) -> str:
    """Return the expression of a SELECT whose result `seen` understands."""
    name = quoted(column.name)
    if column.kind in _TEXTS:
        return f"CAST({name} AS CHAR)"
    if column.kind == "bit":
        return f"CAST({name} + 0 AS UNSIGNED)"
    if column.kind in _BYTES:
        return f"HEX({name})"
    if column.kind in _STRINGS:
        converted = f"CAST(CONVERT({name} USING utf8mb4) AS BINARY)"  # which ends before bytes that are no text
        return f"HEX(IF(CHARSET({name}) LIKE 'utf8%', CAST({name} AS BINARY), {converted}))"
    if column.kind == "float":
        return f"{name} + 0e0"
    return name


def seen(column: Column, value: Any) -> Any:
    """Return a value of `selected`. MySQL 5.6 can store bytes in a text that are none: they become U+FFFD."""
    if column.kind in _STRINGS and value is not None:
        return bytes.fromhex(value).decode("utf-8", "replace")
    return value


def same(column: Column, given: Any) -> Any:
    """Return the form of a value in which a node's and SELECT's are equal; what does not fit stays as it is."""
    if given is None:
        return None
    with suppress(ValueError, InvalidOperation, TypeError):
        if column.kind in _BYTES:
            return given.hex().upper() if isinstance(given, bytes) else str(given)
        if column.kind == "json":
            return json.dumps(json.loads(given), sort_keys=True)
        if column.kind == "decimal":
            return Decimal(given).normalize() + 0
        if column.kind == "float":
            return struct.unpack("f", struct.pack("f", float(given)))[0]
        if column.kind in ("year", *_NUMBERS):
            return int(given)
    return given


_NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "bit")
