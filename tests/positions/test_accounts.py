"""Logging in to a source: every TLS mode, client certificates, and several authentication plugins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from canal_ha.config.model import TlsConfig
from canal_ha.errors import CanalError
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.session import SourceSession
from lab import MariaDB, MySQL, SqlServer
from lab.ports import LOOPBACK
from tests.source.reading import Reading, config_of, newest

GRANTS = "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{}'@'%'"
PASSWORD = "pässwörd"


class Authority:
    """A certificate authority that writes its files to a directory. ca: path of its own certificate."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = str(directory / f"{name}.pem")
        self._write(name, self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))

    def issue(self, name: str, *extensions: x509.ExtensionType) -> tuple[str, str]:
        """Issue a certificate, and return the paths of it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._write(name, subject, key, *extensions)

    def _write(
        self, file: str, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType
    ) -> tuple[str, str]:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        pem = serialization.Encoding.PEM
        certificate, private = self._directory / f"{file}.pem", self._directory / f"{file}-key.pem"
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(pem))
        private.write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        )
        return str(certificate), str(private)


@pytest.fixture(params=[MySQL, MariaDB])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[SqlServer, Authority]]:
    """A server with a certificate for 127.0.0.1, and the authority that issued it."""
    authority = Authority(tmp_path, "ours")
    certificate, key = authority.issue("server", x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]))
    with request.param(extra=[f"--ssl-ca={authority.ca}", f"--ssl-cert={certificate}", f"--ssl-key={key}"]) as server:
        yield server, authority


def account(server: SqlServer, name: str, how: str, require: str = "") -> str:
    """Create an account with the rights to replicate, and return its name. how: what follows IDENTIFIED."""
    server.execute(f"CREATE USER '{name}'@'%' IDENTIFIED {how} {require}", GRANTS.format(name))
    return name


def reads(server: SqlServer, start: LogPosition, user: str, tls: TlsConfig) -> None:
    """Check that a dump with this account delivers the row behind `start`."""
    with Reading(server, "shop", start, user=user, password=PASSWORD, tls=tls) as reading:
        assert reading.wait_rows(1) == ["1"]


def refused(server: SqlServer, user: str, tls: TlsConfig, host: str = LOOPBACK) -> str:
    """Check that this account cannot log in, and return the error's text."""
    config = config_of(server, user=user, password=PASSWORD, tls=tls)
    with pytest.raises(CanalError) as error:
        SourceSession(config, replace(config.master, host=host)).close()
    return str(error.value)


def cipher(server: SqlServer, user: str, tls: TlsConfig) -> str:
    """Return the cipher of a session with the server; "" if it is not encrypted."""
    config = config_of(server, user=user, password=PASSWORD, tls=tls)
    with closing(SourceSession(config, config.master)) as session:
        return str(session.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0]["Value"])


@pytest.mark.real
def test_tls(secured: tuple[SqlServer, Authority], tmp_path: Path) -> None:
    """DISABLED is plain text; VERIFY_CA needs a known authority, VERIFY_IDENTITY also the right name.

    Accounts that require TLS or a client certificate can log in with it; without it, the error names the account.
    """
    server, authority = secured
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id int PRIMARY KEY)")
    start = newest(server)
    server.execute("INSERT INTO shop.t VALUES (1)")
    anyone = account(server, "anyone", f"BY '{PASSWORD}'")
    encrypted = account(server, "encrypted", f"BY '{PASSWORD}'", "REQUIRE SSL")
    certified = account(server, "certified", f"BY '{PASSWORD}'", "REQUIRE X509")
    other = Authority(tmp_path, "other").ca
    modes = [TlsConfig("PREFERRED"), TlsConfig("REQUIRED")]
    modes += [TlsConfig("VERIFY_CA", authority.ca), TlsConfig("VERIFY_IDENTITY", authority.ca)]
    assert cipher(server, anyone, TlsConfig("DISABLED")) == ""
    reads(server, start, anyone, TlsConfig("DISABLED"))
    for tls in modes:
        assert cipher(server, anyone, tls)
        reads(server, start, encrypted, tls)
    assert encrypted in refused(server, encrypted, TlsConfig("DISABLED"))
    for mode in ("VERIFY_CA", "VERIFY_IDENTITY"):
        assert "certificate verify failed" in refused(server, anyone, TlsConfig(mode, other))
    reads(server, start, anyone, TlsConfig("REQUIRED", other))
    assert "not valid for 'localhost'" in refused(
        server, anyone, TlsConfig("VERIFY_IDENTITY", authority.ca), "localhost"
    )
    own = authority.issue("client")
    reads(server, start, certified, TlsConfig("VERIFY_IDENTITY", authority.ca, *own))
    assert certified in refused(server, certified, TlsConfig("VERIFY_IDENTITY", authority.ca))
    assert "cannot use TLS files" in refused(server, anyone, TlsConfig("REQUIRED", str(tmp_path / "nothing.pem")))


@pytest.mark.real
def test_passwords(source_server: SqlServer, database: str) -> None:
    """Logins work with two plugins of each server, with and without TLS, the first time and again.

    The error of a wrong password names dbPassword.
    """
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    if server.flavor == "mysql":
        ways = [f"WITH caching_sha2_password BY '{PASSWORD}'", f"WITH sha256_password BY '{PASSWORD}'"]
    else:
        server.execute("INSTALL SONAME 'auth_ed25519'")
        ways = [f"VIA ed25519 USING PASSWORD('{PASSWORD}')", f"VIA mysql_native_password USING PASSWORD('{PASSWORD}')"]
    for number, way in enumerate(ways):
        user = account(server, f"{database}_{number}", way)
        for tls in (TlsConfig("DISABLED"), TlsConfig("PREFERRED")):
            server.execute("FLUSH PRIVILEGES")  # clears the cache of earlier logins
            for _ in range(2):
                encrypted = cipher(server, user, tls)
                assert bool(encrypted) == (tls.mode != "DISABLED" and server.flavor == "mysql")
            with Reading(server, database, newest(server), user=user, password=PASSWORD, tls=tls) as reading:
                reading.connected()
        wrong = config_of(server, user=user, password="wrong")
        with pytest.raises(CanalError, match="dbPassword"):
            SourceSession(wrong, wrong.master)
