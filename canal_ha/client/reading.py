"""The progress of a private read, so that it continues after fail-overs where its caller acknowledged."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.client.async_connector import AsyncConnector
from canal_ha.client.message import Message, parse
from canal_ha.model.position import LogPosition


class Reading:
    """One private read. A snapshot begins again on every connection.

    start, until, filter, snapshot: as in SimpleConnector.read_from.
    begun (attribute): where the read began on the newest connection; None if the server did not say.
    """

    def __init__(self, start: str = "", until: str = "", filter: str = "", snapshot: Sequence[str] = ()) -> None:
        self.begun: LogPosition | None = None
        self._start = start
        self._until = until
        self._filter = filter
        self._snapshot = snapshot
        self._ends: dict[int, str] = {}  # batch id -> JOURNAL:OFFSET of its last entry

    async def begin(self, link: AsyncConnector) -> None:
        """Start reading on this connection; unacknowledged batches are delivered again."""
        self._ends.clear()
        self.begun = await link.read_from(self._start, self._until, self._filter, self._snapshot)

    def handed_out(self, message: Message) -> None:
        """Note the end of a delivered batch, under the caller's id."""
        header = parse(message.raw_entries[-1]).header
        self._ends[message.id] = f"{header.logfileName}:{header.logfileOffset}"

    def acknowledged(self, batch_id: int) -> None:
        """Make later connections begin at the transaction in which this batch ended."""
        end = self._ends.pop(batch_id, self._start)
        if not self._snapshot:
            self._start = end
