"""Consumers: which connection consumes with a client id now. Reactor thread.

A client whose network fails connects again while the node still holds the old connection. Nobody receives, and nobody
acknowledges, what the node gives to the old one from then on.
"""

from __future__ import annotations

from canal_ha.model.identity import ClientIdentity, ClientKey


class Consumers:
    """See the module. A connection is any object."""

    def __init__(self) -> None:
        self._newest: dict[ClientKey, object] = {}  # the connection that consumes
        self._clients: dict[object, set[ClientKey]] = {}  # connection -> what it began to consume

    def began(self, identity: ClientIdentity, connection: object) -> None:
        """Note that a connection has subscribed or rolled back, and so expects every row that is not acknowledged."""
        self.removed(identity)
        self._newest[identity.key] = connection
        self._clients.setdefault(connection, set()).add(identity.key)

    def another(self, identity: ClientIdentity, connection: object) -> bool:
        """Return whether another connection, which is not known to be lost, consumes with the client id."""
        return self._newest.get(identity.key, connection) is not connection

    def removed(self, identity: ClientIdentity) -> None:
        """Forget who consumes with a client id."""
        connection = self._newest.pop(identity.key, None)
        if connection is not None:
            self._clients[connection].discard(identity.key)
            if not self._clients[connection]:
                del self._clients[connection]

    def lost(self, connection: object) -> None:
        """Forget a connection."""
        for client in self._clients.pop(connection, ()):
            del self._newest[client]
