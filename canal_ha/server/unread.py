"""UnreadReplies: a budget for the memory of replies that clients have asked for and do not read. Reactor thread.

A reply counts with its full size until its last byte has left, because it holds its segments for so long. If all of
them exceed the budget, the account or address that holds most loses its oldest connection.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol


class Debtor(Protocol):
    """A connection whose client does not read."""

    def cut_off(self) -> None:
        """End the connection at once."""


@dataclass(frozen=True, slots=True)
class _Unread:
    holder: str
    size_bytes: int


class UnreadReplies:
    """See the module. A reply that waits alone stays, whatever its size."""

    def __init__(self, most_bytes: int) -> None:
        """most_bytes: the budget."""
        self.size_bytes = 0
        self.most_bytes = most_bytes
        self._waiting: dict[Debtor, _Unread] = {}  # the oldest first

    def begin(self, connection: Debtor, holder: str, size_bytes: int) -> None:
        """Count a reply that the client did not take at once.

        connection: has one reply at a time.
        holder: its account or address.
        size_bytes: of the whole reply.
        """
        self._waiting[connection] = _Unread(holder, size_bytes)
        self.size_bytes += size_bytes
        while self.size_bytes > self.most_bytes and len(self._waiting) > 1:
            held: Counter[str] = Counter()
            for each in self._waiting.values():
                held[each.holder] += each.size_bytes
            ((most, _),) = held.most_common(1)
            oldest = next(debtor for debtor, each in self._waiting.items() if each.holder == most)
            self.end(oldest)
            oldest.cut_off()

    def end(self, connection: Debtor) -> None:
        """Its reply has left, or the connection is lost."""
        gone = self._waiting.pop(connection, None)
        if gone:
            self.size_bytes -= gone.size_bytes
