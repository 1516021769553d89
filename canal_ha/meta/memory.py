"""MemoryBackend: cursors that live as long as the process (canal's memory-instance)."""

from __future__ import annotations

from canal_ha.meta.repository import Change, Snapshot, apply


class MemoryBackend:
    """Keeps the snapshot as an attribute; every write succeeds."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot or Snapshot()

    async def load(self) -> Snapshot:
        """See MetaBackend."""
        return self.snapshot

    async def write(self, changes: tuple[Change, ...]) -> None:
        """See MetaBackend."""
        self.snapshot = apply(self.snapshot, changes)

    async def holder(self, client_id: int) -> str:
        """Return "": only clients in a cluster have locks."""
        return ""
