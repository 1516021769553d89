"""Wakeup: decides when the reactor hears that a GET can be answered. It runs on the threads of feeds."""

from __future__ import annotations

from collections.abc import Callable


class Wakeup:
    """Wakes the reactor at once, or after the feed has finished a short piece of work.

    A reactor that wakes up while the feed decodes finds the interpreter taken and sleeps again: it would wake up twice
    for each transaction.

    wake: wakes the reactor.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._busy = False
        self._due = False

    def data(self, full: bool) -> None:
        """A GET can be answered. full: the ring has no room, so the feed waits and the reactor must wake up now."""
        self._due = True  # before it looks: another thread than that of `busy` calls while the feed joins a shared dump
        if not self._busy or full:
            self._due = False
            self._wake()

    def busy(self, busy: bool) -> None:
        """See FeedRequest."""
        self._busy = busy
        if self._due and not busy:
            self._due = False
            self._wake()
