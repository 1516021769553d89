"""Reading from a position: private, without a cursor, beside the client of the same id."""

from __future__ import annotations

import json
import subprocess

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import ServerRefused
from tests.positions.reading import connected, rows
from tests.real import Node, SqlServer, follow
from tests.real.node import PROGRAM
from tests.real.ports import LOOPBACK


@pytest.mark.real
def test_a_range_beside_the_client(source_server: SqlServer, database: str) -> None:
    """Exactly the rows of the range come, as often as asked for; the client's cursor and batches stay as they are."""
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    with (
        Node({"example": follow(server, {"canal.instance.stream.max": "2"})}) as node,
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
        assert not reader.get_without_ack(1)  # a reply behind the last ACK: what is refused now is no ACK
        with pytest.raises(ServerRefused, match="use another one to subscribe"):
            reader.subscribe("")
        with (
            SimpleConnector(LOOPBACK, node.port, "example", 7, rollback_on_connect=False) as third,
            pytest.raises(ServerRefused, match=r"stream\.max"),
        ):
            third.read_from("earliest")
        with pytest.raises(ServerRefused, match="there is no"):
            reader.read_from("mysql-bin.999999:4")
        server.execute(f"INSERT INTO {database}.t VALUES (4)")
        assert [row.after for row in rows(client, 1)][-1] in ({"id": 3}, {"id": 4})


@pytest.mark.real
def test_from_the_command_line(mysql: SqlServer, database: str) -> None:
    """`canal-ha client --from --until` prints the range and ends by itself."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    begin = ":".join(map(str, mysql.position()))
    mysql.execute(*(f"INSERT INTO {database}.t VALUES ({number})" for number in range(5)))
    end = ":".join(map(str, mysql.position()))
    with Node({"example": follow(mysql)}) as node:
        arguments = ("--destination", "example", "--filter", rf"{database}\..*", "--format", "json", "--from", begin)
        done = subprocess.run(
            [PROGRAM, "client", "--server", f"{LOOPBACK}:{node.port}", *arguments, "--until", end],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert [json.loads(line)["after"] for line in done.stdout.splitlines()] == [{"id": each} for each in range(5)]
