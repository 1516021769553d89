"""One HTTP request and its answer, in limited time and memory, whatever the other side sends."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Event, Timer
from typing import NamedTuple


class HttpAnswer(NamedTuple):
    """An answer with the beginning of its body.

    cut: whether the connection or the time ended before the body did.
    """

    status: int
    reason: str
    headers: Message
    body: bytes
    cut: bool


def connected(host: str, port: int | None, timeout_s: float, context: ssl.SSLContext | None) -> HTTPConnection:
    """Return an open connection.

    host: without brackets.
    port: None for the usual one.
    timeout_s: of each step.
    context: for https; None for http.
    Raises OSError and HTTPException.
    """
    if context is None:
        connection = HTTPConnection(host, port or HTTPConnection.default_port, timeout=timeout_s)
    else:
        port = port or HTTPSConnection.default_port
        connection = HTTPSConnection(host, port, timeout=timeout_s, context=context)
    try:
        connection.connect()
    except UnicodeError as error:
        raise HTTPException(f"{host!r} is no name of a host") from error
    except BaseException:
        connection.close()
        raise
    return connection


def exchange(
    connection: HTTPConnection, method: str, target: str, body: bytes | None, headers: Mapping[str, str], most: int
) -> HttpAnswer:
    """Send a request and return the answer. The connection is closed if it cannot be used again.

    connection: an open one. Its time-out limits the request with the whole answer.
    method: such as POST.
    target: path and query.
    body: of the request.
    headers: of the request.
    most: bytes of the answer's body that are read.
    Raises OSError and HTTPException; TimeoutError if the time ends before the head of the answer is here.
    """
    late, limit_s = Event(), connection.timeout or 0
    timer = Timer(limit_s, _cut_off, [connection.sock, late])  # a peer can send a byte now and then
    timer.daemon = True
    timer.start()
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may answer before it has read everything
            connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        found = _beginning(answer, most)
    except (OSError, HTTPException) as error:
        if late.is_set() or isinstance(error, TimeoutError):  # a connection that is cut off looks like one that ended
            raise TimeoutError(f"no whole answer within {limit_s:g} s") from error
        raise
    finally:
        timer.cancel()
    cut = late.is_set() or (len(found) < most and bool(answer.length))
    if not answer.isclosed():
        connection.close()
    return HttpAnswer(answer.status, answer.reason, answer.headers, found, cut)


def _beginning(answer: HTTPResponse, most: int) -> bytes:
    """Return at most so many bytes of a body. `read` takes everything if the size of a chunk is negative."""
    parts = list[bytes]()
    while most > 0 and (part := answer.read1(most)):
        parts.append(part)
        most -= len(part)
    if answer.length == 0:
        answer.close()  # read1 leaves it open in some versions of Python, and so the connection in use
    return b"".join(parts)


def _cut_off(connection: socket.socket, late: Event) -> None:
    late.set()
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # an SSLSocket's own one forgets the session first
