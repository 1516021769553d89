"""A server that asks for the password itself: PyMySQL would send it, whoever listens on the way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig, TlsConfig
from canal_ha.errors import HistoryUnavailable, SinkRefused, SourceRefused
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.history.sql_store import in_mysql
from canal_ha.spark.sinks.mysql import MySQL

PASSWORD = "a password"
GREETING = (
    b"\x0a8.0.40\0" + b"\1\0\0\0" + b"saltsalt\0" + b"\xff\xf7" + b"\xff\2\0" + b"\xff\xc1" + b"\x15" + b"\0" * 10
    + b"saltsaltsalt\0" + b"caching_sha2_password\0"
)  # fmt: skip


@contextmanager
def greedy_server(plugin: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the address of a server that switches every login to a plugin, and what it has received."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.settimeout(5.0)
                peer.sendall(len(GREETING).to_bytes(3, "little") + b"\0" + greeting())
                peer.recv(65536)
                body = b"\xfe" + plugin + b"\0" + (b"\4Password: " if plugin == b"dialog" else b"")
                peer.sendall(len(body).to_bytes(3, "little") + b"\2" + body)
                heard.append(peer.recv(65536))

    def greeting() -> bytes:
        """Return the greeting without the flag for TLS."""
        at = GREETING.index(b"\0", 1) + 1 + 4 + 9
        flags = int.from_bytes(GREETING[at : at + 2], "little") & ~0x0800
        return GREETING[:at] + flags.to_bytes(2, "little") + GREETING[at + 2 :]

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", heard
    finally:
        listener.close()


def session(address: str) -> None:
    """Log in as for the dump and for questions."""
    source = SourceConfig("127.0.0.1", int(address.rpartition(":")[2]))
    SourceSession(InstanceConfig("example", source, password=PASSWORD), source)


def table_history(address: str) -> None:
    """Log in as for a shared table history."""
    in_mysql("example", f"mysql://{address}/canal_tsdb", "canal", PASSWORD).count()


def sink(address: str) -> None:
    """Log in as Spark's sink."""
    MySQL(address, "canal", PASSWORD, "{schema}", "canal_ha", ("*",)).check()


@pytest.mark.parametrize("login", [session, table_history, sink])
@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
def test_the_password_is_not_sent_in_plain_text(login: Callable[[str], None], plugin: bytes) -> None:
    """Without TLS the login is refused with the reason, and the password stays here."""
    with (
        greedy_server(plugin) as (address, heard),
        pytest.raises((SourceRefused, HistoryUnavailable, SinkRefused), match="asks for the password in plain text"),
    ):
        login(address)
    assert PASSWORD.encode() not in b"".join(heard)


def test_a_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    """The sink refuses, as the source does."""
    tls = TlsConfig("VERIFY_CA", ca_file=str(tmp_path / "nowhere.pem"))
    with pytest.raises(SinkRefused, match=r"nowhere\.pem"):
        MySQL("127.0.0.1:1", "canal", PASSWORD, "{schema}", "canal_ha", ("*",), tls).check()
