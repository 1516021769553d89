"""GTID mode: turned on and off while a destination runs; cursors with a position and a set; purged sets."""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from canal_ha.client.rows import Row
from canal_ha.config.model import DecodeOptions
from canal_ha.errors import PositionLost, SourceRefused
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
    """Return the position (`postion`) of the cursor on disk."""
    meta = json.loads((node.conf / "example" / "meta.dat").read_text())
    return dict(meta["clientDatas"][0]["cursor"]["postion"])


def switch(node: Node, server: SqlServer, gtid: bool) -> None:
    """Rewrite the configuration, and wait until the destination was restarted with it."""
    starts = node.log_file("example").count("instance.started")
    lines = follow(server, {"canal.instance.gtidon": str(gtid).lower()})
    text = "".join(f"{key} = {value}\n" for key, value in lines.items())
    (node.conf / "example" / "instance.properties").write_text(text)
    until(lambda: node.log_file("example").count("instance.started") > starts, what="the restart")


def one(node: Node, server: SqlServer, number: int, *before: str) -> Row:
    """Insert a row, check that it is the client's next one, and return it. before: statements to execute first."""
    with connected(node, "shop") as client:
        server.execute(*before, INSERT.format(number))
        (row,) = rows(client, 1)
    assert row.after == {"id": number}
    return row


def persisted(node: Node, gtids: str) -> None:
    """Wait until the cursor on disk has this set."""
    until(lambda: _same(str(cursor(node)["gtid"]), gtids), what=f"a cursor with {gtids!r}")


def _same(one: str, other: str) -> bool:
    return sorted(one.split(",")) == sorted(other.split(","))


@pytest.mark.real
@EACH
def test_turned_on_and_off_while_it_runs(make: type[SqlServer]) -> None:
    """The cursor keeps its position when GTID mode changes, and each row arrives once.

    While the mode is on, entries and cursor have the server's GTID set, MySQL's tagged GTIDs included; while off, none.
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
    """Return a dump in GTID mode that starts at this position."""
    return Reading(server, "shop", at, options=ON, decode=ON)


@pytest.mark.real
@EACH
def test_a_set_without_its_journal(make: type[SqlServer]) -> None:
    """A cursor whose journal is purged continues after its set if no later transaction is purged, and fails otherwise.

    It fails as well if the binary logs were reset, even if the cursor's offset exists again.
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
    """The scanner finds the set executed up to a position. Inside a transaction, the set includes that transaction."""
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


@pytest.mark.real
def test_no_empty_set_for_a_position_inside_an_event(mariadb: MariaDB, database: str) -> None:
    """MariaDB answers NULL for such a position. That is an error, not the empty set, which brings everything again."""
    mariadb.execute(f"CREATE DATABASE {database}")
    at = newest(mariadb)
    config = config_of(mariadb, decode=ON)
    with closing(SourceSession(config, config.master)) as session:
        scanner = Scanner(session, examine(session), config, config.master)
        with pytest.raises(SourceRefused, match=rf"names no GTIDs for {at.journal}:{at.offset - 1}, because no event"):
            scanner.executed(replace(at, offset=at.offset - 1))
