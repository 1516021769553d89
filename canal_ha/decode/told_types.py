"""The column types that an event with names tells (binlog_row_metadata=FULL), and those that no event tells."""

from __future__ import annotations

from collections.abc import Iterator

from canal_ha.decode import types
from canal_ha.decode.charsets import BINARY, charset_of, longest_character
from canal_ha.decode.labels import with_labels
from canal_ha.decode.table_map import TableMap

_PLAIN = {
    types.TINY: "tinyint",
    types.SHORT: "smallint",
    types.INT24: "mediumint",
    types.LONG: "int",
    types.LONGLONG: "bigint",
    types.FLOAT: "float",
    types.DOUBLE: "double",
    types.DATE: "date",
    types.NEWDATE: "date",
    types.TIME: "time",
    types.DATETIME: "datetime",
    types.TIMESTAMP: "timestamp",
    types.YEAR: "year",
    types.JSON: "json",
    types.VECTOR: "vector",
}
_FRACTIONS = {types.TIME2: "time", types.DATETIME2: "datetime", types.TIMESTAMP2: "timestamp"}
_GEOMETRIES = (
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    "geometrycollection",
)
_BLOBS = frozenset({types.TINY_BLOB, types.MEDIUM_BLOB, types.LONG_BLOB, types.BLOB, types.BLOB_COMPRESSED})
_VARCHARS = frozenset({types.VARCHAR, types.VAR_STRING, types.VARCHAR_COMPRESSED})
_WIDTHS = ("", "tiny", "", "medium", "long")  # of a blob, by the bytes of its length
_ADDRESSES = {4: "INET4", 16: "INET6 or UUID"}  # MariaDB's types of that many bytes


def told_types(table_map: TableMap) -> tuple[str, ...]:
    """Return the type text of each column, without its sign; "" where the event does not tell it.

    Widths for display and ZEROFILL are left out, because no event tells them.
    """
    collations = table_map.collations()
    shapes = iter(table_map.geometry_types or ())
    return tuple(
        _GEOMETRIES[next(shapes, 0) % len(_GEOMETRIES)]
        if code == types.GEOMETRY
        else _told(code, table_map.metas[index], collations[index], table_map.labels.get(index))
        for index, code in enumerate(table_map.real_types)
    )


def _told(code: int, meta: int, collation: int, labels: tuple[str, ...] | None) -> str:
    if code in _PLAIN:
        return _PLAIN[code]
    if code in _FRACTIONS:
        return f"{_FRACTIONS[code]}({meta})" if meta else _FRACTIONS[code]
    if code == types.NEWDECIMAL:
        return f"decimal({meta >> 8},{meta & 255})"
    if code == types.BIT:
        return f"bit({(meta >> 8) * 8 + (meta & 255)})"
    if code in (types.ENUM, types.SET):
        return "" if labels is None else with_labels("enum" if code == types.ENUM else "set", labels)
    charset = charset_of(collation)
    if charset and code in _BLOBS and meta < len(_WIDTHS):
        return _WIDTHS[meta] + ("blob" if charset == BINARY else "text")
    if charset and code == types.STRING:
        length = types.split_string(meta)[1] // longest_character(charset)
        return f"binary({length})" if charset == BINARY else f"char({length})"
    if charset and code in _VARCHARS:
        # the metadata includes the header of a compressed value
        length = (meta - (code == types.VARCHAR_COMPRESSED)) // longest_character(charset)
        return f"varbinary({length})" if charset == BINARY else f"varchar({length})"
    return ""


def untold(table_map: TableMap) -> Iterator[tuple[int, str]]:
    """Yield the columns whose values cannot be read without a definition, as ordinals and what they may be.

    MariaDB logs INET4, INET6 and UUID as BINARY of their size, and labels may be in a charset that nobody knows here.
    """
    collations = table_map.collations() if table_map.mariadb else ()
    for index, code in enumerate(table_map.real_types):
        if code in (types.ENUM, types.SET) and index not in table_map.labels:
            yield index, "ENUM or SET with unknown labels"
        elif code == types.STRING and collations and charset_of(collations[index]) == BINARY:
            size = types.split_string(table_map.metas[index])[1]
            if size in _ADDRESSES:
                yield index, f"BINARY({size}), {_ADDRESSES[size]}"
