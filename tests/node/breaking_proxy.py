"""A TCP proxy between a node and MySQL that damages one row event of one dump. It runs in its own threads."""

from __future__ import annotations

import socket
import struct
import threading
import zlib
from collections.abc import Callable

from lab.ports import LOOPBACK
from tests.node.proxy import Proxy

Damage = Callable[[bytearray, int], None]
"""Changes an event in place; the number says where the marker is in it."""


class BreakingProxy(Proxy):
    """A proxy that forwards all bytes, but damages the first row event that contains the marker.

    damage: `flipped` or `too_long`. The server must speak without TLS.
    """

    def __init__(self, port: int, marker: bytes, damage: Damage) -> None:
        self.broken = threading.Event()
        self._marker = marker
        self._damage = damage
        super().__init__(port)
        self.address = f"{LOOPBACK}:{self.port}"

    def back(self, server: socket.socket, client: socket.socket) -> None:
        """See Proxy."""
        with server.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                payload = bytearray(stream.read(int.from_bytes(head[:3], "little")))
                at = payload.find(self._marker)
                if at > 0 and payload[0] == 0 and _is_rows(payload) and not self.broken.is_set():
                    event = payload[1:]
                    self._damage(event, at - 1)
                    payload[1:] = event
                    self.broken.set()
                client.sendall(head + payload)


def _is_rows(payload: bytearray) -> bool:
    return len(payload) > 20 and payload[5] in (23, 24, 25, 30, 31, 32)


def flipped(event: bytearray, at: int) -> None:
    """Flip one bit of the value, so that the checksum fails."""
    event[at] ^= 0x01


def too_long(event: bytearray, at: int) -> None:
    """Set the length before the value so that it exceeds the event, and correct the checksum."""
    event[at - 1] = 0xFF
    event[-4:] = struct.pack("<I", zlib.crc32(event[:-4]))
