"""Values of every type of lab.column_kinds, as literals of the source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lab.column_kinds import KINDS

_TEXTS = (
    "'plain'",
    "''",
    "'Ünï 字 😀'",
    r"'tab\tline\nreturn\rslash\\quote\'\"'",
    "'NULL'",
    r"'\\N'",
    r"'\\.'",
    "'100%s'",
)
_BYTES = ("'bytes'", "''", r"x'00ff0a095c27'", "x'deadbeef'")
_MOMENTS = ("'2024-02-29 12:34:56.789123'", "'1970-01-01 00:00:01'", "'2037-12-31 23:59:59.999999'")
_DATES = ("'2024-02-29'", "'1000-01-01'", "'9999-12-31'")

LITERALS: Mapping[str, Sequence[str]] = {
    "tinyint": ("-128", "127", "0"),
    "tinyint unsigned": ("255", "0"),
    "smallint": ("-32768", "32767"),
    "smallint unsigned": ("65535",),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("16777215",),
    "int": ("-2147483648", "2147483647"),
    "int unsigned": ("4294967295",),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("18446744073709551615", "0"),
    "decimal": ("-9999999999.9999", "0", "0.0001", "12.5"),
    "float": ("0.1", "-3.4e38", "1e-30", "4096.5"),
    "double": ("0.1", "-1.7e308", "5e-324", "123456789.123456789"),
    "char": _TEXTS,
    "varchar": _TEXTS,
    "tinytext": _TEXTS,
    "text": _TEXTS,
    "mediumtext": (*_TEXTS, "REPEAT('long ', 20000)"),
    "longtext": _TEXTS,
    "binary": _BYTES,
    "varbinary": _BYTES,
    "tinyblob": _BYTES,
    "blob": _BYTES,
    "longblob": (*_BYTES, "REPEAT(x'00ff', 20000)"),
    "geometry": ("ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0,1 1)')"),
    "vector": ("x'0000803f000000400000404000008040'",),
    "enum": ("'a'", "'b'"),
    "set": ("'a'", "'b'", "'a,b'", "''"),
    "bit": ("0", "1", "b'101'", "b'111111111'"),
    "year": ("1901", "2155", "0"),
    "date": (*_DATES, "'0000-00-00'", "'2023-00-10'"),
    "datetime": (*_MOMENTS, "'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'0000-00-00 00:00:00'"),
    "timestamp": (*_MOMENTS, "'0000-00-00 00:00:00'"),
    "time": ("'00:00:00'", "'-838:59:59'", "'838:59:59'", "'12:34:56.654321'", "'-00:00:00.5'"),
    "json": ("""'{"b": [1, null, "x"], "a": {"k": 1.5}}'""", "'null'", "'[]'", r"""'"quo\\"te"'"""),
}


def types(flavor: str) -> list[str]:
    """Return the types that a server knows; each of KINDS, and others beside them."""
    found = {kind.mysql_type for kind in KINDS} | {"decimal(65,30)", "bit(1)", "double", "bigint(20) unsigned"}
    found |= {"enum('a','b')", "set('a','b')", "point"}
    found -= {"enum('a')", "set('a')"}  # the same type with fewer labels
    if flavor == "mysql":
        return sorted(found)
    return sorted(found - {"vector(4)"})


def literals(mysql_type: str) -> Sequence[str]:
    """Return literals for a column of this type; NULL is one."""
    name = re.sub(r"\(.*\)", "", mysql_type)
    if name == "bit":
        return ("NULL", "0", "1", *(() if mysql_type == "bit(1)" else ("b'101'", "b'111111111'")))
    if name == "point":
        return ("NULL", "ST_GeomFromText('POINT(1 2)')")
    if name in ("char", "varchar") and mysql_type == f"{name}(10)":
        return ("NULL", "''", "'字😀'", r"'\t\\'")
    if name == "tinytext":
        return ("NULL", *_TEXTS)
    return ("NULL", *LITERALS[name])


def selected(kinds: Sequence[str]) -> str:
    """Return what to select from a table with the columns c0, c1, ... of these types; PyMySQL reads no vectors."""
    names = (f"CAST(c{at} AS BINARY) AS c{at}" if "vector" in kind else f"c{at}" for at, kind in enumerate(kinds))
    return ", ".join(("id", *names))
