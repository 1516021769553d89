"""TLS on the client port: the same protocol inside, certificates that name accounts, and a certificate's renewal."""

from __future__ import annotations

import json
import os
import pty
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import NameOID
from twisted.internet.task import Clock

from canal_ha.accounts.account import Account, AccountRole, Accounts
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.tls import ClientTls
from canal_ha.config.model import PortTls
from canal_ha.errors import ConnectionLost, FileUnusable, ServerRefused
from canal_ha.server.audit import Audit
from canal_ha.server.certificates import Certificates
from canal_ha.server.counters import RequestCounters
from canal_ha.server.entrance import Entrance
from canal_ha.server.limits import PortLimits
from canal_ha.server.metrics import CanalCollector, listen
from canal_ha.wire.scramble import secret_of
from lab.certificates import Authority
from lab.ports import free_port
from tests.server.harness import LOOPBACK, Served, entries_segment, on_reactor, reactor, transaction
from tests.server.raw_client import RawClient, acknowledge_after_the_end
from tests.waiting import until


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def secured(authority: Authority, clients: Authority | None = None) -> Certificates:
    node = str(authority.sign("node"))
    return Certificates(PortTls(node, node, str(clients.file) if clients else ""))


def connector(served: Served, tls: ClientTls | None, user: str = "", password: str = "") -> SimpleConnector:
    return SimpleConnector(LOOPBACK, served.port, "example", 1001, user, password, so_timeout_ms=5000, tls=tls)


def test_rows_of_any_size_arrive_whole(authority: Authority) -> None:
    """Batches of one row and of megabytes are the same as without TLS, with read-ahead and with acks that wait."""
    ca = str(authority.file)
    with Served(certificates=secured(authority), config={"buffer_mem_unit": 4096}) as served:
        with SimpleConnector(
            LOOPBACK, served.port, "example", tls=ClientTls(ca), read_ahead=True, lazy_acks=True
        ) as client:
            client.subscribe()
            for number, rows in enumerate((1, 3000, 1, 40)):
                pushed = transaction(number, rows=rows, value="x" * 300)
                served.push(entries_segment(pushed))
                got: list[bytes] = []
                while len(got) < len(pushed):
                    message = client.get_without_ack(100, 100)
                    got += [bytes(entry) for entry in message.raw_entries]
                    client.ack(message.id)
                assert got == pushed
        with ClusterConnector([f"{LOOPBACK}:{served.port}"], "example", 1001, tls=ClientTls(ca)) as cluster:
            cluster.subscribe()
            assert not cluster.get_without_ack(1)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_who_is_not_who_it_says_is_refused(authority: Authority, tmp_path: Path) -> None:
    """A client leaves a node of another authority or of another name, and a node refuses TLS 1.1 and plain bytes."""
    other = Authority(tmp_path, "other")
    with Served(certificates=secured(authority)) as served:
        for tls in (ClientTls(str(other.file)), ClientTls(str(authority.file), server_name="elsewhere")):
            with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                connector(served, tls).connect()
        connector(served, ClientTls(str(authority.file), server_name="node")).connect()
        with pytest.raises(ConnectionLost):
            connector(served, None).connect()
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError), socket.create_connection((LOOPBACK, served.port), 5) as plain:  # noqa: PT011 # SSLError or a reset
            old.wrap_socket(plain)


def test_a_certificate_names_an_account(authority: Authority, tmp_path: Path) -> None:
    """Signed by canal.tls.ca it needs no password. Another one is refused; without one a password is needed."""
    clients, other = Authority(tmp_path, "clients"), Authority(tmp_path, "strangers")
    reader = Account("shop", (secret_of("pw"),), frozenset({AccountRole.READ}), ("example",))
    with Served(user="x", passwd="0" * 40, certificates=secured(authority, clients)) as served:
        served.accounts = Accounts([reader])
        ca = str(authority.file)
        with connector(served, ClientTls(ca, str(clients.sign("shop")))) as client:
            client.subscribe()
            client.get_without_ack(1)
            assert [(each.account, each.address) for each in served.service.readers("example")] == [("shop", LOOPBACK)]
        with connector(served, ClientTls(ca), "shop", "pw") as client:
            client.subscribe()
        for tls, user in ((ClientTls(ca), "shop"), (ClientTls(ca, str(clients.sign("nobody"))), "")):
            with pytest.raises(ServerRefused, match=f"auth failed for user:{user}"):
                connector(served, tls, user).connect()
        with pytest.raises(ConnectionLost):
            connector(served, ClientTls(ca, str(other.sign("shop", "forged")))).connect()


def test_a_refused_certificate_is_in_the_audit(authority: Authority, tmp_path: Path) -> None:
    """Its client sees only the end of the connection; who looks into the audit sees address, subject and reason."""
    clients, other = Authority(tmp_path, "clients"), Authority(tmp_path, "strangers")
    written: list[bytes] = []
    entrance = Entrance(lambda: Accounts([Account("shop")]), Clock(), Audit(Clock(), written.append))
    node = str(authority.sign("node"))
    secured = Certificates(PortTls(node, node, str(clients.file)), entrance.certificate_refused)
    with Served(certificates=secured, entrance=entrance) as served:
        with pytest.raises(ConnectionLost):
            connector(served, ClientTls(str(authority.file), str(other.sign("shop", "forged")))).connect()
        until(lambda: written, what="a line of the audit")
    line = json.loads(written[0])
    assert (line["action"], line["result"], line["address"]) == ("login", "refused", LOOPBACK)
    assert "CN=shop" in line["details"]["reason"]
    assert "canal.tls.ca" in line["details"]["reason"]
    assert entrance.refusals == {"certificate": 1}


def test_a_long_subject_leaves_the_reason_in_the_audit_and_little_on_the_connection(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who made one of 500 characters hid why it was refused. A valid one was kept as long as it was."""
    clients, other = Authority(tmp_path, "clients"), Authority(tmp_path, "strangers")
    node = str(authority.sign("node"))
    unit = x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "u" * 60)
    monkeypatch.setattr(
        "lab.certificates._name", lambda name: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), *[unit] * 40])
    )
    written: list[bytes] = []
    entrance = Entrance(lambda: Accounts([Account("shop")]), Clock(), Audit(Clock(), written.append))
    secured = Certificates(PortTls(node, node, str(clients.file)), entrance.certificate_refused)
    with Served(certificates=secured, entrance=entrance) as served:
        ca = str(authority.file)
        with pytest.raises(ConnectionLost):
            connector(served, ClientTls(ca, str(other.sign("shop", "forged")))).connect()
        until(lambda: written, what="a line of the audit")
        assert "canal.tls.ca" in json.loads(written[0])["details"]["reason"]
        with connector(served, ClientTls(ca, str(clients.sign("shop")))):
            (connection,) = served.service._open
            assert 100 < len(connection._visitor.actor.certificate) < 300


def test_a_certificate_logs_in_over_http(authority: Authority, tmp_path: Path) -> None:
    """The metrics take the same certificates as the client port."""
    clients = Authority(tmp_path, "clients")
    accounts = Accounts([Account("shop", (), frozenset({AccountRole.READ}), ("*",))])
    entrance = Entrance(lambda: accounts, Clock())
    collector = CanalCollector(list, RequestCounters(lambda name: True))

    async def begin() -> Any:
        return listen(reactor, port, collector, entrance, LOOPBACK, secured(authority, clients))

    port = free_port()
    listening = on_reactor(begin)
    try:
        for name, code in (("shop", 200), ("nobody", 401)):
            context = ssl.create_default_context(cafile=str(authority.file))
            context.load_cert_chain(clients.sign(name))
            connection = HTTPSConnection(LOOPBACK, port, timeout=10, context=context)
            connection.request("GET", "/metrics")
            assert connection.getresponse().status == code
            connection.close()
    finally:
        reactor.callFromThread(listening.stopListening)


def test_a_client_beyond_a_limit_sees_the_reason(authority: Authority) -> None:
    """It logs in within a TLS handshake that is not over when the node refuses the connection."""
    tls = ClientTls(str(authority.file))
    with Served(certificates=secured(authority), limits=PortLimits(connections=1)) as served, connector(served, tls):
        for _ in range(3):
            with pytest.raises(ServerRefused, match="the node has 1 connections already"):
                connector(served, tls).connect()


def test_a_late_login_sees_the_reason(authority: Authority) -> None:
    """The text of the login's time limit comes over TLS, and then the end of the connection."""
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        Served(certificates=secured(authority), limits=PortLimits(login_s=0.3)) as served,
        served.connect() as plain,
        context.wrap_socket(plain, server_hostname=LOOPBACK) as late,
        late.makefile("rb") as answers,
    ):
        assert b"no login within 0.3 s" in answers.read()


def test_the_end_of_a_node_takes_the_last_acknowledgement(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An ACK after the close alert still moves the cursor, as on a plain connection, and nothing breaks."""
    context = ssl.create_default_context(cafile=str(authority.file))
    with Served(certificates=secured(authority)) as served:
        plain = served.connect
        monkeypatch.setattr(served, "connect", lambda: context.wrap_socket(plain(), server_hostname=LOOPBACK))
        with RawClient(served) as client:
            acknowledge_after_the_end(served, client)
    assert "Unhandled Error" not in capsys.readouterr().err


def test_a_renewed_certificate_drops_no_connection(authority: Authority) -> None:
    """New connections get the new certificate; a file that cannot be used keeps the old one."""
    certificates = secured(authority)
    with Served(certificates=certificates) as served, connector(served, ClientTls(str(authority.file))) as old:
        old.subscribe()
        before = shown(served)
        file = authority.sign("node")
        on_reactor(lambda: reload(certificates))
        assert shown(served) != before
        file.write_text("-----BEGIN CERTIFICATE-----\nbroken\n")
        on_reactor(lambda: reload(certificates))
        connector(served, ClientTls(str(authority.file))).connect()
        assert not old.get_without_ack(1)
        with pytest.raises(FileUnusable, match=r"node\.pem cannot be used for TLS"):
            Certificates(PortTls(str(file), str(file)))


def test_a_refused_reload_says_why_and_keeps_the_certificate(authority: Authority, tmp_path: Path) -> None:
    """A missing file is named as missing. A key that TLS cannot use was an error of the program."""
    file, authorities = authority.sign("node"), tmp_path / "clients.pem"
    authorities.write_bytes(authority.file.read_bytes())
    good = file.read_bytes()
    certificates = Certificates(PortTls(str(file), str(file), str(authorities)))
    expires = certificates.expires

    def refusal() -> str:
        error = certificates.reload()
        assert certificates.expires == expires
        return str(error).removeprefix(f"{tmp_path}/")

    file.unlink()
    assert refusal() == "node.pem cannot be read: No such file or directory"
    file.write_bytes(good)
    authorities.unlink()
    assert refusal() == "clients.pem cannot be read: No such file or directory"
    authorities.write_bytes(authority.file.read_bytes())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    unsuitable = X25519PrivateKey.generate().private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(unsuitable + good[good.index(b"-----BEGIN CERTIFICATE") :])
    assert refusal() == "node.pem cannot be used for TLS: its key has another type than RSA or EC"
    file.write_bytes(good)
    assert certificates.reload() is None


def test_a_certificate_that_has_expired_does_not_replace_one_that_has_not(authority: Authority) -> None:
    """Clients would refuse it at once. If both have expired, the newer file counts."""
    file = authority.sign("node", days=5)
    certificates = Certificates(PortTls(str(file), str(file)))
    expires = certificates.expires
    authority.sign("node", days=-1)
    assert "node.pem has a certificate that expired at " in str(certificates.reload())
    assert certificates.expires == expires
    expired = Certificates(PortTls(str(file), str(file)))
    authority.sign("node", days=-0.5)
    assert expired.reload() is None


def test_a_certificate_that_is_not_valid_yet_does_not_replace_one_that_is(authority: Authority) -> None:
    """Clients would refuse it until then. A few minutes are a difference of clocks."""
    file = authority.sign("node")
    certificates = Certificates(PortTls(str(file), str(file)))
    expires = certificates.expires
    authority.sign("node", days=90, begins=1)
    assert "node.pem has a certificate that is valid from " in str(certificates.reload())
    assert certificates.expires == expires
    early = Certificates(PortTls(str(file), str(file)))
    authority.sign("node", days=90, begins=0.5)
    assert early.reload() is None
    authority.sign("node", days=80, begins=3 / 24 / 60)
    assert certificates.reload() is None
    assert certificates.expires > expires


async def reload(certificates: Certificates) -> None:
    certificates.reload()


def shown(served: Served) -> str:
    return ssl.get_server_certificate((LOOPBACK, served.port))


def test_a_tls_wait_can_be_interrupted_and_times_out(authority: Authority) -> None:
    """As on a plain connection: interrupt from another thread, the time limit of a reply, and a silent handshake."""
    tls = ClientTls(str(authority.file))
    with Served(certificates=secured(authority)) as served:
        for end in ("interrupt", "abort"):
            with connector(served, tls) as client:
                client.subscribe()
                threading.Timer(0.3, getattr(client, end)).start()
                began = time.monotonic()
                with pytest.raises(ConnectionLost):
                    client.get_without_ack(1, 0)
                assert time.monotonic() - began < 4
    with socket.create_server((LOOPBACK, 0)) as silent:
        began = time.monotonic()
        with pytest.raises(ConnectionLost):
            SimpleConnector(LOOPBACK, silent.getsockname()[1], "example", so_timeout_ms=300, tls=tls).connect()
        assert time.monotonic() - began < 4


def test_a_key_with_a_password_does_not_wait_for_a_terminal(authority: Authority, tmp_path: Path) -> None:
    """OpenSSL would ask the terminal of a node in the foreground, and the whole node would wait for the answer."""
    plain = authority.sign("node")
    key = serialization.load_pem_private_key(plain.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    code = (
        "import fcntl, os, sys, termios\n"
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "from canal_ha.config.model import PortTls\n"
        "from canal_ha.errors import FileUnusable\n"
        "from canal_ha.server.certificates import Certificates\n"
        "try:\n    Certificates(PortTls(*sys.argv[1:], ''))\n"
        "except FileUnusable as error:\n    os._exit(7)\n"
    )
    master, terminal = pty.openpty()
    try:
        command = [sys.executable, "-c", code, str(plain), str(locked)]
        done = subprocess.run(
            command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, timeout=30, check=False
        )
    finally:
        os.close(master)
        os.close(terminal)
    assert done.returncode == 7
