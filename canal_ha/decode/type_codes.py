"""Checks whether a declared column type fits the type code and metadata of a TABLE_MAP event.

Covers MySQL 5.6 to 9.7 and MariaDB with its own types. If the declaration leaves something open (the character set's
width, a blob's width after a change of character set, REAL_AS_FLOAT, temporal columns of an older format), every
possibility is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from canal_ha.decode import types

_INTEGERS = {
    "tinyint": types.TINY,
    "int1": types.TINY,
    "bool": types.TINY,
    "boolean": types.TINY,
    "smallint": types.SHORT,
    "int2": types.SHORT,
    "mediumint": types.INT24,
    "middleint": types.INT24,
    "int3": types.INT24,
    "int": types.LONG,
    "integer": types.LONG,
    "int4": types.LONG,
    "bigint": types.LONGLONG,
    "int8": types.LONGLONG,
    "serial": types.LONGLONG,
}
_CHARS = frozenset({"char", "character", "nchar", "national char", "national character"})
_VARCHARS = frozenset(
    {"varchar", "varcharacter", "character varying", "char varying", "nvarchar", "national varchar", "varchar2"}
)
_DECIMALS = frozenset({"decimal", "dec", "numeric", "fixed"})
_BLOB_WIDTHS = {
    "tinytext": 1,
    "tinyblob": 1,
    "text": 2,
    "blob": 2,
    "mediumtext": 3,
    "mediumblob": 3,
    "long": 3,
    "longtext": 4,
    "longblob": 4,
    "clob": 4,
    "xmltype": 4,
}
_GEOMETRIES = frozenset(
    {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geometrycollection", "geomcollection"}
)
_ADDRESSES = {"inet4": 4, "inet6": 16, "uuid": 16}
_TEMPORAL = {  # new code, and the code of the format before 5.6, which MariaDB can still write
    "time": (types.TIME2, types.TIME),
    "datetime": (types.DATETIME2, types.DATETIME),
    "timestamp": (types.TIMESTAMP2, types.TIMESTAMP),
}
_BLOB_CODES = (types.BLOB, types.BLOB_COMPRESSED)
_VARCHAR_CODES = (types.VARCHAR, types.VARCHAR_COMPRESSED)
_TEXT = re.compile(r"\s*([a-z_][\w ]*?)\s*(?:\((.*)\))?\s*(?:unsigned|zerofill|signed|\s)*", re.IGNORECASE | re.DOTALL)
_MEMBER = re.compile(r"'(?:[^']|'')*'|[^,]+", re.DOTALL)

_OTHERS = {  # what a server writes for the types without arguments that change it
    "float": (types.FLOAT, 4),
    "double": (types.DOUBLE, 8),
    "date": (types.DATE, 0),
    "year": (types.YEAR, 0),
    "json": (types.JSON, 4),
    "vector": (types.VECTOR, 4),
}

Check = Callable[[list[str], int, int], bool]


@lru_cache(maxsize=8192)
def compatible(mysql_type: str, code: int, meta: int) -> bool | None:
    """Return whether the declaration can produce this code and metadata; None if the type is unknown or "".

    mysql_type: the declared type.
    code, meta: as in TableMap.
    """
    name, arguments = _declared(mysql_type)
    if code == types.STRING:
        code, meta = types.split_string(meta)
    elif code in (types.ENUM, types.SET):
        meta &= 255
    if name in _INTEGERS:
        return code == _INTEGERS[name]
    check = _CHECKS.get(name)
    return None if check is None else check(arguments, code, meta)


def _declared(mysql_type: str) -> tuple[str, list[str]]:
    """Return a type's name in lower case, and what stands between its parentheses; the name is "" if there is none."""
    found = _TEXT.fullmatch(mysql_type)
    if not found:
        return "", []
    arguments = [] if found[2] is None else [item.strip() for item in _MEMBER.findall(found[2])]
    return " ".join(found[1].lower().split()), arguments


def written(mysql_type: str, character_bytes: int, *, mariadb: bool) -> tuple[int, int] | None:
    """Return the code and the metadata, as in TableMap, that a server writes now for a column; None if unknown.

    mysql_type: the type as SHOW CREATE TABLE prints it. A compressed column counts as one that is not.
    character_bytes: of the longest character of its charset; 1 for other types than texts.
    mariadb: the flavor of the server.
    """
    name, arguments = _declared(mysql_type)
    if name in _INTEGERS:
        return _INTEGERS[name], 0
    if name in _CHARS or name == "binary":
        return types.STRING, _string_meta(_number(arguments, 0, 1) * character_bytes)
    if name in _VARCHARS or name in ("varbinary", "raw"):
        return types.VARCHAR, _number(arguments, 0, 1) * character_bytes
    if name in _BLOB_WIDTHS:
        return types.BLOB, _BLOB_WIDTHS[name]
    if name in _DECIMALS:
        return types.NEWDECIMAL, (_number(arguments, 0, 10) or 10) << 8 | _number(arguments, 1, 0)
    if name in _GEOMETRIES:
        return types.GEOMETRY, 4
    if name in _TEMPORAL:
        return _TEMPORAL[name][0], _number(arguments, 0, 0)
    if name in _ADDRESSES and mariadb:
        return types.STRING, _string_meta(_ADDRESSES[name])
    if name in ("enum", "set"):
        size = (1 if len(arguments) < 256 else 2) if name == "enum" else (len(arguments) + 7) // 8
        return types.STRING, (types.ENUM if name == "enum" else types.SET) << 8 | (size if size <= 4 else 8)
    if name == "bit":
        bits = _number(arguments, 0, 1)
        return types.BIT, bits // 8 << 8 | bits % 8
    if name == "vector" and mariadb:
        return types.VARCHAR, 4 * _number(arguments, 0, 0)
    if name == "json" and mariadb:
        return types.BLOB, _BLOB_WIDTHS["longtext"]
    return _OTHERS.get(name)


def _string_meta(size: int) -> int:
    """Return the metadata of a CHAR of `size` bytes: see types.split_string."""
    return (types.STRING ^ (size & 0x300) >> 4) << 8 | size & 0xFF


def _number(arguments: list[str], index: int, default: int) -> int:
    return int(arguments[index]) if len(arguments) > index and arguments[index].isdigit() else default


def _char(arguments: list[str], code: int, meta: int) -> bool:
    return code == types.STRING and _widths(_number(arguments, 0, 1), meta)


def _varchar(arguments: list[str], code: int, meta: int) -> bool:
    if code in _BLOB_CODES:  # too long for a row; outside strict mode silently turned into a text
        return _number(arguments, 0, 0) > 16383
    if code == types.VARCHAR_COMPRESSED:
        meta -= 1  # the metadata includes the header of a compressed value
    return code in _VARCHAR_CODES and _widths(_number(arguments, 0, 1), meta)


def _widths(characters: int, size: int) -> bool:
    return size in (characters, characters * 2, characters * 3, characters * 4)


def _binary(arguments: list[str], code: int, meta: int) -> bool:
    return code == types.STRING and meta == _number(arguments, 0, 1)


def _varbinary(arguments: list[str], code: int, meta: int) -> bool:
    if code in _BLOB_CODES:
        return _number(arguments, 0, 0) > 65532
    if code == types.VARCHAR_COMPRESSED:
        meta -= 1
    return code in _VARCHAR_CODES and meta == _number(arguments, 0, 1)


def _blob(width: int) -> Check:
    def check(arguments: list[str], code: int, meta: int) -> bool:
        return code in _BLOB_CODES and (bool(arguments) or meta >= width)  # given a length, the server picks the width

    return check


def _decimal(arguments: list[str], code: int, meta: int) -> bool:
    precision = _number(arguments, 0, 10) or 10
    return code == types.NEWDECIMAL and meta == precision << 8 | _number(arguments, 1, 0)


def _float(arguments: list[str], code: int, meta: int) -> bool:
    double = len(arguments) == 1 and _number(arguments, 0, 0) > 24
    return code == (types.DOUBLE if double else types.FLOAT)


def _bit(arguments: list[str], code: int, meta: int) -> bool:
    return code == types.BIT and (meta >> 8) * 8 + (meta & 255) == _number(arguments, 0, 1)


def _enum(arguments: list[str], code: int, meta: int) -> bool:
    return code == types.ENUM and meta == (1 if len(arguments) < 256 else 2)


def _set(arguments: list[str], code: int, meta: int) -> bool:
    size = (len(arguments) + 7) // 8
    return code == types.SET and meta == (size if size <= 4 else 8)


def _temporal(new: int, old: int) -> Check:
    def check(arguments: list[str], code: int, meta: int) -> bool:
        return code == old or (code == new and meta == _number(arguments, 0, 0))

    return check


def _code(*codes: int) -> Check:
    return lambda arguments, code, meta: code in codes


def _address(size: int) -> Check:
    return lambda arguments, code, meta: code == types.STRING and meta == size


def _vector(arguments: list[str], code: int, meta: int) -> bool:
    if code in _VARCHAR_CODES:  # MariaDB
        return meta == 4 * _number(arguments, 0, 0)
    return code == types.VECTOR


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(_CHARS, _char),
    **dict.fromkeys(_VARCHARS, _varchar),
    **dict.fromkeys(_DECIMALS, _decimal),
    **dict.fromkeys(_GEOMETRIES, _code(types.GEOMETRY)),
    **{name: _blob(width) for name, width in _BLOB_WIDTHS.items()},
    **{name: _address(size) for name, size in _ADDRESSES.items()},
    **{name: _temporal(*codes) for name, codes in _TEMPORAL.items()},
    "binary": _binary,
    "varbinary": _varbinary,
    "raw": _varbinary,
    "float": _float,
    "float4": _code(types.FLOAT),
    "float8": _code(types.DOUBLE),
    "double": _code(types.DOUBLE),
    "double precision": _code(types.DOUBLE),
    "real": _code(types.DOUBLE, types.FLOAT),
    "number": lambda arguments, code, meta: _decimal(arguments, code, meta) if arguments else code == types.DOUBLE,
    "bit": _bit,
    "enum": _enum,
    "set": _set,
    "date": _code(types.DATE, types.NEWDATE, types.DATETIME2, types.DATETIME),  # Oracle's DATE has a time
    "year": _code(types.YEAR),
    "json": _code(types.JSON, types.BLOB),  # MariaDB's is a longtext
    "vector": _vector,
}
