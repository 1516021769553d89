"""Rings whose source does not block a thread: a put without room raises Blocked, and the feed tries again later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal

from canal_ha.store import ring


class Blocked(Exception):
    """The thread of a real feed would wait for room in the ring now. Nothing is stored."""


class _Lock:
    """A lock among calls that never run at the same time."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *error: object) -> Literal[False]:
        return False


class _Condition:
    """The condition on which a feed waits."""

    def __init__(self, lock: _Lock) -> None:
        """lock: of the ring."""

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return True if the predicate holds now. Raises Blocked."""
        if not predicate():
            raise Blocked
        return True

    def notify_all(self) -> None:
        """Do nothing, because feeds look again by themselves."""


@contextmanager
def cooperative() -> Iterator[None]:
    """Make the rings that are opened meanwhile cooperative."""
    threads: Any = ring
    before = threads.threading
    threads.threading = SimpleNamespace(Lock=_Lock, Condition=_Condition)
    try:
        yield
    finally:
        threads.threading = before
