"""JournalTimes: tells whether a server's binlog is still the one that a table history covers. Blocks on MySQL.

RESET MASTER and a restored server begin a binlog anew under the same server uuid. If nobody reads while that happens,
and the new binlog grows beyond the covered ranges, nothing else tells the two apart. The time at which a journal was
created does: the journal's first event carries it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from canal_ha.errors import PositionLost
from canal_ha.source.connection.flavor import binary_logs
from canal_ha.source.connection.recent_answers import RECENT_S
from canal_ha.source.positions.scan import Scanner

_MOST = 4  # journals: one that still exists is enough


class JournalTimes:
    """The times of the last journals of one binlog. Any thread.

    known: journal -> when it was created, ms since 1970; oldest journal first.
    looked_at: the last journal that was the newest one; "" before any.
    """

    def __init__(self, known: Mapping[str, int]) -> None:
        self.known = dict(known)
        self._lock = threading.Lock()
        self.looked_at = ""

    @property
    def newest_ms(self) -> int:
        """When the journal of the last look was created, ms since 1970; 0 before any look."""
        return self.known.get(self.looked_at, 0)

    def agree(self, newest: str, scanner: Scanner, *, again: bool) -> bool:
        """Return False if this server's journals are others of the same names. Learn the time of the newest one.

        newest: name of the newest journal.
        scanner: reads the binlog.
        again: ask the server also if this journal was looked at before; else an answer of the last second will do.
        Raises SourceUnavailable, SourceRefused.
        """
        with self._lock:
            if newest == self.looked_at and not again:
                return True
            known = dict(self.known)
        time_ms = scanner.began_ms(newest, recent_s=0.0 if again else RECENT_S)
        if known.get(newest, time_ms) != time_ms:
            return False
        if newest not in known:
            existing = {log.name for log in binary_logs(scanner.session)}
            old = next((name for name in reversed(known) if name in existing), None)
            if old is not None and not _has_time(old, known[old], scanner):
                return False
        with self._lock:
            self.looked_at = newest
            self.known = dict([*(known | {newest: time_ms}).items()][-_MOST:])
        return True


def _has_time(journal: str, time_ms: int, scanner: Scanner) -> bool:
    try:
        return scanner.began_ms(journal) == time_ms
    except PositionLost:  # purged meanwhile
        return True
