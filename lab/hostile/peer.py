"""Peer: an attacker's connection to the client port. It sends what it likes and checks nothing."""

from __future__ import annotations

import socket
import struct
from typing import Self

from google.protobuf.message import Message

from canal_ha.wire import scramble
from canal_ha.wire.framing import HEADER_BYTES
from canal_ha.wire.packets import client_frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from lab.ports import LOOPBACK

ATTACKER = "127.0.0.2"
"""The address of the attacks. That of the victim is another one, so that limits of one address are seen to be so."""
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset, which leaves no socket in TIME_WAIT


class Peer:
    """One connection; as a context manager it ends with the block.

    port: of the node.
    source: the address that it comes from.
    timeout_s: of each send and receive.
    Raises OSError.
    """

    def __init__(self, port: int, *, source: str = ATTACKER, timeout_s: float = 5.0) -> None:
        self.sock = socket.socket()
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.settimeout(timeout_s)
            self.sock.bind((source, 0))
            self.sock.connect((LOOPBACK, port))
        except OSError:
            self.sock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def seed(self) -> bytes:
        """Return the seed of the handshake. Raises ConnectionError without one."""
        packet = self.packet()
        if packet is None or packet.type != pb.HANDSHAKE:
            raise ConnectionError("no handshake")
        return pb.Handshake.FromString(packet.body).seeds

    def log_in(self, name: str, password: str) -> str:
        """Log in after the handshake; return the error, "" without one. Raises ConnectionError."""
        token = scramble.token(password, self.seed())
        return self.ask(pb.CLIENTAUTHENTICATION, pb.ClientAuth(username=name, password=token))

    def send(self, packet_type: pb.PacketType.ValueType, body: Message) -> None:
        """Send one request."""
        self.sock.sendall(client_frame(packet_type, body))

    def ask(self, packet_type: pb.PacketType.ValueType, body: Message) -> str:
        """Send one request; return the error of its answer, "" without one. Raises ConnectionError."""
        self.send(packet_type, body)
        return self.error()

    def error(self) -> str:
        """Return the error of the next packet, "" without one. Raises ConnectionError at the end."""
        packet = self.packet()
        if packet is None:
            raise ConnectionError("the node closed the connection")
        return pb.Ack.FromString(packet.body).error_message if packet.type == pb.ACK else ""

    def packet(self) -> pb.Packet | None:
        """Return the next packet; None at the end. Raises OSError."""
        length = self._exactly(HEADER_BYTES)
        if length is None:
            return None
        data = self._exactly(int.from_bytes(length, "big"))
        return None if data is None else pb.Packet.FromString(data)

    def _exactly(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            piece = self.sock.recv(size - len(data))
            if not piece:
                return None
            data += piece
        return data
