"""Wake: what one waiting GET awaits, in place of a Deferred. Reactor thread.

A Deferred keeps a chain of callbacks, and takes some two hundred bytecode instructions to wake one coroutine. A Wake
has one callback. Whoever drives the coroutine adds it, and throws a Failure into the coroutine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, Self

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure


class Awaited(Protocol):
    """What a Wake and a Deferred have in common."""

    called: bool

    def callback(self, result: None, /) -> None:
        """End the wait."""

    def errback(self, fail: BaseException, /) -> None:
        """End the wait with an error."""

    def addBoth(self, callback: Callable[[Any], Any], /) -> object:
        """Call this with the result or the Failure, at once if it is there."""

    def cancel(self) -> None:
        """End the wait with CancelledError, unless it is over."""

    def __await__(self) -> Generator[Any, Any, None]: ...


class Wake:
    """See the module and Awaited."""

    __slots__ = ("_call", "_failure", "called")

    def __init__(self) -> None:
        self.called = False
        self._call: Callable[[Any], Any] | None = None
        self._failure: Failure | None = None

    def callback(self, result: None = None) -> None:
        """See Awaited."""
        self.called = True
        if self._call:
            self._call(None)

    def errback(self, error: BaseException) -> None:
        """See Awaited."""
        self.called = True
        self._failure = failure = Failure(error)
        if self._call:
            self._call(failure)

    def addBoth(self, call: Callable[[Any], Any]) -> None:
        """See Awaited."""
        if self.called:
            call(self._failure)
        else:
            self._call = call

    def cancel(self) -> None:
        """See Awaited."""
        if not self.called:
            self.errback(CancelledError())

    def __await__(self) -> Generator[Self, None, None]:
        if not self.called:
            yield self
        elif self._failure:
            self._failure.raiseException()
