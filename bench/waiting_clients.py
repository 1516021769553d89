"""WaitingClients: a client for each of many destinations, all of them on one thread, that wait in a GET for rows.

A client on asyncio needs 0.17 ms for each reply. With a thousand of them, the clients would be slower than the node.
These speak the same protocol (canal_ha.wire), and do not decode entries.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Sequence

from canal_ha.decode.kernel.entries import only_frames, whole_reply
from canal_ha.model.identity import ClientIdentity
from canal_ha.wire.client_session import Accepted, ClientSession
from canal_ha.wire.messages import Fetched
from lab.ports import LOOPBACK

CONNECTS_AT_ONCE = 50
WAIT_MS = 600_000
ONE_ENTRY = 2  # of a GET by entries: the row and its transaction's end
PIECE_BYTES = 65_536


class WaitingClients:
    """See the module. arrived: monotonic seconds at which a client got the newest row, by its destination."""

    def __init__(self, port: int, names: Sequence[str], client_id: int) -> None:
        """port: the node's. names: the destinations. client_id: of each client."""
        self.arrived: dict[str, float] = {}
        self._port = port
        self._identities = [
            ClientIdentity(name, client_id) for name in reversed(names)
        ]  # of clients that are not connected yet
        self._connecting = 0
        self._selector = selectors.DefaultSelector()
        self._count = len(names)

    def until_connected(self, timeout_s: float) -> bool:
        """Connect all of them, and let them send their first GET. Return False if some could not within this time."""
        return self._serve(lambda: not self._identities and not self._connecting, timeout_s)

    def until_arrived(self, timeout_s: float, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Serve all clients until each one has got a row. Return False if some have none.

        timeout_s: longest wait.
        give_up: whether no row will come.
        """
        self._serve(lambda: len(self.arrived) == self._count or give_up(), timeout_s)
        return len(self.arrived) == self._count

    def pause(self, seconds: float) -> None:
        """Serve all clients for some time."""
        self._serve(lambda: False, seconds)

    def _serve(self, done: Callable[[], bool], timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        while not done() and time.monotonic() < until:
            while self._identities and self._connecting < CONNECTS_AT_ONCE:
                self._connect(self._identities.pop())
            for key, _ in self._selector.select(0.05):
                key.data.read()
        return done()

    def close(self) -> None:
        """End all connections."""
        for key in tuple(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()

    def _connect(self, identity: ClientIdentity) -> None:
        self._connecting += 1
        client = _WaitingClient(socket.create_connection((LOOPBACK, self._port)), identity, self)
        self._selector.register(client, selectors.EVENT_READ, client)

    def subscribed(self) -> None:
        """One of them is connected."""
        self._connecting -= 1


class _WaitingClient:
    """One client. clients: hears that it is connected, and when it gets rows."""

    def __init__(self, sock: socket.socket, identity: ClientIdentity, clients: WaitingClients) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._identity = identity
        self._clients = clients
        self._session = ClientSession(only_frames=only_frames, whole_reply=whole_reply, exact=True)
        self._accepted = 0

    def fileno(self) -> int:
        """Return the socket's."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def read(self) -> None:
        """Receive, and answer what the server said. Raises ConnectionError if it closed the connection."""
        received = self._sock.recv(PIECE_BYTES)
        if not received:
            raise ConnectionError(f"the node closed the connection of {self._identity.destination}")
        self._session.receive(received)
        while answer := self._session.next():
            if isinstance(answer, Fetched):
                self._fetched(answer)
            elif isinstance(answer, Accepted):
                self._accepted += 1
                if self._accepted == 1:
                    self._sock.sendall(self._session.subscribe(self._identity))
                else:
                    self._clients.subscribed()
                    self._get()
            else:
                self._sock.sendall(self._session.authenticate("", "", 3_600_000))

    def _fetched(self, answer: Fetched) -> None:
        if len(answer.data) > answer.start:
            self._clients.arrived.setdefault(self._identity.destination, time.monotonic())
            self._sock.sendall(self._session.ack(self._identity, answer.batch_id))
        self._get()

    def _get(self) -> None:
        self._sock.sendall(self._session.get(self._identity, ONE_ENTRY, WAIT_MS, eager=True))
