"""SqlConnections: the connections of a target, one for each destination. One stays open until an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

C = TypeVar("C")


class SqlConnections(Generic[C]):
    """See the module.

    opened: returns a new connection.
    close: closes one, whatever its state is.
    """

    def __init__(self, opened: Callable[[], C], close: Callable[[C], None]) -> None:
        self._opened = opened
        self._close = close
        self._lock = Lock()
        self._idle: dict[str, C] = {}

    @contextmanager
    def of(self, destination: str) -> Iterator[C]:
        """Yield the destination's connection; after an error it is closed."""
        with self._lock:
            connection = self._idle.pop(destination, None)
        if connection is None:
            connection = self._opened()
        try:
            yield connection
        except BaseException:
            self._close(connection)
            raise
        with self._lock:
            self._idle[destination] = connection

    def close(self) -> None:
        """Close those that no commit uses."""
        with self._lock:
            connections = list(self._idle.values())
            self._idle.clear()
        for connection in connections:
            self._close(connection)
