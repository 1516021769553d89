"""A private read that goes on over fail-overs: where it stands, as its caller has acknowledged."""

from __future__ import annotations

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.message import Message, parse


class Reading:
    """start, until, filter: as in SimpleConnector.read_from."""

    def __init__(self, start: str = "", until: str = "", filter: str = "") -> None:
        self._start = start
        self._until = until
        self._filter = filter
        self._ends: dict[int, str] = {}  # batch id -> JOURNAL:OFFSET of its last entry

    def begin(self, link: SimpleConnector) -> None:
        """Read on this connection; what was handed out and not acknowledged comes again."""
        self._ends.clear()
        link.read_from(self._start, self._until, self._filter)

    def handed_out(self, message: Message) -> None:
        """A batch came, with the id that the caller knows."""
        header = parse(message.raw_entries[-1]).header
        self._ends[message.id] = f"{header.logfileName}:{header.logfileOffset}"

    def acknowledged(self, batch_id: int) -> None:
        """A later connection begins behind this batch, at the transaction that it ended in."""
        self._start = self._ends.pop(batch_id, self._start)
