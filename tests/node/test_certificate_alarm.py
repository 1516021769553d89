"""A node that cannot use the certificate in its files tells it until it can."""

from __future__ import annotations

from pathlib import Path

from canal_ha.config import alarms
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.load import load
from canal_ha.node.node import Node
from canal_ha.wire.scramble import secret_of
from lab.certificates import Authority
from lab.ports import free_port
from tests.running_reactor import running_reactor
from tests.zookeeper.stage import on_reactor, reactor


def test_a_refused_certificate_is_an_alarm_until_a_reload_succeeds(tmp_path: Path) -> None:
    """It was one line in the log, and the next thing that anybody saw was an expired certificate."""
    running_reactor()
    authority = Authority(tmp_path)
    file = authority.sign("node")
    (tmp_path / "canal.properties").write_text(
        f"canal.ip = 127.0.0.1\ncanal.port = {free_port()}\ncanal.metrics.pull.port = 0\ncanal.admin.http.port = -1\n"
        f"canal.log.dir = {tmp_path / 'logs'}\ncanal.user = canal\ncanal.passwd = {secret_of('long').hex()}\n"
        f"canal.tls.cert = {file}\n"
    )
    node = Node(load(tmp_path, [], {}), reactor)
    on_reactor(node.start)
    try:
        assert reloaded(node) == ()
        file.unlink()
        (alarm,) = reloaded(node)
        assert (alarm.alarm, alarm.file, alarm.running) == (alarms.CERTIFICATE, str(file), True)
        assert alarm.text == (
            f"{file} cannot be read: No such file or directory; the ports go on with the certificate read before;"
            " correct the files, then send the node SIGHUP"
        )
        authority.sign("node", days=-1)
        assert ["expired" in alarm.text for alarm in reloaded(node)] == [True]
        authority.sign("node")
        assert reloaded(node) == ()
    finally:
        on_reactor(node.stop)


def reloaded(node: Node) -> tuple[ConfigAlarm, ...]:
    """Let the node read its certificate again, and return the alarms about files."""

    async def reload() -> None:
        assert node.reload_certificates
        node.reload_certificates()

    on_reactor(reload)
    return tuple(alarm for alarm in node.alarms() if isinstance(alarm, ConfigAlarm))
