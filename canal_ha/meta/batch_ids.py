"""Batch ids: those that a node hands out for as long as its process lives. Reactor thread.

A connection can outlive the stream that it reads. The node loses a destination and claims it again, the configuration
is loaded again, or the client unsubscribes and subscribes. The client may then acknowledge a batch of the stream that
is gone. No batch of the new stream may have that id, or the cursor would pass rows that the client never processed.
Connections end with the process, so the process is what has to remember.
"""

from __future__ import annotations


class Numbers:
    """Ids that grow by one, each handed out once."""

    def __init__(self) -> None:
        self._next = 1

    def take(self) -> int:
        """The next id."""
        taken = self._next
        self._next += 1
        return taken


class BatchIds:
    """One object a process. It remembers one number for each client id that ever had a stream here."""

    def __init__(self) -> None:
        self._of_clients: dict[tuple[str, int], Numbers] = {}

    def of_client(self, destination: str, client_id: int) -> Numbers:
        """The ids of one client's batches, from 1 on, over all its streams."""
        return self._of_clients.setdefault((destination, client_id), Numbers())
