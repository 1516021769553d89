"""Binary values: each byte becomes a character of Latin-1, as in canal."""

from __future__ import annotations

import random
import struct

import pytest

from canal_ha.decode import types
from canal_ha.model.table import Column
from canal_ha.wire.proto.entry_protocol_pb2 import Entry, RowChange
from lab.dump import AnyTable, ColumnType, Dump, decoder, entries

BLOB = (ColumnType(types.LONG_BLOB, b"\4"),)


def texts(*values: bytes) -> list[str]:
    """Return the texts of rows with these values in their only column, a blob."""
    images = b"".join(b"\0" + struct.pack("<I", len(value)) + value for value in values)
    dump = Dump().format().begin().table(columns=BLOB).rows(30, images).xid()
    _, rows, _ = map(Entry.FromString, entries(decoder(AnyTable(Column("b", "longblob"))).feed(bytes(dump.data))))
    return [row.afterColumns[0].value for row in RowChange.FromString(rows.storeValue).rowDatas]


@pytest.mark.parametrize("high", [0.0, 0.02, 0.5, 1.0])
def test_every_length(high: float) -> None:
    """Blobs of 0 to 70,001 bytes, with few or many bytes beyond ASCII, become Latin-1 text."""
    chance = random.Random(high)
    values = [
        bytes(chance.randrange(128, 256) if chance.random() < high else chance.randrange(128) for _ in range(size))
        for size in (*range(140), 255, 256, 1024, 5000, 70_001)
    ]
    assert texts(*values) == [value.decode("latin-1") for value in values]


def test_every_byte_at_every_place() -> None:
    """Each byte at each of 25 places, among ASCII bytes or others, becomes Latin-1 text."""
    values = [
        around * place + bytes([byte]) + around * (24 - place)
        for byte in range(256)
        for place in range(25)
        for around in (b"a", b"\xe9")
    ]
    assert texts(*values) == [value.decode("latin-1") for value in values]
