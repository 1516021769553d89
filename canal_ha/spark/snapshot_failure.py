"""SnapshotFailure: when a snapshot that has failed ends the query.

A statement that drops or renames the table at which it has failed may be on its way. A pipeline that writes it leaves
the table out, so the query goes on until its micro-batches have all changes up to the end that the binlog had.
"""

from __future__ import annotations

import time

from canal_ha.model.position import LogPosition
from canal_ha.spark.end_of_run import EndOfRun
from canal_ha.spark.manifest import Manifest

DONE_MOST_S = 60.0  # Spark 4.0 and 4.1 tell that a micro-batch is done when the next one begins


class SnapshotFailure:
    """See the module. snapshot: the id. end: not found yet."""

    def __init__(self, snapshot: str, end: EndOfRun) -> None:
        self.snapshot = snapshot
        self._end = end
        self._found = False
        self._last: int | None = None  # number of the last segment before the end
        self._passed_at = 0.0

    def passed(self, manifest: Manifest, cursor: LogPosition | None, read_up_to: int) -> bool:
        """Return whether the micro-batches are done that have the changes up to the end.

        manifest: of the spool.
        cursor: the server's, for an empty spool.
        read_up_to: number of the last segment of a micro-batch that is done.
        Raises the errors of a connector.
        """
        if not self._found:
            self._end.find()
            self._found = True
            return False
        if self._last is None:
            last = manifest.last or cursor
            if last is None or not self._has_all_before(last):
                return False
            self._last, self._passed_at = manifest.next_seq - 1, time.monotonic()
        return read_up_to >= self._last or time.monotonic() - self._passed_at > DONE_MOST_S

    def _has_all_before(self, last: LogPosition) -> bool:
        if not self._end.is_on(last.server):
            self._found = False  # the source is another server now
            return False
        return self._end.reached_by(last) or self._end.nothing_behind(last)
