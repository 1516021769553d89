"""Denials: what ZooKeeper denies this node of what it needs to take part. Reactor thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from canal_ha.model.excerpt import some

WHAT_TO_DO = (
    "set canal.zookeeper.auth (or canal.zookeeper.sasl) to the account of the other nodes, and restart the node;"
    " docs/how-to/change-the-zookeeper-account.md tells how to change the account"
)


class Denials:
    """The znodes that this node may not read or create, until it can.

    log: structlog's.
    clock: returns s since 1970.
    """

    def __init__(self, log: Any, clock: Callable[[], float] = time.time) -> None:
        self.since = 0.0  # when the first of them was denied
        self._denied: dict[str, str] = {}  # path -> error
        self._log = log
        self._clock = clock

    @property
    def paths(self) -> tuple[str, ...]:
        """The znodes, sorted."""
        return tuple(sorted(self._denied))

    @property
    def text(self) -> str:
        """What is denied and what to do; "" if nothing is."""
        return f"ZooKeeper denies this node {some(self.paths)}: {WHAT_TO_DO}" if self._denied else ""

    def denied(self, path: str, error: Exception) -> None:
        """Take that ZooKeeper denies a znode. The log has it once."""
        if self._denied.get(path) == str(error):
            return
        self.since = self.since if self._denied else self._clock()
        self._denied[path] = str(error)
        self._log.error("zookeeper.denied", path=path, error=f"{error}; {WHAT_TO_DO}")

    def allowed(self, path: str) -> None:
        """Take that ZooKeeper does not deny a znode, or that the node does not need it any more."""
        if self._denied.pop(path, None) is not None:
            self._log.info("zookeeper.allowed", path=path)
