"""Hosting: starts and stops instances. The cluster decides which; a node without a cluster runs all of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, gatherResults
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from canal_ha import logs
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig, InstanceConfig
from canal_ha.errors import CanalError, MetaUnreadable, MetaWriteFailed, ZooKeeperUnavailable
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.endings import Endings
from canal_ha.instance.instance import Instance
from canal_ha.model.alarm import NodeAlarm
from canal_ha.node.assembly import Assembly
from canal_ha.node.instance_log import InstanceLog
from canal_ha.node.pause_file import is_paused
from canal_ha.node.queues import Queues
from canal_ha.server.audit import Audit
from canal_ha.source.server.tap import Taps

LOG = logs.get(__name__)
FLUSH_WAIT_S = 0.5  # for the flush that begins an orderly stop
START_AGAIN_S = 5.0  # on a node of its own, after an instance gave up


class Hosting:
    """The instances of this node. Implements cluster.Owner.

    queues: writes their changes to Kafka, if so configured.
    configured: the destinations that could run here, by name.
    claims: how often each has begun to run here.
    halted: an operator stopped the node without ending its process: nothing starts here.
    """

    def __init__(self, config: CanalConfig, reactor: Any, embedded: Embedded, audit: Audit) -> None:
        """Host nothing yet.

        config: the node's.
        reactor: Twisted's.
        embedded: serves the instances.
        audit: writes down claims and releases, and what happens to cursors and sources.
        """
        self._audit = audit
        self.configured: dict[str, InstanceConfig] = {}
        self._reactor = reactor
        self._embedded = embedded
        self._log = InstanceLog(audit)
        self._assembly = Assembly(config, reactor, self._log, embedded.batch_ids)
        self.queues = Queues(reactor, embedded, self._log)
        self._stopping = self.halted = False
        self.claims: Counter[str] = Counter()
        self._endings = Endings()  # of queues, then of instances
        self._under_way: set[str] = set()  # destinations that are starting, or wait for the next attempt

    @property
    def alarms(self) -> tuple[NodeAlarm, ...]:
        """What needs a person here."""
        return self._log.alarms.at(time.time())

    @property
    def taps(self) -> Taps:
        """The dumps for many streams of a server."""
        return self._assembly.taps

    # ---- the cluster's Owner

    async def start(self, destination: str, ownership: Ownership) -> None:
        """Serve a destination that this node has claimed."""
        self._audit.note("claim", destination=destination, details={"epoch": ownership.epoch})
        await self._start(self._assembly.owned(self.configured[destination], ownership))

    async def _start(self, instance: Instance) -> None:
        try:
            await self._embedded.start(instance)
        except (MetaUnreadable, MetaWriteFailed, ZooKeeperUnavailable) as error:
            self._log.event(instance.config.destination, "instance.unloadable", error=str(error), alarm=True)
            raise
        if self._embedded.running(instance.config.destination) is not instance:
            return  # a stop has waited for this start
        self.queues.start(instance.config)
        self.claims[instance.config.destination] += 1

    async def stop(self, destination: str, reason: StopReason) -> None:
        """Stop serving. In an orderly stop, flush the cursors while this node still owns them."""
        self._log.event(destination, "instance.stopping", reason=reason.value)
        self._audit.note("release", destination=destination, details={"reason": reason.value})
        with self._endings.of(destination):
            await self.queues.stop(destination, orderly=reason.orderly)
            await self._embedded.stop(destination, flush=reason.orderly)

    async def ended(self, destination: str) -> None:
        """Wait until nothing of the destination is stopping here: nobody writes its cursors any more."""
        await self._endings.over(destination)
        await self._embedded.ended(destination)

    async def flush(self) -> None:
        """Make durable what clients have acknowledged by now. Without an answer go on after a moment."""
        flushes = [Deferred.fromCoroutine(instance.flush()) for instance in self._embedded.instances]
        flushed = gatherResults(flushes, consumeErrors=True).addErrback(_flush_broke)
        await DeferredList([flushed, deferLater(self._reactor, FLUSH_WAIT_S)], fireOnOneCallback=True)

    def runs(self, destination: str) -> bool:
        """Return whether an instance of the destination serves here."""
        return self._embedded.running(destination) is not None

    # ---- without a cluster

    async def start_alone(self, destination: str) -> None:
        """Serve a configured destination, unless it is paused. If it cannot start or gives up, try again later.

        Where it is stopping, wait for the end first. What is configured then counts.
        """
        await self.ended(destination)
        config = self.configured.get(destination)
        if config is None or self._stopping or self.halted:
            return
        if self._embedded.running(destination) or destination in self._under_way:
            return
        if is_paused(config):
            self._log.event(destination, "instance.paused")
            return

        def gave_up(error: CanalError) -> None:
            Deferred.fromCoroutine(self._again(destination, error)).addErrback(self._broke)

        self._under_way.add(destination)
        try:
            await self._start(self._assembly.alone(config, gave_up))
        except CanalError as error:
            failure: CanalError | None = error
        else:
            failure = None
        finally:
            self._under_way.discard(destination)
        if failure:
            gave_up(failure)

    async def stop_alone(self, destination: str) -> None:
        """Stop a destination that `start_alone` has started. One that does not run is no error."""
        with self._endings.of(destination):
            await self.queues.stop(destination, orderly=True)
            await self._embedded.stop(destination)

    async def stop_all(self) -> None:
        """Stop every instance here, also those that are starting, in good order. Wait for those that are stopping.

        The threads of the node end in any case. Then this raises the first error of a stop.
        """
        self._stopping = True
        here = {*self._embedded.destinations, *self._embedded.starting}
        stops = [self.stop(destination, StopReason.SHUTDOWN) for destination in sorted(here)]
        stops += [self.ended(destination) for destination in self._endings.destinations]
        try:
            ended: Sequence[tuple[bool, Any]] = await DeferredList(
                [Deferred.fromCoroutine(stop) for stop in stops], consumeErrors=True
            )
        finally:
            self._assembly.close()
        for stopped, result in ended:
            if not stopped:
                result.raiseException()

    async def _again(self, destination: str, error: CanalError) -> None:
        if destination in self._under_way:
            return
        self._under_way.add(destination)
        self._log.event(destination, "instance.gave_up", error=str(error), again_in_s=START_AGAIN_S, alarm=True)
        await self.stop_alone(destination)
        await deferLater(self._reactor, START_AGAIN_S)
        self._under_way.discard(destination)
        await self.start_alone(destination)

    def _broke(self, failure: Failure) -> None:
        LOG.error("instance.start_broken", error=failure.getErrorMessage(), trace=failure.getTraceback())


def _flush_broke(failure: Failure) -> None:
    LOG.error("instance.flush_broken", error=failure.getErrorMessage(), trace=failure.getTraceback())
