"""FewCalls: kazoo's handler of threads and sockets, with few calls of the system for many requests.

kazoo's own handler makes some ten system calls for each request, and hands the answer to another thread. Each call
releases the interpreter's lock, and beside a busy reactor a thread waits a millisecond to get it back. This handler
sends requests that wait together in one write, and receives answers that have come together in one read. It calls
every watch, and every callback that is an `AtOnce`, on kazoo's own thread, in the order in which ZooKeeper sent them. A
callback must not block.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

LOG = logging.getLogger("kazoo.client")
READ_BYTES = 1 << 16
WRITE_BYTES = 1 << 16  # of requests that may wait for the same write


class AtOnce:
    """A call for the answer to a request, on kazoo's thread."""

    def __init__(self, call: Callable[[Any], None]) -> None:
        self._call = call

    def __call__(self, result: Any) -> None:
        _safely(lambda: self._call(result))


class FewCalls(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """See the module."""

    def async_result(self) -> AsyncResult:
        """See kazoo's IHandler."""
        return _Result(self)

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watch."""
        _safely(lambda: callback.func(*callback.args))

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """See kazoo's IHandler. TLS has buffers of its own."""
        connection = super().create_connection(*args, **options)
        return connection if options.get("use_ssl") else Buffered(connection)

    def create_socket_pair(self) -> tuple[Any, Any]:
        """Return the two ends of what wakes kazoo's thread when there is a request."""
        ends = Wakeups(*socket.socketpair())
        return ends, ends

    def select(
        self, reading: Sequence[Any], writing: Sequence[Any], _errors: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Do what select.select does, for descriptors of any number. What is buffered needs no look.

        Bytes that have left for the system are no event: kazoo would take that for a silence of ZooKeeper.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if ready := [each for each in reading if _pending(each)]:
                return ready, [], []
            if writing and all(isinstance(each, Buffered) and each.has_room() for each in writing):
                return [], list(writing), []
            left_s = None if until is None else max(0.0, until - time.monotonic())
            ready, writable = _polled(reading, writing, left_s)
            if ready or writable or left_s == 0.0:
                return ready, writable, []


class Buffered:
    """A connection to ZooKeeper. kazoo's thread alone reads and writes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._read = b""
        self._at = 0
        self._unsent = bytearray()

    def pending(self) -> int:
        """Return how many bytes can be read without a look at the connection, as TLS connections do."""
        return len(self._read) - self._at

    def recv(self, most: int) -> bytes:
        """Return bytes that have come; none at the end."""
        if not self.pending():
            self._read, self._at = self._connection.recv(READ_BYTES), 0
        found = self._read[self._at : self._at + most]
        self._at += len(found)
        return found

    def has_room(self) -> bool:
        """Return whether `send` may take more before ZooKeeper has read what was written."""
        if len(self._unsent) > WRITE_BYTES:
            self.flush()
        return len(self._unsent) <= WRITE_BYTES

    def send(self, message: bytes) -> int:
        """Take bytes for the next `flush`."""
        self._unsent += message
        return len(message)

    def flush(self) -> bool:
        """Write what was sent. Return whether the connection has taken all of it."""
        if self._unsent:
            try:
                del self._unsent[: self._connection.send(self._unsent)]
            except BlockingIOError:
                return False
        return not self._unsent

    def __getattr__(self, name: str) -> Any:
        """Return what else a socket has."""
        return getattr(self._connection, name)


class Wakeups:
    """Both ends of a pair of sockets of which one wakes the reader of the other. It holds one byte at most.

    kazoo writes a byte for each request and reads one for each that it has sent. The system would take some hundred of
    them; a further one would block the reactor.
    """

    def __init__(self, reader: socket.socket, writer: socket.socket) -> None:
        self._reader, self._writer = reader, writer
        self._lock = threading.Lock()
        self._count = 0

    def pending(self) -> int:
        """Return how many bytes were written and not read."""
        return self._count

    def send(self, message: bytes) -> int:
        """Write. Any thread."""
        with self._lock:
            self._count += len(message)
            if self._count == len(message):
                self._writer.send(b"\0")
        return len(message)

    def recv(self, _most: int) -> bytes:
        """Read a byte; there is one."""
        with self._lock:
            self._count = max(0, self._count - 1)
            if not self._count:
                self._reader.recv(1)
        return b"\0"

    def fileno(self) -> int:
        """See socket."""
        return self._reader.fileno()

    def close(self) -> None:
        """Close both ends. A second call does nothing."""
        self._reader.close()
        self._writer.close()


class _Result(AsyncResult):  # type: ignore[misc] # kazoo has no types
    _callbacks: list[Any]

    def _do_callbacks(self) -> None:
        callbacks = self._callbacks
        self._callbacks = [each for each in callbacks if not isinstance(each, AtOnce)]
        super()._do_callbacks()
        self._callbacks = callbacks
        for each in callbacks:
            if isinstance(each, AtOnce):
                each(self)


def _polled(reading: Sequence[Any], writing: Sequence[Any], timeout_s: float | None) -> tuple[list[Any], list[Any]]:
    """Flush, and wait. Return what can be read or written; nothing if more of a buffer can be flushed."""
    poll, found = select.poll(), {}
    for each in reading:
        unsent = isinstance(each, Buffered) and not each.flush()
        poll.register(each, select.POLLIN | (select.POLLOUT if unsent else 0))
        found[each.fileno()] = each
    for each in writing:
        poll.register(each, select.POLLOUT)
        found[each.fileno()] = each
    ready, writable = [], []
    for descriptor, event in poll.poll(None if timeout_s is None else timeout_s * 1000):
        each = found[descriptor]
        if isinstance(each, Buffered) and event == select.POLLOUT:
            continue  # the next look flushes
        if each in writing:
            writable.append(each)
        else:
            ready.append(each)
    return ready, writable


def _pending(connection: Any) -> bool:
    pending = getattr(connection, "pending", None)
    return pending is not None and pending() > 0


def _safely(call: Callable[[], None]) -> None:
    """Call. An error would end kazoo's thread."""
    try:
        call()
    except Exception:
        LOG.exception("an answer of ZooKeeper was not passed on")
