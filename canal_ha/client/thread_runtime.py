"""Runs the connectors' coroutines on the calling thread: whatever they await blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from canal_ha.client.runtime import Changes, Link
from canal_ha.client.socket_link import SocketLink
from canal_ha.client.tls import ClientTls

T = TypeVar("T")


def now(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of the thread runtime to its end, and return its result."""
    try:
        call.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    call.close()
    raise RuntimeError("a call suspended, but on a thread it has to block")


class ThreadTurn:
    """A lock of threads. A thread that holds it may take it again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()


class ThreadChanges:
    """See Changes."""

    def __init__(self) -> None:
        self.count = 0
        self._condition = threading.Condition()

    def notify(self) -> None:
        """See Changes."""
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    async def wait(self, seen: int, seconds: float | None) -> None:
        """See Changes."""
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, seconds)


class ThreadRuntime:
    """See Runtime."""

    async def open_link(self, host: str, port: int, timeout_ms: int, tls: ClientTls | None) -> Link:
        """See Runtime."""
        return SocketLink(host, port, timeout_ms, tls)

    def new_turn(self) -> AbstractAsyncContextManager[object]:
        """See Runtime."""
        return ThreadTurn()

    def new_changes(self) -> Changes:
        """See Runtime."""
        return ThreadChanges()

    async def aside(self, call: Callable[[], None]) -> None:
        """See Runtime."""
        call()


THREAD = ThreadRuntime()
