"""The alarms before a certificate ends that a node shows to ZooKeeper, to a source or to a table history."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from canal_ha.cli.check import client_certificates_ending
from canal_ha.config.load import load
from canal_ha.config.model import InstanceConfig, ZooKeeperAccess
from canal_ha.model.alarm import NodeAlarm
from canal_ha.node.client_certificates import ClientCertificates, read_certificates
from canal_ha.node.node import Node
from lab.certificates import Authority
from lab.ports import free_port
from tests.running_reactor import running_reactor
from tests.waiting import until
from tests.zookeeper.stage import on_reactor, reactor

OTHERS = """
canal.zookeeper.tls.cert = {zookeeper}
canal.instance.standby.address = 127.0.0.1:2
canal.instance.standby.sslMode = REQUIRED
canal.instance.standby.ssl.cert = {standby}
canal.instance.tsdb.sslMode = REQUIRED
canal.instance.tsdb.ssl.cert = {history}
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "canal.properties").write_text(
        f"canal.ip = 127.0.0.1\ncanal.port = {free_port()}\ncanal.metrics.pull.port = 0\ncanal.admin.http.port = -1\n"
        f"canal.log.dir = {tmp_path / 'logs'}\ncanal.auto.scan = false\ncanal.destinations = shop\n"
        "canal.instance.shop.lazy = true\ncanal.instance.master.address = 127.0.0.1:1\n"
        "canal.instance.master.sslMode = REQUIRED\n"
        f"canal.instance.master.ssl.cert = {tmp_path / 'source.pem'}\n"
    )
    return tmp_path


def test_a_client_certificate_that_ends_is_an_alarm_until_its_file_is_new(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the certificate of the node's ports had one; the source refused the node when the other had ended."""
    monkeypatch.setattr("canal_ha.node.client_certificates.PERIOD_S", 0.05)
    running_reactor()
    authority = Authority(conf)
    file = authority.sign("source", days=20)
    node = Node(load(conf, [], {}), reactor)
    on_reactor(node.start)
    try:
        (alarm,) = until(lambda: ending(node) or None, what="the alarm")
        assert (alarm.alarm, alarm.destination) == ("expiring", "")
        assert alarm.text.startswith(f"{file}: the client certificate for the source of shop expires at ")
        assert alarm.text.endswith("; put a new one in its place")
        assert time.time() - 11 * 86400 < alarm.since < time.time() - 9 * 86400
        authority.sign("source", days=60)
        until(lambda: not ending(node), what="the end of the alarm")
    finally:
        on_reactor(node.stop)


def test_a_certificate_of_an_unknown_version_is_left_out(conf: Path) -> None:
    """`canal-ha check` ended with a traceback, and a node looked at no certificate any more."""
    file = Authority(conf).sign("odd", days=5)
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    der = certificate.public_bytes(serialization.Encoding.DER)
    odd = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05", 1)
    file.write_text(ssl.DER_cert_to_PEM_cert(odd))
    good = Authority(conf).sign("good", days=5)
    assert [each.file for each in read_certificates({str(file): "a", str(good): "b"})] == [str(good)]


def test_an_unforeseen_error_does_not_end_the_looks_at_certificates(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarms stayed as they were for ever."""
    looks: list[str] = []

    def instances() -> list[InstanceConfig]:
        looks.append("look")
        raise RuntimeError("broken")

    monkeypatch.setattr("canal_ha.node.client_certificates.PERIOD_S", 0.05)
    running_reactor()
    certificates = ClientCertificates(ZooKeeperAccess(), instances, reactor)

    async def call(what: str) -> None:
        getattr(certificates, what)()

    on_reactor(lambda: call("start"))
    try:
        until(lambda: len(looks) > 2, what="further looks")
    finally:
        on_reactor(lambda: call("stop"))


def ending(node: Node) -> list[NodeAlarm]:
    return [alarm for alarm in node.alarms() if isinstance(alarm, NodeAlarm)]


def test_check_warns_about_each_client_certificate_that_ends(conf: Path) -> None:
    """ZooKeeper, the source, its standby and the database of the table history can each have another one."""
    authority = Authority(conf)
    files = {name: authority.sign(name, days=5) for name in ("zookeeper", "standby", "history")}
    authority.sign("source", days=90)
    with (conf / "canal.properties").open("a") as main:
        main.write(OTHERS.format(**files))
    texts = [each.text for each in client_certificates_ending(load(conf, [], {}))]
    assert [text.partition(" expires")[0] for text in texts] == [
        f"{files['zookeeper']}: the client certificate for ZooKeeper",
        f"{files['standby']}: the client certificate for the source of shop",
        f"{files['history']}: the client certificate for the table history of shop",
    ]
