"""Alarms, when they begin and when they end, in the destination's log and as metrics."""

from __future__ import annotations

import urllib.request

import pytest

from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.positions.reading import connected, rows
from tests.waiting import until


@pytest.mark.real
def test_alarms(source_server: SqlServer, database: str) -> None:
    """A cursor that does not move while rows wait raises an alarm, and so does a journal about to be purged."""
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    unmoved = {"canal.instance.alarm.unmoved": "1"}
    with (
        Node({"example": follow(server, unmoved)}) as node,
        connected(node, database) as client,
    ):
        log = node.directory / "logs" / "example" / "example.log"

        def told(name: str) -> None:
            until(lambda: f" {name} " in log.read_text(), what=name)

        server.execute(f"INSERT INTO {database}.t VALUES (1)")
        told("alarm.unmoved")
        with urllib.request.urlopen(f"http://{LOOPBACK}:{node.metrics_port}/") as page:
            assert (
                'canal_stream_alarm{destination="example",client_id="1001",alarm="unmoved"} 1' in page.read().decode()
            )
        assert len(rows(client, 1)) == 1
        told("alarm.unmoved_over")
        variable = "binlog_expire_logs_seconds"
        expiry = server.query(f"SELECT @@GLOBAL.{variable} AS value")[0]["value"]
        try:
            server.execute("FLUSH BINARY LOGS", f"SET GLOBAL {variable} = 1")
            told("alarm.purge")
            if server.flavor == "mysql":  # the node looks every five seconds: one server is enough
                server.execute(f"SET GLOBAL {variable} = 864000")
                told("alarm.purge_over")
        finally:
            server.execute(f"SET GLOBAL {variable} = {expiry}")
