"""Seeing: tells a node's Sightings what happens, every few seconds. Reactor thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.task import LoopingCall

from canal_ha.admin.seen import SAMPLE_S, Sightings
from canal_ha.cluster.cluster import Cluster
from canal_ha.instance.status import InstanceStatus

LOOK_S = 3.0


class Seeing:
    """Looks at the cluster every LOOK_S, and at the lag of the streams every SAMPLE_S."""

    def __init__(
        self, seen: Sightings, status: Callable[[], Sequence[InstanceStatus]], cluster: Cluster | None, reactor: Any
    ) -> None:
        """seen: hears of it. status: of the instances here. cluster: None without ZooKeeper. reactor: Twisted's."""
        self._seen = seen
        self._status = status
        self._cluster = cluster
        self._loops = [(LoopingCall(self._look), LOOK_S), (LoopingCall(self._sample), SAMPLE_S)]
        for loop, _ in self._loops:
            loop.clock = reactor

    def start(self) -> None:
        """Begin to look."""
        for loop, every_s in self._loops:
            loop.start(every_s)

    def stop(self) -> None:
        """Stop looking."""
        for loop, _ in self._loops:
            if loop.running:
                loop.stop()

    def _look(self) -> None:
        cluster = self._cluster
        if not cluster or not cluster.members.names:  # the list has not been read
            return
        now = time.time()
        self._seen.nodes(cluster.members.names, now)
        self._seen.owners(cluster.owners(), now)

    def _sample(self) -> None:
        self._seen.sample(self._status(), time.time())
