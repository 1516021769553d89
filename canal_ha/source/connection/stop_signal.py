"""StopSignal: interrupts the questions to a source when its destination stops, so that a hung MySQL blocks nobody."""

from __future__ import annotations

import threading
import weakref

from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.session import Interruptible


class StopSignal:
    """The connections for one destination's questions. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._connections: weakref.WeakSet[Interruptible] = weakref.WeakSet()

    def opened(self, connection: Interruptible) -> None:
        """Register a connection, which `end` will interrupt. Raises SourceUnavailable after `end`."""
        with self._lock:
            if self._over:
                raise SourceUnavailable(
                    "the destination stops, or goes on with another server: no new connection to this server is opened"
                )
            self._connections.add(connection)

    def released(self, connection: Interruptible) -> bool:
        """Forget a connection that others may use now. Return False after `end`, which may have interrupted it."""
        with self._lock:
            self._connections.discard(connection)
            return not self._over

    def end(self) -> None:
        """Interrupt every connection, refuse new ones, and return at once."""
        with self._lock:  # also while it interrupts, so that it meets no connection that was released
            self._over = True
            for connection in self._connections:
                connection.interrupt()
