"""Batch ids a caller can keep over a fail-over. Pure.

Every server counts from 1, so an id alone does not say whose batch it is: an acknowledgement that is late could take
away another one. The ids handed to the caller therefore always grow. They are the server's own as long as those do.
"""

from __future__ import annotations

from canal_ha.errors import LocalProtocolError


class Numbering:
    """Ids of one connector, over all its connections."""

    def __init__(self) -> None:
        self._newest = 0
        self._shift: int | None = None  # from the server's id to ours; decided by a connection's first batch
        self._in_flight: list[int] = []

    def new_connection(self) -> None:
        """What was in flight comes again: acknowledgements of it mean nothing any more."""
        self._shift = None
        self._in_flight.clear()

    def handed_out(self, server_id: int) -> int:
        """The caller's id of a batch that came."""
        if self._shift is None:
            self._shift = 0 if server_id > self._newest else self._newest
        self._newest = max(self._newest, server_id + self._shift)
        self._in_flight.append(server_id + self._shift)
        return server_id + self._shift

    def server_id(self, batch_id: int) -> int | None:
        """The server's id of a batch in flight on this connection, else None.

        Raises LocalProtocolError when no such batch was ever handed out.
        """
        if not 0 < batch_id <= self._newest:
            raise LocalProtocolError(f"batch {batch_id} was never handed out")
        return batch_id - (self._shift or 0) if batch_id in self._in_flight else None

    def acknowledged(self, batch_id: int) -> None:
        """It is not in flight any more."""
        self._in_flight.remove(batch_id)

    def rolled_back(self, batch_id: int = 0) -> None:
        """Neither is it, nor any later one; 0: none is."""
        self._in_flight = [other for other in self._in_flight if batch_id and other < batch_id]
