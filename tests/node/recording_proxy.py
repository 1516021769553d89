"""A TCP proxy between clients and a node that keeps every byte that the node sends. It runs in its own threads."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from lab.ports import LOOPBACK


class RecordingProxy:
    """Forwards all connections to a port. sent: what came back, of all connections."""

    def __init__(self, port: int) -> None:
        self.sent = bytearray()
        self._to = port
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="recording", daemon=True).start()

    def __enter__(self) -> RecordingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((LOOPBACK, self._to))
                threading.Thread(target=self._forward, args=(near, far, bytearray()), daemon=True).start()
                threading.Thread(target=self._forward, args=(far, near, self.sent), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                kept += data
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
