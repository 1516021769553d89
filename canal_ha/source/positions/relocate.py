"""Where to continue in another server's binlog: the standby's after a switch, or of a new server at the same address.

With a GTID set, the set decides. Otherwise the last delivered transactions (fingerprints) are searched, starting
canal.instance.fallbackIntervalInSeconds before the oldest of them and before the cursor's time; `matching` says where
reading continues. If none is found, reading begins at the start of that window. Blocks: a stream's thread.

Clocks. A replica keeps the time and the origin (server id) of the transactions it receives. So only transactions of the
cursor's own origin delimit the window; the new server writes its own by another clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from canal_ha.decode.outputs import Output, Passed, Rotated, SourceSaid
from canal_ha.errors import MalformedEvent, PositionLost, PreparedLost, RolledBackLate, TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment
from canal_ha.source.connection.flavor import binary_logs
from canal_ha.source.positions import gtids, locate, truncated
from canal_ha.source.positions.fingerprints import NO_ORDER, Fingerprint, Unit, Units
from canal_ha.source.positions.matching import NOTHING, CertainlyNew, Matching
from canal_ha.source.positions.resume import FIRST_OFFSET, OFFSET_MAX
from canal_ha.source.positions.scan import Enough, Scanner, packets
from canal_ha.source.positions.transactions import boundary_decoder

SLICE_BYTES = 16384  # decoded at a time; boundaries are yielded once a slice
PACKETWISE_BYTES = 1 << 20  # smaller journals are scanned event by event
SCANNED_MOST_BYTES = 8 << 30  # to find the start of the window; beyond that, everything from there is repeated
TIME_SLACK_MS = 2000  # event times are whole seconds, and can be a second out of order


class PositionedDecoder(Protocol):
    """A decoder of a stream. offset, server_id: of the event decoded last."""

    @property
    def offset(self) -> int: ...

    @property
    def server_id(self) -> int: ...

    def feed(self, data: memoryview, /) -> Iterator[Output]: ...


@dataclass(frozen=True, slots=True)
class Relocation:
    """Where to continue.

    how: `GTID set`, `content` or `time`; or `nothing delivered`, see CurrentSource.
    expected: delivered transactions that may come behind this place, in order.
    new: which of the others are certainly new.
    missing: how many delivered transactions the server does not have (yet).
    again: at most how many complete transactions are repeated; None: unknown, because the search ended early or the
        server may still get transactions that were delivered before. The server's own transactions are not counted.
    reason: why the place is not exact.
    lags: whether the server's binlog ends before all transactions searched for.
    ordered: whether both servers keep the order of transactions.
    """

    at: LogPosition
    how: str
    expected: tuple[Fingerprint, ...] = ()
    new: CertainlyNew = NOTHING
    missing: int = 0
    again: int | None = 0
    reason: str = ""
    lags: bool = False
    ordered: bool = True

    @property
    def whole(self) -> bool:
        """Whether this is exactly the place where the stream stood."""
        return not (self.reason or self.missing or self.lags)

    @property
    def repeats(self) -> bool:
        """Whether delivered transactions may come again behind this place."""
        return self.how == "time" or self.again != 0


def relocated(
    scanner: Scanner,
    at: LogPosition,
    fingerprints: Sequence[Fingerprint],
    last_of: Mapping[int, Fingerprint],
    decoder_at: Callable[[LogPosition], PositionedDecoder],
    now: Callable[[], float] = time.time,
) -> Relocation:
    """Return where a stream continues that stands at `at` of another server.

    scanner: reads the new server's binlog.
    at: the position on the other server.
    fingerprints: of the last delivered transactions, oldest first.
    last_of: by server id, up to which transaction all were delivered, in that server's own order; that of the new
        server counts, and whether NO_ORDER is among them.
    decoder_at: returns a new decoder of the stream that begins at a position.
    now: this machine's clock, seconds since 1970.
    Raises SourceUnavailable, SourceRefused, PositionLost.
    """
    # a replica without an order may lack a transaction that lies before delivered ones here
    ordered = scanner.server.keeps_order and NO_ORDER not in last_of
    if scanner.config.decode.gtid_on and at.gtid:
        try:
            found = gtids.behind(scanner, at)
            return Relocation(found, "GTID set", lags=gtids.lags(scanner, at.gtid), ordered=ordered)
        except PositionLost:
            # MariaDB refuses a set whose last transaction was never replicated
            if not scanner.server.mariadb or not fingerprints:
                raise
    # a transaction that stayed open for long was committed at the cursor's time, but its rows are older
    oldest_ms = min([at.timestamp_ms, *(fingerprint.second * 1000 for fingerprint in fingerprints)])
    target_ms = oldest_ms - scanner.config.fallback_interval_s * 1000 - TIME_SLACK_MS
    start = _window(scanner, at, target_ms, now)
    own = scanner.server.server_id
    last_own = {own: last_of[own]} if own in last_of else {}
    matching = Matching(fingerprints, at.server_id, last_own, ordered=ordered)
    newest_s = max([at.timestamp_ms // 1000, *(fingerprint.second for fingerprint in fingerprints)])
    counted = _Counted(at.server_id, scanner.server.server_id, newest_s)
    complete = True
    reason = "the last delivered transactions are unknown"
    if fingerprints:
        reason = "the binlog has none of the last delivered transactions"
    try:
        _look(scanner, start, decoder_at, (matching.see, counted.see))
    except (TableUnknown, MalformedEvent, PreparedLost, RolledBackLate) as error:
        reason = f"cannot search for the last delivered transactions: {error}"
        complete = False
    place = matching.place()
    if place is not None:
        goes_on_at = start if place.behind is None else _behind(place.behind)
        reason = "the order of transactions differs between the servers" if place.again else ""
        return Relocation(
            goes_on_at, "content", place.expected, place.new, place.missing, place.again, reason, ordered=ordered
        )
    lags = counted.ends_before(fingerprints[0].second if fingerprints else newest_s)
    again = counted.again if complete and not counted.ends_before(newest_s) else None
    return Relocation(start, "time", again=again, reason=reason, lags=complete and lags, ordered=ordered)


def _behind(unit: Unit[Segment]) -> LogPosition:
    """Return the position behind the last entry of a unit, without a GTID set: its decoder did not begin with one."""
    segment, index = unit.entries, unit.index
    return replace(segment.position(index, consumed=segment.ends_event(index)), gtid="")


class _Counted:
    """Counts units that may have been delivered before, judged by time and origin.

    origin: server id where the last delivered transaction was first written; None if unknown.
    own: server id of the new server.
    newest_s: when the newest delivered transaction was written, seconds since 1970.
    """

    def __init__(self, origin: int | None, own: int, newest_s: int) -> None:
        self.again = 0
        self._origin = origin
        self._own = own
        self._newest_s = newest_s
        self._last_s = 0  # of the last unit; 0 before the first
        self._waits = origin != own  # whether the next transactions of that origin come by replication

    def see(self, unit: Unit[Segment]) -> None:
        origin = unit.origin
        self._last_s = unit.second
        self._waits = origin == self._origin != self._own
        if self._origin in (None, origin):
            self.again += unit.second <= self._newest_s
        else:
            self.again += origin != self._own  # the clocks of other origins say nothing

    def ends_before(self, second: int) -> bool:
        """Return whether the binlog ends before this second, and replication may add to it.

        A server that writes itself has taken over.
        """
        return self._waits and self._last_s < second


# ---- the window


def _window(scanner: Scanner, at: LogPosition, target_ms: int, now: Callable[[], float]) -> LogPosition:
    """Return the last boundary before which everything of the cursor's origin is older than the target.

    scanner: of the new server.
    at: the cursor's position.
    target_ms: start of the window, ms since 1970.
    now: this machine's clock, seconds since 1970.
    If everything of that origin is newer, because it began to write within the window, or if the binlog has nothing of
    it (no replica, or no log_replica_updates), the server's clock decides: it looks as far back from the target, or
    from the origin's first transaction.
    """
    logs = binary_logs(scanner.session)
    scanned = 0
    first_ms = at.timestamp_ms
    for log in reversed(logs):
        slice_bytes = SLICE_BYTES if log.size_bytes > PACKETWISE_BYTES else 0
        older = _Older(boundary_decoder(log.name, FIRST_OFFSET), at.server_id, target_ms)
        _read(scanner, older.decoder, log.name, FIRST_OFFSET, older.take, slice_bytes)
        first_ms = older.first_ms or first_ms
        last = older.last
        if slice_bytes and (last is not None or 0 < older.first_ms < target_ms):  # few slices end between transactions
            last = _precisely(scanner, at, target_ms, last or Passed(log.name, FIRST_OFFSET, 0)) or last
        if last is not None:
            return _at(scanner, last)
        scanned += log.size_bytes
        if scanned > SCANNED_MOST_BYTES:
            return _at(scanner, Passed(log.name, FIRST_OFFSET, 0))
    if target_ms <= 0:
        return _at(scanner, Passed(logs[0].name, FIRST_OFFSET, 0))
    # the server of the cursor's transaction may have had a fast clock: then its time is in the future here
    here_ms, now_ms = int(scanner.session.query("SELECT UNIX_TIMESTAMP() AS now")[0]["now"]) * 1000, now() * 1000
    ahead_ms = max(0, at.timestamp_ms - min(here_ms, now_ms))
    oldest_ms = target_ms - max(0, at.timestamp_ms - first_ms)
    return locate.at_time(scanner, max(0, int(oldest_ms - ahead_ms - abs(here_ms - now_ms))))


def _precisely(scanner: Scanner, at: LogPosition, target_ms: int, before: Passed) -> Passed | None:
    """Search packet by packet, from a boundary that is early enough. Return None if everything behind it is newer."""
    if before.position > OFFSET_MAX:
        return before
    older = _Older(boundary_decoder(before.journal, before.position), at.server_id, target_ms)
    _read(scanner, older.decoder, before.journal, before.position, older.take, 0)
    return older.last


class _Older:
    """Finds the last boundary of one origin that is older than a target, before the first that is not.

    last: that boundary.
    first_ms: the oldest time of a boundary behind which this origin writes, ms since 1970; 0 if there was none.
    """

    def __init__(self, decoder: PositionedDecoder, origin: int | None, target_ms: int) -> None:
        self.decoder = decoder
        self.last: Passed | None = None
        self.first_ms = 0
        self._origin = origin
        self._target_ms = target_ms

    def take(self, output: Output) -> bool:
        """Look at an output; return whether the search is over."""
        if not isinstance(output, Passed) or not output.timestamp_ms:
            return False
        if self._origin not in (None, self.decoder.server_id):
            return False
        self.first_ms = min(self.first_ms or output.timestamp_ms, output.timestamp_ms)
        if self.decoder.offset >= output.position:
            return False  # the last decoded event lies behind this boundary, which may be of another origin
        if output.timestamp_ms >= self._target_ms:
            return True
        self.last = output
        return False


def _at(scanner: Scanner, passed: Passed) -> LogPosition:
    return LogPosition.on(scanner.binlog_server, passed.journal, passed.position, passed.timestamp_ms)


# ---- reading


def _look(
    scanner: Scanner,
    start: LogPosition,
    decoder_at: Callable[[LogPosition], PositionedDecoder],
    shown: Sequence[Callable[[Unit[Segment]], None]],
) -> None:
    """Decode from a boundary to the current end of the binlog, and pass every unit to each of `shown`."""
    units = Units()

    def take(output: Output) -> bool:
        if isinstance(output, Segment):
            for unit in units.feed(output):
                for see in shown:
                    see(unit)
        return False

    while True:
        journal = _read(scanner, decoder_at(start), start.journal, start.offset, take, SLICE_BYTES, onwards=True)
        following = truncated.next_journal(scanner.session, journal) if journal else ""
        if not following:
            return
        start = _at(scanner, Passed(following, FIRST_OFFSET, 0))


def _read(
    scanner: Scanner,
    decoder: PositionedDecoder,
    journal: str,
    offset: int,
    take: Callable[[Output], bool],
    slice_bytes: int,
    *,
    onwards: bool = False,
) -> str:
    """Decode until `take` returns True, or to the end of the journal, or of the last journal (onwards).

    decoder: begins at journal and offset.
    take: takes each output; returns whether that is enough.
    slice_bytes: how much to decode at a time; 0: packet by packet.
    onwards: whether to continue into the following journals.
    Return the journal that ended truncated; "" if none did.
    Raises SourceUnavailable, SourceRefused, PositionLost, and whatever decoding raises.
    """
    pending = bytearray()
    here = journal

    def eat(data: memoryview) -> list[bytes]:
        nonlocal here
        for piece in packets(pending, data) if slice_bytes == 0 else _slices(data, slice_bytes):
            for output in decoder.feed(piece):
                if take(output):
                    raise Enough
                if isinstance(output, Rotated):
                    if output.journal != journal and not onwards:
                        raise Enough
                    here = output.journal
                if isinstance(output, SourceSaid):
                    raise Enough(output.errno, output.text)
        return []

    return here if scanner.read(eat, journal=journal, offset=offset) else ""


def _slices(data: memoryview, size: int) -> Iterator[memoryview]:
    return (data[at : at + size] for at in range(0, len(data), size))
