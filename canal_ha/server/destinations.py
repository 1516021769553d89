"""What a connection asks of the node: requests by identity."""

from __future__ import annotations

from typing import Protocol

from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition


class PrivateRead(Protocol):
    """What one connection reads from a position, without a cursor."""

    async def get(self, request: GetRequest) -> GetAnswer:
        """See Destinations.get. Raises EndOfRange."""

    def ack(self, batch_id: int) -> None:
        """Let go of the oldest batch."""

    def rollback(self, batch_id: int) -> None:
        """Hand out again what is not acknowledged."""

    def close(self) -> None:
        """End it; harmless when it has."""


class Destinations(Protocol):
    """The destinations that run here. Each method raises NotRunningHere for one that does not, and what its instance
    raises; every CanalError becomes an error packet.
    """

    def knows(self, destination: str) -> bool:
        """Whether this node runs the destination, or could."""

    async def subscribe(self, identity: ClientIdentity) -> LogPosition | None:
        """Know this client, durably, before returning its cursor."""

    def era(self, identity: ClientIdentity) -> object | None:
        """Another object as soon as the client's cursor is anywhere but where acknowledgements have put it; None where
        the destination does not run, or has no such client.
        """

    async def unsubscribe(self, identity: ClientIdentity) -> None:
        """Forget this client."""

    async def get(self, identity: ClientIdentity, request: GetRequest) -> GetAnswer:
        """Return the client's next batch. The caller may cancel the wait."""

    async def read_from(self, identity: ClientIdentity, place: Place, until: Place | None) -> PrivateRead:
        """Begin a private read at a place. until: its end, None for none; identity: its filter, and who asks."""

    async def ack(self, identity: ClientIdentity, batch_id: int, mark: str = "") -> None:
        """Close the oldest batch. mark: kept with the cursor, "" for none."""

    async def rollback(self, identity: ClientIdentity, batch_id: int) -> None:
        """Hand out again what is not acknowledged. batch_id 0: everything."""
