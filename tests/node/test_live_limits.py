"""A running node takes changed limits of canal.properties over, without a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.config.load import load_usable
from canal_ha.errors import ServerRefused
from canal_ha.node.node import Node
from lab.ports import LOOPBACK, free_port
from tests.running_reactor import running_reactor
from tests.waiting import until
from tests.zookeeper.stage import on_reactor, reactor


def test_a_raised_limit_of_connections_lets_the_next_client_in(tmp_path: Path) -> None:
    """The log says that the file was taken over, and the port behaves so."""
    running_reactor()
    port, file = free_port(), tmp_path / "canal.properties"
    text = f"canal.ip = {LOOPBACK}\ncanal.port = {port}\ncanal.metrics.pull.port = 0\ncanal.admin.http.port = -1\n"
    text += "canal.auto.scan = true\ncanal.auto.scan.interval = 0.1\ncanal.client.connections.max = "
    file.write_text(f"{text}1\n")

    def enters() -> bool:
        try:
            with SimpleConnector(LOOPBACK, port, "example"):
                return True
        except ServerRefused:
            return False

    node = Node(load_usable(tmp_path, (), {}), reactor)
    on_reactor(node.start)
    try:
        with SimpleConnector(LOOPBACK, port, "example"):
            with pytest.raises(ServerRefused, match=r"canal\.client\.connections\.max"):
                SimpleConnector(LOOPBACK, port, "example").connect()
            file.write_text(f"{text}2\n")
            until(enters, what="room for a second client")
    finally:
        on_reactor(node.stop)
