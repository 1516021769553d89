"""A blocking link: it returns what is asked for, however the bytes come."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from canal_ha.client.socket_link import AHEAD_BYTES, SocketLink
from canal_ha.client.thread_runtime import now
from canal_ha.errors import ConnectionLost
from canal_ha.wire.framing import frame

SIZES = (4, 1, 300, AHEAD_BYTES, 4, AHEAD_BYTES + 1, 4, 20_000, 1, AHEAD_BYTES - 1, 9000, 3)


@pytest.fixture
def ends() -> Iterator[tuple[SocketLink, socket.socket]]:
    """Yield a link and the other end of its connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = SocketLink("127.0.0.1", listener.getsockname()[1], 5000)
        peer, _ = listener.accept()
    with peer:
        yield link, peer
        link.discard()


@pytest.mark.parametrize("piece", [1, 3, 5, 1000, 1 << 20])
def test_a_link_returns_exactly_what_is_asked_for(ends: tuple[SocketLink, socket.socket], piece: int) -> None:
    """Small and large amounts take turns. What came too early is returned later, and nothing is lost or repeated."""
    link, peer = ends
    sent = bytes(number % 251 for number in range(sum(SIZES)))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send() -> None:
        for first in range(0, len(sent), piece):
            peer.sendall(sent[first : first + piece])

    sender = threading.Thread(target=send)
    sender.start()
    received = [now(link.receive(time.monotonic() + 30, size)) for size in SIZES]
    sender.join()
    assert [len(each) for each in received] == list(SIZES)
    assert b"".join(received) == sent


def test_a_small_frame_comes_whole(ends: tuple[SocketLink, socket.socket]) -> None:
    """Whoever asks for the length of a frame gets all of it, if it is there; never a part of the next one."""
    link, peer = ends
    one, two, large = frame(b"one"), frame(b"two" * 100), frame(b"x" * AHEAD_BYTES)

    def received(size: int) -> bytes:
        return now(link.receive(time.monotonic() + 30, size))

    peer.sendall(one)
    assert received(4) == one
    peer.sendall(one + two)
    assert [received(4), received(3), received(4)] == [one[:4], b"one", two]
    peer.sendall(large)
    assert [received(4), received(AHEAD_BYTES)] == [large[:4], large[4:]]


def test_a_link_waits_until_the_deadline(ends: tuple[SocketLink, socket.socket]) -> None:
    """A part of what is asked for does not end the wait."""
    link, peer = ends
    peer.sendall(b"ab")
    with pytest.raises(ConnectionLost, match="before the timeout"):
        now(link.receive(time.monotonic() + 0.2, 4))


def test_an_interrupt_ends_a_wait(ends: tuple[SocketLink, socket.socket]) -> None:
    """It does so even if bytes have come."""
    link, peer = ends
    peer.sendall(b"ab")
    link.interrupt()
    with pytest.raises(ConnectionLost, match="interrupted"):
        now(link.receive(time.monotonic() + 5, 4))


def test_the_end_of_the_connection_is_an_error(ends: tuple[SocketLink, socket.socket]) -> None:
    """What came before it is returned first."""
    link, peer = ends
    peer.sendall(b"abcdef")
    peer.shutdown(socket.SHUT_RDWR)
    assert now(link.receive(time.monotonic() + 5, 4)) == b"abcd"
    assert now(link.receive(time.monotonic() + 5, 2)) == b"ef"
    with pytest.raises(ConnectionLost, match="end of stream"):
        now(link.receive(time.monotonic() + 5, 4))
