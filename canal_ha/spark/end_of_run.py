"""EndOfRun: where a query that ends by itself ends in one destination.

The end is the end of the source's binlog when the query began to read, as the node tells it. No clock of the source
plays a part. If the last transactions before the end are filtered out, no entry shows that the stream has passed them.
Then a private read of the range from the spool's end to that place shows that it has no entry.
"""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.access import end_of_binlog, has_changes_behind

_FETCH = 4096


class EndOfRun:
    """See the module. One thread calls `find`; others may ask afterwards.

    ask: returns a connection to the destination's node, not connected; None without a node.
    filter: the query's.
    """

    def __init__(self, ask: Callable[[], SimpleConnector | None], filter: str) -> None:
        self._ask = ask
        self._filter = filter
        self.at: LogPosition | None = None

    def find(self) -> None:
        """Ask for the end of the binlog; `at` stays None if the server does not tell it.

        Raises the errors of a connector, also if the node does not reach the source.
        """
        with self._connector() as asked:
            self.at = end_of_binlog(asked, self._filter)

    def check(self) -> None:
        """Raise the errors of a connector if the node does not reach the source: its silence proves nothing then."""
        with self._connector() as asked:
            asked.read_from("latest", filter=self._filter)

    def reached_by(self, position: LogPosition) -> bool:
        """Return whether a position is at or behind the end; False if the two cannot be compared."""
        return self.at is not None and self.is_on(position.server) and position.order >= self.at.order

    def is_on(self, server: str) -> bool:
        """Return whether the end is a place in the binlog of this server; "" may be any."""
        end = self.at
        return end is not None and not end.part and (end.server == server or "" in (end.server, server))

    def covered_by(self, cursor: LogPosition | None) -> bool:
        """Return whether a cursor has reached the end in every source."""
        return cursor is not None and self.at is not None and cursor.covers(self.at)

    def nothing_behind(self, last: LogPosition) -> bool:
        """Return whether there is no row or statement between a position of the same binlog and the end.

        Raises the errors of a connector.
        """
        end = self.at
        assert end is not None
        start = LogPosition(last.journal, last.offset)
        with self._connector() as asked:
            asked.read_from(f"{start.journal}:{start.offset}", f"{end.journal}:{end.offset}", self._filter)
            return not has_changes_behind(asked, start, _FETCH)

    def _connector(self) -> SimpleConnector:
        asked = self._ask()
        if asked is None:
            raise SourceUnavailable("no connection to a node that runs the destination")
        return asked
