"""A real node with TLS on all its ports: the commands, and SIGHUP after a certificate's renewal."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.tls import ClientTls
from canal_ha.wire.scramble import secret_of
from lab import MySQL, Node, follow
from lab.certificates import Authority
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from lab.tls_ports import PortFound, look
from tests.node.following import column, read
from tests.waiting import until

pytestmark = pytest.mark.real


def test_a_node_with_tls_on_every_port(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Rows, status and metrics come over TLS. SIGHUP brings a new certificate, and the open connection stays."""
    authority, clients = Authority(tmp_path), Authority(tmp_path, "clients")
    certificate, own = authority.sign("node"), clients.sign("canal", "own")
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    properties = {
        "canal.user": "canal",
        "canal.passwd": secret_of("geheim").hex(),
        "canal.tls.cert": str(certificate),
        "canal.tls.ca": str(clients.file),
        "canal.tls.ports": "client, metrics, admin",
    }
    secret = tmp_path / "password"
    secret.write_text("geheim\n")
    ca = str(authority.file)
    with Node({"example": follow(mysql)}, properties=properties, login=("canal", "geheim"), tls_ca=ca) as node:
        tls = ClientTls(ca, str(own))
        with SimpleConnector(LOOPBACK, node.port, "example", 1001, tls=tls) as client:
            client.subscribe(rf"{database}\.t")
            mysql.execute(f"INSERT INTO {database}.t VALUES (1)")
            assert column(read(client, 1)) == [1]
            assert [each["account"] for each in node.status()["destinations"][0]["readers"]] == ["canal"]
            before = ssl.get_server_certificate((LOOPBACK, node.port))
            authority.sign("node")
            os.kill(node.pid, signal.SIGHUP)
            until(lambda: ssl.get_server_certificate((LOOPBACK, node.port)) != before, what="the new certificate")
            mysql.execute(f"INSERT INTO {database}.t VALUES (2)")
            assert column(read(client, 1)) == [2]
        mysql.execute(f"INSERT INTO {database}.t VALUES (3)")
        shown = subprocess.run(
            [PROGRAM, "client", "--server", f"{LOOPBACK}:{node.port}", "--destination", "example", "--format", "json",
             "--user", "canal", "--password-file", str(secret), "--tls-ca", ca, "--max-rows", "1",
             "--filter", rf"{database}\.t"],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert '"id": 3' in shown.stdout or '"id":3' in shown.stdout, shown.stderr
        login = ["--user", "canal", "--password-file", str(secret), "--tls-ca", ca]
        status = subprocess.run(
            [PROGRAM, "status", "--url", f"https://{LOOPBACK}:{node.admin_port}", *login],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert "example" in status.stdout, status.stderr
        assert "tls.reloaded" in node.log_file()


def test_a_node_tells_before_its_certificate_expires(mysql: MySQL, tmp_path: Path) -> None:
    """Status, metrics, log and `check` tell it; after a renewal and SIGHUP the alarms are over."""
    authority = Authority(tmp_path)
    certificate = authority.sign("node", days=6)
    with Node({"example": follow(mysql)}, properties={"canal.tls.cert": str(certificate)}) as node:
        alarms = {each["alarm"]: each["text"] for each in node.status()["alarms"]}
        assert set(alarms) == {"expiring", "expiring_soon"}
        assert alarms["expiring_soon"].startswith(f"{certificate}: the certificate of this node expires at ")
        assert 5.9 < days_left(node) < 6
        assert "tls.expiring" in node.log_file()
        check = [PROGRAM, "check", "--conf", str(node.conf)]
        assert "certificate of this node expires at" in subprocess.run(check, capture_output=True, text=True).stdout
        authority.sign("node", days=60)
        os.kill(node.pid, signal.SIGHUP)
        until(lambda: not node.status()["alarms"], what="the end of the alarms")
        assert days_left(node) > 59
        assert "certificate of this node" not in subprocess.run(check, capture_output=True, text=True).stdout


def days_left(node: Node) -> float:
    """Return how long the certificate of a node is still valid, as its metrics tell it."""
    text = urllib.request.urlopen(f"http://{LOOPBACK}:{node.metrics_port}/metrics", timeout=10).read().decode()
    (line,) = (line for line in text.splitlines() if line.startswith("canal_certificate_expiry_timestamp_seconds "))
    return (float(line.split()[1]) - time.time()) / 86400


def test_openssl_at_each_port() -> None:
    """openssl verifies the node, gets TLS 1.2 and newer but not 1.1, and the client's certificate names its account."""
    assert look() == [
        PortFound(port, "refused", "TLSv1.2", "TLSv1.3", "CN = canal1", "OK", "refused", "shop")
        for port in ("client", "metrics", "admin")
    ]


def test_a_certificate_is_replaced_while_rows_flow(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Each of several connections stays through several replacements, and gets every row once and in order."""
    authority = Authority(tmp_path)
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    settings = follow(mysql, {"canal.instance.filter.regex": rf"{database}\..*"})
    clients, replacements, rows = 3, 3, 500
    with Node({"example": settings}, properties={"canal.tls.cert": str(authority.sign("node"))}) as node:
        tls = ClientTls(str(authority.file))
        readers = [SimpleConnector(LOOPBACK, node.port, "example", 1000 + each, tls=tls) for each in range(clients)]
        for reader in readers:
            reader.connect()
            reader.subscribe()
        with ThreadPoolExecutor() as threads:
            found = [threads.submit(read, reader, rows * replacements, seconds=60, size=10) for reader in readers]
            for replacement in range(replacements):
                before = ssl.get_server_certificate((LOOPBACK, node.port))
                authority.sign("node")
                os.kill(node.pid, signal.SIGHUP)
                for number in range(replacement * rows, (replacement + 1) * rows, 10):
                    mysql.execute(
                        f"INSERT INTO {database}.t VALUES " + ",".join(f"({number + each})" for each in range(10))
                    )
                assert ssl.get_server_certificate((LOOPBACK, node.port)) != before
            for each in found:
                assert column(each.result()) == list(range(rows * replacements))
        for reader in readers:
            reader.disconnect()
