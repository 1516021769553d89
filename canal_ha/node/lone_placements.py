"""Destinations of a node without ZooKeeper: they run here or are paused, and a file keeps the pause. Reactor thread."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.mover import HandedOver
from canal_ha.cluster.placement import Placed
from canal_ha.config.model import InstanceConfig
from canal_ha.errors import PlacementRefused
from canal_ha.node.hosting import Hosting
from canal_ha.node.pause_file import is_paused, pause_file

NO_CLUSTER = "this node has no cluster, because canal.zkServers is blank: there is no other node"


class LonePlacements:
    """Implements admin.Placements. node: its address; hosting: what runs here."""

    def __init__(self, node: str, hosting: Hosting) -> None:
        self._node = node
        self._hosting = hosting

    async def placed(self) -> Sequence[Placed]:
        """See Placements."""
        return [
            Placed(
                name,
                self._node if self._hosting.runs(name) else "",
                members={self._node: True},
                paused=is_paused(config),
            )
            for name, config in sorted(self._hosting.configured.items())
        ]

    async def move(self, destination: str, to: str, *, dry_run: bool) -> HandedOver:
        """Raise PlacementRefused."""
        raise PlacementRefused(NO_CLUSTER)

    async def rebalance(self, *, dry_run: bool) -> Sequence[HandedOver]:
        """Raise PlacementRefused."""
        raise PlacementRefused(NO_CLUSTER)

    async def pause(self, destination: str, *, dry_run: bool) -> str:
        """See Placements."""
        config = self._config(destination)
        if is_paused(config):
            raise PlacementRefused(f"{destination} is paused already")
        ran_on = self._node if self._hosting.runs(destination) else ""
        if not dry_run:
            try:
                pause_file(config).parent.mkdir(parents=True, exist_ok=True)
                pause_file(config).touch()
            except OSError as error:
                raise PlacementRefused(f"{destination} is not paused: {error}") from error
            await self._hosting.stop(destination, StopReason.PAUSED)
        return ran_on

    async def resume(self, destination: str, *, dry_run: bool) -> str:
        """See Placements."""
        config = self._config(destination)
        if not is_paused(config):
            raise PlacementRefused(f"{destination} is not paused")
        if dry_run:
            return ""
        try:
            pause_file(config).unlink(missing_ok=True)
        except OSError as error:
            raise PlacementRefused(f"{destination} is still paused: {error}") from error
        if not config.lazy:
            await self._hosting.start_alone(destination)
        return self._node if self._hosting.runs(destination) else ""

    def _config(self, destination: str) -> InstanceConfig:
        config = self._hosting.configured.get(destination)
        if config is None:
            raise PlacementRefused(f"this node has no destination {destination}; `canal-ha destination list` shows all")
        return config
