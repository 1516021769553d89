"""A master, a standby that replicates from it, a writer, and a client that records the rows it gets."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import pymysql

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from canal_ha.errors import CanalError
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from lab.replica import Replica
from tests.waiting import until

STANDBY_ID = 2
SWITCHING = {
    "canal.instance.detecting.enable": "true",
    "canal.instance.detecting.sql": "select 1",
    "canal.instance.detecting.interval.time": "0.5",
    "canal.instance.detecting.retry.threshold": "2",
    "canal.instance.detecting.heartbeatHaEnable": "true",
}


@dataclass(frozen=True)
class Pair:
    """A master and a standby with a table shop.t (id, word). gtid: whether the standby replicates by GTID."""

    master: SqlServer
    standby: SqlServer
    gtid: bool

    def node(self, properties: dict[str, str] | None = None, *, master: str = "", standby: bool = True) -> Node:
        """Return a node that reads from the master.

        master: another address of the master.
        standby: whether the node knows the standby.
        """
        settings = {"canal.instance.gtidon": str(self.gtid).lower(), **(properties or {})}
        if standby:
            settings["canal.instance.standby.address"] = self.standby.address
        if master:
            settings["canal.instance.master.address"] = master
        return Node({"example": follow(self.master, settings)})

    @property
    def replica(self) -> Replica:
        """The replicating side."""
        return Replica(self.standby)

    def caught_up(self) -> None:
        """Wait until the standby has applied all that the master has written."""
        until(lambda: self.replica.position() == self.master.position(), what="the standby to catch up")

    def received(self) -> bool:
        """Return whether the standby has received all that the master has written."""
        return self.replica.received() == self.master.position()

    def cut_off(self) -> None:
        """Stop replication at once."""
        self.replica.stop()

    def lag(self, *, over: bool = False) -> None:
        """Make the standby receive events without applying them. over: apply them again."""
        (self.replica.start if over else self.replica.stop)("SQL_THREAD")

    def promote(self) -> None:
        """Wait until the standby has applied all events that it received, then stop replication."""
        self.replica.promote()

    def ids(self) -> list[int]:
        """Return the ids of the rows that the standby has."""
        return [int(row["id"]) for row in self.standby.query("SELECT id FROM shop.t ORDER BY id")]


@contextmanager
def paired(make: type[SqlServer], *, gtid: bool, metadata: Any = "FULL") -> Iterator[Pair]:
    """Start a master and a standby that replicates from it; yield them when both have shop.t.

    Both log what they replicate.
    """
    updates = "--log-replica-updates=ON" if make.flavor == "mysql" else "--log-slave-updates=ON"
    by_gtid = gtid or make.flavor == "mariadb"
    master = make(gtid=by_gtid, row_metadata=metadata, extra=[updates])
    standby = make(gtid=by_gtid, row_metadata=metadata, server_id=STANDBY_ID, extra=[updates])
    with ExitStack() as stack:
        threads = [threading.Thread(target=server.start) for server in (master, standby)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stack.enter_context(master)
        stack.enter_context(standby)
        pair = Pair(master, standby, gtid)
        # give the standby's own journals other names and offsets than the master's
        standby.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
        pair.replica.follow(master.port, None if gtid else master.position())
        master.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INTEGER PRIMARY KEY, word VARCHAR(20))")
        pair.caught_up()
        yield pair


@dataclass
class Writer:
    """Inserts rows with ascending ids, each in its own transaction: with `write`, or in a thread until the block ends.

    skew_s: how far its session's clock is from the server's.
    """

    server: SqlServer
    first: int
    skew_s: int = 0
    written: list[int] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def write(self, count: int) -> None:
        """Insert `count` rows."""
        with self.server.connect() as connection, connection.cursor() as cursor:
            for _ in range(count):
                self._one(cursor)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread
        self._thread.join()

    def _run(self) -> None:
        with suppress(pymysql.MySQLError), self.server.connect() as connection, connection.cursor() as cursor:
            while not self._stop.wait(0.002):
                self._one(cursor)

    def _one(self, cursor: Any) -> None:
        number = self.first + len(self.written)
        if self.skew_s:
            cursor.execute(f"SET timestamp = {time.time() + self.skew_s:.6f}")
        cursor.execute(f"INSERT INTO shop.t VALUES ({number}, 'word {number % 3}')")
        self.written.append(number)


class Getting:
    """A client thread that acknowledges every batch. ids: of the rows it got, in order of arrival."""

    def __init__(self, node: Node) -> None:
        self.ids: list[int] = []
        self.problems: list[str] = []
        self._node = node
        self._subscribed = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Return when the client has its first position: it gets only what is written from then on."""
        self._thread.start()
        if not self._subscribed.wait(60):
            self.__exit__()
            raise AssertionError(f"no subscription: {self.problems[-3:]}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(OSError), SimpleConnector(LOOPBACK, self._node.port, "example") as client:
                try:
                    client.subscribe(r"shop\..*")
                    self._subscribed.set()
                    while not self._stop.is_set():
                        self._get(client)
                except CanalError as error:
                    self.problems.append(str(error))
                    time.sleep(0.05)

    def _get(self, client: SimpleConnector) -> None:
        message = client.get_without_ack(100, 100)
        if message:
            found = [int(row.after["id"]) for row in rows_of(message.entries) if row.after is not None]  # type: ignore[arg-type]  # ids are integers
            client.ack(message.id)
            self.ids += found

    def upto(self, number: int, *, seconds: float = 60.0) -> None:
        """Wait for the row with this id."""
        until(lambda: number in self.ids, seconds=seconds, what=f"row {number} (problems: {self.problems[-3:]})")


@dataclass(frozen=True)
class Compared:
    """Differences between the row ids that a client got and those that it should get."""

    lost: list[int]
    repeated: list[int]
    out_of_order: list[tuple[int, int]]

    @classmethod
    def of(cls, got: list[int], wanted: list[int]) -> Self:
        """Compare two lists of ids; only the first arrival of an id counts for the order.

        wanted: ascending, each once.
        """
        first_time = list(dict.fromkeys(got))
        return cls(
            sorted(set(wanted) - set(got)),
            sorted(number for number, count in Counter(got).items() if count > 1),
            [(one, other) for one, other in pairwise(first_time) if other < one],
        )


NOTHING = Compared([], [], [])
