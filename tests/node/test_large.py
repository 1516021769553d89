"""Large values, a large transaction for a slow client and many tiny transactions: complete, in bounded memory."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canal_ha.client.rows import rows_of
from lab import MySQL, Node, follow
from lab.process import memory_mib
from tests.node.following import following

pytestmark = pytest.mark.real

MIB = 1024 * 1024
RSS_LIMIT_MIB = 400


def forget_peak(node: Node) -> None:
    """Reset the peak that peak_mib() returns."""
    Path(f"/proc/{node.pid}/clear_refs").write_text("5")


def peak_mib(node: Node) -> float:
    """Return the node's peak memory since the last forget_peak()."""
    return memory_mib(node.pid, "VmHWM")


@pytest.fixture(scope="module")
def node(mysql: MySQL) -> Iterator[Node]:
    with Node({"example": follow(mysql)}) as running:
        yield running


def test_a_value_of_64_mib(mysql: MySQL, node: Node, database: str) -> None:
    """A value of more than four 16 MiB packets arrives in one entry with every byte; an ordinary row follows."""
    limit = mysql.query("SELECT @@GLOBAL.max_allowed_packet AS held")[0]["held"]
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, v longblob)",
        f"SET GLOBAL max_allowed_packet = {256 * MIB}",
    )
    try:
        mysql.execute(f"INSERT INTO {database}.t VALUES (1, REPEAT(0x004A7F80, {16 * MIB}))")
        mysql.execute(f"INSERT INTO {database}.t VALUES (2, 'small')")
    finally:
        mysql.execute(f"SET GLOBAL max_allowed_packet = {limit}")
    found: list[dict[str, Any]] = []
    began = time.monotonic()
    with following(node, tables=rf"{database}\.t") as client:
        while len(found) < 2 and time.monotonic() - began < 60:
            message = client.get_without_ack(1000, 500)
            found += [row.after for row in rows_of(message.entries) if row.table == "t" and row.after]
            client.ack(message.id)
    expected = hashlib.sha256(b"\x00\x4a\x7f\x80" * (16 * MIB)).digest()
    assert [(row["id"], hashlib.sha256(bytes(row["v"])).digest() == expected) for row in found] == [
        (1, True),
        (2, False),
    ]
    assert peak_mib(node) < RSS_LIMIT_MIB
    print(f"64 MiB in {time.monotonic() - began:.1f} s, node's peak {peak_mib(node):.0f} MiB")


@pytest.mark.nightly("tests/store/test_ring.py: segments larger than the ring; the test above: memory")
def test_one_transaction_of_200_000_rows(mysql: MySQL, database: str) -> None:
    """The node reads the transaction in pieces, so a slow client delays the source and does not fill the memory."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(60))")
    with Node({"example": follow(mysql)}) as node, following(node, tables=rf"{database}\.t") as client:
        mysql.execute(
            "SET SESSION cte_max_recursion_depth = 200000",
            f"INSERT INTO {database}.t WITH RECURSIVE n (i) AS"
            " (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i, CONCAT('value number ', i) FROM n",
        )
        before, began = peak_mib(node), time.monotonic()
        expected, kinds = 1, list[int]()
        while not kinds or kinds[-1] != 3:
            message = client.get_without_ack(4096, 500)
            kinds += [entry.entryType for entry in message.entries]
            for row in rows_of(message.entries):
                assert row.after is not None
                assert row.after["id"] == expected
                expected += 1
            time.sleep(0.1)
            client.ack(message.id)
        assert expected == 200_001
        assert (kinds.count(1), kinds.count(3)) == (1, 1)
        assert peak_mib(node) < RSS_LIMIT_MIB
        took = time.monotonic() - began
        print(f"200,000 rows in {took:.1f} s; the node's memory: {before:.0f} MiB before, {peak_mib(node):.0f} at most")


def test_5_000_tiny_transactions(mysql: MySQL, node: Node, database: str) -> None:
    """Each row arrives once and in order, in its own transaction."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    with following(node, client_id=1002, tables=rf"{database}\.t") as client:
        with mysql.connect(database=database) as connection, connection.cursor() as cursor:
            for number in range(5000):
                cursor.execute(f"INSERT INTO t VALUES ({number})")
        forget_peak(node)
        began = time.monotonic()
        ids, ends = list[Any](), 0
        while ends < 5000 or len(ids) < 5000:
            message = client.get_without_ack(1000, 500)
            ends += sum(entry.entryType == 3 for entry in message.entries)
            ids += [row.after["id"] for row in rows_of(message.entries) if row.table and row.after]
            client.ack(message.id)
        assert ids == list(range(5000))
        print(f"{mysql.flavor}: 5,000 transactions in {time.monotonic() - began:.1f} s, {peak_mib(node):.0f} MiB")
