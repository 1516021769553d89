"""read_from: a private stream from a position, without a cursor, beside the subscribed client of the same id."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row, rows_of
from canal_ha.errors import LocalProtocolError, ServerRefused
from lab import MySQL, Node, SqlServer, ZooKeeper, follow
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from tests.positions.reading import connected, rows


@pytest.mark.real
def test_a_range_beside_the_client(source_server: SqlServer, database: str) -> None:
    """Each read_from delivers exactly the rows of its range.

    The subscribed client's cursor and batches do not change.
    """
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    with (
        Node({"example": follow(server, {"canal.instance.read.max": "1"})}) as node,
        connected(node, database) as client,
        SimpleConnector(LOOPBACK, node.port, "example", rollback_on_connect=False) as reader,
    ):
        places = []
        for number in (1, 2, 3):
            places.append(":".join(map(str, server.position())))
            server.execute(f"INSERT INTO {database}.t VALUES ({number})")
        assert [row.after for row in rows(client, 2)][:2] == [{"id": 1}, {"id": 2}]
        tables = rf"{database}\..*"
        for _ in range(2):
            reader.read_from(places[0], until=places[2], filter=tables)
            assert [row.after for row in rows(reader, 2)] == [{"id": 1}, {"id": 2}]
            with pytest.raises(ServerRefused, match="end of range"):
                rows(reader, 1)
        reader.read_from(places[1], filter=tables)
        assert [row.after for row in rows(reader, 2)] == [{"id": 2}, {"id": 3}]
        assert not reader.get_without_ack(1)  # a reply after the last ACK: the next refusal is not of an ACK
        with pytest.raises(ServerRefused, match="use another one to subscribe"):
            reader.subscribe("")
        with (
            SimpleConnector(LOOPBACK, node.port, "example", 7, rollback_on_connect=False) as third,
            pytest.raises(ServerRefused, match=r"read\.max"),
        ):
            third.read_from("earliest")
        with pytest.raises(ServerRefused, match="does not exist; the binlog reaches from"):
            reader.read_from("mysql-bin.999999:4")
        server.execute(f"INSERT INTO {database}.t VALUES (4)")
        assert [row.after for row in rows(client, 1)][-1] in ({"id": 3}, {"id": 4})


@pytest.mark.real
def test_a_range_of_gtid_sets(source_server: SqlServer, database: str) -> None:
    """A range between two sets has the transactions that only the second contains.

    A set not yet executed is refused.
    """
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    with (
        Node({"example": follow(server)}) as node,
        SimpleConnector(LOOPBACK, node.port, "example", rollback_on_connect=False) as reader,
    ):
        sets = []
        for number in (1, 2, 3):
            sets.append(f"gtid:{server.gtid_set()}")
            server.execute(f"INSERT INTO {database}.t VALUES ({number})")
        sets.append(f"gtid:{server.gtid_set()}")
        tables = rf"{database}\..*"
        for first, last in ((0, 2), (1, 3)):
            reader.read_from(sets[first], until=sets[last], filter=tables)
            assert [row.after for row in rows(reader, 2)] == [{"id": number + 1} for number in range(first, last)]
            with pytest.raises(ServerRefused, match="end of range"):
                rows(reader, 1)
        ahead = re.sub(r"\d+$", "999999", sets[3])
        with pytest.raises(ServerRefused, match="is not completely executed"):
            reader.read_from(sets[0], until=ahead)


@pytest.mark.real
def test_through_zookeeper_and_over_a_restart(mysql: MySQL, database: str, zookeeper: ZooKeeper) -> None:
    """A private connector does not replace the client; after a restart of the node it continues from its last batch."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    begin = ":".join(map(str, mysql.position()))
    hosts = f"{zookeeper.hosts}/{database}"
    tables = rf"{database}\..*"
    by_entries = {"canal.instance.memory.batch.mode": "ITEMSIZE"}
    node = Node({"example": follow(mysql, by_entries)}, zk_servers=hosts).start()
    with ClusterConnector(hosts, "example") as client, ClusterConnector(hosts, "example", private=True) as reader:
        client.subscribe(tables)
        mysql.execute(*(f"INSERT INTO {database}.t VALUES ({number})" for number in (1, 2, 3)))
        reader.read_from(begin, filter=tables)
        with pytest.raises(LocalProtocolError, match="is private"):
            reader.subscribe(tables)
        message = reader.get_without_ack(4, 5000)  # BEGIN, row, END, and the next transaction's BEGIN
        assert len(message.entries) == 4
        reader.ack(message.id)
        assert [row.after for row in rows(reader, 2)] == [{"id": 2}, {"id": 3}]
        node.stop()
        mysql.execute(f"INSERT INTO {database}.t VALUES (4)")
        end = ":".join(map(str, mysql.position()))
        node.start()
        rest = [row.after for row in rows(reader, 1)]
        assert rest[-1] == {"id": 4}
        assert rest[:-1] in ([], [{"id": 3}])
        place = ("--zk", hosts, "--filter", tables, "--from", begin, "--until", end)
        result = CliRunner().invoke(group, ["client", "--destination", "example", "--format", "json", *place])
        done = [json.loads(line)["after"] for line in result.stdout.splitlines()]
        assert done == [{"id": number} for number in (1, 2, 3, 4)]
        assert [row.after for row in rows(client, 4)] == done
    node.stop()


@pytest.mark.real
def test_existing_rows_without_a_client_id(source_server: SqlServer, database: str) -> None:
    """A read of a snapshot delivers each existing row beside the changes and ends; no client id is left behind.

    A table that no snapshot can read refuses the read with the reason.
    """
    server = source_server
    server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id int PRIMARY KEY, v int)",
        f"CREATE TABLE {database}.none (id int)",
        f"INSERT INTO {database}.t VALUES {', '.join(f'({number}, 0)' for number in range(500))}",
    )
    with (
        Node({"example": follow(server)}) as node,
        SimpleConnector(LOOPBACK, node.port, "example", rollback_on_connect=False) as reader,
    ):
        for _ in range(2):
            begun = reader.read_from("latest", filter=rf"{database}\..*", snapshot=[f"{database}.t"])
            assert begun is not None
            assert json.loads(begun.snapshot)["phase"] == "running"
            server.execute(f"UPDATE {database}.t SET v = v + 1 WHERE id = 499")
            found, why = until_refused(reader)
            assert "end of range" in why
            snapshot = [row.after["id"] for row in found if row.snapshot and row.after]
            changed = [row.after["id"] for row in found if not row.snapshot and row.after]
            assert {*snapshot, *changed} == set(range(500))
            assert len(set(snapshot)) == len(snapshot)
        [destination] = node.status()["destinations"]
        assert destination["streams"] == []
        reader.read_from("latest", snapshot=[f"{database}.none"])
        found, why = until_refused(reader)
        assert found == []
        assert "has no primary key" in why
        assert "client id and `canal-ha snapshot start --without-key`" in why
        assert "resume" not in why
        with pytest.raises(ServerRefused, match="shows no table"):
            reader.read_from("latest", snapshot=[f"{database}.absent"])


@pytest.mark.real
def test_a_table_that_cannot_be_read_is_not_read_again_and_again(mysql: MySQL, database: str) -> None:
    """A connector that fails over took the refusal for a lost connection, and delivered the other table for ever."""
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id int PRIMARY KEY)",
        f"CREATE TABLE {database}.none (id int)",
        f"INSERT INTO {database}.t VALUES {', '.join(f'({number})' for number in range(500))}",
    )
    with Node({"example": follow(mysql)}) as node:
        address = f"{LOOPBACK}:{node.port}"
        reader = ClusterConnector([address, address], "example", private=True)
        with reader:
            reader.read_from("latest", snapshot=[f"{database}.t", f"{database}.none"])
            found, why = until_refused(reader)
            assert [row.after["id"] for row in found if row.after] == list(range(500))
            assert "has no primary key" in why
        with reader, pytest.raises(ServerRefused, match="shows no table"):
            reader.read_from("latest", snapshot=[f"{database}.absent"])
        arguments = ("--server", f"{address},{address}", "--from", "latest", "--snapshot", f"{database}.t")
        done = subprocess.run(
            [
                PROGRAM,
                "client",
                "--destination",
                "example",
                "--format",
                "json",
                *arguments,
                "--snapshot",
                f"{database}.none",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 1
        assert len(done.stdout.splitlines()) == 500
        assert "has no primary key" in done.stderr


def until_refused(reader: SimpleConnector | ClusterConnector) -> tuple[list[Row], str]:
    """Read until a GET is refused; return the rows and the reason."""
    found: list[Row] = []
    for _ in range(300):
        try:
            message = reader.get_without_ack(100, 100)
        except ServerRefused as error:
            return found, str(error)
        found += rows_of(message)
        reader.ack(message.id)
    raise AssertionError("no GET is refused")


def printed(*arguments: str) -> list[object]:
    """Return the rows that `canal-ha client` prints until it ends."""
    done = subprocess.run(
        [PROGRAM, "client", "--destination", "example", "--format", "json", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["after"] for line in done.stdout.splitlines()]


@pytest.mark.real
def test_from_the_command_line(mysql: MySQL, database: str) -> None:
    """`canal-ha client --from --until` prints the range and ends by itself."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    begin = ":".join(map(str, mysql.position()))
    mysql.execute(*(f"INSERT INTO {database}.t VALUES ({number})" for number in range(5)))
    end = f"gtid:{mysql.gtid_set()}"
    with Node({"example": follow(mysql)}) as node:
        arguments = ("--server", f"{LOOPBACK}:{node.port}", "--filter", rf"{database}\..*", "--from", begin)
        assert printed(*arguments, "--until", end) == [{"id": each} for each in range(5)]
        arguments = ("--server", f"{LOOPBACK}:{node.port}", "--from", "latest", "--snapshot", f"{database}.t")
        assert printed(*arguments) == [{"id": each} for each in range(5)]
