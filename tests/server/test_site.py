"""Requests that never reach a page: what Twisted's parser refuses, what is too large, and what takes too long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.resource import Resource
from twisted.web.server import Request

from canal_ha.accounts.account import Accounts
from canal_ha.server.audit import Audit
from canal_ha.server.complaints import COMPLAINTS
from canal_ha.server.entrance import Entrance
from canal_ha.server.site import ANSWER_MOST_S, BODY_MOST_BYTES, REQUEST_MOST_S, QuietSite

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = "POST / HTTP/1.1\r\nHost: localhost\r\n"


class Page(Resource):
    """Answers every request."""

    isLeaf = True

    def render(self, request: Request) -> bytes:
        """Return a text."""
        return b"answered"


class Site:
    """A site whose time is a Clock, and the lines of its audit."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.lines: list[dict[str, Any]] = []
        self.entrance = Entrance(
            Accounts, self.clock, Audit(self.clock, lambda line: self.lines.append(json.loads(line)))
        )
        self._site: Any = QuietSite(Page(), self.entrance, reactor=self.clock)  # type: ignore[no-untyped-call] # Twisted's

    def connected(self) -> tuple[Any, StringTransport]:
        """Return a connection and its transport."""
        protocol: Any = self._site.buildProtocol(None)
        transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.9", 54321))
        protocol.makeConnection(transport)
        return protocol, transport


@pytest.mark.parametrize(("request_text", "code", "reason"), [
    (f"{POST}Content-Length: {BODY_MOST_BYTES + 1}\r\n\r\n", 413, f"more than {BODY_MOST_BYTES} bytes"),
    (f"{POST}Transfer-Encoding: chunked\r\n\r\n9000\r\n{' ' * 0x9000}", 413, f"more than {BODY_MOST_BYTES} bytes"),
    ("\x16\x03\x01 no request line\r\n\r\n", 400, "no valid HTTP"),
    (f"{POST}Content-Length: many\r\n\r\n", 400, "no valid HTTP"),
    (f"{POST}Content-Length: {'9' * 5000}\r\n\r\n", 400, "no valid HTTP"),
    (f"{POST}no colon\r\nX: y\r\n\r\n", 400, "no valid HTTP"),
    (f"{POST}Transfer-Encoding: chunked\r\n\r\nzzzz\r\n", 400, "no valid HTTP"),
    (f"{POST}{'X: y' * 5000}\r\n\r\n", 400, "no valid HTTP"),
    (f"GET /{'x' * 20_000} HTTP/1.1\r\n\r\n", 400, "no valid HTTP"),
    ("GET /" + "x" * 20_000, 400, "no valid HTTP"),
    ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "no path"),
])  # fmt: skip
def test_a_request_that_reaches_no_page_is_answered_and_is_in_the_audit(
    request_text: str, code: int, reason: str
) -> None:
    """413 and what breaks the parser had no line, and a line without an end had no answer either."""
    site = Site()
    protocol, transport = site.connected()
    protocol.dataReceived(request_text.encode("latin-1"))
    assert transport.value().split()[1] == str(code).encode()
    assert transport.value().count(b"HTTP/1.1") == 1
    assert transport.disconnecting
    (line,) = site.lines
    assert (line["action"], line["result"], line["address"]) == ("request", "refused", "10.0.0.9")
    assert reason in line["details"]["reason"]
    assert site.entrance.refusals["http_request"] == 1


def test_a_stranger_with_hundreds_of_broken_requests_does_not_fill_the_audit() -> None:
    """An address has as many lines as with other refusals; the rest is one line with their number."""
    site = Site()
    for _ in range(500):
        protocol, _ = site.connected()
        protocol.dataReceived(b"nonsense\r\n\r\n")
    assert len(site.lines) == COMPLAINTS.at_once
    site.clock.advance(1)
    assert site.lines[-1]["action"] == "refusals left out"
    assert site.lines[-1]["details"]["count"] == 500 - COMPLAINTS.at_once


@pytest.mark.parametrize("beginning", [
    b"",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n",
    f"{POST}Content-Length: 4000\r\n\r\n".encode(),
    GET,
])  # fmt: skip
def test_a_request_that_arrives_a_byte_at_a_time_does_not_hold_its_connection(beginning: bytes) -> None:
    """Each byte began the time-out of 60 s anew, so headers or body could take for ever."""
    site = Site()
    protocol, transport = site.connected()
    if beginning:
        protocol.dataReceived(beginning)
    for second in range(int(REQUEST_MOST_S)):
        assert not transport.disconnected, second
        protocol.dataReceived(b"x")
        site.clock.advance(1)
    site.clock.advance(1)
    assert transport.disconnected
    (line,) = site.lines
    assert (line["action"], line["result"], line["address"]) == ("connection", "refused", "10.0.0.9")
    assert f"{REQUEST_MOST_S:.0f} s" in line["details"]["reason"]
    assert site.entrance.refusals["http_slow"] == 1


def test_an_answer_that_nobody_reads_does_not_hold_its_connection() -> None:
    """After `Connection: close` there was no time-out any more."""
    site = Site()
    protocol, transport = site.connected()
    protocol.dataReceived(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert transport.value().endswith(b"answered")
    site.clock.advance(ANSWER_MOST_S - 1)
    assert not site.lines
    site.clock.advance(2)
    assert transport.disconnected
    assert site.entrance.refusals["http_slow"] == 1


@pytest.mark.parametrize("body", [
    b" " * (BODY_MOST_BYTES + 1),
    b"9000\r\n" + b" " * 0x9000 + b"\r\n0\r\n\r\n",
])  # fmt: skip
def test_the_rest_of_a_refused_body_does_not_hold_its_connection(body: bytes) -> None:
    """Its last byte ended all time-outs, and over TLS the peer decides when the connection closes."""
    site = Site()
    protocol, transport = site.connected()
    chunked = body.startswith(b"9000")
    header = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    protocol.dataReceived(f"{POST}{header}\r\n\r\n".encode())
    protocol.dataReceived(body)
    assert transport.disconnecting
    site.clock.advance(ANSWER_MOST_S + 1)
    assert transport.disconnected
    assert site.entrance.refusals["http_slow"] == 1


def test_a_connection_that_monitoring_keeps_is_not_ended() -> None:
    """It sends a whole request every 15 s for an hour."""
    site = Site()
    protocol, transport = site.connected()
    for _ in range(240):
        protocol.dataReceived(GET)
        assert transport.value().endswith(b"answered")
        transport.clear()
        site.clock.advance(15)
    assert not transport.disconnected
    assert not site.lines
    protocol.connectionLost(None)
    assert not site.clock.getDelayedCalls()


@pytest.mark.parametrize("request_bytes", [GET, f"{POST}Content-Length: 2\r\n\r\n{{}}".encode()])
def test_requests_that_are_sent_behind_each_other_do_not_hold_the_reactor(request_bytes: bytes) -> None:
    """One piece of 64 KiB has 1,700 requests, which took seconds in one turn. The first is answered, and says so."""
    site = Site()
    protocol, transport = site.connected()
    protocol.dataReceived(request_bytes * 1000)
    assert transport.value().count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in transport.value().lower()
    assert transport.disconnecting
