"""Standing: what a node is in its cluster at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Standing:
    """A node among others.

    ready: whether it does what it should; see Unready.
    zookeeper: whether ZooKeeper is connected; None on a node without it.
    sessions: with ZooKeeper since the start; a second one means that the first has expired.
    states: destination -> running, standby, or another state of its race; lazy before its first client.
    claims: destination -> how often this node has begun to run it.
    """

    ready: bool
    zookeeper: bool | None = None
    sessions: int = 0
    states: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, int] = field(default_factory=dict)
