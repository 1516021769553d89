"""Proxy: forwards TCP connections to a port, in threads of its own. Its children look at what comes back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from lab.ports import LOOPBACK

Forward = Callable[[socket.socket, socket.socket], None]


class Proxy:
    """Forwards all connections until its block ends. port: where it listens. to: the server's port."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def back(self, server: socket.socket, client: socket.socket) -> None:
        """Forward what the server sends, until its end."""
        raise NotImplementedError

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((LOOPBACK, self._to))
                for forward, source, target in ((self._there, client, server), (self.back, server, client)):
                    threading.Thread(target=self._run, args=(forward, source, target), daemon=True).start()

    def _there(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(65536):
            server.sendall(data)

    def _run(self, forward: Forward, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            forward(source, target)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
