"""Batch ids: unique for the lifetime of a node's process. Reactor thread.

A connection can outlive the stream that it reads: the node loses a destination and claims it again, the configuration
is reloaded, or the client unsubscribes and subscribes. The client may then acknowledge a batch of the old stream. If
the new stream reused that id, the cursor would pass rows that the client never processed. Connections end with the
process, so remembering ids for the lifetime of the process is enough.
"""

from __future__ import annotations

FIRST_OF_READS = 10**15 + 1  # beyond any client's batches; programs that keep ids as doubles still store it exactly


class Numbers:
    """Ids that grow by one, each handed out once."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def take(self) -> int:
        """Return the next id."""
        taken = self._next
        self._next += 1
        return taken


class BatchIds:
    """The batch ids of a process; it has one such object. It keeps one number for each client id that had a stream.

    reads: ids of all private reads. They differ from the ids of all clients' streams, because a connection that starts
    a private read may still acknowledge batches that it got before.
    """

    def __init__(self) -> None:
        self.reads = Numbers(FIRST_OF_READS)
        self._of_clients: dict[tuple[str, int], Numbers] = {}

    def of_client(self, destination: str, client_id: int) -> Numbers:
        """Return the batch ids of one client, from 1 on, for all its streams."""
        return self._of_clients.setdefault((destination, client_id), Numbers())
