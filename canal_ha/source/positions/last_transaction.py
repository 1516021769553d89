"""The newest transaction of a binlog: which server wrote it first, and when. Blocks."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.source.connection.flavor import binary_logs
from canal_ha.source.positions.scan import Scanner

# QUERY, XID, the GTIDs of MySQL, ANONYMOUS_GTID, XA PREPARE, the GTIDs of MariaDB: a replica keeps their server id and
# time. Others are the server's own, as BINLOG_CHECKPOINT, which MariaDB may write behind the last transaction.
_OF_TRANSACTIONS = frozenset({2, 16, 33, 34, 38, 42, 162})


@dataclass(frozen=True, slots=True)
class LastTransaction:
    """The newest transaction of a binlog.

    origin: server id where it was first written; None if there is none.
    timestamp_ms: when it was written there, ms since 1970.
    """

    origin: int | None = None
    timestamp_ms: int = 0


def last_transaction(scanner: Scanner) -> LastTransaction:
    """Return the newest transaction of the binlog. Raises SourceUnavailable, SourceRefused."""
    for log in reversed(binary_logs(scanner.session)):
        newest = scanner.newest(log.name, _OF_TRANSACTIONS)
        if newest is not None:
            return LastTransaction(newest.server_id, newest.timestamp_ms)
    return LastTransaction()
