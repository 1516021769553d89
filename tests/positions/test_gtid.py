"""GTID mode: turned on and off while a destination runs, cursors with place and set, sets that are purged."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from canal_ha.client.rows import Row
from canal_ha.config.model import DecodeOptions
from canal_ha.errors import PositionLost
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions.scan import Scanner
from lab import MariaDB, MySQL, Node, SqlServer, follow
from tests.positions.reading import connected, rows
from tests.source.reading import Reading, config_of, newest, purge
from tests.waiting import until

EACH = pytest.mark.parametrize("make", [MySQL, MariaDB])
XID_BYTES = 31  # the event that ends a transaction, checksum included
ON = DecodeOptions(gtid_on=True)
INSERT = "INSERT INTO shop.t VALUES ({})"


def cursor(node: Node) -> dict[str, Any]:
    """`postion` of the cursor on disk."""
    meta = json.loads((node.conf / "example" / "meta.dat").read_text())
    return dict(meta["clientDatas"][0]["cursor"]["postion"])


def switch(node: Node, server: SqlServer, gtid: bool) -> None:
    """Write the configuration anew; return when the destination was restarted with it."""
    starts = node.log_file("example").count("instance.started")
    lines = follow(server, {"canal.instance.gtidon": str(gtid).lower()})
    text = "".join(f"{key} = {value}\n" for key, value in lines.items())
    (node.conf / "example" / "instance.properties").write_text(text)
    until(lambda: node.log_file("example").count("instance.started") > starts, what="the restart")


def one(node: Node, server: SqlServer, number: int, *before: str) -> Row:
    """Insert a row; the next row of the client is this one."""
    with connected(node, "shop") as client:
        server.execute(*before, INSERT.format(number))
        (row,) = rows(client, 1)
    assert row.after == {"id": number}
    return row


def persisted(node: Node, gtids: str) -> None:
    """Wait for a cursor with this set."""
    until(lambda: _same(str(cursor(node)["gtid"]), gtids), what=f"a cursor with {gtids!r}")


def _same(one: str, other: str) -> bool:
    return sorted(one.split(",")) == sorted(other.split(","))


@pytest.mark.real
@EACH
def test_turned_on_and_off_while_it_runs(make: type[SqlServer]) -> None:
    """The cursor keeps its place; on: entries and cursor get the set that the server tells; off: they have none.

    Nothing is lost, repeated or out of order. MySQL's tagged GTIDs count as others do.
    """
    scan = {"canal.auto.scan": "true", "canal.auto.scan.interval": "0.2"}
    with make() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
        with Node({"example": follow(server)}, properties=scan) as node:
            assert one(node, server, 1).gtid == ""
            persisted(node, "")
            server.execute("FLUSH BINARY LOGS", "CREATE TABLE shop.u (id int PRIMARY KEY)")
            switch(node, server, True)
            tag = ["SET gtid_next = 'AUTOMATIC:blue'"] if server.flavor == "mysql" else []
            told = one(node, server, 2, *tag).gtid
            assert _same(told, server.gtid_set())
            assert not tag or ":blue:" in told
            persisted(node, told)
            assert cursor(node)["journalName"] == server.position()[0]
            switch(node, server, False)
            assert one(node, server, 3).gtid == ""
            persisted(node, "")


def dumped(server: SqlServer, at: LogPosition) -> Reading:
    """A dump from here, in GTID mode."""
    return Reading(server, "shop", at, options=ON, decode=ON)


@pytest.mark.real
@EACH
def test_a_set_without_its_journal(make: type[SqlServer]) -> None:
    """A cursor whose journal is purged goes on behind its set if nothing of it is lost; else the error names what is.

    A server whose binary logs were reset is found out even where the cursor's place exists again.
    """
    with make() as server:
        server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY, a text)")
        server.execute(*(f"INSERT INTO shop.t VALUES ({number}, '')" for number in range(10)))
        before = replace(newest(server), gtid=server.gtid_set())
        server.execute("INSERT INTO shop.t VALUES (10, '')")
        after = replace(newest(server), gtid=server.gtid_set())
        oldest = purge(server)
        server.execute("INSERT INTO shop.t VALUES (11, '')")
        with dumped(server, after) as reading:
            assert reading.wait_rows(1) == ["11"]
            assert reading.segments[-1].run_gtids[-1] == server.gtid_set()
        with dumped(server, before) as reading:
            assert re.search(f"are purged|purged \\(.*{oldest}", str(reading.failure(PositionLost).error))
        server.execute("RESET BINARY LOGS AND GTIDS" if server.flavor == "mysql" else "RESET MASTER")
        server.execute("INSERT INTO shop.t VALUES (12, REPEAT('a', 9000))")
        with dumped(server, after) as reading:
            assert re.search("does not have its own transactions", str(reading.failure(PositionLost).error))


@pytest.mark.real
def test_the_set_at_any_place(source_server: SqlServer, database: str) -> None:
    """A cursor without a set finds the one executed before its place: between transactions, inside one, at the end."""
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    places = []
    for number in range(3):
        server.execute(f"INSERT INTO {database}.t VALUES ({number})")
        places.append((newest(server), server.gtid_set()))
    inside = replace(places[0][0], offset=places[1][0].offset - XID_BYTES)
    config = config_of(server, decode=ON)
    with closing(SourceSession(config, config.master)) as session:
        scanner = Scanner(session, examine(session), config, config.master)
        assert [scanner.executed(at) for at, _ in places] == [gtids for _, gtids in places]
        assert scanner.executed(inside) == places[1][1]
