"""HTTP answers with a deadline: a peer that sends a byte now and then cannot hold a thread or a connection."""

from __future__ import annotations

import io
import ssl
import time
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from math import inf
from socket import socket
from typing import Any
from urllib.request import HTTPHandler, HTTPSHandler, Request


class AnswerLate(TimeoutError):
    """An answer is not complete at its deadline."""


class HttpUntil(HTTPHandler):
    """Opens http addresses. until: when the answer has to be complete, in s of time.monotonic."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def http_open(self, req: Request) -> HTTPResponse:
        """Open one. Raises URLError, AnswerLate."""
        return self.do_open(_connecting(HTTPConnection, self._until), req)


class HttpsUntil(HTTPSHandler):
    """Opens https addresses. until: see HttpUntil. context: of TLS."""

    def __init__(self, until: float, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._until = until
        self._tls = context

    def https_open(self, req: Request) -> HTTPResponse:
        """Open one. Raises URLError, AnswerLate."""
        return self.do_open(_connecting(HTTPSConnection, self._until), req, context=self._tls)


def _connecting(kind: type[HTTPConnection], until: float) -> Any:
    def connection(host: str, **options: Any) -> HTTPConnection:
        made = kind(host, **options)
        made.response_class = partial(_Response, until)  # type: ignore[assignment] # any callable will do
        return made

    return connection


class _Response(HTTPResponse):
    def __init__(self, until: float, sock: socket, *positional: Any, **named: Any) -> None:
        super().__init__(sock, *positional, **named)
        self.fp.close()
        self.fp = io.BufferedReader(_Within(sock, until))


class _Within(io.RawIOBase):
    """The bytes of a socket until a deadline. Its own timeout is that of silence."""

    def __init__(self, sock: socket, until: float) -> None:
        self._sock = sock
        self._file: Any = sock.makefile("rb", buffering=0)
        self._until = until
        self._silent_s = sock.gettimeout()  # None without a limit

    def readable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """See io.RawIOBase. Raises AnswerLate, TimeoutError."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise AnswerLate("the answer is not complete in time")
        least = left if self._silent_s is None else min(left, self._silent_s)
        self._sock.settimeout(None if least == inf else least)
        try:
            count: int | None = self._file.readinto(buffer)
        except TimeoutError:
            if time.monotonic() >= self._until:
                raise AnswerLate("the answer is not complete in time") from None
            raise
        return count

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        super().close()
