"""The rings bound a node's memory, for any amount of data and any speed of the client."""

from __future__ import annotations

import time

import pytest

from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry
from lab import MySQL, Node, follow
from lab.process import memory_mib
from tests.node.following import following
from tests.sampling import LONG

pytestmark = pytest.mark.real

TRANSACTIONS = 160 if LONG else 40
ROWS = 500  # a transaction
ROW_BYTES = 8000
RING_MIB = 16  # the default: 16384 units of 1024 bytes
SLOW_S = 0.02  # between batches, in the first half


def row_count(entry: Entry) -> int:
    if entry.entryType != ROWDATA:
        return 0
    return next((int(pair.value) for pair in entry.header.props if pair.key == "rowsCount"), 0)


@pytest.mark.nightly("tests/decode/test_plan_cache.py: plans; tests/server/test_hostile_peers.py: addresses and names")
def test_memory_stays_flat(mysql: MySQL, database: str) -> None:
    """160 MB (640 MB in long runs) pass through a ring of 16 MiB, and the node's memory hardly grows.

    It grows by less than four rings in the first half of the data and by less than one ring in the second.
    """
    mysql.execute(
        f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY AUTO_INCREMENT, v text)"
    )
    with Node({"example": follow(mysql)}) as node, following(node, tables=rf"{database}\.t") as client:
        mysql.execute(
            *[
                f"INSERT INTO {database}.t (v) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
                f" WHERE i < {ROWS}) SELECT REPEAT(CHAR(65 + i % 26), {ROW_BYTES}) FROM n"
            ]
            * TRANSACTIONS
        )
        before, began = memory_mib(node.pid), time.monotonic()
        seen, sampled = 0, list[tuple[float, float]]()
        while seen < TRANSACTIONS * ROWS:
            message = client.get_without_ack(2048, 500)
            seen += sum(map(row_count, message.entries))
            done = seen / (TRANSACTIONS * ROWS)
            sampled.append((done, memory_mib(node.pid)))
            if done < 0.5:
                time.sleep(SLOW_S)
            client.ack(message.id)
        took = time.monotonic() - began
    early = max(memory for done, memory in sampled if done < 0.5)
    late = max(memory for done, memory in sampled if done >= 0.5)
    megabytes = TRANSACTIONS * ROWS * ROW_BYTES / 1e6
    print(f"{megabytes:.0f} MB in {took:.1f} s; MiB: {before:.0f} before, then at most {early:.0f}, later {late:.0f}")
    assert len(sampled) > 20
    assert early - before < 4 * RING_MIB
    assert late - early < RING_MIB
