"""Snapshots of a client of a real node: asked for over HTTP, through parking, rollbacks and crashes of the node."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from canal_ha.cli import snapshot as snapshot_command
from canal_ha.cli.main import group
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.rows import rows_of
from canal_ha.client.snapshots import ClientSnapshot
from canal_ha.config.load import load_usable
from canal_ha.errors import CanalError, NodeUnreachable, SnapshotRefused
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.beside import beside
from tests.node.following import following, stream_of
from tests.node.snapshots import Copy
from tests.waiting import until

pytestmark = pytest.mark.real

WAITS = "No client reads client id 1001 at the moment: the rows wait"
ROWS = int(os.environ.get("CANAL_HA_SNAPSHOT_ROWS", "6000"))


def snapshots(node: Node, client_id: int = 1001, destination: str = "example") -> ClientSnapshot:
    """Return the snapshot of a client, asked for by the operator."""
    token = load_usable(node.conf, (), {}).operator_token_file.read_text().strip()
    url = f"{LOOPBACK}:{node.admin_port}"
    return ClientSnapshot(destination, client_id, url=url, access=HttpAccess(token=token))


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


def writing(server: SqlServer, table: str) -> AbstractContextManager[None]:
    """Update, insert and delete rows all the time."""

    def write(stopping: threading.Event) -> None:
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

    return beside(write)


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
        "canal.instance.snapshot.connections": "4",
        "canal.instance.snapshot.chunk.rows": "50",
    }
    copy = Copy({table: ("id",)})
    with Node({"example": follow(source_server, properties)}) as node:
        with following(node):
            pass
        with writing(source_server, table):
            assert snapshots(node).start([table])["phase"] == "running"
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


@contextmanager
def begun(server: SqlServer, database: str, table: str) -> Iterator[tuple[Node, Copy, Reader]]:
    """Yield a node, a copy of a table, and its reader, which has some rows of a snapshot of the table."""
    properties = {"canal.instance.filter.regex": rf"{database}\\.t", "canal.instance.memory.buffer.size": "256"}
    copy = Copy({table: ("id",)})
    with Node({"example": follow(server, properties)}) as node:
        with following(node):
            pass
        snapshots(node).start([table])
        reader = Reader(node, copy, rough=False)
        reader.until(lambda: stream_of(node, "example")["snapshot"]["rows"] > 0, "some rows")
        yield node, copy, reader
        reader.close()


def test_a_snapshot_is_paused_and_resumed(source_server: SqlServer, database: str) -> None:
    """While it is paused, changes come and rows do not."""
    table = filled(source_server, database)
    with begun(source_server, database, table) as (node, copy, reader):
        assert snapshots(node).pause()["phase"] == "paused"
        reader.until(lambda: stream_of(node, "example")["bytes_behind"] == 0, "quiet")
        for _ in range(10):
            reader.step()
        rows = copy.snapshot_rows
        source_server.execute(f"INSERT INTO {table} VALUES ({ROWS}, 1, 'new')")
        reader.until(lambda: (table, (str(ROWS),)) in copy.rows, "the change")
        assert copy.snapshot_rows == rows < ROWS
        assert snapshots(node).resume()["phase"] == "running"
        reader.until(lambda: stream_of(node, "example")["snapshot"]["phase"] == "done", "the end")
        assert copy.rows == expected(source_server, table)


def test_no_row_of_a_snapshot_is_lost_when_an_operator_moves_the_cursor(mysql: SqlServer, database: str) -> None:
    """A move by `canal-ha cursor set` ended the snapshot, and the rows that it had not read yet never came."""
    table = filled(mysql, database)
    with begun(mysql, database, table) as (node, copy, reader):
        reader.close()
        node.stop()
        assert copy.snapshot_rows < ROWS
        where = ["--conf", str(node.conf), "--destination", "example", "--client-id", "1001"]
        moved = CliRunner().invoke(group, ["cursor", "set", *where, "--to", "latest", "--yes"])
        assert moved.exit_code == 0, moved.output
        node.start()
        reader.until(lambda: copy.rows == expected(mysql, table), "the rows that were left", 60)


def test_a_snapshot_that_cannot_go_on_says_why_and_when_it_is_tried_again(mysql: SqlServer, database: str) -> None:
    """The state, the command, the page and the metrics say it until rows come."""
    table = f"{database}.t"
    made = f"CREATE TABLE {table} (id INT PRIMARY KEY)"
    mysql.execute(f"CREATE DATABASE {database}", made, f"ALTER TABLE {table} DISCARD TABLESPACE")
    with Node({"example": follow(mysql)}) as node, following(node, tables=rf"{database}\..*") as client:
        snapshot = snapshots(node)
        client.get(1, 10)
        snapshot.start([table])

        def waits() -> dict[str, Any] | None:
            client.get(100, 10)
            state = snapshot.state()
            return state if state["retry_in_s"] > 1 else None

        state = until(waits, what="an attempt that failed")
        assert table in state["failing"]
        assert "(1814)" in state["failing"]
        assert (state["phase"], state["error"]) == ("running", "")
        where = ["--conf", str(node.conf), "--destination", "example", "--client-id", "1001"]
        shown = CliRunner().invoke(group, ["snapshot", "status", *where])
        assert shown.exit_code == 0, shown.output
        assert re.search(r"; next try in [0-9.]+ s: .*\(1814\)", shown.output)
        mysql.execute(f"DROP TABLE {table}", made, f"INSERT INTO {table} VALUES (1), (2)")

        def done() -> dict[str, Any] | None:
            batch = client.get(100, 10)
            state = snapshot.state()
            assert not (batch and state["phase"] == "failed"), state
            return state if state["phase"] == "done" else None

        state = until(done, what="the end of the snapshot")
        assert (state["rows"], state["failing"]) == (2, "")


def test_a_program_starts_pauses_and_sees_a_snapshot(mariadb: SqlServer, database: str) -> None:
    """Each refusal says why, and what to do."""
    mariadb.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.u (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1), (2), (3)",
    )
    table = f"{database}.t"
    with Node({"example": follow(mariadb)}) as node:
        snapshot = snapshots(node)
        with pytest.raises(SnapshotRefused, match="client id 1001 has not subscribed to example: start the client"):
            snapshot.start([table])
        with following(node, tables=rf"{database}\..*") as client:
            with pytest.raises(SnapshotRefused, match="client id 1001 of example never had a snapshot: start one"):
                snapshot.state()
            with pytest.raises(SnapshotRefused, match=r"no table t\.T: check the name .*; of a view, name the tables"):
                snapshot.start(["t.T"])
            with pytest.raises(SnapshotRefused, match="no snapshot of client id 1001 on this node; `canal-ha status"):
                ClientSnapshot("other", url=f"{LOOPBACK}:{node.admin_port}").state()
            with pytest.raises(SnapshotRefused, match="it has the word SELECT"):
                snapshot.start([table], {table: "id = (SELECT 1)"})
            state = snapshot.start([table], {table: "id > 1"})
            assert (state["phase"], state["where"]) == ("running", {table: "id > 1"})
            assert snapshot.pause()["phase"] == "paused"
            assert snapshot.add([f"{database}.u"])["tables"] == [table, f"{database}.u"]
            assert snapshot.resume()["phase"] == "running"

            def done() -> bool:
                client.get(100, 100)
                return bool(snapshot.state()["phase"] == "done")

            until(done, what="the end of the snapshot")
            assert snapshot.state()["rows"] == 2
            with pytest.raises(SnapshotRefused, match="is done: it cannot cancel"):
                snapshot.cancel()
        with pytest.raises(SnapshotRefused, match="role admin"):
            ClientSnapshot("example", url=f"{LOOPBACK}:{node.admin_port}").cancel()
    with pytest.raises(NodeUnreachable, match="no node answers at"):
        snapshot.state()


def test_a_connector_took_one_table_for_its_letters(mariadb: SqlServer, database: str) -> None:
    """`snapshot="shop.t"` was refused with `a table is named twice`, wherever a program names tables."""
    mariadb.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1)",
    )
    table = f"{database}.t"

    def ids(connector: SimpleConnector | ClusterConnector) -> list[object]:
        found: list[object] = []
        while not found:
            found = [row.after["id"] for row in rows_of(connector.get(100, 1000)) if row.after]
        return found

    with Node({"example": follow(mariadb)}) as node:
        with SimpleConnector(LOOPBACK, node.port, "example", 1001, snapshot=table) as simple:
            simple.subscribe(rf"{database}\..*")
            assert ids(simple) == [1]
            assert snapshots(node).start(table)["tables"] == [table]
        with ClusterConnector([node.address], "example", 1002, snapshot=table) as cluster:
            cluster.subscribe(rf"{database}\..*")
            assert ids(cluster) == [1]
        with SimpleConnector(LOOPBACK, node.port, "example", 1003) as private:
            private.read_from("latest", filter=rf"{database}\..*", snapshot=table)
            assert ids(private) == [1]


def test_a_condition_is_for_the_table_whose_name_it_begins_with(mysql: SqlServer, database: str) -> None:
    """A name of a table with `=` was cut there. A schema with a dot was taken for another schema and its table.

    Of two conditions for one table, the last one counted.
    """
    table, dotted = f"{database}.a=b", f"{database}.x"
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE DATABASE `{dotted}`",
        f"CREATE TABLE `{dotted}`.t (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.`a=b` (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.`a=b` VALUES (1), (2), (3)",
    )
    with Node({"example": follow(mysql)}) as node, following(node):
        state = ordered(node, "start", "--table", table, "--where", f"{table} = id=2")
        assert (state.exit_code, snapshots(node).state()["where"]) == (0, {table: "id=2"})
        twice = ordered(node, "start", "--table", table, "--where", f"{table}=id=1", "--where", f"{table}=id=2")
        assert twice.exit_code == 2
        assert "a=b has a condition already; join them with AND or OR" in " ".join(twice.output.split())
        refused = ordered(node, "add", "--table", f"{dotted}.t")
        assert refused.exit_code == 1
        assert "the name of the schema has a dot" in str(refused.exception)
    mysql.execute(f"DROP DATABASE `{dotted}`")


def test_tables_are_added_as_a_snapshot_is_started(mysql: SqlServer, database: str) -> None:
    """`canal-ha snapshot add` took no conditions, and no tables without a key."""
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.nokey (id INT)",
    )
    table, added = f"{database}.t", f"{database}.nokey"
    with Node({"example": follow(mysql)}) as node, following(node) as client:
        client.get(1, 100)
        started = ordered(node, "start", "--table", table, "--connections", "2")
        assert (started.exit_code, "the rows wait" in started.output) == (0, False)
        more = ["--where", f"{added}=id < 3", "--without-key", "--connections", "3", "--rows-per-second", "5"]
        assert ordered(node, "add", "--table", added, *more).exit_code == 0
        state = snapshots(node).state()
        assert (state["tables"], state["where"], state["without_key"]) == ([table, added], {added: "id < 3"}, True)
        assert (state["connections"], state["rows_per_s_most"]) == (2, 0)
        assert ordered(node, "cancel").exit_code == 0
        assert ordered(node, "add", "--table", added, *more).exit_code == 0
        state = snapshots(node).state()
        assert (state["connections"], state["rows_per_s_most"]) == (3, 5)
        assert "the rows wait" not in ordered(node, "status").output
    with Node({"example": follow(mysql)}) as node:
        with following(node):
            pass
        assert ordered(node, "start", "--table", table).exit_code == 0
        until(lambda: WAITS in ordered(node, "status").output, what="the end of the client")


def test_a_watch_ends_with_an_error_if_the_rows_do_not_come(mysql: SqlServer, database: str) -> None:
    """A script went on with a copy that had no rows. The reason is shown."""
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.nokey (id INT)",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1), (2), (3)",
    )
    with Node({"example": follow(mysql)}) as node, following(node, tables=rf"{database}\..*") as client:

        def take(stopping: threading.Event) -> None:
            while not stopping.is_set():
                client.get(100, 100)

        with beside(take):
            failed = ordered(node, "start", "--table", f"{database}.nokey", "--watch")
            assert failed.exit_code == 1
            assert "failed" in failed.output
            assert "no primary key" in failed.output
            assert ordered(node, "cancel").exit_code == 0
            cancelled = ordered(node, "status", "--watch")
            assert cancelled.exit_code == 1
            assert "The others do not come" in cancelled.output
            assert ordered(node, "status").exit_code == 0
            done = ordered(node, "start", "--table", f"{database}.t", "--watch")
            assert (done.exit_code, done.output.splitlines()[-1].split()[2]) == (0, "done:")


@pytest.fixture
def watched(mysql: SqlServer, database: str) -> Iterator[Node]:
    """Return a node with a subscribed client id that nobody reads. The tables t and u have rows."""
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.u (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.t VALUES (1), (2), (3)",
        f"INSERT INTO {database}.u VALUES (1), (2), (3)",
    )
    with Node({"example": follow(mysql)}) as node:
        with following(node, tables=rf"{database}\..*"):
            pass
        yield node


def watching(monkeypatch: pytest.MonkeyPatch, node: Node, meanwhile: Callable[[], None], *tables: str) -> Result:
    """Return what `start --watch` says if something happens between its first two looks."""
    todo = [meanwhile]

    def sleep(seconds: float) -> None:
        if todo:
            todo.pop()()
        time.sleep(seconds)

    monkeypatch.setattr(snapshot_command, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    return ordered(node, "start", "--watch", *(part for table in tables for part in ("--table", table)))


def read_all(node: Node) -> None:
    """Take batches of client 1001 until its snapshot has ended."""
    with SimpleConnector(LOOPBACK, node.port, "example", 1001) as client:
        client.subscribe("")
        until(lambda: client.get(100, 100) is not None and snapshots(node).state()["phase"] == "done", what="the end")


def test_a_watch_of_a_snapshot_that_is_replaced_ends_with_1(
    watched: Node, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It followed the next snapshot of the client id, and ended with 0 although rows of the first one were missing."""

    def replaced() -> None:
        snapshots(watched).cancel()
        snapshots(watched).start([f"{database}.u"])
        read_all(watched)

    ended = watching(monkeypatch, watched, replaced, f"{database}.t")
    assert ended.exit_code == 1, ended.output
    assert "Another snapshot has replaced the one that was watched" in ended.output


def test_a_watch_of_a_snapshot_that_leaves_a_table_out_ends_with_1(
    watched: Node, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with 0, as if all rows were there. A table that is added is waited for."""

    def left_out() -> None:
        snapshots(watched).add([f"{database}.u"])
        snapshots(watched).resume(leave_out=[f"{database}.t"])
        read_all(watched)

    ended = watching(monkeypatch, watched, left_out, f"{database}.t")
    assert ended.exit_code == 1, ended.output
    assert f"somebody left out {database}.t." in ended.output


def test_a_watch_goes_on_when_its_node_is_started_again(
    watched: Node, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with `no node answers` and 1 while the snapshot still ran."""

    def restarted() -> None:
        watched.kill()
        threading.Timer(2.0, again).start()

    def again() -> None:
        watched.start()
        read_all(watched)

    ended = watching(monkeypatch, watched, restarted, f"{database}.t")
    assert ended.exit_code == 0, ended.output
    assert ended.output.splitlines()[-1].split()[2] == "done:"


def test_a_watch_whose_node_stays_away_says_that_the_snapshot_goes_on(
    watched: Node, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node may run the destination by now."""
    monkeypatch.setattr(snapshot_command, "LOST_S", 0.5)
    ended = watching(monkeypatch, watched, watched.kill, f"{database}.t")
    assert ended.exit_code == 1
    assert "The snapshot itself goes on where example runs" in ended.output + str(ended.exception)


def ordered(node: Node, action: str, *more: str) -> Result:
    """Return what `canal-ha snapshot` does to the snapshot of client 1001."""
    where = ["--conf", str(node.conf), "--destination", "example", "--client-id", "1001"]
    return CliRunner().invoke(group, ["snapshot", action, *where, *more])
