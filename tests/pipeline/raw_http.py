"""A server that answers HTTP requests with bytes of the test, well-formed or not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

LOOPBACK = "127.0.0.1"


@contextmanager
def answering(parts: Iterable[bytes]) -> Iterator[str]:
    """Yield the URL of a server that sends these parts to its first connection, and then waits for its end."""
    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=_serve, args=(server, parts), daemon=True)
        thread.start()
        yield f"http://{LOOPBACK}:{server.getsockname()[1]}"
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _serve(server: socket.socket, parts: Iterable[bytes]) -> None:
    with suppress(OSError):
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            for part in parts:
                connection.sendall(part)
            while connection.recv(1 << 16):
                pass
