"""JournalTimes: tells whether a server's binlog is still the one that a table history covers. Blocks on MySQL.

RESET MASTER and a restored server begin a binlog anew under the same server uuid. If nobody reads while that happens,
and the new binlog grows beyond the covered ranges, nothing else tells the two apart. The time at which a journal was
created does: the journal's first event carries it.
"""

from __future__ import annotations

from collections.abc import Mapping

from canal_ha.errors import PositionLost
from canal_ha.source.connection.flavor import binary_logs
from canal_ha.source.positions.scan import Scanner

_MOST = 4  # journals: one that still exists is enough


class JournalTimes:
    """The times of the last journals of one binlog.

    known: journal -> when it was created, ms since 1970; oldest journal first.
    """

    def __init__(self, known: Mapping[str, int]) -> None:
        self.known = dict(known)
        self._looked_at = ""

    def agree(self, newest: str, scanner: Scanner) -> bool:
        """Return False if this server's journals are others of the same names. Learn the time of the newest one.

        The server is asked once for each newest journal.

        newest: name of the newest journal.
        scanner: reads the binlog.
        Raises SourceUnavailable, SourceRefused.
        """
        if newest == self._looked_at:
            return True
        existing = {log.name for log in binary_logs(scanner.session)}
        old = next((name for name in reversed(self.known) if name in existing and name != newest), None)
        for name in (old, newest):
            if name is not None and name in self.known and not self._has_time(name, scanner):
                return False
        if newest not in self.known:
            self.known[newest] = scanner.began_ms(newest)
            while len(self.known) > _MOST:
                del self.known[next(iter(self.known))]
        self._looked_at = newest
        return True

    def _has_time(self, name: str, scanner: Scanner) -> bool:
        try:
            return scanner.began_ms(name) == self.known[name]
        except PositionLost:  # purged meanwhile
            return True
