"""CurrentSource: whose binlog a stream reads, and how it moves to another server's. The stream's thread."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakSet

from canal_ha.config.model import SourceConfig
from canal_ha.errors import CanalError, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.source.connection.flavor import Flavor
from canal_ha.source.positions.delivered import Delivered, Executed, ExpectedTransactions, both
from canal_ha.source.positions.fingerprints import Recent
from canal_ha.source.positions.gtids import Settled
from canal_ha.source.positions.relocate import PositionedDecoder, Relocation, relocated
from canal_ha.source.positions.resume import Resume
from canal_ha.source.positions.scan import Scanner

KEPT = 1024  # transactions by which a running stream finds its place again; a cursor has fewer
PIECES_IN_ALL = 1 << 15  # of transactions that are not hashed, some KB each; the first streams hash no small ones
PIECES_LEAST = 256  # of one stream

_streams: WeakSet[CurrentSource] = WeakSet()


@dataclass(frozen=True, slots=True)
class _Left:
    """The server whose entries a stream has delivered last, which it has left.

    server: its identity.
    resume: where the stream stood, and what of it was delivered.
    newest: the last delivered event: journal, offset, time in ms.
    delivered_before: of the server before it.
    last_delivered: as CurrentSource has it.
    """

    server: str
    resume: Resume
    newest: tuple[str, int, int]
    delivered_before: Delivered | None
    last_delivered: LogPosition | None


class CurrentSource:
    """The server that a stream reads. start: where the stream begins, with its server and last transactions."""

    def __init__(self, start: LogPosition, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits_until = 0.0
        self._server = start.server
        self._address = (start.address, start.port)
        self._origin = start.server_id
        _streams.add(self)
        pieces_most = max(PIECES_LEAST, min(PIECES_IN_ALL // len(_streams), 2 * KEPT))
        self._recent = Recent(start.trail, start.origins, KEPT, pieces_most)
        # The set of a cursor that does not name its server may be wrong: somebody has edited the cursor.
        self._first = start if start.server and start.gtid else None  # until the stream has begun
        self._delivered_before: Delivered | None = None
        self._last_delivered: LogPosition | None = None  # the last transaction end or statement with a GTID
        self._newest: tuple[str, int, int] | None = None  # the last delivered event; see _Left
        self._left: _Left | None = None  # until another server has delivered something

    def elsewhere(self, server: Flavor, source: SourceConfig) -> bool:
        """Return whether the stream's positions belong to another server than this one.

        A cursor of canal's has an address only: names of one host are equal; an unknown name is another host.
        """
        if self._server:
            return self._server != server.identity
        if not self._address[0] or self._address == (source.host, source.port):
            return False
        return self._address[1] != source.port or not _one_host(self._address[0], source.host)

    def arrived(self, server: Flavor) -> None:
        """Record that the stream's positions are this server's from now on."""
        self._server = server.identity

    def begins(self, server: Flavor, settled: Settled) -> None:
        """Begin to read this server, at a place that `gtids.settled` has told.

        A standby that lags writes behind the cursor what another server has delivered before, perhaps while no stream
        read it.
        """
        first, self._first = self._first, None
        if first and first.server == server.identity and not server.mariadb:
            kept = None if first.consumed else first
            self._delivered_before = Executed(first.gtid or "", kept, None if settled.lags else settled.end)

    def moved(
        self, scanner: Scanner, resume: Resume, decoder_at: Callable[[LogPosition], PositionedDecoder]
    ) -> tuple[Relocation, Resume]:
        """Return where to continue in the binlog of another server. Raises what relocate.relocated raises.

        scanner: reads that server's binlog.
        resume: where the stream stood.
        decoder_at: returns a new decoder that begins at a position.
        Also raises SourceUnavailable, for up to the length of the window, while the server lags behind the stream.
        A stream that goes back before the other server has delivered anything goes on where it stood.
        """
        at = resume.at
        if (left := self._left) is not None and _stands(scanner, left):
            self._left, self._waits_until = None, 0.0
            self._delivered_before, self._last_delivered = left.delivered_before, left.last_delivered
            self.arrived(scanner.server)
            # it says nothing about the other server
            return Relocation(left.resume.at, "nothing delivered", ordered=False), left.resume
        origin = at.server_id if self._origin is None else self._origin
        fingerprints = self._recent.fingerprints()
        before = replace(at, server_id=origin, gtid=self._executed(at))
        found = relocated(scanner, before, fingerprints, self._recent.last_of_origins(), decoder_at)
        if found.how == "time" and found.lags and self._waits(scanner.config.fallback_interval_s):
            raise SourceUnavailable(
                f"{scanner.session.where.address}: its binlog ends before what was last read from the other server;"
                " waiting for it to catch up"
            )
        self._waits_until = 0.0
        if self._left is None and self._newest is not None:
            self._left = _Left(self._server, resume, self._newest, self._delivered_before, self._last_delivered)
        self._delivered_before = (
            Executed(found.at.gtid or "")
            if found.how == "GTID set"
            else ExpectedTransactions(found.expected, found.new)
        )
        self._last_delivered = self._first = None
        self.arrived(scanner.server)
        return found, Resume(found.at)

    def _executed(self, at: LogPosition) -> str | None:
        """Return the GTID set of everything delivered or skipped.

        at: the last boundary passed, perhaps before the last delivered transaction.
        """
        last = self._last_delivered
        gtid = last.gtid if last is not None and last.gtid and last.order >= at.order else at.gtid
        return (
            both(gtid, self._delivered_before.text) if gtid and isinstance(self._delivered_before, Executed) else gtid
        )

    def _waits(self, patience_s: float) -> bool:
        self._waits_until = self._waits_until or self._clock() + patience_s
        return self._clock() < self._waits_until

    @property
    def expects(self) -> bool:
        """Whether transactions may come that another server has delivered, and that content alone tells apart."""
        return isinstance(self._delivered_before, ExpectedTransactions) and not self._delivered_before.over

    def new(self, segment: Segment) -> Sequence[Segment]:
        """Return the parts of a segment that were not already delivered from another server."""
        return (segment,) if self._delivered_before is None else self._delivered_before.new(segment)

    def delivered(self, segment: Segment) -> None:
        """Record that these entries were accepted."""
        self._left = None
        self._newest = segment.journal, segment.offsets[-1], segment.timestamps[-1]
        self._recent.add(segment)
        self._origin = segment.run_server_ids[-1]
        if segment.run_gtids[-1]:
            last = segment.last_end(0, len(segment))
            if last >= 0:
                self._last_delivered = segment.position(last)


def _stands(scanner: Scanner, left: _Left) -> bool:
    """Return whether a server is the one that was left, and its binlog still has the last delivered event.

    A server that crashed may have lost the end of its binlog, and has other transactions there by now.
    """
    if left.server != scanner.server.identity:
        return False
    journal, offset, time_ms = left.newest
    try:
        found = scanner.event_at(journal, offset)
    except CanalError:
        return False
    return found is not None and (found.position, found.timestamp_ms // 1000) == (offset, time_ms // 1000)


def _one_host(one: str, other: str) -> bool:
    try:
        ones, others = ({info[4][0] for info in socket.getaddrinfo(host, None)} for host in (one, other))
    except OSError:
        return one == other
    return bool(ones & others)
