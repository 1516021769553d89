"""Writers on several sources, a client of their merged stream, and a check of what the client received."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Self

import pymysql

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.message import Message
from canal_ha.errors import CanalError
from canal_ha.wire.proto.entry_protocol_pb2 import EntryType, RowChange
from lab import SqlServer
from lab.mysql import CANAL

TEMPLATE = "classpath:spring/group-instance.xml"
PIECE = 16  # canal.instance.transaction.size: larger transactions are delivered in pieces


def following(servers: Mapping[int, SqlServer], **more: str) -> dict[str, str]:
    """Return instance.properties that merge these servers, by source number.

    more: further keys, underscores for dots.
    """
    addresses = {f"canal.instance.master{number}.address": server.address for number, server in servers.items()}
    return {
        **addresses,
        "canal.instance.dbUsername": CANAL,
        "canal.instance.dbPassword": CANAL,
        "canal.instance.transaction.size": str(PIECE),
        **{f"canal.instance.{key.replace('_', '.')}": value for key, value in more.items()},
    }


def rows_in(number: int) -> int:
    """Return how many rows transaction `number` inserts. Each row is an event of its own."""
    return 3 * PIECE + 5 if number % 12 == 0 else 1 + number % 3


class Writer(threading.Thread):
    """A thread that commits transactions 1, 2, … on one source until end(). pause_s: the longest pause between two."""

    def __init__(self, source: int, server: SqlServer, database: str, *, pause_s: float = 0.02) -> None:
        super().__init__(name=f"writer-{source}", daemon=True)
        self.source = source
        self.committed = 0
        self._server = server
        self._database = database
        self._pause_s = pause_s
        self._random = Random(source)
        self._stopping = threading.Event()
        server.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id int AUTO_INCREMENT PRIMARY KEY, src int, txn int, k int)",
        )

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._write()
            except (pymysql.err.MySQLError, OSError):
                self._stopping.wait(0.2)

    def _write(self) -> None:
        with (
            self._server.connect(database=self._database, autocommit=False) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT COALESCE(MAX(txn), 0) FROM t")  # a commit counts even if its answer was lost
            self.committed = cursor.fetchone()[0]
            connection.rollback()
            while not self._stopping.is_set():
                number = self.committed + 1
                for k in range(rows_in(number)):
                    cursor.execute("INSERT INTO t (src, txn, k) VALUES (%s, %s, %s)", (self.source, number, k))
                connection.commit()
                self.committed = number
                self._stopping.wait(self._random.random() * self._pause_s)

    def end(self) -> int:
        """Stop writing, and return how many transactions were committed."""
        self._stopping.set()
        self.join(30)
        return self.committed


@dataclass
class Verdict:
    """What `judged` found. All counts are of transactions.

    Errors: lost, out_of_order, back_in_time, and parted: its rows were incomplete or out of order when it ended.
    Allowed after a break: repeated, and cut: its end did not arrive before the rows of another one.
    delivered: source -> the newest transaction that ended.
    """

    lost: int = 0
    out_of_order: int = 0
    parted: int = 0
    back_in_time: int = 0
    repeated: int = 0
    cut: int = 0
    delivered: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """The facts of an entry that `judged` compares. source: 0 for begins and ends, which do not name one."""

    kind: int
    time_ms: int
    source: int = 0
    number: int = 0
    k: int = 0


class Reader(threading.Thread):
    """A client thread that reads and acknowledges all batches, and connects again after an error."""

    def __init__(self, connect: Callable[[], SimpleConnector | ClusterConnector], database: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.entries: list[Entry] = []
        self.seen: dict[int, int] = {}  # source -> last transaction that ended
        self.failures: list[str] = []
        self.acked_at = 0.0
        self._connect = connect
        self._filter = rf"{database}\..*"
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join(60)

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._connect() as client:
                    client.subscribe(self._filter)
                    self._read(client)
            except (CanalError, OSError) as error:
                self.failures.append(str(error))
                self._stopping.wait(0.1)

    def _read(self, client: SimpleConnector | ClusterConnector) -> None:
        while not self._stopping.is_set():
            message = client.get_without_ack(200, 100)
            if message:
                self._take(message)
                client.ack(message.id)
                self.acked_at = time.monotonic()

    def _take(self, message: Message) -> None:
        for entry in message.entries:
            kind, time_ms = entry.entryType, entry.header.executeTime
            if kind != EntryType.ROWDATA:
                if kind == EntryType.TRANSACTIONEND and self.entries and self.entries[-1].source:
                    self.seen[self.entries[-1].source] = self.entries[-1].number
                self.entries.append(Entry(kind, time_ms))
                continue
            change = RowChange.FromString(entry.storeValue)
            for row in change.rowDatas:
                source, number, k = (int(column.value) for column in row.afterColumns[1:4])
                self.entries.append(Entry(kind, time_ms, source, number, k))


def judged(entries: list[Entry], committed: Mapping[int, int], *, late: Collection[int] = ()) -> Verdict:
    """Compare the delivered entries with the committed transactions.

    committed: source -> its last transaction.
    late: sources that were left behind; only their transactions may be older than those before them.

    After a break, delivery may go back to any delivered transaction, and continues in order from there.
    """
    verdict = Verdict()
    last = dict.fromkeys(committed, 0)  # the last transaction that ended
    farthest = dict.fromkeys(committed, 0)
    newest_ms = 0
    rows: list[Entry] = []  # of the open transaction; MariaDB's transactions have no begin
    for entry in entries:
        if entry.kind == EntryType.ROWDATA and entry.source:
            begins = rows and (not entry.k or (entry.source, entry.number) != (rows[0].source, rows[0].number))
            if begins:
                verdict.cut += 1
                rows = []
            rows.append(entry)
        elif entry.kind == EntryType.TRANSACTIONEND and rows:
            source, number = rows[0].source, rows[0].number
            verdict.parted += [row.k for row in rows] != list(range(rows_in(number)))
            verdict.out_of_order += number > last[source] + 1
            again = number <= farthest[source]
            verdict.repeated += again
            if again and number != last[source] + 1:
                newest_ms = 0  # a break: delivery continues at an earlier time
            last[source], farthest[source] = number, max(farthest[source], number)
            verdict.back_in_time += entry.time_ms < newest_ms and source not in late
            pieces = len(rows) > PIECE  # a transaction in pieces is ordered by its first piece
            newest_ms = max(newest_ms, rows[0].time_ms if pieces else entry.time_ms)
            rows = []
    verdict.lost = sum(committed.values()) - sum(farthest.values())
    verdict.delivered = farthest
    return verdict
