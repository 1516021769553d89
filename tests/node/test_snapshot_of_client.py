"""Snapshots of a client of a real node: asked for over HTTP, through parking, rollbacks and crashes of the node."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any
from urllib.request import Request, urlopen

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.config.load import load_usable
from canal_ha.errors import CanalError
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.node.following import following, stream_of
from tests.node.snapshots import Copy
from tests.waiting import until

pytestmark = pytest.mark.real

ROWS = int(os.environ.get("CANAL_HA_SNAPSHOT_ROWS", "6000"))


def ask(node: Node, action: str, **more: Any) -> dict[str, Any]:
    """Ask for an action on the snapshot of client 1001 and return its state."""
    config = load_usable(node.conf, (), {})
    token = config.operator_token_file.read_text().strip()
    body = json.dumps({"client_id": 1001, "action": action, **more}).encode()
    address = f"http://{LOOPBACK}:{node.admin_port}/api/v1/destinations/example/snapshot"
    headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
    with urlopen(Request(address, body, headers), timeout=30) as answer:
        state: dict[str, Any] = json.load(answer)["snapshot"]
        return state


def filled(server: SqlServer, schema: str) -> str:
    """Create a table with many rows; return its name."""
    server.execute(
        f"CREATE DATABASE {schema}",
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, version BIGINT NOT NULL, v VARCHAR(99))",
    )
    for first in range(0, ROWS, 1000):
        rows = ", ".join(f"({number}, 1, REPEAT('x', {number % 90}))" for number in range(first, first + 1000))
        server.execute(f"INSERT INTO {schema}.t VALUES {rows}")
    return f"{schema}.t"


@contextmanager
def writing(server: SqlServer, table: str) -> Iterator[None]:
    """Update, insert and delete rows all the time."""
    stopping = threading.Event()

    def write() -> None:
        random = Random(5)
        with server.connect() as connection, connection.cursor() as cursor:
            version = 2
            while not stopping.is_set():
                number = random.randrange(ROWS + 500)
                if random.random() < 0.2:
                    cursor.execute(f"DELETE FROM {table} WHERE id = {number}")
                else:
                    cursor.execute(f"REPLACE INTO {table} VALUES ({number}, {version}, 'new')")
                version += 1
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join()


def expected(server: SqlServer, table: str) -> dict[tuple[str, tuple[str | None, ...]], dict[str, str | None]]:
    """Return the rows of the table as a copy has them."""
    rows = server.query(f"SELECT * FROM {table}")
    return {(table, (str(row["id"]),)): {name: str(value) for name, value in row.items()} for row in rows}


class Reader:
    """Reads client 1001's stream into a copy, and sometimes rolls back, disconnects, or lets the stream park."""

    def __init__(self, node: Node, copy: Copy, *, rough: bool) -> None:
        self._node, self._copy, self._rough = node, copy, rough
        self._random = Random(7)
        self._client: SimpleConnector | None = None

    def step(self) -> None:
        """Take one batch; errors of a node that is gone end the connection."""
        try:
            if self._client is None:
                self._client = SimpleConnector(LOOPBACK, self._node.port, "example", 1001)
                self._client.connect()
                self._client.subscribe("")
                self._client.rollback()
            message = self._client.get_without_ack(self._random.choice((1, 20, 1000)), 100)
            if not message:
                return
            self._copy.take(message.raw_entries)
            dice = self._random.random() if self._rough else 1.0
            if dice < 0.05:
                self._client.rollback()
            elif dice < 0.055:
                time.sleep(2.5)  # the stream parks with a batch in flight
                self._client.ack(message.id)
            else:
                self._client.ack(message.id)
            if 0.1 < dice < 0.12:
                self.close()
        except (CanalError, OSError):
            self.close()
            time.sleep(0.05)

    def until(self, look: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        """Read until something is true."""

        def read() -> bool:
            self.step()
            return look()

        until(read, seconds=seconds, what=what)

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            with suppress(CanalError, OSError):
                self._client.disconnect()
            self._client = None


def test_a_client_gets_every_row_through_crashes(source_server: SqlServer, database: str) -> None:
    """Beside a writer, with rollbacks, lost connections, parking and SIGKILL of the node, the copy equals the table."""
    table = filled(source_server, database)
    properties = {
        "canal.instance.filter.regex": rf"{database}\\.t",
        "canal.instance.stream.idle": "1",
        "canal.instance.memory.buffer.size": "100",
    }
    copy = Copy({table: ("id",)})
    with Node({"example": follow(source_server, properties)}) as node:
        with following(node):
            pass
        with writing(source_server, table):
            assert ask(node, "start", tables=[table])["phase"] == "running"
            reader = Reader(node, copy, rough=True)
            kills = [0.1, 0.5]

            def over() -> bool:
                for _ in range(5):
                    reader.step()
                try:
                    state = stream_of(node, "example")["snapshot"]
                except (OSError, StopIteration):
                    return False
                if kills and state["rows"] >= kills[0] * ROWS:
                    kills.pop(0)
                    node.kill()
                    node.start()
                assert state["phase"] != "failed", state
                return bool(state["phase"] == "done")

            reader.until(over, "the end of the snapshot", 120)
        assert not kills
        end = expected(source_server, table)
        reader.until(lambda: copy.rows == end, "equality", 30)
        reader.close()


def test_a_snapshot_is_paused_and_resumed(source_server: SqlServer, database: str) -> None:
    """While it is paused, changes come and rows do not."""
    table = filled(source_server, database)
    properties = {"canal.instance.filter.regex": rf"{database}\\.t", "canal.instance.memory.buffer.size": "256"}
    copy = Copy({table: ("id",)})
    with Node({"example": follow(source_server, properties)}) as node:
        with following(node):
            pass
        ask(node, "start", tables=[table])
        reader = Reader(node, copy, rough=False)
        reader.until(lambda: stream_of(node, "example")["snapshot"]["rows"] > 0, "some rows")
        assert ask(node, "pause")["phase"] == "paused"
        reader.until(lambda: stream_of(node, "example")["bytes_behind"] == 0, "quiet")
        for _ in range(10):
            reader.step()
        rows = copy.snapshot_rows
        source_server.execute(f"INSERT INTO {table} VALUES ({ROWS}, 1, 'new')")
        reader.until(lambda: (table, (str(ROWS),)) in copy.rows, "the change")
        assert copy.snapshot_rows == rows < ROWS
        assert ask(node, "resume")["phase"] == "running"
        reader.until(lambda: stream_of(node, "example")["snapshot"]["phase"] == "done", "the end")
        assert copy.rows == expected(source_server, table)
        reader.close()
