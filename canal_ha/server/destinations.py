"""Destinations: what a connection asks of the node, by the identity of the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from canal_ha.instance.wake import Awaited
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import NO_SNAPSHOT, InitialSnapshot


class PrivateRead(Protocol):
    """Reads the binlog for one connection, from a position on and without a cursor."""

    @property
    def start(self) -> LogPosition:
        """Where it began, with the snapshot that it reads."""

    async def get(self, request: GetRequest) -> GetAnswer:
        """See Destinations.get. Raises EndOfRange."""

    def ack(self, batch_id: int) -> None:
        """Close the oldest batch."""

    def rollback(self, batch_id: int) -> None:
        """Deliver again what the client has not acknowledged."""

    def when_over(self, call: Callable[[str], None]) -> None:
        """Call this once when the read is over, with the reason."""

    def close(self, why: str) -> None:
        """End the read. A second call does nothing. why: for the audit."""


class Destinations(Protocol):
    """The destinations that run here.

    Each method raises NotRunningHere for a destination that does not run here, and any error of its instance. Every
    CanalError becomes an error packet.
    """

    def knows(self, destination: str) -> bool:
        """Whether this node runs the destination, or could."""

    async def subscribe(
        self,
        identity: ClientIdentity,
        *,
        exact: bool = False,
        opens: bool = True,
        snapshot: InitialSnapshot = NO_SNAPSHOT,
    ) -> LogPosition | None:
        """Make the client durable, then return its cursor.

        identity: the client, with its filter.
        exact: the form of values that it will ask for.
        opens: whether to open its stream; the next GET opens it otherwise.
        snapshot: what the client begins with, if it has no cursor yet.
        """

    def era(self, identity: ClientIdentity) -> object | None:
        """Return an object that stays the same while only acknowledgements move the client's cursor.

        None if the destination does not run here, or has no such client.
        """

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """Return the client's cursor, as `subscribe` does. None as for `era`."""

    async def unsubscribe(self, identity: ClientIdentity) -> None:
        """Delete the client."""

    async def get(
        self,
        identity: ClientIdentity,
        request: GetRequest,
        check: Callable[[], None],
        awaited: Callable[[], Awaited],
    ) -> GetAnswer:
        """Return the client's next batch. The caller may cancel the wait.

        check: called before the batch is taken; raises an error if the client must not get it.
        awaited: makes what the caller's driver awaits.
        """

    async def read_from(
        self,
        identity: ClientIdentity,
        place: Place,
        until: Place | None,
        *,
        exact: bool = False,
        snapshot: InitialSnapshot = NO_SNAPSHOT,
        holder: str = "",
    ) -> PrivateRead:
        """Begin a private read.

        identity: of the client that asks, with the filter of this read.
        place: where the read begins.
        until: where it ends; None for no end.
        exact: the form of values that its GETs will ask for.
        snapshot: tables whose existing rows are read; the read ends behind them.
        holder: the account, or the address without one, whose reads begin no faster than the pace.
        """

    async def ack(self, identity: ClientIdentity, batch_id: int, mark: str = "") -> None:
        """Close the oldest batch. mark: kept with the cursor; "" for none."""

    async def in_flight(self, identity: ClientIdentity) -> tuple[int, ...]:
        """Return the ids of the client's batches in flight, oldest first."""

    async def entries_in_flight(self, identity: ClientIdentity) -> int:
        """Return how many entries the client's batches in flight have."""

    async def rollback(self, identity: ClientIdentity, batch_id: int, *, unasked: bool = False) -> None:
        """Deliver again what the client has not acknowledged.

        batch_id: 0 means everything in flight.
        unasked: the client has not asked for it, so its era ends.
        """
