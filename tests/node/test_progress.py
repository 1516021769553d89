"""Clients that acknowledge only whole transactions read a backlog of real servers, with rings of many sizes."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import Node, SqlServer, follow
from tests.node.following import column, following, stream_of
from tests.node.site import Site
from tests.waiting import until

pytestmark = pytest.mark.real

TRANSACTIONS = 400
ROWS = 90  # in the one large transaction in the middle
RINGS = {
    f"{mode.lower()}{size}": {"canal.instance.memory.batch.mode": mode, "canal.instance.memory.buffer.size": str(size)}
    for mode in ("MEMSIZE", "ITEMSIZE")
    for size in (1, 16, 64, 1024)
}


@pytest.fixture(scope="module")
def site(source_server: SqlServer) -> Iterator[Site]:
    """Yield one destination for each ring. The backlog is written before any client subscribes."""
    schema = f"progress_{os.getpid()}"
    source_server.execute(f"CREATE DATABASE {schema}")
    start = source_server.position()
    settings = {
        "canal.instance.master.journal.name": start[0],
        "canal.instance.master.position": str(start[1]),
        "canal.instance.memory.buffer.memunit": "64",
        "canal.instance.alarm.blocked": "1",
    }
    site = None
    with Node({name: follow(source_server, {**settings, **ring}) for name, ring in RINGS.items()}) as node:
        site = Site(source_server, node, schema)
        site.table("backlog")
        with source_server.connect(autocommit=True) as connection, connection.cursor() as cursor:
            for number in range(TRANSACTIONS):
                if number == TRANSACTIONS // 2:
                    many = ", ".join(f"({TRANSACTIONS + extra}, 'x')" for extra in range(ROWS))
                    cursor.execute("BEGIN")
                    for row in many.split("), "):
                        cursor.execute(f"INSERT INTO {schema}.backlog VALUES {row.rstrip(')')})")
                    cursor.execute("COMMIT")
                cursor.execute(f"INSERT INTO {schema}.backlog VALUES ({number}, 'x')")
        yield site


def read_whole_transactions(client: SimpleConnector, batch_size: int) -> list[int]:
    """Return the ids of the backlog. A batch is acknowledged when every transaction in it has ended."""
    ids: list[int] = []
    in_flight: deque[tuple[int, int]] = deque()
    entries = ended = 0
    deadline = time.monotonic() + 60
    while len(ids) < TRANSACTIONS + ROWS or in_flight:
        assert time.monotonic() < deadline, f"{len(ids)} rows came, batches {list(in_flight)} are in flight"
        message = client.get_without_ack(batch_size, 50)
        if not message:
            continue
        for entry in message.entries:
            entries += 1
            if entry.entryType == pb.TRANSACTIONEND:
                ended = entries
        ids += column(rows_of(message.entries))
        in_flight.append((message.id, entries))
        while in_flight and in_flight[0][1] <= ended:
            client.ack(in_flight.popleft()[0])
    return ids


@pytest.mark.parametrize("ring", RINGS)
@pytest.mark.parametrize("batch_size", [1, 7, 4096])
def test_a_backlog_of_small_transactions_is_read_to_its_end(site: Site, ring: str, batch_size: int) -> None:
    """Every row arrives once and in order, even if the ring is smaller than the backlog or one transaction."""
    client_id = 2000 + batch_size % 1000
    half = TRANSACTIONS // 2
    expected = [*range(half), *range(TRANSACTIONS, TRANSACTIONS + ROWS), *range(half, TRANSACTIONS)]
    with following(site.node, ring, client_id, rf"{site.schema}\.backlog") as client:
        assert read_whole_transactions(client, batch_size) == expected
        client.unsubscribe()


def test_a_ring_full_of_unacknowledged_batches_is_an_alarm(site: Site) -> None:
    """A client that acknowledges nothing raises an alarm in log and status; its ACKs end the alarm."""
    with following(site.node, "memsize16", 1003, rf"{site.schema}\.backlog") as client:
        taken: list[int] = []
        while (message := client.get_without_ack(4096, 500)) or not taken:
            if message:
                taken.append(message.id)
        until(lambda: stream_of(site.node, "memsize16", 1003)["alarms"] == ["blocked"], what="the alarm", seconds=10)
        assert "alarm.blocked" in site.node.log_file("memsize16")
        for batch_id in taken:
            client.ack(batch_id)
        until(lambda: stream_of(site.node, "memsize16", 1003)["alarms"] == [], what="the end of it", seconds=10)
        client.unsubscribe()
