"""Twisted's reactor, which runs in a thread of its own while tests use it."""

from __future__ import annotations

import threading
import time
from typing import Any

from twisted.internet import reactor as global_reactor

reactor: Any = global_reactor


def running_reactor() -> Any:
    """Return the reactor of this process; the first call starts it."""
    if not reactor.running:
        threading.Thread(target=reactor.run, kwargs={"installSignalHandlers": False}, daemon=True).start()
        while not reactor.running:
            time.sleep(0.001)
    return reactor


class Blocked:
    """A context in which the reactor does nothing."""

    def __init__(self) -> None:
        self._begun, self._over = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        running_reactor().callFromThread(self._wait)
        assert self._begun.wait(10)

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _wait(self) -> None:
        self._begun.set()
        self._over.wait(20)
