"""A TCP proxy between clients and a node that keeps every byte that the node sends. It runs in its own threads."""

from __future__ import annotations

import socket

from tests.node.proxy import Proxy


class RecordingProxy(Proxy):
    """Forwards all connections to a port. sent: what came back, of all connections."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        super().__init__(port)

    def back(self, server: socket.socket, client: socket.socket) -> None:
        """See Proxy."""
        while data := server.recv(65536):
            self.sent += data
            client.sendall(data)
