"""Queues: write the changes of this node's destinations to Kafka, with canal.serverMode = kafka. Reactor thread.

Each destination that runs here has a flow, as a pipeline has one (canal_ha.pipeline.flow), on a thread of its own. It
begins after its instance and ends before it. Kafka has the progress, so the next owner of a destination continues
behind the last committed transaction, and Kafka refuses those of an owner that was replaced and does not know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import DeferredList
from twisted.internet.task import deferLater

from canal_ha.config.model import InstanceConfig
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.status import QueueStatus
from canal_ha.node.instance_log import InstanceLog

if TYPE_CHECKING:
    from canal_ha.node.queue_flow import QueueFlow

LET_GO_S = 5.0  # for the transaction that is being committed, in an orderly stop


class Queues:
    """The flows of this node; see the module."""

    def __init__(self, reactor: Any, embedded: Embedded, log: InstanceLog) -> None:
        """Begin without flows.

        reactor: Twisted's.
        embedded: serves the instances.
        log: hears of failures.
        """
        self._reactor = reactor
        self._embedded = embedded
        self._log = log
        self._running: dict[str, QueueFlow] = {}

    def start(self, config: InstanceConfig) -> None:
        """Begin to write the changes of a destination that runs here. Does nothing if clients take them."""
        if config.queue is not None:
            from canal_ha.node.queue_flow import QueueFlow  # needs libraries that other nodes do without

            if before := self._running.pop(config.destination, None):
                before.end()  # two flows of one client id would take rows from each other
            flow = QueueFlow(config, config.queue, self._reactor, self._embedded, self._log)
            self._running[config.destination] = flow
            flow.begin()

    async def stop(self, destination: str, *, orderly: bool) -> None:
        """End the flow of a destination. orderly: wait a moment for the transaction that is being committed."""
        queue = self._running.pop(destination, None)
        if queue is not None:
            ended = queue.end()
            if orderly:
                await DeferredList([ended, deferLater(self._reactor, LET_GO_S)], fireOnOneCallback=True)

    def user_of(self, destination: str, client_id: int) -> str:
        """Return what to call the flow that has this client id; "" if none has."""
        queue = self._running.get(destination)
        return "the flow of this node into Kafka" if queue and queue.client_id == client_id else ""

    def status(self, destination: str) -> QueueStatus | None:
        """Return the figures of this moment; None if clients take the changes."""
        queue = self._running.get(destination)
        return queue.status() if queue else None
