"""Rebuilds a column's declaration from the source's text of its type. Pure.

The text is parsed as a value and never used as SQL. It yields a name from a fixed list, whole numbers and labels; only
these go into a statement. Labels become hexadecimal literals, which mean the same in every sql_mode.

Text columns get a binary collation. The source's collation is unknown here, and with a coarser one the copy would
treat different keys of the source as equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from canal_ha.errors import SinkRefused

_LABELLED = frozenset({"enum", "set"})
_NATIONAL = {  # they imply a character set and accept no other
    "nchar": "char",
    "national char": "char",
    "national character": "char",
    "nvarchar": "varchar",
    "national varchar": "varchar",
}
_TEXTS = frozenset(
    {"char", "character", "varchar", "varcharacter", "varchar2", "character varying", "char varying"}
    | {"tinytext", "text", "mediumtext", "longtext", "long", "long varchar", "clob"}
)
_NAMES = frozenset(
    {"tinyint", "smallint", "mediumint", "middleint", "int", "integer", "bigint", "bool", "boolean", "serial"}
    | {"int1", "int2", "int3", "int4", "int8", "decimal", "dec", "numeric", "fixed", "number", "bit"}
    | {"float", "float4", "float8", "double", "double precision", "real"}
    | {"date", "time", "datetime", "timestamp", "year"}
    | {"xmltype", "json"}
    | {"binary", "varbinary", "raw", "tinyblob", "blob", "mediumblob", "longblob", "long varbinary", "vector"}
    | {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geometrycollection", "geomcollection", "inet4", "inet6", "uuid"}
    | _TEXTS
    | _NATIONAL.keys()
)
_TYPE = re.compile(r"\s*([a-z_][a-z0-9_ ]*?)\s*(?:\((.*)\))?((?:\s+(?:unsigned|zerofill|signed))*)\s*", re.I | re.S)
_NUMBERS = re.compile(r"[0-9]{1,10}(?:,[0-9]{1,10})?")
_LABEL = re.compile(r"(?:(_[a-z0-9]+|n) ?)?'((?:[^']|'')*)'|0x((?:[0-9a-f]{2})+)", re.I)
_UNICODE = ("n", "_utf8", "_utf8mb3", "_utf8mb4")


@dataclass(frozen=True, slots=True)
class Declaration:
    """A parsed type.

    name: from a fixed list, in lower case.
    numbers: length, or precision and scale, as written.
    labels: of ENUM and SET.
    unsigned, zerofill: attributes.
    """

    name: str
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False

    def sql(self, collation: str) -> str:
        """Format the type for MySQL and MariaDB, for every sql_mode and every character set of the table.

        collation: of texts, ENUM and SET; a collation of utf8mb4.
        """
        is_text = self.name in _TEXTS or bool(self.labels)
        arguments = ",".join(map(str, self.numbers)) or ",".join(map(_literal, self.labels))
        return "".join(
            (
                self.name,
                f"({arguments})" if arguments else "",
                f" CHARACTER SET utf8mb4 COLLATE {collation}" if is_text else "",  # labels are written in its bytes
                " unsigned" if self.unsigned else "",
                " zerofill" if self.zerofill else "",
            )
        )


def declaration(text: str, table: str, column: str) -> Declaration:
    """Parse a type.

    text: canal's mysqlType; quotes in labels are doubled, nothing else is escaped.
    table, column: names of the column, for messages.
    Raises SinkRefused for an unknown type.
    """
    found = _TYPE.fullmatch(text)
    name = " ".join(found[1].lower().split()) if found else ""
    inner = found[2] if found else None
    numbers: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    if found and name in _LABELLED and inner:
        labels = _labels(inner)
        known = bool(labels)
    elif found and name in _NAMES and inner is not None:
        known = _NUMBERS.fullmatch(inner) is not None
        numbers = tuple(map(int, inner.split(","))) if known else ()
    else:
        known = found is not None and name in _NAMES
    if found is None or not known:
        raise SinkRefused(
            f"canal: column {column!r} of {table} has the type {text[:200]!r}, which this sink cannot declare;"
            " add the column to the copy by hand, or remove the table from the pipeline's tables"
        )
    attributes = found[3].lower()
    return Declaration(_NATIONAL.get(name, name), numbers, labels, "unsigned" in attributes, "zerofill" in attributes)


def _labels(text: str) -> tuple[str, ...]:
    """Parse the labels in the brackets; () if anything else is in there."""
    labels = []
    at = 0
    while match := _LABEL.match(text, at):
        introducer, quoted, digits = match[1], match[2], match[3]
        if digits is not None:
            try:
                label = bytes.fromhex(digits).decode()
            except UnicodeDecodeError:
                return ()
        else:
            label = quoted.replace("''", "'")
            if introducer and not (label.isascii() or introducer.lower() in _UNICODE):
                return ()
        labels.append(label)
        at = match.end()
        if at == len(text):
            return tuple(labels)
        if text[at] != ",":
            return ()
        at += 1
    return ()


def _literal(label: str) -> str:
    return f"x'{label.encode().hex()}'"
