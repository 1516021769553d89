"""TCP links that can be cut, healed and slowed down. Their own thread forwards data in an asyncio loop.

with Network() as network:
    link = network.link(zookeeper.port)
    client = KazooClient(f"127.0.0.1:{link.port}")
    link.cut()       # like lost packets: nothing arrives, and neither side sees the other close
    link.heal()      # held data arrives
    link.reset()     # like a firewall that drops connections: both sides see them closed; new ones are forwarded
    link.refuse()    # refuses connections until heal()
    link.delay(0.05, jitter_s=0.02)
    link.cut(back=False)    # one way: requests are held, answers arrive
    link.strand()    # half open: the target sees its connections close, the other side sees nothing until heal()
    link.flip(3)     # flips one bit in each of the next three pieces of data from the target
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from lab.ports import LOOPBACK, free_port

CHUNK_BYTES = 65536

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Connection:
    """One forwarded connection. marked: the side that connected has sent what the link's `marks` looks for."""

    writer: asyncio.StreamWriter
    target: asyncio.StreamWriter | None = None
    marked: bool = False
    stranded: bool = False

    def abort(self) -> None:
        for end in (self.writer, self.target):
            if end is not None:
                end.transport.abort()


class Link:
    """A port that forwards to another one. Methods are callable from any thread and take effect before they return.

    If no process listens on the target, a connection is accepted and closed at once. patience_s: seconds to wait first
    for a process to listen; for peers that retry after a refused connection but not after a lost one.
    at: host and port on which the link listens; None: a free port of the loopback interface.
    marks: recognizes a piece of data from the side that connected; flip() damages only connections on which it came.
        None: all connections.
    """

    def __init__(
        self,
        network: Network,
        target: int,
        patience_s: float,
        chance: random.Random,
        at: tuple[str, int] | None = None,
        marks: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.host, self.port = at or (LOOPBACK, free_port())
        self.target = target
        self._patience_s = patience_s
        self._network = network
        self._chance = chance
        self._marks = marks
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._there.set()
        self._back.set()
        self._flips = 0
        self._delay_s = self._jitter_s = 0.0
        self._server: asyncio.Server | None = None
        self._forwarding: dict[asyncio.Task[None], _Connection] = {}

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"{self.host}:{self.port}"

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Hold all data to the target (`there`), which includes new connections, and from it (`back`)."""

        async def work() -> None:
            for event, held in ((self._there, there), (self._back, back)):
                if held:
                    event.clear()

        self._network.do(work())

    def heal(self) -> None:
        """Forward held data, accept connections again, and end stranded ones."""

        async def work() -> None:
            self._there.set()
            self._back.set()
            await self._end([task for task, connection in self._forwarding.items() if connection.stranded])
            await self.listen()

        self._network.do(work())

    def strand(self) -> None:
        """Close all connections on the target's side only; the other side gets no more data."""

        async def work() -> None:
            for connection in self._forwarding.values():
                connection.stranded = True
                if connection.target is not None:
                    connection.target.transport.abort()

        self._network.do(work())

    def flip(self, pieces: int) -> None:
        """Flip one bit in each of the next `pieces` pieces of data from the target; 0: no more."""

        async def work() -> None:
            self._flips = pieces

        self._network.do(work())

    def reset(self) -> None:
        """End all connections."""
        self._network.do(self._end(list(self._forwarding)))

    def refuse(self) -> None:
        """End all connections and refuse new ones."""

        async def work() -> None:
            await self._stop_listening()
            await self._end(list(self._forwarding))

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
            self._server = await asyncio.start_server(self._accepted, self.host, self.port)

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = self._forwarding[task] = _Connection(writer)
        try:
            with suppress(OSError):
                await self._there.wait()
                there_reader, connection.target = await self._reach()
                await asyncio.gather(
                    self._forward(reader, connection.target, connection, self._there),
                    self._forward(there_reader, writer, connection, self._back),
                )
            if connection.stranded:
                await asyncio.Event().wait()  # until heal() or reset()
        except asyncio.CancelledError:
            pass  # ended on purpose: the sockets are closed below
        finally:
            self._forwarding.pop(task).abort()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ends_at = time.monotonic() + self._patience_s
        while True:
            try:
                return await asyncio.open_connection(LOOPBACK, self.target)
            except ConnectionRefusedError:
                if time.monotonic() >= ends_at:
                    raise
                await asyncio.sleep(0.02)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        connection: _Connection,
        open_: asyncio.Event,
    ) -> None:
        there = writer is connection.target
        while True:
            data = await reader.read(CHUNK_BYTES)
            if self._delay_s or self._jitter_s:
                await asyncio.sleep(self._delay_s + self._chance.uniform(0.0, self._jitter_s))
            await open_.wait()
            if connection.stranded:
                return
            if not data:
                writer.write_eof()
                return
            if there and self._marks is not None and self._marks(data):
                connection.marked = True
            elif not there and self._flips and (connection.marked or self._marks is None):
                self._flips -= 1
                data = self._flipped(data)
            writer.write(data)
            await writer.drain()

    def _flipped(self, data: bytes) -> bytes:
        at = self._chance.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << self._chance.randrange(8)]) + data[at + 1 :]


class Network:
    """Links and the thread that serves them. seed: of the jitter and the flipped bits of all links."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: list[Link] = []
        self._thread.start()

    def link(
        self,
        target: int,
        *,
        patience_s: float = 0.0,
        at: tuple[str, int] | None = None,
        marks: Callable[[bytes], bool] | None = None,
    ) -> Link:
        """Forward a new port to this one; no process needs to listen on it yet. For the arguments see Link."""

        async def make() -> Link:
            link = Link(self, target, patience_s, random.Random(self._random.random()), at, marks)
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
