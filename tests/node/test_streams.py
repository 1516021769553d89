"""A stream per client id, on real servers: starts, filters, parking, limits, cursors over restarts, lagging columns."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from canal_ha.client.rows import rows_of
from canal_ha.errors import ServerRefused
from canal_ha.source.identity import replica
from tests.node.following import column, destination_of, following, read, silence, stream_of
from tests.real import Node, SqlServer, follow
from tests.waiting import until

pytestmark = pytest.mark.real


@dataclass(frozen=True, slots=True)
class Site:
    """A source, a node that follows it under several names, and a schema with the tables a and b (id, v)."""

    server: SqlServer
    node: Node
    schema: str

    def insert(self, table: str, *ids: int) -> None:
        """One transaction."""
        values = ", ".join(f"({number}, 'v{number}')" for number in ids)
        self.server.execute(f"INSERT INTO {self.schema}.{table} VALUES {values}")

    def table(self, name: str) -> str:
        """A new table (id, v), and the filter that selects it alone."""
        self.server.execute(f"CREATE TABLE {self.schema}.{name} (id int PRIMARY KEY, v varchar(20))")
        return rf"{self.schema}\.{name}"

    def dumps(self, destination: str, client_id: int = 1001) -> bool:
        """Whether the source knows a replica for this stream."""
        statement = "SHOW REPLICAS" if self.server.flavor == "mysql" else "SHOW SLAVE HOSTS"
        return replica(destination, client_id).name in {row["Host"] for row in self.server.query(statement)}


@pytest.fixture(scope="module")
def site(source_server: SqlServer) -> Iterator[Site]:
    """Destinations differ in their settings; `placed` starts at a position before the row 1 of `early`."""
    schema = f"streams_{os.getpid()}"
    source_server.execute(f"CREATE DATABASE {schema}")
    for table in ("a", "b", "early"):
        source_server.execute(f"CREATE TABLE {schema}.{table} (id int PRIMARY KEY, v varchar(20))")
    journal, position = source_server.position()
    source_server.execute(f"INSERT INTO {schema}.early VALUES (1, 'early')")
    own = rf"{schema}\\..*"  # a properties file wants its backslashes twice
    settings: dict[str, dict[str, str]] = {
        "example": {"canal.instance.filter.regex": rf"{schema}\\.a"},
        "fresh": {"canal.instance.filter.regex": own},
        "placed": {
            "canal.instance.filter.regex": own,
            "canal.instance.master.journal.name": journal,
            "canal.instance.master.position": str(position),
        },
        "parking": {"canal.instance.stream.idle": "1"},
        "few": {"canal.instance.stream.max": "1", "canal.instance.stream.idle": "1"},
        "both": {"canal.instance.filter.regex": rf"{schema}\\.a", "canal.instance.filter.client.mode": "and"},
    }
    destinations = {name: follow(source_server, properties) for name, properties in settings.items()}
    with Node(destinations) as node:
        yield Site(source_server, node, schema)


def test_the_first_client_begins_where_the_source_stood(site: Site) -> None:
    """Rows written before any client came reach the first one; a second client id begins at the end."""
    until(lambda: destination_of(site.node, "fresh")["newest"], what="the first look at the source")
    until((site.node.conf / "fresh" / "parse.dat").exists, what="the start kept in a file")
    site.insert("early", 100, 101)
    with following(site.node, "fresh") as first, following(site.node, "fresh", 1002) as second:
        assert not (site.node.conf / "fresh" / "parse.dat").exists()
        rows = read(first, 2)
        assert column(rows)[-2:] == [100, 101]
        silence(second, 0.5)
        site.insert("early", 102)
        assert column(read(first, 1)) == column(read(second, 1)) == [102]


def test_a_configured_position_wins(site: Site) -> None:
    """The first client and later ones begin there, however late they come."""
    for client_id in (1001, 7):
        with following(site.node, "placed", client_id, rf"{site.schema}\.early") as client:
            assert column(read(client, 1))[0] == 1


def test_two_client_ids_do_not_steal_from_each_other(site: Site) -> None:
    """Both get every row; a filter of the one is not the other's; an ACK of the one moves no cursor of the other."""
    only_b = rf"{site.schema}\.b"
    with (
        following(site.node, "example") as first,
        following(site.node, "example", 1002) as second,
        following(site.node, "example", 1003, only_b) as third,
    ):
        for number in range(1, 6):
            site.insert("a", number)
            site.insert("b", number)
        assert column(read(first, 5)) == [1, 2, 3, 4, 5]
        before = stream_of(site.node, "example", 1002)["cursor"]
        rows = read(third, 5)
        assert (column(rows), {row.table for row in rows}) == ([1, 2, 3, 4, 5], {"b"})
        assert stream_of(site.node, "example", 1002)["cursor"] == before
        assert column(read(second, 5)) == [1, 2, 3, 4, 5]


def test_filters_replace_or_must_both_hold(site: Site) -> None:
    """A client's filter replaces the server's, an empty one keeps it; with `and` a client sees no more than allowed."""
    everything, only_b = rf"{site.schema}\.(a|b)", rf"{site.schema}\.b"
    with (
        following(site.node, "example", 21) as server_s,
        following(site.node, "example", 22, only_b) as own,
        following(site.node, "both", 23, only_b) as neither,
        following(site.node, "both", 24, everything) as both,
    ):
        site.insert("b", 50)
        site.insert("a", 51)
        assert column(read(server_s, 1)) == [51]
        assert column(read(own, 1)) == [50]
        assert column(read(both, 1)) == [51]
        silence(neither, 0.5)
        own.subscribe(everything)  # a changed filter starts again at the cursor: row 50 was acknowledged
        site.insert("a", 52)
        rows = column(read(own, 1))
        assert (rows if 52 in rows else rows + column(read(own, 1))) in ([51, 52], [52])
        with pytest.raises(ServerRefused, match="regular expression"):
            own.subscribe("(")  # the last request here: canal's clients are out of step after an error


def test_parking_closes_the_dump_and_loses_nothing(site: Site) -> None:
    """Batches in flight over parking: an ACK moves the cursor, the next GET goes on behind the last one handed out."""
    tables = site.table("parked")
    with following(site.node, "parking", tables=tables) as client:
        for number in range(15):
            site.insert("parked", number)
        first = until(lambda: client.get_without_ack(1, 100) or None, what="the first batch")
        second = until(lambda: client.get_without_ack(1, 100) or None, what="the second batch")
        assert site.dumps("parking")
        before = stream_of(site.node, "parking")["cursor"]
        until(lambda: stream_of(site.node, "parking")["state"] == "parked", what="parking", seconds=5)
        until(lambda: not site.dumps("parking"), what="the end of the dump", seconds=5)
        client.ack(first.id)
        client.ack(second.id)
        until(lambda: stream_of(site.node, "parking")["cursor"] != before, what="the cursor", seconds=3)
        site.insert("parked", 15)
        handed = column(rows_of(first.entries)) + column(rows_of(second.entries))
        assert handed + column(read(client, 16 - len(handed))) == list(range(16))
        silence(client, 0.5)
        until(lambda: stream_of(site.node, "parking")["state"] == "parked", what="parking again", seconds=5)
        client.rollback()  # everything is acknowledged: nothing to repeat
        site.insert("parked", 16)
        assert column(read(client, 1)) == [16]


def test_a_waiting_get_keeps_a_stream_open(site: Site) -> None:
    """A GET that waits for longer than the idle time is answered by the row that comes meanwhile."""
    tables = site.table("waited")
    with following(site.node, "parking", 31, tables) as client:
        silence(client, 0.2)
        assert not client.get_without_ack(1000, 2500)
        assert stream_of(site.node, "parking", 31)["state"] == "open"


def test_a_roll_back_after_parking_repeats_from_the_cursor(site: Site) -> None:
    """What was handed out and not acknowledged comes again after a roll-back, whole and in order."""
    tables = site.table("back")
    with following(site.node, "parking", 32, tables) as client:
        for number in range(15):
            site.insert("back", number)
        read(client, 1, size=1)
        until(lambda: client.get_without_ack(1, 100) or None, what="a batch in flight")
        until(lambda: stream_of(site.node, "parking", 32)["state"] == "parked", what="parking", seconds=5)
        client.rollback()
        rows = column(read(client, 1))
        while rows[-1] != 14:
            rows += column(read(client, 1))
        assert rows == list(range(rows[0], 15))


def test_one_stream_too_many(site: Site) -> None:
    """The second of two ids is refused with the key's name, and let in once the first is parked."""
    with following(site.node, "few", tables="none") as first:
        silence(first, 0.2)
        refusal = r"1 open streams already \(canal\.instance\.stream\.max\)"
        with pytest.raises(ServerRefused, match=refusal), following(site.node, "few", 1002):
            pass
        until(lambda: stream_of(site.node, "few")["state"] == "parked", what="parking", seconds=5)
        with following(site.node, "few", 1002):
            assert stream_of(site.node, "few", 1002)["state"] == "open"
            with pytest.raises(ServerRefused, match=refusal):
                first.get_without_ack(1, 0)


def test_unsubscribe_forgets(site: Site) -> None:
    """Filter and cursor are gone from the file; who comes back begins at the end."""
    tables = site.table("gone")
    file = site.node.conf / "example" / "meta.dat"

    def known() -> set[int]:
        return {data["clientIdentity"]["clientId"] for data in json.loads(file.read_text())["clientDatas"]}

    with following(site.node, "example", 41, tables) as client:
        site.insert("gone", 1)
        assert column(read(client, 1)) == [1]
        client.unsubscribe()
        assert 41 not in known()
        assert not site.dumps("example", 41) or until(lambda: not site.dumps("example", 41), what="its dump's end")
        with pytest.raises(ServerRefused, match="should subscribe first"):
            client.get_without_ack(1, 0)
        site.insert("gone", 2)
        client.subscribe(tables)
        assert 41 in known()
        site.insert("gone", 3)
        assert column(read(client, 1)) == [3]


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_a_lagging_stream_has_the_columns_of_its_position(site: Site, metadata: str) -> None:
    """Columns added in the middle, dropped, renamed and changed while a stream is parked do not reach older rows."""
    name = f"{site.schema}.lag_{metadata}"
    tables = site.table(f"lag_{metadata}")
    (before,) = site.server.query("SELECT @@GLOBAL.binlog_row_metadata AS held")
    site.server.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        client_id = 51 if metadata == "FULL" else 52
        with following(site.node, "parking", client_id, tables) as client:
            site.server.execute(f"INSERT INTO {name} VALUES (1, 'one')")
            assert [row.after for row in read(client, 1)] == [{"id": 1, "v": "one"}]
            until(lambda: stream_of(site.node, "parking", client_id)["state"] == "parked", what="parking", seconds=5)
            site.server.execute(
                f"INSERT INTO {name} VALUES (2, 'two')",
                f"ALTER TABLE {name} ADD COLUMN n bigint unsigned AFTER id",
                f"INSERT INTO {name} VALUES (3, 18446744073709551615, 'three')",
                f"ALTER TABLE {name} CHANGE v w varchar(40), ADD COLUMN d decimal(5,2)",
                f"INSERT INTO {name} VALUES (4, 4, 'four', 4.5)",
                f"ALTER TABLE {name} DROP COLUMN n",
                f"INSERT INTO {name} VALUES (5, 'five', 5.25)",
            )
            rows = [row for row in read(client, 7) if row.after is not None]
            assert [{key: str(value) for key, value in (row.after or {}).items()} for row in rows] == [
                {"id": "2", "v": "two"},
                {"id": "3", "n": "18446744073709551615", "v": "three"},
                {"id": "4", "n": "4", "w": "four", "d": "4.50"},
                {"id": "5", "w": "five", "d": "5.25"},
            ]
    finally:
        site.server.execute(f"SET GLOBAL binlog_row_metadata = {before['held']}")


def test_nothing_acknowledged_comes_again_after_an_orderly_stop(source_server: SqlServer, database: str) -> None:
    """The stop alone writes the cursors here: an END and a DDL acknowledged right before SIGTERM are not repeated,
    a batch in flight is; the filter of the subscription still holds for a GET without a new one.
    """
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id int PRIMARY KEY)",
        f"CREATE TABLE {database}.other (id int PRIMARY KEY)",
    )
    tables = rf"{database}\.t"
    properties = {"canal.file.flush.period": "60000"}
    with Node({"example": follow(source_server)}, properties=properties) as node:
        with following(node, tables=tables) as client:
            source_server.execute(f"INSERT INTO {database}.t VALUES (1), (2)")
            assert column(read(client, 2)) == [1, 2]
        node.stop()
        assert node.exit_code == 0
        source_server.execute(f"INSERT INTO {database}.other VALUES (1)", f"INSERT INTO {database}.t VALUES (3)")
        node.start()
        with following(node, subscribe=False) as client:
            assert column(read(client, 1)) == [3]
            source_server.execute(f"ALTER TABLE {database}.t ADD COLUMN v int")
            assert [row.type for row in read(client, 1)] == ["ALTER"]
        node.restart()
        with following(node, tables=tables) as client:
            silence(client, 1.0)
            source_server.execute(f"INSERT INTO {database}.t VALUES (4, 4)")
            until(lambda: client.get_without_ack(100, 100) or None, what="a batch that is never acknowledged")
        node.restart()
        with following(node, tables=tables) as client:
            assert column(read(client, 1)) == [4]
        log = (node.directory / "logs" / "example" / "meta.log").read_text().splitlines()
        assert len(log) == 2, "one line per stop that had a new cursor"
