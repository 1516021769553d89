"""When to leave a source for the other one, and which that is (docs/protocol.md#source-switch). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.model.position import LogPosition


class Role(Enum):
    """The two servers of a destination, by the keys that configure them."""

    MASTER = "master"
    STANDBY = "standby"

    @property
    def other(self) -> Role:
        """Where a switch leads to."""
        return Role.STANDBY if self is Role.MASTER else Role.MASTER


def server(config: InstanceConfig, role: Role) -> SourceConfig | None:
    """The server of a role; None for a standby without address. canal takes an empty address for one and dies of it."""
    return config.master if role is Role.MASTER else config.standby


def first(config: InstanceConfig, cursors: Iterable[LogPosition]) -> Role:
    """Where a destination begins to read: with the server that the newest cursor is of, else with the master."""
    newest = max(cursors, key=lambda cursor: cursor.timestamp_ms, default=None)
    standby = config.standby
    if newest is None or standby is None or (newest.address, newest.port) == (config.master.host, config.master.port):
        return Role.MASTER
    return Role.STANDBY if (newest.address, newest.port) == (standby.host, standby.port) else Role.MASTER


def as_read(config: InstanceConfig, cursors: Iterable[LogPosition]) -> InstanceConfig:
    """The destination with the server as its master that these cursors are of."""
    target = server(config, first(config, cursors))
    return config if target is None else replace(config, master=target)


@dataclass(slots=True)
class Failures:
    """Consecutive failures of the detecting statement. tolerated: canal.instance.detecting.retry.threshold."""

    tolerated: int
    count: int = 0

    def failed(self) -> bool:
        """One more. True when it is one too many: counting begins anew then."""
        self.count += 1
        if self.count <= self.tolerated:
            return False
        self.count = 0
        return True

    def succeeded(self) -> bool:
        """The source answered. True when it had failed before."""
        failed, self.count = self.count > 0, 0
        return failed
