"""Portions of a real source: a server, a node that reads it, and a client of the node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any, Self

from canal_ha.client.connector import SimpleConnector
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import ChangeReader
from lab import Node, SqlServer
from lab.ports import LOOPBACK

NOTHING = LogPosition("", 0)
_MARK = "canal_ha_mark"
_client_ids = count(1001)


class Sourced:
    """A source database; `portion` returns what has changed since the last call.

    server: has the database.
    database: its name.
    node: reads the server.
    destination: of the node.
    """

    def __init__(self, server: SqlServer, database: str, node: Node, destination: str = "example") -> None:
        self.server = server
        self.database = database
        self.destination = destination
        self.progress = Progress("run", 0, NOTHING, 0)
        self.reader = self.new_reader()
        self._node = node
        self._marks = 0

    def new_reader(self) -> ChangeReader:
        """Return a reader of the database's tables."""
        return ChangeReader(lambda schema, table: schema == self.database and table != _MARK)

    def __enter__(self) -> Self:
        self.server.execute(
            f"CREATE DATABASE IF NOT EXISTS {self.database}",
            f"CREATE TABLE IF NOT EXISTS {self.database}.{_MARK} (id INT PRIMARY KEY)",
        )
        filters = f"{self.database}\\..*"
        port, client_id = self._node.port, next(_client_ids)
        self._client = SimpleConnector(LOOPBACK, port, self.destination, client_id, filter=filters)
        self._client.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.unsubscribe()
        self._client.disconnect()

    def execute(self, *statements: str, **options: Any) -> None:
        """Run statements in the source's database."""
        self.server.execute(*statements, database=self.database, **options)

    def query(self, statement: str) -> list[dict[str, Any]]:
        """Return rows of the source's database."""
        return self.server.query(statement, database=self.database)

    def frames(self) -> bytes:
        """Return the entries since the last call, up to a row that this call writes."""
        self._marks += 1
        self.execute(f"INSERT INTO {_MARK} VALUES ({self._marks})")
        return b"".join(self._entries())

    def _entries(self) -> Iterator[bytes]:
        while True:
            message = self._client.get_without_ack(1000)
            if not message:
                time.sleep(0.02)
                continue
            yield bytes(message.frames)
            self._client.ack(message.id)
            for entry in message.entries:
                if entry.header.tableName == _MARK and str(self._marks).encode() in entry.storeValue:
                    return

    def first(self) -> Portion:
        """Return the portion that begins a run, as a flow does."""
        return Portion(self.destination, b"", Progress("run", 0, NOTHING, 0), 0, True, self.reader)

    def portion(self) -> Portion:
        """Return the changes since the last call."""
        return self.made(self.frames())

    def made(self, frames: bytes) -> Portion:
        """Return entries as the next portion."""
        self.progress = self.progress.after(replace(NOTHING, offset=self.progress.seq + 1), 0)
        return Portion(self.destination, frames, self.progress, 1, True, self.reader)
