"""Batches: what a client has got and not acknowledged yet (canal's MemoryMetaManager, specification 5.5)."""

from __future__ import annotations

from canal_ha.errors import BatchNotFirst, BatchUnknown
from canal_ha.model.batch import PositionRange


class Batches:
    """Batches of one client, oldest first. Ids start at 1, grow by 1 and are never used twice."""

    def __init__(self, client_id: int) -> None:
        self._client_id = client_id
        self._last_id = 0
        self._open: dict[int, PositionRange] = {}  # in order of ids

    def open(self, range: PositionRange) -> int:
        """Note a batch as handed out and return its id."""
        self._last_id += 1
        self._open[self._last_id] = range
        return self._last_id

    def ack(self, batch_id: int) -> PositionRange:
        """Close the oldest batch. Raises BatchUnknown, or BatchNotFirst for one that is not the oldest."""
        self._check("ack", batch_id)
        return self._open.pop(batch_id)

    def rollback(self, batch_id: int) -> None:
        """Forget the oldest batch and all later ones, because the ring rewinds as a whole. Raises as `ack` does."""
        self._check("rollback", batch_id)
        self._open.clear()

    def clear(self) -> None:
        """Forget all batches; ids go on."""
        self._open.clear()

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids in flight, ascending."""
        return tuple(self._open)

    @property
    def latest(self) -> PositionRange | None:
        """The newest batch in flight, or None."""
        return self._open[next(reversed(self._open))] if self._open else None

    def _check(self, verb: str, batch_id: int) -> None:
        if batch_id not in self._open:
            raise BatchUnknown(verb, self._client_id, batch_id)
        first = next(iter(self._open))
        if batch_id != first:
            raise BatchNotFirst(batch_id, first)
