"""Threads that do not block: what would wait raises instead, and its caller tries again when the wait is over.

A put into a full ring raises Blocked, and the feed tries again later. A question that a thread of the pool asks the
reactor raises Asked; when the answer is there, the whole call is made again, and gets it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal

from canal_ha.instance import instance
from canal_ha.store import ring


class Blocked(Exception):
    """The thread of a real feed would wait for room in the ring now. Nothing is stored."""


class Asked(Exception):
    """The thread would wait for the reactor now. request: what it asks."""

    def __init__(self, request: Callable[[], Awaitable[Any]]) -> None:
        super().__init__("asked")
        self.request = request


class Answers:
    """The answer that the call under way was waiting for, if it is made again."""

    def __init__(self) -> None:
        self.given: list[object] = []

    def answer_of(self, reactor: object, request: Callable[[], Awaitable[Any]], within_s: float) -> object:
        """See instance.from_thread. Raises Asked the first time, and returns or raises the answer after that."""
        if not self.given:
            raise Asked(request)
        answer = self.given.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer


ANSWERS = Answers()


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
    """Make the rings that are opened meanwhile, and the questions to the reactor, cooperative."""
    rings: Any = ring
    instances: Any = instance
    threading, answer_of = rings.threading, instances.answer_of
    rings.threading = SimpleNamespace(Lock=_Lock, Condition=_Condition)
    instances.answer_of = ANSWERS.answer_of
    try:
        yield
    finally:
        rings.threading = threading
        instances.answer_of = answer_of
