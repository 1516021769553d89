"""Ending: wakes whoever waits for a source when its destination stops, so that a hung MySQL holds nobody up."""

from __future__ import annotations

import threading
import weakref

from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.session import Interruptible


class StopSignal:
    """The connections of one destination's questions. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._connections: weakref.WeakSet[Interruptible] = weakref.WeakSet()

    def opened(self, connection: Interruptible) -> None:
        """From here on `end` interrupts this connection. Raises SourceUnavailable after `end`."""
        with self._lock:
            if self._over:
                raise SourceUnavailable("the destination stops: its source is not asked any more")
            self._connections.add(connection)

    def end(self) -> None:
        """Interrupt every connection, and refuse new ones; returns at once."""
        with self._lock:
            self._over = True
            connections = tuple(self._connections)
        for connection in connections:
            connection.interrupt()
