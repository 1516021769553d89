"""`canal-ha client` against a real node and source: both formats, and every way to end it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from lab import Client, MySQL, Node, SqlServer, follow
from lab.node import PROGRAM
from tests.node.following import stream_of
from tests.waiting import until

pytestmark = pytest.mark.real

FIELDS = ["schema", "table", "type", "before", "after", "journal", "offset", "row", "ts", "gtid", "sql"]


@pytest.fixture(scope="module")
def node(source_server: SqlServer) -> Iterator[Node]:
    with Node({"example": follow(source_server)}) as running:
        yield running


@pytest.fixture
def table(source_server: SqlServer, node: Node, database: str) -> str:
    """Create a table (uid, name) and return its full name."""
    source_server.execute(
        f"CREATE DATABASE {database}", f"CREATE TABLE {database}.test (uid int(4) PRIMARY KEY, name varchar(10))"
    )
    return f"{database}.test"


def client(node: Node, table: str, *options: str, output_format: str = "json") -> Client:
    return Client(node.address, "example", "--filter", table.replace(".", r"\."), *options, output_format=output_format)


def begun(node: Node, table: str, client_id: int) -> tuple[str, ...]:
    """Subscribe a client id, so that it gets the rows from now on; return its options."""
    options = ("--client-id", str(client_id))
    with client(node, table, *options, "--idle-exit", "0.2") as first:
        list(first.rows())
        first.wait()
    return options


def changes(reading: Client) -> list[dict[str, Any]]:
    """Return the rows of the table and its later statements. A busy machine delivers its CREATE after `begun`."""
    return [row for row in reading.rows() if row["table"] and row["type"] != "CREATE"]


def local(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def masked(text: str) -> str:
    """Return the text without values of the clock: the time of printing and the delays."""
    text = re.sub(r"Time : \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", "Time : NOW", text, flags=re.MULTILINE)
    return re.sub(r"delay : \d+ms$", "delay : Nms", text, flags=re.MULTILINE)


def test_pretty(source_server: SqlServer, node: Node, table: str) -> None:
    """--format pretty prints canal's text exactly for an insert, an update, a delete and a statement.

    The expected text is made from the --format json output of another client id.
    """
    schema, name = table.split(".")
    first, second = begun(node, table, 1), begun(node, table, 2)
    source_server.execute(
        f"INSERT INTO {table} VALUES (1, '10')",
        f"UPDATE {table} SET name = NULL WHERE uid = 1",
        f"DELETE FROM {table} WHERE uid = 1",
        f"ALTER TABLE {table} ADD COLUMN more int",
    )
    with client(node, table, *second, "--idle-exit", "1") as told:
        rows = changes(told)
    with client(node, table, *first, "--idle-exit", "1", output_format="pretty") as shown:
        assert shown.process.stdout is not None
        text = masked(shown.process.stdout.read())
        shown.wait()
    assert [row["type"] for row in rows] == ["INSERT", "UPDATE", "DELETE", "ALTER"]
    columns = [
        "uid : 1    type=int(4)    update=true\nname : 10    type=varchar(10)    update=true\n",
        "uid : 1    type=int(4)\nname :     type=varchar(10)    update=true\n",
        "uid : 1    type=int(4)\nname :     type=varchar(10)\n",
        f" sql ----> ALTER TABLE {table} ADD COLUMN more int\n",
    ]
    for row, lines in zip(rows, columns, strict=True):
        tail = f"executeTime : {row['ts']} , delay : Nms\n"
        where = f"binlog[{row['journal']}:{row['offset']}] , name[{schema},{name}] , eventType : {row['type']} , "
        assert f"----------------> {where}{tail}{lines}" in text
    stars = re.escape("*" * 52)
    place = r"mysql-bin\.\d{6}:(\d+):(\d+)\((.{19})\)"
    heads = re.findall(
        rf"^{stars}\n\* Batch Id: \[\d+\] ,count : \[(\d+)\] , memsize : \[(\d+)\] , Time : NOW\n"
        rf"\* Start : \[{place}\]\n\* End : \[{place}\]\n{stars}\n\n",
        text,
        re.MULTILINE,
    )
    assert heads
    for count, memsize, start, start_ms, start_text, end, end_ms, end_text in heads:
        assert int(count) > 0 < int(memsize)
        assert int(start) <= int(end)
        assert (start_text, end_text) == (local(int(start_ms)), local(int(end_ms)))
    rule = r"================> binlog\[mysql-bin\.\d{6}:\d+\] , executeTime : \d+ , delay : Nms\n"
    begins = re.findall(rf"^{rule} BEGIN ----> Thread id: \d+\n", text, re.MULTILINE)
    ends = re.findall(rf"^----------------\n END ----> transaction id: \d+\n{rule}", text, re.MULTILINE)
    assert len(ends) == 3
    assert len(begins) == (3 if source_server.flavor == "mysql" else 0)  # canal makes none of MariaDB's events
    known = re.compile(r"\*|=====|-----| BEGIN | END | sql ---->|\w+ : .*    type=|$")
    assert [line for line in text.splitlines() if not known.match(line)] == []


def test_json_objects_are_complete(source_server: SqlServer, node: Node, table: str) -> None:
    """Each object has every field in order, with both images of each kind of change, NULL, text and the statement."""
    schema, name = table.split(".")
    options = begun(node, table, 3)
    source_server.execute(
        f"INSERT INTO {table} VALUES (1, 'é'), (2, NULL)",
        f"UPDATE {table} SET uid = 3 WHERE uid = 2",
        f"DELETE FROM {table} WHERE uid = 1",
        f"TRUNCATE TABLE {table}",
    )
    with client(node, table, *options, "--idle-exit", "1") as reading:
        rows = changes(reading)
        reading.wait()
    assert all(list(row) == FIELDS for row in rows)
    assert {(row["schema"], row["table"]) for row in rows} == {(schema, name)}
    assert [(row["type"], row["before"], row["after"], row["row"]) for row in rows] == [
        ("INSERT", None, {"uid": 1, "name": "é"}, 0),
        ("INSERT", None, {"uid": 2, "name": None}, 1),
        ("UPDATE", {"uid": 2, "name": None}, {"uid": 3, "name": None}, 0),
        ("DELETE", {"uid": 1, "name": "é"}, None, 0),
        ("TRUNCATE", None, None, 0),
    ]
    assert [row["sql"] for row in rows] == ["", "", "", "", f"TRUNCATE TABLE {table}"]
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert all(row["journal"] == source_server.position()[0] and row["ts"] > 10**12 for row in rows)


@pytest.mark.nightly("tests/client/test_command.py: how the command ends")
def test_ways_to_end(mysql: MySQL, database: str) -> None:
    """Every way to end the client exits with code 0 and loses no row; only unacknowledged batches come again.

    --max-rows leaves a batch that it cuts to the next client, --no-ack leaves all batches, SIGTERM acknowledges the
    printed rows, and --idle-exit ends in time.
    """
    table = f"{database}.test"
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {table} (uid int PRIMARY KEY, name varchar(10))")
    with Node({"example": follow(mysql)}) as node:
        end_in_every_way(mysql, node, table)


def end_in_every_way(mysql: MySQL, node: Node, table: str) -> None:
    options = begun(node, table, 4)
    mysql.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")

    def ids(*more: str) -> list[int]:
        with client(node, table, *options, *more) as reading:
            found = [row["after"]["uid"] for row in reading.rows() if row["after"]]
            reading.wait()
        return found

    def seen(line: str) -> int:
        row = json.loads(line)
        return int(row["after"]["uid"]) if row["after"] else 0

    assert ids("--no-ack", "--idle-exit", "0.7") == [1, 2, 3]
    assert ids("--max-rows", "2") == [1, 2]
    assert ids("--idle-exit", "0.7") == [1, 2, 3]
    assert ids("--idle-exit", "0.4") == []
    with client(node, table, *options) as reading:
        assert reading.process.stdout is not None
        until(lambda: stream_of(node, "example", 4)["state"] == "open", what="the stream")
        mysql.execute(f"INSERT INTO {table} VALUES (4, 'd')")
        while seen(reading.process.stdout.readline()) != 4:
            continue
        reading.process.send_signal(signal.SIGTERM)
        assert reading.process.wait(10) == 0
        assert reading.process.stdout.read() == ""
    assert ids("--idle-exit", "0.7") == []


def test_a_client_whose_snapshot_has_failed_says_so_and_exits_with_1(
    source_server: SqlServer, node: Node, database: str
) -> None:
    """It printed the rows before the table that cannot be read, and exited with 0 as if these were all."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.a VALUES (1), (2)",
        f"CREATE TABLE {database}.nokey (id INT)",
    )
    command = [PROGRAM, "client", "--server", node.address, "--destination", "example", "--client-id", "77"]
    command += ["--filter", rf"{database}\..*", "--snapshot", "*", "--idle-exit", "2", "--format", "json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert sorted(row["after"]["id"] for row in rows if row.get("snapshot")) == [1, 2]
    assert f"{database}.nokey has no primary key" in ended.stderr
    assert f"--client-id 77 --leave-out {database}.nokey`" in ended.stderr


def with_snapshot(node: Node, database: str, client_id: int, *more: str, table: str = "a") -> list[str]:
    """Return the command of a client that wants existing rows of a table."""
    command = [PROGRAM, "client", "--server", node.address, "--destination", "example", "--client-id", str(client_id)]
    command += ["--filter", rf"{database}\..*", "--snapshot", f"{database}.{table}", "--format", "json"]
    return [*command, *more]


def ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("after_s", [0.0, 2.5])
def test_a_client_that_is_stopped_exits_with_1_if_its_snapshot_has_failed(
    source_server: SqlServer, node: Node, database: str, after_s: float
) -> None:
    """Stopped before its first look, or while it waited for rows, it exited with 0 without a word."""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.nokey (id INT)")
    client_id = 78 + int(after_s)

    def has_failed() -> bool:
        (destination,) = node.status()["destinations"]
        snapshots = [each["snapshot"] for each in destination["streams"] if each["client_id"] == client_id]
        return any(snapshot and snapshot["phase"] == "failed" for snapshot in snapshots)

    command = with_snapshot(node, database, client_id, "--timeout", "0", table="nokey")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(has_failed, what="the failure")
            time.sleep(after_s)
            process.send_signal(signal.SIGTERM)
            _, told = process.communicate(timeout=15)
        finally:
            process.kill()
    assert process.returncode == 1, told
    assert told.count(f"{database}.nokey has no primary key") == 1


def test_a_client_id_that_exists_already_is_told_that_no_rows_come(
    source_server: SqlServer, node: Node, database: str
) -> None:
    """It waited for them without a word."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.a (id INT PRIMARY KEY)",
        f"INSERT INTO {database}.a VALUES (1), (2)",
        f"CREATE TABLE {database}.b (id INT PRIMARY KEY)",
    )
    first = ended(with_snapshot(node, database, 81, "--idle-exit", "2"))
    assert (first.returncode, first.stderr) == (0, "")
    again = ended(with_snapshot(node, database, 81, "--idle-exit", "1"))
    assert again.returncode == 0
    assert f"client id 81 has got the rows of {database}.a already" in again.stderr
    other = ended(with_snapshot(node, database, 81, "--idle-exit", "1", table="b"))
    assert other.returncode == 0
    assert "client id 81 exists already, so the option snapshot brings no rows" in other.stderr
    assert f"`canal-ha snapshot add --destination example --client-id 81 --table {database}.b`" in other.stderr
    begun(node, f"{database}.a", 82)
    never = ended(with_snapshot(node, database, 82, "--idle-exit", "1"))
    assert never.returncode == 0
    assert "client id 82 exists already, so the option snapshot brings no rows" in never.stderr
