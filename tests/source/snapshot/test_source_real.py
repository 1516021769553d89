"""The server that a snapshot reads, where an address can lead to several."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from canal_ha.config.model import SourceConfig
from canal_ha.errors import SourceUnavailable
from canal_ha.model.snapshot import SnapshotRange
from canal_ha.source.snapshot.result_set import values_of
from canal_ha.source.snapshot.source import SnapshotSource
from canal_ha.source.snapshot.watermark import Reached
from lab import MySQL
from lab.ports import LOOPBACK
from tests.node.proxy import Proxy
from tests.source.reading import config_of

pytestmark = pytest.mark.real

LARGE = 1 << 20  # bytes of a row: more than the server sends before it is read


class Balancer(Proxy):
    """Leads new connections to one of several servers."""

    def lead_to(self, port: int) -> None:
        """Lead new connections to another server."""
        self._to = port

    def back(self, server: socket.socket, client: socket.socket) -> None:
        """Forward what the server sends, until its end."""
        while data := server.recv(65536):
            client.sendall(data)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[MySQL, MySQL]]:
    """Yield two servers. The second one has older rows of the table."""
    with MySQL() as first, MySQL() as second:
        for server, value in ((first, "new"), (second, "old")):
            server.execute(
                "CREATE DATABASE d",
                "CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)",
                *(f"INSERT INTO d.t VALUES ({number}, CONCAT('{value}', REPEAT('x', {LARGE})))" for number in (1, 2)),
            )
        yield first, second


def opened(server: MySQL, balancer: Balancer) -> SnapshotSource:
    """Return the source of a snapshot behind a balancer."""
    config = replace(config_of(server), master=SourceConfig(LOOPBACK, balancer.port))
    return SnapshotSource(
        config, lambda schema, table, _: str(server.query(f"SHOW CREATE TABLE {schema}.{table}")[0]["Create Table"])
    )


def test_another_server_answers_behind_an_incomplete_chunk(servers: tuple[MySQL, MySQL]) -> None:
    """The rest of the SELECT costs its connection. A lagging replica that takes the next one has older rows."""
    first, second = servers
    with Balancer(first.port) as balancer, closing(opened(first, balancer)) as source:
        target = source.target("d", "t")
        balancer.lead_to(second.port)
        reached = Reached("binlog.000001", 4, source.server.identity)
        with pytest.raises(SourceUnavailable, match="another server answers"):
            source.read(target, SnapshotRange(0), "", 10, 1, reached, lambda seconds: None)


def test_another_server_answers_another_session(servers: tuple[MySQL, MySQL]) -> None:
    """The read of a table without a key has sessions of its own."""
    first, second = servers
    with Balancer(first.port) as balancer, closing(opened(first, balancer)) as source:
        source.session().close()
        balancer.lead_to(second.port)
        with pytest.raises(SourceUnavailable, match="another server answers"):
            source.session()


@pytest.mark.parametrize("table", ["plain", "composite", "parts", "stale", "myisam"])
def test_mysql_reads_a_chunk_in_the_order_of_the_primary_key(mysql: MySQL, database: str, table: str) -> None:
    """Without a sort, and with an estimate of its rows: without one, MySQL copies them one by one."""
    columns = {"composite": "a INT, id VARCHAR(20), PRIMARY KEY (a, id)"}.get(table, "id INT PRIMARY KEY")
    more = {
        "parts": "PARTITION BY HASH (id) PARTITIONS 3",
        "stale": "STATS_AUTO_RECALC = 0",
        "myisam": "ENGINE = MyISAM",
    }.get(table, "")
    numbers = f"INSERT INTO {database}.t SELECT {'7, ' * (table == 'composite')} n + {{}} FROM {database}.n"
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.n (n INT PRIMARY KEY)",
        f"INSERT INTO {database}.n VALUES {', '.join(f'({number})' for number in range(1000))}",
        f"CREATE TABLE {database}.t ({columns}) {more}",
        *(numbers.format(first) for first in range(0, 5000, 1000)),
        *([] if table == "stale" else [f"ANALYZE TABLE {database}.t"]),
        "SET GLOBAL log_output = 'TABLE'",
        "SET GLOBAL general_log = ON",
    )
    try:
        source = SnapshotSource(config_of(mysql), lambda schema, name, server: str(mysql.query(
            f"SHOW CREATE TABLE {schema}.{name}")[0]["Create Table"]))  # fmt: skip
        with closing(source):
            target, part = source.target(database, "t"), SnapshotRange(0)
            assert target.key is not None
            for limit in (1500, 1000):
                found = source.read(target, part, "", limit, LARGE, source.end(), lambda seconds: None)
                part = SnapshotRange(0, target.key.texts(values_of(found.rows.whole())))
    finally:
        mysql.execute("SET GLOBAL general_log = OFF", "SET GLOBAL log_output = 'FILE'")
    assert found.rows.count == 1000
    like = f"argument LIKE '%canal-ha snapshot%{database}%LIMIT 1000%' AND command_type = 'Query'"
    [logged] = mysql.query(f"SELECT CONVERT(argument USING utf8mb4) AS sent FROM mysql.general_log WHERE {like}")
    hint = "FORCE" if table == "myisam" else "USE"  # without it, MySQL would sort the rows of MyISAM for each chunk
    assert f"{hint} INDEX (`PRIMARY`)" in str(logged["sent"])
    [explained] = mysql.query(f"EXPLAIN FORMAT=TREE {str(logged['sent']).replace('%', '%%')}")
    plan = str(next(iter(explained.values()))).lower()
    _, scan, estimate = plan.partition("index range scan on t using primary")
    assert scan
    assert "sort" not in plan
    if table not in ("stale", "myisam"):
        assert float(estimate.split("rows=", 1)[1].split(")")[0]) > 1
