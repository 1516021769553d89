"""Runs the connectors' coroutines on an asyncio event loop. Nothing here blocks the loop's thread."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress

from canal_ha.client.runtime import Changes, Link
from canal_ha.client.tls import ClientTls
from canal_ha.errors import ConnectionLost

BUFFER_BYTES = 1 << 20  # received ahead of what is asked for
CHUNK_BYTES = 256 * 1024
LINGER_S = 1.0


class StreamLink:
    """A link over asyncio's streams. See Link."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take an open connection. name: host:port of the server, for errors. Raises OSError."""
        self._name = name
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket = writer.get_extra_info("socket")
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    @property
    def local_address(self) -> tuple[str, int]:
        """See Link."""
        found = self._writer.get_extra_info("sockname")
        if found is None:
            raise self._lost("it has no address")
        return str(found[0]), int(found[1])

    async def send(self, data: bytes, *, more: bool = False) -> None:
        """See Link. The bytes leave even if the call is cancelled. The hint has no effect."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise self._lost(error) from error

    async def receive(self, deadline: float | None, size: int) -> bytes:
        """See Link."""
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                return await self._reader.readexactly(size)
        except TimeoutError as error:
            raise ConnectionLost(f"{self._name} did not answer before the timeout") from error
        except asyncio.IncompleteReadError as error:
            raise self._lost("end of stream") from error
        except OSError as error:
            raise self._lost(error) from error

    def interrupt(self) -> None:
        """See Link."""
        self._soon(lambda: self._reader.set_exception(ConnectionLost("interrupted")))

    def abort(self) -> None:
        """See Link."""
        with suppress(OSError):  # the peer or `close` ended the connection first
            self._socket.shutdown(socket.SHUT_RDWR)

    async def close(self, *, linger: bool) -> None:
        """See Link."""
        try:
            if linger:
                async with asyncio.timeout(LINGER_S):
                    await self._read_to_the_end()
        except (OSError, ConnectionLost):  # TimeoutError is an OSError
            return
        finally:
            self._writer.transport.abort()

    async def _read_to_the_end(self) -> None:
        """Say that nothing more comes, and wait until the server has read everything and closes."""
        if not self._writer.can_write_eof():  # TLS says so by closing
            self._writer.close()
            await self._writer.wait_closed()
            return
        self._writer.write_eof()
        while await self._reader.read(CHUNK_BYTES):
            continue

    def discard(self) -> None:
        """See Link."""
        self.abort()
        self._soon(self._writer.transport.abort)

    def _soon(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, and its connections with it
            self._loop.call_soon_threadsafe(call)

    def _lost(self, reason: object) -> ConnectionLost:
        return ConnectionLost(f"connection to {self._name} lost: {reason}")


class LoopChanges:
    """See Changes."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def notify(self) -> None:
        """See Changes."""
        self.count += 1
        waiting = self._waiting  # `wait` sets it before it compares the count, so no change is missed
        if waiting is not None:
            with suppress(RuntimeError):  # the loop is closed, and the call with it
                waiting[0].call_soon_threadsafe(waiting[1].set)

    async def wait(self, seen: int, seconds: float | None) -> None:
        """See Changes."""
        changed = asyncio.Event()
        self._waiting = asyncio.get_running_loop(), changed
        try:
            if self.count == seen:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await changed.wait()
        finally:
            self._waiting = None


class LoopRuntime:
    """See Runtime."""

    async def open_link(self, host: str, port: int, timeout_ms: int, tls: ClientTls | None) -> Link:
        """See Runtime."""
        name = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms > 0 else None):
                context = await asyncio.to_thread(tls.context) if tls else None  # it reads files
                reader, writer = await asyncio.open_connection(
                    host,
                    port,
                    limit=BUFFER_BYTES,
                    ssl=context,
                    server_hostname=(tls.server_name or host) if tls else None,
                )
            return StreamLink(name, reader, writer)
        except TimeoutError as error:
            raise ConnectionLost(f"cannot connect to {name}: timed out") from error
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {name}: {error}") from error

    def new_turn(self) -> AbstractAsyncContextManager[object]:
        """See Runtime."""
        return asyncio.Lock()

    def new_changes(self) -> Changes:
        """See Runtime."""
        return LoopChanges()

    async def aside(self, call: Callable[[], None]) -> None:
        """See Runtime."""
        await asyncio.to_thread(call)


LOOP = LoopRuntime()
