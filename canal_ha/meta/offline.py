"""Reads and writes the cursor files of a node that is not running, without a reactor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from canal_ha.errors import MetaWriteFailed
from canal_ha.meta.files import FileBackend
from canal_ha.meta.repository import CursorMoved, Snapshot, Unsubscribed
from canal_ha.model.position import LogPosition

T = TypeVar("T")


class CursorFiles:
    """Cursors in meta.dat, like CursorNodes. data_dir: contains a directory for each destination.

    Every method raises MetaUnreadable if it cannot read the file.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read(self, destination: str, client_id: int) -> LogPosition | None:
        """Return the cursor; None if this client has none."""
        return self._load(destination)[1].cursors.get(client_id)

    def servers(self, destination: str) -> tuple[str, ...]:
        """Return the servers that the destination was switched to last; see ServersChosen."""
        return self._load(destination)[1].servers

    def change(self, destination: str, client_id: int, moved: Callable[[LogPosition], LogPosition]) -> LogPosition:
        """Replace a cursor, and return the one before. Raises MetaWriteFailed, also if there is none.

        destination: its name.
        client_id: the client's id.
        moved: returns the new cursor for the one that is there.
        """
        backend, snapshot = self._load(destination)
        before = snapshot.cursors.get(client_id)
        if before is None:
            raise MetaWriteFailed(f"client {client_id} of {destination} has no cursor: it never subscribed")
        _finish(backend.write((CursorMoved(client_id, moved(before)),)))
        return before

    def delete(self, destination: str, client_id: int) -> None:
        """Remove a client id with its cursor and filter. Raises MetaWriteFailed."""
        backend, _ = self._load(destination)
        _finish(backend.write((Unsubscribed(client_id),)))

    def clients(self, destination: str) -> tuple[int, ...]:
        """Return the client ids in the file."""
        return tuple(sorted(self._load(destination)[1].clients))

    def _load(self, destination: str) -> tuple[FileBackend, Snapshot]:
        backend = FileBackend(self._data_dir, destination, _at_once)
        return backend, _finish(backend.load())


class _Done(Awaitable[T]):
    """An awaitable that already has its result."""

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Any:
        yield from ()
        return self._result


def _at_once(call: Callable[[], T]) -> Awaitable[T]:
    return _Done(call())


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a coroutine that must not wait did wait")
