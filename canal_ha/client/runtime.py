"""What connectors need of the place where their calls run: a thread, or an asyncio event loop.

The connectors are written as coroutines, once. On a thread the awaited calls below block, so a coroutine never suspends
(thread_runtime.py). On an event loop they suspend and block nothing (loop_runtime.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from canal_ha.client.tls import ClientTls


class Link(Protocol):
    """A TCP connection. Every awaited method raises ConnectionLost; after that, only close it.

    An interrupt before a wait is stored and ends that wait.
    """

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end."""

    async def send(self, data: bytes, *, more: bool = False) -> None:
        """Send all bytes. more: the next bytes usually follow soon; a hint."""

    async def receive(self, deadline: float | None, size: int) -> bytes:
        """Return the next `size` bytes, or the whole frame of which they are the length; a cancelled wait loses none.

        deadline: time.monotonic(); None: none.
        """

    def interrupt(self) -> None:
        """End the current wait, or the next one. For signal handlers and other threads."""

    def abort(self) -> None:
        """Shut the connection down at once in both directions. Callable from any thread."""

    async def close(self, *, linger: bool) -> None:
        """Close. linger: first let the server read all sent bytes, for a limited time. Raises nothing."""

    def discard(self) -> None:
        """Close at once; what is not sent yet is lost. Callable from any thread."""


class Changes(Protocol):
    """Tells one waiting call that something has changed. count: of changes so far."""

    count: int

    def notify(self) -> None:
        """Count a change and wake the waiting call. Callable from any thread and from signal handlers."""

    async def wait(self, seen: int, seconds: float | None) -> None:
        """Wait until `count` is not `seen` any more, or until the time is over. seconds: None for no limit."""


class Runtime(Protocol):
    """Makes what a connector waits on."""

    async def open_link(self, host: str, port: int, timeout_ms: int, tls: ClientTls | None) -> Link:
        """Connect. timeout_ms: for TCP and TLS; 0 or less: no limit. Raises ConnectionLost."""

    def new_turn(self) -> AbstractAsyncContextManager[object]:
        """Return a lock that calls hold one after the other."""

    def new_changes(self) -> Changes:
        """Return changes that nobody waits on yet."""

    async def aside(self, call: Callable[[], None]) -> None:
        """Make a call that blocks, and wait for its end."""
