"""Claim: the right of this node to run a destination, as the destination's instance sees it."""

from __future__ import annotations

from typing import Protocol

from canal_ha.errors import CanalError


class Claim(Protocol):
    """Is checked before every answer, because another node may have taken the destination over meanwhile."""

    def check(self) -> None:
        """Raise NotRunningHere as soon as this node can no longer prove that it owns the destination."""

    def lost(self, error: CanalError) -> None:
        """The instance cannot go on: its durable write was fenced, or a chore of it broke."""
