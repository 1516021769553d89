"""Clock: the time and the timers of Twisted's reactor, or of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def active(self) -> bool: ...

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The part of Twisted's reactor that tells the time and calls later. Times are in seconds."""

    def seconds(self) -> float: ...

    def callLater(self, delay: float, call: Callable[..., object], /) -> Timer: ...
