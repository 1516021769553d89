"""Behaviour of streams that depends on the source: parking, columns of a lagging stream, cursors across a restart."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from canal_ha.client.rows import rows_of
from lab import Node, SqlServer, follow
from tests.node.following import column, following, read, silence, stream_of
from tests.node.site import Site
from tests.waiting import until

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def site(source_server: SqlServer) -> Iterator[Site]:
    """Yield one destination, `parking`, whose streams are parked after one idle second."""
    schema = f"parking_{os.getpid()}"
    source_server.execute(f"CREATE DATABASE {schema}")
    with Node({"parking": follow(source_server, {"canal.instance.stream.idle": "1"})}) as node:
        yield Site(source_server, node, schema)


def test_parking_closes_the_dump_and_loses_nothing(site: Site) -> None:
    """Batches in flight survive parking: an ACK moves the cursor, and the next GET continues after these batches."""
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
        client.rollback()  # every batch is acknowledged: there is nothing to repeat
        site.insert("parked", 16)
        assert column(read(client, 1)) == [16]


@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])
def test_a_lagging_stream_has_the_columns_of_its_position(site: Site, metadata: str) -> None:
    """Columns added, dropped, renamed or changed while a stream is parked do not change older rows."""
    name = f"{site.schema}.lag_{metadata}"
    tables = site.table(f"lag_{metadata}")
    (before,) = site.server.query("SELECT @@GLOBAL.binlog_row_metadata AS held")
    site.server.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        client_id = 51 if metadata == "FULL" else 52
        with following(site.node, "parking", client_id, tables) as client:
            site.server.execute(f"INSERT INTO {name} VALUES (1, 'one')")
            found = read(client, 1)
            while found[-1].after is None:  # the first client may also see the table created
                found += read(client, 1)
            assert found[-1].after == {"id": 1, "v": "one"}
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
    """An END and a DDL statement acknowledged right before SIGTERM are not repeated; a batch in flight is.

    Here only the stop writes the cursors. The filter of the subscription also holds for a GET without a new SUBSCRIBE.
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
