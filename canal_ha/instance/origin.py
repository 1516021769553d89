"""Origin: where the rows of a destination come from, as its instance sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from canal_ha.config.model import WhenLost
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.status import SourceFacts
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment

T = TypeVar("T")


class SourceView(Protocol):
    """Answers questions about positions. Every method runs on the pool and may block there."""

    @property
    def version(self) -> str:
        """The server's version; "" until the first question."""

    def newest(self) -> LogPosition:
        """Return where the binlog ends now. Raises SourceUnavailable, SourceRefused."""

    def start(self, kept: LogPosition | None) -> LogPosition:
        """Return where a new client begins.

        That is the configured start. Without one it is `kept`, or the oldest journal if `kept` is purged. Without
        either it is the newest position.
        """

    def find(self, place: Place) -> LogPosition:
        """Return the boundary between transactions that a person means."""

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        """Return where to go on when the journal of a cursor is gone."""


class Remembered(Protocol):
    """Remembers the transactions acknowledged last. Their fingerprints tell the place in another server's binlog."""

    def copies(self, pieces: Sequence[tuple[Segment, int, int]], /) -> Any:
        """Copy what is needed of entries that a client is getting, without the ring's memory.

        pieces: consecutive segments, each with its first entry and the one behind its last.
        """

    def add_copies(self, copies: Any, /) -> None:
        """The client has acknowledged these entries next."""

    def trail(self) -> str:
        """Return the fingerprints as text, for a cursor."""

    def origins(self) -> str:
        """Return those of each origin's last transaction, as of the last `trail`."""


KeepServers = Callable[[tuple[str, ...]], None]
"""Makes durable from which servers a destination reads, and returns then. Any thread except the reactor's.

Raises MetaWriteFailed, Fenced."""


class SourceSwitch(Protocol):
    """A source whose server can change under a destination: master and standby."""

    def begin(self, cursors: tuple[LogPosition, ...], chosen: tuple[str, ...], keep: KeepServers, /) -> None:
        """Choose the server and begin to watch it.

        cursors: of the clients.
        chosen: the server that was switched to last, host:port; one for each source of a group, () if none was.
        keep: makes another choice durable. Called before each switch, and for a choice that is not configured any more.
        """

    def facts(self) -> SourceFacts:
        """Return the facts of this moment. Does not block."""

    def switch(self, to: str, reason: str, /) -> str:
        """Read from another server from now on and return its address.

        The choice is durable first. If the instance stops meanwhile, only the next owner reads from there. After a
        CanalError nothing has changed; but after MetaWriteFailed a write without an answer can still be done, and the
        next owner begins with it unless a flush takes it back before.

        to: master, standby or other.
        reason: for the log.
        """

    def remember(self, cursor: LogPosition, /) -> Remembered:
        """Begin to remember what is acknowledged, from the fingerprints of a cursor on."""


class Origin(Protocol):
    """Everything that an instance needs of its source.

    `open_feed`, `at_once` and `interrupt` run on the reactor, everything else on the pool.
    """

    @property
    def view(self) -> SourceView:
        """Answers questions about positions."""

    @property
    def source_switch(self) -> SourceSwitch | None:
        """Changes the server; None where there is nothing to change."""

    def open_feed(self, request: FeedRequest) -> Feed:
        """Return a feed that is not started yet."""

    def tables(self) -> Sequence[tuple[str, str]]:
        """Return schema and name of every table that a snapshot can be asked of.

        Raises SnapshotRefused if existing rows cannot be read here, and CanalError when the source does not answer.
        """

    def definition(self, schema: str, table: str) -> str | None:
        """Return the CREATE TABLE statement of a table as it is now; None if the source shows no such table.

        Raises CanalError when the source does not answer.
        """

    def keep_house(self, cursors: Collection[LogPosition] | None, *, at_once: bool = False) -> bool:
        """Keep what clients need of the table history, and drop the rest. Called now and then.

        cursors: of all clients; None if they are unknown. Then nothing is dropped.
        at_once: do only what takes no time. Return False if more is due, which has to be asked for again then.
        Raises CanalError when the source does not answer.
        """

    def at_once(self, call: Callable[[], T]) -> T | None:
        """Return what a call to this origin returns; None if it would have to wait. The reactor's thread.

        Raises what the call raises.
        """

    def outlook(self, cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        """Return, by client id, how long the source keeps the journals of these cursors.

        Raises CanalError when the source does not answer.
        """

    def interrupt(self) -> None:
        """End the questions under way with an error, and refuse new ones, because the instance stops.

        Does not block: a source that hangs may hold every thread of the pool.
        """

    def close(self) -> None:
        """Close every connection. This is the last call."""
