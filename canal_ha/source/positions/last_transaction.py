"""The newest transaction of a binlog that shows what the server has: of another server, or with rows. Blocks.

The server's own statements do not count: ANALYZE TABLE, FLUSH or CREATE USER also enter the binlog of a standby that
lags. Nobody reads a journal twice: for each server, it is known how far its journals were read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from canal_ha.source.connection.flavor import BinaryLog, binary_logs
from canal_ha.source.positions.resume import FIRST_OFFSET
from canal_ha.source.positions.scan import FoundEvent, Scanner

# the rows of MySQL, those of MariaDB's compressed binlog, XID, XA PREPARE, compressed transactions of MySQL
_WITH_ROWS = frozenset({16, 23, 24, 25, 30, 31, 32, 38, 39, 40, *range(166, 172)})
# QUERY, the GTIDs of MySQL, ANONYMOUS_GTID, the GTIDs of MariaDB: a replica keeps their server id and time. Others are
# the server's own, as BINLOG_CHECKPOINT, which MariaDB may write behind the last transaction.
_OF_TRANSACTIONS = _WITH_ROWS | {2, 33, 34, 42, 162}
_JOURNALS_MOST = 256  # of all servers, of which it is known how far they were read


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """A transaction.

    origin: server id where it was first written; None if there is none.
    timestamp_ms: when it was written there, ms since 1970.
    gtid_before, gtid: see FoundEvent.
    """

    origin: int | None = None
    timestamp_ms: int = 0
    gtid_before: str = ""
    gtid: str = ""


@dataclass(slots=True, eq=False)
class _Journal:
    """How far a journal was read.

    began_ms: when it was created; another time is another journal of this name.
    size_bytes: the size that it had then, or more was read.
    """

    reading: threading.Lock = field(default_factory=threading.Lock)
    began_ms: int = -1
    size_bytes: int = -1
    offset: int = FIRST_OFFSET
    newest: FoundEvent | None = None

    def forget(self) -> None:
        """Begin again."""
        self.offset, self.newest = FIRST_OFFSET, None


class _Journals:
    """The journals that were read. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, str, str], _Journal] = OrderedDict()

    def of(self, scanner: Scanner, name: str) -> _Journal:
        """Return what is known of a journal. One destination does not wait for another."""
        key = (scanner.config.destination, scanner.source.address, scanner.server.identity, name)
        with self._lock:
            found = self._known.setdefault(key, _Journal())
            self._known.move_to_end(key)
            while len(self._known) > _JOURNALS_MOST:
                self._known.popitem(last=False)
        return found


_journals = _Journals()


def last_transaction(scanner: Scanner) -> LastTransaction:
    """Return the newest transaction of another server, or with rows. Raises SourceUnavailable, SourceRefused."""
    logs = binary_logs(scanner.session)
    for log in reversed(logs):
        if newest := _newest(scanner, log, grows=log is logs[-1]):
            return LastTransaction(newest.server_id, newest.timestamp_ms, newest.gtid_before, newest.gtid)
    return LastTransaction()


def _newest(scanner: Scanner, log: BinaryLog, *, grows: bool) -> FoundEvent | None:
    """Return the newest such event of a journal. grows: it is the newest journal."""
    own = scanner.server.server_id

    def wanted(kind: int, server_id: int) -> bool:
        return kind in _WITH_ROWS or (kind in _OF_TRANSACTIONS and server_id != own)

    journal = _journals.of(scanner, log.name)
    with journal.reading:
        if not grows and journal.size_bytes == log.size_bytes:
            return journal.newest
        if log.size_bytes < journal.offset:
            journal.forget()
        began_ms = scanner.began_ms(log.name, journal.offset)
        if journal.began_ms != began_ms:
            journal.forget()
            journal.began_ms = began_ms
        found = scanner.newest(log.name, wanted, journal.offset)
        journal.offset, journal.newest = found.offset, found.newest or journal.newest
        journal.size_bytes = log.size_bytes
        return journal.newest
