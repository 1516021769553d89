"""Batch ids that stay valid for a caller across a fail-over. Pure.

Every server counts from 1, so an id alone does not identify a batch: a late acknowledgement could remove another batch.
The caller's ids therefore always grow. They equal the server's ids as long as those grow too.
"""

from __future__ import annotations

from canal_ha.errors import LocalProtocolError


class Numbering:
    """The ids of one connector, across all its connections."""

    def __init__(self) -> None:
        self._newest = 0
        self._shift: int | None = None  # added to the server's id; set by a connection's first batch
        self._in_flight: list[int] = []

    def new_connection(self) -> None:
        """Forget the batches in flight: they are delivered again with new ids."""
        self._shift = None
        self._in_flight.clear()

    def handed_out(self, server_id: int) -> int:
        """Return the caller's id of a delivered batch."""
        if self._shift is None:
            self._shift = 0 if server_id > self._newest else self._newest
        self._newest = max(self._newest, server_id + self._shift)
        self._in_flight.append(server_id + self._shift)
        return server_id + self._shift

    def server_id(self, batch_id: int) -> int | None:
        """Return the server's id of a batch in flight on this connection; None for other batches.

        Raises LocalProtocolError if no such batch was ever delivered.
        """
        if not 0 < batch_id <= self._newest:
            raise LocalProtocolError(f"batch {batch_id} was never delivered")
        return batch_id - (self._shift or 0) if batch_id in self._in_flight else None

    def acknowledged(self, batch_id: int) -> None:
        """Remove the batch from those in flight."""
        self._in_flight.remove(batch_id)

    def rolled_back(self, batch_id: int = 0) -> None:
        """Remove the batch and all later ones from those in flight; 0: all."""
        self._in_flight = [other for other in self._in_flight if batch_id and other < batch_id]
