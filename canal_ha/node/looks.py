"""Looks: something that a node looks at again and again, whatever happens. Reactor thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall


class Looks:
    """After an unforeseen error of a look, the next look goes on; the same error is logged once."""

    def __init__(
        self,
        look: Callable[[], Coroutine[Deferred[Any], Any, None]],
        period_s: float,
        reactor: Any,
        log: Any,
        event: str,
    ) -> None:
        """Look at nothing yet.

        look: looks once.
        period_s: from one look to the next.
        reactor: Twisted's.
        log: structlog's.
        event: the name of an unforeseen error in the log.
        """
        self._look = look
        self._period_s = period_s
        self._log = log
        self._event = event
        self._broken = ""  # the unforeseen error of the last look
        self._loop = LoopingCall(lambda: Deferred.fromCoroutine(self._look_safely()))
        self._loop.clock = reactor

    def start(self, *, now: bool) -> None:
        """Begin to look. now: for the first time now, instead of after a period."""
        self._loop.start(self._period_s, now=now)

    def stop(self) -> None:
        """Look no more."""
        if self._loop.running:
            self._loop.stop()

    async def _look_safely(self) -> None:
        broken = ""
        try:
            await self._look()
        except Exception as error:
            broken = repr(error)
            if broken != self._broken:
                self._log.exception(self._event, error=broken)
        self._broken = broken
