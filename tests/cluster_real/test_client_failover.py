"""A cluster client through fail-overs of real nodes: every row arrives, in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise

import pytest

from canal_ha.client.async_cluster import AsyncClusterConnector
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.rows import rows_of
from lab import MariaDB, Node, ZooKeeper, follow
from tests.waiting import until

pytestmark = pytest.mark.real

SESSION_MS = 3000


class Reader(threading.Thread):
    """A client thread that reads ids and acknowledges each batch until finish().

    seen: (time, id) in order of arrival.
    """

    def __init__(self, hosts: str, filter_text: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[tuple[float, int]] = []
        self.error: BaseException | None = None
        self.connector = ClusterConnector(hosts, "example", zk_session_timeout_ms=SESSION_MS, filter=filter_text)
        self.connector.connect()
        self.connector.subscribe(filter_text)
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                message = self.connector.get_without_ack(1000, 100)
                now = time.monotonic()
                self.seen += [(now, int(str(row.after["id"]))) for row in rows_of(message.entries) if row.after]
                self.connector.ack(message.id)
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        self._ending.set()
        self.join(20)
        self.connector.disconnect()

    def until_id(self, wanted: int, seconds: float = 40.0) -> None:
        """Wait until this row has arrived."""
        until(lambda: self.error is not None or wanted in {number for _, number in self.seen[-5000:]}, seconds=seconds)
        assert self.error is None


class Writer(threading.Thread):
    """A thread that inserts ids 1, 2, 3, …, each in its own transaction, until finish()."""

    def __init__(self, server: MariaDB, table: str) -> None:
        super().__init__(daemon=True)
        self.last = 0
        self._server = server
        self._table = table
        self._ending = threading.Event()

    def run(self) -> None:
        with self._server.connect() as connection, connection.cursor() as cursor:
            while not self._ending.is_set():
                cursor.execute(f"INSERT INTO {self._table} VALUES (%s)", (self.last + 1,))
                self.last += 1
                time.sleep(0.005)

    def finish(self) -> None:
        self._ending.set()
        if self.ident is not None:
            self.join(10)


@pytest.fixture
def nodes(mariadb: MariaDB, zookeeper: ZooKeeper, database: str) -> Iterator[tuple[Node, Node]]:
    """Two nodes that can run `example`."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id BIGINT PRIMARY KEY)")
    hosts = f"{zookeeper.hosts}/failover{time.time_ns()}"
    with ExitStack() as stack:
        yield tuple(  # type: ignore[misc] # two of them
            stack.enter_context(
                Node(
                    {"example": follow(mariadb)},
                    zk_servers=hosts,
                    name=f"node{number}",
                    properties={"canal.zookeeper.session.timeout": str(SESSION_MS)},
                )
            )
            for number in (1, 2)
        )


def hosts_of(node: Node) -> str:
    """Return the node's canal.zkServers."""
    text = (node.conf / "canal.properties").read_text()
    return next(line.partition("=")[2].strip() for line in text.splitlines() if line.startswith("canal.zkServers"))


def gap_s(reader: Reader, since: float) -> float:
    """Return the longest time without rows after `since`."""
    moments = [since, *(at for at, _ in reader.seen if at > since)]
    return max(after - before for before, after in pairwise(moments))


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
def test_every_row_through_a_fail_over(nodes: tuple[Node, Node], mariadb: MariaDB, database: str, how: str) -> None:
    """The client continues on the other node when the running one is killed, stopped or frozen under load.

    Every row arrives, and repeated rows come in one run. Rows pause for at most the session time-out and 3 s, or 1.5 s
    after an orderly stop.
    """
    reader, writer = Reader(hosts_of(nodes[0]), rf"{database}\..*"), Writer(mariadb, f"{database}.t")
    reader.start()
    writer.start()
    try:
        reader.until_id(100)
        address = reader.connector.node
        running = next(node for node in nodes if node.address == address)
        began = time.monotonic()
        {"kill": running.kill, "stop": running.stop, "pause": running.pause}[how]()
        until(lambda: reader.connector.node not in (None, address), seconds=30.0, what="the fail-over")
        reader.until_id(writer.last + 100)
        writer.finish()
        reader.until_id(writer.last)
    finally:
        writer.finish()
        reader.finish()
        for node in nodes:
            node.resume()
    ids = [number for _, number in reader.seen]
    first: list[int] = list(dict.fromkeys(ids))
    assert first == list(range(first[0], writer.last + 1))
    back = [index for index in range(1, len(ids)) if ids[index] <= ids[index - 1]]
    assert len(back) <= 1
    assert all(ids[index] == ids[index - 1] + 1 for index in range(1, len(ids)) if index not in back)
    print(f"{how}: {gap_s(reader, began - 0.5):.2f} s without rows, {len(ids) - len(first)} rows again")
    assert gap_s(reader, began - 0.5) < (1.5 if how == "stop" else SESSION_MS / 1000 + 3.0)


def test_clients_on_an_event_loop_follow_and_take_turns(
    nodes: tuple[Node, Node], mariadb: MariaDB, database: str
) -> None:
    """Two AsyncClusterConnectors of one client id: one is active, the other stands by.

    The active one continues on the other node when the running one is killed. When it leaves, the other becomes active
    and goes on. Every row arrives in order; rows come again in two runs at most.
    """
    writer = Writer(mariadb, f"{database}.t")
    seen: list[int] = []

    async def read(connector: AsyncClusterConnector) -> None:
        async for message in connector:
            seen.extend(int(str(row.after["id"])) for row in rows_of(message) if row.after)
            await connector.ack(message.id)

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.02)

    async def program() -> None:
        first, second = (
            AsyncClusterConnector(
                hosts_of(nodes[0]), "example", zk_session_timeout_ms=SESSION_MS, filter=rf"{database}\..*"
            )
            for _ in range(2)
        )
        async with second, first:
            await wait(lambda: first.active != second.active)
            active, waits = (first, second) if first.active else (second, first)
            await wait(lambda: waits.standing_by is not None)
            writer.start()
            readers = {each: asyncio.create_task(read(each)) for each in (active, waits)}
            await wait(lambda: len(seen) > 100)
            address = active.node
            next(node for node in nodes if node.address == address).kill()
            await wait(lambda: active.node not in (None, address))
            behind = writer.last
            await wait(lambda: bool(seen) and max(seen) > behind + 100)
            assert not waits.active
            readers[active].cancel()
            await active.disconnect()
            await wait(lambda: waits.active)
            behind = writer.last
            await wait(lambda: max(seen) > behind)
            writer.finish()
            await wait(lambda: max(seen) == writer.last)
            readers[waits].cancel()
            await asyncio.gather(*readers.values(), return_exceptions=True)

    try:
        asyncio.run(program())
    finally:
        writer.finish()
    first_seen = list(dict.fromkeys(seen))
    assert first_seen == list(range(first_seen[0], writer.last + 1))
    assert sum(after <= before for before, after in pairwise(seen)) <= 2
