"""A private key with a password is an error with the file's name, and never a question at the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from canal_ha.client.tls import ClientTls
from canal_ha.config.load import load
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import ConfigError, FileUnusable
from lab.certificates import Authority

FORMATS = serialization.PrivateFormat.PKCS8, serialization.PrivateFormat.TraditionalOpenSSL


@pytest.fixture(params=FORMATS, ids=["PKCS8", "traditional"])
def locked(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Yield a key with a password, in one of the two PEM forms."""
    file = tmp_path / "locked.key"
    key, protection = ec.generate_private_key(ec.SECP256R1()), serialization.BestAvailableEncryption(b"secret")
    file.write_bytes(key.private_bytes(serialization.Encoding.PEM, request.param, protection))
    return file


@pytest.mark.parametrize("keys", [
    ("canal.tls.cert={cert}", "canal.tls.key={key}"),
    ("canal.instance.master.sslMode=REQUIRED", "canal.instance.master.ssl.cert={cert}",
     "canal.instance.master.ssl.key={key}"),
    ("canal.instance.tsdb.sslMode=REQUIRED", "canal.instance.tsdb.ssl.cert={cert}",
     "canal.instance.tsdb.ssl.key={key}"),
    ("canal.zookeeper.tls.cert={cert}", "canal.zookeeper.tls.key={key}"),
])  # fmt: skip
def test_a_key_with_a_password_is_an_error_of_the_configuration(
    tmp_path: Path, locked: Path, keys: tuple[str, ...]
) -> None:
    """The error names the configuration key and the command that takes the password away."""
    conf, cert = tmp_path / "conf", Authority(tmp_path).sign("node")
    conf.mkdir()
    (conf / "canal.properties").write_text("canal.destinations=a\ncanal.instance.master.address=db:1\n")
    with pytest.raises(ConfigError, match=r"(?s)key.*without a password.*openssl pkey"):
        load(conf, [each.format(cert=cert, key=locked) for each in keys], {})


def test_clients_and_commands_refuse_such_a_key_before_they_connect(tmp_path: Path, locked: Path) -> None:
    """A connection that fails would be tried again and again."""
    cert = str(Authority(tmp_path).sign("node"))
    for make in (
        lambda: ClientTls(cert_file=cert, key_file=str(locked)),
        lambda: ZooKeeperAccess(cert_file=cert, key_file=str(locked)),
    ):
        with pytest.raises(FileUnusable, match=r"locked\.key needs a key without a password"):
            make()


ASKS = """
import sys
from canal_ha.client.tls import ClientTls
from canal_ha.config.model import TlsConfig
from canal_ha.errors import SourceRefused
from canal_ha.source.connection.tls import secured
import socket
cert, key, good = sys.argv[1:]
client = ClientTls(cert_file=cert, key_file=good)
object.__setattr__(client, "key_file", key)  # as if the file had been replaced
for work in (lambda: secured(TlsConfig("REQUIRED", "", cert, key)), lambda: client.wrap(socket.socket(), "a")):
    try:
        work()
    except (SourceRefused, OSError) as error:
        print("refused:", error)
"""


def test_a_key_that_gets_a_password_later_is_no_question_at_the_terminal(tmp_path: Path, locked: Path) -> None:
    """Without a terminal, OpenSSL would ask on standard error, and wait for standard input."""
    cert = Authority(tmp_path).sign("node")
    done = subprocess.run(
        [sys.executable, "-c", ASKS, str(cert), str(locked), str(cert)],
        input="",
        capture_output=True,
        text=True,
        timeout=30,
        start_new_session=True,
        check=False,
    )
    assert "pass phrase" not in done.stderr
    assert done.stdout.count("refused:") == 2, done.stderr
    assert done.stdout.count("the private key has a password") == 2
