"""Streams with equal filters on real servers: they share one dump, leave it, come back, and get every row once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Event

import pymysql
import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from lab import Node, SqlServer, follow
from tests.node.following import column, destination_of, following, read
from tests.node.site import Site
from tests.node.test_snapshot_of_client import snapshots
from tests.waiting import until

pytestmark = pytest.mark.real

CLIENTS = range(1001, 1009)
PADDING = 40_000  # bytes of a row that soon fills the ring of a client that does not acknowledge


@pytest.fixture(scope="module")
def site(source_server: SqlServer) -> Iterator[Site]:
    """Yield a destination with a small ring, and one that shares no dump."""
    schema = f"shared_{os.getpid()}_{source_server.flavor}"
    source_server.execute(f"CREATE DATABASE {schema}")
    settings = {
        "canal.instance.filter.regex": rf"{schema}\\..*",
        "canal.instance.memory.buffer.size": "256",
        "canal.instance.stream.idle": "2",
    }
    destinations = {
        "example": follow(source_server, settings),
        "apart": follow(source_server, {**settings, "canal.instance.stream.shared": "false"}),
    }
    with Node(destinations) as node:
        yield Site(source_server, node, schema)


def replicas(site: Site, destination: str = "example") -> list[str]:
    """Return the names of the destination's dumps, as the source lists them, without their common beginning."""
    statement = "SHOW REPLICAS" if site.server.flavor == "mysql" else "SHOW SLAVE HOSTS"
    begin = f"canal-ha/{destination}/"
    hosts = [str(row["Host"]) for row in site.server.query(statement)]
    return sorted(host.removeprefix(begin) for host in hosts if host.startswith(begin))


def sharing(site: Site, destination: str = "example") -> set[int]:
    """Return the client ids whose streams share a dump."""
    return {stream["client_id"] for stream in destination_of(site.node, destination)["streams"] if stream["shared"]}


def follow_all(stack: ExitStack, site: Site, table: str, ids: range = CLIENTS) -> list[SimpleConnector]:
    """Return clients with equal filters. Their streams share a dump after the first rows."""
    tables = site.table(table)
    clients = [stack.enter_context(following(site.node, "example", client_id, tables)) for client_id in ids]
    site.insert(table, 0)
    for client in clients:
        assert column(read(client, 1)) == [0]
    until(lambda: sharing(site) >= set(ids), what="sharing", seconds=20)
    return clients


def test_eight_clients_cost_the_source_one_dump(site: Site) -> None:
    """Streams at the tip share a dump; each client gets every row once, in order, and so after the last one left."""
    with ExitStack() as stack:
        clients = follow_all(stack, site, "eight")
        until(lambda: [name.split("/")[0] for name in replicas(site)] == ["shared"], what="one dump", seconds=20)
        for first in range(1, 61, 3):
            site.insert("eight", *range(first, first + 3))
        for client in clients:
            assert column(read(client, 60)) == list(range(1, 61))
        until(lambda: not sharing(site) & set(CLIENTS), what="parking", seconds=20)
        until(lambda: not replicas(site), what="the end of the shared dump", seconds=20)
        site.insert("eight", 61)
        assert column(read(clients[0], 1)) == [61]


def test_streams_with_other_filters_have_their_own_dumps(site: Site) -> None:
    """Only streams that decode the same entries share a dump. The switch stream.shared turns it off."""
    tables = site.table("mine")
    with (
        following(site.node, "example", 1, tables) as one,
        following(site.node, "example", 2, tables + "|nothing") as other,
        following(site.node, "apart", 1, tables) as apart,
        following(site.node, "apart", 2, tables) as also_apart,
    ):
        for number in range(40):
            site.insert("mine", number)
            time.sleep(0.02)
        for client in (one, other, apart, also_apart):
            assert column(read(client, 40)) == list(range(40))
        assert not sharing(site)
        assert not sharing(site, "apart")


def test_a_stream_whose_snapshot_is_paused_has_its_own_dump(site: Site) -> None:
    """A shared dump does not tell it which statements pass, and one may swap a table of the snapshot."""
    with ExitStack() as stack:
        clients = follow_all(stack, site, "paused", range(21, 24))
        snapshot = snapshots(site.node, 21)
        snapshot.start([f"{site.schema}.paused"])
        snapshot.pause()
        clients[0].disconnect()
        clients[0] = stack.enter_context(following(site.node, "example", 21, rf"{site.schema}\.paused"))
        shared: set[int] = set()
        for number in range(1, 40):
            site.insert("paused", number)
            for client in clients:
                while column(read(client, 1))[-1] != number:  # rows of before the pause may come again
                    pass
            shared |= sharing(site)
        assert shared & {21, 22, 23} == {22, 23}


def test_a_client_that_never_acknowledges_delays_no_other(site: Site) -> None:
    """A stream with a full ring leaves the shared dump, and the others go on. It gets its rows when it acknowledges."""
    with ExitStack() as stack:
        stuck, *others = follow_all(stack, site, "stuck", range(1001, 1004))
        site.server.execute(f"ALTER TABLE {site.schema}.stuck MODIFY v longtext")
        for client in (stuck, *others):
            assert len(read(client, 1)) == 1  # the statement
        rows = 30
        for number in range(1, rows + 1):
            site.server.execute(f"INSERT INTO {site.schema}.stuck VALUES ({number}, REPEAT('x', {PADDING}))")
            for client in others:
                assert column(read(client, 1, seconds=3)) == [number]
        until(lambda: sharing(site) & {1001, 1002, 1003} == {1002, 1003}, what="the stuck stream has left", seconds=20)
        assert column(read(stuck, rows)) == list(range(1, rows + 1))


def test_rows_come_once_when_the_source_ends_the_shared_dump(site: Site) -> None:
    """Each stream goes on from its own place, by itself, and later they share a dump again."""
    with ExitStack() as stack:
        clients = follow_all(stack, site, "killed", range(1001, 1005))
        for first in range(1, 41, 2):
            site.insert("killed", first, first + 1)
            if first in (11, 31):
                kill_dumps(site.server)
        for client in clients:
            assert column(read(client, 40)) == list(range(1, 41))
        last = 40

        def shares_again() -> bool:
            nonlocal last
            last += 1
            site.insert("killed", last)
            for client in clients:
                assert column(read(client, 1)) == [last]
            return sharing(site) == {1001, 1002, 1003, 1004}

        until(shares_again, what="sharing again", seconds=40)


def test_a_roll_back_and_a_new_filter_reach_one_stream_alone(site: Site) -> None:
    """One client rolls back and then subscribes with another filter, while the others share on."""
    with ExitStack() as stack:
        one, *others = follow_all(stack, site, "again", range(1001, 1004))
        site.insert("again", 1, 2)
        until(lambda: one.get_without_ack(1000, 100).entries, what="a batch")
        one.rollback()
        assert column(read(one, 2)) == [1, 2]
        one.subscribe(rf"{site.schema}\.again|nothing")
        site.insert("again", 3)
        assert column(read(one, 1)) == [3]
        for client in others:
            assert column(read(client, 3)) == [1, 2, 3]
        assert sharing(site) & {1001, 1002, 1003} == {1002, 1003}


def test_streams_that_come_and_go_under_load_get_every_row_once(site: Site) -> None:
    """Clients stall and go on at different times, and dumps are killed, while rows keep coming."""
    total = 600
    done = Event()

    def consume(client_id: int) -> list[int]:
        got: list[int] = []
        with following(site.node, "example", client_id, tables) as client:
            ready.append(client_id)
            deadline = time.monotonic() + 60
            while len(got) < total and time.monotonic() < deadline:
                message = client.get_without_ack(7 + client_id % 5, 100)
                if message:
                    got += column(row for row in rows_of(message.entries) if row.table)
                    if len(got) % (40 + client_id % 7) == 0 and not done.is_set():
                        time.sleep(0.4)
                    client.ack(message.id)
        return got

    tables = site.table("busy")
    site.server.execute(f"ALTER TABLE {site.schema}.busy MODIFY v longtext")
    ready: list[int] = []
    with ThreadPoolExecutor(6) as threads:
        consumers = [threads.submit(consume, client_id) for client_id in range(1001, 1007)]
        until(lambda: len(ready) == 6, what="six clients")
        was_shared = 0
        with site.server.connect(database=site.schema) as connection, connection.cursor() as cursor:
            for number in range(total):
                size = 20_000 if number % 50 == 0 else 10
                cursor.execute(f"INSERT INTO busy VALUES ({number}, REPEAT('x', {size}))")
                time.sleep(0.01)
                if number % 200 == 150:
                    was_shared = max(was_shared, len(sharing(site)))
                    kill_dumps(site.server)
        done.set()
        for consumer in consumers:
            assert consumer.result() == list(range(total))
    assert was_shared >= 2


def kill_dumps(server: SqlServer) -> None:
    """End every dump of the source."""
    for row in server.query("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"):
        with suppress(pymysql.err.OperationalError):  # one that has ended meanwhile
            server.execute(f"KILL {row['id']}")
