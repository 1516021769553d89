"""Batch ids: those that a node hands out for as long as its process lives. Reactor thread.

A connection can outlive the stream that it reads. The node loses a destination and claims it again, the configuration
is loaded again, or the client unsubscribes and subscribes. The client may then acknowledge a batch of the stream that
is gone. No batch of the new stream may have that id, or the cursor would pass rows that the client never processed.
Connections end with the process, so the process is what has to remember.
"""

from __future__ import annotations

FIRST_OF_READS = 10**15 + 1  # no client gets so many batches; programs that keep ids as doubles still hold it exactly


class Numbers:
    """Ids that grow by one, each handed out once."""

    def __init__(self, first: int = 1) -> None:
        self._next = first

    def take(self) -> int:
        """The next id."""
        taken = self._next
        self._next += 1
        return taken


class BatchIds:
    """One object a process. It remembers one number for each client id that ever had a stream here.

    reads: ids of all private reads. They are no ids of any client's stream, because a connection that begins to read
    privately may still acknowledge batches that it got before.
    """

    def __init__(self) -> None:
        self.reads = Numbers(FIRST_OF_READS)
        self._of_clients: dict[tuple[str, int], Numbers] = {}

    def of_client(self, destination: str, client_id: int) -> Numbers:
        """The ids of one client's batches, from 1 on, over all its streams."""
        return self._of_clients.setdefault((destination, client_id), Numbers())
