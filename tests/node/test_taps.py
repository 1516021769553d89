"""The one dump for many streams of a server, as an operator sees it: status, metrics and log of a node."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from canal_ha.source.server.tap import STREAMS
from lab import Node, SqlServer, follow
from tests.node.following import column, destination_of, following, read
from tests.node.test_figures import metrics
from tests.source.test_dump_real import dump_threads
from tests.waiting import until

pytestmark = pytest.mark.real


def test_status_metrics_and_log_tell_which_streams_read_one_dump_and_how_it_ended(source_server: SqlServer) -> None:
    """Two lines of the log did, and the status could not tell it from a dump of streams with equal filters."""
    schema = f"taps_{os.getpid()}_{source_server.flavor}"
    source_server.execute(f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    with Node({"example": follow(source_server)}) as node, ExitStack() as stack:
        clients = [
            stack.enter_context(following(node, "example", number, rf"{schema}\.(t|other{number})"))
            for number in range(1001, 1001 + STREAMS)
        ]
        for client in clients:
            client.get_without_ack(1)
        rows = 0

        def names() -> set[str]:
            """Insert a row; return the names of the taps, "" for a stream without one."""
            nonlocal rows
            rows += 1
            source_server.execute(f"INSERT INTO {schema}.t VALUES ({rows})")
            for client in clients:
                assert column(read(client, 1)) == [rows]
            return {stream["tap"] for stream in destination_of(node, "example")["streams"]}

        until(lambda: len(now := names()) == 1 and "" not in now, what="streams at a tap", seconds=60)
        (name,) = names()
        assert name.startswith("canal-ha/tap/")
        statement = "SHOW REPLICAS" if source_server.flavor == "mysql" else "SHOW SLAVE HOSTS"
        assert name in {row["Host"] for row in source_server.query(statement)}
        assert all(stream["shared"] for stream in destination_of(node, "example")["streams"])
        assert metrics(node)[f'canal_tap_streams{{address="{source_server.address}"}}'] == STREAMS
        assert metrics(node)['canal_taps_ended{reason="lost"}'] == 0
        for number in dump_threads(source_server):
            source_server.execute(f"KILL {number}")
        until(lambda: metrics(node)['canal_taps_ended{reason="lost"}'] == 1, what="the end of the tap")
        assert f'canal_tap_streams{{address="{source_server.address}"}}' in metrics(node)
        names()
        log = (node.directory / "logs/canal/canal.log").read_text()
        assert f"tap.began source={source_server.address} replica={name}" in log
        assert f"tap.ended source={source_server.address} replica={name} reason=lost" in log
