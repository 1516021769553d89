"""The source thread of one stream: connect, check, dump, decode, deliver; reconnect when the connection breaks.

`Dump` starts one thread and runs on it, except `start`, `stop`, `join`, `reroute` and reading the attributes that show
its progress. At the end of the binlog it lends its socket to the reactor, and the thread ends. Another one goes on when
the reactor gives the socket back. mysql-replication speaks the protocol; reconnecting is done here, not by the library.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from random import Random
from typing import Protocol

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.decode.outputs import (
    MayBlock,
    Output,
    Passed,
    RawPacket,
    Rotated,
    SourceFormat,
    SourceHeartbeat,
    SourceSaid,
)
from canal_ha.errors import (
    CanalError,
    MalformedEvent,
    NoThread,
    PositionLost,
    RingClosed,
    SourceRefused,
    SourceUnavailable,
    Superseded,
)
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.source.connection import flavor, heartbeats, openings
from canal_ha.source.connection.backoff import Backoff
from canal_ha.source.connection.dump_connection import Borrowed, Eater, Lendable, Lending
from canal_ha.source.connection.heartbeats import HEARTBEAT_S
from canal_ha.source.connection.identity import ReplicaIdentity, free_server_id
from canal_ha.source.connection.idle_sessions import account_of
from canal_ha.source.connection.large_events import LARGE_BYTES, OF_PROCESS, LargeEvents
from canal_ha.source.connection.reactor_reads import PIECE_BYTES, ReactorReads
from canal_ha.source.connection.reader import DumpReader, DumpRequest
from canal_ha.source.connection.recent_answers import RECENT_S, together
from canal_ha.source.connection.session import SourceSession, Where
from canal_ha.source.positions import gtids, locate, truncated
from canal_ha.source.positions.current_source import CurrentSource
from canal_ha.source.positions.fingerprints import keep_small_copy
from canal_ha.source.positions.lost import DUMP_FAILED, ended, superseded
from canal_ha.source.positions.relocate import Relocation
from canal_ha.source.positions.resume import Resume
from canal_ha.source.positions.row_hashes import with_hashed_rows
from canal_ha.source.positions.scan import Scanner
from canal_ha.source.server.calm import SMALL_BYTES, Calm
from canal_ha.source.server.shared import SharedDump, SharedDumps
from canal_ha.source.server.tap import Tap, Taps
from canal_ha.source.server.tapped import TapOver, Tapped

ASK_AGAIN_S = 0.02  # before a stream that found no shared dump asks for one again
ALONE_S = 5.0  # before a stream that has left a shared dump follows one again
THREAD_AGAIN_S = 1.0  # before another try to begin a thread


@dataclass(frozen=True, slots=True)
class DumpStarted:
    """The source sends the dump. version, uuid ("" on MariaDB), server_id: the source's."""

    version: str
    uuid: str
    server_id: int


@dataclass(frozen=True, slots=True)
class DumpFailed:
    """An attempt ended. retry_in_s: until the next one; None if the dump has ended for good."""

    error: CanalError
    retry_in_s: float | None


@dataclass(frozen=True, slots=True)
class SourceMoved:
    """The stream continues in another server's binlog. before: its position in the old one."""

    before: LogPosition
    address: str
    found: Relocation


DumpEvent = DumpStarted | DumpFailed | SourceMoved


class DumpDecoder(Protocol):
    """The decoder of a dump: takes bytes, yields outputs in order. The caller consumes the whole iterator.

    announces: see Decoder.
    """

    announces: bool

    def feed(self, data: bytes | memoryview, /) -> Iterator[Output]: ...

    def room(self) -> memoryview | None:
        """Memory for the next bytes of a large event; None if `feed` must take them."""

    def received(self, count: int, /) -> Iterator[Output]:
        """Take the first bytes in `room`."""

    @property
    def awaited(self) -> int:
        """Bytes of the large event of which some are missing; 0 without one."""

    @property
    def large_events(self) -> int:
        """How many large events have begun."""

    @property
    def begun_bytes(self) -> int:
        """Size of the event of which some bytes are missing, as far as it is known; 0 between two events."""

    @property
    def place(self) -> tuple[str, int] | None:
        """The journal, and where the next event starts; None inside a transaction or an event."""

    @property
    def gtid_set(self) -> str:
        """The GTID set executed so far; "" outside GTID mode."""

    @property
    def offset(self) -> int: ...

    @property
    def server_id(self) -> int: ...


class MakeDecoder(Protocol):
    """Makes a decoder that begins at this position.

    searching: see History.view.
    end: where the binlog ended a moment ago, of the server that sends the dump; None: nobody knows.
    """

    def __call__(
        self, source: Source, start: LogPosition, /, *, searching: bool = False, end: locate.BinlogEnd | None = None
    ) -> DumpDecoder: ...


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server to read from now on.

    config: of the destination; its master is the server.
    make_decoder: makes a fresh decoder for a connection that begins at this position.
    met: hears which server answers; False: it is another one than before, so ask for the route again.
    joined: hears of two positions that are one place: where the stream left another server, and here.
    """

    config: InstanceConfig
    make_decoder: MakeDecoder
    met: Callable[[str], bool] = lambda identity: True
    joined: Callable[[LogPosition, LogPosition], None] = lambda left, here: None


class _Stopped(Exception):
    """stop() was called."""


class _Rerouted(Exception):
    """reroute() was called."""


class _Following(Exception):
    """The stream follows this shared dump, and must leave it before it goes on."""

    def __init__(self, shared: SharedDump) -> None:
        self.shared = shared


def _source_of(source: SourceConfig, server: flavor.Flavor) -> Source:
    return Source(source.host, source.port, server.uuid, server.server_id, server.keeps_order)


class _Closable(Protocol):
    """A connection of the dump. open: whether `close` was not called."""

    @property
    def open(self) -> bool: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


class Room(Protocol):
    """What a shared dump asks about a stream's ring.

    full: a segment has to wait.
    over_budget: it holds more than its size. It may not be full then: its client may wait for a transaction's end.
    drained: the client has all of it.
    patient: whether `accept` waits for room; False: it takes every segment at once.
    """

    patient: bool

    @property
    def full(self) -> bool: ...

    @property
    def over_budget(self) -> bool: ...

    @property
    def drained(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Sharing:
    """With whom a stream may share a dump.

    dumps: the shared dumps of the destination.
    kind: see SharedDumps.offer.
    """

    dumps: SharedDumps
    kind: Hashable


class Dump:
    """One stream's dump, from `start` until stopped. Delivers segments in order and none of them twice.

    received_bytes: from the source, over all connections.
    last_event_ms: source time of the newest event.
    idle: the source said that nothing newer exists.
    idle_at: `clock` when the source last said so without a delay in a buffer.
    heard_at: `clock` when bytes last came.
    shared: whether it follows a shared dump or a tap.
    lent: whether the reactor reads its socket, or decodes what its tap brings.
    """

    def __init__(
        self,
        config: InstanceConfig,
        route: Callable[[], Upstream],
        *,
        replica: ReplicaIdentity,
        start: LogPosition,
        accept: Callable[[Segment], None],
        report: Callable[[DumpEvent], None],
        await_room: Callable[[], None] = lambda: None,
        busy: Callable[[bool], None] = lambda busy: None,
        large: LargeEvents = OF_PROCESS,
        may_move: bool = True,
        room: Room | None = None,
        sharing: Sharing | None = None,
        lead: SharedDump | None = None,
        reads: ReactorReads | None = None,
        rng: Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        calm: Calm | None = None,
        taps: Taps | None = None,
    ) -> None:
        """Make a dump that waits for `start`. It calls `route`, `accept`, `report` and `busy` on its own thread, and
        all but `route` on the reactor's thread too. It calls `accept` on the thread of a shared dump while it follows
        one.

        config: the destination's.
        route: says what to read; asked before each connection, because the server may change.
        replica: as which replica the dump registers.
        start: a transaction's boundary; inclusive unless consumed.
        accept: takes segments; blocks while there is no room; raises RingClosed to end the dump.
        report: hears of every connection and failure.
        await_room: called before a large event is received; blocks and raises like `accept`.
        busy: called with True before the dump decodes a small chunk, and with False after that.
        large: bounds how many large events are received at once.
        may_move: whether to go on in another server's binlog; False ends the dump there.
        room: in the stream's ring; None: `accept` may wait for other things too.
        sharing: with whom the stream may share a dump; None: it always has its own. It needs `room`.
        lead: the shared dump that this one is; it hears of every output but segments, which `accept` takes.
        reads: reads the socket while little comes, if there is `room` or `lead`; None: the dump's thread always does.
        rng: for the pauses between attempts.
        clock: seconds, monotonic.
        calm: tells when the reactor may read; None makes one.
        taps: where the stream may get the bytes of its server, while the reactor reads; None: from its own dump alone.
        """
        self._decoded: LogPosition | Resume | None = start  # see `decoded`
        self.received_bytes = 0
        self.last_event_ms = 0
        self.idle = False
        self.idle_at = 0.0
        self.heard_at = 0.0
        self.shared = False
        self.lent = False
        self._ready_at = 0.0  # when the thread was last ready for more bytes
        self._config = config
        self._source = config.master
        self._replica = replica
        self._route = route
        self._may_move = may_move
        self._ring_room = room
        self._sharing = sharing
        self._lead = lead
        self._reads = reads
        self._taps = taps if room or lead else None
        self._eater = Eater(self._eat, self._room, self._received, self._lends)
        self._calm = calm or Calm()
        self._rest: Iterator[Output] | None = None  # of a piece that the reactor has begun to decode
        self._answer: Callable[[], None] = lambda: None  # GETs that wait, while the reactor reads
        self._alone_until = 0.0
        self._has_heartbeats = False  # that are counted
        self._opens_at: Hashable = None  # the server at which it has a place to open
        self._starts_at: Hashable = None  # the server at which its thread has a turn
        self._current_source = CurrentSource(start)
        self._accept = accept
        self._report = report
        self._await_room = await_room
        self._busy = busy
        self._large = large
        self._large_event = 0  # the number of the large event that may be received
        self._placed = False  # whether it has a place in `large`
        self._clock = clock
        self._resume = Resume(start)
        self._start = start
        self._began_at = start
        self._backoff = Backoff((rng or Random()).random)
        self._stopping = threading.Event()
        self._rerouting = threading.Event()
        self._awake = threading.Event()  # set by stop and reroute
        self._opening = threading.Lock()
        self._connections: list[_Closable] = []
        self._decoder: DumpDecoder | None = None
        self._connected: DumpStarted | None = None
        self._session: SourceSession | None = None
        self._where = Where(config, config.master)
        self._reader: DumpReader | Tapped | None = None
        self._server: flavor.Flavor | None = None
        self._lending: Lendable | None = None  # what the thread is to lend
        self._lent: tuple[Lendable, Borrowed] | None = None  # until a thread has it back
        self._over = threading.Event()
        self._name = f"dump-{config.destination}-{replica.name}"

    # ---- any thread

    @property
    def decoded(self) -> LogPosition | None:
        """Everything before it was accepted."""
        decoded = self._decoded
        return decoded.at if isinstance(decoded, Resume) else decoded

    @property
    def tap(self) -> str:
        """The name of the tap that it follows, in the server's list of replicas; "" for none."""
        reader = self._reader
        return reader.name if isinstance(reader, Tapped) else ""

    def start(self) -> None:
        """Start the thread and return at once. If the reactor reads for dumps, the thread waits for its turn.

        Raises RuntimeError if there can be no more threads. A dump that waits for its turn reports that instead.
        """
        if self._reads:
            self._reads.soon(self._await_thread)
        else:
            self._start_thread()

    def _start_thread(self) -> None:
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Ask the dump to end, wake it if it waits for the source, and return at once.

        If it waits in `accept`, it ends as soon as that returns or raises.
        """
        self._stopping.set()
        self._wake()

    def reroute(self) -> None:
        """Make the dump ask for its route again and read from there; return at once. Nothing is lost or repeated."""
        self._rerouting.set()
        self._wake()

    def _wake(self) -> None:
        self._awake.set()
        with self._opening:
            for connection in self._connections:
                connection.interrupt()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the dump to end; return False if the time-out expires first."""
        return self._over.wait(timeout_s)

    # ---- the dump's thread

    def _run(self) -> None:
        lending: Lendable | None = None
        try:
            self._run_connections()
            lending, self._lending = self._lending, None
        finally:
            if not lending:
                self._end()
        if lending:
            self._lend(lending)

    def _end(self) -> None:
        self._settled()
        if self._sharing:
            self._sharing.dumps.gone(self._sharing.kind, self)
        self._over.set()

    def _run_connections(self) -> None:
        """Run until the dump ends, or is to lend its connection."""
        # Nothing here keeps the error of a connection: its traceback holds the decoder and all that the decoder knows.
        while (self._lent or not self._stopping.is_set()) and self._goes_on(self._connection()):
            pass

    def _connection(self) -> SharedDump | CanalError | _Rerouted | TapOver | None:
        """Run one connection. Return what to follow, why it failed or moves; None if it stops or is to be lent."""
        try:
            if self._lent:
                self._take_over(*self._lent)
                self._read()
            else:
                self._dump()
        except Lending as lending:
            self._lending = lending.connection
        except (_Stopped, RingClosed):
            return None
        except _Following as following:
            return following.shared
        except (CanalError, _Rerouted, TapOver) as error:
            return error
        except Exception as error:
            return self._unforeseen(error)
        finally:
            if not self._lending:
                self._close()
        return None

    def _unforeseen(self, error: Exception) -> CanalError:
        failure = CanalError(f"{self._config.destination}: the dump failed at {self._resume.at}: {error!r}")
        failure.__cause__ = error
        return failure

    def _goes_on(self, ended: SharedDump | CanalError | _Rerouted | TapOver | None) -> bool:
        """Do what comes behind a connection. Return whether another connection follows."""
        if isinstance(ended, SharedDump):
            self._follow(ended)
        elif isinstance(ended, CanalError):
            return self._retries(ended)
        return ended is not None

    def _retries(self, failure: CanalError) -> bool:
        """Report a failure and wait. Return whether another connection follows."""
        if self._stopping.is_set() or self._rerouting.is_set():
            return self._rerouting.is_set()
        if self._resume.at is not self._began_at:
            self._backoff.reset()
            self._began_at = self._resume.at
        retry_in_s = self._pause_s(failure)
        self._report(DumpFailed(failure, retry_in_s))
        if retry_in_s is None:
            return False
        self._awake.wait(retry_in_s)
        return True

    def _pause_s(self, failure: CanalError) -> float | None:
        if not failure.retryable:
            return None
        # two nodes that end each other's dumps must not do so twice a second
        return self._backoff.limit_s() if isinstance(failure, Superseded) else self._backoff.delay_s()

    def _dump(self) -> None:
        """Run one connection, until an exception ends it."""
        self._rerouting.clear()
        self._awake.clear()
        if self._stopping.is_set():
            raise _Stopped
        upstream = self._route()
        self._config, self._source = upstream.config, upstream.config.master
        if self._taps and not self._config.decode.gtid_on:
            with self._taps.opening(self._config, self._source, self._resume.at) as tap:
                if tap is None or not self._begins_at(tap, upstream):
                    self._open(upstream)
        else:
            if self._taps and (existing := self._taps.existing(self._config, self._source)):
                self._who_answers(existing)
            self._open(upstream)
        self._read()

    def _begins_at(self, tap: Tap, upstream: Upstream) -> bool:
        """Begin at a tap, without a connection of its own. Return False if that cannot be."""
        account = account_of(self._config, self._source)
        openings.AT_TAPS.enter(account, self, self._go_on)
        try:
            return tap.opened(self._go_on) and self._begins_there(tap, upstream)
        finally:
            openings.AT_TAPS.leave(account, self)

    def _begins_there(self, tap: Tap, upstream: Upstream) -> bool:
        self._where = Where(self._config, self._source)
        end = self._who_answers(tap)
        if end is None:
            return False
        server = end.server
        if server.identity != tap.server or self._current_source.elsewhere(server, self._source):
            return False
        begin = replace(self._resume.begin(), server=server.identity)
        found = tap.head_and_follower((begin.journal, begin.offset), self._go_on)
        if found is None:
            return False
        head, tapped = found
        self._reader = tapped.takes(self._eater)
        self.opened(tapped)
        flavor.check(server, self._config, self._where.address)
        if not upstream.met(server.identity):
            raise _Rerouted
        self._settle(replace(self._resume.at, server=server.identity))
        self._arrive(server, upstream, begin, end)
        self.shared = True
        assert self._decoder is not None
        self._decode(self._decoder.feed(head), len(head))
        self._opened()
        self._calm.rests()
        return True

    def _who_answers(self, tap: Tap) -> locate.BinlogEnd | None:
        """Ask which server answers, and end the tap if this binlog cannot be the one that it reads.

        None if the server does not list its replicas: perhaps the account may not begin a dump any more. MariaDB wants
        another right for the list, so nothing is asked there.
        """

        def ask() -> locate.BinlogEnd | None:
            reached, asked_at = tap.reached, time.monotonic()
            session = SourceSession(self._config, self._source, opening=self.opened)
            try:
                server = flavor.examine(session)
                newest = locate.newest(session, server, self._config, self._source)
                began_ms = 0
                with suppress(PositionLost):  # purged meanwhile
                    scanner = Scanner(session, server, self._config, self._source, self.opened)
                    began_ms = scanner.began_ms(newest.journal)
                if tap.flows and server.identity != tap.server:
                    assert self._taps is not None
                    self._taps.moved(tap)
                elif tap.flows:
                    tap.end_if_stuck(reached, newest, self._go_on)
                    if not server.mariadb:
                        session.query(server.replicas_statement)
                return locate.BinlogEnd(asked_at, server, newest, began_ms)
            except SourceRefused:
                return None  # what a dump of its own would meet too, it reports
            finally:
                session.close()

        question = ("who answers", tap.replica.name)
        return together(self._config, self._source, question, ask, recent_s=RECENT_S, go_on=self._go_on)

    def _arrive(
        self, server: flavor.Flavor, upstream: Upstream, begin: LogPosition, end: locate.BinlogEnd | None = None
    ) -> None:
        """Read this server from here on. end: see MakeDecoder."""
        self._began_at = self._resume.at
        self._current_source.arrived(server)
        source = _source_of(self._source, server)
        self._decoder = upstream.make_decoder(source, begin, end=end)
        self._decoder.announces = self._reads is not None
        self._connected = DumpStarted(server.version, server.uuid, server.server_id)
        self._server = server

    def _open(self, upstream: Upstream) -> None:
        """Open a connection of its own."""
        self._opens_at = account_of(self._config, self._source)
        openings.OF_PROCESS.enter(self._opens_at, self, self._go_on)
        session = self._session = SourceSession(self._config, self._source, opening=self.opened)
        self._where = session.where
        server = flavor.examine(session)
        flavor.check(server, self._config, self._where.address)
        if not upstream.met(server.identity):
            raise _Rerouted
        replicas = together(
            self._config,
            self._source,
            ("replicas", server.identity),
            lambda: flavor.replicas(session, server),
            recent_s=0.0 if self._replica.server_id else RECENT_S,  # two derived ids are hardly ever equal
            go_on=self._go_on,
        )
        server_id = free_server_id(self._replica, replicas, server.server_id)
        if server_id is None:
            raise SourceRefused(
                f"{self._where.address}: another replica uses server id {self._replica.server_id}; set"
                f" canal.instance.mysql.slaveId of {self._config.destination} to one that nobody uses, or to 0"
            )
        scanner = Scanner(session, server, self._config, self._source, self.opened)
        source = _source_of(self._source, server)
        if self._resume.at.journal and self._current_source.elsewhere(server, self._source):
            self._move(scanner, source, upstream)
        if not self._resume.at.journal:
            self._resume = Resume(self._looked_up(scanner))
        settled = gtids.settled(scanner, self._resume.at) if self._config.decode.gtid_on else None
        self._settle(replace(settled.at if settled else self._resume.at, server=server.identity))
        if settled and not self._lead:  # each follower of a shared dump leaves out what it has had
            self._current_source.begins(server, settled)
        begin = self._resume.begin()
        self._arrive(server, upstream, begin)
        request = DumpRequest(
            server_id=server_id,
            replica=self._replica,
            mariadb=server.mariadb,
            journal=begin.journal,
            offset=begin.offset,
            heartbeat_s=self._heartbeat_s(),
        )
        self._reader = DumpReader(request, session, self._config, self._source, self._eater, self.opened)

    def _read(self) -> None:
        """Read until an exception ends the connection, or lends it."""
        assert self._reader is not None
        assert self._server is not None
        try:
            self._reader.read()
        except MalformedEvent as error:
            raise self._stepped_back(self._server, error) from error
        raise SourceUnavailable(f"{self._where.address}: the dump ended at {self._resume.at}")

    def _heartbeat_s(self) -> float:
        """Return how often heartbeats come. A merge of sources and a snapshot wait for them."""
        if not (self._reads and (self._lead or self._ring_room)):
            return HEARTBEAT_S
        self._has_heartbeats = True
        return heartbeats.OF_PROCESS.begin(self._config.so_timeout_s, self._config.alarm_lag_s)

    def _move(self, scanner: Scanner, source: Source, upstream: Upstream) -> None:
        """Continue in the binlog of another server."""
        before = self._resume.at
        if not self._may_move:
            raise CanalError(
                f"{self._where.address}: another server answers than before, and {before} is not one of its positions:"
                " start this read again"
            )
        self._decoded = None
        decoder_at = partial(upstream.make_decoder, source, searching=True)
        found, resume = self._current_source.moved(scanner, self._resume, decoder_at)
        if found.whole and found.ordered and self._resume.all_before:
            # a GTID set has the statements that brought no entry; a search by content says nothing about them
            left = before if found.how == "GTID set" else self._resume.last_delivered
            if left is not None:
                upstream.joined(left, replace(found.at, server=scanner.server.identity))
        self._resume = resume
        self._report(SourceMoved(before, self._where.address, found))
        # behind the report: a snapshot must not compare it with the old server's
        self._start = self._decoded = found.at

    def _settle(self, at: LogPosition) -> None:
        """Begin at this position, which is the same one with its GTID set, or another one."""
        before = self._resume.at
        if (at.journal, at.offset) != (before.journal, before.offset):
            self._resume = Resume(at)
        else:
            self._resume.at = at
            if before is self._start:
                self._start = at
        self._decoded = at

    def _looked_up(self, scanner: Scanner) -> LogPosition:
        """Return the position for a cursor that has a time only (docs/protocol.md#start)."""
        start_ms = self._resume.at.timestamp_ms - self._config.fallback_interval_s * 1000
        return locate.at_time(scanner, max(0, start_ms))

    def _stepped_back(self, server: flavor.Flavor, error: MalformedEvent) -> CanalError:
        """Move a start inside a transaction to its begin, because no table map precedes its rows."""
        start = self._resume.at
        if start is not self._start or self._resume.delivered_any:
            return error
        session = SourceSession(self._config, self._source, opening=self.opened)
        boundary = locate.at_boundary(Scanner(session, server, self._config, self._source, self.opened), start)
        if boundary.offset >= start.offset:
            return error
        self._resume = Resume(boundary)
        self._began_at = self._decoded = boundary
        return SourceUnavailable(
            f"{self._where.address}: {start} lies inside a transaction ({error}); reading continues from {boundary}"
        )

    def opened(self, connection: _Closable) -> None:
        """Register a connection, which stop() then interrupts. Raises an exception of its own if stop() was called."""
        with self._opening:
            self._connections.append(connection)
        self._go_on()

    def _opened(self) -> None:
        """Leave the place of a dump that opens."""
        self._settled()
        if self._opens_at is not None:
            openings.OF_PROCESS.leave(self._opens_at, self)
            self._opens_at = None

    def _close(self) -> None:
        with self._opening:
            connections, self._connections = self._connections, []
        for connection in connections:
            if connection.open:
                connection.close()
        if self._reader:
            self._reader.close()
        self._decoder = self._connected = self._session = self._rest = self._reader = self._server = None
        self._calm.interrupted()
        self._opened()
        self._end_heartbeats()
        self.shared = False
        self._leave()

    def _end_heartbeats(self) -> None:
        if self._has_heartbeats:
            self._has_heartbeats = False
            heartbeats.OF_PROCESS.end()

    def _eat(self, data: memoryview) -> list[bytes]:
        """Decode received bytes and return the packets that the library must see."""
        assert self._decoder is not None
        self._busy(len(data) < SMALL_BYTES)
        try:
            return self._decode(self._decoder.feed(data), len(data))
        finally:
            self._busy(False)

    def _room(self) -> memoryview | None:
        """Return memory for the next bytes of a large event, once there is room for the event."""
        decoder = self._decoder
        assert decoder is not None
        if decoder.awaited > LARGE_BYTES and decoder.large_events != self._large_event:
            self._await_room()
            self._placed = self._large.enter(self._go_on)
            self._large_event = decoder.large_events
        return decoder.room()

    def _received(self, count: int) -> list[bytes]:
        """Decode bytes received there."""
        assert self._decoder is not None
        return self._decode(self._decoder.received(count), count)

    def _leave(self) -> None:
        """Leave the place of a large event, which is decoded or lost."""
        if self._placed:
            self._placed = False
            self._large.leave()
        self._large_event = 0

    def _decode(self, outputs: Iterator[Output], count: int) -> list[bytes]:
        assert self._decoder is not None
        if self._session:  # it is not needed while dumping, and a server counts each connection
            self._session.close()
            self._session = None
            self._opened()
        self._heard(count)
        packets: list[bytes] = []
        decoder = self._decoder
        for output in outputs:
            self._leave_if_decoded(decoder)
            match output:
                case Segment():
                    self._deliver(output)
                case MayBlock():
                    self._calm.interrupted()
                case RawPacket():
                    packets.append(output.payload)
                case SourceFormat():
                    if self._connected:
                        self._report(self._connected)
                        self._connected = None
                case SourceSaid():
                    self._said(output)
                case _:
                    self._pass(output, decoder.gtid_set)
        self._leave_if_decoded(decoder)
        self._go_on()
        self._ready(count)
        if self._sharing and count < SMALL_BYTES and self._ready_at >= self._alone_until:
            self._share(self._sharing)
        return packets

    def _heard(self, count: int) -> None:
        self.heard_at = self._clock()
        self.received_bytes += count
        self._calm.began(count, self.heard_at)

    def _ready(self, count: int) -> None:
        """A chunk of so many bytes is decoded."""
        self._ready_at = self._clock()
        self._calm.ended(count, self._ready_at)

    def _pass(self, output: Output, gtid: str) -> None:
        """Note how far the binlog is read. gtid: the set executed so far."""
        match output:
            case Passed():
                if output.timestamp_ms:  # 0 comes from a heartbeat, which moves the boundary too
                    self.idle = False
                    self.last_event_ms = output.timestamp_ms
                self._resume.passed(output.journal, output.position, output.timestamp_ms, gtid)
                self._decoded = self._resume
            case Rotated():
                self._resume.passed(output.journal, output.position)
                self._decoded = self._resume
            case SourceHeartbeat():
                self.idle = True
                if self.heard_at - self._ready_at > HEARTBEAT_S / 2:
                    self.idle_at = self.heard_at
        if self._lead and (
            not isinstance(output, Passed | Rotated) or self._resume.shows(output.journal, output.position)
        ):
            self._lead.passed(output, gtid)  # else its followers would miss what this dump leaves out

    # ---- while the reactor reads the socket: the dump's thread waits, and the rest runs on the reactor's

    def _lends(self) -> bool:
        """Whether the reactor is to read from now on."""
        return self._reads is not None and self._calm.reached(self._ready_at) and self._may_lend()

    def _lend(self, connection: Lendable) -> None:
        """Let the reactor read. This is the last that the thread does."""
        assert self._reads is not None
        self._be_patient(False)
        self.lent = True
        if not self._lead:  # a shared dump is in the middle of its followers
            self._answer = self._reads.answer
        lent = connection.lent(self._reads, partial(self._eat_piece, connection), self._given_back)
        self._lent = connection, lent
        self._reads.soon(self._begin, lent)

    def _begin(self, lent: Borrowed) -> None:
        """Let the reactor read. The reactor's thread."""
        lent.begin()
        if self._taps and lent.lending and not isinstance(lent, Tapped):
            self._taps.lent(self._config, self._source, self)

    @property
    def at_rest(self) -> LogPosition | None:
        """See MovingStream."""
        at = self.boundary
        decoder = self._decoder
        rests = at is not None and decoder is not None and decoder.place == (at.journal, at.offset)
        return at if rests and self._lent and self._lent[1].lending else None

    def move(self, tapped: Tapped) -> None:
        """See MovingStream."""
        assert self._lent is not None
        assert self._reader is not None
        assert self._reads is not None
        self._lent[1].detach()
        self._reader.close()
        self._end_heartbeats()
        self._reader = tapped.takes(self._eater)
        with self._opening:
            self._connections = [tapped]
        self.shared = True
        self._lent = tapped, tapped.lent(self._reads, partial(self._eat_piece, tapped), self._given_back)
        if self._stopping.is_set() or self._rerouting.is_set():  # the old connection was interrupted
            tapped.interrupt()
        tapped.begin()

    def _given_back(self) -> None:
        """Let a thread go on. The reactor's thread."""
        assert self._reads is not None
        if self._taps:
            self._taps.given_back(self._config, self._source, self)
        self._await_thread()

    def _await_thread(self) -> None:
        """Start a thread in its turn. The reactor's thread."""
        assert self._reads is not None
        self._starts_at = account_of(self._config, self._source)
        self._reads.threads.begin(self._starts_at, self, self._start_in_turn)

    def _start_in_turn(self) -> None:
        assert self._reads is not None
        if self._stopping.is_set() and not self._lent:  # it has nothing to close
            self._end()
            return
        try:
            self._start_thread()
        except RuntimeError as error:  # there are too many threads
            if not self._lent:
                self._report(DumpFailed(NoThread(self._config.destination, str(error)), THREAD_AGAIN_S))
            self._reads.later(THREAD_AGAIN_S, self._start_in_turn)

    def _settled(self) -> None:
        """The thread has done most of its work, so another one may start."""
        if self._starts_at is not None:
            assert self._reads is not None
            self._reads.threads.settled(self._starts_at, self)
            self._starts_at = None

    def _take_over(self, connection: Lendable, lent: Borrowed) -> None:
        """Go on where the reactor stopped. Raises what its last piece raised."""
        assert self._reads is not None
        try:
            self._lent = None
            self._be_patient(True)
            self.lent = False
            self._answer = lambda: None
            lent.raise_error()
            self._calm.interrupted()
            rest, self._rest = self._rest, None
            if rest is not None:
                connection.hand_over(self._decode(rest, 0))
            elif lent.silent:
                raise connection.silence()
        finally:
            self._settled()

    def _be_patient(self, patient: bool) -> None:
        room = self._lead or self._ring_room
        assert room is not None
        room.patient = patient

    def _may_lend(self) -> bool:
        """Whether nothing is known that the reactor would have to wait for, or put together."""
        return not self._has_to_wait() and self._goes_on_at_once()

    def _goes_on_at_once(self) -> bool:
        """Whether the same is true but for room, for which the next segment asks again."""
        assert self._decoder is not None
        if self._decoder.begun_bytes > PIECE_BYTES:
            return False
        sharing = self._sharing
        return not sharing or self._ready_at < self._alone_until or not sharing.dumps.several(sharing.kind)

    def _has_to_wait(self) -> bool:
        """Whether the next segment has to wait for room, or may have to."""
        return self._lead.full if self._lead else self._ring_room is None or self._ring_room.full

    def _eat_piece(self, connection: Lendable, piece: bytes) -> bool:
        """Decode what the reactor has received. Return whether it may go on; see ReactorReads."""
        decoder = self._decoder
        assert decoder is not None
        self._heard(len(piece))
        outputs = decoder.feed(piece)
        if self._lead and not self._lead.seize():
            self._rest = outputs
            return False
        try:
            self._rest = self._take_at_once(outputs, decoder, connection)
        finally:
            if self._lead:
                self._lead.let_go()
        self._go_on()
        self._ready(len(piece))
        more = len(piece) == connection.piece_bytes  # waits behind it
        return self._rest is None and not more and self._calm.lasts(self._ready_at) and self._goes_on_at_once()

    def _take_at_once(
        self, outputs: Iterator[Output], decoder: DumpDecoder, connection: Lendable
    ) -> Iterator[Output] | None:
        """Take the outputs that need no waiting. Return the others; None if there are none."""
        heartbeat: SourceHeartbeat | None = None
        for output in outputs:
            match output:
                case Segment():
                    if self._has_to_wait():
                        return chain((output,), outputs)
                    heartbeat = None
                    self._deliver(output)
                case Passed():
                    if output.timestamp_ms:
                        heartbeat = None
                    self._pass(output, decoder.gtid_set)
                case SourceHeartbeat():
                    heartbeat = output
                case _:
                    return chain((output,), outputs)
        if heartbeat and not decoder.begun_bytes and not connection.something_waits:
            self._pass(heartbeat, decoder.gtid_set)
        return None

    # ---- with a shared dump; see SharingStream and Leader in shared.py

    @property
    def boundary(self) -> LogPosition | None:
        """See SharingStream."""
        return self._resume.at if self._resume.all_before and not self._current_source.expects else None

    @property
    def full(self) -> bool:
        """See SharingStream."""
        return self._ring_room is not None and self._ring_room.full

    @property
    def over_budget(self) -> bool:
        """See SharingStream."""
        return self._ring_room is not None and self._ring_room.over_budget

    @property
    def drained(self) -> bool:
        """See SharingStream."""
        return self._ring_room is not None and self._ring_room.drained

    def take(self, output: Output, gtid: str) -> None:
        """See SharingStream."""
        self.heard_at = now = self._clock()
        if isinstance(output, Segment):
            self._deliver(output)
        else:
            self._pass(output, gtid)
            self._go_on()
        self._ready_at = now  # it decodes nothing

    def release(self) -> None:
        """See SharingStream."""
        self._awake.set()

    def check(self) -> None:
        """See Leader."""
        self._go_on()

    def _share(self, sharing: Sharing) -> None:
        """Follow the shared dump if it knows this place."""
        shared = sharing.dumps.offer(sharing.kind, self)
        if shared is None:
            self._alone_until = self._ready_at + ASK_AGAIN_S
            return
        assert self._ring_room is not None
        self._ring_room.patient = False  # a shared dump waits for none of its followers
        if shared.join(self):
            raise _Following(shared)
        self._ring_room.patient = True

    def _follow(self, shared: SharedDump) -> None:
        """Follow until released, stopped or rerouted."""
        self.shared = True
        self._awake.wait()
        shared.leave(self)
        if self._ring_room:
            self._ring_room.patient = True
        self.shared = False
        self._alone_until = self._clock() + ALONE_S

    def _leave_if_decoded(self, decoder: DumpDecoder) -> None:
        """Leave the place of a large event as soon as it is decoded."""
        if self._large_event and (decoder.large_events != self._large_event or not decoder.awaited):
            self._leave()

    def _go_on(self) -> None:
        """Raise _Stopped or _Rerouted if stop() or reroute() was called."""
        if self._stopping.is_set():
            raise _Stopped
        if self._rerouting.is_set():
            raise _Rerouted

    def _deliver(self, segment: Segment) -> None:
        self.idle = False
        fresh = self._resume.new(segment)
        if fresh is None:
            return
        for new in self._current_source.new(with_hashed_rows(fresh)):
            self._accept(new)
            self._answer()  # before the rest of the work
            keep_small_copy(new)
            self._current_source.delivered(new)
            if new is not fresh:
                self._resume.delivered(new)  # `accept` may refuse the next one
        self._resume.delivered(fresh)
        self.last_event_ms = fresh.timestamps[-1]
        self._go_on()

    def _said(self, said: SourceSaid) -> None:
        """Raise the error for the server's end of the dump."""
        replaced = superseded(self._where.address, said.text)
        if replaced:
            raise replaced
        if said.errno == DUMP_FAILED:
            session = SourceSession(self._config, self._source, opening=self.opened)
            at = self._resume.at
            onwards = truncated.behind(session, flavor.examine(session), at, said.text)
            if onwards is not None:
                self._resume = Resume(onwards)
                self._decoded = onwards
                raise SourceUnavailable(
                    f"{self._where.address}: a crash of the server left {at.journal} ending inside an event after"
                    f" {at.offset}; reading continues from {onwards}"
                )
            raise ended(session, self._config, at, said.text)
        if said.errno:
            raise self._where.error(said.errno, said.text)
        raise SourceUnavailable(f"{self._where.address}: the server ended the dump at {self._resume.at}")
