"""TABLE_MAP events with optional metadata, recorded from two servers or made by hand."""

from __future__ import annotations

import struct

import pytest

from canal_ha.decode import types
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.decode.table_map import TableMap, parse_table_map
from lab.dump import ColumnType, packed, table_map
from lab.golden import binlog


def maps(tag: str) -> dict[str, TableMap]:
    """Return the first table map of every table in a recorded file."""
    file = binlog(tag)
    found: dict[str, TableMap] = {}
    at = 4
    while at < len(file):
        size = struct.unpack_from("<I", file, at + 9)[0]
        if file[at + 4] == 19:
            parsed = parse_table_map(file[at + 19 : at + size - 4])
            found.setdefault(parsed.name, parsed)
        at += size
    return found


@pytest.mark.parametrize("tag", ["mysql9", "mariadb10.11"])
def test_full_metadata(tag: str) -> None:
    """With binlog_row_metadata=FULL, names, signs, keys, labels and geometry types are read."""
    found = maps(tag)
    ints = found["t_int"]
    assert ints.names == ("id", "ti", "tu", "si", "su", "mi", "mu", "i", "iu", "bi", "bu", "zf", "bo")
    assert ints.unsigned is not None
    assert [name for name, sign in zip(ints.names, ints.unsigned, strict=True) if sign] == [
        "tu",
        "su",
        "mu",
        "iu",
        "bu",
        "zf",
    ]
    assert ints.primary_key == (0,)
    assert ints.nullable == (False,) + (True,) * 12
    assert found["k_comp"].primary_key == (1, 0)
    assert found["k_none"].primary_key == ()
    enums = found["t_enum"]
    assert list(enums.labels.values())[:2] == [("a", "b", "c"), ("中", "é", "it's", "x,y")]
    geometry = found["t_geo"]
    assert geometry.geometry_types is not None
    assert geometry.geometry_types[:3] == (0, 1, 2)


ENUM, SET = ColumnType(types.STRING, b"\xf7\x01"), ColumnType(types.STRING, b"\xf8\x01")
LABELLED = (ColumnType(types.LONG), ENUM, ENUM, ENUM, ENUM, SET, ENUM)
LABELS = bytes.fromhex("05 05 02 01 78 01 79 06 15 02 01 61 01 62 02 01 e9 01 fc 01 02 00 e9 01 02 d6 d0 01 01 70")


@pytest.mark.parametrize(
    "charsets",
    ["0b 06 08 08 36 1c 3f 2d", "0b 08 08 08 36 1c 3f fc ff 00", "0a 09 08 02 36 03 1c 04 3f 05 2d"],
)
def test_labels_in_the_charset_of_their_column(charsets: str) -> None:
    """MariaDB 10.11 and MySQL 9.7 wrote these; the third form is the one with a default charset."""
    parsed = parse_table_map(table_map(7, "s", "t", LABELLED, bytes.fromhex(charsets) + LABELS))
    assert parsed.labels == {1: ("a", "b"), 2: ("é", "ü"), 3: ("é",), 4: ("中",), 5: ("x", "y"), 6: ("p",)}


def test_labels_that_cannot_be_decoded_are_unknown() -> None:
    """Without a charset, in an unknown one, or with bytes that it does not have."""
    assert parse_table_map(table_map(7, "s", "t", LABELLED, LABELS)).labels == {}
    charsets = bytes.fromhex("0b 08 2d 2d 3d fc cf 07 3f 2d")
    assert set(parse_table_map(table_map(7, "s", "t", LABELLED, charsets + LABELS)).labels) == {1, 5, 6}
    with pytest.raises(Broken, match="2 charsets for 6"):
        parse_table_map(table_map(7, "s", "t", LABELLED, b"\x0b\x02\x08\x08" + LABELS))


def test_without_metadata() -> None:
    """Metadata that a server does not send is None, not empty."""
    parsed = parse_table_map(table_map(7, "s", "t", [ColumnType(types.LONG), ColumnType(types.STRING, b"\xee\xe0")]))
    assert (parsed.table_id, parsed.schema, parsed.name) == (7, "s", "t")
    assert parsed.metas == (0, 0xEEE0)
    assert types.split_string(parsed.metas[1]) == (types.STRING, 480)
    assert (parsed.names, parsed.primary_key, parsed.unsigned) == (None, None, None)


def test_keys_with_prefixes() -> None:
    """A primary key over the first characters of a column is read."""
    columns = [ColumnType(types.VARCHAR, b"\x50\0"), ColumnType(types.LONG), ColumnType(types.VARCHAR, b"\x50\0")]
    names = b"".join(packed(1) + name for name in (b"a", b"b", b"c"))
    fields = [(4, names), (9, packed(2) + packed(10))]
    optional = b"".join(bytes([kind]) + packed(len(field)) + field for kind, field in fields)
    parsed = parse_table_map(table_map(1, "s", "t", columns, optional))
    assert parsed.primary_key == (2,)


@pytest.mark.parametrize(
    "optional",
    [
        b"\4\3\1ab",  # fewer names than columns
        b"\x08\1\5",  # a key over column 5 of 2
        b"\1\0",  # no signs
        b"\4\x20\1a",  # a field beyond the event
    ],
)
def test_metadata_that_contradicts_the_columns(optional: bytes) -> None:
    """Metadata that does not fit the columns or the event raises Broken."""
    with pytest.raises(Broken):
        parse_table_map(table_map(1, "s", "t", [ColumnType(types.LONG)] * 2, optional))
