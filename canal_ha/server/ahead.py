"""RequestsAhead: a budget for the memory of requests that clients have sent and the node has not read. Reactor thread.

If all of them exceed the budget, the account or address that holds most loses the connection that holds most. So
nobody who fills the budget keeps others out.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol


class Sender(Protocol):
    """A connection whose client has sent ahead."""

    @property
    def holder(self) -> str:
        """Its account or address."""

    def sent_too_much(self) -> None:
        """End the connection at once, and weigh nothing."""


class RequestsAhead:
    """See the module."""

    def __init__(self, most_bytes: int) -> None:
        """most_bytes: the budget."""
        self.size_bytes = 0
        self.most_bytes = most_bytes
        self._sizes: dict[Sender, int] = {}  # of the connections that hold some

    def weigh(self, connection: Sender, size_bytes: int) -> None:
        """Tell how much a connection holds now."""
        self.size_bytes += size_bytes - self._sizes.pop(connection, 0)
        if size_bytes:
            self._sizes[connection] = size_bytes

    def keep_within(self) -> None:
        """End connections until the others hold no more than the budget."""
        while self.size_bytes > self.most_bytes:
            held: Counter[str] = Counter()
            for connection, size_bytes in self._sizes.items():
                held[connection.holder] += size_bytes
            ((most, _),) = held.most_common(1)
            mine = [connection for connection in self._sizes if connection.holder == most]
            max(mine, key=self._sizes.__getitem__).sent_too_much()
