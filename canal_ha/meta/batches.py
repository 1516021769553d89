"""Batches: the batches that a client has got and not acknowledged (docs/protocol.md#batch-ids)."""

from __future__ import annotations

from canal_ha.errors import BatchNotFirst, BatchUnknown
from canal_ha.meta.batch_ids import Numbers
from canal_ha.model.batch import PositionRange


class Batches:
    """The batches in flight of one stream, oldest first. ids: the client's batch ids, shared with its other streams."""

    def __init__(self, client_id: int, ids: Numbers) -> None:
        self._client_id = client_id
        self._ids = ids
        self._open: dict[int, tuple[PositionRange, int]] = {}  # with the number of entries, in order of ids

    def open(self, range: PositionRange, entries: int) -> int:
        """Record a batch as handed out and return its id. entries: how many it has."""
        batch_id = self._ids.take()
        self._open[batch_id] = range, entries
        return batch_id

    def ack(self, batch_id: int) -> PositionRange:
        """Close the oldest batch and return its range.

        Raises BatchNotFirst if the batch is not the oldest, and BatchUnknown if it is not in flight in this stream: an
        earlier stream of the client may have handed it out.
        """
        self._check("ack", batch_id)
        return self._open.pop(batch_id)[0]

    def rollback(self, batch_id: int) -> None:
        """Forget the oldest batch and all later ones, because the ring rewinds as a whole. Raises as `ack` does."""
        self._check("rollback", batch_id)
        self._open.clear()

    def clear(self) -> None:
        """Forget all batches; ids continue."""
        self._open.clear()

    @property
    def ids(self) -> tuple[int, ...]:
        """Ids of the batches in flight, ascending."""
        return tuple(self._open)

    @property
    def entries(self) -> int:
        """How many entries the batches in flight have."""
        return sum(entries for _, entries in self._open.values())

    def _check(self, verb: str, batch_id: int) -> None:
        if batch_id not in self._open:
            raise BatchUnknown(verb, self._client_id, batch_id)
        first = next(iter(self._open))
        if batch_id != first:
            raise BatchNotFirst(batch_id, first)
