"""Hosting: starts and stops instances, when the cluster decides or, on a node of its own, as configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from canal_ha import logs
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig, InstanceConfig
from canal_ha.errors import CanalError, Fenced
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.instance import Instance
from canal_ha.node.assembly import assemble
from canal_ha.node.instance_log import InstanceLog

LOG = logs.get(__name__)
START_AGAIN_S = 5.0  # on a node of its own, after an instance gave up


class Hosting:
    """The instances of this node. `configured`: what could run here, by name. Implements cluster.Owner."""

    def __init__(self, config: CanalConfig, reactor: Any, embedded: Embedded) -> None:
        self.configured: dict[str, InstanceConfig] = {}
        self._config = config
        self._reactor = reactor
        self._embedded = embedded
        self._told = InstanceLog()
        self._stopping = False
        self._under_way: set[str] = set()  # destinations that start, or wait to be tried again

    # ---- the cluster's Owner

    async def start(self, destination: str, ownership: Ownership) -> None:
        """Serve a destination that this node has claimed."""

        def lost(error: CanalError) -> None:
            if isinstance(error, Fenced):
                ownership.fenced()
            else:
                ownership.failed(str(error))

        config = self.configured[destination]
        await self._embedded.start(self._assembled(config, ownership, lost))

    async def stop(self, destination: str, reason: StopReason) -> None:
        """Stop to serve; acknowledged cursors are flushed while this node still owns them."""
        self._told.event(destination, "instance.stopping", reason=reason.value)
        await self._embedded.stop(destination, flush=reason.orderly)

    # ---- without a cluster

    async def start_alone(self, destination: str) -> None:
        """Serve a configured destination; one that cannot start, or gives up, is tried again by itself."""
        config = self.configured.get(destination)
        if config is None or self._stopping or self._embedded.running(destination) or destination in self._under_way:
            return

        def lost(error: CanalError) -> None:
            Deferred.fromCoroutine(self._again(destination, error)).addErrback(self._broke)

        self._under_way.add(destination)
        try:
            await self._embedded.start(self._assembled(config, None, lost))
        except CanalError as error:
            failure: CanalError | None = error
        else:
            failure = None
        finally:
            self._under_way.discard(destination)
        if failure:
            lost(failure)

    async def stop_all(self) -> None:
        """Stop everything that runs here, in good order."""
        self._stopping = True
        stops = [self.stop(destination, StopReason.SHUTDOWN) for destination in self._embedded.destinations]
        await gatherResults([Deferred.fromCoroutine(stop) for stop in stops])

    def _assembled(
        self, config: InstanceConfig, ownership: Ownership | None, lost: Callable[[CanalError], None]
    ) -> Instance:
        batch_ids = self._embedded.batch_ids
        return assemble(self._config, config, self._reactor, self._told, batch_ids, ownership, lost)

    async def _again(self, destination: str, error: CanalError) -> None:
        if destination in self._under_way:
            return
        self._under_way.add(destination)
        self._told.event(destination, "instance.gave_up", error=str(error), again_in_s=START_AGAIN_S, alarm=True)
        await self._embedded.stop(destination)
        await deferLater(self._reactor, START_AGAIN_S)
        self._under_way.discard(destination)
        await self.start_alone(destination)

    def _broke(self, failure: Failure) -> None:
        LOG.error("instance.start_broken", error=failure.getErrorMessage(), trace=failure.getTraceback())
