"""Consumers: which connection consumes with a client id now. Reactor thread.

A client whose network fails connects again while the node still holds the old connection. Nobody receives, and nobody
acknowledges, what the node gives to the old one from then on.
"""

from __future__ import annotations

from canal_ha.model.identity import ClientIdentity, Consumer


class Consumers:
    """See the module. A connection is any object."""

    def __init__(self) -> None:
        self._newest: dict[Consumer, object] = {}  # the connection that consumes
        self._consumers: dict[object, set[Consumer]] = {}  # connection -> what it began to consume

    def began(self, identity: ClientIdentity, connection: object) -> None:
        """Note that a connection has subscribed or rolled back, and so expects every row that is not acknowledged."""
        self.removed(identity)
        self._newest[identity.consumer] = connection
        self._consumers.setdefault(connection, set()).add(identity.consumer)

    def another(self, identity: ClientIdentity, connection: object) -> bool:
        """Return whether another connection, which is not known to be lost, consumes with the client id."""
        return self._newest.get(identity.consumer, connection) is not connection

    def removed(self, identity: ClientIdentity) -> None:
        """Forget who consumes with a client id."""
        connection = self._newest.pop(identity.consumer, None)
        if connection is not None:
            self._consumers[connection].discard(identity.consumer)
            if not self._consumers[connection]:
                del self._consumers[connection]

    def lost(self, connection: object) -> None:
        """Forget a connection."""
        for consumer in self._consumers.pop(connection, ()):
            del self._newest[consumer]
