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
        config, lambda schema, table: str(server.query(f"SHOW CREATE TABLE {schema}.{table}")[0]["Create Table"])
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
