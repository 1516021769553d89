"""The effects of the faults of a link on its connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from lab.ports import LOOPBACK
from lab.proxy import Link, Network


@pytest.fixture
def link() -> Iterator[Link]:
    """Yield a link to an echo server."""
    with socket.create_server((LOOPBACK, 0)) as server, Network(seed=3) as network:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=echo, args=(connection,), daemon=True).start()

        def echo(connection: socket.socket) -> None:
            with connection:
                while data := connection.recv(4096):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield network.link(server.getsockname()[1])


def connect(link: Link) -> socket.socket:
    """Return a connection to the link with a time-out of two seconds."""
    return socket.create_connection((LOOPBACK, link.port), timeout=2.0)


def hears(connection: socket.socket, seconds: float) -> bytes | None:
    """Return the data that arrive within this time; None if none arrive."""
    connection.settimeout(seconds)
    try:
        return connection.recv(4096)
    except TimeoutError:
        return None


def test_a_cut_holds_what_heal_lets_pass(link: Link) -> None:
    """cut() holds the data and the end of old and new connections; heal() forwards them."""
    with connect(link) as old:
        old.sendall(b"one")
        assert hears(old, 2.0) == b"one"
        link.cut()
        old.sendall(b"two")
        with connect(link) as new:
            new.sendall(b"three")
            new.shutdown(socket.SHUT_WR)
            assert (hears(old, 0.2), hears(new, 0.1)) == (None, None)
            link.heal()
            assert (hears(old, 2.0), hears(new, 2.0), hears(new, 2.0)) == (b"two", b"three", b"")


def test_a_reset_ends_connections_and_a_refusal_new_ones_too(link: Link) -> None:
    """reset() ends open connections only; refuse() refuses new ones too, until heal()."""
    with connect(link) as connection:
        connection.sendall(b"x")
        assert hears(connection, 2.0) == b"x"
        link.reset()
        assert hears(connection, 2.0) == b""
    with connect(link) as connection:
        connection.sendall(b"y")
        assert hears(connection, 2.0) == b"y"
    link.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(link)
    link.heal()
    with connect(link) as connection:
        connection.sendall(b"z")
        assert hears(connection, 2.0) == b"z"


def test_a_delay_holds_each_piece(link: Link) -> None:
    """delay() applies in both directions, so that an echo takes twice the delay."""
    link.delay(0.1, jitter_s=0.02)
    with connect(link) as connection:
        began = time.monotonic()
        connection.sendall(b"x")
        assert hears(connection, 2.0) == b"x"
        assert time.monotonic() - began >= 0.2


def test_a_cut_of_one_way_lets_the_other_way_pass(link: Link) -> None:
    """With answers held, the target gets what is sent, and its answer arrives after heal()."""
    with connect(link) as connection:
        link.cut(there=False)
        connection.sendall(b"one")
        assert hears(connection, 0.2) is None
        link.heal()
        assert hears(connection, 2.0) == b"one"
        link.cut(back=False)
        connection.sendall(b"two")
        assert hears(connection, 0.2) is None
        link.heal()
        assert hears(connection, 2.0) == b"two"


def test_a_stranded_connection_is_silent_until_healed(link: Link) -> None:
    """strand() leaves the connected side open without answers; heal() ends it, and new connections work."""
    with connect(link) as connection:
        connection.sendall(b"x")
        assert hears(connection, 2.0) == b"x"
        link.strand()
        connection.sendall(b"y")
        assert hears(connection, 0.2) is None
        link.heal()
        assert hears(connection, 2.0) == b""
    with connect(link) as connection:
        connection.sendall(b"z")
        assert hears(connection, 2.0) == b"z"


def test_a_flip_changes_one_bit_of_each_piece(link: Link) -> None:
    """flip(1) damages one answer and no more."""
    with connect(link) as connection:
        link.flip(1)
        connection.sendall(bytes(64))
        damaged = hears(connection, 2.0)
        assert damaged is not None
        assert sum(byte.bit_count() for byte in damaged) == 1
        connection.sendall(bytes(64))
        assert hears(connection, 2.0) == bytes(64)
