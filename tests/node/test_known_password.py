"""A node whose canal.properties has canal's admin port with the password admin, as canal ships it."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.cli.check import ports
from canal_ha.config import alarms
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.listeners import HASH_OF_ADMIN
from canal_ha.config.load import load
from canal_ha.node.node import Node
from canal_ha.source.checkup import Verdict
from canal_ha.wire.scramble import secret_of
from lab.admin_peer import AdminPeer
from lab.ports import LOOPBACK, free_port, listens
from tests.running_reactor import running_reactor
from tests.zookeeper.stage import on_reactor, reactor


@pytest.mark.parametrize(
    ("ip", "password", "opens"),
    [("", "admin", False), (LOOPBACK, "admin", True), ("", "another", True)],
    ids=["everywhere", "loopback", "another password"],
)
def test_an_upgraded_node_serves_and_keeps_the_admin_port_closed(
    tmp_path: Path, ip: str, password: str, opens: bool
) -> None:
    """Clients notice nothing. An alarm, which the log has too, says why nobody can log in; `check` fails for it."""
    running_reactor()
    port, admin_port = free_port(), free_port()
    (tmp_path / "canal.properties").write_text(
        f"canal.ip = {ip}\ncanal.port = {port}\ncanal.metrics.pull.port = 0\ncanal.admin.http.port = -1\n"
        f"canal.log.dir = {tmp_path / 'logs'}\ncanal.user = canal\ncanal.passwd = {secret_of('long').hex()}\n"
        f"canal.admin.port = {admin_port}\ncanal.admin.user = admin\ncanal.admin.passwd = {secret_of(password).hex()}\n"
    )
    config = load(tmp_path, [], {})
    failed = [each.text for each in ports(config) if each.verdict is Verdict.FAILED]
    node = Node(config, reactor)
    on_reactor(node.start)
    try:
        assert listens(port)
        assert listens(admin_port) is opens
        if opens:
            assert failed == []
            assert node.alarms() == ()
            with AdminPeer(admin_port) as peer:
                assert peer.log_in("admin", password) == (0, "")
        else:
            (alarm,) = node.alarms()
            assert isinstance(alarm, ConfigAlarm)
            assert (alarm.alarm, alarm.key, alarm.line) == (alarms.CLOSED, "canal.admin.passwd", 10)
            assert "stays closed" in alarm.text
            assert failed == [alarm.text.removesuffix("; then restart the node; all else runs")]
            assert HASH_OF_ADMIN not in alarm.text
    finally:
        on_reactor(node.stop)
    assert node.running == ()
