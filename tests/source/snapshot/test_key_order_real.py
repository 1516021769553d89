"""Chunks by keys whose texts a server compares in another order than their bytes: by the index, and without a gap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from ipaddress import IPv4Address, IPv6Address
from random import Random
from uuid import UUID

import pytest

from canal_ha.model.snapshot import SnapshotRange
from canal_ha.source.snapshot.result_set import values_of
from canal_ha.source.snapshot.source import SnapshotSource
from lab import SqlServer
from tests.source.reading import config_of

pytestmark = pytest.mark.real

ROWS = 1500
BITS = ("BIT(64)", "BIT(7)")
KINDS = [*(("mysql", kind) for kind in BITS), *(("mariadb", kind) for kind in (*BITS, "INET4", "INET6", "UUID"))]


def uuid(random: Random) -> str:
    """Return a UUID of any version or of none, often near others, because the version decides the order."""
    text = f"{random.getrandbits(128) & random.choice((-1, 0xFF << 64, 0xFFFF << 72, 0xF << 96 | 0xF << 76)):032x}"
    version, variant = random.choice("0123456789abcdef"), random.choice("08f")
    return f"'{UUID(text[:12] + version + text[13:16] + variant + text[17:])}'"


def values(kind: str, random: Random) -> set[str]:
    """Return different values of a type as they stand in SQL."""
    make: dict[str, Callable[[], str]] = {
        "BIT(64)": lambda: str(random.getrandbits(random.choice((8, 40, 64)))),
        "BIT(7)": lambda: str(random.getrandbits(7)),
        "INET4": lambda: f"'{IPv4Address(random.getrandbits(32))}'",
        "INET6": lambda: f"'{IPv6Address(random.getrandbits(128) >> random.choice((0, 64, 96)) | 0xFFFF << 32)}'",
        "UUID": lambda: uuid(random),
    }
    return {make[kind]() for _ in range(ROWS)}


def packets(data: bytes) -> list[bytes]:
    """Return the rows of a result set without the numbers of their packets."""
    found, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 3], "little")
        found.append(data[at + 4 : end])
        at = end
    return found


@pytest.mark.parametrize("second", [False, True], ids=["alone", "with another column"])
@pytest.mark.parametrize(("source_server", "kind"), KINDS, indirect=["source_server"])
def test_a_key_of_addresses_or_bits_is_read_by_its_index(
    source_server: SqlServer, database: str, kind: str, second: bool
) -> None:
    """Each chunk sorted the whole rest of the table, so that a large table did not end."""
    found = [f"({value}, {n})" for value in sorted(values(kind, Random(7))) for n in range(2 if second else 1)]
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (k {kind} NOT NULL, n INT, PRIMARY KEY (k{', n' * second}))",
        f"INSERT IGNORE INTO {database}.t VALUES {', '.join(found)}",  # MariaDB takes not every UUID
        f"ANALYZE TABLE {database}.t",
    )
    seen: list[bytes] = []
    source = SnapshotSource(
        config_of(source_server),
        lambda schema, name, server: str(source_server.query(f"SHOW CREATE TABLE {schema}.{name}")[0]["Create Table"]),
    )
    with closing(source):
        target, part = source.target(database, "t"), SnapshotRange(0)
        key = target.key
        assert key is not None
        limit = 37
        while True:
            rows = source.read(target, part, "", limit, 1 << 20, source.end(), lambda seconds: None).rows
            seen += packets(bytes(rows.whole().packets))
            if rows.count < limit:
                break
            part = SnapshotRange(0, key.texts(values_of(rows.whole())))
    [there] = source_server.query(f"SELECT COUNT(*) AS n FROM {database}.t")
    assert len(seen) == len(set(seen)) == int(there["n"]) > len(found) // 2
    [plan] = source_server.query(
        f"EXPLAIN FORMAT=TRADITIONAL SELECT * FROM {database}.t FORCE INDEX (`{key.index}`)"
        f" WHERE {key.condition(part.after)} ORDER BY {key.order} LIMIT {limit}"
    )
    assert (plan["type"], plan["key"]) == ("range", "PRIMARY")
    assert "filesort" not in str(plan["Extra"])
