"""A snapshot of a table without a key at a client of a real node: through rollbacks, parking and crashes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, suppress
from random import Random

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import CanalError
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.beside import beside
from tests.node.following import following, stream_of
from tests.node.test_snapshot_of_client import snapshots
from tests.waiting import until

pytestmark = pytest.mark.real

ROWS = 4000
Values = tuple[str | None, ...]


class Appender:
    """A consumer as docs/how-to/take-a-snapshot.md tells it: it appends whole transactions, each once.

    rows: how often each row is there. attempts: the numbers of the reads, in order.
    """

    def __init__(self) -> None:
        self.rows: Counter[Values] = Counter()
        self.attempts: list[int] = []
        self._piece = 0
        self._place = ("", 0)  # of the last transaction applied
        self._open: list[pb.Entry] = []
        self._kept: list[pb.Entry] = []

    def take(self, raw_entries: list[bytes]) -> None:
        """Take the entries of a batch."""
        for raw in raw_entries:
            entry = pb.Entry.FromString(raw)
            if entry.entryType == pb.TRANSACTIONBEGIN:
                self._open = []
            elif entry.entryType == pb.ROWDATA:
                self._open.append(entry)
            elif entry.entryType == pb.TRANSACTIONEND:
                self._apply(entry)
                self._open = []

    def acknowledged(self) -> None:
        """The batches taken do not come again, unless a transaction in them has to begin again."""
        self._kept = list(self._open)

    def again(self) -> None:
        """Batches that were not acknowledged come again."""
        self._open = list(self._kept)

    def _apply(self, end: pb.Entry) -> None:
        found = {pair.value for entry in self._open for pair in entry.header.props if pair.key == "canal.snapshot"}
        if found:
            (value,) = found
            _, attempt, piece = value.split(".")
            if self.attempts[-1:] != [int(attempt)]:
                assert not self.attempts or int(attempt) > self.attempts[-1]
                self.attempts.append(int(attempt))
                self.rows.clear()
            elif int(piece) <= self._piece:
                return
            else:
                assert int(piece) == self._piece + 1
            self._piece = int(piece)
        else:
            place = (end.header.logfileName, end.header.logfileOffset)
            if place <= self._place:
                return
            self._place = place
        seen = set()
        for entry in self._open:
            if not found and entry.header.logfileOffset in seen:
                continue  # MariaDB has no begin, so the transaction began again behind its first entries
            seen.add(entry.header.logfileOffset)
            change = pb.RowChange.FromString(entry.storeValue)
            for row in change.rowDatas:
                if change.eventType in (pb.UPDATE, pb.DELETE):
                    before = tuple(None if column.isNull else column.value for column in row.beforeColumns)
                    self.rows[before] = max(0, self.rows[before] - 1)
                if change.eventType in (pb.UPDATE, pb.INSERT):
                    self.rows[tuple(None if column.isNull else column.value for column in row.afterColumns)] += 1


def writing(server: SqlServer, table: str) -> AbstractContextManager[None]:
    """Insert, update and delete rows all the time."""

    def write(stopping: threading.Event) -> None:
        random = Random(5)
        with server.connect() as connection, connection.cursor() as cursor:
            while not stopping.is_set():
                number = random.randrange(ROWS)
                cursor.execute(f"INSERT INTO {table} VALUES ({number}, 'new'), ({number}, 'new')")
                cursor.execute(f"UPDATE {table} SET v = 'changed' WHERE id = {random.randrange(ROWS)} LIMIT 1")
                cursor.execute(f"DELETE FROM {table} WHERE id = {random.randrange(ROWS)} LIMIT 2")
                time.sleep(0.05)

    return beside(write)


class Reader:
    """Reads client 1001's stream into a consumer; sometimes it rolls back, disconnects, or lets the stream park."""

    def __init__(self, node: Node, consumer: Appender) -> None:
        self._node, self._consumer = node, consumer
        self._random = Random(11)
        self._client: SimpleConnector | None = None
        self.calm = False

    def step(self) -> None:
        """Take one batch; errors of a node that is gone end the connection."""
        try:
            if self._client is None:
                self._client = SimpleConnector(LOOPBACK, self._node.port, "example", 1001)
                self._client.connect()
                self._client.subscribe("")
                self._client.rollback()
                self._consumer.again()
            message = self._client.get_without_ack(self._random.choice((1, 20, 1000)), 100)
            if not message:
                return
            self._consumer.take(list(message.raw_entries))
            dice = 1.0 if self.calm else self._random.random()
            if dice < 0.05:
                self._client.rollback()
                self._consumer.again()
                return
            if dice < 0.06:
                time.sleep(2.5)  # the stream parks with a batch in flight
            self._client.ack(message.id)
            self._consumer.acknowledged()
            if 0.1 < dice < 0.12:
                self.close()
        except (CanalError, OSError):
            self.close()
            time.sleep(0.05)

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            with suppress(CanalError, OSError):
                self._client.disconnect()
            self._client = None


@pytest.mark.nightly("tests/node/test_snapshot_without_key.py, and test_snapshot_of_client.py for tables with keys")
def test_a_consumer_without_keys_gets_every_row_through_crashes(source_server: SqlServer, database: str) -> None:
    """Beside a writer, with rollbacks, lost connections, parking and SIGKILL of the node, the copy equals the table."""
    table = f"{database}.t"
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {table} (id INT, v VARCHAR(99))")
    for first in range(0, ROWS, 1000):
        rows = ", ".join(f"({number // 2}, REPEAT('x', {number % 90}))" for number in range(first, first + 1000))
        source_server.execute(f"INSERT INTO {table} VALUES {rows}")
    properties = {
        "canal.instance.filter.regex": rf"{database}\\.t",
        "canal.instance.stream.idle": "1",
        "canal.instance.memory.buffer.size": "64",
    }
    consumer = Appender()
    with Node({"example": follow(source_server, properties)}) as node:
        with following(node):
            pass
        with writing(source_server, table):
            assert snapshots(node).start([table], without_key=True)["phase"] == "running"
            reader = Reader(node, consumer)
            kills = [0.1, 0.3]

            def over() -> bool:
                reader.step()
                try:
                    state = stream_of(node, "example")["snapshot"]
                except (OSError, StopIteration):
                    return False
                if kills and state["attempt_rows"] >= kills[0] * ROWS:
                    kills.pop(0)
                    node.kill()
                    node.start()
                reader.calm = not kills
                assert state["phase"] != "failed", state
                return bool(state["phase"] == "done")

            until(over, seconds=120, what="the end of the snapshot")
        assert not kills
        end = Counter((str(row["id"]), str(row["v"])) for row in source_server.query(f"SELECT * FROM {table}"))

        def equal() -> bool:
            reader.step()
            return +consumer.rows == end

        until(equal, seconds=30, what="equality")
        reader.close()
    assert len(consumer.attempts) >= 3
