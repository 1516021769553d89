"""Whose binlog a stream reads, what it delivered of it last, and moving on to another server's. The stream's thread."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from canal_ha.config.model import SourceConfig
from canal_ha.errors import SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.connection.flavor import Flavor
from canal_ha.source.positions.delivered import Delivered, Executed, ExpectedTransactions, both
from canal_ha.source.positions.fingerprints import Recent
from canal_ha.source.positions.relocate import PositionedDecoder, Relocation, relocated
from canal_ha.source.positions.scan import Scanner

KEPT = 1024  # transactions by which a running stream is found again; a cursor carries fewer


class CurrentSource:
    """start: where the stream begins; what it says of its server and of what was delivered before counts."""

    def __init__(self, start: LogPosition, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits_until = 0.0
        self._server = start.server
        self._address = (start.address, start.port)
        self._origin = start.server_id
        self._recent = Recent(start.trail, KEPT)
        self._known: Delivered | None = None
        self._delivered: LogPosition | None = None  # the last end of a transaction, or statement, where it has a GTID

    def elsewhere(self, server: Flavor, source: SourceConfig) -> bool:
        """Whether the positions of the stream are of another server than this one.

        A cursor of canal's names an address alone: names of one host are equal, an unknown name is another host.
        """
        if self._server:
            return self._server != server.identity
        if not self._address[0] or self._address == (source.host, source.port):
            return False
        return self._address[1] != source.port or not _one_host(self._address[0], source.host)

    def arrived(self, server: Flavor) -> None:
        """From now on the stream's positions are this server's."""
        self._server = server.identity

    def moved(
        self, scanner: Scanner, at: LogPosition, decoder_at: Callable[[LogPosition], PositionedDecoder]
    ) -> Relocation:
        """Where to go on in the binlog of another server; see relocate.relocated for what it raises.

        A server that lags is waited for, for as long as the window is: SourceUnavailable.
        """
        origin = at.server_id if self._origin is None else self._origin
        trail = self._recent.marks()
        found = relocated(scanner, replace(at, server_id=origin, gtid=self._executed(at)), trail, decoder_at)
        if found.how == "time" and found.lags and self._waits(scanner.config.fallback_interval_s):
            raise SourceUnavailable(
                f"{scanner.session.where.address}: its binlog ends before what was read last from the other server: it"
                " is given time to catch up"
            )
        self._waits_until = 0.0
        self._known = Executed(found.at.gtid or "") if found.how == "GTID set" else ExpectedTransactions(found.expected)
        self._delivered = None
        self.arrived(scanner.server)
        return found

    def _executed(self, at: LogPosition) -> str | None:
        """The GTID set of what was delivered or passed over. at: a boundary that was passed, perhaps before the last
        one that was delivered.
        """
        last = self._delivered
        gtid = last.gtid if last is not None and last.gtid and last.order >= at.order else at.gtid
        return both(gtid, self._known.text) if gtid and isinstance(self._known, Executed) else gtid

    def _waits(self, patience_s: float) -> bool:
        self._waits_until = self._waits_until or self._clock() + patience_s
        return self._clock() < self._waits_until

    def new(self, segment: Segment) -> Sequence[Segment]:
        """What of a segment was not delivered from another server before."""
        return (segment,) if self._known is None else self._known.new(segment)

    def delivered(self, segment: Segment) -> None:
        """These entries were accepted."""
        self._recent.add(segment)
        self._origin = segment.run_server_ids[-1]
        if segment.run_gtids[-1]:
            last = max(segment.kinds.rfind(EntryKind.END), segment.kinds.rfind(EntryKind.DDL))
            if last >= 0:
                self._delivered = segment.position(last)


def _one_host(one: str, other: str) -> bool:
    try:
        ones, others = ({info[4][0] for info in socket.getaddrinfo(host, None)} for host in (one, other))
    except OSError:
        return one == other
    return bool(ones & others)
