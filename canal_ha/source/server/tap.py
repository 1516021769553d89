"""Taps: many streams of one server, at the end of its binlog, read the bytes of one dump.

Without taps, a thousand destinations of one server have a thousand dumps: as many connections, each with its
heartbeats, and the server sends each transaction a thousand times. So a tap begins as soon as STREAMS streams of a
server open together, or have dumps that the reactor reads. It is one more dump, which receives for all of them. A
stream follows it from a place that both have reached. From there it gets exactly the bytes that its own dump would
bring, and decodes them itself, with its own filter and table history: streams share nothing but bytes.

If a stream has to wait, for the source or for room, a thread takes over, and the tap keeps bytes for it. If these
become too many, the tap waits for a moment; see Crowd. A stream that is left out then opens a dump of its own, as after
a broken connection. So do all streams when the connection of the tap ends, unless they find the next tap.

Threads: a tap lives on the reactor's thread, except while it opens its connection.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from ssl import SSLSocket
from typing import Protocol
from uuid import uuid4

from canal_ha.config.model import DecodeOptions, InstanceConfig, SourceConfig
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.kernel.kinds import FORMAT_DESCRIPTION
from canal_ha.decode.outputs import Output, RawPacket, SourceFormat, SourceHeartbeat, SourceSaid
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import CanalError, SourceUnavailable
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.model.table import TableSchema
from canal_ha.model.tap_figures import TapFigures
from canal_ha.source.connection import dump_head, flavor
from canal_ha.source.connection.dump_connection import DumpConnection, Eater, Lendable, Lending
from canal_ha.source.connection.heartbeats import HEARTBEAT_S, MISSED
from canal_ha.source.connection.identity import free_server_id, tap_replica
from canal_ha.source.connection.idle_sessions import account_of
from canal_ha.source.connection.reactor_reads import NOTHING_YET, ROUND_S, ReactorReads
from canal_ha.source.connection.reader import DumpReader, DumpRequest
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions import locate
from canal_ha.source.positions.resume import FIRST_OFFSET, OFFSET_MAX
from canal_ha.source.server.crowd import Crowd
from canal_ha.source.server.tap_records import TapEnd, TapRecords
from canal_ha.source.server.tapped import TAP_BYTES, Tapped

STREAMS = 16  # of a server, from which on it has a tap
KEPT_BYTES = 1 << 18  # for streams that are to follow
BACKLOG_BYTES = 1 << 20  # behind which a tap may begin
LARGEST_BYTES = 64 << 20  # of an event; a tap ends at a larger one, whose memory nobody counts
STUCK_S = 2.0  # how long a dump may bring nothing although the binlog goes on
LOOK_S = 0.1  # between two looks at streams that may move
OPENS_S = 5.0  # how long streams wait for a tap that opens
UNUSED_S = 10.0  # a tap that nobody follows ends
RETRY_S = 10.0  # between the beginnings of two taps of a server
_LOOK_S = 0.02  # between two looks at whether a dump brings something
_WAIT_S = 0.5  # between two looks at whether a wait is still wanted
_CROWD_LOOK_S = 0.02  # between two looks at followers whose queues are full

_log = logging.getLogger(__name__)
_Place = tuple[str, int]  # the journal, and where the next event starts


class _TooLarge(Exception):
    """An event has more bytes than a tap may keep."""


class MovingStream(Protocol):
    """A stream with a dump that the reactor reads. The reactor's thread."""

    @property
    def at_rest(self) -> LogPosition | None:
        """Where its decoder stands, between two transactions; None inside one, or if the reactor does not read."""

    def move(self, tapped: Tapped) -> None:
        """Read from this place at a tap from now on, and end its own connection."""


class Taps:
    """The taps of one node.

    reads: the reactor's reads.
    streams: see STREAMS.
    """

    def __init__(self, reads: ReactorReads, streams: int = STREAMS) -> None:
        self._reads = reads
        self._streams = streams
        self._lock = threading.Lock()
        self._taps: dict[Hashable, Tap] = {}  # by account and address
        self._former: set[Tap] = set()  # of servers that their addresses have left
        self._not_before: dict[Hashable, float] = {}
        self._not_there: dict[Hashable, set[str]] = {}  # the servers that did not answer when a tap asked for them
        self._records = TapRecords()
        self._opening: Counter[Hashable] = Counter()
        self._herds: dict[Hashable, float] = {}  # until when many streams that have lost their tap open
        # of the reactor's thread: the streams that may move, each with what a tap connects with
        self._waiting: dict[Hashable, dict[MovingStream, tuple[InstanceConfig, SourceConfig]]] = {}
        self._looks = False  # a look is due

    # ---- the thread of a dump

    @contextmanager
    def opening(self, config: InstanceConfig, source: SourceConfig, at: LogPosition) -> Iterator[Tap | None]:
        """Count a stream that opens, and give the tap that it may follow once that is open; None if there is none.

        config, source: of the stream.
        at: where it begins.
        """
        key = account_of(config, source)
        with self._lock:
            self._opening[key] += 1
            tap = self._taps.get(key)
            opening = self._opening[key] + self._reads.threads.waiting(key)
            if tap is None and (opening >= self._streams or time.monotonic() < self._herds.get(key, 0.0)):
                tap = self._made(key, config, source, at)
        try:
            yield tap
        finally:
            with self._lock:
                self._opening[key] -= 1
                if not self._opening[key]:
                    del self._opening[key]

    def existing(self, config: InstanceConfig, source: SourceConfig) -> Tap | None:
        """Return the tap to which a stream of this server may move; None if there is none now."""
        return self._taps.get(account_of(config, source))

    def moved(self, tap: Tap) -> None:
        """The address of a tap leads to another server now. Its streams go on; others may have another tap."""
        with self._lock:
            for key in [key for key, each in self._taps.items() if each is tap]:
                del self._taps[key]
                self._former.add(tap)

    # ---- under the lock

    def _made(self, key: Hashable, config: InstanceConfig, source: SourceConfig, at: LogPosition) -> Tap | None:
        """Begin a tap, unless the last one has begun just now."""
        here = at.server or (at.address, at.port) == (source.host, source.port)
        now = time.monotonic()
        if now < self._not_before.get(key, 0.0) or not (here and at.journal and at.offset <= OFFSET_MAX):
            return None
        self._not_before[key] = now + RETRY_S
        self._herds.pop(key, None)
        tap = self._taps[key] = Tap(
            config, source, at, self._reads, partial(self._flows, key), partial(self._over, key, at.server)
        )
        self._reads.soon(tap.start)
        return tap

    # ---- the reactor's thread

    def lent(self, config: InstanceConfig, source: SourceConfig, stream: MovingStream) -> None:
        """Note that the reactor reads the dump of a stream from now on.

        config, source: what the stream connects with.
        stream: may move to a tap.
        """
        self._waiting.setdefault(account_of(config, source), {})[stream] = config, source
        self._look_later()

    def given_back(self, config: InstanceConfig, source: SourceConfig, stream: MovingStream) -> None:
        """Undo `lent`, with the same arguments."""
        self._forget(account_of(config, source), stream)

    def _forget(self, key: Hashable, stream: MovingStream) -> None:
        waiting = self._waiting.get(key, {})
        waiting.pop(stream, None)
        if not waiting:
            self._waiting.pop(key, None)

    def _look_later(self) -> None:
        due = any(key in self._taps or len(waiting) >= self._streams for key, waiting in self._waiting.items())
        if due and not self._looks:
            self._looks = True
            self._reads.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        """Begin the taps that are worth it, and let streams move, for a part of a round."""
        self._looks = False
        for key, waiting in tuple(self._waiting.items()):
            tap = self._taps.get(key)
            if tap is None and len(waiting) >= self._streams:
                self._begin(key, waiting)
            elif tap and tap.flows:
                self._move(tap, key)
        self._look_later()

    def _begin(self, key: Hashable, waiting: dict[MovingStream, tuple[InstanceConfig, SourceConfig]]) -> None:
        if time.monotonic() < self._not_before.get(key, 0.0):
            return
        not_there = self._not_there.get(key, ())
        for stream, (config, source) in waiting.items():
            at = stream.at_rest
            if at is not None and at.server not in not_there:
                with self._lock:
                    if key not in self._taps:
                        self._made(key, config, source, at)
                return
        if not_there:  # the address may lead there again
            del self._not_there[key]
            self._not_before[key] = time.monotonic() + RETRY_S

    def _move(self, tap: Tap, key: Hashable) -> None:
        until = time.monotonic() + ROUND_S
        for stream in tuple(self._waiting[key]):
            at = stream.at_rest
            if at is not None and at.server == tap.server and tap.knows((at.journal, at.offset)):
                self._forget(key, stream)
                stream.move(tap.follower((at.journal, at.offset)))
            elif stream in (waiting := self._waiting.get(key, {})):  # the next look begins with others
                waiting[stream] = waiting.pop(stream)
            if time.monotonic() >= until:
                return

    def close(self) -> None:
        """End all taps, and begin none from now on."""
        with self._lock:
            self._streams = sys.maxsize
        for tap in self._all:
            tap.end(TapEnd.STOPPED, "the node stops")

    @property
    def figures(self) -> TapFigures:
        """Return what the metrics show: 0 for a server whose tap has ended, because alerts need a series that stays."""
        streams: Counter[str] = Counter(dict.fromkeys(self._records.addresses, 0))
        for tap in self._all:
            if tap.flows:
                streams[tap.address] += tap.streams
        return TapFigures(streams, dict(self._records.ended))

    def alarms(self, now: float) -> tuple[NodeAlarm, ...]:
        """Return the alarms about taps that cannot be opened. now: s since 1970."""
        return self._records.alarms(now)

    @property
    def _all(self) -> tuple[Tap, ...]:
        with self._lock:
            return *self._taps.values(), *self._former

    def _flows(self, key: Hashable, tap: Tap) -> None:
        self._not_there.pop(key, None)
        self._records.flows(key, tap.address, tap.replica.name)

    def _over(self, key: Hashable, wanted: str, tap: Tap, reason: TapEnd, error: str) -> None:
        """A tap has ended. wanted: the server that it was to read; "" for any."""
        with self._lock:
            self._former.discard(tap)
            if self._taps.get(key) is tap:
                del self._taps[key]
                if tap.streams >= self._streams:
                    self._herds[key] = time.monotonic() + OPENS_S
        if tap.began:
            self._records.over(key, tap.address, tap.replica.name, reason, error, tap.streams)
        elif reason is not TapEnd.STOPPED:
            self._records.failed(key, tap.address, error, time.time())
            if wanted and tap.server not in ("", wanted):
                self._not_there.setdefault(key, set()).add(wanted)


class Tap:
    """The dump of one server that many streams follow. The reactor's thread, where nothing else is said.

    config, source: what it connects with.
    at: where its dump begins; if that is far behind, it begins at the end of the binlog.
    reads: the reactor's reads.
    begins: called once with the tap, when it flows.
    ended: called once with the tap, why it has ended, and the error, before the streams leave it.

    replica: its identity in the server's list of replicas; its name is unique.
    server: which one answered; "" before that.
    reached: up to where it has received; None before it flows.
    began: whether it has received.
    flows: whether it receives, so that streams may follow it.
    heard_at, silent_s: see MayBeSilent.
    """

    def __init__(
        self,
        config: InstanceConfig,
        source: SourceConfig,
        at: LogPosition,
        reads: ReactorReads,
        begins: Callable[[Tap], None],
        ended: Callable[[Tap, TapEnd, str], None],
    ) -> None:
        self.replica = tap_replica(uuid4().hex[:8])
        self.server = ""
        self.reached: _Place | None = None
        self.began = self.flows = False
        self.heard_at = 0.0
        self.silent_s = float(config.so_timeout_s)
        self.reads = reads
        self._config = config
        self._source = source
        self._at = at
        self._on_begin = begins
        self._on_end = ended
        self._made_at = time.monotonic()
        self._decoder = _that_drops_all(at)
        self._description = b""  # of the format of the current journal: the payload of its packet
        self._head = b""  # all that came before the reactor reads
        self._checksum = False
        self._reader: DumpReader | None = None
        self._connection: DumpConnection | None = None
        self._descriptor = -1
        self._settled = threading.Event()  # it flows, or has ended
        self._over = False
        self._paused = False
        self._followers: dict[Tapped, None] = {}
        self._behind: set[Tapped] = set()  # those for which the reactor has not decoded all
        self._crowd: Crowd[Tapped] = Crowd()
        self._looks = False  # at the crowd: a look is due
        self._kept: deque[bytes] = deque()  # the last pieces
        self._kept_bytes = 0
        self._first = 0  # number of the first piece that is kept
        self._places: dict[_Place, int] = {}  # the number of the first piece behind a place
        self._beat: SourceHeartbeat | None = None  # nothing has come since this heartbeat

    @property
    def address(self) -> str:
        """host:port of the server."""
        return self._source.address

    @property
    def streams(self) -> int:
        """How many follow."""
        return len(self._followers)

    def start(self) -> None:
        """Connect on a thread."""
        if self._over:  # the node stops
            return
        try:
            threading.Thread(target=self._open, name="tap", daemon=True).start()
        except RuntimeError as error:  # there are too many threads
            self.end(TapEnd.UNOPENED, str(error))

    # ---- the threads of dumps

    def opened(self, go_on: Callable[[], None]) -> bool:
        """Wait until it flows, or takes too long; return whether it does.

        go_on: called meanwhile; what it raises ends the wait.
        """
        until = self._made_at + OPENS_S
        while time.monotonic() < until and not self._settled.wait(_WAIT_S):
            go_on()
        return self.flows

    def end_if_stuck(self, reached: _Place | None, end: LogPosition, go_on: Callable[[], None]) -> None:
        """End if the server has begun its binlog anew: the old dump brings nothing more, or old rows.

        The binlog ends before what was received, or the dump brings nothing for STUCK_S although there is more.

        reached: by this tap, before the server was asked.
        end: of the binlog.
        go_on: see `opened`.
        """
        if not reached:
            return
        until = time.monotonic() + STUCK_S
        before, received = LogPosition(*reached).order, self._received
        while end.order > before and self._stands_at(reached, received):
            if time.monotonic() >= until:
                error = f"it brings nothing, although the binlog ends at {end.journal}:{end.offset}"
                self.reads.soon(self.end, TapEnd.RESET, error)
                return
            time.sleep(_LOOK_S)
            go_on()
        if end.order < before:
            error = f"the binlog begins anew, and ends at {end.journal}:{end.offset}"
            self.reads.soon(self.end, TapEnd.RESET, error)

    def _stands_at(self, reached: _Place, received: int) -> bool:
        """Whether it receives, and has brought nothing since."""
        return self.flows and not self._paused and (self.reached, self._received) == (reached, received)

    def head_and_follower(self, place: _Place, go_on: Callable[[], None]) -> tuple[bytes, Tapped] | None:
        """Return the first packets of a dump that begins at a place, and the follower that goes on there.

        None if the tap does not know the place. go_on: see `opened`.
        """
        found: SimpleQueue[tuple[bytes, Tapped] | None] = SimpleQueue()
        given_up = threading.Event()

        def find() -> None:
            if not given_up.is_set():
                found.put(self._head_and_follower(place))

        def leave() -> None:
            if not found.empty() and (late := found.get()):
                self.left(late[1])

        self.reads.soon(find)
        try:
            while True:
                try:
                    return found.get(timeout=_WAIT_S)
                except Empty:
                    go_on()
        except BaseException:
            given_up.set()
            self.reads.soon(leave)  # it may have been found meanwhile
            raise

    def _head_and_follower(self, place: _Place) -> tuple[bytes, Tapped] | None:
        if not self.knows(place) or not self._decoder.place or self._decoder.place[0] != place[0]:
            return None  # the description may be of another journal
        head = dump_head.head(*place, self._description, checksum=self._checksum)
        return head, self.follower(place)

    # ---- the thread that opens

    def _open(self) -> None:
        try:
            self._read()
        except Lending as lending:
            self.reads.soon(self._begin, lending.connection)
        except CanalError as error:
            self.reads.soon(self.end, TapEnd.UNOPENED, str(error))
        except Exception as error:
            _log.exception("a tap failed")
            self.reads.soon(self.end, TapEnd.BROKEN, repr(error))

    def _read(self) -> None:
        """Connect, and read up to the description of the format. Raises Lending there."""
        config, source = self._config, self._source
        session = SourceSession(config, source)
        try:
            server = flavor.examine(session)
            self.server = server.identity
            if self._at.server not in ("", server.identity):
                raise SourceUnavailable(f"{session.where.address}: another server answers than before")
            at = self._at
            newest = locate.newest(session, server, config, source)
            if at.journal != newest.journal or newest.offset - at.offset > BACKLOG_BYTES:
                at = newest  # else the reactor reads what nobody follows
                if at.offset > OFFSET_MAX:
                    raise SourceUnavailable(f"{session.where.address}: no dump can begin at {at}")
                self._decoder = _that_drops_all(at)
            server_id = free_server_id(self.replica, flavor.replicas(session, server), server.server_id)
            assert server_id is not None  # a derived one is always found
            self._at = at
            request = DumpRequest(
                server_id=server_id,
                replica=self.replica,
                mariadb=server.mariadb,
                journal=at.journal,
                offset=at.offset,
                heartbeat_s=min(HEARTBEAT_S, self.silent_s / MISSED),
            )
            eater = Eater(self._eat, lends=lambda: bool(self._description))
            self._reader = DumpReader(request, session, config, source, eater)
            self._reader.read()
        finally:
            session.close()
        raise SourceUnavailable(f"{session.where.address}: the dump ended")

    def _eat(self, data: memoryview) -> list[bytes]:
        """Take what comes before the reactor reads; return the packets that the library must see."""
        self._head += data
        return [output.payload for output in self._decoded(bytes(data)) if isinstance(output, RawPacket)]

    def _decoded(self, piece: bytes) -> list[Output]:
        """Decode a piece. Raises SourceUnavailable if the server ends the dump."""
        outputs = list(self._decoder.feed(piece))
        for output in outputs:
            if isinstance(output, SourceSaid):
                raise SourceUnavailable(f"the server ended the dump: {output.text or 'EOF'}")
            if isinstance(output, RawPacket) and dump_head.kind(output.payload) == FORMAT_DESCRIPTION:
                self._description = output.payload
            elif isinstance(output, SourceFormat):
                self._checksum = output.checksum
        return outputs

    # ---- the reactor's thread

    def _begin(self, connection: Lendable) -> None:
        assert isinstance(connection, DumpConnection)
        if self._over:  # it ended while the connection opened
            connection.close()
            return
        self._connection = connection
        self._descriptor = connection.socket.fileno()
        self.heard_at = time.monotonic()
        if self._at.offset > FIRST_OFFSET:  # else the description stands there
            self.reached = self._at.journal, self._at.offset
            self._places[self.reached] = 0
        rest, self._head = dump_head.behind_description(self._head), b""
        if rest:  # the binlog has gone on
            self._keep(rest)
        elif self._decoder.place:
            self.reached = self._decoder.place
            self._places[self.reached] = 0
        self.began = self.flows = True
        self.reads.begun(self)
        self.reads.add(self)
        self.reads.call_later(UNUSED_S, self._end_unused)
        self._on_begin(self)
        self._settled.set()

    def _end_unused(self) -> None:
        if self._over:
            return
        if self._followers:
            self.reads.call_later(UNUSED_S, self._end_unused)
        else:
            self.end(TapEnd.UNUSED, "nobody follows")

    def take_back(self) -> None:
        """The source was silent for too long; see ReactorReads."""
        self.end(TapEnd.SILENT, "the source is silent")

    def end(self, reason: TapEnd, error: str) -> None:
        """End for good; all followers go on by themselves. reason, error: why."""
        if self._over:
            return
        self._over = True
        self._on_end(self, reason, error)
        if self.flows:
            self.flows = False
            self.reads.ended(self)
            self.reads.remove(self)
        for tapped in tuple(self._followers):
            tapped.end()
        self._followers.clear()
        self._behind.clear()
        if self._reader:
            self._reader.close()
        self._settled.set()

    def fileno(self) -> int:
        """See IReadDescriptor."""
        return self._descriptor

    def logPrefix(self) -> str:
        """See IReadDescriptor."""
        return "tap"

    def connectionLost(self, reason: object) -> None:
        """See IReadDescriptor."""
        self.end(TapEnd.LOST, "the connection is lost")

    def doRead(self) -> None:
        """See IReadDescriptor. Receive a piece, and let the followers decode it."""
        assert self._connection is not None
        sock = self._connection.socket
        try:
            piece = sock.recv(TAP_BYTES)
        except NOTHING_YET:
            return
        except OSError as error:
            self.end(TapEnd.LOST, f"the connection is lost: {error}")
            return
        self.heard_at = time.monotonic()
        try:
            if not piece:
                raise SourceUnavailable("the server closed the connection")
            self._take(piece)
        except _TooLarge as error:
            self.end(TapEnd.LARGE_EVENT, str(error))
            return
        except CanalError as error:
            self.end(TapEnd.LOST, str(error))
            return
        except Exception as error:  # the piece is lost for some of those that follow
            _log.exception("a tap failed")
            self.end(TapEnd.BROKEN, repr(error))
            return
        self._look_at_crowd()
        if self._behind or self._crowd:  # the source waits for them, as it would wait for each of them alone
            self._paused = True
            self.reads.remove(self)
        else:
            self._read_decrypted()

    def _read_decrypted(self) -> None:
        """Read on if TLS has bytes at hand: they do not wake the reactor."""
        assert self._connection is not None
        sock = self._connection.socket
        if isinstance(sock, SSLSocket) and sock.pending():
            self.reads.call_later(0, self._read_again)

    def _read_again(self) -> None:
        if self.flows and not self._paused:
            self.doRead()

    def _take(self, piece: bytes) -> None:
        outputs = self._decoded(piece)
        if self._decoder.awaited > LARGEST_BYTES:
            raise _TooLarge(f"an event of {self._decoder.awaited} bytes is too large for a tap")
        beat = _only_heartbeat(piece, outputs)
        repeated = beat is not None and beat == self._beat
        self._beat = beat
        if not repeated:
            self._keep(piece)
        for tapped in tuple(self._followers):
            tapped.push(piece, beats=beat is not None, repeated=repeated)

    @property
    def _received(self) -> int:
        """How many pieces have come, without heartbeats that say the same again."""
        return self._first + len(self._kept)

    def _keep(self, piece: bytes) -> None:
        place = self._decoder.place
        self._kept.append(piece)
        self._kept_bytes += len(piece)
        if place:
            self.reached = place
            self._places.setdefault(place, self._received)
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft())
            self._first += 1
            while self._places:
                known, number = next(iter(self._places.items()))
                if number >= self._first:
                    break
                del self._places[known]

    # ---- its followers

    def knows(self, place: _Place) -> bool:
        """Whether it has all bytes from this place on, and brings what comes next at once."""
        return self.flows and not self._crowd and place in self._places

    def follower(self, place: _Place) -> Tapped:
        """Return a new follower that begins at a place which it `knows`."""
        behind = self._places[place] - self._first
        tapped = Tapped(self, islice(self._kept, behind, None))
        self._followers[tapped] = None
        return tapped

    def left(self, tapped: Tapped) -> None:
        """It follows no longer."""
        self._followers.pop(tapped, None)
        self._crowd.discard(tapped)
        self.consumed(tapped)

    def behind(self, tapped: Tapped) -> None:
        """The reactor has to decode something for this follower."""
        self._behind.add(tapped)

    def consumed(self, tapped: Tapped) -> None:
        """The reactor has nothing to decode for this follower."""
        self._behind.discard(tapped)
        self._go_on()

    def crowds(self, tapped: Tapped) -> None:
        """The thread of this follower has too much to decode."""
        self._crowd.add(tapped)

    def _look_at_crowd(self) -> None:
        if not self._crowd:
            return
        busy = sum(each.something_waits for each in self._followers)
        for tapped in self._crowd.look(busy, len(self._followers)):
            tapped.overflow()
        if self._crowd and not self._looks:
            self._looks = True
            self.reads.call_later(_CROWD_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._looks = False
        if self.flows:
            self.heard_at = time.monotonic()  # the source is not silent: nobody listens
            self._look_at_crowd()
            self._go_on()

    def _go_on(self) -> None:
        if self._paused and not self._behind and not self._crowd and self.flows:
            self._paused = False
            self.reads.add(self)
            self._read_decrypted()


class _NoTables:
    """The table history of a decoder that drops all rows."""

    lowers_names = False

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """Return no columns."""
        return TableSchema(table_map.schema, table_map.name, ())

    def charset(self, schema: str) -> str:
        """Return nothing, because no value is decoded."""
        return ""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        """Learn nothing."""
        return True


def _that_drops_all(at: LogPosition) -> Decoder:
    """Return a decoder that only follows the places between transactions."""
    decoder = Decoder(
        source=Source("", 0, "", 0),
        journal=at.journal,
        position=at.offset,
        options=DecodeOptions(filter_rows=True, filter_query_dml=True, filter_query_dcl=True, filter_query_ddl=True),
        tables=TableFilter(r"^$", ""),
        fields=FieldFilter("", ""),
        history=_NoTables(),
    )
    decoder.places_only = True  # on the reactor's thread
    return decoder


def _only_heartbeat(piece: bytes, outputs: Iterable[Output]) -> SourceHeartbeat | None:
    """Return the heartbeat of which a piece consists; None if it holds anything else."""
    whole = len(piece) > 4 and 4 + int.from_bytes(piece[:3], "little") == len(piece)
    beats = [output for output in outputs if isinstance(output, SourceHeartbeat)]
    return beats[0] if whole and len(beats) == 1 else None
