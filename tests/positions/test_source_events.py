"""A client gets every row once and in order while its source is flushed, purged, killed and reset."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql
import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from lab import MariaDB, MySQL, Node, SqlServer, follow
from tests.positions.reading import connected
from tests.source.reading import purge
from tests.waiting import until

TORN = bytes.fromhex("00000000 02 01000000 e8030000 00000000 0000") + b"INSERT INTO"
"""The beginning of a query event of 1000 bytes, as a crash leaves it when it comes in the middle of a write."""


class Writer:
    """Inserts 1, 2, 3, ... into shop.t, each in its own transaction, and continues after crashes of the server.

    written: the committed rows; they are counted again when the server is back.
    """

    def __init__(self, server: SqlServer) -> None:
        self.written: list[int] = []
        self._server = server
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write until the block ends."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join(20)
            assert not self._thread.is_alive()

    def more(self, count: int = 20) -> None:
        """Wait until `count` more rows are written."""
        before = len(self.written)
        until(lambda: len(self.written) >= before + count, what=f"{count} rows more")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with self._server.connect() as connection, connection.cursor() as cursor:
                    self._catch_up(cursor)
                    while not self._stopping.wait(0.005):
                        number = len(self.written) + 1
                        cursor.execute("INSERT INTO shop.t VALUES (%s)", (number,))
                        self.written.append(number)
            except pymysql.MySQLError:
                self._stopping.wait(0.1)

    def _catch_up(self, cursor: pymysql.cursors.Cursor) -> None:
        cursor.execute("SELECT COUNT(*) FROM shop.t")
        (found,) = cursor.fetchone() or (0,)
        self.written = list(range(1, int(found) + 1))


class Reader:
    """Reads and acknowledges a client's batches in a thread. ids: of the rows, in order of arrival."""

    def __init__(self, client: SimpleConnector) -> None:
        self.ids: list[int] = []
        self._client = client
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            message = self._client.get_without_ack(1000, 100)
            if message:
                self.ids += (int(str(row.after["id"])) for row in rows_of(message.entries) if row.after)
                self._client.ack(message.id)

    def reach(self, expected: list[int]) -> None:
        """Wait for the last expected row; check that exactly the expected rows came, in order."""
        until(lambda: self.ids[-1:] == expected[-1:], seconds=40, what=f"row {expected[-1]}")
        assert self.ids == expected

    def end(self) -> None:
        """Stop reading."""
        self._stopping = True
        self._thread.join(10)


@pytest.mark.real
@pytest.mark.parametrize("make", [MySQL, MariaDB])
def test_flush_purge_crash_and_reset(make: type[SqlServer]) -> None:
    """FLUSH, PURGE, a crash that leaves half an event and a reset that the policy allows lose and repeat no row."""
    with make() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
        writer = Writer(server)
        with (
            Node({"example": follow(server, {"canal.instance.position.lost": "earliest"})}) as node,
            connected(node, "shop") as client,
        ):
            reader = Reader(client)
            with writer.writing():
                writer.more()
                server.execute("FLUSH BINARY LOGS", "FLUSH LOGS")
                writer.more()
                until(lambda: len(reader.ids) > 30, what="rows")
                purge(server)
                writer.more()
                server.kill()
                journal = sorted(server.data.glob("mysql-bin.0*"))[-1]
                with journal.open("ab") as file:
                    file.write(TORN)
                server.start()
                writer.more()
            reader.reach(writer.written)
            server.execute("RESET BINARY LOGS AND GTIDS" if server.flavor == "mysql" else "RESET MASTER")
            server.execute("INSERT INTO shop.t VALUES (100000)")
            reader.reach([*writer.written, 100000])
            reader.end()
