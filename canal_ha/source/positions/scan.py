"""Finds transaction boundaries by reading a binlog: by time, by offset, by GTID set. Blocks.

A decoder that accepts no table reports where transactions end. A journal is read at most twice: in large chunks up to
the one that holds the boundary, then packet by packet from the boundary before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.outputs import Passed, Rotated, SourceHeartbeat, SourceSaid
from canal_ha.errors import SourceRefused
from canal_ha.model.position import BinlogServer, LogPosition
from canal_ha.source.connection.dump_connection import Eater
from canal_ha.source.connection.flavor import Flavor
from canal_ha.source.connection.identity import replica
from canal_ha.source.connection.reader import DumpRequest, run
from canal_ha.source.connection.recent_answers import together
from canal_ha.source.connection.session import Interruptible, SourceSession
from canal_ha.source.positions import truncated
from canal_ha.source.positions.lost import DUMP_FAILED, ended, gtids_refused
from canal_ha.source.positions.resume import FIRST_OFFSET, OFFSET_MAX, dump_offset
from canal_ha.source.positions.transactions import Statements, boundary_decoder

_FORMAT_DESCRIPTION = frozenset({15})
_OF_THE_BINLOG = frozenset(range(1, 256)) - {4, 15, 27}  # a dump has ROTATE, FORMAT_DESCRIPTION, HEARTBEAT of its own
_GTIDS = frozenset({33, 42, 162})  # MySQL's, MySQL's with a tag, MariaDB's


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event, and the transaction that it belongs to.

    server_id: of the server that wrote it first.
    timestamp_ms: when it did, ms since 1970.
    gtid_before, gtid: the sets executed before and after its transaction, of what was read; equal without GTIDs.
    """

    server_id: int
    timestamp_ms: int
    gtid_before: str = ""
    gtid: str = ""


@dataclass(frozen=True, slots=True)
class ReadTo:
    """How far a journal was read.

    newest: the last event that was looked for; None if there was none.
    offset: a boundary from which reading can go on.
    """

    newest: FoundEvent | None
    offset: int


@dataclass(frozen=True, slots=True)
class Scanner:
    """Reads the binlog of one source over connections of its own, with a replica identity used only once.

    session: for questions.
    server: the source's flavor.
    config: of the destination.
    source: the server's address.
    opening: as in `reader.run`.
    All methods raise SourceUnavailable, SourceRefused, PositionLost.
    """

    session: SourceSession
    server: Flavor
    config: InstanceConfig
    source: SourceConfig
    opening: Callable[[Interruptible], None] = lambda connection: None

    @property
    def binlog_server(self) -> BinlogServer:
        """Whose binlog is read."""
        return self.server.read_at(self.source)

    def boundary(self, journal: str, beyond: Callable[[Passed], bool]) -> LogPosition:
        """Return a journal's last boundary before the first one that is `beyond`; its last one if none is."""
        found = self._boundary(journal, FIRST_OFFSET, beyond, by_packet=False)
        offset = found.position if found else FIRST_OFFSET
        if offset <= OFFSET_MAX:
            found = self._boundary(journal, offset, beyond, by_packet=True) or found
        if found is None:
            return self._position(journal, FIRST_OFFSET, 0)
        return self._position(journal, found.position, found.timestamp_ms)

    def began_ms(self, journal: str, offset: int = FIRST_OFFSET, *, recent_s: float = 0.0) -> int:
        """Return when a journal was created, ms: the time of its format description, which comes before any offset.

        recent_s: see RecentAnswers.of.
        """
        question = "began", self.server.identity, journal, offset
        return together(self.config, self.source, question, lambda: self._began_ms(journal, offset), recent_s)

    def _began_ms(self, journal: str, offset: int) -> int:
        scan = _Scan(boundary_decoder(journal, FIRST_OFFSET), by_packet=True, until=_FORMAT_DESCRIPTION)
        self._run(scan, journal=journal, offset=offset)
        return scan.found.timestamp_ms if scan.found else 0

    def event_at(self, journal: str, offset: int) -> Passed | None:
        """Return where the first event from an offset on really begins, and its time.

        None if there is none, or if no dump can begin there.
        """
        if offset > OFFSET_MAX:
            return None
        scan = _Scan(boundary_decoder(journal, offset), by_packet=True, until=_OF_THE_BINLOG)
        self._run(scan, journal=journal, offset=offset)
        return scan.found

    def newest(self, journal: str, wanted: Callable[[int, int], bool], start: int = FIRST_OFFSET) -> ReadTo:
        """Return the last wanted event of a journal's whole transactions.

        wanted: takes type and server id.
        start: the boundary from which to read.
        """
        boundaries = _Scan(boundary_decoder(journal, start), by_packet=False)
        self._run(boundaries, journal=journal, offset=start)
        if boundaries.last is None:
            return ReadTo(None, start)
        near = boundaries.earlier.position if boundaries.earlier else start
        for offset in (near, start):  # there can be more behind the last wanted event than one large chunk
            if offset > OFFSET_MAX:
                continue
            events = _Scan(boundary_decoder(journal, offset, gtid_set=""), by_packet=True, newest_of=wanted)
            self._run(events, journal=journal, offset=offset)
            if events.newest or offset == start:
                break
        reached = events.last.position if events.last else start
        return ReadTo(events.newest, reached if reached <= OFFSET_MAX else start)

    def lacking(self, gtid_set: str) -> LogPosition | None:
        """Return where the first transaction begins that is not in the set; None if there is none yet."""
        scan = _Scan(boundary_decoder("", FIRST_OFFSET), by_packet=True, until=_GTIDS)
        self._run(scan, gtid=gtid_set)
        if scan.found is None:
            return None
        return self._position(scan.journal, scan.found.position, scan.found.timestamp_ms, gtid_set)

    def executed(self, at: LogPosition) -> str:
        """Return the GTID set executed before a position, including the transaction that it lies in.

        Raises SourceUnavailable, SourceRefused.
        """
        if self.server.mariadb:
            return mariadb_set(self.session, at.journal, at.offset)
        rows = self.session.query("SHOW BINLOG EVENTS IN %s LIMIT 3", at.journal)
        previous = next((str(row["Info"]) for row in rows if row["Event_type"] == "Previous_gtids"), "")
        before = self._executed(at, FIRST_OFFSET, "".join(previous.split()), by_packet=False)
        if before.offset < at.offset <= OFFSET_MAX:
            before = self._executed(at, before.offset, before.gtid or "", by_packet=True)
        return before.gtid or ""

    def _executed(self, at: LogPosition, offset: int, before: str, *, by_packet: bool) -> LogPosition:
        """Return the last boundary with its set. by_packet: return the first one not before `at`, if any."""
        decoder = boundary_decoder(at.journal, offset, gtid_set=before)
        scan = _Scan(decoder, by_packet=by_packet, beyond=lambda passed: passed.position > at.offset)
        self._run(scan, journal=at.journal, offset=offset)
        last = scan.last.position if scan.last else offset
        if by_packet and scan.over is not None and last < at.offset:
            return self._position(at.journal, scan.over.position, 0, decoder.gtid_set)
        return self._position(at.journal, last, 0, scan.last_gtid if scan.last else before)

    def statements(
        self, start: LogPosition, end: LogPosition, apply: Callable[[LogPosition, str, str], object]
    ) -> LogPosition:
        """Pass every statement between two boundaries to `apply` and return the boundary reached.

        start, end: the range.
        apply: takes position, default schema, text.
        The boundary reached lies before `end` if the server does not send everything that it has written yet.
        """

        def beyond(passed: Passed) -> bool:
            return passed.journal == end.journal and passed.position >= end.offset

        journal, offset = start.journal, dump_offset(start.offset)
        while True:
            decoder = boundary_decoder(journal, offset, Statements(apply))
            scan = _Scan(decoder, by_packet=False, beyond=beyond, onwards=end.journal)
            self._run(scan, journal=journal, offset=offset)
            if scan.reached is not None:
                start = self._position(scan.reached.journal, scan.reached.position, scan.reached.timestamp_ms)
            behind = truncated.next_journal(self.session, scan.journal or journal) if scan.truncated else ""
            if not behind:
                return start
            start = self._position(behind, FIRST_OFFSET, 0)
            if scan.journal == end.journal:
                return start
            journal, offset = behind, FIRST_OFFSET

    def _boundary(
        self, journal: str, offset: int, beyond: Callable[[Passed], bool], *, by_packet: bool
    ) -> Passed | None:
        scan = _Scan(boundary_decoder(journal, offset), by_packet=by_packet, beyond=beyond)
        self._run(scan, journal=journal, offset=offset)
        return scan.last

    def read(
        self, eat: Callable[[memoryview], list[bytes]], *, journal: str = "", offset: int = FIRST_OFFSET, gtid: str = ""
    ) -> bool:
        """Dump until `eat` raises Enough, or to the end of the binlog.

        eat: takes the received bytes.
        journal, offset: where to begin.
        gtid: read what this set lacks; "" reads from journal and offset.
        Return whether the dump ended because its journal is truncated, so that there is no more of it.
        """
        identity = replica(self.config.destination, 0, read=uuid4().hex)
        request = DumpRequest(
            server_id=next(identity.server_ids()),
            replica=identity,
            mariadb=self.server.mariadb,
            journal=journal,
            offset=offset,
            gtid=gtid,
            blocking=False,
        )
        try:
            run(request, self.session, self.config, self.source, Eater(eat), self.opening)
        except Enough as end:
            where = self.session.where
            if end.errno == DUMP_FAILED and gtid:
                raise gtids_refused(where, self.config, gtid, end.text) from None
            if truncated.is_truncated(end.text):
                return True
            if end.errno == DUMP_FAILED:
                at = self._position(journal, offset, 0)
                raise ended(self.session, self.config, at, end.text) from None
            if end.errno:
                raise where.error(end.errno, end.text) from None
        return False

    def _run(self, scan: _Scan, *, journal: str = "", offset: int = FIRST_OFFSET, gtid: str = "") -> None:
        scan.truncated = self.read(scan.eat, journal=journal, offset=offset, gtid=gtid)

    def _position(self, journal: str, offset: int, timestamp_ms: int, gtid: str = "") -> LogPosition:
        return LogPosition.on(self.binlog_server, journal, offset, timestamp_ms, gtid)


def mariadb_set(session: SourceSession, journal: str, offset: int) -> str:
    """Return the GTID set that a server of MariaDB had executed up to a place; "" before its first transaction.

    Raises SourceUnavailable, and SourceRefused if no event begins there. An empty set would mean that nothing was
    executed, and everything would come again from another server.
    """
    gtid = session.query("SELECT BINLOG_GTID_POS(%s, %s) AS gtid", journal, offset)[0]["gtid"]
    if gtid is None:
        raise SourceRefused(
            f"{session.where.address}: the server names no GTIDs for {journal}:{offset}, because no event begins there;"
            " set the cursor to another position (canal-ha cursor set)"
        )
    return str(gtid)


class Enough(Exception):
    """A read is over. errno, text: the server's error; 0 and "" if there is none."""

    def __init__(self, errno: int = 0, text: str = "") -> None:
        super().__init__(text)
        self.errno = errno
        self.text = text


class _Scan:
    """Eats one dump and raises Enough when it has seen enough.

    Two heartbeats at one position are the end of the binlog: MySQL 5.6 waits there, although the dump is not to block.
    Single ones come also while a server skips transactions.

    beyond: ends the scan at the first boundary for which it holds, `over`.
    until: ends the scan at the first event of these types; needs by_packet.
    newest_of: takes type and server id of an event; `newest` is the last one for which it holds; needs by_packet.
    onwards: the last journal to scan; "" scans the first only.

    last, last_gtid: the boundary before `over`, and the set executed there.
    earlier: the boundary that was yielded before `last`.
    reached: everything before it was scanned, including journals without a boundary.
    truncated: the last journal ended inside an event.
    found: where the event of `until` starts.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        by_packet: bool,
        beyond: Callable[[Passed], bool] = lambda passed: False,
        until: frozenset[int] = frozenset(),
        newest_of: Callable[[int, int], bool] | None = None,
        onwards: str = "",
    ) -> None:
        self.journal = ""
        self.last: Passed | None = None
        self.last_gtid = ""
        self.earlier: Passed | None = None
        self.newest: FoundEvent | None = None
        self.over: Passed | None = None
        self.reached: Passed | None = None
        self.truncated = False
        self.found: Passed | None = None
        self._decoder = decoder
        self._by_packet = by_packet
        self._beyond = beyond
        self._until = until
        self._newest_of = newest_of
        self._met: FoundEvent | None = None  # the last wanted event of the transaction that is read
        self._onwards = onwards
        self._heartbeat: SourceHeartbeat | None = None
        self._pending = bytearray()

    def eat(self, data: memoryview) -> list[bytes]:
        """Decode received bytes; leave nothing for the library."""
        for piece in packets(self._pending, data) if self._by_packet else (data,):
            if self._until or self._newest_of:
                self._look(piece)
            self._decode(piece)
        return []

    def _look(self, packet: memoryview) -> None:
        """Note a wanted event; raise Enough at one of `until`.

        packet: header (4 bytes), 0, then time, type, server id, size, end.
        """
        if len(packet) < 24 or packet[4] != 0:
            return
        timestamp_ms = int.from_bytes(packet[5:9], "little") * 1000
        server_id = int.from_bytes(packet[10:14], "little")
        if self._newest_of and self._newest_of(packet[9], server_id):
            self._met = FoundEvent(server_id, timestamp_ms)
        if packet[9] in self._until:
            size = int.from_bytes(packet[14:18], "little")
            end = int.from_bytes(packet[18:22], "little")
            self.found = Passed(self.journal, end - size, timestamp_ms)
            raise Enough

    def _decode(self, data: memoryview) -> None:
        for output in self._decoder.feed(data):
            match output:
                case Passed():
                    self.reached = output
                    if self._beyond(output):
                        self.over = output
                        raise Enough
                    gtid_before, self.last_gtid = self.last_gtid, self._decoder.gtid_set
                    if self._met:
                        self.newest = replace(self._met, gtid_before=gtid_before, gtid=self.last_gtid)
                        self._met = None
                    self.earlier, self.last = self.last, output
                case Rotated():
                    self.reached = Passed(output.journal, output.position, 0)
                    last = not self._onwards or self.journal == self._onwards
                    if self.journal and not self._until and output.journal != self.journal and last:
                        raise Enough
                    self.journal = output.journal
                case SourceHeartbeat():
                    if output == self._heartbeat:
                        raise Enough
                    self._heartbeat = output
                case SourceSaid():
                    raise Enough(output.errno, output.text)


def packets(pending: bytearray, data: memoryview) -> Iterator[memoryview]:
    """Yield whole packets, header included. pending: the incomplete next one, kept between calls."""
    pending += data
    while len(pending) >= 4:
        size = 4 + int.from_bytes(pending[:3], "little")
        if len(pending) < size:
            return
        packet = bytes(pending[:size])
        del pending[:size]
        yield memoryview(packet)
