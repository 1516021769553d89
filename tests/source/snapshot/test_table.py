"""The table maps of synthetic events are those that the servers wrote for the same definitions."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from canal_ha.decode import types
from canal_ha.decode.charsets import charset_of
from canal_ha.decode.history.definitions import columns_of
from canal_ha.decode.table_map import TableMap, parse_table_map, table_map_body
from canal_ha.model.table import TableSchema
from canal_ha.source.connection.flavor import flavor
from canal_ha.source.snapshot.table import SnapshotTable
from lab.golden import binlog, definitions

VERSIONS = {"mysql9": "9.7.4", "mariadb10.11": "10.11.19-MariaDB"}
PLAIN = {types.VARCHAR_COMPRESSED: types.VARCHAR, types.BLOB_COMPRESSED: types.BLOB}


def recorded(tag: str) -> Iterator[TableMap]:
    """Yield every table map of a recorded file."""
    file = binlog(tag)
    at = 4
    while at < len(file):
        size = struct.unpack_from("<I", file, at + 9)[0]
        if file[at + 4] == 19:
            yield parse_table_map(file[at + 19 : at + size - 4], mariadb=tag.startswith("mariadb"))
        at += size


def facts(table_map: TableMap) -> dict[str, object]:
    """Return what decides how rows are read; compressed columns as others."""
    headers = [code == types.VARCHAR_COMPRESSED for code in table_map.types]
    return {
        "types": bytes(PLAIN.get(code, code) for code in table_map.types),
        "metas": tuple(meta - more for meta, more in zip(table_map.metas, headers, strict=True)),
        "nullable": table_map.nullable,
        "unsigned": table_map.unsigned,
        "charsets": [charset_of(collation) for collation in table_map.collations()],
        "primary key": sorted(table_map.primary_key or ()),  # nobody reads its order
    }


@pytest.mark.parametrize("tag", VERSIONS)
def test_maps_are_those_of_the_server(tag: str) -> None:
    """For every recorded definition that a recorded event fits, the synthetic event tells the same of the columns."""
    server = flavor({"version": VERSIONS[tag], "binlog_row_metadata": "FULL"})
    maps = {(one.name, one.names): one for one in recorded(tag)}
    compared = 0
    for name, definition in definitions(tag).items():
        columns = columns_of(definition)
        written = maps.get((name.partition("/")[2], tuple(column.name for column in columns)))
        if written is None or not columns:
            continue
        schema = TableSchema(written.schema, written.name, columns)
        made = SnapshotTable(schema, server, [columns[0].name]).table_map
        read = parse_table_map(table_map_body(made), mariadb=server.mariadb)
        assert facts(read) == facts(made)
        expected = facts(written)
        if not any(column.key for column in columns):
            expected["primary key"] = []  # the server names another key
        if facts(made)["types"] == expected["types"]:  # else the definition is a later one
            assert facts(made) == expected, name
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("tag", VERSIONS)
def test_maps_read_as_they_are_written(tag: str) -> None:
    """What `table_map_body` writes, `parse_table_map` reads."""
    for written in recorded(tag):
        read = parse_table_map(table_map_body(written), mariadb=written.mariadb)
        assert (read.types, read.metas, read.nullable) == (written.types, written.metas, written.nullable)
        assert (read.schema, read.name, read.table_id) == (written.schema, written.name, written.table_id)
