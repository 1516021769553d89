"""The stream that tells an open page of changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import connectionDone
from twisted.internet.testing import StringTransport

from canal_ha.accounts.account import Account, Accounts
from canal_ha.admin.events import BEAT_S, LISTENERS_MOST, LOOK_S, WHOLE_S
from lab.desk import EXAMPLE, Browser, Desk


class Listener:
    """A browser that is logged in and has opened the stream."""

    def __init__(self, desk: Desk, user: str = "admin") -> None:
        browser = Browser(desk)
        browser.log_in(user)
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        self.transport = StringTransport(IPv4Address("TCP", "127.0.0.1", 8089), IPv4Address("TCP", "127.0.0.1", 54321))
        self.protocol: Any = desk.site.buildProtocol(None)
        self.protocol.makeConnection(self.transport)
        self.protocol.dataReceived(f"GET /events HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())

    @property
    def code(self) -> int:
        """Of the answer."""
        return int(self.transport.value().split()[1])

    def said(self) -> list[str]:
        """Return the events since the last call."""
        lines = self.transport.value().decode().splitlines()
        self.transport.clear()
        return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]

    @property
    def ended(self) -> bool:
        """Whether the last chunk has come."""
        return bool(self.transport.value().endswith(b"0\r\n\r\n"))


def pass_(desk: Desk, seconds: float) -> None:
    """Let the time pass, and the streams look."""
    desk.clock.pump([LOOK_S / 2] * int(2 * seconds / LOOK_S))


def test_a_change_is_told_at_once_and_silence_has_a_heartbeat() -> None:
    """Nothing else is sent, whatever happens on pages that look at the same time."""
    desk = Desk()
    listener = Listener(desk)
    assert listener.code == 200
    assert b"content-type: text/event-stream" in listener.transport.value().lower()
    assert listener.said() == ["change"]
    pass_(desk, 4 * BEAT_S)
    assert set(listener.said()) == {"same"}
    desk.instances[0] = replace(EXAMPLE, source_error="it is gone")
    pass_(desk, 6 * LOOK_S)
    assert "change" in listener.said()
    pass_(desk, 2 * BEAT_S)
    assert set(listener.said()) == {"same"}


def test_a_reader_hears_nothing_of_other_destinations() -> None:
    """A stream has the rights of its account."""
    desk = Desk()
    listener, admin = Listener(desk, "reader"), Listener(desk)
    listener.said(), admin.said()
    desk.instances.append(replace(EXAMPLE, destination="other"))
    pass_(desk, 3 * BEAT_S)
    assert "change" in admin.said()
    assert set(listener.said()) == {"same"}


def test_a_stream_ends_with_its_login_and_after_its_time() -> None:
    """Browsers connect again after a stream that was only too old."""
    desk = Desk()
    listener = Listener(desk)
    desk.accounts = Accounts([Account("somebody")])
    pass_(desk, 2 * LOOK_S)
    assert listener.ended
    desk = Desk()
    listener = Listener(desk)
    pass_(desk, WHOLE_S - 2 * LOOK_S)
    assert not listener.ended
    pass_(desk, 3 * LOOK_S)
    assert listener.ended


def test_a_crowd_of_pages_is_refused_and_a_page_that_is_closed_makes_room() -> None:
    """A refused page goes on asking every few seconds."""
    desk = Desk()
    listeners = [Listener(desk) for _ in range(LISTENERS_MOST)]
    assert {each.code for each in listeners} == {200}
    assert Listener(desk).code == 503
    listeners[0].protocol.connectionLost(connectionDone)
    assert Listener(desk).code == 200
