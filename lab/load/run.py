"""One run of the load: start everything, connect, write rows, watch the node, and judge.

Two databases feed two destinations, because every stream reads the whole binlog of its database. The clients of the
destination `wide` get rows of 64 MiB; those of `small` get small rows, and each second one of 256 KiB, which fills the
rings of the clients that do not acknowledge.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from canal_ha.model.identity import ClientIdentity
from canal_ha.source.connection.large_events import PLACES
from lab.load.clients import SMALL, WIDE, Client, Kind, Tally, connect
from lab.mysql import MariaDB, MySQL, SqlServer
from lab.node import Node, follow
from lab.ports import LOOPBACK
from lab.process import memory_mib

MIB = 1 << 20
CONNECTING_AT_ONCE = 50
TRANSACTIONS_PER_S = 10
FILLER_BYTES = 256 * 1024
EVERY_WIDE_S = 5.0
READY_S = 120.0
RING_MIB = 1  # canal.instance.memory.buffer.size places of 1024 bytes each

PROCESS_MIB = 150  # the interpreter, its libraries, the allocator's reserve
CONNECTION_KIB = 48
STREAM_MIB = 2  # a thread, its connection and its decoder, beside the ring


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    seconds: how long rows are written.
    idle: connections that authenticate and do nothing more.
    active: clients of the destination `small`; of ten, one reads slowly and one never acknowledges.
    wide: clients of the destination `wide`; of five, one reads slowly and one never acknowledges.
    wide_mib: size of a row of `wide`.
    flavor: the databases, mysql or mariadb.
    stall_s: longest delay of the reactor that is allowed, without its waits for a processor.
    """

    seconds: float = 60.0
    idle: int = 2000
    active: int = 190
    wide: int = 10
    wide_mib: int = 64
    flavor: str = "mysql"
    stall_s: float = 0.1

    @property
    def ceiling_mib(self) -> float:
        """The memory that the configuration allows the node: rings, the rows on their way to them, connections."""
        connections = (self.idle + self.active + self.wide) * CONNECTION_KIB / 1024
        streams = (self.active + self.wide) * (RING_MIB + STREAM_MIB)
        # a row in each ring, or on its way there, and the events of those rows that are being received or decoded
        rows = (self.wide + min(self.wide, PLACES)) * self.wide_mib
        return PROCESS_MIB + connections + streams + rows


@dataclass(slots=True)
class Figures:
    """What a run measured.

    before_mib, idle_mib, peak_mib: the node's memory without clients, with all of them before the first row, and its
        peak.
    connecting, writing: the reactor's longest delay, and the longest without its waits for a processor, seconds, while
        the clients connected and while rows were written.
    stalls: delays above 100 ms; blocks: without the waits for a processor.
    wide_written: rows of `wide`.
    written: rows of `small`.
    """

    before_mib: float = 0.0
    idle_mib: float = 0.0
    peak_mib: float = 0.0
    connecting: tuple[float, float] = (0.0, 0.0)
    writing: tuple[float, float] = (0.0, 0.0)
    stalls: int = 0
    blocks: int = 0
    written: int = 0
    wide_written: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def p99_s(self) -> float:
        """The delay that one row in a hundred exceeds, from INSERT to client; infinite without rows."""
        delays = sorted(self.tally.delays_s)
        return delays[int(len(delays) * 0.99)] if delays else float("inf")


def kinds(count: int, group: int) -> list[Kind]:
    """Return kinds of active clients: of each `group`, one reads slowly and one never acknowledges."""
    odd = {0: Kind.SLOW_READER, 1: Kind.NEVER_ACKS}
    return [odd.get(number % group, Kind.HEALTHY) for number in range(count)]


def broken(plan: Plan, figures: Figures) -> list[str]:
    """Return the bounds that the figures break."""
    healthy = kinds(plan.active, 10).count(Kind.HEALTHY)
    healthy_wide = kinds(plan.wide, 5).count(Kind.HEALTHY)
    tally = figures.tally
    found = list(dict.fromkeys(tally.errors))
    if figures.peak_mib > plan.ceiling_mib:
        found.append(f"memory: {figures.peak_mib:.0f} MiB is above {plan.ceiling_mib:.0f} MiB")
    blocked_s = max(figures.writing[1], figures.connecting[1])
    if blocked_s > plan.stall_s:
        found.append(f"reactor: blocked for {blocked_s * 1000:.0f} ms")
    if tally.rows != figures.written * healthy:
        found.append(f"rows: {tally.rows} of {figures.written * healthy} arrived")
    if tally.large_rows != figures.wide_written * healthy_wide:
        found.append(f"large rows: {tally.large_rows} of {figures.wide_written * healthy_wide} arrived")
    return found


def run(plan: Plan) -> Figures:
    """Run the load. Raises StartFailed, and TimeoutError if clients cannot subscribe."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the node inherits it
    with ExitStack() as stack:
        small, wide = (stack.enter_context(_database(plan)) for _ in (SMALL, WIDE))
        settings = {
            "canal.instance.stream.max": "1000",
            "canal.instance.clients.max": "1000",
            "canal.instance.memory.buffer.size": str(RING_MIB * 1024),
        }
        destinations = {SMALL: follow(small, settings), WIDE: follow(wide, settings)}
        node = stack.enter_context(Node(destinations))
        return asyncio.run(_Run(plan, node, small, wide).go())


def _database(plan: Plan) -> SqlServer:
    kind = MySQL if plan.flavor == "mysql" else MariaDB
    return kind(extra=["--max-connections=1000", f"--max-allowed-packet={4 * plan.wide_mib * MIB}"])


class _Run:
    def __init__(self, plan: Plan, node: Node, small: SqlServer, wide: SqlServer) -> None:
        self._plan = plan
        self._node = node
        self._small = small
        self._wide = wide
        self._figures = Figures()
        self._clients: list[Client] = []
        self._late_s = self._blocked_s = 0.0

    async def go(self) -> Figures:
        plan, figures, tally = self._plan, self._figures, self._figures.tally
        for server in (self._small, self._wide):
            server.execute(
                "CREATE DATABASE load_test",
                "CREATE TABLE load_test.t (id int PRIMARY KEY AUTO_INCREMENT, at double, v longtext)",
            )
        figures.before_mib = memory_mib(self._node.pid)
        await self._note_late()
        self._late_s = self._blocked_s = 0.0
        watch = asyncio.create_task(self._watch())
        await self._connect([(Kind.IDLE, SMALL)] * plan.idle)
        await self._connect([(kind, SMALL) for kind in kinds(plan.active, 10)])
        await self._connect([(kind, WIDE) for kind in kinds(plan.wide, 5)])
        await self._until(lambda: tally.ready == plan.idle + plan.active + plan.wide, "all clients are ready")
        await asyncio.sleep(1)
        figures.connecting = self._late_s, self._blocked_s
        self._late_s = self._blocked_s = 0.0
        figures.idle_mib = memory_mib(self._node.pid)
        await asyncio.gather(asyncio.to_thread(self._write_small), asyncio.to_thread(self._write_wide))
        with contextlib.suppress(TimeoutError):  # `broken` tells
            await self._until(lambda: not self._missing(), "the rows arrive", seconds=30)
        watch.cancel()
        await self._note_late()
        figures.writing = self._late_s, self._blocked_s
        figures.peak_mib = memory_mib(self._node.pid, "VmHWM")
        for client in self._clients:
            client.end()
        await asyncio.sleep(0)
        return figures

    def _missing(self) -> bool:
        return any("arrived" in each for each in broken(self._plan, self._figures))

    async def _connect(self, wanted: Sequence[tuple[Kind, str]]) -> None:
        for first in range(0, len(wanted), CONNECTING_AT_ONCE):
            some = wanted[first : first + CONNECTING_AT_ONCE]
            self._clients += await asyncio.gather(
                *(
                    connect(self._node.port, kind, ClientIdentity(name, 1000 + first + at), self._figures.tally)
                    for at, (kind, name) in enumerate(some)
                )
            )

    async def _until(self, done: Callable[[], bool], what: str, seconds: float = READY_S) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                errors = "; ".join(dict.fromkeys(self._figures.tally.errors))
                raise TimeoutError(f"not after {seconds:.0f} s: {what}; {self._figures.tally.ready} ready; {errors}")
            await asyncio.sleep(0.05)

    # ---- the node

    async def _watch(self) -> None:
        while True:
            await self._note_late()
            await asyncio.sleep(1)

    async def _note_late(self) -> None:
        """Take the reactor's longest delays since the last call, and its stalls since the node started."""
        url = f"http://{LOOPBACK}:{self._node.metrics_port}/"
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read().decode())
        found = dict(line.split() for line in page.splitlines() if line.startswith("canal_reactor"))
        self._late_s = max(self._late_s, float(found["canal_reactor_late_max_seconds"]))
        self._blocked_s = max(self._blocked_s, float(found["canal_reactor_blocked_max_seconds"]))
        self._figures.stalls = int(found["canal_reactor_stalls"])
        self._figures.blocks = int(found["canal_reactor_blocks"])

    # ---- threads that write

    def _write_small(self) -> None:
        with self._small.connect(database="load_test") as connection, connection.cursor() as cursor:
            for number in _ticks(self._plan.seconds, 1 / TRANSACTIONS_PER_S):
                size = FILLER_BYTES if number % TRANSACTIONS_PER_S == 0 else 100
                cursor.execute(f"INSERT INTO t (at, v) VALUES ({time.monotonic():.6f}, REPEAT('x', {size}))")
                self._figures.written += 1

    def _write_wide(self) -> None:
        with self._wide.connect(database="load_test") as connection, connection.cursor() as cursor:
            for _ in _ticks(self._plan.seconds, EVERY_WIDE_S) if self._plan.wide else ():
                cursor.execute(f"INSERT INTO t (at, v) VALUES (0, REPEAT('x', {self._plan.wide_mib * MIB}))")
                self._figures.wide_written += 1


def _ticks(seconds: float, every_s: float) -> Iterator[int]:
    """Yield 0, 1, 2, ... at these intervals; late ones follow at once."""
    began = time.monotonic()
    number = 0
    while number * every_s < seconds:
        time.sleep(max(0.0, began + number * every_s - time.monotonic()))
        yield number
        number += 1


def table(plan: Plan, figures: Figures) -> str:
    """Return the figures as lines of text."""
    tally = figures.tally
    rows = [
        ("clients", f"{plan.idle} idle, {plan.active} active, {plan.wide} with rows of {plan.wide_mib} MiB"),
        ("memory without clients", f"{figures.before_mib:.0f} MiB"),
        ("memory with all clients, no rows", f"{figures.idle_mib:.0f} MiB"),
        ("peak memory, and the ceiling", f"{figures.peak_mib:.0f} of {plan.ceiling_mib:.0f} MiB"),
        ("delay of the reactor, blocked: connecting", _ms(figures.connecting)),
        ("delay of the reactor, blocked: rows", _ms(figures.writing)),
        ("delays above 100 ms, blocks above 100 ms", f"{figures.stalls}, {figures.blocks}"),
        ("rows written, delivered to healthy clients", f"{figures.written}, {tally.rows}"),
        ("large rows written, delivered", f"{figures.wide_written}, {tally.large_rows}"),
        ("p99 from INSERT to client", f"{figures.p99_s * 1000:.0f} ms"),
    ]
    return "\n".join(f"{name:44}{value}" for name, value in rows)


def _ms(longest: tuple[float, float]) -> str:
    late, blocked = longest
    return f"{late * 1000:.0f}, {blocked * 1000:.0f} ms at most"
