"""What every format of messages makes of an entry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.row_entry import RowEntry


class QueueMessage(NamedTuple):
    """A message. value: None deletes the key in a compacted topic."""

    partition: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class MessageOrigin:
    """What all messages of a commit share.

    destination: where the entries come from.
    number: of the commit.
    now_ms: time of the commit, ms since 1970.
    """

    destination: str
    number: int
    now_ms: int


class MessageFormat(Protocol):
    """A format of messages.

    statements_apart: messages of statements differ from those of rows, and need a topic of their own.
    exact: it needs values in the exact form (docs/protocol.md#exact), not in canal's.
    """

    statements_apart: bool
    exact: bool

    def records(
        self, entry: RowEntry, topic: str, placement: Placement, origin: MessageOrigin
    ) -> Iterator[QueueMessage]:
        """Yield the messages of an entry, in the order of its rows.

        entry: rows or a statement.
        topic: of its table, or of statements.
        placement: where the rows of its table go.
        origin: of all messages of the commit.
        Raises SinkRefused and TargetUnavailable.
        """
