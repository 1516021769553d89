"""Stretches: reads the statements of a part of the binlog into a table history.

Threads: the streams' own and the pool; a lock, which is not held while the source is asked. Blocks on MySQL.
"""

from __future__ import annotations

import threading
import time

from canal_ha.decode.history.history import History
from canal_ha.decode.history.ranges import Range, edge
from canal_ha.errors import PositionLost, SourceUnavailable
from canal_ha.source.positions.scan import Scanner

GIVEN_OUT_WITHIN_S = 5.0  # until a server sends what it has written; with sync_binlog=1 MySQL syncs it to disk first
_AGAIN_S = 0.01  # first pause before reading again; later ones are longer


class Stretches:
    """The stretches that are being read. A caller that wants what another one reads already waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reading: list[tuple[History, Range]] = []

    def read(self, history: History, wanted: Range, scanner: Scanner, *, again: bool) -> bool:
        """Read every statement of a stretch and cover what was read. Return False if they are gone.

        history: takes the statements.
        wanted: the stretch.
        scanner: reads it.
        again: read also what is covered.
        Raises SourceUnavailable if the server does not send them in time.
        """
        with self._changed:
            while any(of is history and _overlap(wanted, other) for of, other in self._reading):
                self._changed.wait()
                known = history.ranges().of(wanted.start.order)
                if not again and known is not None and wanted.end.order <= known.end.order:
                    return True
            self._reading.append((history, wanted))
        try:
            return _read(history, wanted, scanner)
        finally:
            with self._changed:
                self._reading.remove((history, wanted))
                self._changed.notify_all()


def _read(history: History, wanted: Range, scanner: Scanner) -> bool:
    start, end = wanted.start, wanted.end
    apply, at, wait_s = history.view(start).apply, start, _AGAIN_S
    until_s = time.monotonic() + GIVEN_OUT_WITHIN_S
    while (at.journal, at.offset) != (end.journal, end.offset):
        try:
            at = edge(scanner.statements(at, end, apply))
        except PositionLost:
            return False
        if at.order >= end.order:
            break
        history.cover(start, at)
        if time.monotonic() > until_s:
            raise SourceUnavailable(
                f"{scanner.session.where.address}: the binlog ends at {end}, but a dump has ended at {at} for"
                f" {GIVEN_OUT_WITHIN_S:g} s; tables are read again. Check the server's disk (sync_binlog=1)"
            )
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, 0.5)
    history.cover(start, end)
    return True


def _overlap(one: Range, other: Range) -> bool:
    """Return whether two ranges share more than an edge."""
    return one.start.order < other.end.order and other.start.order < one.end.order
