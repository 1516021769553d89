"""The progress of a private read, so that it continues after fail-overs where its caller acknowledged."""

from __future__ import annotations

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.message import Message, parse


class Reading:
    """One private read. start, until, filter: as in SimpleConnector.read_from."""

    def __init__(self, start: str = "", until: str = "", filter: str = "") -> None:
        self._start = start
        self._until = until
        self._filter = filter
        self._ends: dict[int, str] = {}  # batch id -> JOURNAL:OFFSET of its last entry

    def begin(self, link: SimpleConnector) -> None:
        """Start reading on this connection; unacknowledged batches are delivered again."""
        self._ends.clear()
        link.read_from(self._start, self._until, self._filter)

    def handed_out(self, message: Message) -> None:
        """Note the end of a delivered batch, under the caller's id."""
        header = parse(message.raw_entries[-1]).header
        self._ends[message.id] = f"{header.logfileName}:{header.logfileOffset}"

    def acknowledged(self, batch_id: int) -> None:
        """Make later connections begin at the transaction in which this batch ended."""
        self._start = self._ends.pop(batch_id, self._start)
