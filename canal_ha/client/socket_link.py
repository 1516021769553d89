"""SocketLink: a TCP connection whose calls block the thread that makes them. See Link."""

from __future__ import annotations

import select
import socket
import ssl
import time

from canal_ha.client.tls import ClientTls
from canal_ha.decode.kernel.buffers import Landing
from canal_ha.errors import ConnectionLost
from canal_ha.wire.framing import HEADER_BYTES, is_whole

CHUNK_BYTES = 256 * 1024
AHEAD_BYTES = 4096  # received with the length of a frame: a small reply takes one call
LINGER_S = 1.0
# Linux: delay bytes by about 0.2 s, to send them with the next ones
MORE: int = getattr(socket, "MSG_MORE", 0)


class SocketLink:
    """A connected socket. See Link."""

    def __init__(self, host: str, port: int, timeout_ms: int, tls: ClientTls | None = None) -> None:
        """Connect.

        host, port: of the server.
        timeout_ms: for the TCP connection, and for TLS; 0 or less: no limit.
        tls: None for a plain connection.
        """
        self._name = f"{host}:{port}"
        self._timeout_s = timeout_ms / 1000 if timeout_ms > 0 else None
        try:
            self._socket = socket.create_connection((host, port), self._timeout_s)
            self._tls: ssl.SSLSocket | None = None
            if tls:
                try:
                    self._socket = self._tls = tls.wrap(self._socket, host)
                except OSError:
                    self._socket.close()
                    raise
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {self._name}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)
        self._descriptor = self._socket.fileno()
        self._landing = Landing()
        self._scratch = memoryview(bytearray(AHEAD_BYTES))
        self._ahead = b""  # received, and not asked for yet

    @property
    def local_address(self) -> tuple[str, int]:
        """See Link."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    async def send(self, data: bytes, *, more: bool = False) -> None:
        """See Link and MORE."""
        try:
            self._socket.sendall(data, MORE if more and not self._tls else 0)
        except OSError as error:
            raise ConnectionLost(f"connection to {self._name} lost: {error}") from error

    async def receive(self, deadline: float | None, size: int) -> bytes:
        """See Link."""
        ahead = self._ahead
        if len(ahead) < size <= AHEAD_BYTES:
            ahead = self._receive_ahead(size, deadline)
        if len(ahead) >= size:
            if size == HEADER_BYTES and is_whole(ahead):
                self._ahead = b""
                return ahead
            self._ahead = ahead[size:]
            return ahead[:size]
        with self._landing.begin(size) as room:
            done = len(ahead)
            room[:done] = ahead
            self._ahead = b""
            while done < size:
                done += self._receive_into(room[done:] if done else room, deadline)
        return self._landing.finish()

    def _receive_ahead(self, size: int, deadline: float | None) -> bytes:
        """Return at least so many bytes, with those received before. They stay if the wait ends with an error."""
        while len(self._ahead) < size:
            count = self._receive_into(self._scratch, deadline)
            received = self._scratch[:count]
            self._ahead = self._ahead + received if self._ahead else bytes(received)
        return self._ahead

    def _receive_into(self, room: memoryview, deadline: float | None) -> int:
        """Wait for bytes; store those that are there and return their number."""
        left_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        try:
            if self._tls and self._tls.pending():
                return self._tls.recv_into(room)
            ready = self._poll.poll(left_ms)
            if not ready:
                raise ConnectionLost(f"{self._name} did not answer before the timeout")
            if len(ready) > 1 or ready[0][0] != self._descriptor:
                raise ConnectionLost("interrupted")
            size = self._decrypt_into(self._tls, room) if self._tls else self._socket.recv_into(room)
        except ssl.SSLWantReadError:
            return 0  # a part of a record, or a message of TLS itself
        except OSError as error:
            raise ConnectionLost(f"connection to {self._name} lost: {error}") from error
        if not size:
            raise ConnectionLost(f"connection to {self._name} lost: end of stream")
        return size

    def _decrypt_into(self, tls: ssl.SSLSocket, room: memoryview) -> int:
        """Store what is there without a wait for the rest of a record. Raises SSLWantReadError if none is complete."""
        tls.settimeout(0.0)
        try:
            return tls.recv_into(room)
        finally:
            tls.settimeout(self._timeout_s)

    def interrupt(self) -> None:
        """See Link."""
        try:
            self._waker.send(b"\0")
        except OSError:  # already full or closed: an interrupt is pending, or nobody waits
            return

    def abort(self) -> None:
        """See Link."""
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # an SSLSocket's own is not for other threads
        except OSError:  # the peer or `close` ended the connection first
            return

    async def close(self, *, linger: bool) -> None:
        """See Link. Without `linger`, an unread reply causes a RST that drops what the server has not read."""
        try:
            if linger:
                until = time.monotonic() + LINGER_S
                self._socket.shutdown(socket.SHUT_WR)
                self._socket.settimeout(LINGER_S)
                while self._socket.recv(CHUNK_BYTES) and time.monotonic() < until:
                    continue
        except OSError:
            return
        finally:
            self._close()

    def discard(self) -> None:
        """See Link."""
        self.abort()
        self._close()

    def _close(self) -> None:
        for end in (self._socket, self._woken, self._waker):
            end.close()
