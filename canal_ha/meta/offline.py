"""Cursors in the files of a node that does not run, read and written without a reactor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from canal_ha.errors import MetaWriteFailed
from canal_ha.meta.files import FileBackend
from canal_ha.meta.repository import CursorMoved, Snapshot
from canal_ha.model.position import LogPosition

T = TypeVar("T")


class CursorFiles:
    """As CursorNodes, on meta.dat. data_dir: holds a directory per destination. Raises MetaUnreadable."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def read(self, destination: str, client_id: int) -> LogPosition | None:
        """The cursor; None when this client has none."""
        return self._load(destination)[1].cursors.get(client_id)

    def write(self, destination: str, client_id: int, position: LogPosition) -> None:
        """Replace a cursor. Raises MetaWriteFailed."""
        backend, snapshot = self._load(destination)
        if client_id not in snapshot.clients:
            raise MetaWriteFailed(f"client {client_id} of {destination} has no cursor: it never subscribed")
        _finish(backend.write((CursorMoved(client_id, position),)))

    def clients(self, destination: str) -> tuple[int, ...]:
        """Client ids that the file knows."""
        return tuple(sorted(self._load(destination)[1].clients))

    def _load(self, destination: str) -> tuple[FileBackend, Snapshot]:
        backend = FileBackend(self._data_dir, destination, _at_once)
        return backend, _finish(backend.load())


class _Done(Awaitable[T]):
    """An awaitable that has its result."""

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Any:
        yield from ()
        return self._result


def _at_once(call: Callable[[], T]) -> Awaitable[T]:
    return _Done(call())


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a write to files waited")
