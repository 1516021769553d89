"""TCP links that can be cut, healed and slowed down. Their own thread forwards data in an asyncio loop.

with Network() as network:
    link = network.link(zookeeper.port)
    client = KazooClient(f"127.0.0.1:{link.port}")
    link.cut()       # like lost packets: nothing arrives, and neither side sees the other close
    link.heal()      # held data arrives
    link.reset()     # like a firewall that drops connections: both sides see them closed; new ones are forwarded
    link.refuse()    # refuses connections until heal()
    link.delay(0.05, jitter_s=0.02)
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self, TypeVar

from lab.ports import LOOPBACK, free_port

CHUNK_BYTES = 65536

T = TypeVar("T")


class Link:
    """A port that forwards to another one. Methods are callable from any thread and take effect before they return.

    If no process listens on the target, a connection is accepted and closed at once. patience_s: seconds to wait first
    for a process to listen; for peers that retry after a refused connection but not after a lost one.
    """

    def __init__(self, network: Network, target: int, patience_s: float, jitter: random.Random) -> None:
        self.port = free_port()
        self.target = target
        self._patience_s = patience_s
        self._network = network
        self._jitter = jitter
        self._open = asyncio.Event()
        self._open.set()
        self._delay_s = self._jitter_s = 0.0
        self._server: asyncio.Server | None = None
        self._forwarding: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"{LOOPBACK}:{self.port}"

    def cut(self) -> None:
        """Hold all data and all new connections."""
        self._network.do(self._set(open_=False))

    def heal(self) -> None:
        """Forward held data, and accept connections again."""
        self._network.do(self._set(open_=True))

    def reset(self) -> None:
        """End all connections."""
        self._network.do(self._end_all())

    def refuse(self) -> None:
        """End all connections and refuse new ones."""

        async def work() -> None:
            await self._stop_listening()
            await self._end_all()

        self._network.do(work())

    def delay(self, seconds: float, *, jitter_s: float = 0.0) -> None:
        """Delay all data by this time plus a random time up to jitter_s, from the network's seed."""

        async def work() -> None:
            self._delay_s, self._jitter_s = seconds, jitter_s

        self._network.do(work())

    @property
    def connections(self) -> int:
        """Return the number of connections that it forwards now."""
        return len(self._forwarding)

    async def listen(self) -> None:
        """Start listening. Runs on the loop."""
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, LOOPBACK, self.port)

    async def _set(self, *, open_: bool) -> None:
        if open_:
            self._open.set()
            await self.listen()
        else:
            self._open.clear()

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end_all(self) -> None:
        for task in tuple(self._forwarding):
            task.cancel()
        await asyncio.gather(*self._forwarding, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._forwarding[task] = (writer,)
        try:
            with suppress(OSError):
                await self._open.wait()
                there_reader, there_writer = await self._reach()
                self._forwarding[task] = (writer, there_writer)
                await asyncio.gather(self._forward(reader, there_writer), self._forward(there_reader, writer))
        except asyncio.CancelledError:
            pass  # reset(): the sockets are closed below
        finally:
            for end in self._forwarding.pop(task):
                end.transport.abort()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ends_at = time.monotonic() + self._patience_s
        while True:
            try:
                return await asyncio.open_connection(LOOPBACK, self.target)
            except ConnectionRefusedError:
                if time.monotonic() >= ends_at:
                    raise
                await asyncio.sleep(0.02)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await reader.read(CHUNK_BYTES)
            if self._delay_s or self._jitter_s:
                await asyncio.sleep(self._delay_s + self._jitter.uniform(0.0, self._jitter_s))
            await self._open.wait()
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()


class Network:
    """Links and the thread that serves them. seed: seeds the jitter of all links."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: list[Link] = []
        self._thread.start()

    def link(self, target: int, *, patience_s: float = 0.0) -> Link:
        """Forward a new port to this one; no process needs to listen on it yet."""

        async def make() -> Link:
            link = Link(self, target, patience_s, random.Random(self._random.random()))
            await link.listen()
            return link

        link = self.do(make())
        self._links.append(link)
        return link

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            link.refuse()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()
