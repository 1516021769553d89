"""Bell: when the reactor hears that a GET can be answered. The feed's thread, all of it."""

from __future__ import annotations

from collections.abc import Callable


class Wakeup:
    """Rings at once; while the feed is busy with something short, when it is done with that.

    A reactor woken earlier would find the interpreter taken, sleep again, and be woken twice for each transaction.
    tell: wakes it; urgent: whether it must not wait, because the feed will.
    """

    def __init__(self, tell: Callable[[], None], urgent: Callable[[], bool]) -> None:
        self._tell = tell
        self._urgent = urgent
        self._busy = False
        self._due = False

    def ring(self) -> None:
        """A GET can be answered."""
        if self._busy and not self._urgent():
            self._due = True
        else:
            self._tell()

    def busy(self, busy: bool) -> None:
        """See FeedRequest."""
        self._busy = busy
        if self._due and not busy:
            self._due = False
            self._tell()
