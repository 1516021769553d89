"""TLS towards real servers: every connection to a database uses it as configured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig, TlsConfig
from canal_ha.errors import HistoryUnavailable, SinkRefused, SourceRefused, SourceUnavailable
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.history.sql_store import in_mysql
from canal_ha.spark.sinks.mysql import MySQL as Sink
from lab.certificates import Authority
from lab.mysql import ADMIN, MySQL, SqlServer

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def with_tls() -> Iterator[SqlServer]:
    """Yield a server that offers TLS with a certificate of its own making."""
    with MySQL() as server:
        yield server


@pytest.fixture(scope="module")
def without_tls() -> Iterator[SqlServer]:
    """Yield a server that offers no TLS."""
    with MySQL(extra=["--tls-version="]) as server:
        yield server


def cipher(server: SqlServer, tls: TlsConfig) -> str:
    """Log in as for the dump and return the cipher in use; "" without TLS."""
    source = SourceConfig("127.0.0.1", server.port, tls=tls)
    session = SourceSession(InstanceConfig("example", source), source)
    (row,) = session.query("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    session.close()
    return str(row["Value"])


def test_tls_is_used_when_the_server_offers_it(with_tls: SqlServer, without_tls: SqlServer) -> None:
    """Without a configured mode, a server with TLS gets TLS, and one without gets a plain connection."""
    assert cipher(with_tls, TlsConfig())
    assert cipher(with_tls, TlsConfig("REQUIRED"))
    assert not cipher(with_tls, TlsConfig("DISABLED"))
    assert not cipher(without_tls, TlsConfig())
    with pytest.raises(SourceUnavailable, match="SSL is required"):
        cipher(without_tls, TlsConfig("REQUIRED"))


def test_a_certificate_is_checked_if_the_mode_says_so(with_tls: SqlServer, tmp_path: Path) -> None:
    """The server's own authority passes VERIFY_CA, though its certificate names no host; another one does not."""
    authority = str(with_tls.data / "ca.pem")
    other = str(Authority(tmp_path).file)
    assert cipher(with_tls, TlsConfig("VERIFY_CA", ca_file=authority))
    for tls in (TlsConfig("VERIFY_CA", ca_file=other), TlsConfig("VERIFY_IDENTITY", ca_file=authority)):
        with pytest.raises(SourceRefused, match="TLS failed"):
            cipher(with_tls, tls)


def test_history_and_sink_use_tls(with_tls: SqlServer, tmp_path: Path) -> None:
    """Both take the modes of the source."""
    with_tls.execute("CREATE USER secure IDENTIFIED BY 'secure' REQUIRE SSL", "GRANT ALL ON *.* TO secure")
    url = f"mysql://{with_tls.address}/canal_tsdb"
    assert in_mysql("example", url, "secure", "secure").count() == 0
    Sink(with_tls.address, "secure", "secure", "{schema}", "state", ("*",)).check()
    plain, stranger = TlsConfig("DISABLED"), TlsConfig("VERIFY_CA", ca_file=str(Authority(tmp_path).file))
    for tls in (plain, stranger):
        with pytest.raises(HistoryUnavailable):
            in_mysql("example", url, "secure", "secure", tls=tls).count()
        with pytest.raises(SinkRefused):
            Sink(with_tls.address, "secure", "secure", "{schema}", "state", ("*",), tls).check()
    assert Sink(with_tls.address, ADMIN, ADMIN, "{schema}", "state", ("*",), plain).check()


def test_a_password_beyond_the_cache_is_encrypted_without_tls(without_tls: SqlServer) -> None:
    """caching_sha2_password asks for the password itself at the first login; it is encrypted with the server's key."""
    without_tls.execute("CREATE USER fresh IDENTIFIED WITH caching_sha2_password BY 'fresh'")
    source = SourceConfig("127.0.0.1", without_tls.port)
    SourceSession(InstanceConfig("example", source, username="fresh", password="fresh"), source).close()
