"""When to switch to the other source, and which that is (docs/protocol.md#source-switch). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.model.position import LogPosition


class Role(Enum):
    """The two servers of a destination, named after their configuration keys."""

    MASTER = "master"
    STANDBY = "standby"

    @property
    def other(self) -> Role:
        """The role that a switch leads to."""
        return Role.STANDBY if self is Role.MASTER else Role.MASTER


def server(config: InstanceConfig, role: Role) -> SourceConfig | None:
    """Return the server of a role; None for a standby without address. canal accepts an empty address and fails."""
    return config.master if role is Role.MASTER else config.standby


def first(config: InstanceConfig, cursors: Iterable[LogPosition], chosen: str = "") -> Role:
    """Return where a destination begins to read: the chosen server, else that of the newest cursor, else the master.

    config: of the destination.
    cursors: of its clients.
    chosen: host:port of the server that was switched to last; "" if none was, or if nobody knows.
    """
    if config.standby is None:
        return Role.MASTER
    if chosen not in (config.master.address, config.standby.address):
        newest = max(cursors, key=lambda cursor: cursor.timestamp_ms, default=None)
        chosen = "" if newest is None else f"{newest.address}:{newest.port}"
    if chosen == config.master.address:  # first, because both keys may name one server
        return Role.MASTER
    return Role.STANDBY if chosen == config.standby.address else Role.MASTER


@dataclass(slots=True)
class Failures:
    """Consecutive failures of the detecting statement. tolerated: canal.instance.detecting.retry.threshold."""

    tolerated: int
    count: int = 0

    def failed(self) -> bool:
        """Count a failure. Return True if it exceeds the threshold, and start counting again."""
        self.count += 1
        if self.count <= self.tolerated:
            return False
        self.count = 0
        return True

    def succeeded(self) -> bool:
        """Reset the count. Return True if the source had failed before."""
        failed, self.count = self.count > 0, 0
        return failed
