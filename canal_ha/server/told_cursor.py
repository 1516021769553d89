"""ToldCursor: the cursor that a client was told on its connection, and whether it may build on it. Reactor thread.

A pipeline asks for its cursor, compares it with its target, begins, and takes what comes then for what follows its last
batch. So its requests end with CursorReplaced as soon as something else than its own ACKs moves the cursor, or another
connection gets rows of its client id.
"""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.errors import CursorReplaced
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.server.consumers import Consumers
from canal_ha.server.destinations import Destinations


@dataclass(slots=True)
class _Told:
    """What a client that asked for its cursor was told last.

    era: see Destinations.era.
    begun: whether it has begun to consume since.
    asked: whether it has asked for a batch since it began.
    """

    identity: ClientIdentity
    era: object
    cursor: LogPosition | None
    begun: bool
    asked: bool = False


class ToldCursor:
    """See the module. connection: as `consumers` knows it."""

    def __init__(self, destinations: Destinations, consumers: Consumers, connection: object) -> None:
        self._destinations = destinations
        self._consumers = consumers
        self._connection = connection
        self._told: _Told | None = None

    def __bool__(self) -> bool:
        """Whether the client has asked for a cursor on this connection."""
        return self._told is not None

    def tell(self, identity: ClientIdentity, cursor: LogPosition | None, *, begun: bool) -> None:
        """Note what the client is told. begun: whether it consumes with the same request."""
        self._told = _Told(identity, self._destinations.era(identity), cursor, begun)

    def begins(self, identity: ClientIdentity) -> None:
        """Note that the client begins to consume."""
        if told := self._of(identity):
            told.begun = True

    def asks(self, identity: ClientIdentity) -> None:
        """Note that the client asks for a batch. Raises CursorReplaced."""
        self.check(identity)
        if (told := self._of(identity)) and told.begun:
            told.asked = True

    def check(self, identity: ClientIdentity) -> None:
        """Raise CursorReplaced if the client must not take what comes for what follows its last batch."""
        if self._told is None:
            return
        self.check_moved(identity)
        told = self._of(identity)
        if told and told.begun and not self._consumers.alone(identity, self._connection):
            raise CursorReplaced(identity.destination, identity.client_id)

    def check_moved(self, identity: ClientIdentity) -> None:
        """Raise CursorReplaced if something else than the client's ACKs has moved its cursor.

        An ACK on another connection may come between the answer with the cursor and the beginning, which voids it from
        then on. So the cursor must be the same when the client asks for its first batch.
        """
        told, destinations = self._of(identity), self._destinations
        if told is None:
            return
        if destinations.era(identity) not in (told.era, None):
            raise CursorReplaced(identity.destination, identity.client_id)
        if told.begun and not told.asked and destinations.cursor(identity) not in (told.cursor, None):
            raise CursorReplaced(identity.destination, identity.client_id)

    def _of(self, identity: ClientIdentity) -> _Told | None:
        return self._told if self._told and self._told.identity.key == identity.key else None
