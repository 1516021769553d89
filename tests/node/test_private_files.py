"""What a node writes on a real source can be read by its user only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.waiting import until


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Nodes inherit an umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def run(node: Node, server: SqlServer, table: str) -> None:
    """Run a node until it has written a cursor, its table history and its logs."""
    meta = node.conf / "example" / "meta.dat"
    written = meta.stat().st_mtime_ns if meta.exists() else 0
    node.start()
    with SimpleConnector(LOOPBACK, node.port, "example") as client:
        client.subscribe(table.replace(".", r"\."))
        server.execute(f"INSERT INTO {table} VALUES ()")

        def acknowledged() -> bool:
            message = client.get_without_ack(100, 200)
            client.ack(message.id)
            return bool(message.entries)

        until(acknowledged, what="the row")
        until(lambda: meta.exists() and meta.stat().st_mtime_ns > written, what="the cursor")
        log = node.directory / "logs" / "example" / "meta.log"
        until(log.exists, what="meta.log")
    node.stop()


def open_to_others(node: Node, given: set[Path]) -> dict[str, str]:
    """Return the modes of what the node made, if they let others in."""
    made = set(node.directory.rglob("*")) - given
    modes = {str(path.relative_to(node.directory)): f"{path.stat().st_mode & 0o7777:o}" for path in made}
    assert {
        "conf/example/meta.dat",
        "conf/example/table_history.db",
        "logs/canal/canal.log",
        "logs/example",
    } <= modes.keys()
    return {path: mode for path, mode in modes.items() if mode[-2:] != "00"}


@pytest.mark.real
def test_nobody_else_reads_cursors_logs_and_history(mariadb: SqlServer, database: str) -> None:
    """The umask of 0 takes nothing away. Files that an earlier version left readable are closed at the start."""
    table = f"{database}.t"
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY)")
    node = Node({"example": follow(mariadb)})
    given = {*node.directory.rglob("*"), node.log}
    run(node, mariadb, table)
    assert open_to_others(node, given) == {}
    logs = node.directory / "logs" / "canal"
    (logs / "canal.log.1").touch()
    files = [path for path in node.directory.rglob("*") if path.is_file() and path not in given]
    for path in files:
        path.chmod(0o666)
    run(node, mariadb, table)
    assert open_to_others(node, given) == {}


@pytest.mark.real
def test_a_log_reader_of_the_group_needs_one_chmod(mariadb: SqlServer, database: str) -> None:
    """`chmod 2750` of the log directory opens the logs to its group, and leaves the cursors closed."""
    table = f"{database}.t"
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY)")
    node = Node({"example": follow(mariadb)})
    given = {*node.directory.rglob("*"), node.log, node.directory / "logs"}
    (node.directory / "logs").mkdir()
    (node.directory / "logs").chmod(0o2750)
    run(node, mariadb, table)
    opened = open_to_others(node, given)
    assert opened["logs/example"] == opened["logs/canal"] == "2750"
    assert opened["logs/example/meta.log"] == opened["logs/canal/canal.log"] == "640"
    assert not [path for path in opened if path.startswith("conf")]
