"""The newest transaction of a binlog that shows what the server has: of another server, or with rows. Blocks.

The server's own statements do not count: ANALYZE TABLE, FLUSH or CREATE USER also enter the binlog of a standby that
lags.
"""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.source.connection.flavor import binary_logs
from canal_ha.source.positions.scan import Scanner

# the rows of MySQL, those of MariaDB's compressed binlog, XID, XA PREPARE, compressed transactions of MySQL
_WITH_ROWS = frozenset({16, 23, 24, 25, 30, 31, 32, 38, 39, 40, *range(166, 172)})
# QUERY, the GTIDs of MySQL, ANONYMOUS_GTID, the GTIDs of MariaDB: a replica keeps their server id and time. Others are
# the server's own, as BINLOG_CHECKPOINT, which MariaDB may write behind the last transaction.
_OF_TRANSACTIONS = _WITH_ROWS | {2, 33, 34, 42, 162}


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


def last_transaction(scanner: Scanner) -> LastTransaction:
    """Return the newest transaction of another server, or with rows. Raises SourceUnavailable, SourceRefused."""
    own = scanner.server.server_id

    def wanted(kind: int, server_id: int) -> bool:
        return kind in _WITH_ROWS or (kind in _OF_TRANSACTIONS and server_id != own)

    for log in reversed(binary_logs(scanner.session)):
        if newest := scanner.newest(log.name, wanted).newest:
            return LastTransaction(newest.server_id, newest.timestamp_ms, newest.gtid_before, newest.gtid)
    return LastTransaction()
